/* links_rogue_push.c - versions that a peer sends unasked: pushes out of order end its session
 * (P7, P9), honest ones that came too late do not.
 *
 * Covers: wan/link/traffic/link_push.c wan/link/traffic/link_manifest.c */
#include "rogue.h"

#include "check.h"

static void say_expect(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_EXPECT, tb_frame_expect, .crossing = 1, .model = rogue_name("policy"),
               .base = r->t.key.uid);
}

static void say_expect_backwards(struct rogue *r)
{
    rogue_want(r, 1);
    say_expect(r);
}

static void say_push(struct rogue *r, uint8_t number)
{
    struct tb_id uid = r->t.key.uid;
    uid.bytes[0] ^= number;
    ROGUE_SEND(r, TB_FRAME_PUSH, tb_frame_push, .crossing = r->expected != 0 ? r->expected : 1, .uid = uid);
}

static void say_push_unexpected(struct rogue *r)
{
    say_push(r, 1);
}

static void say_push_behind_version(struct rogue *r)
{
    rogue_expected(r);
    say_push(r, 0);
}

static void say_push_twice(struct rogue *r)
{
    rogue_expected(r);
    say_push(r, 1);
    say_push(r, 1);
}

/* A number serves once: else manifests of as many versions as it likes were kept. */
static void say_push_of_a_used_number(struct rogue *r)
{
    rogue_expected(r);
    say_push(r, 1);
    say_push(r, 2);
}

/* P9, P7: a version that is sent unasked is bounded, and no word of protocol 1. */
static void pushes_have_an_order(void **state)
{
    (void)state;
    rogue_in_session(1, say_expect);
    rogue_in_session(1, say_push_unexpected);
    rogue_in_session(2, say_expect_backwards);
    rogue_in_session(2, say_push_unexpected);
    rogue_in_session(2, say_push_behind_version);
    rogue_in_session(2, say_push_twice);
    rogue_in_session(2, say_push_of_a_used_number);
}

static void say_head(struct rogue *r, const struct truth *t, const struct tb_span *head, uint32_t from,
                     uint32_t count)
{
    ROGUE_SEND(r, TB_FRAME_HEAD, tb_frame_head, .uid = t->key.uid, .total_bytes = head->count, .offset = from,
               .page = {head->bytes + from, count});
}

/* An honest one: its PUSH is declined before its VERSION comes, and its manifests are under way
 * when they are asked for. Pages of the declined answer are passed over; the answer that was asked
 * for follows. */
static void manifests_of_a_declined_push_are_passed_over(void **state)
{
    (void)state;
    struct rogue r;
    struct truth next;
    static uint8_t bytes[2048];
    struct tb_writer w;
    rogue_init(&r);
    r.protocol = 2;
    rogue_greet(&r);
    rogue_expected(&r);
    truth_step(&next, &r.t);
    const struct tb_manifest *m = &next.manifests[0];
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_manifest_head_encode(m, &w);
    assert_false(w.full);
    const struct tb_span head = {bytes, (uint32_t)w.used};
    r.east->no_land = true;
    ROGUE_SEND(&r, TB_FRAME_PUSH, tb_frame_push, .crossing = r.expected, .uid = next.key.uid);
    WORLD_UNTIL(&r.w.net, r.stopped == r.expected);
    ROGUE_SEND(&r, TB_FRAME_VERSION, tb_frame_version, .key = next.key, .state = TB_FRAME_VERSION_READY);
    say_head(&r, &next, &head, 0, 100);
    rogue_report(&r, TB_LINKS_REPORT_ACTIVATED);
    WORLD_UNTIL(&r.w.net, r.east->reports == 1);
    CHECK_OK(tb_links_ask(r.east->links, 0, &next.key.uid));
    WORLD_UNTIL(&r.w.net, r.asked == 1);
    for (int answer = 0; answer < 2; answer++) {
        if (answer == 1) say_head(&r, &next, &head, 0, 100);
        say_head(&r, &next, &head, 100, head.count - 100);
        ROGUE_SEND(&r, TB_FRAME_DIGESTS, tb_frame_digests, .uid = next.key.uid,
                   .page = {m->digests[0].bytes, m->chunk_count * TB_DIGEST_BYTES});
    }
    WORLD_UNTIL(&r.w.net, r.east->manifests == 1);
    assert_int_equal(site_stats(r.east, 0).garbled, 0);
    assert_false(r.closed);
    rogue_fini(&r);
    truth_free(&next);
}

/* P6: a chunk waits for the PUSH of its number, which is over before it comes: the stream reads
 * on. */
static void a_chunk_that_waits_for_a_push_that_is_over_is_dropped(void **state)
{
    (void)state;
    struct rogue r;
    struct truth next;
    int phase = 0;
    struct tb_chan *chan = NULL;
    uint8_t frame[TB_CHUNK_FRAME_HEADER_BYTES + 100] = {0};
    struct tb_writer w;
    rogue_init(&r);
    r.protocol = 2;
    rogue_greet(&r);
    rogue_expected(&r);
    truth_step(&next, &r.t);
    const uint32_t first = r.expected;
    tb_writer_init(&w, frame, sizeof frame);
    tb_chunk_frame_encode(&(struct tb_chunk_frame){{TB_CODEC_RAW, false}, first, 0, 0, 100, 100}, &w);
    rogue_bind(&r, &phase, &chan, frame, sizeof frame);
    WORLD_UNTIL(&r.w.net, site_stats(r.east, 0).bytes_received >= TB_CHUNK_FRAME_HEADER_BYTES);
    assert_int_equal(site_stats(r.east, 0).chunks_received, 0);
    site_publish(r.east, &next);
    ROGUE_SEND(&r, TB_FRAME_VERSION, tb_frame_version, .key = next.key, .state = TB_FRAME_VERSION_READY);
    WORLD_UNTIL(&r.w.net, r.expected != first); /* in the first one's place */
    WORLD_UNTIL(&r.w.net, site_stats(r.east, 0).chunks_received == 1);
    tb_chan_close(chan, TB_CANCELLED);
    WORLD_UNTIL(&r.w.net, phase == 2);
    rogue_fini(&r);
    truth_free(&next);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pushes_have_an_order),
        cmocka_unit_test(manifests_of_a_declined_push_are_passed_over),
        cmocka_unit_test(a_chunk_that_waits_for_a_push_that_is_over_is_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
