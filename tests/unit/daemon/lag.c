/* lag.c - one reason for each site that is behind, and a range or no estimate.
 *
 * Covers: gateway/daemon/links/lag.c */
#include "gateway/daemon/links/lag.h"

#include "tests/unit/check.h"

static void every_reason_in_the_order_in_which_it_is_looked_for(void **state)
{
    (void)state;
    struct tb_lag_facts f = {.store_down = true,
                             .link = TB_LAG_DNS,
                             .behind = true,
                             .table_full = true,
                             .lacks_room = true,
                             .unsealed = true,
                             .bad_chunks = true,
                             .no_memory = true,
                             .spent = true,
                             .asked = true,
                             .share_spent = true,
                             .base_crosses = true,
                             .still = true,
                             .holdup = TB_HOLDUP_RATE};
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_STORE);
    f.store_down = false;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_NO_SUBSCRIBER);
    f.subscribed = true;
    for (f.link = TB_LAG_LINK_DOWN; f.link < TB_LAG_REASON_END; f.link++)
        assert_int_equal(tb_lag_reason_of(&f), f.link); /* P10: a site that cannot know says why */
    f.link = TB_LAG_UP_TO_DATE;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_UNKNOWN);
    f.heard = true;
    f.awaits_signature = true;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_UNSIGNED);
    f.awaits_signature = false;
    f.pinned = true;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_PINNED);
    f.behind = false; /* the head is here, and no reader gets it */
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_PINNED);
    assert_false(tb_lag_is_current(TB_LAG_PINNED) || tb_lag_moves(TB_LAG_PINNED));
    f.pinned = false;
    f.paused = true;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_PAUSED); /* what comes next will not cross */
    f.behind = true;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_PAUSED);
    assert_false(tb_lag_is_current(TB_LAG_PAUSED) || tb_lag_moves(TB_LAG_PAUSED));
    assert_false(tb_lag_is_of_lack(TB_LAG_PAUSED) || tb_lag_is_of_link(TB_LAG_PAUSED));
    f.paused = false;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_TABLE);
    f.table_full = false;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_NO_ROOM);
    f.lacks_room = false;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_PUBLISHING);
    f.unsealed = false;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_VERIFY);
    f.bad_chunks = false;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_RECEIVER_MEMORY);
    f.no_memory = false;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_BUDGET);
    f.spent = false;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_MANIFESTS);
    f.asked = false;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_SHARE);
    f.share_spent = false;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_BASE);
    f.base_crosses = false;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_QUEUED);
    f.begun = true;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_STALLED);
    f.mtu = true;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_MTU);
    f.still = false;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_RATE);
    f.behind = false;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_NO_SUBSCRIBER);
}

static void the_brake_on_its_chunks_is_the_reason_while_they_move(void **state)
{
    (void)state;
    struct tb_lag_facts f = {.subscribed = true, .heard = true, .behind = true, .begun = true};
    static const enum tb_lag_reason reasons[TB_HOLDUP_END] = {
        TB_LAG_CROSSING, TB_LAG_RATE, TB_LAG_SENDER_CPU, TB_LAG_LOSS, TB_LAG_WINDOW, TB_LAG_RECEIVER_CPU};
    for (f.holdup = TB_HOLDUP_NONE; f.holdup < TB_HOLDUP_END; f.holdup++) {
        assert_int_equal(tb_lag_reason_of(&f), reasons[f.holdup]);
        assert_true(tb_lag_moves(reasons[f.holdup]));
        assert_false(tb_lag_is_current(reasons[f.holdup]));
    }
    f.holdup = TB_HOLDUP_RECEIVER;
    f.window_small = true; /* its buffer is what does not read fast enough */
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_WINDOW);
    f.mtu = true; /* what holds it up is something else */
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_WINDOW);
    f.holdup = TB_HOLDUP_NONE;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_MTU);
    assert_true(tb_lag_moves(TB_LAG_MTU));
}

static void a_head_that_is_here_may_be_unused(void **state)
{
    (void)state;
    struct tb_lag_facts f = {.subscribed = true, .heard = true};
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_NO_SUBSCRIBER);
    f.is_home = true; /* there it may be published alone */
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_UP_TO_DATE);
    f.has_groups = true;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_UP_TO_DATE);
    f.whole_for_long = true;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_NOT_ACTIVATING);
    assert_true(tb_lag_is_current(TB_LAG_NOT_ACTIVATING));
    f.used = true;
    assert_int_equal(tb_lag_reason_of(&f), TB_LAG_UP_TO_DATE);
}

/* The list is the wire's, too: its order does not change. */
static void a_reason_of_a_later_release_is_unknown(void **state)
{
    (void)state;
    assert_int_equal(TB_LAG_UP_TO_DATE, 0);
    assert_int_equal(TB_LAG_UNKNOWN, 1);
    assert_int_equal(TB_LAG_UNSIGNED, 30);
    assert_int_equal(TB_LAG_MTU, 29);
    assert_string_equal(tb_lag_name(TB_LAG_NO_ROOM), "no-room");
    assert_string_equal(tb_lag_name(TB_LAG_MTU), "mtu");
    assert_string_equal(tb_lag_name(TB_LAG_REASON_END), "unknown");
    assert_string_equal(tb_lag_why(UINT16_MAX), tb_lag_why(TB_LAG_UNKNOWN));
    assert_string_equal(tb_lag_why(TB_LAG_CROSSING), "it is on its way");
}

/* P10: home says none of them of a site that lacks nothing. The others hold whatever a site has. */
static void reasons_of_a_lack_are_the_rest(void **state)
{
    (void)state;
    static const uint16_t others[] = {TB_LAG_DENIED,   TB_LAG_UNKNOWN, TB_LAG_STORE,
                                      TB_LAG_UNSIGNED, TB_LAG_PINNED,  TB_LAG_PAUSED};
    for (uint16_t reason = 0; reason < TB_LAG_REASON_END; reason++) {
        bool lack = !tb_lag_is_current(reason) && !tb_lag_is_of_link(reason);
        for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
            lack &= others[i] != reason;
        if (tb_lag_is_of_lack(reason) != lack) fail_msg("%s", tb_lag_name(reason));
    }
    assert_false(tb_lag_is_of_lack(TB_LAG_REASON_END)); /* of a later release */
}

/* A link may have been idle for long when a version begins on it. */
static void a_crossing_just_begun_does_not_stand(void **state)
{
    (void)state;
    struct tb_lag_pace p = {0};
    assert_false(tb_lag_stands(&p, TB_SECONDS(10)));
    for (int i = 0; i < 3; i++)
        tb_lag_look(&p, 100);
    assert_true(tb_lag_still(&p));
    assert_false(tb_lag_stands(&p, 0));
    assert_false(tb_lag_stands(&p, TB_SECONDS(3) - 1));
    assert_true(tb_lag_stands(&p, TB_SECONDS(3)));
    tb_lag_look(&p, 101);
    assert_false(tb_lag_stands(&p, TB_SECONDS(3)));
}

static void an_estimate_is_a_range_or_none(void **state)
{
    (void)state;
    struct tb_lag_pace p = {0};
    struct tb_lag_eta eta;
    assert_false(tb_lag_estimate(&p, 1000, &eta));
    tb_lag_look(&p, 100);
    assert_false(tb_lag_estimate(&p, 1000, &eta)); /* one second says nothing */
    tb_lag_look(&p, 300);
    assert_true(tb_lag_estimate(&p, 1000, &eta));
    assert_true(eta.low_s == 5 && eta.high_s == 10);
    assert_false(tb_lag_still(&p));
    tb_lag_look(&p, 300);
    assert_false(tb_lag_estimate(&p, 1000, &eta)); /* a second without anything: who knows */
    assert_false(tb_lag_still(&p));
    tb_lag_look(&p, 300);
    assert_true(tb_lag_still(&p));
    for (uint64_t bytes = 400; bytes <= 800; bytes += 100)
        tb_lag_look(&p, bytes);
    assert_true(tb_lag_estimate(&p, 1000, &eta)); /* the silence is more than five seconds ago */
    assert_true(eta.low_s == 10 && eta.high_s == 10);
    tb_lag_look(&p, 0); /* another version: what it counts begins anew */
    assert_false(tb_lag_estimate(&p, 1000, &eta));
}

/* Each third second a chunk of 300 bytes lands, encoded in 150. */
static void slow_move(struct tb_lag_moves *m, uint64_t *came, uint64_t *held)
{
    *came += 50;
    if (*came % 150 == 0) *held += 300;
    tb_lag_look(&m->held, *held);
    tb_lag_look(&m->came, *came);
    tb_lag_landing_look(&m->landing, *held, *came);
}

static void chunks_that_land_seconds_apart_have_an_estimate(void **state)
{
    (void)state;
    struct tb_lag_moves m = {0};
    struct tb_lag_eta eta;
    uint64_t came = 0, held = 0;
    for (int second = 0; second < 2; second++) {
        slow_move(&m, &came, &held);
        assert_false(tb_lag_estimate_rest(&m, 3000, &eta)); /* of what is encoded none has landed */
    }
    for (uint64_t left = 3000; left > 600; left -= 300) {
        slow_move(&m, &came, &held);
        assert_true(tb_lag_estimate_rest(&m, left, &eta));
        assert_true(eta.low_s == (double)left / 100 && eta.high_s == eta.low_s);
        slow_move(&m, &came, &held);
        assert_true(tb_lag_estimate_rest(&m, left, &eta)); /* a second less: it is under way */
        assert_true(eta.low_s == (double)left / 100 - 1 && eta.high_s == eta.low_s);
        slow_move(&m, &came, &held);
    }
    tb_lag_look(&m.came, came); /* a second without anything: who knows */
    assert_false(tb_lag_estimate_rest(&m, 600, &eta));
}

/* Of four chunks of 100 bytes that come together the first has landed, or three were wasted. */
static void bytes_that_came_to_nothing_make_no_short_estimate(void **state)
{
    (void)state;
    struct tb_lag_moves m = {0};
    struct tb_lag_eta eta;
    for (uint64_t came = 100; came <= 400; came += 100) {
        const uint64_t held = came == 400 ? 100 : 0;
        tb_lag_look(&m.held, held);
        tb_lag_look(&m.came, came);
        tb_lag_landing_look(&m.landing, held, came);
    }
    assert_true(tb_lag_estimate_rest(&m, 900, &eta));
    assert_true(eta.low_s == 9 && eta.high_s == 9);
    tb_lag_look(&m.came, 500);
    tb_lag_landing_look(&m.landing, 100, 500);
    assert_true(tb_lag_estimate_rest(&m, 900, &eta));
    assert_true(eta.low_s == 8 && eta.high_s == 8);    /* a second less: it is under way */
    assert_false(tb_lag_estimate_rest(&m, 100, &eta)); /* all of it is here, and not yet a chunk */
}

static void chunks_of_the_process_before_are_no_measure(void **state)
{
    (void)state;
    struct tb_lag_moves m = {0};
    struct tb_lag_eta eta;
    uint64_t came = 0, held = 100000;
    tb_lag_landing_look(&m.landing, held, came);
    for (int second = 0; second < 6; second++)
        slow_move(&m, &came, &held);
    assert_true(tb_lag_estimate_rest(&m, 3000, &eta));
    assert_true(eta.low_s == 30 && eta.high_s == 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_reason_in_the_order_in_which_it_is_looked_for),
        cmocka_unit_test(the_brake_on_its_chunks_is_the_reason_while_they_move),
        cmocka_unit_test(a_head_that_is_here_may_be_unused),
        cmocka_unit_test(a_reason_of_a_later_release_is_unknown),
        cmocka_unit_test(reasons_of_a_lack_are_the_rest),
        cmocka_unit_test(a_crossing_just_begun_does_not_stand),
        cmocka_unit_test(an_estimate_is_a_range_or_none),
        cmocka_unit_test(chunks_that_land_seconds_apart_have_an_estimate),
        cmocka_unit_test(bytes_that_came_to_nothing_make_no_short_estimate),
        cmocka_unit_test(chunks_of_the_process_before_are_no_measure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
