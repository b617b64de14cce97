/* The proof digest is BLAKE3-256 as published, by each set of instructions, whole or in pieces.
 *
 * Covers: base/proof/blake3.c base/proof/blake3_portable.c base/proof/blake3_avx2.c
 * Covers: base/proof/blake3_avx512.c base/proof/blake3_choose_x86.c
 * Covers: base/proof/blake3_choose_none.c */
#include "base/proof/blake3.h"

#include <stdlib.h>
#include <string.h>

#include "base/proof/blake3_kernels.h"
#include "tests/unit/check.h"

extern const struct tb_blake3_kernels test_blake3_sixteen;

/* Inputs of the function's published vectors: byte i is i modulo 251. The lengths up to 102400 are
 * theirs (first 32 bytes of output); the others were computed with PyPI's blake3 1.0, which
 * blake3_of_others.py asks about more. */
static const struct {
    size_t count;
    const char *hex;
} answers[] = {
    {0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"},
    {1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"},
    {64, "4eed7141ea4a5cd4b788606bd23f46e212af9cacebacdc7d1f4c6dc7f2511b98"},
    {65, "de1e5fa0be70df6d2be8fffd0e99ceaa8eb6e8c93a63f2d8d1c30ecb6b263dee"},
    {1023, "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11"},
    {1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"},
    {1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"},
    {2048, "e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a"},
    {2049, "5f4d72f40d7a5f82b15ca2b2e44b1de3c2ef86c426c95c1af0b6879522563030"},
    {3072, "b98cb0ff3623be03326b373de6b9095218513e64f1ee2edd2525c7ad1e5cffd2"},
    {3073, "7124b49501012f81cc7f11ca069ec9226cecb8a2c850cfe644e327d22d3e1cd3"},
    {4096, "015094013f57a5277b59d8475c0501042c0b642e531b0a1c8f58d2163229e969"},
    {5120, "9cadc15fed8b5d854562b26a9536d9707cadeda9b143978f319ab34230535833"},
    {6144, "3e2e5b74e048f3add6d21faab3f83aa44d3b2278afb83b80b3c35164ebeca205"},
    {7168, "61da957ec2499a95d6b8023e2b0e604ec7f6b50e80a9678b89d2628e99ada77a"},
    {8192, "aae792484c8efe4f19e2ca7d371d8c467ffb10748d8a5a1ae579948f718a2a63"},
    {16384, "f875d6646de28985646f34ee13be9a576fd515f76b5b0a26bb324735041ddde4"},
    {31744, "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47"},
    {102400, "bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085"},
    {262144, "d57dc906e20d3fd326ffaa85535500486f46a0979f5a323f028dcabfd381fd4a"},
    {262145, "531c319935cf78f34869faebd865e5748266b1799039103bfb851a680d9ed30c"},
    {1048593, "3d54bb0bda4e08dd512d5a9b0651535ebd69de2aec4216ff1ce9dda252184296"},
};
#define ANSWERS  (sizeof answers / sizeof *answers)
#define LONGEST  ((size_t)1048593)
#define VARIANTS 5

static uint8_t *input;

static int make_input(void **state)
{
    (void)state;
    input = malloc(LONGEST);
    assert_non_null(input);
    for (size_t i = 0; i < LONGEST; i++)
        input[i] = (uint8_t)(i % 251);
    return 0;
}

static int free_input(void **state)
{
    (void)state;
    free(input);
    return 0;
}

static void assert_hex(struct tb_blake3 digest, const char *want)
{
    char hex[2 * TB_BLAKE3_BYTES + 1];
    for (size_t i = 0; i < TB_BLAKE3_BYTES; i++) {
        static const char digits[] = "0123456789abcdef";
        hex[2 * i] = digits[digest.bytes[i] >> 4];
        hex[2 * i + 1] = digits[digest.bytes[i] & 15];
    }
    hex[sizeof hex - 1] = '\0';
    assert_string_equal(hex, want);
}

/* Those that this machine has, and the code of sixteen lanes on any. */
static size_t variants(const struct tb_blake3_kernels *found[VARIANTS])
{
    size_t count = 0;
    found[count++] = &test_blake3_sixteen;
    for (enum tb_vector v = TB_VECTOR_PORTABLE; v <= TB_VECTOR_AVX512; v++)
        if (tb_vector_here(v)) found[count++] = tb_blake3_kernels(v);
    return count;
}

static void published_answers(void **state)
{
    (void)state;
    const struct tb_blake3_kernels *found[VARIANTS];
    const size_t count = variants(found);
    for (size_t i = 0; i < ANSWERS; i++) {
        assert_hex(tb_blake3_of(input, answers[i].count), answers[i].hex);
        for (size_t v = 0; v < count; v++)
            assert_hex(tb_blake3_by(found[v], input, answers[i].count), answers[i].hex);
    }
}

/* Pieces that end inside a block, inside a leaf, and at the ends of subtrees of each size. */
static void pieces_give_the_digest_of_the_whole(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (size_t i = 0; i < ANSWERS; i++) {
        for (int round = 0; round < 20; round++) {
            struct tb_blake3_state s;
            tb_blake3_begin(&s);
            for (size_t at = 0; at < answers[i].count;) {
                size_t piece = check_random(&seed) % 700;
                if (round % 3 == 1) piece = TB_BLAKE3_LEAF_BYTES << check_random(&seed) % 10;
                if (round % 3 == 2) piece = check_random(&seed) % 300000;
                if (piece > answers[i].count - at) piece = answers[i].count - at;
                tb_blake3_update(&s, input + at, piece);
                at += piece;
            }
            assert_hex(tb_blake3_end(&s), answers[i].hex);
            assert_hex(tb_blake3_end(&s), answers[i].hex); /* the state stays as it is */
        }
    }
}

/* Two ends of a hop may have other processors. Each length around the ends of blocks,
 * leaves and lanes, at any alignment. */
static void variants_agree(void **state)
{
    (void)state;
    const struct tb_blake3_kernels *found[VARIANTS];
    const size_t count = variants(found);
    for (size_t bytes = 0; bytes < (size_t)40 * TB_BLAKE3_LEAF_BYTES; bytes += bytes % 64 < 2 ? 1 : 31) {
        const struct tb_blake3 want = tb_blake3_by(found[0], input + bytes % 64, bytes);
        for (size_t v = 1; v < count; v++) {
            const struct tb_blake3 got = tb_blake3_by(found[v], input + bytes % 64, bytes);
            assert_true(tb_blake3_equal(&want, &got));
        }
    }
}

static void every_bit_counts(void **state)
{
    (void)state;
    uint8_t bytes[2100] = {0};
    const struct tb_blake3 before = tb_blake3_of(bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes * 8; i++) {
        bytes[i / 8] ^= (uint8_t)(1u << (i % 8));
        const struct tb_blake3 after = tb_blake3_of(bytes, sizeof bytes);
        assert_false(tb_blake3_equal(&before, &after));
        bytes[i / 8] ^= (uint8_t)(1u << (i % 8));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_answers),
        cmocka_unit_test(pieces_give_the_digest_of_the_whole),
        cmocka_unit_test(variants_agree),
        cmocka_unit_test(every_bit_counts),
    };
    return cmocka_run_group_tests(tests, make_input, free_input);
}
