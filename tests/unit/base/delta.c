/* P1: a delta to a base, taken and undone, is the version again: whole elements modulo their
 * width, on every variant.
 * Covers: base/codec/delta.c */
#include "base/codec/delta.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/base/vectors.h"
#include "tests/unit/check.h"

static const unsigned widths[] = {1, 2, 4, 8};

static uint64_t element(const uint8_t *at, unsigned width)
{
    uint64_t x = 0;
    for (unsigned k = 0; k < width; k++)
        x |= (uint64_t)at[k] << (8 * k);
    return x;
}

static void check_one(struct tb_delta d, const uint8_t *bytes, const uint8_t *base, size_t count)
{
    uint8_t *out = malloc(count + 1);
    assert_non_null(out);
    out[count] = 0x5a;
    tb_delta_take(d, bytes, base, count, out);
    const uint64_t mask = UINT64_MAX >> (64 - 8 * d.width);
    for (size_t i = 0; i + d.width <= count; i += d.width)
        assert_int_equal(element(out + i, d.width),
                         (element(bytes + i, d.width) - element(base + i, d.width)) & mask);
    tb_delta_undo(d, out, base, count);
    assert_memory_equal(out, bytes, count);
    assert_int_equal(out[count], 0x5a);
    free(out);
}

static void a_difference_is_undone(void **state)
{
    (void)state;
    static uint8_t bytes[1003], base[1003];
    uint64_t seed = 2;
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)check_random(&seed);
        base[i] = (uint8_t)check_random(&seed);
    }
    for (size_t v = 0; v < VECTORS; v++) {
        if (!tb_vector_here(vectors[v])) continue;
        for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++) {
            for (size_t count = 0; count <= sizeof bytes; count += count < 80 ? 1 : 307)
                check_one((struct tb_delta){vectors[v], widths[w]}, bytes, base, count);
        }
    }
}

static void widths_are_those_of_elements(void **state)
{
    (void)state;
    for (unsigned width = 0; width < 256; width++)
        assert_int_equal(tb_delta_width_valid(width), width == 1 || width == 2 || width == 4 || width == 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_difference_is_undone),
        cmocka_unit_test(widths_are_those_of_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
