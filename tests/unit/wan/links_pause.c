/* links_pause.c - an operator of either end pauses a model, or a link: no chunk crosses, the peer
 * hears why, and the crossing goes on where it stopped.
 *
 * Covers: wan/link/traffic/link_pause.c wan/send/feed_parcels.c */
#include <string.h>

#include "base/clock.h"
#include "check.h"
#include "links_pair.h"
#include "wan/link/links_pause.h"
#include "wan/link/links_stats.h"

#define IN_HAND 8u         /* chunks that streams had in hand as a receiver ended the crossing */
#define WHILE   TB_MS(300) /* all of it crosses in less, where nothing holds it */

/* So long nothing that is held there grows; what streams had in hand may come before. */
static uint32_t stands(struct pair_of_sites *p)
{
    uint32_t held = held_at(p->west, &p->t);
    for (tb_time_ns since = tb_clock_now(); tb_time_since(since, tb_clock_now()) < WHILE;) {
        const tb_time_ns turn = tb_clock_now();
        WORLD_UNTIL(&p->w.net, tb_time_since(turn, tb_clock_now()) > TB_MS(10));
        const uint32_t now = held_at(p->west, &p->t);
        if (now != held) since = tb_clock_now();
        held = now;
    }
    return held;
}

/* P5: the sender's operator. West hears of it, and draws the rest once it is over. */
static void a_model_that_is_paused_at_home_stops(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 96 << 20);
    pair_publish(p);
    WORLD_UNTIL(&p->w.net, held_at(p->west, &p->t) >= 4);
    tb_links_pause_models(p->east->links, &p->w.model, 1);
    WORLD_UNTIL(&p->w.net, tb_links_paused_there(p->west->links, 0, &p->w.model));
    assert_false(tb_links_paused_there(p->west->links, 0, NULL)); /* the link is not */
    assert_false(tb_links_paused_there(p->east->links, 0, &p->w.model));
    assert_true(stands(p) < p->t.chunks);
    assert_int_equal(site_stats(p->east, 0).queued_parcels, 0);
    tb_links_pause_models(p->east->links, NULL, 0);
    pair_landed(p);
    assert_false(tb_links_paused_there(p->west->links, 0, &p->w.model));
    assert_int_equal(site_stats(p->west, 0).chunks_duplicate, 0);
    assert_int_equal(site_stats(p->west, 0).chunks_received, p->t.chunks);
}

/* P5: the receiver's operator, of a peer that knows no such word. */
static void a_receiver_pauses_and_goes_on(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 96 << 20);
    p->east->options.protocol_max = 2;
    pair_publish(p);
    WORLD_UNTIL(&p->w.net, held_at(p->west, &p->t) >= 4);
    tb_links_pause_models(p->west->links, &p->w.model, 1);
    const uint32_t held = stands(p);
    assert_true(held < p->t.chunks);
    const uint64_t sent = site_stats(p->east, 0).chunks_sent;
    tb_links_pause_models(p->west->links, NULL, 0);
    pair_landed(p);
    assert_true(site_stats(p->east, 0).chunks_sent <= sent + p->t.chunks - held + IN_HAND);
    assert_true(site_stats(p->west, 0).chunks_duplicate <= IN_HAND);
}

/* P5: the same of the link, and of all models on it. */
static void a_receiver_pauses_its_link(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 96 << 20);
    pair_publish(p);
    WORLD_UNTIL(&p->w.net, held_at(p->west, &p->t) >= 4);
    tb_links_pause_peer(p->west->links, 0, true);
    assert_true(stands(p) < p->t.chunks);
    WORLD_UNTIL(&p->w.net, tb_links_paused_there(p->east->links, 0, NULL));
    tb_links_pause_peer(p->west->links, 0, false);
    pair_landed(p);
    assert_true(site_stats(p->west, 0).chunks_duplicate <= IN_HAND);
}

/* P9: the sender's operator pauses the link to a peer of the release before: nothing goes. */
static void an_older_peer_stops_too(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 96 << 20);
    p->west->options.protocol_max = 2;
    pair_publish(p);
    WORLD_UNTIL(&p->w.net, held_at(p->west, &p->t) >= 4);
    tb_links_pause_peer(p->east->links, 0, true);
    assert_true(stands(p) < p->t.chunks);
    assert_false(tb_links_paused_there(p->west->links, 0, NULL));
    tb_links_pause_peer(p->east->links, 0, false);
    pair_landed(p);
    assert_int_equal(p->west->downs, 0);
}

/* A link that is paused before its session begins: the peer hears it, again in each session. */
static void a_session_begins_with_what_is_paused(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 4 << 20);
    pair_start(p);
    tb_links_pause_peer(p->east->links, 0, true);
    tb_links_pause_models(p->east->links, &p->w.model, 1);
    site_publish(p->east, &p->t);
    for (int session = 1; session <= 2; session++) {
        WORLD_UNTIL(&p->w.net, tb_links_paused_there(p->west->links, 0, NULL));
        if (session == 1) assert_true(cut_all(&p->w, p->east->port) > 0);
        if (session == 1) WORLD_UNTIL(&p->w.net, p->west->downs == 1);
    }
    tb_links_pause_peer(p->east->links, 0, false);
    WORLD_UNTIL(&p->w.net, !tb_links_paused_there(p->west->links, 0, NULL));
    WORLD_UNTIL(&p->w.net, tb_links_paused_there(p->west->links, 0, &p->w.model));
    assert_int_equal(stands(p), 0);
    tb_links_pause_models(p->east->links, NULL, 0);
    pair_landed(p);
}

/* P6: another model crosses meanwhile: a pause takes no stream and no turn. */
static void the_pause_of_another_model_holds_nothing(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 8 << 20);
    struct tb_name other;
    CHECK_OK(tb_name_set(&other, "another"));
    pair_start(p);
    tb_links_pause_models(p->east->links, &other, 1);
    tb_links_pause_models(p->west->links, &other, 1);
    site_publish(p->east, &p->t);
    pair_landed(p);
    assert_false(tb_links_paused_there(p->west->links, 0, &other)); /* P8: it may not read it */
}

/* P5: a version that is expected unasked does not come either. */
static void nothing_is_pushed_to_a_receiver_that_paused(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 8 << 20);
    static struct truth next;
    p->west->expects = true;
    pair_publish(p);
    pair_landed(p);
    WORLD_UNTIL(&p->w.net, site_stats(p->east, 0).expected == 1);
    truth_step(&next, &p->t);
    tb_links_pause_models(p->west->links, &p->w.model, 1);
    const uint64_t came = site_stats(p->west, 0).chunks_received;
    site_publish(p->east, &next);
    (void)stands(p);
    assert_int_equal(p->west->landed, 1);
    assert_int_equal(site_stats(p->west, 0).chunks_received, came);
    tb_links_pause_models(p->west->links, NULL, 0);
    WORLD_UNTIL(&p->w.net, p->west->landed == 2);
    check_equal(site_copy(p->west, &next), &next);
    links_world_fini(&p->w);
    truth_free(&next);
    links_world_init(&p->w); /* for the teardown */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(a_model_that_is_paused_at_home_stops),
        PAIR_TEST(a_receiver_pauses_and_goes_on),
        PAIR_TEST(a_receiver_pauses_its_link),
        PAIR_TEST(an_older_peer_stops_too),
        PAIR_TEST(a_session_begins_with_what_is_paused),
        PAIR_TEST(the_pause_of_another_model_holds_nothing),
        PAIR_TEST(nothing_is_pushed_to_a_receiver_that_paused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
