/* P1, P7: a step comes back bit for bit, in few bytes, and a damaged form is refused or stays in bounds. */
#include "base/sparse.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rangecode.h"
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

struct form {
    uint8_t *bytes; /* exactly `used` long, so that asan sees a read behind it */
    size_t used;    /* 0: it does not pay */
};

static struct form encode(const struct tb_sparse_input *in)
{
    struct tb_sparse_room room = {malloc(in->count + 1), in->count, scratch};
    assert_non_null(room.out);
    room.out[in->count] = 0x5a;
    struct form f = {NULL, tb_sparse_encode(in, &room)};
    assert_int_equal(room.out[in->count], 0x5a);
    f.bytes = malloc(f.used + (f.used == 0));
    assert_non_null(f.bytes);
    memcpy(f.bytes, room.out, f.used);
    free(room.out);
    return f;
}

/* Bytes of the form; 0 if it did not pay. The base is patched in memory that is exactly as long. */
static size_t round_trip(const struct tb_sparse_input *in)
{
    struct form f = encode(in);
    if (f.used > 0) {
        uint8_t *elements = malloc(in->count);
        assert_non_null(elements);
        memcpy(elements, in->base, in->count);
        CHECK_OK(tb_sparse_decode(f.bytes, f.used, elements, in->count));
        assert_memory_equal(elements, in->bytes, in->count);
        free(elements);
    }
    free(f.bytes);
    return f.used;
}

/* A base of all bit patterns (NaN payloads, infinities, -0, denormals), and one element in `one_in` that changed: most
 * by one unit in the last place, some to any pattern at all. */
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
static void steps_of_every_size_come_back(void **state)
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

/* Every bf16 bit pattern becomes every kind of other one: the difference is an integer's, never a float's. */
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
        struct tb_sparse_room room = {malloc(cap + (cap == 0)), cap, scratch};
        assert_int_equal(tb_sparse_encode(&in, &room), cap == f.used ? f.used : 0);
        free(room.out);
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
            const enum tb_status got = tb_sparse_decode(shorter, cut, elements, count);
            assert_true(got == TB_OK || got == TB_CHUNK_CODEC);
            refused += got == TB_CHUNK_CODEC;
            free(shorter);
        }
        assert_true(refused * 10 >= f.used * 9); /* by chance, the two halves of a short one may meet */
        for (size_t bit = 0; bit < 8 * f.used; bit++) {
            memcpy(elements, p.base, count);
            f.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            const enum tb_status got = tb_sparse_decode(f.bytes, f.used, elements, count);
            assert_true(got == TB_OK || got == TB_CHUNK_CODEC);
            f.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        free(elements);
        free(f.bytes);
        pair_free(p);
    }
}

static void headers_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    uint8_t elements[64] = {0};
    static const uint8_t forms[]
                              [12] = {
                                  {0, 1, 0, 0},       {6, 1, 0, 0}, {1, 0, 0, 0},    {1, 17, 0, 0},
                                  {1, 1, 1, 0},       {1, 1, 0, 1}, {1, 2, 0, 0, 0}, {1, 3, 0, 0, 5, 5},
                                  {1, 3, 0, 0, 6, 5}, /* bounds that do not grow */
                                  {1, 1, 0, 0, 1, 0}, /* a range coder's first byte is 0 */
                              };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        CHECK_STATUS(tb_sparse_decode(forms[i], sizeof forms[i], elements, sizeof elements), TB_CHUNK_CODEC);
    static const uint8_t zeros[64];
    assert_memory_equal(elements, zeros, 64); /* refused before anything was touched */
}

/* A chunk of one byte has no element: its stream is what ends a coder. So only the bounds speak. */
static void bounds_must_grow(void **state)
{
    (void)state;
    static const struct {
        uint8_t first, second;
        enum tb_status status;
    } rows[] = {{5, 6, TB_OK}, {5, 5, TB_CHUNK_CODEC}, {6, 5, TB_CHUNK_CODEC}, {0, 5, TB_CHUNK_CODEC}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const uint8_t form[] = {1, 3, 0, 0, rows[i].first, rows[i].second, 0x77, 0, 0, 0, 0, 0};
        uint8_t element = 0;
        CHECK_STATUS(tb_sparse_decode(form, sizeof form, &element, 1), rows[i].status);
        assert_int_equal(element, rows[i].status == TB_OK ? 0x77 : 0);
    }
}

static void even_bits_are_filled_up_with_zeros(void **state)
{
    (void)state;
    static const struct {
        uint8_t last;
        bool ended;
    } rows[] = {{0x05, true}, {0x0d, false}, {0x85, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const uint8_t stream[] = {0, 0, 0, 0, 0, rows[i].last};
        struct tb_range_decoder d;
        tb_range_decoder_init(&d, stream, sizeof stream);
        assert_int_equal(tb_range_decode_even(&d, 3), 5);
        assert_int_equal(tb_range_ended(&d), rows[i].ended);
    }
}

/* What other implementations must write for these 4096 elements: the form is fixed. */
static void a_known_step_has_a_known_form(void **state)
{
    (void)state;
    static uint8_t base[8193], bytes[8193];
    for (size_t i = 0; i < 4096; i++) {
        base[2 * i] = (uint8_t)(i * 7);
        base[2 * i + 1] = (uint8_t)(0x3a + i % 3);
    }
    memcpy(bytes, base, sizeof base);
    for (size_t i = 5; i < 4096; i += 61)
        bytes[2 * i]++;
    bytes[8192] = 0x99;
    const struct tb_sparse_input in = {base, bytes, sizeof base, TB_DTYPE_BF16, 1};
    struct form f = encode(&in);
    static const uint8_t head[] = {1, 1, 0, 0, 0x99, 0};
    assert_memory_equal(f.bytes, head, sizeof head);
    uint64_t sum = UINT64_C(0xcbf29ce484222325); /* FNV-1a of the form */
    for (size_t i = 0; i < f.used; i++)
        sum = (sum ^ f.bytes[i]) * UINT64_C(0x100000001b3);
    assert_int_equal(f.used, 59);
    assert_int_equal(sum, UINT64_C(0xb673cd4be05c8349));
    free(f.bytes);
}

/* With TB_WEIGHTS_DIR=DIR that holds v0000.safetensors and on: each step of a real run, in chunks of 1 MiB. */
struct step_cost {
    size_t bytes, changed;
};

static struct step_cost step_cost(const struct pair *p, size_t count)
{
    struct step_cost cost = {0, 0};
    for (size_t at = 0; at < count; at += 1 << 20) {
        const size_t here = count - at < 1 << 20 ? count - at : 1 << 20;
        const struct tb_sparse_input in = {p->base + at, p->bytes + at, here, TB_DTYPE_BF16, 16};
        const size_t used = round_trip(&in);
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
        const struct step_cost cost = step_cost(&p, count);
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
        cmocka_unit_test(steps_of_every_size_come_back),
        cmocka_unit_test(every_density_comes_back_or_does_not_pay),
        cmocka_unit_test(noise_does_not_pay),
        cmocka_unit_test(every_bit_pattern_may_become_another),
        cmocka_unit_test(classes_know_where_changes_are),
        cmocka_unit_test(too_little_room_does_not_pay),
        cmocka_unit_test(damaged_forms_stay_in_bounds),
        cmocka_unit_test(headers_that_do_not_fit_are_refused),
        cmocka_unit_test(bounds_must_grow),
        cmocka_unit_test(even_bits_are_filled_up_with_zeros),
        cmocka_unit_test(a_known_step_has_a_known_form),
        cmocka_unit_test(a_real_run_takes_few_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
