/* links_resume.c - a crossing that is cut, slowed, stopped or restarted goes on, and repeats
 * nothing.
 *
 * Covers: wan/link/traffic/link_traffic_turn.c wan/link/traffic/landing_table.c
 * Covers: wan/link/traffic/crossing_table.c wan/send/feed_gifts.c */
#include <string.h>

#include "check.h"
#include "links_pair.h"
#include "wan/link/links_stats.h"

/* P5: streams are cut again and again; what was acknowledged is not sent again, and it arrives
 * whole. */
static void lost_streams_repeat_nothing_that_arrived(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 96 << 20);
    pair_publish(p);
    int cut = 0;
    for (uint32_t at = 8; at < 72; at += 8) {
        WORLD_UNTIL(&p->w.net, held_at(p->west, &p->t) >= at);
        cut += cut_streams(at % 16 == 0 ? p->east : p->west, 0, 2);
    }
    pair_landed(p);
    const struct tb_links_stats west = site_stats(p->west, 0);
    assert_true(cut > 0);
    assert_int_equal(p->west->downs, 0);
    assert_true(west.streams_lost > 0);
    assert_int_equal(west.chunks_duplicate, 0);
    assert_int_equal(west.chunks_received, p->t.chunks);
}

/* P6: on a slow path the kernel takes no byte from a stream for longer than a stream may stand
 * still, while the peer acknowledges what waits. The stream is not lost: else each is, in the
 * middle of its chunk, and no chunk ever crosses. */
static void a_stream_that_is_acknowledged_is_not_idle(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 3 << 20);
    p->east->options.streams = p->west->options.streams = 1;
    p->east->options.stream_idle_ms = 1000;
    pair_up(p);
    WORLD_UNTIL(&p->w.net,
                pace_stream(p->east, 0, 0, 300000)); /* 512 KiB, half of what may wait, take 1.7 s */
    site_publish(p->east, &p->t);
    WORLD_UNTIL(&p->w.net, p->west->landed == 1);
    assert_int_equal(site_stats(p->east, 0).streams_lost, 0);
    assert_int_equal(site_stats(p->west, 0).streams_lost, 0);
    check_equal(site_copy(p->west, &p->t), &p->t);
}

/* P4, P6: one of four streams may send 64 kB/s in the middle of a version. Its chunks go again by
 * the others, and land once. The version waits for none: when it is whole, bytes of that stream
 * are still under way. */
static void a_slow_stream_is_not_waited_for(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 96 << 20);
    p->east->options.hedge_permille = 60;
    pair_publish(p);
    WORLD_UNTIL(&p->w.net, held_at(p->west, &p->t) >= 4);
    assert_true(pace_stream(p->east, 0, 1, 64000));
    pair_landed(p);
    const struct tb_links_stats east = site_stats(p->east, 0), west = site_stats(p->west, 0);
    assert_true(east.bytes_hedged > 0);
    assert_true(east.bytes_hedged * 1000 <= p->t.total_bytes * 60);
    assert_true(west.bytes_received < east.bytes_sent);
    assert_int_equal(west.chunks_bad, 0);
    assert_int_equal(p->west->downs, 0);
    /* The slow one is let go: what it brings now is dropped, and it carries the next version. */
    assert_true(pace_stream(p->east, 0, 1, UINT64_MAX));
}

/* P5: everything is cut; the session comes back and goes on where the peer's held bits
 * say. Counted in bytes. */
static void a_cut_of_everything_resumes(void **state)
{
    struct pair_of_sites *p = pair_of(state, 2, 48 << 20);
    pair_publish(p);
    WORLD_UNTIL(&p->w.net, held_at(p->west, &p->t) >= 20);
    assert_true(cut_all(&p->w, p->east->port) > 2);
    WORLD_UNTIL(&p->w.net, p->west->downs == 1);
    WORLD_UNTIL(&p->w.net, held_at(p->west, &p->t) >= 50);
    assert_true(cut_all(&p->w, p->east->port) > 2);
    pair_landed(p);
    const struct tb_links_stats west = site_stats(p->west, 0);
    assert_int_equal(west.sessions, 3);
    assert_int_equal(west.chunks_duplicate, 0);
    assert_int_equal(west.chunks_received, p->t.chunks);
    /* Only chunks that were half here at a cut came twice: at most one a stream and cut. */
    assert_true(west.bytes_received <= p->t.total_bytes + p->t.chunks * 28 + 2 * 4 * ((uint64_t)2 << 20));
}

/* P3, P5: the sending gateway is closed and started again in the middle; the receiver's
 * landing goes on by itself. */
static void a_sender_that_restarts_goes_on(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 64 << 20);
    struct copy *c = pair_publish(p);
    WORLD_UNTIL(&p->w.net, held_at(p->west, &p->t) >= 10);
    site_close(p->east);
    WORLD_UNTIL(&p->w.net, p->west->downs == 1);
    const uint32_t held = held_at(p->west, &p->t);
    p->east->options.incarnation = 2;
    site_start(p->east);
    CHECK_OK(tb_links_offer(p->east->links, &c->key, c->places));
    pair_landed(p);
    assert_true(site_stats(p->east, 0).chunks_sent <= p->t.chunks - held);
    assert_int_equal(site_stats(p->west, 0).chunks_received, p->t.chunks);
    assert_int_equal(site_stats(p->west, 0).chunks_duplicate, 0);
}

static void note_done(void *user)
{
    ++*(int *)user;
}

/* The owner gets its memory back in the middle of a crossing, at both ends; the peer hears of
 * it. */
static void places_are_given_back_in_mid_crossing(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 96 << 20);
    struct copy *c = pair_publish(p);
    WORLD_UNTIL(&p->w.net, held_at(p->west, &p->t) >= 10);
    int done = 0;
    CHECK_OK(tb_links_retract(p->east->links, &p->t.key.uid, TB_SUPERSEDED, note_done, &done));
    WORLD_UNTIL(&p->w.net, done == 1);
    memset(c->places[0].bytes, 0xee,
           p->t.manifests[0].bytes); /* ours again: nobody reads it (sanitizers watch) */
    copy_free(c);
    WORLD_UNTIL(&p->w.net, p->west->gone == 1 && p->west->failed == 1);
    CHECK_STATUS(p->west->gone_why, TB_SUPERSEDED);
    CHECK_STATUS(tb_links_retract(p->east->links, &p->t.key.uid, TB_SUPERSEDED, note_done, &done),
                 TB_NOT_FOUND);
    CHECK_OK(tb_links_land_stop(p->west->links, &p->t.key.uid, note_done, &done));
    CHECK_OK(tb_links_retract(p->west->links, &p->t.key.uid, TB_SUPERSEDED, note_done, &done));
    WORLD_UNTIL(&p->w.net, done == 3);
    assert_int_equal(site_stats(p->west, 0).chunks_bad, 0);
    copy_free(site_copy(p->west, &p->t));
    /* The link lives on. */
    struct truth t;
    truth_make(&t, 43, 1, 8 << 20);
    site_publish(p->east, &t);
    WORLD_UNTIL(&p->w.net, p->west->landed == 1);
    check_equal(site_copy(p->west, &t), &t);
    truth_free(&t);
}

/* The receiver stops a landing in the middle: its places are its own at once, and
 * another landing may begin. */
static void a_landing_is_stopped_and_begun_again(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 96 << 20);
    pair_publish(p);
    WORLD_UNTIL(&p->w.net, held_at(p->west, &p->t) >= 10);
    int done = 0;
    struct copy *c = site_copy(p->west, &p->t);
    CHECK_OK(tb_links_land_stop(p->west->links, &p->t.key.uid, note_done, &done));
    WORLD_UNTIL(&p->w.net, done == 1);
    const uint32_t held = copy_held(c);
    for (uint32_t w = 0; w < TB_BITMAP_WORDS(p->t.chunks); w++)
        assert_int_equal(c->places[0].claimed[w], 0);
    world_turns(&p->w.net, 20);
    assert_int_equal(copy_held(c), held);
    CHECK_OK(tb_links_land(p->west->links, 0, &c->key, c->places));
    WORLD_UNTIL(&p->w.net, p->west->landed == 1 && p->east->peer_held == 1);
    check_equal(c, &p->t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(lost_streams_repeat_nothing_that_arrived),
        PAIR_TEST(a_stream_that_is_acknowledged_is_not_idle),
        PAIR_TEST(a_slow_stream_is_not_waited_for),
        PAIR_TEST(a_cut_of_everything_resumes),
        PAIR_TEST(a_sender_that_restarts_goes_on),
        PAIR_TEST(places_are_given_back_in_mid_crossing),
        PAIR_TEST(a_landing_is_stopped_and_begun_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
