/* Patching stays inside the chunk whatever the form says, and what the encoder writes comes back.
 * Bytes 0 and 1: the size of the chunk; the rest is the form, and then the base too.
 *
 * Covers: base/codec/sparse.c base/codec/sparse_portable.c base/codec/sparse_avx2.c
 * Covers: base/codec/sparse_avx512.c */
#include "base/codec/sparse.h"

#include <string.h>

#include "tests/fuzz/fuzz.h"

static uint64_t scratch[TB_SPARSE_SCRATCH_BYTES / 8];
static const struct tb_sparse_means means = {scratch, TB_VECTOR_BEST};

/* The input's own bytes as a version, against a base that differs in every 9th: any dtype, any
 * classes. */
static void round_trip(const uint8_t *bytes, size_t count)
{
    uint8_t *base = malloc(count), *out = malloc(count);
    FUZZ_REQUIRE(base != NULL && out != NULL);
    memcpy(base, bytes, count);
    for (size_t i = 0; i < count; i += 9)
        base[i] = (uint8_t)(base[i] + bytes[count - 1]);
    const struct tb_sparse_input in = {base, bytes, count, (enum tb_dtype)(1 + bytes[0] % 15),
                                       1 + bytes[0] / 16u};
    const size_t used = tb_sparse_encode(&in, &means, out, count);
    if (used > 0) {
        const struct tb_sparse_form form = {out, used};
        uint8_t *again = malloc(count);
        FUZZ_REQUIRE(again != NULL);
        const struct tb_sparse_output beside = {base, again, count}, over = {NULL, base, count};
        FUZZ_REQUIRE(tb_sparse_decode(form, &means, &beside) == TB_OK);
        FUZZ_REQUIRE(tb_sparse_decode(form, &means, &over) == TB_OK);
        FUZZ_REQUIRE(memcmp(again, bytes, count) == 0 && memcmp(base, bytes, count) == 0);
        free(again);
    }
    free(base);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    if (count < 3) return 0;
    const size_t size = (size_t)bytes[0] | (size_t)bytes[1] << 8;
    uint8_t *elements = malloc(size > 0 ? size : 1);
    FUZZ_REQUIRE(elements != NULL);
    for (size_t i = 0; i < size; i++)
        elements[i] = bytes[i % count];
    const enum tb_status status = tb_sparse_decode((struct tb_sparse_form){bytes + 2, count - 2}, &means,
                                                   &(struct tb_sparse_output){NULL, elements, size});
    FUZZ_REQUIRE(status == TB_OK || status == TB_CHUNK_CODEC);
    free(elements);
    round_trip(bytes, count);
    return 0;
}
