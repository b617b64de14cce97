/* link_session.c - all pairs of the table, the tie-break as both sides see it, which newcomers are
 * refused, and when a peer is dialled again.
 *
 * Covers: wan/link/session/link_session.c */
#include "wan/link/session/link_session.h"

#include <string.h>

#include "tests/unit/check.h"

static struct tb_identity gateway(const char *site)
{
    struct tb_identity id = {.kind = TB_IDENTITY_GATEWAY};
    CHECK_OK(tb_name_set(&id.site, site));
    CHECK_OK(tb_name_set(&id.name, "gw"));
    return id;
}

static struct tb_link_session session(const char *self, const char *peer, bool can_dial)
{
    struct tb_link_session s;
    const struct tb_link_session_config config = {.self = gateway(self),
                                                  .peer = gateway(peer),
                                                  .protocol_max = TB_LINK_PROTOCOL,
                                                  .can_dial = can_dial,
                                                  .retry_min = TB_MS(100),
                                                  .retry_max = TB_SECONDS(5),
                                                  .fresh_dial = TB_MS(250),
                                                  .silent = TB_SECONDS(1)};
    tb_link_session_init(&s, &config, TB_SECONDS(1));
    return s;
}

static struct tb_link_session_todo step_at(struct tb_link_session *s, enum tb_link_session_event_kind kind,
                                           tb_time_ns now, uint64_t random)
{
    struct tb_link_session_todo todo;
    const struct tb_link_session_event ev = {
        .now = now, .kind = kind, .random = random, .dialled_by_us = true, .incarnation = 1};
    CHECK_OK(tb_link_session_step(s, &ev, &todo));
    return todo;
}

/* The table once more, by hand: '-' is refused. */
static void every_pair_of_state_and_event(void **state)
{
    (void)state;
    /* DUE FAILED UNANSWERED GREETED LOST QUIET HEARD STOP */
    static const int then[TB_LINK_STATE_COUNT][TB_LINK_EVENT_COUNT] = {
        [TB_LINK_RESTING] = {TB_LINK_DIALLING, TB_LINK_RESTING, TB_LINK_RESTING, TB_LINK_UP, -1, -1, -1,
                             TB_LINK_STOPPED},
        [TB_LINK_DIALLING] = {TB_LINK_DIALLING, TB_LINK_RESTING, TB_LINK_DIALLING, TB_LINK_UP, -1, -1, -1,
                              TB_LINK_STOPPED},
        [TB_LINK_UP] = {-1, TB_LINK_UP, TB_LINK_UP, TB_LINK_UP, TB_LINK_RESTING, TB_LINK_SILENT, -1,
                        TB_LINK_STOPPED},
        [TB_LINK_SILENT] = {TB_LINK_SILENT, TB_LINK_SILENT, TB_LINK_SILENT, TB_LINK_UP, TB_LINK_RESTING, -1,
                            TB_LINK_UP, TB_LINK_STOPPED},
        [TB_LINK_STOPPED] = {-1, TB_LINK_STOPPED, TB_LINK_STOPPED, -1, TB_LINK_STOPPED, -1, -1, -1},
    };
    for (int from = 0; from < TB_LINK_STATE_COUNT; from++)
        for (int kind = 0; kind < TB_LINK_EVENT_COUNT; kind++) {
            struct tb_link_session s = session("east", "west", true);
            struct tb_link_session_todo todo;
            const struct tb_link_session_event ev = {.now = TB_SECONDS(2),
                                                     .kind = (enum tb_link_session_event_kind)kind};
            s.state = (enum tb_link_session_state)from;
            const enum tb_status status = tb_link_session_step(&s, &ev, &todo);
            assert_int_equal(status, then[from][kind] < 0 ? TB_BAD_STATE : TB_OK);
            assert_int_equal(s.state, then[from][kind] < 0 ? from : then[from][kind]);
            const bool dials = status == TB_OK && (kind == TB_LINK_DUE || kind == TB_LINK_QUIET);
            assert_int_equal(todo.dial, dials);
            const bool replaces = kind == TB_LINK_GREETED && (from == TB_LINK_UP || from == TB_LINK_SILENT);
            assert_int_equal(todo.replaced, replaces);
        }
}

static void waits_double_with_full_jitter(void **state)
{
    (void)state;
    struct tb_link_session s = session("east", "west", true);
    assert_int_equal(s.next_dial_at, TB_SECONDS(1)); /* at once at first */
    const uint64_t bound_ms[] = {200, 400, 800, 1600, 3200, 5000, 5000};
    for (size_t i = 0; i < sizeof bound_ms / sizeof bound_ms[0]; i++) {
        struct tb_link_session low = s, high = s;
        assert_true(step_at(&low, TB_LINK_DUE, TB_SECONDS(9), 0).dial);
        assert_true(step_at(&high, TB_LINK_DUE, TB_SECONDS(9), 0).dial);
        (void)step_at(&low, TB_LINK_FAILED, TB_SECONDS(10), 0);
        (void)step_at(&high, TB_LINK_FAILED, TB_SECONDS(10), TB_MS(bound_ms[i]) - TB_MS(100));
        assert_int_equal(low.next_dial_at, TB_SECONDS(10) + TB_MS(100));
        assert_int_equal(high.next_dial_at, TB_SECONDS(10) + TB_MS(bound_ms[i]));
        s = high;
    }
    (void)step_at(&s, TB_LINK_GREETED, TB_SECONDS(20), 0); /* a session forgives the failures */
    (void)step_at(&s, TB_LINK_LOST, TB_SECONDS(30), TB_MS(100));
    assert_int_equal(s.next_dial_at, TB_SECONDS(30) + TB_MS(200));
}

/* P6: a path that swallows every packet for a minute is asked four times a second until the end
 * of it; a "no" is not. */
static void a_silent_peer_is_asked_again_and_again(void **state)
{
    (void)state;
    struct tb_link_session s = session("east", "west", true);
    tb_time_ns now = TB_SECONDS(1);
    for (int i = 0; i < 240; i++, now += TB_MS(250)) {
        assert_int_equal(s.next_dial_at, now);
        assert_true(step_at(&s, TB_LINK_DUE, now, 0).dial);
        if (i >= 20) (void)step_at(&s, TB_LINK_UNANSWERED, now, UINT64_MAX); /* one of 5 s ago */
    }
    assert_int_equal(s.attempts, 1); /* what a "no" waits after it is not long */
    (void)step_at(&s, TB_LINK_FAILED, now, UINT64_MAX);
    assert_int_equal(s.state, TB_LINK_RESTING);
    assert_true(s.next_dial_at > now && s.next_dial_at <= now + TB_MS(400));
    const tb_time_ns rests_until = s.next_dial_at;
    (void)step_at(&s, TB_LINK_UNANSWERED, now, 0); /* those that are still under way change nothing */
    assert_int_equal(s.next_dial_at, rests_until);
}

/* P6: while this machine's own device is down it looks every retry_min, in both states in which it
 * seeks; nobody is bothered by that. */
static void a_link_without_a_way_looks_often(void **state)
{
    (void)state;
    for (int silent = 0; silent < 2; silent++) {
        struct tb_link_session s = session("east", "west", true);
        struct tb_link_session_todo todo;
        if (silent) (void)step_at(&s, TB_LINK_GREETED, TB_SECONDS(2), 0);
        assert_true(step_at(&s, silent ? TB_LINK_QUIET : TB_LINK_DUE, TB_SECONDS(3), 0).dial);
        assert_int_equal(s.next_dial_at, TB_SECONDS(3) + TB_MS(250));
        const struct tb_link_session_event ev = {
            .now = TB_SECONDS(3), .kind = TB_LINK_UNANSWERED, .random = UINT64_MAX, .nowhere = true};
        CHECK_OK(tb_link_session_step(&s, &ev, &todo));
        assert_int_equal(s.next_dial_at, TB_SECONDS(3) + TB_MS(100));
        assert_int_equal(s.state, silent ? TB_LINK_SILENT : TB_LINK_DIALLING);
    }
}

static void a_peer_that_broke_the_protocol_waits_longer(void **state)
{
    (void)state;
    struct tb_link_session s = session("east", "west", true);
    struct tb_link_session_todo todo;
    (void)step_at(&s, TB_LINK_GREETED, TB_SECONDS(2), 0);
    const struct tb_link_session_event ev = {
        .now = TB_SECONDS(3), .kind = TB_LINK_LOST, .random = TB_MS(4900), .peer_fault = true};
    CHECK_OK(tb_link_session_step(&s, &ev, &todo));
    assert_int_equal(s.next_dial_at, TB_SECONDS(8));
}

static void a_link_that_cannot_dial_waits_to_be_dialled(void **state)
{
    (void)state;
    struct tb_link_session s = session("east", "west", false);
    assert_int_equal(s.next_dial_at, TB_TIME_NEVER);
    (void)step_at(&s, TB_LINK_GREETED, TB_SECONDS(2), 0);
    assert_false(step_at(&s, TB_LINK_QUIET, TB_SECONDS(4), 0).dial);
    (void)step_at(&s, TB_LINK_LOST, TB_SECONDS(5), 0);
    assert_int_equal(s.next_dial_at, TB_TIME_NEVER);
}

/* A silent peer: a fresh dial at once and then every 0.25 s, until one is greeted or the old
 * session is heard again. */
static void a_silent_peer_is_dialled_afresh(void **state)
{
    (void)state;
    struct tb_link_session s = session("east", "west", true);
    (void)step_at(&s, TB_LINK_DUE, TB_SECONDS(1), 0);
    (void)step_at(&s, TB_LINK_GREETED, TB_SECONDS(2), 0);
    assert_true(step_at(&s, TB_LINK_QUIET, TB_SECONDS(5), 0).dial);
    assert_int_equal(s.next_dial_at, TB_SECONDS(5) + TB_MS(250));
    assert_true(step_at(&s, TB_LINK_DUE, TB_SECONDS(5) + TB_MS(250), 0).dial);
    assert_int_equal(s.next_dial_at, TB_SECONDS(5) + TB_MS(500));
    struct tb_link_session heard = s, lost = s;
    (void)step_at(&lost, TB_LINK_LOST, TB_SECONDS(5) + TB_MS(450), UINT64_MAX); /* the rhythm goes on */
    assert_int_equal(lost.next_dial_at, TB_SECONDS(5) + TB_MS(500));
    (void)step_at(&heard, TB_LINK_HEARD, TB_SECONDS(6), 0);
    assert_int_equal(heard.next_dial_at, TB_TIME_NEVER);
    assert_true(step_at(&s, TB_LINK_GREETED, TB_SECONDS(6), 0).replaced);
}

/* P6: where queues hold more than a second of bytes, every answer takes longer than silent_ms, and
 * sessions still last. */
static void a_slow_path_is_not_silent(void **state)
{
    (void)state;
    struct tb_link_session s = session("east", "west", true);
    assert_int_equal(tb_link_session_patience(&s), TB_SECONDS(1)); /* nothing known */
    tb_link_session_answered(&s, TB_MS(1300));
    assert_int_equal(tb_link_session_patience(&s), TB_MS(2600));
    (void)step_at(&s, TB_LINK_GREETED, TB_SECONDS(2), 0); /* the path is the same on the next session */
    assert_int_equal(tb_link_session_patience(&s), TB_MS(2600));
    tb_link_session_answered(&s, TB_MS(80));
    assert_int_equal(tb_link_session_patience(&s), TB_SECONDS(1));
    tb_link_session_answered(&s, TB_MS(2900)); /* through a cut */
    assert_int_equal(tb_link_session_patience(&s), TB_SECONDS(1));
}

static struct tb_frame_hello hello_of(const char *site)
{
    struct tb_frame_hello h = {.protocol = TB_LINK_PROTOCOL,
                               .protocol_min = TB_LINK_PROTOCOL_MIN,
                               .lane_count = 1,
                               .incarnation = 5};
    CHECK_OK(tb_name_set(&h.site, site));
    CHECK_OK(tb_name_set(&h.gateway, "gw"));
    return h;
}

static void refused_hellos_and_their_statuses(void **state)
{
    (void)state;
    struct tb_link_session s = session("east", "west", true);
    struct tb_link_session_verdict v;
    const struct tb_frame_hello good = hello_of("west");
    struct tb_frame_hello h = good;
    CHECK_OK(tb_link_session_judge(&s, &h, false, &v));
    assert_int_equal(v.protocol, TB_LINK_PROTOCOL);
    h = good;
    h.lane_count = 2; /* its site may have more gateways than ours */
    CHECK_OK(tb_link_session_judge(&s, &h, false, &v));
    h = hello_of("south");
    CHECK_STATUS(tb_link_session_judge(&s, &h, false, &v), TB_PEER_IDENTITY);
    h = good;
    h.lane = 1;
    CHECK_STATUS(tb_link_session_judge(&s, &h, false, &v), TB_PEER_GARBLED);
    h = good;
    h.lane_count = 0;
    CHECK_STATUS(tb_link_session_judge(&s, &h, false, &v), TB_PEER_GARBLED);
    s.incarnation_seen = 6;
    CHECK_STATUS(tb_link_session_judge(&s, &good, false, &v), TB_PEER_STALE);
    assert_int_equal(v.detail, 6);
}

/* P6: an owner of the peer's key that says a number near 2^64 raises by one step the number below
 * which the peer is stale, and the peer raises its own as far. */
static void an_incarnation_near_the_end_locks_nobody_out(void **state)
{
    (void)state;
    struct tb_link_session s = session("east", "west", true);
    struct tb_frame_hello honest = hello_of("west");
    struct tb_link_session_verdict v;
    uint64_t before = 0;
    for (int i = 0; i < 3; i++) {
        struct tb_link_session_todo todo;
        const struct tb_link_session_event lie = {
            .now = TB_SECONDS(2), .kind = TB_LINK_GREETED, .incarnation = UINT64_MAX - 1};
        CHECK_OK(tb_link_session_step(&s, &lie, &todo));
        (void)step_at(&s, TB_LINK_LOST, TB_SECONDS(3), 0);
        assert_int_equal(s.incarnation_seen, before + TB_LINK_INCARNATION_STEP);
        honest.incarnation = before;
        CHECK_STATUS(tb_link_session_judge(&s, &honest, false, &v), TB_PEER_STALE);
        honest.incarnation = v.detail;
        CHECK_OK(tb_link_session_judge(&s, &honest, false, &v));
        before = s.incarnation_seen;
    }
}

/* P9: a later release speaks to this one if it still speaks what this one does. */
static void protocols_are_negotiated(void **state)
{
    (void)state;
    struct tb_link_session s = session("east", "west", true);
    struct tb_link_session_verdict v;
    struct tb_frame_hello h = hello_of("west");
    h.protocol = TB_LINK_PROTOCOL + 1;
    h.protocol_min = TB_LINK_PROTOCOL;
    CHECK_OK(tb_link_session_judge(&s, &h, false, &v));
    assert_int_equal(v.protocol, TB_LINK_PROTOCOL);
    h.protocol_min = TB_LINK_PROTOCOL + 1;
    CHECK_STATUS(tb_link_session_judge(&s, &h, false, &v), TB_PEER_PROTOCOL);
    assert_int_equal(v.detail, TB_LINK_PROTOCOL);
    h.protocol = TB_LINK_PROTOCOL_MIN - 1;
    h.protocol_min = 0;
    CHECK_STATUS(tb_link_session_judge(&s, &h, false, &v), TB_PEER_PROTOCOL);
    h.protocol = 0;
    h.protocol_min = 1;
    CHECK_STATUS(tb_link_session_judge(&s, &h, false, &v), TB_PEER_GARBLED);
}

/* P9: the release before is spoken to in its own protocol, and so is one that an operator holds
 * back, here or there. */
static void the_release_before_is_spoken_to(void **state)
{
    (void)state;
    struct tb_link_session s = session("east", "west", true);
    struct tb_link_session_verdict v;
    struct tb_frame_hello h = hello_of("west");
    h.protocol = 1;
    CHECK_OK(tb_link_session_judge(&s, &h, false, &v));
    assert_int_equal(v.protocol, 1);
    h = hello_of("west");
    s.config.protocol_max = 1;
    CHECK_OK(tb_link_session_judge(&s, &h, false, &v));
    assert_int_equal(v.protocol, 1);
    h.protocol_min = 2;
    CHECK_STATUS(tb_link_session_judge(&s, &h, false, &v), TB_PEER_PROTOCOL);
    assert_int_equal(v.detail, 1);
}

static void greet(struct tb_link_session *s, bool dialled_by_us)
{
    struct tb_link_session_todo todo;
    const struct tb_link_session_event ev = {
        .now = TB_SECONDS(2), .kind = TB_LINK_GREETED, .dialled_by_us = dialled_by_us, .incarnation = 5};
    CHECK_OK(tb_link_session_step(s, &ev, &todo));
}

/* Both dialled, in either order, at either side: what east dialled stays, because
 * its URI is the smaller. */
static void the_smaller_uri_s_session_stays(void **state)
{
    (void)state;
    const struct tb_frame_hello of_east = hello_of("east"), of_west = hello_of("west");
    for (int first_by_east = 0; first_by_east < 2; first_by_east++) {
        struct tb_link_session east = session("east", "west", true), west = session("west", "east", true);
        struct tb_link_session_verdict v;
        greet(&east, first_by_east);
        greet(&west, !first_by_east);
        const enum tb_status expected = first_by_east ? TB_PEER_DUPLICATE : TB_OK; /* of the other's dial */
        CHECK_STATUS(tb_link_session_judge(&east, &of_west, !first_by_east, &v), expected);
        CHECK_STATUS(tb_link_session_judge(&west, &of_east, first_by_east, &v), expected);
    }
}

static void a_dead_session_does_not_stand_in_the_way(void **state)
{
    (void)state;
    struct tb_link_session east = session("east", "west", true);
    struct tb_link_session_verdict v;
    struct tb_frame_hello h = hello_of("west");
    greet(&east, true);
    CHECK_STATUS(tb_link_session_judge(&east, &h, false, &v), TB_PEER_DUPLICATE);
    CHECK_OK(tb_link_session_judge(&east, &h, true, &v)); /* its dialler dials again */
    h.incarnation = 6;                                    /* the peer restarted */
    CHECK_OK(tb_link_session_judge(&east, &h, false, &v));
    h.incarnation = 5;
    (void)step_at(&east, TB_LINK_QUIET, TB_SECONDS(5), 0); /* silent */
    CHECK_OK(tb_link_session_judge(&east, &h, false, &v));
}

static void greet_life(struct tb_link_session *s, bool dialled_by_us, const struct tb_frame_hello *hello)
{
    struct tb_link_session_todo todo;
    const struct tb_link_session_event ev = {.now = TB_SECONDS(2),
                                             .kind = TB_LINK_GREETED,
                                             .dialled_by_us = dialled_by_us,
                                             .incarnation = hello->incarnation,
                                             .life = hello->life,
                                             .process = tb_frame_hello_process(hello)};
    CHECK_OK(tb_link_session_step(s, &ev, &todo));
}

/* P6: two gateways with one identity. The one whose session answers keeps it, whichever side
 * dialled, and whatever the incarnation of the other is: both go on counting above each other. */
static void a_twin_waits_while_the_session_answers(void **state)
{
    (void)state;
    for (int ways = 0; ways < 4; ways++) {
        for (uint64_t incarnation = 4; incarnation <= 6; incarnation++) {
            struct tb_link_session east = session("east", "west", true);
            struct tb_link_session_verdict v;
            struct tb_frame_hello first = hello_of("west"), twin = first;
            first.life.bytes[0] = 1;
            twin.life.bytes[0] = 2;
            twin.incarnation = incarnation;
            greet_life(&east, ways & 1, &first);
            CHECK_STATUS(tb_link_session_judge(&east, &twin, ways >> 1, &v), TB_PEER_DUPLICATE);
            assert_true(v.ask); /* it may be the peer after a restart: nobody is blamed yet */
            tb_link_session_vouch(&east, true);
            CHECK_STATUS(tb_link_session_judge(&east, &twin, ways >> 1, &v), TB_PEER_TWIN);
            assert_true(v.ask); /* each time anew */
            tb_link_session_vouch(&east, false);
            CHECK_STATUS(tb_link_session_judge(&east, &twin, ways >> 1, &v), TB_PEER_DUPLICATE);
        }
    }
}

/* The twin of that: a peer that restarted with another arena is let in as soon as the session of
 * its life before is silent or over. */
static void a_peer_with_a_new_life_is_let_in(void **state)
{
    (void)state;
    struct tb_link_session_verdict v;
    struct tb_frame_hello first = hello_of("west"), again = first;
    first.life.bytes[0] = 1;
    again.life.bytes[0] = 2;
    struct tb_link_session east = session("east", "west", true);
    greet_life(&east, false, &first);
    tb_link_session_vouch(&east, true);
    struct tb_link_session silent = east, lost = east;
    (void)step_at(&silent, TB_LINK_QUIET, TB_SECONDS(5), 0);
    CHECK_OK(tb_link_session_judge(&silent, &again, false, &v));
    assert_false(v.ask);
    (void)step_at(&lost, TB_LINK_LOST, TB_SECONDS(5), 0);
    CHECK_OK(tb_link_session_judge(&lost, &again, false, &v));
    greet_life(&lost, false,
               &again); /* from now on that life has the session, and nobody has vouched for it */
    CHECK_STATUS(tb_link_session_judge(&lost, &first, false, &v), TB_PEER_DUPLICATE);
    CHECK_OK(tb_link_session_judge(&lost, &again, false, &v));
}

/* A twin whose arena was cloned has the same life, and another process. The same process with a new
 * life is none. */
static void a_cloned_arena_makes_no_gateway_the_same(void **state)
{
    (void)state;
    static const uint8_t one[16] = {1}, two[16] = {2}, longer[20] = {2, [16] = 9};
    struct tb_link_session_verdict v;
    struct tb_frame_hello first = hello_of("west"), twin = first;
    first.life.bytes[0] = twin.life.bytes[0] = 1;
    first.more = (struct tb_span){one, sizeof one};
    for (int later = 0; later < 2; later++) {
        struct tb_link_session east = session("east", "west", true);
        twin.more = later ? (struct tb_span){longer, sizeof longer} : (struct tb_span){two, sizeof two};
        twin.incarnation = 9;
        greet_life(&east, false, &first);
        CHECK_STATUS(tb_link_session_judge(&east, &twin, false, &v), TB_PEER_DUPLICATE);
        assert_true(v.ask);
        tb_link_session_vouch(&east, true);
        CHECK_STATUS(tb_link_session_judge(&east, &twin, false, &v), TB_PEER_TWIN);
        struct tb_frame_hello again = first;
        again.life.bytes[0] = 3;
        CHECK_OK(tb_link_session_judge(&east, &again, false, &v)); /* damage made its life new */
        again = twin;
        again.more.count = 15; /* of a release that says something else: the life counts */
        CHECK_OK(tb_link_session_judge(&east, &again, false, &v));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_of_state_and_event),
        cmocka_unit_test(waits_double_with_full_jitter),
        cmocka_unit_test(a_silent_peer_is_asked_again_and_again),
        cmocka_unit_test(a_link_without_a_way_looks_often),
        cmocka_unit_test(a_peer_that_broke_the_protocol_waits_longer),
        cmocka_unit_test(a_link_that_cannot_dial_waits_to_be_dialled),
        cmocka_unit_test(a_silent_peer_is_dialled_afresh),
        cmocka_unit_test(a_slow_path_is_not_silent),
        cmocka_unit_test(refused_hellos_and_their_statuses),
        cmocka_unit_test(an_incarnation_near_the_end_locks_nobody_out),
        cmocka_unit_test(protocols_are_negotiated),
        cmocka_unit_test(the_release_before_is_spoken_to),
        cmocka_unit_test(the_smaller_uri_s_session_stays),
        cmocka_unit_test(a_dead_session_does_not_stand_in_the_way),
        cmocka_unit_test(a_twin_waits_while_the_session_answers),
        cmocka_unit_test(a_cloned_arena_makes_no_gateway_the_same),
        cmocka_unit_test(a_peer_with_a_new_life_is_let_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
