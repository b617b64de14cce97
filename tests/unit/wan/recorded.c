/* recorded.c - P9: frames that the release before sent are still understood, and those that we
 * send to it are the same as its own.
 *
 * Covers: wan/frame/frame.c */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recorded_frames.h"
#include "tests/unit/check.h"
#include "wan/frame/frame.h"

#define HEADER_BYTES 16u /* of a control frame */
#define LINE_CHARS   4096

struct recorded {
    char name[32];
    uint8_t bytes[LINE_CHARS / 2];
    size_t count;
};

/* The next line. False: the file is over. */
static bool next_line(FILE *f, struct recorded *r)
{
    char line[LINE_CHARS];
    if (fgets(line, sizeof line, f) == NULL) return false;
    const char *hex = strchr(line, ' ');
    assert_non_null(hex);
    assert_true((size_t)(hex - line) < sizeof r->name);
    memset(r, 0, sizeof *r);
    memcpy(r->name, line, (size_t)(hex - line));
    for (hex++; isxdigit((unsigned char)hex[0]) && isxdigit((unsigned char)hex[1]); hex += 2) {
        const char two[3] = {hex[0], hex[1], '\0'};
        r->bytes[r->count++] = (uint8_t)strtoul(two, NULL, 16);
    }
    assert_true(hex[0] == '\n');
    return true;
}

static void check_header(const struct recorded *r, uint16_t type)
{
    struct tb_reader reader;
    tb_reader_init(&reader, r->bytes, HEADER_BYTES);
    assert_int_equal(tb_read_u32(&reader), r->count - HEADER_BYTES);
    assert_int_equal(tb_read_u16(&reader), type);
    assert_int_equal(tb_read_u16(&reader), 0);
    assert_int_equal(tb_read_u64(&reader), 0);
}

/* The fields that were recorded are those that are read, and both are written to the same bytes
 * today. */
#define CHECK_ONE(message, type, ...)                                                                        \
    if (strcmp(r.name, #message) == 0) {                                                                     \
        const struct tb_frame_##message said = {__VA_ARGS__};                                                \
        struct tb_frame_##message read;                                                                      \
        struct tb_reader reader;                                                                             \
        uint8_t again[1024];                                                                                 \
        check_header(&r, type);                                                                              \
        tb_reader_init(&reader, r.bytes + HEADER_BYTES, r.count - HEADER_BYTES);                             \
        CHECK_OK(tb_frame_##message##_decode(&reader, &read));                                               \
        const struct tb_frame_##message *const both[2] = {&said, &read};                                     \
        for (int i = 0; i < 2; i++) {                                                                        \
            struct tb_writer w;                                                                              \
            tb_writer_init(&w, again, sizeof again);                                                         \
            tb_frame_##message##_encode(both[i], &w);                                                        \
            assert_int_equal(w.used, r.count - HEADER_BYTES);                                                \
            assert_memory_equal(again, r.bytes + HEADER_BYTES, w.used);                                      \
        }                                                                                                    \
        messages++;                                                                                          \
        continue;                                                                                            \
    }

#define COUNT_ONE(message, type, ...) +1

static void check_chunk(const struct recorded *r, uint32_t *codecs)
{
    struct tb_chunk_frame f;
    struct tb_reader reader;
    struct tb_writer w;
    uint8_t again[TB_CHUNK_FRAME_HEADER_BYTES];
    for (uint32_t protocol = 1; protocol <= TB_LINK_PROTOCOL;
         protocol++) { /* without a base, 2 writes what 1 wrote */
        tb_reader_init(&reader, r->bytes, TB_CHUNK_FRAME_HEADER_BYTES);
        CHECK_OK(tb_chunk_frame_decode(&reader, protocol, &f));
        assert_int_equal(f.crossing, 6);
        assert_int_equal(f.shard, 1);
        assert_int_equal(f.raw_bytes, 256);
        assert_int_equal(f.wire_bytes, r->count - TB_CHUNK_FRAME_HEADER_BYTES);
        assert_false(f.form.on_base);
        tb_writer_init(&w, again, sizeof again);
        tb_chunk_frame_encode(&f, &w);
        assert_memory_equal(again, r->bytes, sizeof again);
    }
    *codecs |= 1u << f.form.id;
}

static void frames_of_protocol_1_are_understood(void **state)
{
    (void)state;
    uint32_t messages = 0, codecs = 0;
    struct recorded r;
    FILE *f = fopen(RECORDED_FOLDER "/recorded_frames_1.txt", "r");
    assert_non_null(f);
    while (next_line(f, &r)) {
        RECORDED_1(CHECK_ONE)
        assert_string_equal(r.name, "chunk");
        check_chunk(&r, &codecs);
    }
    assert_int_equal(messages, 0 RECORDED_1(COUNT_ONE));
    assert_int_equal(codecs, 1u << TB_CODEC_RAW | 1u << TB_CODEC_ZSTD);
    fclose(f);
}

/* One in a form that protocol 2 brought: a peer that speaks 1 alone refuses it. */
static void check_chunk_of_2(const struct recorded *r, uint32_t *forms)
{
    struct tb_chunk_frame f;
    struct tb_reader reader;
    struct tb_writer w;
    uint8_t again[TB_CHUNK_FRAME_HEADER_BYTES];
    tb_reader_init(&reader, r->bytes, TB_CHUNK_FRAME_HEADER_BYTES);
    CHECK_STATUS(tb_chunk_frame_decode(&reader, 1, &f), TB_PEER_GARBLED);
    for (uint32_t protocol = 2; protocol <= TB_LINK_PROTOCOL; protocol++) {
        tb_reader_init(&reader, r->bytes, TB_CHUNK_FRAME_HEADER_BYTES);
        CHECK_OK(tb_chunk_frame_decode(&reader, protocol, &f));
        assert_int_equal(f.chunk, 70 + f.form.id);
        assert_int_equal(f.wire_bytes, r->count - TB_CHUNK_FRAME_HEADER_BYTES);
        tb_writer_init(&w, again, sizeof again);
        tb_chunk_frame_encode(&f, &w);
        assert_memory_equal(again, r->bytes, sizeof again);
    }
    *forms |= 1u << (2 * f.form.id + f.form.on_base);
}

static void frames_of_protocol_2_are_understood(void **state)
{
    (void)state;
    uint32_t messages = 0, forms = 0;
    struct recorded r;
    FILE *f = fopen(RECORDED_FOLDER "/recorded_frames_2.txt", "r");
    assert_non_null(f);
    while (next_line(f, &r)) {
        RECORDED_2(CHECK_ONE)
        assert_string_equal(r.name, "chunk");
        check_chunk_of_2(&r, &forms);
    }
    assert_int_equal(messages, 0 RECORDED_2(COUNT_ONE));
    assert_int_equal(forms, 1u << 2 * TB_CODEC_PLANES | 1u << (2 * TB_CODEC_PLANES + 1) |
                                1u << (2 * TB_CODEC_SPARSE + 1) | 1u << (2 * TB_CODEC_CHAINED + 1) |
                                1u << (2 * TB_CODEC_ZSTD + 1));
    fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(frames_of_protocol_1_are_understood),
                                       cmocka_unit_test(frames_of_protocol_2_are_understood)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
