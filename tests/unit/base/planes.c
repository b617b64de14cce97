/* P1, P7: elements taken apart into planes come back bit for bit, and a damaged form is refused or stays in bounds. */
#include "base/planes.h"

#include <stdlib.h>
#include <string.h>

#include "base/codec.h"
#include "tests/unit/check.h"

#define HEADER 8 /* of the codec: docs/protocol.md */

static const struct {
    enum tb_dtype dtype;
    size_t width;
} dtypes[] = {
    {TB_DTYPE_BF16, 2}, {TB_DTYPE_F16, 2}, {TB_DTYPE_F8E4, 1}, {TB_DTYPE_F8E5, 1}, {TB_DTYPE_F32, 4}};

#define DTYPES (sizeof dtypes / sizeof dtypes[0])

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

/* Like weights: few exponents, all mantissas; every 50th element is any bit pattern (NaN payloads, infinities, -0). */
static void weights_make(uint8_t *bytes, size_t count, size_t width, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) {
        const uint64_t r = check_random(&seed);
        const uint64_t few = width == 1 ? r % 5 : r >> 8;
        bytes[i] = (uint8_t)few;
        if (i % width == width - 1 && width > 1) bytes[i] = (uint8_t)((r & 0x80) | (0x3a + r % 2));
        if (i / width % 50 == 0) bytes[i] = (uint8_t)(r >> 16);
    }
}

/* What the form says, spelled out with whole numbers instead of bytes. */
static uint32_t rotated(const uint8_t *element, enum tb_planes_kind kind)
{
    uint32_t x = 0;
    const size_t width = tb_planes_width((uint8_t)kind);
    for (size_t k = 0; k < width; k++)
        x |= (uint32_t)element[k] << (8 * k);
    if (kind == TB_PLANES_BF16) return (x << 1 | x >> 15) & 0xffff;
    return kind == TB_PLANES_F32 ? x << 1 | x >> 31 : x;
}

static void each_plane_is_a_byte_of_the_rotated_element(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 1, 2, 31, 32, 33, 4095, 4096, 4097, 10001};
    static uint8_t bytes[4 * 10001], hot[10001], rest[3 * 10001 + 1], back[4 * 10001];
    for (size_t d = 0; d < DTYPES; d++) {
        const enum tb_planes_kind kind = tb_planes_kind_of(dtypes[d].dtype);
        const size_t width = dtypes[d].width;
        assert_int_equal(tb_planes_width((uint8_t)kind), width);
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            const size_t count = counts[c];
            weights_make(bytes, width * count, width, 7 + c);
            tb_planes_hot(kind, bytes, count, hot);
            rest[(width - 1) * count] = 0x5a;
            tb_planes_rest(kind, bytes, count, rest);
            assert_int_equal(rest[(width - 1) * count], 0x5a);
            for (size_t i = 0; i < count; i++) {
                const uint32_t x = rotated(bytes + width * i, kind);
                assert_int_equal(hot[i], x >> (8 * (width - 1)));
                for (size_t k = 0; k + 1 < width; k++)
                    assert_int_equal(rest[k * count + i], x >> (8 * k) & 0xff);
            }
            if (count > 0) memcpy(back + (width - 1) * count, hot, count);
            tb_planes_join(kind, rest, count, back);
            assert_memory_equal(back, bytes, width * count);
        }
    }
}

static void every_bit_pattern_of_two_bytes_comes_back(void **state)
{
    (void)state;
    static uint8_t bytes[2 * 65536], hot[65536], rest[65536], back[2 * 65536];
    for (size_t i = 0; i < 65536; i++) {
        bytes[2 * i] = (uint8_t)i;
        bytes[2 * i + 1] = (uint8_t)(i >> 8);
    }
    for (size_t d = 0; d < 2; d++) {
        const enum tb_planes_kind kind = tb_planes_kind_of(dtypes[d].dtype);
        tb_planes_hot(kind, bytes, 65536, hot);
        tb_planes_rest(kind, bytes, 65536, rest);
        memcpy(back + 65536, hot, sizeof hot);
        tb_planes_join(kind, rest, 65536, back);
        assert_memory_equal(back, bytes, sizeof bytes);
    }
}

static void what_is_no_float_has_no_planes(void **state)
{
    (void)state;
    static const enum tb_dtype none[] = {TB_DTYPE_U8, TB_DTYPE_BOOL, TB_DTYPE_I16, TB_DTYPE_U32,
                                         TB_DTYPE_F64};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        assert_int_equal(tb_planes_kind_of(none[i]), TB_PLANES_NONE);
    for (unsigned kind = 0; kind < 256; kind++)
        assert_int_equal(tb_planes_width((uint8_t)kind) > 0, kind >= 1 && kind <= 4);
}

struct form {
    uint8_t *bytes; /* exactly `used` long, so that asan sees a read behind it */
    size_t used;
    enum tb_codec_id id;
};

static struct form encode(struct tb_codec *codec, const struct tb_codec_input *in)
{
    const size_t cap = tb_codec_bound(TB_CODEC_PLANES, in->count);
    uint8_t *out = malloc(cap);
    assert_non_null(out);
    struct form f = {NULL, 0, TB_CODEC_RAW};
    CHECK_OK(tb_codec_encode(codec, TB_CODEC_PLANES, in, out, cap, &f.id, &f.used));
    f.bytes = malloc(f.used + (f.used == 0));
    assert_non_null(f.bytes);
    if (f.used > 0) memcpy(f.bytes, out, f.used);
    free(out);
    return f;
}

/* Odd sizes leave bytes behind the last element; a chunk over 128 KiB of exponents has several blocks. */
static void chunks_of_every_size_come_back(void **state)
{
    struct tb_codec *codec = *state;
    static const size_t counts[] = {0, 1, 2, 3, 5, 63, 1024, 1027, 65539, 524289, 1048576};
    static uint8_t bytes[1048576];
    for (size_t d = 0; d < DTYPES; d++) {
        weights_make(bytes, sizeof bytes, dtypes[d].width, 3);
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            const struct tb_codec_input in = {bytes, counts[c], dtypes[d].dtype};
            struct form f = encode(codec, &in);
            assert_int_equal(f.id, counts[c] >= 1024 ? TB_CODEC_PLANES : TB_CODEC_RAW);
            uint8_t *back = malloc(counts[c] + (counts[c] == 0));
            CHECK_OK(tb_codec_decode(codec, f.id, f.bytes, f.used, back, counts[c]));
            assert_memory_equal(back, bytes, counts[c]);
            free(back);
            free(f.bytes);
        }
    }
}

static void what_does_not_pay_is_raw(void **state)
{
    struct tb_codec *codec = *state;
    static uint8_t bytes[100001];
    uint64_t seed = 4;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)check_random(&seed);
    for (size_t d = 0; d <= DTYPES; d++) {
        const enum tb_dtype dtype = d < DTYPES ? dtypes[d].dtype : TB_DTYPE_U8;
        const struct tb_codec_input in = {bytes, sizeof bytes, dtype};
        struct form f = encode(codec, &in);
        assert_int_equal(f.id, TB_CODEC_RAW);
        assert_int_equal(f.used, sizeof bytes);
        free(f.bytes);
    }
}

/* The digest catches what decodes to other bytes; asan looks on. */
static void damaged_forms_stay_in_bounds(void **state)
{
    struct tb_codec *codec = *state;
    static uint8_t bytes[1501];
    for (size_t d = 0; d < DTYPES; d++) {
        weights_make(bytes, sizeof bytes, dtypes[d].width, 5);
        const struct tb_codec_input in = {bytes, sizeof bytes, dtypes[d].dtype};
        struct form f = encode(codec, &in);
        assert_int_equal(f.id, TB_CODEC_PLANES);
        uint8_t *back = malloc(sizeof bytes);
        for (size_t cut = 0; cut < f.used; cut++)
            CHECK_STATUS(tb_codec_decode(codec, f.id, f.bytes, cut, back, sizeof bytes), TB_CHUNK_CODEC);
        for (size_t bit = 0; bit < 8 * f.used; bit++) {
            f.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            const enum tb_status got = tb_codec_decode(codec, f.id, f.bytes, f.used, back, sizeof bytes);
            assert_true(got == TB_OK || got == TB_CHUNK_CODEC);
            if (bit / 8 < HEADER) CHECK_STATUS(got, TB_CHUNK_CODEC);
            f.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        CHECK_STATUS(tb_codec_decode(codec, f.id, f.bytes, f.used, back, sizeof bytes - 1), TB_CHUNK_CODEC);
        CHECK_STATUS(tb_codec_decode(codec, f.id, f.bytes, f.used, back, 0), TB_CHUNK_CODEC);
        free(back);
        free(f.bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_plane_is_a_byte_of_the_rotated_element),
        cmocka_unit_test(every_bit_pattern_of_two_bytes_comes_back),
        cmocka_unit_test(what_is_no_float_has_no_planes),
        cmocka_unit_test_setup_teardown(chunks_of_every_size_come_back, codec_up, codec_down),
        cmocka_unit_test_setup_teardown(what_does_not_pay_is_raw, codec_up, codec_down),
        cmocka_unit_test_setup_teardown(damaged_forms_stay_in_bounds, codec_up, codec_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
