/* links_bases.c - consecutive versions cross as deltas, bit for bit; where a base is missing, that
 * chunk comes whole.
 *
 * Covers: wan/stream/stream_send.c wan/stream/stream_copy.c wan/link/traffic/link_send.c
 * Covers: wan/link/traffic/link_landings.c */
#include "links_versions.h"

#include <string.h>

#include "base/clock.h"
#include "check.h"
#include "wan/frame/frame.h"
#include "wan/link/links_stats.h"
#include "wan/send/encoded_chunks.h"

/* Half of v2's chunks are those of v1, the others differ in one element of a hundred. */
static void a_version_crosses_as_deltas(void **state)
{
    (void)state;
    struct two_versions s;
    two_versions_make(&s, 2, 12 << 20);
    two_versions_begin(&s);
    const struct tb_links_stats before = site_stats(s.east, 0);
    assert_int_equal(before.protocol, TB_LINK_PROTOCOL);
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    check_equal(site_copy(s.west, &s.v1), &s.v1); /* never patched */
    uint32_t changed = 0;
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t k = 0; k < s.v2.manifests[i].chunk_count; k++)
            changed += !tb_digest_equal(&s.v2.manifests[i].digests[k], &s.v1.manifests[i].digests[k]);
    SITE_SENT(&s.w, s.east, before.chunks_sent + changed);
    const struct tb_links_stats after = site_stats(s.east, 0);
    assert_int_equal(after.delta_chunks - before.delta_chunks, changed);
    assert_true(after.bytes_sent - before.bytes_sent < s.v2.total_bytes / 50);
    assert_int_equal(after.chunks_no_base, 0);
    assert_int_equal(site_stats(s.west, 0).chunks_bad, 0);
    assert_int_equal(site_stats(s.west, 0).chunks_duplicate, 0);
    assert_false(tb_links_base_used(s.east->links, &s.v1.key.uid));
    assert_false(tb_links_base_used(s.west->links, &s.v1.key.uid));
    two_versions_free(&s);
}

/* A step's chunks that are late on three streams go again by the fourth: what that comes to is
 * counted as it goes, and not as the whole chunks that it stands for. */
static void a_hedged_parcel_is_counted_as_it_goes(void **state)
{
    (void)state;
    struct two_versions s;
    two_versions_make(&s, 1, 96 << 20);
    s.east->options.hedge_permille = 1000;
    two_versions_begin(&s);
    const struct tb_links_stats before = site_stats(s.east, 0);
    for (uint32_t n = 1; n < 4; n++)
        assert_true(pace_stream(s.east, 0, n, 20000));
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    const struct tb_links_stats after = site_stats(s.east, 0);
    assert_true(after.bytes_hedged > before.bytes_hedged);
    assert_true(after.bytes_hedged - before.bytes_hedged <= after.bytes_sent - before.bytes_sent);
    for (uint32_t n = 1; n < 4; n++)
        assert_true(pace_stream(s.east, 0, n, UINT64_MAX));
    two_versions_free(&s);
}

/* P7: a day's bytes have room for part of a step as it goes, which is less than one whole chunk: so
 * much of it crosses, not a byte goes over, and the rest follows when there is more. */
static void a_days_bytes_hold_what_goes(void **state)
{
    (void)state;
    struct two_versions s;
    two_versions_make(&s, 1, 96 << 20);
    two_versions_begin(&s);
    struct tb_links_stats east = site_stats(s.east, 0);
    const uint64_t until = east.bytes_sent + 100000;
    two_versions_limit(s.east, until);
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, site_stats(s.east, 0).short_bytes > 0);
    east = site_stats(s.east, 0);
    assert_true(east.short_bytes < 50000);
    WORLD_UNTIL(&s.w.net, site_stats(s.east, 0).bytes_sent > until - east.short_bytes);
    world_turns(&s.w.net, 20);
    assert_true(site_stats(s.east, 0).bytes_sent <= until);
    assert_int_equal(s.west->landed, 1);
    two_versions_limit(s.east, UINT64_MAX);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    assert_int_equal(site_stats(s.west, 0).chunks_duplicate, 0);
    two_versions_free(&s);
}

/* P10, P9: a peer that waits for what a day's bytes hold is told so, in each session anew, and when
 * it is over; a peer of the release before hears nothing that it does not know. */
static void a_waiting_peer_hears_of_the_day(void **state)
{
    (void)state;
    for (uint32_t protocol = 1; protocol <= 2; protocol++) {
        struct two_versions s;
        two_versions_make(&s, 1, 4 << 20);
        s.west->options.protocol_max = protocol;
        two_versions_begin(&s);
        assert_false(site_stats(s.west, 0).peer_spent);
        two_versions_limit(s.east, site_stats(s.east, 0).bytes_sent);
        site_publish(s.east, &s.v2);
        WORLD_UNTIL(&s.w.net, s.west->versions == 2);
        if (protocol == 2) WORLD_UNTIL(&s.w.net, site_stats(s.west, 0).peer_spent);
        assert_false(site_stats(s.east, 0).peer_spent); /* nobody holds what west sends */
        const uint64_t sessions = site_stats(s.west, 0).sessions;
        (void)cut_all(&s.w, s.east->port);
        WORLD_UNTIL(&s.w.net, site_stats(s.west, 0).sessions > sessions && site_stats(s.west, 0).up);
        if (protocol == 2) WORLD_UNTIL(&s.w.net, site_stats(s.west, 0).peer_spent);
        two_versions_limit(s.east, UINT64_MAX);
        WORLD_UNTIL(&s.w.net, s.west->landed == 2 && !site_stats(s.west, 0).peer_spent);
        assert_int_equal(site_stats(s.west, 0).garbled, 0);
        two_versions_free(&s);
    }
}

/* P9: a peer that speaks protocol 1 gets whole chunks, by either side's limit. */
static void a_peer_of_the_release_before_gets_whole_chunks(void **state)
{
    (void)state;
    for (int who = 0; who < 2; who++) {
        struct two_versions s;
        two_versions_make(&s, 1, 4 << 20);
        (who == 0 ? s.east : s.west)->options.protocol_max = 1;
        two_versions_begin(&s);
        assert_int_equal(site_stats(s.east, 0).protocol, 1);
        assert_int_equal(site_stats(s.west, 0).protocol, 1);
        site_publish(s.east, &s.v2);
        WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
        check_equal(site_copy(s.west, &s.v2), &s.v2);
        assert_int_equal(site_stats(s.east, 0).delta_chunks, 0);
        SITE_SENT(&s.w, s.east, s.v1.chunks + s.v2.chunks);
        two_versions_free(&s);
    }
}

/* The receiver's base cannot be used (a chunk of it failed its re-verification): each such chunk
 * comes whole, by no-base. */
static void chunks_without_a_base_come_whole(void **state)
{
    (void)state;
    struct two_versions s;
    two_versions_make(&s, 1, 8 << 20);
    two_versions_begin(&s);
    atomic_store(&s.west->no_base, true);
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    const struct tb_links_stats west = site_stats(s.west, 0), east = site_stats(s.east, 0);
    assert_int_equal(west.chunks_no_base, s.v2.chunks); /* made from it or differing: all of them */
    assert_int_equal(east.chunks_no_base, s.v2.chunks);
    assert_int_equal(west.chunks_bad, 0);
    assert_int_equal(east.chunks_refused, 0);
    assert_int_equal(s.west->failed, 0);
    two_versions_free(&s);
}

/* The sender's base cannot be used: it sends whole, and says nothing of it. */
static void a_sender_without_a_base_sends_whole(void **state)
{
    (void)state;
    struct two_versions s;
    two_versions_make(&s, 1, 8 << 20);
    two_versions_begin(&s);
    atomic_store(&s.east->no_base, true);
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    assert_int_equal(site_stats(s.east, 0).delta_chunks, 0);
    assert_int_equal(site_stats(s.west, 0).chunks_no_base, 0);
    two_versions_free(&s);
}

static void note_done(void *user)
{
    ++*(int *)user;
}

/* The base goes in the middle of the crossing, at the receiver or at the sender: the rest comes
 * whole, and what was given back is nobody's any more. */
static void a_base_that_goes_is_missed_by_its_chunks_alone(void **state)
{
    (void)state;
    for (int who = 0; who < 2; who++) {
        struct two_versions s;
        int done = 0;
        two_versions_make(&s, 1, 48 << 20);
        two_versions_begin(&s);
        struct site *loser = who == 0 ? s.west : s.east;
        /* Some of v2 is not at east yet, so the crossing does not end before the base goes. */
        struct copy *c = site_place(s.east, &s.v2.key, s.v2.manifests);
        memcpy(c->places[0].bytes, s.v2.bytes[0], s.v2.manifests[0].bytes);
        for (uint32_t k = 0; k < s.v2.chunks / 2; k++)
            tb_bitmap_set(c->places[0].held, k);
        CHECK_OK(tb_links_offer(s.east->links, &c->key, c->places));
        WORLD_UNTIL(&s.w.net, site_copy(s.west, &s.v2) != NULL && copy_held(site_copy(s.west, &s.v2)) > 4);
        /* East learns of the base by a frame; west copies what did not change at once. */
        WORLD_UNTIL(&s.w.net, tb_links_base_used(loser->links, &s.v1.key.uid));
        struct copy *base = site_copy(loser, &s.v1);
        CHECK_OK(tb_links_retract(loser->links, &s.v1.key.uid, TB_SUPERSEDED, note_done, &done));
        WORLD_UNTIL(&s.w.net, done == 1);
        assert_false(tb_links_base_used(loser->links, &s.v1.key.uid));
        memset(base->places[0].bytes, 0xee, s.v1.manifests[0].bytes);
        copy_free(base); /* sanitizers watch */
        for (uint32_t k = s.v2.chunks / 2; k < s.v2.chunks; k++)
            tb_bitmap_set(c->places[0].held, k);
        WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
        check_equal(site_copy(s.west, &s.v2), &s.v2);
        assert_int_equal(site_stats(s.west, 0).chunks_bad, 0);
        if (who == 0) assert_true(site_stats(s.west, 0).chunks_no_base > 0);
        two_versions_free(&s);
    }
}

/* P1: a difference that decodes to something else (the sender's base went bad in memory) is
 * refused, and comes whole. */
static void a_wrong_delta_is_refused_and_its_chunk_comes_whole(void **state)
{
    (void)state;
    struct two_versions s;
    two_versions_make(&s, 1, 8 << 20);
    two_versions_begin(&s);
    const uint64_t at = s.v1.manifests[0].chunks[5].offset + 77;
    s.east_v1->places[0].bytes[at] ^= 4;
    const struct tb_links_stats before = site_stats(s.east, 0);
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    assert_int_equal(site_stats(s.west, 0).chunks_bad, 1);
    assert_int_equal(s.east->bad.chunk, 5);
    assert_true(tb_id_equal(&s.east->bad.base, &s.v1.key.uid)); /* so its owner looks at the base, too */
    const struct tb_links_stats after = site_stats(s.east, 0);
    const uint64_t whole = s.v2.manifests[0].chunks[5].bytes;
    assert_true(after.bytes_sent - before.bytes_sent > whole / 3);
    two_versions_free(&s);
}

/* P5: streams are cut again and again while differences cross; nothing that was
 * acknowledged is sent again. */
static void cuts_repeat_no_delta(void **state)
{
    (void)state;
    struct two_versions s;
    two_versions_make(&s, 1, 48 << 20);
    two_versions_begin(&s);
    const struct tb_links_stats before = site_stats(s.west, 0);
    site_publish(s.east, &s.v2);
    for (uint32_t at = 4; at < 40; at += 6) {
        WORLD_UNTIL(&s.w.net, s.west->landed == 2 || (site_copy(s.west, &s.v2) != NULL &&
                                                      copy_held(site_copy(s.west, &s.v2)) >= at));
        (void)cut_streams(at % 12 == 4 ? s.east : s.west, 0, 2);
    }
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    const struct tb_links_stats after = site_stats(s.west, 0);
    assert_int_equal(after.chunks_duplicate, before.chunks_duplicate);
    assert_true(after.chunks_received - before.chunks_received <= s.v2.chunks / 2 + 1);
    two_versions_free(&s);
}

/* A gateway that restarts names its base again: the links begin anew, and the step still
 * crosses as deltas. */
static void a_receiver_that_restarts_keeps_its_base(void **state)
{
    (void)state;
    struct two_versions s;
    two_versions_make(&s, 1, 16 << 20);
    two_versions_begin(&s);
    struct copy *mine = site_copy(s.west, &s.v1);
    site_close(s.west);
    s.west->options.incarnation = 2;
    site_start(s.west);
    CHECK_OK(tb_links_offer(s.west->links, &mine->key, mine->places));
    WORLD_UNTIL(&s.w.net, s.west->ups == 2);
    const uint64_t before = site_stats(s.west, 0).bytes_received;
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2);
    check_equal(site_copy(s.west, &s.v2), &s.v2);
    assert_true(site_stats(s.west, 0).bytes_received - before < s.v2.total_bytes / 50);
    two_versions_free(&s);
}

/* k versions behind: the base is whatever the peer holds, so what crosses is the k versions
 * as one merged delta. */
static void a_peer_that_missed_a_version_gets_a_merged_delta(void **state)
{
    (void)state;
    struct two_versions s;
    struct truth v3;
    two_versions_make(&s, 1, 8 << 20);
    truth_step(&v3, &s.v2);
    two_versions_begin(&s);
    s.west->no_land = true;
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, s.west->versions == 2);
    s.west->no_land = false;
    const uint64_t before = site_stats(s.west, 0).bytes_received;
    site_publish(s.east, &v3);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2);
    check_equal(site_copy(s.west, &v3), &v3);
    assert_true(site_stats(s.west, 0).bytes_received - before < v3.total_bytes / 50);
    two_versions_free(&s);
    truth_free(&v3);
}

/* P6: two chunks that are the same in the base are being written by another way when their turn
 * to be copied comes. One of its writers gives up: that chunk is asked for. The other ends
 * well: its chunk is not. */
static void a_copy_that_another_writer_stood_for_is_asked_for_if_it_gives_up(void **state)
{
    (void)state;
    struct two_versions s;
    two_versions_make(&s, 1, 16 << 20);
    two_versions_begin(&s);
    struct copy *c = site_place(s.west, &s.v2.key, s.v2.manifests);
    struct tb_place *place = &c->places[0];
    assert_true(tb_place_claim(place, 0) && tb_place_claim(place, 2));
    CHECK_OK(tb_links_offer(s.west->links, &c->key, c->places));
    CHECK_OK(tb_links_land(s.west->links, 0, &c->key, c->places));
    const struct tb_links_stats before = site_stats(s.east, 0);
    site_publish(s.east, &s.v2);
    WORLD_UNTIL(&s.w.net, copy_held(c) == s.v2.chunks - 2);
    const struct tb_chunk *second = &s.v2.manifests[0].chunks[2];
    memcpy(place->bytes + second->offset, s.v2.bytes[0] + second->offset, second->bytes);
    CHECK_OK(tb_place_finish(place, 2));
    tb_place_unclaim(place, 0);
    WORLD_UNTIL(&s.w.net, s.west->landed == 2 && s.east->peer_held == 2);
    check_equal(c, &s.v2);
    SITE_SENT(&s.w, s.east, before.chunks_sent + s.v2.chunks / 2 + 1);
    two_versions_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_version_crosses_as_deltas),
        cmocka_unit_test(a_hedged_parcel_is_counted_as_it_goes),
        cmocka_unit_test(a_days_bytes_hold_what_goes),
        cmocka_unit_test(a_waiting_peer_hears_of_the_day),
        cmocka_unit_test(a_peer_of_the_release_before_gets_whole_chunks),
        cmocka_unit_test(chunks_without_a_base_come_whole),
        cmocka_unit_test(a_sender_without_a_base_sends_whole),
        cmocka_unit_test(a_base_that_goes_is_missed_by_its_chunks_alone),
        cmocka_unit_test(a_wrong_delta_is_refused_and_its_chunk_comes_whole),
        cmocka_unit_test(cuts_repeat_no_delta),
        cmocka_unit_test(a_receiver_that_restarts_keeps_its_base),
        cmocka_unit_test(a_peer_that_missed_a_version_gets_a_merged_delta),
        cmocka_unit_test(a_copy_that_another_writer_stood_for_is_asked_for_if_it_gives_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
