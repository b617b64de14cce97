/* Elements of any bits, taken apart and put together, are the same; and so through the codec, with bytes behind the last
 * whole element. First byte: the kind, or the dtype. */
#include "base/planes.h"

#include "base/codec.h"
#include "tests/fuzz/fuzz.h"

static void apart_and_together(uint8_t kind, const uint8_t *bytes, size_t count)
{
    const size_t width = tb_planes_width(kind);
    if (width == 0) return;
    const size_t elements = count / width;
    uint8_t *rest = malloc(elements * (width - 1) + 1), *again = malloc(elements * width + 1);
    FUZZ_REQUIRE(rest != NULL && again != NULL);
    tb_planes_rest((enum tb_planes_kind)kind, bytes, elements, rest);
    tb_planes_hot((enum tb_planes_kind)kind, bytes, elements, again + elements * (width - 1));
    tb_planes_join((enum tb_planes_kind)kind, rest, elements, again);
    FUZZ_REQUIRE(elements == 0 || memcmp(again, bytes, elements * width) == 0);
    free(rest);
    free(again);
}

static void through_codec(uint8_t dtype, const uint8_t *bytes, size_t count)
{
    static struct tb_codec *codec;
    if (codec == NULL) FUZZ_REQUIRE(tb_codec_new(&codec) == TB_OK);
    const struct tb_codec_input in = {bytes, count, (enum tb_dtype)(1 + dtype % 15)};
    const size_t cap = tb_codec_bound(TB_CODEC_PLANES, count);
    uint8_t *out = malloc(cap + 1), *again = malloc(count + 1);
    enum tb_codec_id id = TB_CODEC_RAW;
    size_t used = 0;
    FUZZ_REQUIRE(out != NULL && again != NULL);
    FUZZ_REQUIRE(tb_codec_encode(codec, TB_CODEC_PLANES, &in, out, cap, &id, &used) == TB_OK && used <= cap);
    FUZZ_REQUIRE(tb_codec_decode(codec, id, out, used, again, count) == TB_OK);
    FUZZ_REQUIRE(count == 0 || memcmp(again, bytes, count) == 0);
    free(out);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    if (count == 0) return 0;
    apart_and_together(bytes[0] % 8, bytes + 1, count - 1);
    through_codec(bytes[0], bytes + 1, count - 1);
    return 0;
}
