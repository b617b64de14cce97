/* P1, P7: a step comes back bit for bit, in few bytes, and a damaged form is refused or stays in
 * bounds.
 * Covers: base/codec/sparse.c base/codec/sparse_portable.c base/codec/sparse_avx2.c
 * Covers: base/codec/sparse_avx512.c base/codec/sparse_choose_x86.c
 * Covers: base/codec/sparse_choose_none.c base/codec/sparse_neon.c
 * Covers: base/codec/sparse_choose_arm.c */
#include "base/codec/sparse.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/codec/bits.h"
#include "tests/unit/base/vectors.h"
#include "tests/unit/check.h"

static const struct {
    enum tb_dtype dtype;
    size_t width;
} dtypes[] = {{TB_DTYPE_BF16, 2}, {TB_DTYPE_F16, 2}, {TB_DTYPE_F8E4, 1},
              {TB_DTYPE_F8E5, 1}, {TB_DTYPE_F32, 4}, {TB_DTYPE_U8, 1}};

#define DTYPES (sizeof dtypes / sizeof dtypes[0])

static const unsigned classes[] = {1, 2, 7, TB_SPARSE_CLASSES_MAX};

#define CLASSES (sizeof classes / sizeof classes[0])

static uint64_t scratch[TB_SPARSE_SCRATCH_BYTES / 8];

static struct tb_sparse_means with(enum tb_vector vector)
{
    return (struct tb_sparse_means){scratch, vector};
}

struct form {
    uint8_t *bytes; /* exactly `used` long, so that asan sees a read behind it */
    size_t used;    /* 0: it does not pay */
};

static struct form encode_with(const struct tb_sparse_input *in, enum tb_vector vector)
{
    uint8_t *out = malloc(in->count + 1);
    assert_non_null(out);
    out[in->count] = 0x5a;
    memset(scratch, 0xa5, sizeof scratch); /* what it holds means nothing */
    struct form f = {NULL, tb_sparse_encode(in, &(struct tb_sparse_means){scratch, vector}, out, in->count)};
    assert_int_equal(out[in->count], 0x5a);
    f.bytes = malloc(f.used + (f.used == 0));
    assert_non_null(f.bytes);
    memcpy(f.bytes, out, f.used);
    free(out);
    return f;
}

static struct form encode(const struct tb_sparse_input *in)
{
    return encode_with(in, TB_VECTOR_PORTABLE);
}

static enum tb_status decode(const uint8_t *form, size_t form_count, uint8_t *elements, size_t count)
{
    const struct tb_sparse_means means = with(TB_VECTOR_BEST);
    const struct tb_sparse_output out = {NULL, elements, count};
    return tb_sparse_decode((struct tb_sparse_form){form, form_count}, &means, &out);
}

/* Into memory that is exactly as long: beside the base, and over a copy of it. */
static void decode_gives(const struct tb_sparse_input *in, struct form f, enum tb_vector vector)
{
    uint8_t *elements = malloc(in->count);
    assert_non_null(elements);
    const struct tb_sparse_means means = with(vector);
    const struct tb_sparse_form form = {f.bytes, f.used};
    memset(scratch, 0x5a, sizeof scratch);
    memset(elements, 0x5a, in->count);
    CHECK_OK(tb_sparse_decode(form, &means, &(struct tb_sparse_output){in->base, elements, in->count}));
    assert_memory_equal(elements, in->bytes, in->count);
    memcpy(elements, in->base, in->count);
    CHECK_OK(tb_sparse_decode(form, &means, &(struct tb_sparse_output){NULL, elements, in->count}));
    assert_memory_equal(elements, in->bytes, in->count);
    free(elements);
}

/* Bytes of the form; 0 if it did not pay. Every variant writes the same and reads it. */
static size_t round_trip(const struct tb_sparse_input *in)
{
    struct form f = encode(in);
    for (size_t v = 0; v < VECTORS; v++) {
        if (!tb_vector_here(vectors[v])) continue;
        struct form same = encode_with(in, vectors[v]);
        assert_int_equal(same.used, f.used);
        assert_memory_equal(same.bytes, f.bytes, f.used);
        free(same.bytes);
        if (f.used > 0) decode_gives(in, f, vectors[v]);
    }
    free(f.bytes);
    return f.used;
}

/* A base of all bit patterns (NaN payloads, infinities, -0, denormals), and one element in `one_in`
 * that changed: most by one unit in the last place, some to any pattern at all. */
struct pair {
    uint8_t *base, *bytes;
};

static struct pair pair_make(size_t count, size_t width, uint64_t one_in)
{
    struct pair p = {malloc(count + (count == 0)), malloc(count + (count == 0))};
    assert_true(p.base != NULL && p.bytes != NULL);
    uint64_t seed = 11 + one_in;
    for (size_t i = 0; i < count; i++)
        p.base[i] = (uint8_t)check_random(&seed);
    memcpy(p.bytes, p.base, count);
    for (size_t i = 0; one_in > 0 && i + width <= count; i += width) {
        const uint64_t r = check_random(&seed);
        if (r % one_in != 0) continue;
        const uint64_t shape = r >> 32 & 15;
        if (shape == 0)
            p.bytes[i + width - 1] ^= 0x80; /* the sign */
        else if (shape == 1)
            p.bytes[i + r / one_in % width] = (uint8_t)(r >> 40);
        else
            p.bytes[i] = (uint8_t)(p.bytes[i] + (r >> 50 & 1 ? 1 : 255));
    }
    return p;
}

static void pair_free(struct pair p)
{
    free(p.base);
    free(p.bytes);
}

/* Sizes around a section of 65536 elements, and odd ones; whole chunks pay at 1 change in 40. */
static void deltas_of_every_size_come_back(void **state)
{
    (void)state;
    static const size_t elements[] = {0, 1, 2, 3, 100, 65535, 65536, 65537, 200001};
    for (size_t d = 0; d < DTYPES; d++) {
        for (size_t e = 0; e < sizeof elements / sizeof elements[0]; e++) {
            for (size_t tail = 0; tail < dtypes[d].width; tail++) {
                const size_t count = elements[e] * dtypes[d].width + tail;
                struct pair p = pair_make(count, dtypes[d].width, 40);
                for (size_t k = 0; k < CLASSES; k++) {
                    const struct tb_sparse_input in = {p.base, p.bytes, count, dtypes[d].dtype, classes[k]};
                    const size_t used = round_trip(&in);
                    if (elements[e] > 60000) assert_in_range(used, 1, count / 4);
                }
                pair_free(p);
            }
        }
    }
}

static void every_density_comes_back_or_does_not_pay(void **state)
{
    (void)state;
    static const uint64_t one_in[] = {0, 1, 2, 3, 10, 1000, 100000};
    for (size_t d = 0; d < DTYPES; d++) {
        const size_t count = 70000 * dtypes[d].width;
        for (size_t i = 0; i < sizeof one_in / sizeof one_in[0]; i++) {
            struct pair p = pair_make(count, dtypes[d].width, one_in[i]);
            for (size_t k = 0; k < CLASSES; k++) {
                const struct tb_sparse_input in = {p.base, p.bytes, count, dtypes[d].dtype, classes[k]};
                const size_t used = round_trip(&in);
                if (one_in[i] == 0) assert_in_range(used, 1, 64);
            }
            pair_free(p);
        }
    }
}

static void noise_does_not_pay(void **state)
{
    (void)state;
    const size_t count = 150000;
    struct pair p = pair_make(count, 1, 0);
    uint64_t seed = 77;
    for (size_t i = 0; i < count; i++)
        p.bytes[i] = (uint8_t)check_random(&seed);
    for (size_t d = 0; d < DTYPES; d++) {
        for (size_t k = 0; k < CLASSES; k++) {
            const struct tb_sparse_input in = {p.base, p.bytes, count, dtypes[d].dtype, classes[k]};
            assert_int_equal(round_trip(&in), 0);
        }
    }
    pair_free(p);
}

/* Every bf16 bit pattern becomes every kind of other one: the difference is an
 * integer's, never a float's. */
static void every_bit_pattern_may_become_another(void **state)
{
    (void)state;
    static uint8_t base[1 << 20], bytes[1 << 20];
    uint64_t seed = 5;
    for (size_t at = 0; at < 65536; at++) {
        for (size_t k = 0; k < 8; k++) { /* one in eight changes */
            const uint16_t y = (uint16_t)(k == at % 8 ? check_random(&seed) : at);
            const size_t i = 2 * (8 * at + k);
            base[i] = (uint8_t)at;
            base[i + 1] = (uint8_t)(at >> 8);
            bytes[i] = (uint8_t)y;
            bytes[i + 1] = (uint8_t)(y >> 8);
        }
    }
    for (size_t k = 0; k < CLASSES; k++) {
        const struct tb_sparse_input in = {base, bytes, sizeof base, TB_DTYPE_BF16, classes[k]};
        assert_in_range(round_trip(&in), 1, sizeof base / 2);
    }
}

/* Where small elements change more often, classes write less. This is what they are for. */
static void classes_know_where_changes_are(void **state)
{
    (void)state;
    const size_t count = 400000;
    struct pair p = pair_make(count, 2, 0);
    uint64_t seed = 6;
    for (size_t i = 0; i < count; i += 2) {
        const unsigned octave = (unsigned)(check_random(&seed) % 8); /* 0: the largest */
        p.base[i + 1] = (uint8_t)(0x3c - octave);
        p.base[i] = (uint8_t)check_random(&seed);
        const bool changed = check_random(&seed) % 1024 < UINT64_C(1) << octave << (octave > 2 ? 2 : 0);
        p.bytes[i] = (uint8_t)(p.base[i] ^ (changed ? 1 : 0));
        p.bytes[i + 1] = p.base[i + 1];
    }
    const struct tb_sparse_input one = {p.base, p.bytes, count, TB_DTYPE_BF16, 1};
    const struct tb_sparse_input many = {p.base, p.bytes, count, TB_DTYPE_BF16, 16};
    assert_true(round_trip(&many) * 100 < round_trip(&one) * 85);
    pair_free(p);
}

static void too_little_room_does_not_pay(void **state)
{
    (void)state;
    const size_t count = 20001;
    struct pair p = pair_make(count, 2, 30);
    const struct tb_sparse_input in = {p.base, p.bytes, count, TB_DTYPE_BF16, 4};
    struct form f = encode(&in);
    assert_true(f.used > 0);
    for (size_t cap = 0; cap <= f.used; cap++) {
        uint8_t *out = malloc(cap + (cap == 0));
        const struct tb_sparse_means means = with(TB_VECTOR_BEST);
        assert_int_equal(tb_sparse_encode(&in, &means, out, cap), cap == f.used ? f.used : 0);
        free(out);
    }
    free(f.bytes);
    pair_free(p);
}

/* The digest catches what decodes to other bytes; asan looks on. */
static void damaged_forms_stay_in_bounds(void **state)
{
    (void)state;
    const size_t count = 4003;
    for (size_t d = 0; d < DTYPES; d++) {
        struct pair p = pair_make(count, dtypes[d].width, 20);
        const struct tb_sparse_input in = {p.base, p.bytes, count, dtypes[d].dtype, 4};
        struct form f = encode(&in);
        assert_true(f.used > 0);
        uint8_t *elements = malloc(count);
        size_t refused = 0;
        for (size_t cut = 0; cut < f.used; cut++) {
            memcpy(elements, p.base, count);
            uint8_t *shorter = malloc(cut + (cut == 0));
            memcpy(shorter, f.bytes, cut);
            const enum tb_status got = decode(shorter, cut, elements, count);
            assert_true(got == TB_OK || got == TB_CHUNK_CODEC);
            refused += got == TB_CHUNK_CODEC;
            free(shorter);
        }
        assert_int_equal(refused, f.used); /* a stream ends where its last section does */
        for (size_t bit = 0; bit < 8 * f.used; bit++) {
            memcpy(elements, p.base, count);
            f.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            const enum tb_status got = decode(f.bytes, f.used, elements, count);
            assert_true(got == TB_OK || got == TB_CHUNK_CODEC);
            f.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        free(elements);
        free(f.bytes);
        pair_free(p);
    }
}

/* Forms for 32 elements of 2 bytes. */
static void headers_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    uint8_t elements[64] = {0};
    static const uint8_t forms[][9] = {
        {0, 1}, /* no such kind */
        {6, 1},
        {1, 0}, /* no classes; too many */
        {1, 17},
        {1, 1, 1}, /* what is zero is zero */
        {1, 1, 0, 1},
        {1, 3, 0, 0, 5, 5}, /* bounds that do not grow */
        {1, 3, 0, 0, 6, 5},
        {1, 2, 0, 0, 0},
        {1, 1, 0, 0, 0, 0}, /* bytes behind the last bit */
    };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        CHECK_STATUS(decode(forms[i], sizeof forms[i], elements, sizeof elements), TB_CHUNK_CODEC);
    static const uint8_t zeros[64];
    assert_memory_equal(elements, zeros, 64); /* refused before anything was touched */
}

/* A chunk of one byte has no element and no bits: only the bounds speak. */
static void bounds_must_grow(void **state)
{
    (void)state;
    static const struct {
        uint8_t first, second;
        enum tb_status status;
    } rows[] = {{5, 6, TB_OK}, {5, 5, TB_CHUNK_CODEC}, {6, 5, TB_CHUNK_CODEC}, {0, 5, TB_CHUNK_CODEC}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const uint8_t form[] = {1, 3, 0, 0, rows[i].first, rows[i].second, 0x77};
        uint8_t element = 0;
        CHECK_STATUS(decode(form, sizeof form, &element, 1), rows[i].status);
        assert_int_equal(element, rows[i].status == TB_OK ? 0x77 : 0);
    }
}

/* A stream written bit by bit, for one class of bf16: what it claims must lie inside the chunk. */
struct claim {
    uint32_t count, gap, odd, odd_gap; /* of each, all alike */
    enum tb_status status;
};

static size_t claim_write(const struct claim *claim, uint8_t *out, size_t cap)
{
    memcpy(out, (const uint8_t[]){1, 1, 0, 0}, 4);
    struct tb_bit_writer w;
    tb_bit_writer_init(&w, out + 4, cap - 4);
    tb_count_put(&w, claim->count);
    if (claim->count > 0) tb_bits_put(&w, 3, 4);
    for (uint32_t i = 0; i < claim->count; i++)
        tb_rice_put(&w, claim->gap, 3, 16);
    for (uint32_t i = 0; i < claim->count; i++)
        tb_bits_put(&w, i & 1, 1);
    if (claim->count > 0) tb_count_put(&w, claim->odd);
    if (claim->odd > 0) tb_bits_put(&w, 3, 4);
    for (uint32_t i = 0; i < claim->odd; i++)
        tb_rice_put(&w, claim->odd_gap, 3, 16);
    if (claim->odd > 0) tb_bits_put(&w, 3, 5);
    for (uint32_t i = 0; i < claim->odd; i++)
        tb_rice_put(&w, 77, 3, 16);
    const size_t used = tb_bit_writer_end(&w);
    assert_false(w.full);
    return 4 + used;
}

static void claims_beyond_the_chunk_are_refused(void **state)
{
    (void)state;
    static const struct claim claims[] = {
        {0, 0, 0, 0, TB_OK},
        {1, 99, 0, 0, TB_OK},
        {1, 100, 0, 0, TB_CHUNK_CODEC}, /* behind the last element */
        {100, 0, 0, 0, TB_OK},
        {101, 0, 0, 0, TB_CHUNK_CODEC}, /* more changes than elements */
        {50, 1, 0, 0, TB_OK},
        {50, 2, 0, 0, TB_CHUNK_CODEC},
        {2, 65535, 0, 0, TB_CHUNK_CODEC}, /* the plain form of a gap; twice it is one less than 2^17 */
        {9, 3, 9, 0, TB_OK},
        {9, 3, 10, 0, TB_CHUNK_CODEC}, /* more that are odd than there are */
        {9, 3, 3, 2, TB_OK},
        {9, 3, 3, 3, TB_CHUNK_CODEC}, /* behind the last change */
    };
    for (size_t i = 0; i < sizeof claims / sizeof claims[0]; i++) {
        uint8_t out[2048];
        const size_t used = claim_write(&claims[i], out, sizeof out);
        uint8_t *form = malloc(used), *elements = calloc(1, 200);
        memcpy(form, out, used);
        CHECK_STATUS(decode(form, used, elements, 200), claims[i].status);
        free(form);
        free(elements);
    }
}

/* 65536 changes with gaps of 65535 add up to 2^32: a sum in 32 bits would take them for none. */
static void gaps_do_not_wrap(void **state)
{
    (void)state;
    const size_t cap = 1 << 20;
    const struct claim claim = {65536, 65535, 0, 0, TB_CHUNK_CODEC};
    uint8_t *form = malloc(cap), *elements = calloc(2, 65536);
    const size_t used = claim_write(&claim, form, cap);
    CHECK_STATUS(decode(form, used, elements, 2 * 65536), TB_CHUNK_CODEC);
    free(form);
    free(elements);
}

static void bits_are_filled_up_with_zeros(void **state)
{
    (void)state;
    static const struct {
        uint8_t last;
        bool ended;
    } rows[] = {{0x05, true}, {0x0d, false}, {0x85, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tb_bit_reader r;
        tb_bit_reader_init(&r, &rows[i].last, 1);
        assert_int_equal(tb_bits_get(&r, 3), 5);
        assert_int_equal(tb_bits_ended(&r), rows[i].ended);
    }
}

/* The form is fixed, and other implementations must write it for these 4096 elements. */
static void a_known_delta_has_a_known_form(void **state)
{
    (void)state;
    static uint8_t base[8193], bytes[8193];
    for (size_t i = 0; i < 4096; i++) {
        base[2 * i] = (uint8_t)(i * 7);
        base[2 * i + 1] = (uint8_t)(0x3a + i % 3);
    }
    memcpy(bytes, base, sizeof base);
    for (size_t i = 5; i < 4096; i += 61)
        bytes[2 * i] = (uint8_t)(bytes[2 * i] + (i % 5 == 0 ? 3 : 1));
    bytes[8192] = 0x99;
    const struct tb_sparse_input in = {base, bytes, sizeof base, TB_DTYPE_BF16, 1};
    struct form f = encode(&in);
    static const uint8_t head[] = {1, 1, 0, 0, 0x99};
    assert_memory_equal(f.bytes, head, sizeof head);
    uint64_t sum = UINT64_C(0xcbf29ce484222325); /* FNV-1a of the form */
    for (size_t i = 0; i < f.used; i++)
        sum = (sum ^ f.bytes[i]) * UINT64_C(0x100000001b3);
    assert_int_equal(f.used, 88);
    assert_int_equal(sum, UINT64_C(0x9196deb51c69a05b));
    free(f.bytes);
}

/* With TB_WEIGHTS_DIR=DIR that holds v0000.safetensors and on: each step of a real
 * run, in chunks of 1 MiB. */
struct step_cost {
    size_t bytes, changed;
};

/* The first variant of the run shows what every variant writes and reads of it. */
static struct step_cost step_cost(const struct pair *p, size_t count, bool first)
{
    struct step_cost cost = {0, 0};
    for (size_t at = 0; at < count; at += 1 << 20) {
        const size_t here = count - at < 1 << 20 ? count - at : 1 << 20;
        const struct tb_sparse_input in = {p->base + at, p->bytes + at, here, TB_DTYPE_BF16, 16};
        struct form f = {NULL, 0};
        if (!first) f = encode(&in);
        if (f.used > 0) decode_gives(&in, f, TB_VECTOR_PORTABLE);
        const size_t used = first ? round_trip(&in) : f.used;
        free(f.bytes);
        cost.bytes += used == 0 ? here : used;
    }
    for (size_t i = 0; i + 1 < count; i += 2)
        cost.changed += memcmp(p->base + i, p->bytes + i, 2) != 0;
    return cost;
}

static bool version_load(const char *dir, unsigned number, uint8_t *bytes_out, size_t cap, size_t *count_out)
{
    char path[512];
    snprintf(path, sizeof path, "%s/v%04u.safetensors", dir, number);
    FILE *file = fopen(path, "rb");
    if (file == NULL) return false;
    *count_out = fread(bytes_out, 1, cap, file);
    fclose(file);
    return true;
}

static void a_real_run_takes_few_bytes(void **state)
{
    (void)state;
    const char *dir = getenv("TB_WEIGHTS_DIR");
    if (dir == NULL) {
        print_message("TB_WEIGHTS_DIR is not set: no real weights\n");
        skip();
    }
    const size_t cap = 32 << 20;
    struct pair p = {malloc(cap), malloc(cap)};
    struct step_cost sum = {0, 0};
    size_t count = 0, newer = 0;
    assert_true(version_load(dir, 0, p.base, cap, &count));
    for (unsigned v = 1; version_load(dir, v, p.bytes, cap, &newer); v++) {
        assert_int_equal(newer, count);
        const struct step_cost cost = step_cost(&p, count, v == 1);
        sum.bytes += cost.bytes;
        sum.changed += cost.changed;
        memcpy(p.base, p.bytes, count);
    }
    assert_true(sum.changed > 0);
    assert_true(sum.bytes * 100 <= sum.changed * 82);
    pair_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deltas_of_every_size_come_back),
        cmocka_unit_test(every_density_comes_back_or_does_not_pay),
        cmocka_unit_test(noise_does_not_pay),
        cmocka_unit_test(every_bit_pattern_may_become_another),
        cmocka_unit_test(classes_know_where_changes_are),
        cmocka_unit_test(too_little_room_does_not_pay),
        cmocka_unit_test(damaged_forms_stay_in_bounds),
        cmocka_unit_test(headers_that_do_not_fit_are_refused),
        cmocka_unit_test(bounds_must_grow),
        cmocka_unit_test(claims_beyond_the_chunk_are_refused),
        cmocka_unit_test(gaps_do_not_wrap),
        cmocka_unit_test(bits_are_filled_up_with_zeros),
        cmocka_unit_test(a_known_delta_has_a_known_form),
        cmocka_unit_test(a_real_run_takes_few_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
