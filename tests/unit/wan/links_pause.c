/* links_pause.c - an operator of either end pauses a model, or a link: no chunk crosses, the peer
 * hears why, and the crossing goes on where it stopped.
 *
 * Covers: wan/link/traffic/link_pause.c wan/send/feed_parcels.c */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "check.h"
#include "links_pair.h"
#include "wan/link/links_known.h"
#include "wan/link/links_pause.h"
#include "wan/link/links_peers.h"
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

/* ---- many models ---- */

#define MANY 17u /* one more than cross at once over a link */

struct many {
    struct tb_name models[MANY];
    struct truth truths[MANY];
};

static void many_make(struct pair_of_sites *p, struct many *m)
{
    for (uint32_t i = 0; i < MANY; i++) {
        struct truth *t = &m->truths[i];
        char name[16];
        snprintf(name, sizeof name, "policy%02u", i);
        CHECK_OK(tb_name_set(&m->models[i], name));
        truth_make(t, 100 + i, 1, 1 << 20);
        t->key.model = m->models[i];
        t->key.root = tb_version_key_root(&t->key, &t->manifests[0].root);
    }
    p->west->peers[0].models = m->models;
    p->west->peers[0].model_count = MANY;
}

/* Before the truths go: each site has copies of its own. */
static void many_free(struct pair_of_sites *p, struct many *m)
{
    links_world_fini(&p->w);
    for (uint32_t i = 0; i < MANY; i++)
        truth_free(&m->truths[i]);
    links_world_init(&p->w); /* for the teardown */
}

static bool copy_of(struct pair_of_sites *p, const struct truth *t)
{
    const struct copy *c = site_copy(p->west, t);
    return c != NULL && copy_whole(c);
}

/* P6: as many models as cross at once are paused at home, and one more crosses all the same. */
static void paused_models_leave_room_for_another(void **state)
{
    struct pair_of_sites *p = *state;
    static struct many m;
    many_make(p, &m);
    pair_start(p);
    tb_links_pause_models(p->east->links, m.models, MANY - 1);
    for (uint32_t i = 0; i < MANY; i++)
        site_publish(p->east, &m.truths[i]);
    WORLD_UNTIL(&p->w.net, p->west->landed == 1);
    check_equal(site_copy(p->west, &m.truths[MANY - 1]), &m.truths[MANY - 1]);
    assert_int_equal(p->west->failed, 0);
    tb_links_pause_models(p->east->links, NULL, 0);
    WORLD_UNTIL(&p->w.net, p->west->landed == MANY);
    many_free(p, &m);
}

/* P6: the same of landings that had begun. */
static void landings_of_paused_models_give_their_place(void **state)
{
    struct pair_of_sites *p = *state;
    static struct many m;
    const struct tb_links_limit slow = {.bytes_per_s = 200000, .until_bytes = UINT64_MAX};
    const struct tb_links_limit none = {.until_bytes = UINT64_MAX};
    many_make(p, &m);
    pair_start(p);
    tb_links_limit(p->east->links, 0, &slow);
    for (uint32_t i = 0; i < MANY - 1; i++)
        site_publish(p->east, &m.truths[i]);
    WORLD_UNTIL(&p->w.net, tb_links_landings(p->west->links, 0) == MANY - 1);
    tb_links_pause_models(p->east->links, m.models, MANY - 1);
    tb_links_limit(p->east->links, 0, &none);
    site_publish(p->east, &m.truths[MANY - 1]);
    WORLD_UNTIL(&p->w.net, copy_of(p, &m.truths[MANY - 1]) && p->west->failed == 0);
    tb_links_pause_models(p->east->links, NULL, 0);
    WORLD_UNTIL(&p->w.net, p->west->landed == MANY);
    many_free(p, &m);
}

/* P6 P9: a peer of the release before asks for all that it may at once, and knows no such word. It
 * hears of one that another needs its place. */
static void paused_models_leave_room_at_an_older_peer(void **state)
{
    struct pair_of_sites *p = *state;
    static struct many m;
    many_make(p, &m);
    p->west->options.protocol_max = 2;
    p->west->forgiving = true;
    pair_start(p);
    tb_links_pause_models(p->east->links, m.models, MANY - 1);
    for (uint32_t i = 0; i < MANY; i++)
        site_publish(p->east, &m.truths[i]);
    WORLD_UNTIL(&p->w.net, p->west->landed == 1);
    check_equal(site_copy(p->west, &m.truths[MANY - 1]), &m.truths[MANY - 1]);
    assert_int_equal(p->west->failed_why, TB_SITE_NOMEM); /* not now: it asks again later */
    many_free(p, &m);
}

/* P10: a model that is not wanted for a while, and is again within the session. */
static void a_model_that_is_wanted_again_is_still_paused(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 4 << 20);
    pair_start(p);
    tb_links_pause_models(p->east->links, &p->w.model, 1);
    WORLD_UNTIL(&p->w.net, tb_links_paused_there(p->west->links, 0, &p->w.model));
    tb_links_peer_models(p->west->links, 0, NULL, 0);
    tb_links_peer_models(p->west->links, 0, &p->w.model, 1);
    WORLD_UNTIL(&p->w.net, tb_links_paused_there(p->west->links, 0, &p->w.model));
    tb_links_pause_models(p->east->links, NULL, 0);
    WORLD_UNTIL(&p->w.net, !tb_links_paused_there(p->west->links, 0, &p->w.model));
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
    site_publish(p->east, &next);
    (void)stands(p);
    assert_int_equal(p->west->landed, 1);
    assert_int_equal(held_at(p->west, &next), 0); /* east may have sent one before it heard STOP */
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
        PAIR_TEST(paused_models_leave_room_for_another),
        PAIR_TEST(landings_of_paused_models_give_their_place),
        PAIR_TEST(paused_models_leave_room_at_an_older_peer),
        PAIR_TEST(a_model_that_is_wanted_again_is_still_paused),
        PAIR_TEST(nothing_is_pushed_to_a_receiver_that_paused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
