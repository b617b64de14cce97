/* links_transfer.c - a version crosses, from one site or from several, and is the
 * same at the other end.
 *
 * Covers: wan/link/links.c wan/link/links_wake.c wan/link/traffic/link_versions.c
 * Covers: wan/link/traffic/announced_versions.c wan/link/traffic/link_share.c
 * Covers: wan/link/traffic/word_frames.c wan/link/traffic/link_traffic.c wan/link/links_check.c
 * Covers: wan/link/session/link_session_check.c wan/link/traffic/traffic_check.c */
#include <string.h>

#include "check.h"
#include "links_pair.h"
#include "wan/link/links_messages.h"

/* P1: a version arrives as it was sealed, bit for bit, also by zstd; and each side
 * knows that it did. */
static void transfer(enum tb_choice_wish codec, bool receiver_dials)
{
    struct links_world w;
    struct truth t;
    links_world_init(&w);
    truth_make(&t, 1, 2, 20 << 20);
    struct site *east = site_new(&w, "east", receiver_dials), *west = site_new(&w, "west", !receiver_dials);
    east->options.codec = codec;
    site_peer(east, west, !receiver_dials, false);
    site_peer(west, east, receiver_dials, true);
    site_start(east);
    site_start(west);
    site_publish(east, &t);
    WORLD_UNTIL(&w.net, west->landed == 1 && east->peer_held == 1);
    check_equal(site_copy(west, &t), &t);
    assert_int_equal(site_stats(west, 0).chunks_received, t.chunks);
    assert_int_equal(site_stats(west, 0).chunks_duplicate, 0);
    assert_int_equal(site_stats(west, 0).chunks_bad, 0);
    if (codec == TB_CHOICE_ZSTD) assert_true(site_stats(east, 0).bytes_sent < t.total_bytes * 3 / 4);
    assert_int_equal(east->ups, 1);
    assert_int_equal(east->downs, 0);
    links_world_fini(&w);
    truth_free(&t);
}

static void a_version_crosses_bit_exact(void **state)
{
    (void)state;
    transfer(TB_CHOICE_RAW, true);
}

static void the_side_that_holds_may_dial(void **state)
{
    (void)state;
    transfer(TB_CHOICE_RAW, false);
}

static void a_version_crosses_compressed(void **state)
{
    (void)state;
    transfer(TB_CHOICE_ZSTD, true);
}

/* P6: a region that fills is offered at once, and the third site completes from the second. */
static void a_relay_passes_each_chunk_on(void **state)
{
    (void)state;
    struct links_world w;
    struct truth t;
    links_world_init(&w);
    truth_make(&t, 3, 2, 24 << 20);
    struct site *east = site_new(&w, "east", true), *west = site_new(&w, "west", true);
    struct site *north = site_new(&w, "north", false);
    site_peer(east, west, false, false);
    site_peer(west, east, true, true);
    site_peer(west, north, false, false);
    site_peer(north, west, true, true);
    site_start(east);
    site_start(west);
    site_start(north);
    WORLD_UNTIL(&w.net, west->ups == 2 && north->ups == 1);
    /* East holds half of it for now: north must get that half before west is whole. */
    struct copy *c = site_place(east, &t.key, t.manifests);
    for (uint32_t s = 0; s < 2; s++) {
        memcpy(c->places[s].bytes, t.bytes[s], t.manifests[s].bytes);
        for (uint32_t k = 0; k < t.manifests[s].chunk_count; k += 2)
            tb_bitmap_set(c->places[s].held, k);
    }
    CHECK_OK(tb_links_offer(east->links, &c->key, c->places));
    WORLD_UNTIL(&w.net, held_at(north, &t) == copy_held(c));
    assert_int_equal(west->landed, 0);
    for (uint32_t s = 0; s < 2; s++)
        for (uint32_t k = 1; k < t.manifests[s].chunk_count; k += 2)
            tb_bitmap_set(c->places[s].held, k);
    WORLD_UNTIL(&w.net,
                north->landed == 1 && west->landed == 1 && east->peer_held == 1 && west->peer_held == 1);
    check_equal(site_copy(north, &t), &t);
    SITE_SENT(&w, east, t.chunks); /* the byte crossed once */
    struct tb_links_report report = {.uid = t.key.uid, .state = TB_LINKS_REPORT_ACTIVATED};
    CHECK_OK(tb_name_set(&report.site, "north"));
    CHECK_OK(tb_links_tell(north->links, 0, &report));
    WORLD_UNTIL(&w.net, west->reports == 1);
    assert_string_equal(west->report.site.text, "north");
    links_world_fini(&w);
    truth_free(&t);
}

/* East and north, in this order, and west, which dials both and lands where the test says. */
static struct site *sink_of_two(struct links_world *w, struct truth *t, uint64_t shard_bytes)
{
    links_world_init(w);
    truth_make(t, 6, 1, shard_bytes);
    struct site *east = site_new(w, "east", true), *north = site_new(w, "north", true);
    struct site *west = site_new(w, "west", false);
    site_peer(east, west, false, false);
    site_peer(north, west, false, false);
    site_peer(west, east, true, true);
    site_peer(west, north, true, true);
    west->no_land = true;
    return west;
}

/* P4, P6: two sites hold it, one lands from both; a chunk is written once, and the loss of one
 * source ends nothing. */
static void two_sources_fill_one_place(void **state)
{
    (void)state;
    struct links_world w;
    struct truth t;
    struct site *west = sink_of_two(&w, &t, 64 << 20), *east = &w.sites[0], *north = &w.sites[1];
    site_start(east);
    site_start(north);
    site_start(west);
    site_publish(east, &t);
    site_publish(north, &t);
    WORLD_UNTIL(&w.net, west->versions == 2);
    struct copy *c = site_place(west, &t.key, t.manifests);
    CHECK_OK(tb_links_land(west->links, 0, &c->key, c->places));
    CHECK_OK(tb_links_land(west->links, 1, &c->key, c->places));
    CHECK_STATUS(tb_links_land(west->links, 1, &c->key, c->places), TB_DONE_BEFORE);
    WORLD_UNTIL(&w.net, copy_held(c) >= 10);
    site_close(north);
    WORLD_UNTIL(&w.net, copy_whole(c) && west->landed >= 1);
    check_equal(c, &t);
    assert_int_equal(site_stats(west, 0).chunks_bad + site_stats(west, 1).chunks_bad, 0);
    links_world_fini(&w);
    truth_free(&t);
}

/* The first chunk, and no more. */
static void publish_first_chunk(struct site *s, const struct truth *t)
{
    uint32_t bytes = 0;
    struct copy *c = site_place(s, &t->key, t->manifests);
    memcpy(tb_place_chunk(&c->places[0], 0, &bytes), t->bytes[0], t->manifests[0].chunks[0].bytes);
    tb_bitmap_set(c->places[0].held, 0);
    CHECK_OK(tb_links_offer(s->links, &c->key, c->places));
}

/* P6: of peers that cannot send at once one began, and lacks the rest: another, which
 * has it, has its turn. */
static void a_peer_that_brings_nothing_has_had_its_turn(void **state)
{
    (void)state;
    struct links_world w;
    struct truth t;
    struct site *west = sink_of_two(&w, &t, 4 << 20), *east = &w.sites[0], *north = &w.sites[1];
    west->options.protocol_max = 1;
    site_start(east);
    site_start(north);
    site_start(west);
    site_publish(east, &t);
    publish_first_chunk(north, &t);
    WORLD_UNTIL(&w.net, west->versions == 2);
    struct copy *c = site_place(west, &t.key, t.manifests);
    CHECK_OK(tb_links_land(west->links, 1, &c->key, c->places));
    WORLD_UNTIL(&w.net, copy_held(c) == 1);
    CHECK_OK(tb_links_land(west->links, 0, &c->key, c->places));
    WORLD_UNTIL(&w.net, copy_whole(c) && west->landed >= 1);
    check_equal(c, &t);
    links_world_fini(&w);
    truth_free(&t);
}

/* An operator's withdrawal reaches a peer that was away when it happened. */
static void a_withdrawal_is_told_after_a_reconnection(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 4 << 20);
    site_start(p->east);
    site_publish(p->east, &p->t);
    CHECK_OK(tb_links_withdrawn(p->east->links, &p->t.key));
    site_start(p->west);
    WORLD_UNTIL(&p->w.net, p->west->withdrawn == 1 && p->west->landed == 1);
    CHECK_STATUS(tb_links_withdrawn(p->east->links, &p->t.key), TB_DONE_BEFORE);
}

/* A peer that restarts and holds the version already says so: nothing crosses. */
static void a_chunk_held_already_does_not_cross(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 8 << 20);
    pair_publish(p);
    site_publish(p->west, &p->t);
    WORLD_UNTIL(&p->w.net, p->east->peer_held == 1);
    assert_int_equal(site_stats(p->east, 0).bytes_sent, 0);
    assert_int_equal(p->west->manifests, 0);
}

/* P7: manifests over the limit fail the ask, not the link. */
static void manifests_over_the_limit_are_refused(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 8 << 20);
    p->west->options.manifest_bytes_max = 500;
    pair_publish(p);
    WORLD_UNTIL(&p->w.net, p->west->too_large == 1);
    assert_true(p->west->too_large_bytes > 500);
    world_turns(&p->w.net, 20);
    assert_int_equal(p->west->failed, 0);
    assert_true(site_stats(p->west, 0).up);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_version_crosses_bit_exact),
        cmocka_unit_test(the_side_that_holds_may_dial),
        cmocka_unit_test(a_version_crosses_compressed),
        cmocka_unit_test(a_relay_passes_each_chunk_on),
        cmocka_unit_test(two_sources_fill_one_place),
        cmocka_unit_test(a_peer_that_brings_nothing_has_had_its_turn),
        PAIR_TEST(a_withdrawal_is_told_after_a_reconnection),
        PAIR_TEST(a_chunk_held_already_does_not_cross),
        PAIR_TEST(manifests_over_the_limit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
