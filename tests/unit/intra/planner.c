/* planner.c - trees as the planner makes them, drawn: one member a line, indented under its
 * upstream, '=' before a reader that shares its upstream's host.
 *
 * Covers: intra/planner.c */
#include "planner_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void four_hosts_form_a_chain_behind_the_gateway(void **state)
{
    (void)state;
    struct site s;
    site_init(&s, 1);
    site_join(&s, "a", 1);
    site_join(&s, "b", 2);
    site_join(&s, "c", 3);
    site_join(&s, "d", 4);
    assert_string_equal(site_draw(&s), "gw\n"
                                       "  a\n"
                                       "    b\n"
                                       "      c\n"
                                       "        d\n");
}

/* The twin: with slack in the NICs the same hosts make a shallow tree, and the
 * gateway still feeds one. */
static void fan_out_two_makes_the_tree_shallow(void **state)
{
    (void)state;
    struct site s;
    site_init(&s, 2);
    const char *names[] = {"a", "b", "c", "d", "e", "f", "g"};
    for (uint32_t i = 0; i < 7; i++)
        site_join(&s, names[i], i + 1);
    assert_string_equal(site_draw(&s), "gw\n"
                                       "  a\n"
                                       "    b\n"
                                       "      d\n"
                                       "      f\n"
                                       "    c\n"
                                       "      e\n"
                                       "      g\n");
}

/* Each NIC feeds what it can: here b's alone two, and a's one though the site's word is two. */
static void hosts_feed_as_many_as_each_can(void **state)
{
    (void)state;
    struct site s;
    site_init(&s, 2);
    s.members[0].fan_out = 1;
    const char *names[] = {"a", "b", "c", "d", "e"};
    for (uint32_t i = 0; i < 5; i++) {
        const uint32_t at = site_add(&s, names[i], TB_PLANNER_WORKER, i + 1);
        s.members[at].fan_out = i == 1 ? 0 : 1;
        assert_int_equal(site_plan(&s, at), TB_OK);
    }
    assert_string_equal(site_draw(&s), "gw\n"
                                       "  a\n"
                                       "    b\n"
                                       "      c\n"
                                       "        e\n"
                                       "      d\n");
}

/* Slow ones take no reader, so all NICs that may have one are taken: the first of the chain does
 * not get all that come then. */
static void where_all_nics_are_taken_each_gets_one_more(void **state)
{
    (void)state;
    struct site s;
    site_init(&s, 1);
    const char *keep_up[] = {"a", "b", "c"}, *slow[] = {"w", "x", "y", "z"};
    for (uint32_t i = 0; i < 3; i++)
        site_join(&s, keep_up[i], i + 1);
    for (uint32_t i = 0; i < 4; i++)
        s.members[site_join(&s, slow[i], i + 4)].slow = true;
    assert_string_equal(site_draw(&s), "gw\n"
                                       "  a\n"
                                       "    b\n"
                                       "      c\n"
                                       "        w\n"
                                       "        z\n"
                                       "      y\n"
                                       "    x\n");
}

static void a_byte_reaches_a_host_once(void **state)
{
    (void)state;
    struct site s;
    site_init(&s, 1);
    site_join(&s, "a1", 1);
    site_join(&s, "b1", 2);
    site_join(&s, "a2", 1); /* a1 has only begun, and holds nothing yet */
    site_join(&s, "b2", 2);
    site_join(&s, "a3", 1);
    site_join(&s, "c1", 3);
    assert_string_equal(site_draw(&s), "gw\n"
                                       "  a1\n"
                                       "    b1\n"
                                       "      =b2\n"
                                       "      c1\n"
                                       "    =a2\n"
                                       "    =a3\n");
}

/* Two workers of a host have one NIC: with fan_out 1 the host feeds one reader,
 * whichever of them it is. */
static void workers_of_a_host_share_its_nic(void **state)
{
    (void)state;
    struct site s;
    site_init(&s, 1);
    site_join(&s, "a1", 1);
    site_join(&s, "a2", 1);
    site_join(&s, "b", 2);
    site_join(&s, "c", 3);
    assert_string_equal(site_draw(&s), "gw\n"
                                       "  a1\n"
                                       "    =a2\n"
                                       "    b\n"
                                       "      c\n");
}

static void a_dead_member_moves_only_its_readers(void **state)
{
    (void)state;
    struct site s;
    site_init(&s, 1);
    site_join(&s, "a", 1);
    const uint32_t b = site_join(&s, "b", 2);
    site_join(&s, "c", 3);
    site_join(&s, "d", 4);
    assert_int_equal(site_leave(&s, b), 1);
    assert_string_equal(site_draw(&s), "gw\n"
                                       "  a\n"
                                       "    c\n"
                                       "      d\n");
}

/* gateway - a, of which b and b2 of its host and c elsewhere read, d behind c. a stands still,
 * and b notices first. */
static void stand_still(struct site *s)
{
    site_init(s, 1);
    const uint32_t a = site_join(s, "a", 1);
    const uint32_t hosts[] = {1, 2, 3, 1};
    const char *const names[] = {"b", "c", "d", "b2"};
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t w = site_add(s, names[i], TB_PLANNER_WORKER, hosts[i]);
        s->members[w].upstream = i == 2 ? w - 1 : a;
        s->members[w].held_chunks = 5 - i;
    }
    s->gone[a] = true;
    s->members[a + 1].upstream = TB_PLANNER_NONE;
}

/* P6: another reader that depends on it gets nothing either until it has noticed, too: b goes on at
 * the gateway, though that feeds a, and they come behind b. */
static void a_reader_behind_a_failed_source_is_no_way_out(void **state)
{
    (void)state;
    struct site s;
    stand_still(&s);
    const uint32_t b = 2, c = 3, d = 4, b2 = 5;
    assert_int_equal(site_plan(&s, b), TB_OK);
    assert_int_equal(s.members[b].upstream, 0);
    s.members[c].upstream = s.members[b2].upstream = TB_PLANNER_NONE;
    assert_int_equal(site_plan(&s, c), TB_OK);
    assert_int_equal(s.members[c].upstream, b);
    assert_int_equal(site_plan(&s, b2), TB_OK);
    assert_int_equal(s.members[b2].upstream, b);
    assert_int_equal(s.members[d].upstream, c);
}

/* The twins: where there is nobody else they will do, as they may reach what b does not; but not
 * those that depend on b. */
static void a_reader_behind_a_failed_source_is_better_than_nobody(void **state)
{
    (void)state;
    struct site s;
    const uint32_t a = 1, b = 2;
    stand_still(&s);
    s.gone[0] = true;
    assert_int_equal(site_plan(&s, b), TB_OK);
    assert_int_equal(s.members[b].upstream, 4);
    stand_still(&s);
    s.members[3].held_chunks = 6;
    assert_int_equal(site_plan(&s, b), TB_OK);
    assert_int_equal(s.members[b].upstream, 3); /* it holds more, which can be read now */
    stand_still(&s);
    s.gone[0] = true;
    s.members[a].upstream = b;
    assert_int_equal(site_plan(&s, b), TB_NOT_FOUND);
}

/* P6: a worker that does not answer, and one that depends on it, are read from when there is nobody
 * else; but what one of those holds can be read. */
static void a_silent_worker_is_no_way_for_others(void **state)
{
    (void)state;
    struct site s;
    site_init(&s, 1);
    const uint32_t a = site_join(&s, "a", 1);
    const uint32_t b = site_join(&s, "b", 2);
    s.members[a].held_chunks = 9;
    s.members[a].silent = true;
    const uint32_t near = site_join(&s, "near", 1);
    assert_int_equal(s.members[near].upstream, 0);
    s.gone[near] = true;
    const uint32_t c = site_join(&s, "c", 3);
    assert_int_equal(s.members[c].upstream, 0);
    s.members[b].held_chunks = 1;
    assert_int_equal(site_plan(&s, c), TB_OK);
    assert_int_equal(s.members[c].upstream, b);
    s.members[b].held_chunks = 0;
    s.gone[0] = true;
    assert_int_equal(site_plan(&s, c), TB_OK);
    assert_int_equal(s.members[c].upstream, b);
    s.gone[b] = true;
    assert_int_equal(site_plan(&s, c), TB_OK);
    assert_int_equal(s.members[c].upstream, a);
}

/* The twin: a slow one is rather read from, and one that is whole gives nothing either. */
static void a_silent_worker_comes_behind_the_slow(void **state)
{
    (void)state;
    struct site s;
    site_init(&s, 1);
    const uint32_t a = site_join(&s, "a", 1);
    const uint32_t b = site_join(&s, "b", 2);
    s.gone[0] = true;
    s.members[a].silent = s.members[a].whole = true;
    s.members[b].slow = s.members[b].whole = true;
    const uint32_t c = site_join(&s, "c", 1);
    assert_int_equal(s.members[c].upstream, b);
}

/* The host's leader dies: of those that read from it the most advanced leads, and the
 * other goes on by shm. */
static void the_most_advanced_of_a_host_leads_next(void **state)
{
    (void)state;
    struct site s;
    site_init(&s, 1);
    const uint32_t a1 = site_join(&s, "a1", 1);
    const uint32_t a2 = site_join(&s, "a2", 1);
    const uint32_t a3 = site_join(&s, "a3", 1);
    s.members[a1].held_chunks = 9;
    s.members[a2].held_chunks = 4;
    s.members[a3].held_chunks = 7;
    assert_int_equal(site_leave(&s, a1), 2);
    assert_string_equal(site_draw(&s), "gw\n"
                                       "  a3\n"
                                       "    =a2\n");
}

static void a_slow_member_becomes_a_leaf(void **state)
{
    (void)state;
    struct site s;
    site_init(&s, 1);
    site_join(&s, "a", 1);
    const uint32_t b = site_join(&s, "b", 2);
    const uint32_t c = site_join(&s, "c", 3);
    s.members[b].slow = true;
    assert_int_equal(site_plan(&s, c),
                     TB_OK); /* a is full with b, the gateway with a: one of them has to give */
    assert_int_not_equal(s.members[c].upstream, b);
    assert_int_equal(site_plan(&s, b), TB_OK);
    assert_string_equal(site_draw(&s), "gw\n"
                                       "  a\n"
                                       "    c\n"
                                       "      b\n");
}

static void a_slow_member_is_better_than_none(void **state)
{
    (void)state;
    struct site s;
    site_init(&s, 1);
    s.members[0].slow = true;
    const uint32_t a = site_join(&s, "a", 1);
    assert_int_equal(s.members[a].upstream, 0);
}

static void the_same_rack_is_preferred(void **state)
{
    (void)state;
    struct site s;
    site_init(&s, 1);
    const uint32_t a = site_join(&s, "a", 1);
    const uint32_t b = site_join(&s, "b", 2);
    s.members[a].rack = 7;
    s.members[b].rack = 8;
    s.members[a].whole = s.members[b].whole = true;
    const uint32_t c = site_add(&s, "c", TB_PLANNER_WORKER, 3);
    s.members[c].rack = 8;
    s.members[a].upstream = s.members[b].upstream = TB_PLANNER_NONE;
    assert_int_equal(site_plan(&s, c), TB_OK);
    assert_int_equal(s.members[c].upstream, b);
    /* An unknown rack is equal to none: the least id wins. */
    s.members[c].rack = s.members[b].rack = 0;
    s.members[c].upstream = TB_PLANNER_NONE;
    assert_int_equal(site_plan(&s, c), TB_OK);
    assert_int_equal(s.members[c].upstream, a);
}

/* A chunk that no worker has comes from the gateway: the one that is ahead of all others does
 * not read from behind. */
static void the_gateway_gives_what_nobody_else_holds(void **state)
{
    (void)state;
    struct site s;
    site_init(&s, 2);
    const uint32_t a = site_join(&s, "a", 1);
    const uint32_t b = site_add(&s, "b", TB_PLANNER_WORKER, 2);
    s.members[a].held_chunks = 5;
    s.members[b].held_chunks = 6;
    assert_int_equal(site_plan(&s, b), TB_OK);
    assert_int_equal(s.members[b].upstream, 0);
    s.members[a].whole = true;
    assert_int_equal(site_plan(&s, b), TB_OK);
    assert_int_equal(s.members[b].upstream, a);
}

static void the_trainer_comes_last(void **state)
{
    (void)state;
    struct site s;
    site_init(&s, 1);
    const uint32_t rank = site_add(&s, "rank", TB_PLANNER_PUBLISHER, 1001);
    const uint32_t a = site_join(&s, "a", 1);
    assert_int_equal(s.members[a].upstream, 0);
    s.gone[0] = true;
    s.members[a].upstream = TB_PLANNER_NONE;
    assert_int_equal(site_plan(&s, a), TB_OK);
    assert_int_equal(s.members[a].upstream, rank);
}

/* A publisher's memory is nearer to its own host than the gateway, also one on that host; others of
 * its host read the worker that does. And where it may be read by its own host alone, nobody else
 * does: rather nobody. */
static void a_publisher_feeds_its_own_host(void **state)
{
    (void)state;
    struct site s;
    site_init(&s, 4);
    const uint32_t rank = site_add(&s, "rank", TB_PLANNER_PUBLISHER, 1000);
    s.members[rank].near_only = true;
    (void)site_join(&s, "a", 1000);
    (void)site_join(&s, "b", 1000);
    const uint32_t far = site_join(&s, "far", 1);
    assert_string_equal(site_draw(&s), "gw\n"
                                       "rank\n"
                                       "  =a\n"
                                       "    =b\n"
                                       "    far\n");
    s.gone[0] = s.gone[2] = s.gone[3] = true;
    s.members[far].upstream = TB_PLANNER_NONE;
    assert_int_equal(site_plan(&s, far), TB_NOT_FOUND);
}

static void a_late_worker_takes_the_least_loaded_whole_one(void **state)
{
    (void)state;
    struct site s;
    site_init(&s, 4);
    for (uint32_t host = 1; host <= 3; host++) {
        const uint32_t w = site_add(&s, "w", TB_PLANNER_WORKER, host);
        s.members[w].whole = true;
    }
    s.members[1].spot = true; /* loses the tie */
    const uint32_t x = site_join(&s, "x", 10);
    const uint32_t y = site_join(&s, "y", 11);
    assert_int_equal(s.members[x].upstream, 2);
    assert_int_equal(s.members[y].upstream, 3);
    const uint32_t z = site_join(&s, "z", 12);
    assert_int_equal(s.members[z].upstream, 1);
}

/* Asked again without need, a reader's own hop does not speak against the upstream it has. */
static void asking_again_changes_nothing(void **state)
{
    (void)state;
    struct site s;
    site_init(&s, 1);
    for (uint32_t host = 1; host <= 6; host++)
        site_join(&s, "w", host);
    for (uint32_t i = 1; i < s.count; i++) {
        const uint32_t before = s.members[i].upstream;
        assert_int_equal(site_plan(&s, i), TB_OK);
        assert_int_equal(s.members[i].upstream, before);
    }
}

static void nobody_to_read_from_is_said(void **state)
{
    (void)state;
    struct site s;
    site_init(&s, 1);
    const uint32_t a = site_join(&s, "a", 1);
    s.gone[0] = true;
    s.members[a].upstream = TB_PLANNER_NONE;
    const uint32_t b = site_add(&s, "b", TB_PLANNER_WORKER, 2);
    s.members[b].upstream = a;
    assert_int_equal(site_plan(&s, a), TB_NOT_FOUND); /* b depends on a */
    assert_int_equal(s.members[a].upstream, TB_PLANNER_NONE);
}

static uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* Walks from a member to its source; a cycle would not end. */
static void assert_reaches_the_end(const struct site *s, uint32_t index)
{
    uint32_t steps = 0;
    for (uint32_t i = index; s->members[i].upstream != TB_PLANNER_NONE; i = s->members[i].upstream) {
        assert_false(s->gone[s->members[i].upstream]);
        assert_true(++steps < s->count);
    }
}

/* Feeds from outside a host: one for each host of which somebody stages, unless the leader's
 * descendants forbid it. */
static void assert_no_host_is_fed_twice(const struct site *s)
{
    uint32_t feeds[16] = {0};
    for (uint32_t i = 1; i < s->count; i++) {
        const uint32_t up = s->members[i].upstream;
        if (!s->gone[i] && up != TB_PLANNER_NONE && s->members[up].host != s->members[i].host)
            feeds[s->members[i].host]++;
    }
    for (uint32_t host = 0; host < 16; host++)
        assert_true(feeds[host] <= 1);
}

/* P6: after any joining, leaving and moving on, everybody still has a way to a source, and no way
 * is a circle. */
static void churn_never_makes_a_cycle(void **state)
{
    (void)state;
    for (uint64_t round = 1; round <= 200; round++) {
        uint64_t seed = round * 0x9E3779B97F4A7C15u;
        struct site s;
        site_init(&s, 1 + (uint32_t)(round % 3));
        for (uint32_t step = 0; step < 200; step++) {
            const uint64_t r = next_random(&seed);
            if (s.count < SITE_MEMBERS_MAX && r % 3 == 0) {
                site_join(&s, "w", 1 + (uint32_t)(r >> 8) % 12);
            } else if (s.count > 1) {
                const uint32_t i = 1 + (uint32_t)(r >> 8) % (s.count - 1);
                if (r % 7 == 0 && !s.gone[i])
                    site_leave(&s, i);
                else
                    s.members[i].held_chunks += (uint32_t)(r >> 40) % 10;
            }
            for (uint32_t i = 1; i < s.count; i++)
                if (!s.gone[i]) assert_reaches_the_end(&s, i);
            assert_no_host_is_fed_twice(&s);
        }
    }
}

/* 10,000 workers join one after another, 8 a host: 10^8 looks at a member, seconds
 * even in a debug build. */
static void ten_thousand_members_join(void **state)
{
    (void)state;
    const uint32_t count = 10001;
    struct tb_planner_member *members = calloc(count, sizeof *members);
    assert_non_null(members);
    members[0] = (struct tb_planner_member){
        .id = 1, .kind = TB_PLANNER_GATEWAY, .host = UINT32_MAX, .upstream = TB_PLANNER_NONE};
    for (uint32_t i = 1; i < count; i++) {
        members[i] = (struct tb_planner_member){.id = i + 1, .host = i / 8, .upstream = TB_PLANNER_NONE};
        const struct tb_planner_question q = {.members = members, .count = i + 1, .reader = i, .fan_out = 2};
        assert_int_equal(tb_planner_upstream(&q, &members[i].upstream), TB_OK);
        if (members[members[i].upstream].host != members[i].host) members[members[i].upstream].readers++;
    }
    free(members);
}

static void fan_out_is_the_slack_of_the_nic(void **state)
{
    (void)state;
    assert_int_equal(tb_planner_fan_out(0, 5), 1);
    assert_int_equal(tb_planner_fan_out(5, 0), 1);
    assert_int_equal(tb_planner_fan_out(5, 10), 1);
    assert_int_equal(tb_planner_fan_out(25, 10), 2);
    assert_int_equal(tb_planner_fan_out(UINT64_MAX, 1), TB_PLANNER_FAN_OUT_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_hosts_form_a_chain_behind_the_gateway),
        cmocka_unit_test(fan_out_two_makes_the_tree_shallow),
        cmocka_unit_test(hosts_feed_as_many_as_each_can),
        cmocka_unit_test(where_all_nics_are_taken_each_gets_one_more),
        cmocka_unit_test(a_byte_reaches_a_host_once),
        cmocka_unit_test(workers_of_a_host_share_its_nic),
        cmocka_unit_test(a_dead_member_moves_only_its_readers),
        cmocka_unit_test(a_reader_behind_a_failed_source_is_no_way_out),
        cmocka_unit_test(a_reader_behind_a_failed_source_is_better_than_nobody),
        cmocka_unit_test(a_silent_worker_is_no_way_for_others),
        cmocka_unit_test(a_silent_worker_comes_behind_the_slow),
        cmocka_unit_test(the_most_advanced_of_a_host_leads_next),
        cmocka_unit_test(a_slow_member_becomes_a_leaf),
        cmocka_unit_test(a_slow_member_is_better_than_none),
        cmocka_unit_test(the_same_rack_is_preferred),
        cmocka_unit_test(the_gateway_gives_what_nobody_else_holds),
        cmocka_unit_test(the_trainer_comes_last),
        cmocka_unit_test(a_publisher_feeds_its_own_host),
        cmocka_unit_test(a_late_worker_takes_the_least_loaded_whole_one),
        cmocka_unit_test(asking_again_changes_nothing),
        cmocka_unit_test(nobody_to_read_from_is_said),
        cmocka_unit_test(churn_never_makes_a_cycle),
        cmocka_unit_test(ten_thousand_members_join),
        cmocka_unit_test(fan_out_is_the_slack_of_the_nic),
    };
    return cmocka_run_group_tests_name("planner", tests, NULL, NULL);
}
