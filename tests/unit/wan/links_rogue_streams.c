/* links_rogue_streams.c - data streams of a peer with a good certificate. Bytes that are no chunk
 * frame, or a chunk of a version that was not wanted, end its session (P7, P8). A chunk that lands
 * is held, and said to be, when its stream is gone.
 *
 * Covers: wan/stream/stream_receive.c wan/link/streams/link_streams.c wan/send/feed_gifts.c */
#include "rogue.h"

#include <string.h>
#include <sys/socket.h>

#include "base/net/chan_bytes.h"
#include "base/net/chan_facts.h"
#include "check.h"
#include "wan/send/inbound.h"

static void chunk_garbage_on_a_stream_ends_the_session(void **state)
{
    (void)state;
    struct rogue r;
    int phase = 0;
    struct tb_chan *chan = NULL;
    rogue_init(&r);
    rogue_greet(&r);
    rogue_bind(&r, &phase, &chan, "this is no chunk frame at all, is it?", 37);
    rogue_dropped(&r, TB_PEER_GARBLED);
    WORLD_UNTIL(&r.w.net, phase == 2 && r.east->downs == 1);
    assert_int_equal(site_stats(r.east, 0).garbled, 1);
    rogue_fini(&r);
}

/* A chunk frame of a crossing that was never begun. */
static void a_chunk_nobody_wanted_ends_the_session(void **state)
{
    (void)state;
    struct rogue r;
    int phase = 0;
    struct tb_chan *chan = NULL;
    uint8_t header[TB_CHUNK_FRAME_HEADER_BYTES];
    struct tb_writer w;
    tb_writer_init(&w, header, sizeof header);
    tb_chunk_frame_encode(&(struct tb_chunk_frame){{TB_CODEC_RAW, false}, 1, 0, 0, 100, 100}, &w);
    rogue_init(&r);
    rogue_greet(&r);
    rogue_bind(&r, &phase, &chan, header, sizeof header);
    rogue_dropped(&r, TB_PEER_GARBLED);
    WORLD_UNTIL(&r.w.net, phase == 2);
    rogue_fini(&r);
}

/* P8: a binding is one use, and only of the live session. */
static void a_binding_is_used_once(void **state)
{
    (void)state;
    struct rogue r;
    int first = 0, second = 0;
    struct tb_chan *chan = NULL, *again = NULL;
    rogue_init(&r);
    rogue_greet(&r);
    rogue_bind(&r, &first, &chan, "", 0);
    assert_int_equal(first, 1);
    rogue_bind(&r, &second, &again, "", 0);
    WORLD_UNTIL(&r.w.net, second == 2);
    assert_int_equal(first, 1);
    assert_int_equal(site_stats(r.east, 0).stream_count, 1);
    r.session.bytes[3] ^= 1;
    rogue_bind(&r, &second, &again, "", 0);
    WORLD_UNTIL(&r.w.net, second == 2);
    tb_chan_close(chan, TB_CANCELLED);
    WORLD_UNTIL(&r.w.net, first == 2);
    rogue_fini(&r);
}

/* P7: a session has so many data streams. One more is no stream, and the others stay. */
static void a_session_has_so_many_streams(void **state)
{
    (void)state;
    static struct rogue r;
    static int phases[TB_LINKS_STREAMS_MAX + 1];
    static struct tb_chan *chans[TB_LINKS_STREAMS_MAX + 1];
    rogue_init(&r);
    rogue_greet(&r);
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX; i++)
        rogue_bind_as(&r, i + 1, &phases[i], &chans[i]);
    assert_int_equal(site_stats(r.east, 0).stream_count, TB_LINKS_STREAMS_MAX);
    rogue_bind_as(&r, TB_LINKS_STREAMS_MAX + 1, &phases[TB_LINKS_STREAMS_MAX], &chans[TB_LINKS_STREAMS_MAX]);
    assert_int_equal(phases[TB_LINKS_STREAMS_MAX], 2);
    assert_int_equal(site_stats(r.east, 0).stream_count, TB_LINKS_STREAMS_MAX);
    assert_true(site_stats(r.east, 0).up);
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX; i++) {
        assert_int_equal(phases[i], 1);
        tb_chan_close(chans[i], TB_CANCELLED);
        WORLD_UNTIL(&r.w.net, phases[i] == 2);
    }
    rogue_fini(&r);
}

/* A version that east lands from the rogue, over one stream. */
struct landing_scene {
    struct rogue r;
    struct truth t;
    int phase;
    struct tb_chan *chan;
};

static void landing_open_with(struct landing_scene *s, uint32_t protocol)
{
    memset(s, 0, sizeof *s);
    rogue_init(&s->r);
    s->r.protocol = protocol;
    truth_make(&s->t, 9, 2, 1 << 10);
    rogue_greet(&s->r);
    ROGUE_SEND(&s->r, TB_FRAME_VERSION, tb_frame_version, .key = s->t.key, .bytes = s->t.total_bytes,
               .state = TB_FRAME_VERSION_READY);
    rogue_manifests(&s->r, &s->t, &s->t.key);
    WORLD_UNTIL(&s->r.w.net, s->r.wanted != 0);
    rogue_bind(&s->r, &s->phase, &s->chan, "", 0);
}

static void landing_open(struct landing_scene *s)
{
    landing_open_with(s, 1);
}

static void landing_close(struct landing_scene *s)
{
    if (s->phase != 2) tb_chan_close(s->chan, TB_CANCELLED);
    WORLD_UNTIL(&s->r.w.net, s->phase == 2);
    rogue_fini(&s->r);
    truth_free(&s->t);
}

/* A difference, where no base was named: that peer makes things up. */
static void a_delta_to_nothing_ends_the_session(void **state)
{
    (void)state;
    struct landing_scene s;
    uint8_t header[TB_CHUNK_FRAME_HEADER_BYTES];
    struct tb_writer w;
    size_t put = 0;
    landing_open_with(&s, 2);
    tb_writer_init(&w, header, sizeof header);
    const uint32_t bytes = s.t.manifests[0].chunks[0].bytes;
    tb_chunk_frame_encode(
        &(struct tb_chunk_frame){{TB_CODEC_SPARSE, true}, s.r.wanted, 0, 0, bytes, bytes / 2}, &w);
    CHECK_OK(tb_chan_write(s.chan, header, sizeof header, &put));
    rogue_dropped(&s.r, TB_PEER_GARBLED);
    WORLD_UNTIL(&s.r.w.net, s.phase == 2);
    landing_close(&s);
}

/* Chunk 0 of shard 0. */
static void send_chunk(struct landing_scene *s)
{
    uint8_t out[4096];
    struct tb_writer w;
    const uint32_t bytes = s->t.manifests[0].chunks[0].bytes;
    tb_writer_init(&w, out, sizeof out);
    tb_chunk_frame_encode(&(struct tb_chunk_frame){{TB_CODEC_RAW, false}, s->r.wanted, 0, 0, bytes, bytes},
                          &w);
    tb_write_bytes(&w, s->t.bytes[0] + s->t.manifests[0].chunks[0].offset, bytes);
    assert_false(w.full);
    for (size_t sent = 0, put = 0; sent < w.used; sent += put) {
        const enum tb_status status = tb_chan_write(s->chan, out + sent, w.used - sent, &put);
        assert_true(status == TB_OK || status == TB_AGAIN);
        if (status == TB_AGAIN) world_turns(&s->r.w.net, 1);
    }
}

/* P9: the words of peers of a shared crossing are no words of protocol 1; in protocol 2 a crossing
 * that nobody shares may hear it, as one that is shared no more does. */
static void have_is_no_word_of_protocol_1(void **state)
{
    (void)state;
    for (uint32_t protocol = 1; protocol <= 2; protocol++) {
        struct landing_scene s;
        static const uint8_t none[TB_HELD_WORD_BYTES];
        landing_open_with(&s, protocol);
        ROGUE_SEND(&s.r, TB_FRAME_HAVE, tb_frame_have, .crossing = s.r.wanted, .shard = 0,
                   .words = {none, sizeof none});
        if (protocol == 1) rogue_dropped(&s.r, TB_PEER_GARBLED);
        if (protocol == 2) send_chunk(&s);
        WORLD_UNTIL(&s.r.w.net, protocol == 1 ? s.phase == 2 : copy_held(site_copy(s.r.east, &s.t)) == 1);
        assert_int_equal(s.r.closed, protocol == 1);
        landing_close(&s);
    }
}

/* P5: a stream brings a chunk and is gone before the main loop turns: that the chunk is held is
 * said before that the stream is gone, so the peer does not send it again. */
static void chunks_of_a_lost_stream_are_told_first(void **state)
{
    (void)state;
    struct landing_scene s;
    landing_open(&s);
    struct rogue *r = &s.r;
    send_chunk(&s);
    assert_int_equal(shutdown(tb_chan_fd(s.chan), SHUT_RDWR), 0);
    const tb_time_ns end = tb_clock_now() + TB_SECONDS(WORLD_WAIT_S);
    while (copy_held(site_copy(r->east, &s.t)) == 0 ||
           site_stats(r->east, 0).streams[0].open) /* the loop stands */
        assert_true(tb_clock_now() < end);
    assert_int_equal(r->held_at, 0);
    WORLD_UNTIL(&r->w.net, r->stream_gone_at != 0);
    assert_true(r->held_at != 0 && r->held_at < r->stream_gone_at);
    WORLD_UNTIL(&r->w.net, s.phase == 2);
    landing_close(&s);
}

/* P4, P6: a chunk that another writer has claimed lands beside the place, and is moved there when
 * that writer gives up. A third copy is dropped, and where too many are dropped to be remembered
 * the peer is told at once. */
static void a_chunk_that_another_writer_claimed_lands_beside_it(void **state)
{
    (void)state;
    struct landing_scene s;
    landing_open(&s);
    struct rogue *r = &s.r;
    struct tb_place *place = &site_copy(r->east, &s.t)->places[0];
    assert_true(tb_place_claim(place, 0));
    for (uint32_t i = 0; i < TB_INBOUND_DROPPED_MAX + 1; i++) /* the first is kept */
        send_chunk(&s);
    WORLD_UNTIL(&r->w.net, site_stats(r->east, 0).chunks_duplicate == TB_INBOUND_DROPPED_MAX);
    world_turns(&r->w.net, 20);
    assert_int_equal(r->lost_said, 0);
    send_chunk(&s);
    WORLD_UNTIL(&r->w.net, r->lost_said == 1);
    assert_int_equal(r->held_at, 0);
    tb_place_unclaim(place, 0);
    WORLD_UNTIL(&r->w.net, r->held_at != 0);
    assert_int_equal(r->lost_said, 1);
    assert_memory_equal(place->bytes, s.t.bytes[0], s.t.manifests[0].chunks[0].bytes);
    landing_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunk_garbage_on_a_stream_ends_the_session),
        cmocka_unit_test(a_chunk_nobody_wanted_ends_the_session),
        cmocka_unit_test(a_delta_to_nothing_ends_the_session),
        cmocka_unit_test(have_is_no_word_of_protocol_1),
        cmocka_unit_test(a_binding_is_used_once),
        cmocka_unit_test(a_session_has_so_many_streams),
        cmocka_unit_test(chunks_of_a_lost_stream_are_told_first),
        cmocka_unit_test(a_chunk_that_another_writer_claimed_lands_beside_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
