/* Decoding stays inside its two buffers, and what raw and zstd encode comes back. Bytes 0 to 2: codec id and how many bytes are
 * to come out. The round trip of planes is in planes.c, that of sparse in sparse.c. */
#include "base/codec.h"

#include <stdbool.h>

#include "tests/fuzz/fuzz.h"

static void round_trip(struct tb_codec *codec, enum tb_codec_id asked, const uint8_t *bytes, size_t count)
{
    const struct tb_codec_input in = {bytes, count, TB_DTYPE_U8};
    const size_t cap = tb_codec_bound(asked, count);
    uint8_t *out = malloc(cap + 1), *again = malloc(count + 1);
    enum tb_codec_id id = asked;
    size_t used = 0;
    FUZZ_REQUIRE(out != NULL && again != NULL);
    FUZZ_REQUIRE(tb_codec_encode(codec, asked, &in, out, cap, &id, &used) == TB_OK && used <= cap);
    FUZZ_REQUIRE(id == asked || id == TB_CODEC_RAW);
    FUZZ_REQUIRE(tb_codec_decode(codec, id, out, used, again, count) == TB_OK);
    FUZZ_REQUIRE(count == 0 || memcmp(again, bytes, count) == 0);
    free(out);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static struct tb_codec *codec;
    if (codec == NULL) FUZZ_REQUIRE(tb_codec_new(&codec) == TB_OK);
    if (count < 3) return 0;
    const size_t out_count = (size_t)bytes[1] | (size_t)bytes[2] << 8;
    uint8_t *out = malloc(out_count > 0 ? out_count : 1);
    FUZZ_REQUIRE(out != NULL);
    const enum tb_status status =
        tb_codec_decode(codec, (enum tb_codec_id)bytes[0], bytes + 3, count - 3, out, out_count);
    FUZZ_REQUIRE(status == TB_OK || status == TB_CHUNK_CODEC);
    FUZZ_REQUIRE(status != TB_OK || bytes[0] <= TB_CODEC_PLANES);
    free(out);
    round_trip(codec, bytes[0] % 2 == 0 ? TB_CODEC_RAW : TB_CODEC_ZSTD, bytes + 3, count - 3);
    return 0;
}
