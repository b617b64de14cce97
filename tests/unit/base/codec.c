/* P1, P7: codecs are exact, and a decoder stays inside what it was given whatever it is fed. */
#include "base/codec.h"

#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
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

/* Encodes and decodes `count` bytes; returns what came out of the encoder and checks that all came back. */
static size_t round_trip(struct tb_codec *codec, enum tb_codec_id id, const uint8_t *bytes, size_t count,
                         enum tb_codec_id *id_out)
{
    const size_t cap = tb_codec_bound(id, count);
    uint8_t *out = malloc(cap + 1);
    uint8_t *back = malloc(count + 1);
    size_t used = 0;
    const struct tb_codec_input in = {bytes, count, TB_DTYPE_BF16};
    CHECK_OK(tb_codec_encode(codec, id, &in, out, cap, id_out, &used));
    assert_true(used <= count);
    CHECK_OK(tb_codec_decode(codec, *id_out, out, used, back, count));
    assert_memory_equal(bytes, back, count);
    free(out);
    free(back);
    return used;
}

static void what_shrinks_is_encoded_and_comes_back(void **state)
{
    struct tb_codec *codec = *state;
    static uint8_t bytes[300000];
    uint64_t seed = 9;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(check_random(&seed) % 4);
    for (size_t count = 1000; count <= sizeof bytes; count = count * 3 + 1) {
        enum tb_codec_id id = TB_CODEC_RAW;
        assert_true(round_trip(codec, TB_CODEC_ZSTD, bytes, count, &id) < count / 2);
        assert_int_equal(id, TB_CODEC_ZSTD);
        assert_int_equal(round_trip(codec, TB_CODEC_RAW, bytes, count, &id), count);
        assert_int_equal(id, TB_CODEC_RAW);
    }
}

static void noise_is_sent_raw(void **state)
{
    struct tb_codec *codec = *state;
    static uint8_t bytes[100000];
    uint64_t seed = 10;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)check_random(&seed);
    for (size_t count = 0; count <= sizeof bytes; count = count * 5 + 1) {
        enum tb_codec_id id = TB_CODEC_ZSTD;
        assert_int_equal(round_trip(codec, TB_CODEC_ZSTD, bytes, count, &id), count);
        assert_int_equal(id, TB_CODEC_RAW);
    }
}

static void too_little_room_is_said(void **state)
{
    struct tb_codec *codec = *state;
    const uint8_t bytes[100] = {0};
    uint8_t out[1024];
    enum tb_codec_id id = TB_CODEC_RAW;
    size_t used = 0;
    const struct tb_codec_input in = {bytes, sizeof bytes, TB_DTYPE_U8};
    const size_t cap = tb_codec_bound(TB_CODEC_ZSTD, sizeof bytes);
    CHECK_STATUS(tb_codec_encode(codec, TB_CODEC_ZSTD, &in, out, cap - 1, &id, &used), TB_SITE_NOMEM);
    CHECK_OK(tb_codec_encode(codec, TB_CODEC_ZSTD, &in, out, cap, &id, &used));
    CHECK_STATUS(tb_codec_encode(codec, TB_CODEC_RAW, &in, out, 99, &id, &used), TB_SITE_NOMEM);
}

struct frame {
    uint8_t bytes[512];
    size_t used;
};

static struct frame zeros_frame(struct tb_codec *codec, size_t count)
{
    static const uint8_t zeros[4096];
    struct frame f;
    uint8_t out[8192];
    enum tb_codec_id id = TB_CODEC_RAW;
    const struct tb_codec_input in = {zeros, count, TB_DTYPE_U8};
    CHECK_OK(tb_codec_encode(codec, TB_CODEC_ZSTD, &in, out, sizeof out, &id, &f.used));
    assert_int_equal(id, TB_CODEC_ZSTD);
    assert_true(f.used < sizeof f.bytes / 2);
    memcpy(f.bytes, out, f.used);
    return f;
}

static void lengths_must_agree(void **state)
{
    struct tb_codec *codec = *state;
    uint8_t out[5000];
    const struct frame f = zeros_frame(codec, 4096);
    CHECK_OK(tb_codec_decode(codec, TB_CODEC_ZSTD, f.bytes, f.used, out, 4096));
    out[4095] = 0x77;
    CHECK_STATUS(tb_codec_decode(codec, TB_CODEC_ZSTD, f.bytes, f.used, out, 4095), TB_CHUNK_CODEC);
    assert_int_equal(out[4095], 0x77);
    CHECK_STATUS(tb_codec_decode(codec, TB_CODEC_ZSTD, f.bytes, f.used, out, 4097), TB_CHUNK_CODEC);
    CHECK_STATUS(tb_codec_decode(codec, TB_CODEC_RAW, f.bytes, 10, out, 11), TB_CHUNK_CODEC);
    CHECK_STATUS(tb_codec_decode(codec, TB_CODEC_RAW, f.bytes, 11, out, 10), TB_CHUNK_CODEC);
    CHECK_STATUS(tb_codec_decode(codec, (enum tb_codec_id)7, f.bytes, f.used, out, 4096), TB_CHUNK_CODEC);
}

static void damage_is_refused_or_harmless(void **state)
{
    struct tb_codec *codec = *state;
    uint8_t out[4096];
    struct frame f = zeros_frame(codec, 4096);
    for (size_t cut = 0; cut < f.used; cut++)
        CHECK_STATUS(tb_codec_decode(codec, TB_CODEC_ZSTD, f.bytes, cut, out, sizeof out), TB_CHUNK_CODEC);
    for (size_t i = 0; i < f.used * 8;
         i++) { /* asan looks on; the digest catches what decodes to other bytes */
        f.bytes[i / 8] ^= (uint8_t)(1u << (i % 8));
        const enum tb_status status = tb_codec_decode(codec, TB_CODEC_ZSTD, f.bytes, f.used, out, sizeof out);
        assert_true(status == TB_OK || status == TB_CHUNK_CODEC);
        f.bytes[i / 8] ^= (uint8_t)(1u << (i % 8));
    }
}

/* zstd itself would take all of these. */
static void only_one_plain_frame_is_taken(void **state)
{
    struct tb_codec *codec = *state;
    uint8_t out[8192];
    struct frame f = zeros_frame(codec, 4096);
    memcpy(f.bytes + f.used, f.bytes, f.used); /* two in a row */
    CHECK_STATUS(tb_codec_decode(codec, TB_CODEC_ZSTD, f.bytes, 2 * f.used, out, 8192), TB_CHUNK_CODEC);
    const uint8_t skippable[] = {0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 'x'};
    CHECK_STATUS(tb_codec_decode(codec, TB_CODEC_ZSTD, skippable, sizeof skippable, out, 0), TB_CHUNK_CODEC);
    CHECK_STATUS(tb_codec_decode(codec, TB_CODEC_ZSTD, "", 0, out, 0), TB_CHUNK_CODEC);
}

static void names_go_there_and_back(void **state)
{
    (void)state;
    enum tb_codec_id id = TB_CODEC_RAW;
    CHECK_OK(tb_codec_parse("zstd", &id));
    assert_int_equal(id, TB_CODEC_ZSTD);
    assert_string_equal(tb_codec_name(id), "zstd");
    CHECK_OK(tb_codec_parse("raw", &id));
    assert_int_equal(id, TB_CODEC_RAW);
    CHECK_STATUS(tb_codec_parse("zst", &id), TB_BAD_ARGUMENT);
    CHECK_STATUS(tb_codec_parse("planes", &id), TB_BAD_ARGUMENT); /* no link carries it yet */
    assert_string_equal(tb_codec_name(TB_CODEC_PLANES), "planes");
    assert_null(tb_codec_name((enum tb_codec_id)3));
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
        cmocka_unit_test_setup_teardown(what_shrinks_is_encoded_and_comes_back, codec_up, codec_down),
        cmocka_unit_test_setup_teardown(noise_is_sent_raw, codec_up, codec_down),
        cmocka_unit_test_setup_teardown(too_little_room_is_said, codec_up, codec_down),
        cmocka_unit_test_setup_teardown(lengths_must_agree, codec_up, codec_down),
        cmocka_unit_test_setup_teardown(damage_is_refused_or_harmless, codec_up, codec_down),
        cmocka_unit_test_setup_teardown(only_one_plain_frame_is_taken, codec_up, codec_down),
        cmocka_unit_test(names_go_there_and_back),
        cmocka_unit_test(no_memory_is_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
