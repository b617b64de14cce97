/* The digest is XXH3-128 as xxHash publishes it, so any tool can check a chunk.
 * Covers: base/digest.c base/digest/digest_portable.c base/digest/digest_avx2.c
 * Covers: base/digest/digest_choose_x86.c base/digest/digest_choose_none.c */
#include "base/digest.h"

#include <string.h>

#include "base/digest/digest_kernels.h"
#include "tests/unit/check.h"

extern const struct tb_digest_kernels test_digest_scalar;

static void assert_hex(struct tb_digest d, const char *want)
{
    char hex[33];
    for (size_t i = 0; i < 16; i++) {
        static const char digits[] = "0123456789abcdef";
        hex[2 * i] = digits[d.bytes[i] >> 4];
        hex[2 * i + 1] = digits[d.bytes[i] & 15];
    }
    hex[32] = '\0';
    assert_string_equal(hex, want);
}

/* As `xxhsum -H2` prints them. */
static void known_answers(void **state)
{
    (void)state;
    static uint8_t big[4096];
    for (size_t i = 0; i < sizeof big; i++)
        big[i] = (uint8_t)i;
    assert_hex(tb_digest_of("", 0), "99aa06d3014798d86001c324468d497f");
    assert_hex(tb_digest_of("tombolo", 7), "0f5c4f531e4e3786837e04631d78653c");
    assert_hex(tb_digest_of(big, sizeof big), "03916578969f7a66eb4b7c3707879151");
}

static void pieces_give_the_digest_of_the_whole(void **state)
{
    (void)state;
    static uint8_t bytes[5000];
    uint64_t seed = 3;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)check_random(&seed);
    for (int round = 0; round < 200; round++) {
        const size_t count = check_random(&seed) % sizeof bytes;
        struct tb_digest_state s;
        tb_digest_begin(&s);
        for (size_t at = 0; at < count;) {
            size_t step = check_random(&seed) % 700;
            if (step > count - at) step = count - at;
            tb_digest_update(&s, bytes + at, step);
            at += step;
        }
        const struct tb_digest whole = tb_digest_of(bytes, count);
        const struct tb_digest pieces = tb_digest_end(&s);
        assert_true(tb_digest_equal(&whole, &pieces));
    }
}

static void assert_as(const struct tb_digest_kernels *k, const uint8_t *bytes, size_t count, size_t piece)
{
    struct tb_digest_state s;
    const struct tb_digest want = tb_digest_portable.of(bytes, count), whole = k->of(bytes, count);
    assert_true(tb_digest_equal(&want, &whole));
    k->begin(&s);
    for (size_t at = 0; at < count; at += piece)
        k->update(&s, bytes + at, count - at < piece ? count - at : piece);
    const struct tb_digest pieces = k->end(&s);
    assert_true(tb_digest_equal(&want, &pieces));
}

/* Lengths around xxHash's short forms (16, 128, 240) and its blocks (1024), and any alignment. */
static void assert_as_portable(const struct tb_digest_kernels *k, const uint8_t *bytes, size_t count)
{
    for (size_t some = 0; some < 2200; some++)
        assert_as(k, bytes + some % 64, some, 1 + some / 3);
    assert_as(k, bytes + 1, count - 1, 16384);
}

/* The publisher and the reader may have other processors. The portable one is what the compiler's
 * target has (SSE2, NEON), so plain C is held to it too. */
static void variants_agree(void **state)
{
    (void)state;
    static uint8_t bytes[70000];
    uint64_t seed = 5;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)check_random(&seed);
    for (enum tb_vector v = TB_VECTOR_PORTABLE; v <= TB_VECTOR_AVX512; v++)
        if (tb_vector_here(v)) assert_as_portable(tb_digest_kernels(v), bytes, sizeof bytes);
    assert_as_portable(&test_digest_scalar, bytes, sizeof bytes);
}

static void every_bit_counts(void **state)
{
    (void)state;
    uint8_t bytes[100] = {0};
    const struct tb_digest before = tb_digest_of(bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes * 8; i++) {
        bytes[i / 8] ^= (uint8_t)(1u << (i % 8));
        const struct tb_digest after = tb_digest_of(bytes, sizeof bytes);
        assert_false(tb_digest_equal(&before, &after));
        bytes[i / 8] ^= (uint8_t)(1u << (i % 8));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(pieces_give_the_digest_of_the_whole),
        cmocka_unit_test(variants_agree),
        cmocka_unit_test(every_bit_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
