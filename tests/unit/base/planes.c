/* P1, P7: a chunk of floats comes back bit for bit, with a base and without, and a damaged form is
 * refused or stays in bounds.
 *
 * Covers: base/codec/planes.c base/codec/planes_cascade.c base/codec/planes_portable.c
 * Covers: base/codec/planes_avx2.c base/codec/planes_avx512.c base/codec/planes_choose_x86.c
 * Covers: base/codec/planes_choose_none.c base/vector.c base/vector/vector_x86.c
 * Covers: base/vector/vector_none.c base/vector/vector_arm.c base/codec/planes_neon.c
 * Covers: base/codec/planes_choose_arm.c */
#include "base/codec/planes.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/base/vectors.h"
#include "tests/unit/check.h"

static const struct {
    enum tb_dtype dtype;
    size_t width;
} dtypes[] = {{TB_DTYPE_BF16, 2}, {TB_DTYPE_F16, 2}, {TB_DTYPE_F8E4, 1},
              {TB_DTYPE_F8E5, 1}, {TB_DTYPE_F32, 4}, {TB_DTYPE_U8, 1}};

#define DTYPES (sizeof dtypes / sizeof dtypes[0])

static uint64_t scratch[TB_PLANES_SCRATCH_BYTES / 8];

struct form {
    uint8_t *bytes; /* exactly `used` long, so that asan sees a read behind it */
    size_t used;    /* 0: it does not pay */
};

static struct form encode(const struct tb_planes_input *in, enum tb_vector vector)
{
    const struct tb_planes_means means = {scratch, vector};
    uint8_t *out = malloc(in->count + 1);
    assert_non_null(out);
    out[in->count] = 0x5a;
    memset(scratch, 0xa5, sizeof scratch); /* what it holds means nothing */
    struct form f = {NULL, tb_planes_encode(in, &means, out, in->count)};
    assert_int_equal(out[in->count], 0x5a);
    assert_true(f.used <= in->count - in->count * 3 / 100);
    f.bytes = malloc(f.used + (f.used == 0));
    assert_non_null(f.bytes);
    memcpy(f.bytes, out, f.used);
    free(out);
    return f;
}

static enum tb_status decode(struct form f, enum tb_vector vector, const uint8_t *base, uint8_t *bytes,
                             size_t count)
{
    const struct tb_planes_means means = {scratch, vector};
    return tb_planes_decode((struct tb_planes_form){f.bytes, f.used}, &means,
                            &(struct tb_planes_output){base, bytes, count});
}

/* Bytes of the form; 0 if it did not pay. Every variant writes the same and reads it. */
static size_t round_trip(const struct tb_planes_input *in)
{
    struct form f = encode(in, TB_VECTOR_PORTABLE);
    uint8_t *back = malloc(in->count + 1);
    for (size_t v = 0; v < VECTORS; v++) {
        if (!tb_vector_here(vectors[v])) continue;
        struct form same = encode(in, vectors[v]);
        assert_int_equal(same.used, f.used);
        assert_memory_equal(same.bytes, f.bytes, f.used);
        free(same.bytes);
        if (f.used == 0) continue;
        memset(back, 0x5a, in->count + 1);
        memset(scratch, 0x5a, sizeof scratch);
        CHECK_OK(decode(f, vectors[v], in->base, back, in->count));
        assert_memory_equal(back, in->bytes, in->count);
        assert_int_equal(back[in->count], 0x5a);
    }
    free(back);
    free(f.bytes);
    return f.used;
}

/* Like weights: exponents as a bell has them, all mantissas and signs; every 50th element is any
 * bit pattern (NaN payloads, infinities, -0). */
static uint32_t weight_make(enum tb_dtype dtype, uint64_t r)
{
    const unsigned octave = (unsigned)__builtin_ctzll(r | 1u << 12); /* half as many an octave further */
    const uint32_t low = (uint32_t)(r >> 32);
    switch (dtype) {
    case TB_DTYPE_BF16:
        return (low & 0x807f) | (0x7au - octave) << 7;
    case TB_DTYPE_F16:
        return (low & 0x83ff) | (14u - octave) << 10;
    case TB_DTYPE_F32:
        return (low & 0x807fffff) | (0x7au - octave) << 23;
    case TB_DTYPE_F8E4:
        return (low & 0x87) | (14u - octave) << 3;
    case TB_DTYPE_F8E5:
        return (low & 0x83) | (20u - octave) << 2;
    default:
        return octave;
    }
}

static void weights_make(uint8_t *bytes, size_t count, size_t d, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) {
        const size_t k = i % dtypes[d].width;
        uint64_t of = seed + i / dtypes[d].width; /* all bytes of an element from one number */
        const uint64_t r = check_random(&of);
        const uint32_t x = r >> 56 < 5 ? (uint32_t)(r >> 8) : weight_make(dtypes[d].dtype, r);
        bytes[i] = (uint8_t)(x >> (8 * k));
    }
}

/* One element in `one_in` moves: most by one unit, some to any pattern. */
static void step_make(const uint8_t *base, uint8_t *bytes, size_t count, size_t width, uint64_t one_in)
{
    uint64_t seed = one_in;
    memcpy(bytes, base, count);
    for (size_t i = 0; i + width <= count; i += width) {
        const uint64_t r = check_random(&seed);
        if (r % one_in != 0) continue;
        const uint32_t by = (r >> 32) % 64 == 0 ? (uint32_t)(r >> 20) : (r >> 60 & 1) != 0 ? 1 : UINT32_MAX;
        uint64_t x = by;
        for (size_t k = 0; k < width; k++, x >>= 8) {
            x += bytes[i + k];
            bytes[i + k] = (uint8_t)x;
        }
    }
}

/* Sizes around groups of 64, tiles of 4096 and sections of 65536 elements, and bytes
 * behind the last one. */
static const size_t elements[] = {0, 1, 2, 63, 64, 65, 1000, 4095, 4096, 4097, 65535, 65536, 65537, 140003};

#define ELEMENTS (sizeof elements / sizeof elements[0])

static void chunks_of_every_size_come_back(void **state)
{
    (void)state;
    static uint8_t bytes[4 * 140004];
    for (size_t d = 0; d < DTYPES; d++) {
        weights_make(bytes, sizeof bytes, d, 3);
        for (size_t e = 0; e < ELEMENTS; e++) {
            for (size_t tail = 0; tail < dtypes[d].width; tail++) {
                const struct tb_planes_input in = {NULL, bytes, elements[e] * dtypes[d].width + tail,
                                                   dtypes[d].dtype};
                const size_t used = round_trip(&in);
                if (elements[e] >= 1000) assert_in_range(used, 1, in.count * 9 / 10);
            }
        }
    }
}

static void deltas_of_every_size_come_back(void **state)
{
    (void)state;
    static uint8_t base[4 * 140004], bytes[4 * 140004];
    for (size_t d = 0; d < DTYPES; d++) {
        weights_make(base, sizeof base, d, 4);
        for (size_t e = 0; e < ELEMENTS; e++) {
            const size_t width = dtypes[d].width, count = elements[e] * width + elements[e] % width;
            for (uint64_t one_in = 1; one_in <= 16; one_in *= 4) {
                step_make(base, bytes, count, width, one_in);
                const struct tb_planes_input in = {base, bytes, count, dtypes[d].dtype};
                const size_t used = round_trip(&in);
                if (elements[e] >= 1000) assert_in_range(used, 1, elements[e] / 2);
            }
        }
    }
}

static void every_bit_pattern_of_two_bytes_comes_back(void **state)
{
    (void)state;
    static uint8_t bytes[2 * 65536 * 3], base[2 * 65536 * 3];
    uint64_t seed = 8;
    for (size_t i = 0; i < sizeof bytes / 2; i++) { /* two of three are alike: else it would not pay */
        bytes[2 * i] = (uint8_t)(i % 3 == 0 ? i / 3 : 0);
        bytes[2 * i + 1] = (uint8_t)(i % 3 == 0 ? i / 3 >> 8 : 0x3c);
        base[2 * i] = (uint8_t)(i % 3 == 0 ? check_random(&seed) : 0);
        base[2 * i + 1] = (uint8_t)(i % 3 == 0 ? check_random(&seed) : 0x3c);
    }
    for (size_t d = 0; d < DTYPES; d++) {
        const struct tb_planes_input alone = {NULL, bytes, sizeof bytes, dtypes[d].dtype};
        const struct tb_planes_input step = {base, bytes, sizeof bytes, dtypes[d].dtype};
        assert_true(round_trip(&alone) > 0);
        assert_true(round_trip(&step) > 0);
    }
}

/* P1: fewer values than a palette has places, of which 0 (what an empty place has) is each in
 * turn. */
static void few_values_come_back(void **state)
{
    (void)state;
    static const uint8_t values[] = {0xff, 0x26, 0x00, 0x3d};
    static uint8_t bytes[2000];
    for (size_t d = 0; d < DTYPES; d++) {
        for (size_t n = 0; n < 4 * 4; n++) {
            memset(bytes, values[n % 4], sizeof bytes);
            for (size_t k = 1; k <= n / 4; k++) /* each seen half as often as the one before */
                for (size_t i = k; i < sizeof bytes; i += (size_t)64 << k)
                    bytes[i] = values[(n + k) % 4];
            const struct tb_planes_input in = {NULL, bytes, sizeof bytes, dtypes[d].dtype};
            assert_true(round_trip(&in) > 0);
        }
    }
}

static void noise_does_not_pay(void **state)
{
    (void)state;
    static uint8_t bytes[300001], base[300001];
    uint64_t seed = 4;
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)check_random(&seed);
        base[i] = (uint8_t)check_random(&seed);
    }
    for (size_t d = 0; d < DTYPES; d++) {
        const struct tb_planes_input alone = {NULL, bytes, sizeof bytes, dtypes[d].dtype};
        const struct tb_planes_input step = {base, bytes, sizeof bytes, dtypes[d].dtype};
        assert_int_equal(round_trip(&alone), 0);
        assert_int_equal(round_trip(&step), 0);
    }
}

/* A chunk whose sections differ: what the sample of one says is not used for the next. */
static void each_section_has_its_own_cascade(void **state)
{
    (void)state;
    static uint8_t bytes[2 * 65536 * 3];
    weights_make(bytes, sizeof bytes, 0, 12);
    for (size_t i = 0; i < 2 * 65536; i++) /* the second one is noise */
        bytes[2 * 65536 + i] = bytes[i] = (uint8_t)(bytes[i] * 167u ^ i * 13u ^ i >> 3);
    const struct tb_planes_input in = {NULL, bytes, sizeof bytes, TB_DTYPE_BF16};
    assert_true(round_trip(&in) > 0);
}

static void too_little_room_does_not_pay(void **state)
{
    (void)state;
    static uint8_t bytes[4001], base[4001];
    weights_make(bytes, sizeof bytes, 0, 6);
    step_make(bytes, base, sizeof bytes, 2, 2);
    for (size_t b = 0; b < 2; b++) {
        const struct tb_planes_input in = {b == 0 ? NULL : base, bytes, sizeof bytes, TB_DTYPE_BF16};
        const struct tb_planes_means means = {scratch, TB_VECTOR_BEST};
        struct form f = encode(&in, TB_VECTOR_PORTABLE);
        assert_true(f.used > 0);
        for (size_t cap = 0; cap <= f.used; cap++) {
            uint8_t *out = malloc(cap + (cap == 0));
            assert_int_equal(tb_planes_encode(&in, &means, out, cap), cap == f.used ? f.used : 0);
            free(out);
        }
        free(f.bytes);
    }
}

static void header_flips_are_refused(struct form f, const uint8_t *base, uint8_t *back, size_t count)
{
    for (size_t bit = 8; bit < 32; bit++) {
        f.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK_STATUS(decode(f, TB_VECTOR_BEST, base, back, count), TB_CHUNK_CODEC);
        f.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (unsigned kind = 0; kind < 256; kind += kind < 8 ? 7 : 1) { /* 0, and all behind the last kind */
        const uint8_t was = f.bytes[0];
        f.bytes[0] = (uint8_t)kind;
        CHECK_STATUS(decode(f, TB_VECTOR_BEST, base, back, count), TB_CHUNK_CODEC);
        f.bytes[0] = was;
    }
}

/* The digest catches what decodes to other bytes; asan looks on. Variants agree on what is damaged,
 * and on what it gives. */
static void damage(struct form f, const uint8_t *base, size_t count)
{
    uint8_t *back = malloc(count), *other = malloc(count);
    for (size_t cut = 0; cut < f.used; cut++) {
        struct form shorter = {malloc(cut + (cut == 0)), cut};
        memcpy(shorter.bytes, f.bytes, cut);
        CHECK_STATUS(decode(shorter, TB_VECTOR_BEST, base, back, count), TB_CHUNK_CODEC);
        free(shorter.bytes);
    }
    header_flips_are_refused(f, base, back, count);
    for (size_t bit = 0; bit < 8 * f.used; bit++) {
        f.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        const enum tb_status got = decode(f, TB_VECTOR_PORTABLE, base, back, count);
        assert_true(got == TB_OK || got == TB_CHUNK_CODEC);
        CHECK_STATUS(decode(f, TB_VECTOR_BEST, base, other, count), got);
        if (got == TB_OK) assert_memory_equal(back, other, count);
        f.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    CHECK_STATUS(decode(f, TB_VECTOR_BEST, base, back, count - 64), TB_CHUNK_CODEC);
    CHECK_STATUS(decode(f, TB_VECTOR_BEST, base, back, 0), TB_CHUNK_CODEC);
    free(back);
    free(other);
}

static void damaged_forms_stay_in_bounds(void **state)
{
    (void)state;
    static uint8_t bytes[1201], base[1201];
    for (size_t d = 0; d < DTYPES; d++) {
        weights_make(base, sizeof base, d, 5);
        step_make(base, bytes, sizeof bytes, dtypes[d].width, 2);
        for (size_t b = 0; b < 2; b++) {
            const struct tb_planes_input in = {b == 0 ? NULL : base, bytes, sizeof bytes, dtypes[d].dtype};
            struct form f = encode(&in, TB_VECTOR_PORTABLE);
            assert_true(f.used > 0);
            damage(f, in.base, sizeof bytes);
            free(f.bytes);
        }
    }
}

/* A form for 64 elements of bf16 written by hand: the header of its only section, and
 * the bytes behind it. */
struct claim {
    uint8_t levels, two;
    uint32_t escapes[2];
    size_t more; /* bytes behind the header and the keys */
    enum tb_status status;
};

static size_t claim_write(const struct claim *c, uint8_t *out)
{
    size_t used = 4;
    memset(out, 0, 512);
    out[0] = 1;
    out[used++] = c->levels;
    out[used++] = c->two;
    used += 2;
    for (unsigned j = 0; j < c->levels && j < 2; j++, used += 4)
        out[used] = (uint8_t)c->escapes[j];
    for (unsigned j = 0; j < c->levels && j < 2; j++)
        used += (c->two >> j & 1) != 0 ? 3 : 1;
    return used + c->more;
}

/* The bytes behind are all zeros: 64 bytes of rest, then codes that escape nothing. */
static void claims_that_do_not_add_up_are_refused(void **state)
{
    (void)state;
    static const struct claim claims[] = {
        {0, 0, {0, 0}, 128, TB_OK},          /* no level: 64 literals */
        {0, 1, {0, 0}, 128, TB_CHUNK_CODEC}, /* bits of a level that is not there */
        {1, 0, {0, 0}, 72, TB_OK},           /* one word of codes */
        {1, 1, {0, 0}, 80, TB_OK},           /* two */
        {1, 0, {0, 0}, 73, TB_CHUNK_CODEC},  /* more behind it */
        {1, 0, {1, 0}, 73, TB_CHUNK_CODEC},  /* a literal that nobody escapes to */
        {1, 0, {65, 0}, 72 + 65, TB_CHUNK_CODEC},
        {2, 0, {0, 0}, 72, TB_OK},
        {2, 0, {1, 0}, 80, TB_CHUNK_CODEC}, /* a code that nobody escapes to */
        {2, 0, {1, 2}, 82, TB_CHUNK_CODEC}, /* more literals than codes */
        {5, 0, {0, 0}, 72, TB_CHUNK_CODEC}, /* more levels than there are */
    };
    for (size_t i = 0; i < sizeof claims / sizeof claims[0]; i++) {
        uint8_t out[512], back[128];
        struct form f = {NULL, claim_write(&claims[i], out)};
        f.bytes = malloc(f.used);
        memcpy(f.bytes, out, f.used);
        for (size_t v = 0; v < VECTORS; v++)
            if (tb_vector_here(vectors[v]))
                CHECK_STATUS(decode(f, vectors[v], NULL, back, sizeof back), claims[i].status);
        free(f.bytes);
    }
}

/* Escapes that the codes make and the header does not tell of. */
static void escapes_beyond_the_claim_are_refused(void **state)
{
    (void)state;
    static const struct claim claim = {2, 0, {0, 0}, 72, TB_CHUNK_CODEC};
    uint8_t out[512], back[128];
    struct form f = {out, claim_write(&claim, out)};
    out[f.used - 1] = 0x80; /* the last element escapes */
    for (size_t v = 0; v < VECTORS; v++)
        if (tb_vector_here(vectors[v]))
            CHECK_STATUS(decode(f, vectors[v], NULL, back, sizeof back), TB_CHUNK_CODEC);
}

static uint64_t sum_of(const uint8_t *bytes, size_t count)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (size_t i = 0; i < count; i++)
        sum = (sum ^ bytes[i]) * UINT64_C(0x100000001b3);
    return sum;
}

/* The form is fixed, and other implementations must read it. An encoder chooses only its
 * cascade. */
static void a_known_chunk_has_a_known_form(void **state)
{
    (void)state;
    static uint8_t bytes[8193], base[8193];
    static const struct {
        size_t used;
        uint64_t sum;
    } known[] = {{5407, UINT64_C(0xd6421eea900e2753)}, {861, UINT64_C(0x7086aa55bbecae26)}};
    weights_make(base, sizeof base, 0, 21);
    step_make(base, bytes, sizeof bytes, 2, 3);
    for (size_t b = 0; b < 2; b++) {
        const struct tb_planes_input in = {b == 0 ? NULL : base, bytes, sizeof bytes, TB_DTYPE_BF16};
        struct form f = encode(&in, TB_VECTOR_BEST);
        assert_int_equal(f.used, known[b].used);
        assert_int_equal(sum_of(f.bytes, f.used), known[b].sum);
        free(f.bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_of_every_size_come_back),
        cmocka_unit_test(deltas_of_every_size_come_back),
        cmocka_unit_test(every_bit_pattern_of_two_bytes_comes_back),
        cmocka_unit_test(few_values_come_back),
        cmocka_unit_test(noise_does_not_pay),
        cmocka_unit_test(each_section_has_its_own_cascade),
        cmocka_unit_test(too_little_room_does_not_pay),
        cmocka_unit_test(damaged_forms_stay_in_bounds),
        cmocka_unit_test(claims_that_do_not_add_up_are_refused),
        cmocka_unit_test(escapes_beyond_the_claim_are_refused),
        cmocka_unit_test(a_known_chunk_has_a_known_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
