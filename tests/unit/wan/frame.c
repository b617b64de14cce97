/* frame.c - every message there and back, every truncation and tail refused; chunk frames and held
 * words at their limits (P7).
 *
 * Covers: wan/frame/frame.c */
#include "wan/frame/frame.h"

#include <string.h>

#include "base/layout/chunk_cut.h"
#include "tests/unit/check.h"

/* For each message: a sample comes back equal; every truncation and one byte more is refused.
 * Spans are compared by the caller's eye: samples have none but `page`, which points into the
 * frame after a decode. */
#define WALK(message, sample)                                                                                \
    do {                                                                                                     \
        uint8_t bytes[1024];                                                                                 \
        struct tb_writer w;                                                                                  \
        struct tb_reader r;                                                                                  \
        struct message out;                                                                                  \
        tb_writer_init(&w, bytes, sizeof bytes);                                                             \
        message##_encode(&(sample), &w);                                                                     \
        assert_false(w.full);                                                                                \
        for (size_t cut = 0; cut < w.used; cut++) {                                                          \
            tb_reader_init(&r, bytes, cut);                                                                  \
            CHECK_STATUS(message##_decode(&r, &out), TB_PEER_GARBLED);                                       \
        }                                                                                                    \
        tb_reader_init(&r, bytes, w.used + 1);                                                               \
        CHECK_STATUS(message##_decode(&r, &out), TB_PEER_GARBLED);                                           \
        tb_reader_init(&r, bytes, w.used);                                                                   \
        CHECK_OK(message##_decode(&r, &out));                                                                \
        uint8_t again[1024];                                                                                 \
        struct tb_writer w2;                                                                                 \
        tb_writer_init(&w2, again, sizeof again);                                                            \
        message##_encode(&out, &w2);                                                                         \
        assert_int_equal(w2.used, w.used);                                                                   \
        assert_memory_equal(again, bytes, w.used);                                                           \
    } while (0)

static struct tb_id some_id(uint8_t seed)
{
    struct tb_id id;
    memset(id.bytes, seed, sizeof id.bytes);
    return id;
}

static struct tb_name some_name(const char *text)
{
    struct tb_name name;
    memset(&name, 0, sizeof name);
    CHECK_OK(tb_name_set(&name, text));
    return name;
}

static const struct tb_span page = {(const uint8_t *)"0123456789abcdef", 16};

static void sessions_messages_come_back(void **state)
{
    (void)state;
    const struct tb_frame_hello hello = {.protocol = 1,
                                         .protocol_min = 1,
                                         .site = some_name("east"),
                                         .gateway = some_name("gw"),
                                         .lane_count = 1,
                                         .life = some_id(3),
                                         .incarnation = 7,
                                         .session = some_id(4),
                                         .more = page};
    WALK(tb_frame_hello, hello);
    WALK(tb_frame_bye, ((struct tb_frame_bye){tb_frame_status(TB_PEER_STALE), 12}));
    WALK(tb_frame_ping, ((struct tb_frame_ping){99}));
    WALK(tb_frame_pong, ((struct tb_frame_pong){99}));
    WALK(tb_frame_subscribe, ((struct tb_frame_subscribe){some_name("policy"), some_name("east")}));
    WALK(tb_frame_denied, ((struct tb_frame_denied){some_name("policy")}));
    WALK(tb_frame_bind, ((struct tb_frame_bind){some_id(5), 8}));
    WALK(tb_frame_bound, ((struct tb_frame_bound){8}));
    WALK(tb_frame_stream_gone, ((struct tb_frame_stream_gone){8}));
    WALK(tb_frame_runs, ((struct tb_frame_runs){some_name("policy")}));
    WALK(tb_frame_run_told, ((struct tb_frame_run_told){some_name("policy"), 3, 4, some_id(2)}));
    WALK(tb_frame_report, ((struct tb_frame_report){some_id(1), some_name("north"), 2}));
}

/* A release before this one says 16 bytes, and a later one may say more. */
static void hello_says_the_clock(void **state)
{
    (void)state;
    uint8_t more[32] = {[16] = 0x39, [17] = 0x30}; /* 12345 */
    uint64_t wall_ms = 0;
    struct tb_frame_hello hello = {.more = {more, 24}};
    assert_true(tb_frame_hello_clock(&hello, &wall_ms));
    assert_int_equal(wall_ms, 12345);
    hello.more.count = sizeof more;
    assert_true(tb_frame_hello_clock(&hello, &wall_ms));
    hello.more.count = 23;
    assert_false(tb_frame_hello_clock(&hello, &wall_ms));
    hello.more.count = 24;
    memset(more + 16, 0xff, 6); /* below 2^48, and then 2^52 */
    assert_true(tb_frame_hello_clock(&hello, &wall_ms));
    more[22] = 0x10;
    assert_false(tb_frame_hello_clock(&hello, &wall_ms));
}

static void versions_messages_come_back(void **state)
{
    (void)state;
    const struct tb_version_key key = {.uid = some_id(1),
                                       .model = some_name("policy"),
                                       .run = some_id(2),
                                       .run_order = 3,
                                       .number = 4,
                                       .shard_count = 2};
    WALK(tb_frame_version, ((struct tb_frame_version){key, 1 << 30, TB_FRAME_VERSION_READY}));
    WALK(tb_frame_gone, ((struct tb_frame_gone){some_id(1), tb_frame_status(TB_SUPERSEDED)}));
    WALK(tb_frame_ask, ((struct tb_frame_ask){some_id(1)}));
    WALK(tb_frame_whole, ((struct tb_frame_whole){some_id(1)}));
    WALK(tb_frame_head, ((struct tb_frame_head){some_id(1), 2, 300, 16, page}));
    WALK(tb_frame_digests, ((struct tb_frame_digests){some_id(1), 2, 3, page}));
    WALK(tb_frame_want, ((struct tb_frame_want){1, some_id(1)}));
    WALK(tb_frame_base, ((struct tb_frame_base){1, some_id(1)}));
    WALK(tb_frame_streams, ((struct tb_frame_streams){12}));
    WALK(tb_frame_held, ((struct tb_frame_held){1, 0, page}));
    WALK(tb_frame_start, ((struct tb_frame_start){1}));
    WALK(tb_frame_stop, ((struct tb_frame_stop){1}));
    WALK(tb_frame_refused, ((struct tb_frame_refused){1, 2, 3, TB_REFUSAL_DIGEST}));
}

static void views_messages_come_back(void **state)
{
    (void)state;
    const struct tb_frame_state said = {.site = some_name("west"),
                                        .model = some_name("policy"),
                                        .hops = 1,
                                        .incarnation = 7,
                                        .serial = 8,
                                        .known = true,
                                        .reason = 3,
                                        .head_number = 9,
                                        .versions = 2,
                                        .held = page};
    WALK(tb_frame_state, said);
    WALK(tb_frame_holdup, ((struct tb_frame_holdup){2}));
    WALK(tb_frame_statement, ((struct tb_frame_statement){page}));
}

static struct tb_site_state two_held(void)
{
    return (struct tb_site_state){.held_count = 2,
                                  .held = {{some_id(2), {1, 5}, 100, 40, TB_SITE_READY},
                                           {some_id(1), {1, 4}, 100, 100, TB_SITE_READY | TB_SITE_WHOLE}}};
}

static enum tb_status held_there_and_back(const struct tb_site_state *said, struct tb_site_state *heard)
{
    uint8_t bytes[TB_SITE_HELD_MAX * TB_SITE_HELD_BYTES];
    tb_frame_site_held_encode(said, bytes);
    return tb_frame_site_held_decode(&(struct tb_span){bytes, said->held_count * TB_SITE_HELD_BYTES}, heard);
}

static void the_word_of_a_sites_holdings_comes_back(void **state)
{
    (void)state;
    static struct tb_site_state said, heard;
    said = two_held();
    CHECK_OK(held_there_and_back(&said, &heard));
    assert_int_equal(heard.held_count, 2);
    assert_memory_equal(&heard.held[0].uid, &said.held[0].uid, sizeof said.held[0].uid);
    assert_int_equal(heard.held[0].which.number, 5);
    assert_int_equal(heard.held[0].held_bytes, 40);
    assert_int_equal(heard.held[1].marks, TB_SITE_READY | TB_SITE_WHOLE);
    CHECK_OK(tb_frame_site_held_decode(&(struct tb_span){NULL, 0}, &heard));
    assert_int_equal(heard.held_count, 0);
}

static void a_holding_of_no_site_is_refused(void **state)
{
    (void)state;
    static struct tb_site_state said, heard;
    static const uint8_t many[(TB_SITE_HELD_MAX + 1) * TB_SITE_HELD_BYTES];
    CHECK_STATUS(tb_frame_site_held_decode(&(struct tb_span){many, sizeof many}, &heard), TB_PEER_GARBLED);
    CHECK_STATUS(tb_frame_site_held_decode(&(struct tb_span){many, 1}, &heard), TB_PEER_GARBLED);
    said = two_held();
    said.held[1].uid = (struct tb_id){{0}};
    CHECK_STATUS(held_there_and_back(&said, &heard), TB_PEER_GARBLED);
    said = two_held();
    said.held[1].which.number = 5; /* the order does not fall */
    CHECK_STATUS(held_there_and_back(&said, &heard), TB_PEER_GARBLED);
    said = two_held();
    said.held[0].marks = TB_SITE_MARKS + 1;
    CHECK_STATUS(held_there_and_back(&said, &heard), TB_PEER_GARBLED);
    said = two_held();
    said.held[0].held_bytes = 101;
    CHECK_STATUS(held_there_and_back(&said, &heard), TB_PEER_GARBLED);
    said = two_held();
    said.held[0].marks |= TB_SITE_WHOLE; /* with 40 of 100 bytes */
    CHECK_STATUS(held_there_and_back(&said, &heard), TB_PEER_GARBLED);
}

static void a_status_crosses_and_nonsense_does_not(void **state)
{
    (void)state;
    CHECK_STATUS(tb_frame_status_of(tb_frame_status(TB_VERSION_LOST)), TB_VERSION_LOST);
    CHECK_STATUS(tb_frame_status_of(0), TB_PEER_GARBLED);
    CHECK_STATUS(tb_frame_status_of(99), TB_PEER_GARBLED);
    CHECK_STATUS(tb_frame_status_of(1000), TB_PEER_GARBLED);
    CHECK_STATUS(tb_frame_status_of(UINT32_MAX), TB_PEER_GARBLED);
}

static enum tb_status chunk_decode(const struct tb_chunk_frame *f, size_t bytes, uint32_t protocol,
                                   struct tb_chunk_frame *out)
{
    uint8_t header[TB_CHUNK_FRAME_HEADER_BYTES];
    struct tb_writer w;
    struct tb_reader r;
    tb_writer_init(&w, header, sizeof header);
    tb_chunk_frame_encode(f, &w);
    assert_int_equal(w.used, sizeof header);
    tb_reader_init(&r, header, bytes);
    return tb_chunk_frame_decode(&r, protocol, out);
}

static void chunk_frames_at_their_limits(void **state)
{
    (void)state;
    const struct tb_chunk_frame good = {{TB_CODEC_SPARSE, true}, 1, 2, 3, 1000, 999};
    struct tb_chunk_frame out, f;
    CHECK_OK(chunk_decode(&good, 28, 2, &out));
    assert_int_equal(out.form.id, TB_CODEC_SPARSE);
    assert_true(out.form.on_base);
    assert_int_equal(out.crossing, 1);
    assert_int_equal(out.shard, 2);
    assert_int_equal(out.chunk, 3);
    assert_int_equal(out.raw_bytes, 1000);
    assert_int_equal(out.wire_bytes, 999);
    for (size_t cut = 0; cut < 28; cut++)
        CHECK_STATUS(chunk_decode(&good, cut, 2, &out), TB_PEER_GARBLED);
    struct {
        enum tb_codec_id codec;
        uint32_t raw, wire;
        enum tb_status status;
    } rows[] = {
        {TB_CODEC_RAW, 1, 1, TB_OK},
        {TB_CODEC_RAW, 2 * TB_CHUNK_BYTES_MAX, 2 * TB_CHUNK_BYTES_MAX, TB_OK},
        {TB_CODEC_RAW, 2 * TB_CHUNK_BYTES_MAX + 1, 2 * TB_CHUNK_BYTES_MAX + 1, TB_PEER_GARBLED},
        {TB_CODEC_RAW, 0, 0, TB_PEER_GARBLED},
        {TB_CODEC_RAW, 10, 9, TB_PEER_GARBLED},
        {TB_CODEC_ZSTD, 10, 0, TB_PEER_GARBLED},
        {TB_CODEC_ZSTD, 10, 10, TB_OK},
        {TB_CODEC_ZSTD, 10, 11, TB_PEER_GARBLED},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        f = (struct tb_chunk_frame){{rows[i].codec, false}, 1, 0, 0, rows[i].raw, rows[i].wire};
        for (uint32_t protocol = 1; protocol <= 2; protocol++)
            CHECK_STATUS(chunk_decode(&f, 28, protocol, &out), rows[i].status);
    }
}

/* P9: each protocol has its forms. */
static void forms_belong_to_protocols(void **state)
{
    (void)state;
    const struct {
        struct tb_codec_form form;
        bool in1, in2;
    } rows[] = {
        {{TB_CODEC_RAW, false}, true, true},         {{TB_CODEC_ZSTD, false}, true, true},
        {{TB_CODEC_PLANES, false}, false, true},     {{TB_CODEC_SPARSE, false}, false, false},
        {{TB_CODEC_RAW, true}, false, false},        {{TB_CODEC_ZSTD, true}, false, true},
        {{TB_CODEC_PLANES, true}, false, true},      {{TB_CODEC_SPARSE, true}, false, true},
        {{TB_CODEC_CHAINED, true}, false, true},     {{TB_CODEC_CHAINED, false}, false, false},
        {{(enum tb_codec_id)5, true}, false, false}, {{(enum tb_codec_id)255, false}, false, false},
    };
    struct tb_chunk_frame out;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct tb_chunk_frame f = {rows[i].form, 1, 0, 0, 10, 10};
        CHECK_STATUS(chunk_decode(&f, 28, 1, &out), rows[i].in1 ? TB_OK : TB_PEER_GARBLED);
        CHECK_STATUS(chunk_decode(&f, 28, 2, &out), rows[i].in2 ? TB_OK : TB_PEER_GARBLED);
    }
}

static void a_chunk_frame_of_another_kind_is_refused(void **state)
{
    (void)state;
    const struct tb_chunk_frame good = {{TB_CODEC_RAW, false}, 1, 2, 3, 1000, 1000};
    struct tb_chunk_frame out;
    for (size_t at = 0; at < 8; at++) { /* magic, kind, codec, base, zero */
        uint8_t header[TB_CHUNK_FRAME_HEADER_BYTES];
        struct tb_writer w;
        struct tb_reader r;
        tb_writer_init(&w, header, sizeof header);
        tb_chunk_frame_encode(&good, &w);
        header[at] ^= 0x40;
        tb_reader_init(&r, header, sizeof header);
        CHECK_STATUS(tb_chunk_frame_decode(&r, 2, &out), TB_PEER_GARBLED);
    }
}

static enum tb_status words_check(const struct tb_held_word *words, uint32_t count, uint32_t chunks)
{
    uint8_t bytes[256];
    struct tb_writer w;
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_held_words_encode(words, count, &w);
    const struct tb_span span = {bytes, (uint32_t)w.used};
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(tb_held_words_at(&span, i).index, words[i].index);
        assert_int_equal(tb_held_words_at(&span, i).word, words[i].word);
    }
    return tb_held_words_check(&span, chunks);
}

static void held_words_at_their_limits(void **state)
{
    (void)state;
    CHECK_OK(words_check((struct tb_held_word[]){{0, 1}, {1, UINT64_MAX}}, 2, 128));
    CHECK_OK(words_check((struct tb_held_word[]){{0, 1}, {2, 1}}, 2, 129));
    CHECK_STATUS(words_check((struct tb_held_word[]){{2, 2}}, 1, 129),
                 TB_PEER_GARBLED); /* past the last chunk */
    CHECK_STATUS(words_check((struct tb_held_word[]){{2, 1}}, 1, 128), TB_PEER_GARBLED); /* no such word */
    CHECK_STATUS(words_check((struct tb_held_word[]){{1, 1}, {1, 1}}, 2, 128), TB_PEER_GARBLED);
    CHECK_STATUS(words_check((struct tb_held_word[]){{1, 1}, {0, 1}}, 2, 128), TB_PEER_GARBLED);
    CHECK_STATUS(words_check((struct tb_held_word[]){{0, 1}}, 1, 0), TB_PEER_GARBLED);
    CHECK_STATUS(words_check((struct tb_held_word[]){{UINT32_MAX, 0}}, 1, 128), TB_PEER_GARBLED);
    const struct tb_span empty = {(const uint8_t *)"", 0}, odd = {(const uint8_t *)"0123456789abc", 13};
    CHECK_STATUS(tb_held_words_check(&empty, 128), TB_PEER_GARBLED);
    CHECK_STATUS(tb_held_words_check(&odd, 128), TB_PEER_GARBLED);
}

static void every_type_has_a_name(void **state)
{
    (void)state;
    for (uint16_t type = 1; type <= TB_FRAME_SPENT; type++)
        assert_string_not_equal(tb_frame_name(type), "unknown");
    assert_string_equal(tb_frame_name(TB_FRAME_SEGMENT),
                        "segment"); /* numbers between are given out, not all used */
    assert_string_equal(tb_frame_name(TB_FRAME_STATE),
                        "state"); /* numbers between belong to other messages */
    assert_string_equal(tb_frame_name(TB_FRAME_HOLDUP), "holdup");
    assert_string_equal(tb_frame_name(TB_FRAME_STATEMENT), "statement");
    assert_string_equal(tb_frame_name(TB_FRAME_PAUSED), "paused");
    assert_string_equal(tb_frame_name(0), "unknown");
    assert_string_equal(tb_frame_name(TB_FRAME_TYPE_END), "unknown");
    assert_string_equal(tb_frame_name(UINT16_MAX), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sessions_messages_come_back),
        cmocka_unit_test(hello_says_the_clock),
        cmocka_unit_test(versions_messages_come_back),
        cmocka_unit_test(views_messages_come_back),
        cmocka_unit_test(the_word_of_a_sites_holdings_comes_back),
        cmocka_unit_test(a_holding_of_no_site_is_refused),
        cmocka_unit_test(a_status_crosses_and_nonsense_does_not),
        cmocka_unit_test(chunk_frames_at_their_limits),
        cmocka_unit_test(forms_belong_to_protocols),
        cmocka_unit_test(a_chunk_frame_of_another_kind_is_refused),
        cmocka_unit_test(held_words_at_their_limits),
        cmocka_unit_test(every_type_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
