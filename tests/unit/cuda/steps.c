#include "unit/cuda/steps.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/layout/dtype.h"
#include "unit/check.h"

uint8_t *step_memory(size_t bytes)
{
    uint8_t *at = aligned_alloc(64, (bytes + 127) / 64 * 64);
    assert_non_null(at);
    return at;
}

void step_fill(uint8_t *at, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes; i += 8) {
        const uint64_t word = check_random(&seed);
        memcpy(at + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

static uint32_t load(const uint8_t *at, uint32_t width)
{
    uint32_t x = 0;
    memcpy(&x, at, width);
    return x;
}

static bool is_changed(enum change change, size_t i, size_t count, uint32_t was, uint64_t *seed)
{
    const uint64_t coin = check_random(seed);
    switch (change) {
    case NOTHING:
        return false;
    case SMALL_STEPS:
    case LARGE_STEPS:
        return coin % 50 == 0;
    case BY_EXPONENT:
        return coin % (2 + (was >> 7 & 0x3f)) == 0;
    case EVERY_TENTH:
        return i % 10 == 0;
    case ALL_OF_IT:
        return true;
    default:
        return i + 1 == count;
    }
}

void step_make(struct step *s, enum tb_dtype dtype, uint32_t kind, size_t count, enum change change)
{
    const uint32_t width = tb_dtype_element_bytes(dtype) < 4 ? tb_dtype_element_bytes(dtype)
                           : dtype == TB_DTYPE_F32           ? 4
                                                             : 1;
    uint64_t seed = count + (uint64_t)change;
    *s = (struct step){step_memory(count), step_memory(count), count, dtype, kind};
    step_fill(s->base, count, 11 + (uint64_t)dtype);
    memcpy(s->bytes, s->base, count);
    for (size_t i = 0; i < count / width; i++) {
        const uint32_t was = load(s->base + width * i, width);
        if (!is_changed(change, i, count / width, was, &seed)) continue;
        const uint64_t coin = check_random(&seed);
        uint32_t now = was + (coin % 2 == 0 ? 1u : UINT32_MAX);
        if (change == LARGE_STEPS || coin % 32 == 1) now = was + (uint32_t)(coin >> 8) % 300000u;
        memcpy(s->bytes + width * i, &now, width);
    }
    if (count % width != 0) s->bytes[count - 1] ^= 0x40;
}

void step_free(struct step *s)
{
    free(s->base);
    free(s->bytes);
}

size_t step_encode(const struct step *s, unsigned classes, uint8_t *out, size_t cap)
{
    static uint64_t scratch[TB_SPARSE_SCRATCH_BYTES / 8];
    const struct tb_sparse_means means = {scratch, TB_VECTOR_BEST};
    const struct tb_sparse_input in = {s->base, s->bytes, s->count, s->dtype, classes};
    return tb_sparse_encode(&in, &means, out, cap);
}

size_t step_changed(const struct step *s)
{
    const uint32_t width = s->kind == TB_SPARSE_F32 ? 4 : s->kind <= TB_SPARSE_F16 ? 2 : 1;
    size_t changed = 0;
    for (size_t i = 0; i < s->count / width; i++)
        changed += memcmp(s->base + width * i, s->bytes + width * i, width) != 0;
    return changed;
}
