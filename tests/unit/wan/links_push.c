/* links_push.c - a version that is expected crosses before it is asked for; where it is not taken,
 * it is asked for as ever.
 *
 * Covers: wan/link/traffic/link_push.c wan/link/traffic/link_expected.c
 * Covers: wan/link/traffic/push_table.c */
#include "links_world.h"

#include <string.h>

#include "base/layout/version_key.h"
#include "check.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_messages.h"
#include "wan/link/links_stats.h"
#include "wan/link/traffic/ask_table.h"

#define NEVER_MS 3600000u

/* East publishes v1, v2, v3; west has v1 when a test begins, and as a rule expects the next. */
struct steps {
    struct links_world w;
    struct truth v1, v2, v3;
    struct site *east, *west;
};

static void steps_make(struct steps *s, uint64_t bytes)
{
    links_world_init(&s->w);
    truth_make(&s->v1, 42, 2, bytes / 2);
    truth_step(&s->v2, &s->v1);
    truth_step(&s->v3, &s->v2);
    s->east = site_new(&s->w, "east", true);
    s->west = site_new(&s->w, "west", false);
    s->east->options.codec = TB_CHOICE_SPARSE;
    s->west->expects = true;
    s->west->options.push_ms = s->west->options.push_most_ms = NEVER_MS;
    site_peer(s->east, s->west, false, false);
    site_peer(s->west, s->east, true, true);
}

static void steps_begin(struct steps *s)
{
    site_start(s->east);
    site_start(s->west);
    site_publish(s->east, &s->v1);
    WORLD_UNTIL(&s->w.net, s->west->landed == 1 && s->east->peer_held == 1);
    if (s->west->expects) WORLD_UNTIL(&s->w.net, site_stats(s->east, 0).expected == 1);
}

static void steps_free(struct steps *s)
{
    links_world_fini(&s->w);
    truth_free(&s->v1);
    truth_free(&s->v2);
    truth_free(&s->v3);
}

static uint32_t changed(const struct truth *t, const struct truth *from)
{
    uint32_t count = 0;
    for (uint32_t s = 0; s < t->key.shard_count; s++)
        for (uint32_t k = 0; k < t->manifests[s].chunk_count; k++)
            count += !tb_digest_equal(&t->manifests[s].digests[k], &from->manifests[s].digests[k]);
    return count;
}

/* One use each: with v2 whole the next is expected. Each chunk that changed goes
 * once, as a delta. */
static void deltas_that_are_expected_come_unasked(void **state)
{
    (void)state;
    struct steps s;
    steps_make(&s, 12 << 20);
    steps_begin(&s);
    const struct tb_links_stats before = site_stats(s.east, 0);
    site_publish(s.east, &s.v2);
    assert_int_equal(site_stats(s.east, 0).expected, 0);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    WORLD_UNTIL(&s.w.net, site_stats(s.east, 0).expected == 1);
    site_publish(s.east, &s.v3);
    WORLD_UNTIL(&s.w.net, s.west->landed == 3 && s.east->peer_held == 3);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    check_equal(site_copy(s.west, &s.v3), &s.v3);
    SITE_SENT(&s.w, s.east, before.chunks_sent + changed(&s.v2, &s.v1) + changed(&s.v3, &s.v2));
    const struct tb_links_stats east = site_stats(s.east, 0), west = site_stats(s.west, 0);
    assert_int_equal(east.pushed, 2);
    assert_int_equal(west.pushed, 2);
    assert_int_equal(west.pushes_declined, 0);
    assert_int_equal(east.delta_chunks - before.delta_chunks, east.chunks_sent - before.chunks_sent);
    assert_int_equal(west.chunks_duplicate, 0);
    assert_int_equal(west.chunks_bad, 0);
    assert_int_equal(s.west->failed, 0);
    steps_free(&s);
}

/* P9, and the twin: nobody pushes to a peer that did not say that it expects it, or speaks
 * the protocol before. */
static void a_peer_that_expects_nothing_is_pushed_nothing(void **state)
{
    (void)state;
    for (int who = 0; who < 2; who++) {
        struct steps s;
        steps_make(&s, 4 << 20);
        s.west->expects = false;
        if (who == 1) s.east->options.protocol_max = 1;
        steps_begin(&s);
        s.west->expects = who == 1;
        site_publish(s.east, &s.v2);
        WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
        check_equal(site_copy(s.west, &s.v2), &s.v2);
        assert_int_equal(site_stats(s.east, 0).pushed, 0);
        assert_int_equal(site_stats(s.west, 0).pushed, 0);
        steps_free(&s);
    }
}

/* P5, P7: chunks are there before it is decided whether they land: their streams wait, nothing is
 * kept for them, and nothing is sent a second time once they do. */
static void chunks_wait_until_it_is_decided(void **state)
{
    (void)state;
    struct steps s;
    steps_make(&s, 12 << 20);
    steps_begin(&s);
    const struct tb_links_stats before = site_stats(s.east, 0);
    s.west->no_land = true;
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, s.west->versions == 2 && site_stats(s.east, 0).chunks_sent > before.chunks_sent);
    CHECK_OK(tb_links_ask(s.west->links, 0, &s.v2.key.uid));
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    assert_int_equal(site_stats(s.west, 0).pushed, 1);
    SITE_SENT(&s.w, s.east, before.chunks_sent + changed(&s.v2, &s.v1));
    assert_int_equal(site_stats(s.west, 0).chunks_duplicate, 0);
    steps_free(&s);
}

/* East has read all that west said so far. */
static void fence(struct steps *s)
{
    const int before = s->east->reports;
    const struct tb_links_report report = {
        .uid = s->v1.key.uid, .site = s->west->options.site, .state = TB_LINKS_REPORT_ACTIVATED};
    CHECK_OK(tb_links_tell(s->west->links, 0, &report));
    WORLD_UNTIL(&s->w.net, s->east->reports == before + 1);
}

static void check_not_taken(uint32_t push_ms, uint32_t most_ms, bool rests)
{
    struct steps s;
    steps_make(&s, 12 << 20);
    s.west->options.push_ms = push_ms;
    s.west->options.push_most_ms = most_ms;
    s.west->options.push_rest_ms = rests ? NEVER_MS : 1;
    steps_begin(&s);
    s.west->no_land = true;
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, s.west->versions == 2 && site_stats(s.west, 0).pushes_declined == 1);
    WORLD_UNTIL(&s.w.net, site_stats(s.east, 0).crossings == 0);
    const struct tb_links_stats east = site_stats(s.east, 0);
    assert_int_equal(east.pushed, 1);
    CHECK_OK(tb_links_ask(s.west->links, 0, &s.v2.key.uid));
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    assert_int_equal(site_stats(s.west, 0).pushed, 0);
    assert_int_equal(site_stats(s.west, 0).sessions, 1);
    assert_int_equal(site_stats(s.west, 0).streams_lost, 0);
    fence(&s); /* EXPECT is behind WHOLE, which follows the landing */
    if (rests)
        assert_int_equal(site_stats(s.east, 0).expected, 0);
    else
        WORLD_UNTIL(&s.w.net, site_stats(s.east, 0).expected == 1);
    steps_free(&s);
}

/* P6, P10: a peer that does not take it in time says so; its streams go on, and it crosses when it
 * is asked for. The next one of the model is not expected before a rest: all streams would
 * stand still for it again. */
static void a_push_that_is_not_taken_is_asked_for_later(void **state)
{
    (void)state;
    check_not_taken(50, NEVER_MS, false);
    check_not_taken(50, NEVER_MS, true);
    check_not_taken(NEVER_MS, 50, true);
}

/* P6: while its manifests come it is not late. */
static void manifests_on_their_way_are_waited_for(void **state)
{
    (void)state;
    struct steps s;
    steps_make(&s, 12 << 20);
    steps_begin(&s);
    s.west->no_land = true;
    site_publish(s.east, &s.v2);
    const struct tb_link *l = &s.west->links->links[0];
    WORLD_UNTIL(&s.w.net, l->traffic.asks != NULL && l->traffic.asks->complete);
    assert_non_null(l->traffic.pushes.pushed);
    assert_true(l->traffic.pushes.pushed->came > l->traffic.pushes.pushed->began);
    steps_free(&s);
}

/* P6: streams would wait longer for them than is saved. */
static void a_version_of_long_manifests_is_asked_for(void **state)
{
    (void)state;
    struct steps s;
    steps_make(&s, 12 << 20);
    s.east->options.push_manifest_bytes = 100;
    steps_begin(&s);
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    assert_int_equal(site_stats(s.east, 0).pushed, 0);
    steps_free(&s);
}

static void of_another_model(struct truth *t, const struct tb_name *model)
{
    struct tb_digest roots[SHARDS_MAX];
    for (uint32_t s = 0; s < t->key.shard_count; s++)
        roots[s] = t->manifests[s].root;
    t->key.model = *model;
    t->key.root = tb_version_key_root(&t->key, roots);
}

/* As west keeps them. */
static uint64_t manifest_memory(const struct truth *t)
{
    static uint8_t head[1 << 16];
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < t->key.shard_count; s++) {
        struct tb_writer w;
        tb_writer_init(&w, head, sizeof head);
        tb_manifest_head_encode(&t->manifests[s], &w);
        assert_false(w.full);
        bytes += tb_manifest_decode_bytes(head, w.used) + sizeof(struct tb_manifest) + sizeof(void *);
    }
    return bytes;
}

/* P7: all manifests that nobody asked for have the room of one version. A version that finds none
 * is declined, and crosses when it is asked for. */
static void manifests_nobody_asked_for_share_one_room(void **state)
{
    (void)state;
    struct steps s;
    struct truth o1, o2;
    struct tb_name models[2];
    steps_make(&s, 12 << 20);
    models[0] = s.w.model;
    CHECK_OK(tb_name_set(&models[1], "policy2"));
    truth_make(&o1, 50, 2, 6 << 20);
    of_another_model(&o1, &models[1]);
    truth_step(&o2, &o1);
    of_another_model(&o2, &models[1]);
    s.west->peers[0].models = models;
    s.west->peers[0].model_count = 2;
    s.west->options.manifest_bytes_max = manifest_memory(&s.v2) * 7 / 4;
    site_start(s.east);
    site_start(s.west);
    site_publish(s.east, &s.v1);
    site_publish(s.east, &o1);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && site_stats(s.east, 0).expected == 2);
    s.west->no_land = true;
    site_publish(s.east, &s.v2);
    const struct tb_link *l = &s.west->links->links[0];
    WORLD_UNTIL(&s.w.net, l->traffic.asks != NULL && l->traffic.asks->complete);
    site_publish(s.east, &o2);
    WORLD_UNTIL(&s.w.net, site_stats(s.west, 0).pushes_declined == 1);
    assert_int_equal(site_stats(s.east, 0).pushed, 2);
    assert_true(tb_id_equal(&l->traffic.asks->uid, &s.v2.key.uid));
    assert_null(l->traffic.asks->next); /* nothing of it is kept */
    WORLD_UNTIL(&s.w.net, s.west->versions == 4);
    CHECK_OK(tb_links_ask(s.west->links, 0, &s.v2.key.uid)); /* its chunks have every stream wait */
    CHECK_OK(tb_links_ask(s.west->links, 0, &o2.key.uid));
    WORLD_UNTIL(&s.w.net, s.west->landed == 4);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    check_equal(site_copy(s.west, &o2), &o2);
    assert_int_equal(s.west->failed, 0);
    assert_int_equal(site_stats(s.west, 0).sessions, 1);
    steps_free(&s);
    truth_free(&o1);
    truth_free(&o2);
}

/* P1: the base that was named has gone: nothing is decoded on another, or on none. */
static void a_base_that_went_is_no_base_of_a_push(void **state)
{
    (void)state;
    struct steps s;
    steps_make(&s, 12 << 20);
    steps_begin(&s);
    CHECK_OK(tb_links_retract(s.west->links, &s.v1.key.uid, TB_SUPERSEDED, NULL, NULL));
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    assert_int_equal(site_stats(s.east, 0).pushed, 1);
    assert_int_equal(site_stats(s.west, 0).pushed, 0);
    assert_int_equal(site_stats(s.west, 0).pushes_declined, 1);
    assert_int_equal(site_stats(s.west, 0).chunks_bad, 0);
    steps_free(&s);
}

/* P7: nor does home send it whole to a peer that did not say yet that it takes it. */
static void a_base_that_went_at_home_is_waited_for(void **state)
{
    (void)state;
    struct steps s;
    steps_make(&s, 12 << 20);
    steps_begin(&s);
    const uint64_t before = site_stats(s.east, 0).chunks_sent;
    s.west->no_land = true;
    site_publish(s.east, &s.v2);
    CHECK_OK(tb_links_retract(s.east->links, &s.v1.key.uid, TB_SUPERSEDED, NULL, NULL));
    const struct tb_link *l = &s.west->links->links[0];
    WORLD_UNTIL(&s.w.net, l->traffic.asks != NULL && l->traffic.asks->complete && s.west->gone == 1);
    fence(&s);
    assert_int_equal(site_stats(s.east, 0).pushed, 1);
    assert_int_equal(site_stats(s.east, 0).chunks_sent, before);
    CHECK_OK(tb_links_ask(s.west->links, 0, &s.v2.key.uid));
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    steps_free(&s);
}

/* The version that was expected is the next one: two at a time are asked for, but for the first. */
static void a_second_one_is_not_pushed(void **state)
{
    (void)state;
    struct steps s;
    steps_make(&s, 12 << 20);
    steps_begin(&s);
    site_publish(s.east, &s.v2);
    site_publish(s.east, &s.v3);
    WORLD_UNTIL(&s.w.net, s.west->landed == 3 && s.east->peer_held == 3);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    check_equal(site_copy(s.west, &s.v3), &s.v3);
    assert_int_equal(site_stats(s.east, 0).pushed, 1);
    steps_free(&s);
}

/* The peer has heard of another one, and is about to ask for it: what follows that is
 * not what it expects. */
static void a_version_that_follows_another_is_not_pushed(void **state)
{
    (void)state;
    struct steps s;
    struct truth other;
    steps_make(&s, 12 << 20);
    truth_make(&other, 50, 1, 4 << 20); /* newer, and of another layout: no step */
    steps_begin(&s);
    site_publish(s.east, &other);
    site_publish(s.east, &s.v2);
    assert_int_equal(site_stats(s.east, 0).pushed, 0);
    WORLD_UNTIL(&s.w.net, s.west->landed == 3 && s.east->peer_held == 3);
    check_equal(site_copy(s.west, &other), &other);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    steps_free(&s);
    truth_free(&other);
}

/* P5: home lost its arena. A version that it takes back and serves anew is no next version to a
 * site that has had it. */
static void a_version_that_was_here_before_is_not_expected(void **state)
{
    (void)state;
    struct steps s;
    steps_make(&s, 12 << 20);
    s.west->expects = false;
    steps_begin(&s);
    site_publish(s.west, &s.v2);
    s.west->expects = true;
    (void)cut_all(&s.w, s.east->port);
    WORLD_UNTIL(&s.w.net, s.west->ups == 2 &&
                              s.east->peer_held == 2); /* WHOLE of v1 again; EXPECT would be behind it */
    fence(&s);
    assert_int_equal(site_stats(s.east, 0).expected, 0);
    const uint64_t before = site_stats(s.east, 0).chunks_sent;
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, s.east->peer_held == 3);
    assert_int_equal(site_stats(s.east, 0).chunks_sent, before);
    steps_free(&s);
}

/* P5, P6: streams, or the whole session, break while chunks wait, and while they land: it ends
 * whole, and nothing that was acknowledged goes again. */
static void a_push_outlives_cuts(void **state)
{
    (void)state;
    for (int all = 0; all < 2; all++) {
        struct steps s;
        steps_make(&s, 12 << 20);
        steps_begin(&s);
        const uint64_t before = site_stats(s.east, 0).chunks_sent;
        s.west->no_land = true;
        site_publish(s.east, &s.v2);
        WORLD_UNTIL(&s.w.net, s.west->versions == 2 && site_stats(s.east, 0).chunks_sent > before);
        if (all)
            (void)cut_all(&s.w, s.east->port);
        else
            (void)cut_streams(s.west, 0, 2);
        if (all) WORLD_UNTIL(&s.w.net, s.west->ups == 2 && s.west->versions == 4);
        CHECK_OK(tb_links_ask(s.west->links, 0, &s.v2.key.uid));
        WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held >= 2);
        check_equal(site_copy(s.west, &s.v2), &s.v2);
        assert_int_equal(site_stats(s.west, 0).chunks_bad, 0);
        assert_int_equal(s.west->failed, 0);
        steps_free(&s);
    }
}

/* The version goes at home while nothing of it was taken. */
static void one_that_goes_is_forgotten(void **state)
{
    (void)state;
    struct steps s;
    steps_make(&s, 12 << 20);
    steps_begin(&s);
    s.west->no_land = true;
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, s.west->versions == 2);
    CHECK_OK(tb_links_retract(s.east->links, &s.v2.key.uid, TB_VERSION_LOST, NULL, NULL));
    WORLD_UNTIL(&s.w.net, s.west->gone == 1 && site_stats(s.west, 0).pushes_declined == 1);
    s.west->no_land = false;
    site_publish(s.east, &s.v3);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v3), &s.v3);
    assert_int_equal(site_stats(s.west, 0).sessions, 1);
    steps_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deltas_that_are_expected_come_unasked),
        cmocka_unit_test(a_peer_that_expects_nothing_is_pushed_nothing),
        cmocka_unit_test(chunks_wait_until_it_is_decided),
        cmocka_unit_test(a_push_that_is_not_taken_is_asked_for_later),
        cmocka_unit_test(manifests_on_their_way_are_waited_for),
        cmocka_unit_test(a_version_of_long_manifests_is_asked_for),
        cmocka_unit_test(manifests_nobody_asked_for_share_one_room),
        cmocka_unit_test(a_base_that_went_is_no_base_of_a_push),
        cmocka_unit_test(a_base_that_went_at_home_is_waited_for),
        cmocka_unit_test(a_second_one_is_not_pushed),
        cmocka_unit_test(a_version_that_follows_another_is_not_pushed),
        cmocka_unit_test(a_version_that_was_here_before_is_not_expected),
        cmocka_unit_test(a_push_outlives_cuts),
        cmocka_unit_test(one_that_goes_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
