/* P1, P7: codecs are exact, and a decoder stays inside what it was given whatever it is fed.
 * Covers: base/codec/codec.c */
#include "base/codec/codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "tests/unit/base/vectors.h"
#include "tests/unit/check.h"

static int codec_up(void **state)
{
    struct tb_codec *codec = NULL;
    CHECK_OK(tb_codec_new(&codec));
    *state = codec;
    return 0;
}

static int codec_down(void **state)
{
    tb_codec_free(*state);
    return 0;
}

static const struct tb_codec_form raw = {TB_CODEC_RAW, false}, zstd = {TB_CODEC_ZSTD, false};

static const struct tb_codec_form forms[] = {
    {TB_CODEC_RAW, false},    {TB_CODEC_ZSTD, false},  {TB_CODEC_ZSTD, true},
    {TB_CODEC_PLANES, false}, {TB_CODEC_PLANES, true}, {TB_CODEC_SPARSE, true},
};

#define FORMS (sizeof forms / sizeof forms[0])

static const enum tb_dtype dtypes[] = {TB_DTYPE_BF16, TB_DTYPE_F16, TB_DTYPE_F8E4, TB_DTYPE_F8E5,
                                       TB_DTYPE_F32,  TB_DTYPE_U8,  TB_DTYPE_I64};

#define DTYPES (sizeof dtypes / sizeof dtypes[0])

struct coded {
    uint8_t *bytes; /* exactly `count` long, so that asan sees a read behind it */
    size_t count;
    struct tb_codec_form form;
};

static struct coded encode(struct tb_codec *codec, struct tb_codec_form wanted,
                           const struct tb_codec_input *in)
{
    const size_t cap = tb_codec_bound(wanted.id, in->count);
    uint8_t *out = malloc(cap + 1);
    struct tb_codec_coded coded;
    assert_non_null(out);
    out[cap] = 0x5a;
    CHECK_OK(tb_codec_encode(codec, wanted, in, (struct tb_codec_room){out, cap}, &coded));
    assert_int_equal(out[cap], 0x5a);
    assert_true(coded.bytes == out && coded.count <= in->count);
    assert_true(coded.form.id == TB_CODEC_RAW
                    ? !coded.form.on_base && coded.count == in->count
                    : coded.form.id == wanted.id && coded.form.on_base == wanted.on_base);
    struct coded c = {malloc(coded.count + (coded.count == 0)), coded.count, coded.form};
    if (coded.count > 0) memcpy(c.bytes, out, coded.count);
    free(out);
    return c;
}

static enum tb_status decode(struct tb_codec *codec, const struct coded *c, struct tb_codec_output out)
{
    return tb_codec_decode(codec, &(struct tb_codec_coded){c->form, c->bytes, c->count}, &out);
}

/* Encodes and decodes; returns the form and size, having checked that all came back into memory
 * of exactly its size. */
static struct coded round_trip(struct tb_codec *codec, struct tb_codec_form wanted,
                               const struct tb_codec_input *in)
{
    struct coded c = encode(codec, wanted, in);
    uint8_t *back = malloc(in->count + (in->count == 0));
    memset(back, 0x5a, in->count);
    CHECK_OK(decode(codec, &c, (struct tb_codec_output){back, in->count, in->base}));
    assert_memory_equal(in->bytes, back, in->count);
    free(back);
    free(c.bytes);
    return (struct coded){NULL, c.count, c.form};
}

static void a_chunk_that_shrinks_is_encoded_and_comes_back(void **state)
{
    struct tb_codec *codec = *state;
    static uint8_t bytes[300000];
    uint64_t seed = 9;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(check_random(&seed) % 4);
    for (size_t count = 1000; count <= sizeof bytes; count = count * 3 + 1) {
        const struct tb_codec_input in = {.bytes = bytes, .count = count, .dtype = TB_DTYPE_BF16};
        const struct coded small = round_trip(codec, zstd, &in), same = round_trip(codec, raw, &in);
        assert_int_equal(small.form.id, TB_CODEC_ZSTD);
        assert_true(small.count < count / 2);
        assert_int_equal(same.form.id, TB_CODEC_RAW);
    }
}

static void noise_is_sent_raw(void **state)
{
    struct tb_codec *codec = *state;
    static uint8_t bytes[100000], base[100000];
    uint64_t seed = 10;
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)check_random(&seed);
        base[i] = (uint8_t)check_random(&seed);
    }
    for (size_t f = 0; f < FORMS; f++) {
        for (size_t count = 0; count <= sizeof bytes; count = count * 5 + 1) {
            const struct tb_codec_input in = {bytes, count, TB_DTYPE_F16, base, 0};
            assert_int_equal(round_trip(codec, forms[f], &in).form.id, TB_CODEC_RAW);
        }
    }
}

/* A base of weights whose exponents are few, and a step of it: one element in
 * `one_in`, most by one unit. */
static void step_make(uint8_t *base, uint8_t *bytes, size_t count, uint64_t one_in)
{
    uint64_t seed = one_in;
    for (size_t i = 0; i < count; i++) {
        const uint64_t r = check_random(&seed);
        base[i] = i % 2 == 0 ? (uint8_t)(r & 15) : (uint8_t)((r & 0x80) | (0x3a + (r >> 8) % 3));
    }
    memcpy(bytes, base, count);
    for (size_t i = 0; i < count; i += 4) {
        const uint64_t r = check_random(&seed);
        if (r % one_in == 0) bytes[i] = (uint8_t)((r >> 32) % 9 == 0 ? r >> 40 : bytes[i] + 1u);
    }
}

/* Every codec, dtype and variant, with a base and without, at the sizes around what they work
 * in. */
static void every_form_comes_back(void **state)
{
    struct tb_codec *codec = *state;
    static uint8_t base[600003], bytes[600003];
    static const size_t counts[] = {1, 7, 1000, 131072, 131075, 600003};
    step_make(base, bytes, sizeof bytes, 8);
    for (size_t v = 0; v < VECTORS; v++) {
        if (!tb_vector_here(vectors[v])) continue;
        tb_codec_force(codec, vectors[v]);
        for (size_t f = 0; f < FORMS * DTYPES; f++) {
            const struct tb_codec_form wanted = forms[f % FORMS];
            for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
                const struct tb_codec_input in = {bytes, counts[c], dtypes[f / FORMS],
                                                  wanted.on_base ? base : NULL, (unsigned)(c % 3) * 8};
                const struct coded got = round_trip(codec, wanted, &in);
                if (counts[c] >= 1000 && wanted.on_base) assert_int_equal(got.form.id, wanted.id);
            }
        }
    }
}

static void a_delta_takes_less_than_a_copy(void **state)
{
    struct tb_codec *codec = *state;
    static uint8_t base[400000], bytes[400000];
    step_make(base, bytes, sizeof bytes, 50);
    const struct tb_codec_input in = {bytes, sizeof bytes, TB_DTYPE_BF16, base, 0};
    const size_t copy = round_trip(codec, forms[3], &in).count;
    const size_t step = round_trip(codec, forms[5], &in).count;
    assert_true(step * 20 < copy);
    step_make(base, bytes, sizeof bytes, 1); /* half of all elements: the dense step */
    const size_t sparse = round_trip(codec, forms[5], &in).count;
    const size_t dense = round_trip(codec, forms[4], &in).count;
    assert_true(dense < sparse);
}

/* Encoded in up to so many classes, how many does it say, of its first `count` bytes? 0: of all. */
static unsigned classes_said(struct tb_codec *codec, struct tb_codec_form form, struct tb_codec_input *in,
                             size_t count)
{
    struct coded c = encode(codec, form, in);
    const struct tb_codec_coded coded = {c.form, c.bytes, count == 0 ? c.count : count};
    const unsigned classes = tb_codec_classes(&coded);
    free(c.bytes);
    return classes;
}

static void a_delta_says_in_how_many_classes_it_is(void **state)
{
    struct tb_codec *codec = *state;
    static uint8_t base[400000], bytes[400000];
    step_make(base, bytes, sizeof bytes, 50);
    struct tb_codec_input in = {bytes, sizeof bytes, TB_DTYPE_BF16, base, 1};
    assert_int_equal(classes_said(codec, forms[5], &in, 0), 1);
    in.classes = TB_CODEC_CLASSES;
    assert_in_range(classes_said(codec, forms[5], &in, 0), 2, TB_CODEC_CLASSES);
    assert_int_equal(classes_said(codec, forms[5], &in, 1), 0);
    assert_int_equal(classes_said(codec, forms[4], &in, 0), 0);
}

static void forms_that_are_none_are_refused(void **state)
{
    struct tb_codec *codec = *state;
    static const struct tb_codec_form none[] = {{TB_CODEC_RAW, true},
                                                {TB_CODEC_SPARSE, false},
                                                {TB_CODEC_CHAINED, false},
                                                {(enum tb_codec_id)5, false},
                                                {(enum tb_codec_id)255, true}};
    uint8_t out[16] = {0}, base[16] = {0}, bytes[16] = {0};
    for (size_t f = 0; f < FORMS; f++)
        assert_true(tb_codec_form_valid(forms[f]));
    for (size_t f = 0; f < sizeof none / sizeof none[0]; f++) {
        assert_false(tb_codec_form_valid(none[f]));
        const struct coded c = {bytes, sizeof bytes, none[f]};
        CHECK_STATUS(decode(codec, &c, (struct tb_codec_output){out, sizeof out, base}), TB_CHUNK_CODEC);
    }
}

static void a_base_that_is_missing_is_refused(void **state)
{
    struct tb_codec *codec = *state;
    static uint8_t base[40000], bytes[40000], out[40000];
    step_make(base, bytes, sizeof bytes, 9);
    const struct tb_codec_input in = {bytes, sizeof bytes, TB_DTYPE_BF16, base, 0};
    for (size_t f = 0; f < FORMS; f++) {
        struct coded c = encode(codec, forms[f], &in);
        const enum tb_status want = forms[f].on_base ? TB_CHUNK_CODEC : TB_OK;
        CHECK_STATUS(decode(codec, &c, (struct tb_codec_output){out, sizeof out, NULL}), want);
        free(c.bytes);
    }
}

static void too_little_room_is_said(void **state)
{
    struct tb_codec *codec = *state;
    const uint8_t bytes[100] = {0};
    uint8_t out[1024];
    struct tb_codec_coded coded;
    const struct tb_codec_input in = {bytes, sizeof bytes, TB_DTYPE_U8, bytes, 0};
    for (size_t f = 0; f < FORMS; f++) {
        const size_t cap = tb_codec_bound(forms[f].id, sizeof bytes);
        assert_true(cap >= sizeof bytes);
        CHECK_STATUS(tb_codec_encode(codec, forms[f], &in, (struct tb_codec_room){out, cap - 1}, &coded),
                     TB_SITE_NOMEM);
        CHECK_OK(tb_codec_encode(codec, forms[f], &in, (struct tb_codec_room){out, cap}, &coded));
    }
}

static struct coded zeros_coded(struct tb_codec *codec, struct tb_codec_form form)
{
    static const uint8_t zeros[4096];
    const struct tb_codec_input in = {zeros, sizeof zeros, TB_DTYPE_U8, zeros, 0};
    struct coded c = encode(codec, form, &in);
    assert_int_equal(c.form.id, form.id);
    return c;
}

/* Sparse says where it changes and not how long it is; planes say it in groups of 64. The
 * digest says the rest. */
static void lengths_must_agree(void **state)
{
    struct tb_codec *codec = *state;
    static const uint8_t base[5000];
    uint8_t out[5000];
    for (size_t f = 0; f < FORMS; f++) {
        struct coded c = zeros_coded(codec, forms[f]);
        CHECK_OK(decode(codec, &c, (struct tb_codec_output){out, 4096, base}));
        memset(out, 0x77, sizeof out);
        const size_t near = forms[f].id == TB_CODEC_PLANES ? 64 : 1;
        const enum tb_status want = forms[f].id == TB_CODEC_SPARSE ? TB_OK : TB_CHUNK_CODEC;
        CHECK_STATUS(decode(codec, &c, (struct tb_codec_output){out, 4096 - near, base}), want);
        assert_int_equal(out[4096 - near], 0x77);
        CHECK_STATUS(decode(codec, &c, (struct tb_codec_output){out, 4096 + near, base}), want);
        assert_int_equal(out[4096 + near], 0x77);
        free(c.bytes);
    }
}

static void damage_is_refused_or_harmless(void **state)
{
    struct tb_codec *codec = *state;
    static const uint8_t base[4096];
    uint8_t out[4096];
    for (size_t f = 1; f < FORMS; f++) {
        struct coded c = zeros_coded(codec, forms[f]);
        for (size_t cut = 0; cut < c.count; cut++) {
            struct coded shorter = {malloc(cut + (cut == 0)), cut, c.form};
            memcpy(shorter.bytes, c.bytes, cut);
            CHECK_STATUS(decode(codec, &shorter, (struct tb_codec_output){out, sizeof out, base}),
                         TB_CHUNK_CODEC);
            free(shorter.bytes);
        }
        for (size_t i = 0; i < c.count * 8; i++) { /* the digest catches what decodes to other bytes */
            c.bytes[i / 8] ^= (uint8_t)(1u << (i % 8));
            const enum tb_status status = decode(codec, &c, (struct tb_codec_output){out, sizeof out, base});
            assert_true(status == TB_OK || status == TB_CHUNK_CODEC);
            c.bytes[i / 8] ^= (uint8_t)(1u << (i % 8));
        }
        free(c.bytes);
    }
}

/* zstd itself would take all of these. */
static void only_one_plain_frame_is_taken(void **state)
{
    struct tb_codec *codec = *state;
    uint8_t out[8192], skippable[] = {0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 'x'};
    struct coded c = zeros_coded(codec, zstd);
    struct coded twice = {malloc(2 * c.count), 2 * c.count, zstd};
    memcpy(twice.bytes, c.bytes, c.count);
    memcpy(twice.bytes + c.count, c.bytes, c.count);
    CHECK_STATUS(decode(codec, &twice, (struct tb_codec_output){out, 8192, NULL}), TB_CHUNK_CODEC);
    const struct coded skip = {skippable, sizeof skippable, zstd}, empty = {skippable, 0, zstd};
    CHECK_STATUS(decode(codec, &skip, (struct tb_codec_output){out, 0, NULL}), TB_CHUNK_CODEC);
    CHECK_STATUS(decode(codec, &empty, (struct tb_codec_output){out, 0, NULL}), TB_CHUNK_CODEC);
    free(c.bytes);
    free(twice.bytes);
}

/* Differences are of elements of 1, 2, 4 or 8 bytes. */
static void widths_that_are_none_are_refused(void **state)
{
    struct tb_codec *codec = *state;
    static const uint8_t base[4096];
    uint8_t out[4096];
    struct coded c = zeros_coded(codec, forms[2]);
    for (unsigned width = 0; width < 256; width++) {
        const bool known = width == 1 || width == 2 || width == 4 || width == 8;
        c.bytes[0] = (uint8_t)width;
        CHECK_STATUS(decode(codec, &c, (struct tb_codec_output){out, sizeof out, base}),
                     known ? TB_OK : TB_CHUNK_CODEC);
    }
    free(c.bytes);
}

static void a_codec_has_a_name(void **state)
{
    (void)state;
    static const char *const names[] = {"raw", "zstd", "planes", "sparse", "chained"}; /* by their numbers */
    for (unsigned i = 0; i < 5; i++) {
        enum tb_codec_id id = TB_CODEC_RAW;
        CHECK_OK(tb_codec_parse(names[i], &id));
        assert_int_equal(id, i);
    }
    enum tb_codec_id id = TB_CODEC_RAW;
    CHECK_STATUS(tb_codec_parse("zst", &id), TB_BAD_ARGUMENT);
    CHECK_STATUS(tb_codec_parse("auto", &id), TB_BAD_ARGUMENT); /* a choice, no codec */
}

/* With TB_WEIGHTS_DIR=DIR that holds v0000.safetensors and on: a real step through every form, as
 * bytes of each dtype. */
static size_t version_load(const char *dir, unsigned number, uint8_t *bytes_out, size_t cap)
{
    char path[512];
    snprintf(path, sizeof path, "%s/v%04u.safetensors", dir, number);
    FILE *file = fopen(path, "rb");
    if (file == NULL) return 0;
    const size_t count = fread(bytes_out, 1, cap, file);
    fclose(file);
    return count;
}

static void real_weights_come_back(void **state)
{
    struct tb_codec *codec = *state;
    static uint8_t base[4 << 20], bytes[4 << 20];
    const char *dir = getenv("TB_WEIGHTS_DIR");
    if (dir == NULL) {
        print_message("TB_WEIGHTS_DIR is not set: no real weights\n");
        skip();
    }
    const size_t count = version_load(dir, 0, base, sizeof base);
    assert_true(count > 0 && version_load(dir, 1, bytes, sizeof bytes) == count);
    for (size_t f = 0; f < FORMS * DTYPES; f++) {
        for (size_t at = 0; at < count; at += 1 << 20) {
            const size_t here = count - at < 1 << 20 ? count - at : 1 << 20;
            const struct tb_codec_input in = {bytes + at, here, dtypes[f / FORMS], base + at, 0};
            (void)round_trip(codec, forms[f % FORMS], &in);
        }
    }
}

static void no_memory_is_a_status(void **state)
{
    (void)state;
    struct tb_codec *codec = NULL;
    tb_fault_arm(TB_FAULT_malloc, 1, false);
    CHECK_STATUS(tb_codec_new(&codec), TB_SITE_NOMEM);
    tb_fault_arm(TB_FAULT_malloc, 0, false);
    assert_null(codec);
    tb_codec_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define WITH_CODEC(test) cmocka_unit_test_setup_teardown(test, codec_up, codec_down)
        WITH_CODEC(a_chunk_that_shrinks_is_encoded_and_comes_back),
        WITH_CODEC(noise_is_sent_raw),
        WITH_CODEC(every_form_comes_back),
        WITH_CODEC(a_delta_takes_less_than_a_copy),
        WITH_CODEC(a_delta_says_in_how_many_classes_it_is),
        WITH_CODEC(forms_that_are_none_are_refused),
        WITH_CODEC(a_base_that_is_missing_is_refused),
        WITH_CODEC(too_little_room_is_said),
        WITH_CODEC(lengths_must_agree),
        WITH_CODEC(damage_is_refused_or_harmless),
        WITH_CODEC(only_one_plain_frame_is_taken),
        WITH_CODEC(widths_that_are_none_are_refused),
        cmocka_unit_test(a_codec_has_a_name),
        WITH_CODEC(real_weights_come_back),
        cmocka_unit_test(no_memory_is_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
