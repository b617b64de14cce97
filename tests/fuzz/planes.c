/* Decoding stays inside its buffers and is the same with every variant, and what the encoder writes
 * comes back. Bytes 0 and 1: the size of the chunk; the rest is the form, and the base too.
 *
 * Covers: base/codec/planes.c base/codec/planes_portable.c base/codec/planes_avx2.c
 * Covers: base/codec/planes_avx512.c */
#include "base/codec/planes.h"

#include "tests/fuzz/fuzz.h"

static uint64_t scratch[TB_PLANES_SCRATCH_BYTES / 8];

static enum tb_status decode(const uint8_t *form, size_t count, const uint8_t *base, uint8_t *out,
                             size_t size, enum tb_vector vector)
{
    const struct tb_planes_means means = {scratch, vector};
    return tb_planes_decode((struct tb_planes_form){form, count}, &means,
                            &(struct tb_planes_output){base, out, size});
}

static void variants_agree(const uint8_t *form, size_t count, const uint8_t *base, size_t size)
{
    uint8_t *one = malloc(size + 1), *other = malloc(size + 1);
    FUZZ_REQUIRE(one != NULL && other != NULL);
    const enum tb_status status = decode(form, count, base, one, size, TB_VECTOR_PORTABLE);
    FUZZ_REQUIRE(status == TB_OK || status == TB_CHUNK_CODEC);
    FUZZ_REQUIRE(decode(form, count, base, other, size, TB_VECTOR_BEST) == status);
    FUZZ_REQUIRE(status != TB_OK || size == 0 || memcmp(one, other, size) == 0);
    free(one);
    free(other);
}

/* The input's own bytes as a version, alone and against a base that differs in every 3rd. */
static void round_trip(const uint8_t *bytes, size_t count, const uint8_t *base)
{
    uint8_t *out = malloc(count + 1), *same = malloc(count + 1), *back = malloc(count + 1);
    FUZZ_REQUIRE(out != NULL && same != NULL && back != NULL);
    const struct tb_planes_input in = {base, bytes, count, (enum tb_dtype)(1 + count % 15)};
    const struct tb_planes_means plain = {scratch, TB_VECTOR_PORTABLE}, best = {scratch, TB_VECTOR_BEST};
    const size_t used = tb_planes_encode(&in, &plain, out, count);
    FUZZ_REQUIRE(tb_planes_encode(&in, &best, same, count) == used && memcmp(out, same, used) == 0);
    if (used > 0) {
        FUZZ_REQUIRE(decode(out, used, base, back, count, TB_VECTOR_BEST) == TB_OK);
        FUZZ_REQUIRE(memcmp(back, bytes, count) == 0);
    }
    free(out);
    free(same);
    free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    if (count < 3) return 0;
    const size_t size = (size_t)bytes[0] | (size_t)bytes[1] << 8;
    uint8_t *base = malloc(size + count);
    FUZZ_REQUIRE(base != NULL);
    for (size_t i = 0; i < size + count; i++)
        base[i] = (uint8_t)(bytes[i % count] + (i % 3 == 0));
    variants_agree(bytes + 2, count - 2, base, size);
    variants_agree(bytes + 2, count - 2, NULL, size);
    round_trip(bytes, count, base);
    round_trip(bytes, count, NULL);
    free(base);
    return 0;
}
