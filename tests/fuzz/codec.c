/* Decoding stays inside its two buffers. Bytes 0 to 2: codec id and how many bytes are to come out. */
#include "base/codec.h"

#include <stdbool.h>

#include "tests/fuzz/fuzz.h"

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
    return 0;
}
