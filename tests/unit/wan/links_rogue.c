/* links_rogue.c - a peer with a good certificate that breaks the protocol in what it says:
 * no greeting, words out of order, bases nobody has. P7, P10: it is dropped, counted, and
 * nobody else notices.
 *
 * Covers: wan/link/session/link_frames.c wan/link/session/link_conn.c
 * Covers: wan/link/traffic/ask_table.c wan/link/traffic/links_tables.c
 * Covers: wan/link/links_table_counts.c wan/link/traffic/link_manifest.c
 * Covers: wan/link/traffic/link_manifest_pages.c */
#include "rogue.h"

#include "check.h"
#include "wan/link/links_limits.h"
#include "wan/link/links_table_counts.h"
#include "wan/link/path/segment.h"

static void before_hello(void (*say)(struct rogue *r), enum tb_status why)
{
    struct rogue r;
    rogue_init(&r);
    say(&r);
    rogue_dropped(&r, why);
    assert_int_equal(r.east->ups, 0);
    rogue_fini(&r);
}

static void ping_first(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_PING, tb_frame_ping, .stamp = 1);
}

static void hello_of_another(struct rogue *r)
{
    rogue_hello(r, "north");
}

static void half_a_hello(struct rogue *r)
{
    rogue_send(r, TB_FRAME_HELLO, "\1\0\0\0\1\0", 6);
}

static void bind_nothing(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_BIND, tb_frame_bind, .stream = 1);
}

static void a_megabyte_and_more(struct rogue *r)
{
    static uint8_t bytes[(1 << 20) + 1];
    rogue_send(r, TB_FRAME_HELLO, bytes, sizeof bytes);
}

static void a_frame_that_is_no_greeting_is_refused(void **state)
{
    (void)state;
    before_hello(ping_first, TB_PEER_GARBLED);
    before_hello(hello_of_another, TB_PEER_IDENTITY);
    before_hello(half_a_hello, TB_PEER_GARBLED);
    before_hello(bind_nothing, TB_PEER_TOKEN);
}

/* P7: refused from its header. Frames sent before may be cut off: the rogue sees the end alone. */
static void a_frame_over_the_limit_is_refused(void **state)
{
    (void)state;
    struct rogue r;
    rogue_init(&r);
    a_megabyte_and_more(&r);
    WORLD_UNTIL(&r.w.net, r.closed);
    assert_int_equal(r.east->ups, 0);
    rogue_fini(&r);
}

static void in_session(void (*say)(struct rogue *r))
{
    rogue_in_session(1, say);
    rogue_in_session(2, say);
}

static void say_unknown_type(struct rogue *r)
{
    rogue_send(r, 999, "", 0);
}

static void say_hello_again(struct rogue *r)
{
    rogue_hello(r, "west");
}

static void say_want_zero(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_WANT, tb_frame_want, .crossing = 0, .uid = r->t.key.uid);
}

static void say_want_backwards(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_WANT, tb_frame_want, .crossing = 5, .uid = r->t.key.uid);
    ROGUE_SEND(r, TB_FRAME_WANT, tb_frame_want, .crossing = 5, .uid = r->t.key.uid);
}

static void say_held_of_nothing(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_HELD, tb_frame_held, .crossing = 7,
               .words = {(const uint8_t *)"0123456789ab", 12});
}

static void say_held_past_the_end(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_WANT, tb_frame_want, .crossing = 1, .uid = r->t.key.uid);
    ROGUE_SEND(r, TB_FRAME_HELD, tb_frame_held, .crossing = 1,
               .words = {(const uint8_t *)"\0\0\0\0\0\0\0\0\0\0\0\x80", 12});
}

static void say_refused_of_no_chunk(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_WANT, tb_frame_want, .crossing = 1, .uid = r->t.key.uid);
    ROGUE_SEND(r, TB_FRAME_REFUSED, tb_frame_refused, .crossing = 1, .chunk = 1000000,
               .why = TB_REFUSAL_DIGEST);
}

static void say_report_of_no_state(struct rogue *r)
{
    rogue_report(r, 3);
}

static void say_version_of_no_model_of_ours(struct rogue *r)
{
    struct tb_version_key key = r->t.key;
    key.model = rogue_name("other");
    ROGUE_SEND(r, TB_FRAME_VERSION, tb_frame_version, .key = key, .state = TB_FRAME_VERSION_READY);
}

/* East asks for its manifests, and the head is not one. */
static void say_version_with_a_bad_head(struct rogue *r)
{
    struct tb_version_key key = r->t.key;
    key.uid.bytes[0] ^= 1;
    ROGUE_SEND(r, TB_FRAME_VERSION, tb_frame_version, .key = key, .state = TB_FRAME_VERSION_READY);
    ROGUE_SEND(r, TB_FRAME_HEAD, tb_frame_head, .uid = key.uid, .total_bytes = 5,
               .page = {(const uint8_t *)"hello", 5});
}

/* P7: a head that promises 128 MiB and more. */
static void say_version_with_a_huge_head(struct rogue *r)
{
    struct tb_version_key key = r->t.key;
    key.uid.bytes[0] ^= 1;
    ROGUE_SEND(r, TB_FRAME_VERSION, tb_frame_version, .key = key, .state = TB_FRAME_VERSION_READY);
    ROGUE_SEND(r, TB_FRAME_HEAD, tb_frame_head, .uid = key.uid, .total_bytes = UINT32_MAX,
               .page = {(const uint8_t *)"h", 1});
}

/* A good manifest under another root: the daemon never sees it. */
static void say_version_with_another_root(struct rogue *r)
{
    struct tb_version_key key = r->t.key;
    key.uid.bytes[0] ^= 1; /* the root is over the uid too */
    ROGUE_SEND(r, TB_FRAME_VERSION, tb_frame_version, .key = key, .state = TB_FRAME_VERSION_READY);
    rogue_manifests(r, &r->t, &key);
}

static void a_peer_that_breaks_the_protocol_is_dropped(void **state)
{
    (void)state;
    in_session(say_unknown_type);
    in_session(say_hello_again);
    in_session(say_want_zero);
    in_session(say_want_backwards);
    in_session(say_held_of_nothing);
    in_session(say_held_past_the_end);
    in_session(say_refused_of_no_chunk);
    in_session(say_report_of_no_state);
    in_session(say_version_of_no_model_of_ours);
    in_session(say_version_with_a_bad_head);
    in_session(say_version_with_a_huge_head);
    in_session(say_version_with_another_root);
}

static void say_base(struct rogue *r, uint32_t crossing)
{
    ROGUE_SEND(r, TB_FRAME_BASE, tb_frame_base, .crossing = crossing, .uid = r->t.key.uid);
}

static void say_no_base(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_REFUSED, tb_frame_refused, .crossing = 1, .why = TB_REFUSAL_NO_BASE);
}

static void say_base_to_who_has_none(struct rogue *r)
{
    rogue_want(r, 1);
    say_base(r, 1);
}

static void say_base_of_no_crossing(struct rogue *r)
{
    say_base(r, 1);
}

static void say_two_bases(struct rogue *r)
{
    say_base_to_who_has_none(r);
    say_base(r, 1);
}

static void say_base_too_late(struct rogue *r)
{
    rogue_want(r, 1);
    ROGUE_SEND(r, TB_FRAME_START, tb_frame_start, .crossing = 1);
    say_base(r, 1);
}

static void say_no_base_without_one(struct rogue *r)
{
    rogue_want(r, 1);
    say_no_base(r);
}

static void say_a_refusal_of_no_reason(struct rogue *r)
{
    say_base_to_who_has_none(r);
    ROGUE_SEND(r, TB_FRAME_REFUSED, tb_frame_refused, .crossing = 1, .why = TB_REFUSAL_NO_BASE + 1);
}

static void say_spent(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_SPENT, tb_frame_spent, .spent = 1);
}

static void say_spent_twice_over(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_SPENT, tb_frame_spent, .spent = 2);
}

static void say_runs(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_RUNS, tb_frame_runs, .model = rogue_name("policy"));
}

static void say_run_told(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_RUN_TOLD, tb_frame_run_told, .model = rogue_name("policy"), .run_order = 1);
}

/* P9: nobody asks which runs are remembered before protocol 3. */
static void runs_are_no_word_of_protocol_2(void **state)
{
    (void)state;
    rogue_in_session(1, say_runs);
    rogue_in_session(2, say_runs);
    rogue_in_session(2, say_run_told);
}

static void say_state(struct rogue *r, uint8_t hops, uint64_t eta_low_ms)
{
    static const uint8_t none[1];
    ROGUE_SEND(r, TB_FRAME_STATE, tb_frame_state, .site = rogue_name("far"), .model = rogue_name("policy"),
               .hops = hops, .known = true, .eta_low_ms = eta_low_ms, .held = {none, 0});
}

static void say_a_good_state(struct rogue *r)
{
    say_state(r, 1, 0);
}

static void say_a_state_that_went_too_far(struct rogue *r)
{
    say_state(r, TB_SITE_HOPS_MAX + 1, 0);
}

static void say_an_estimate_from_late_to_soon(struct rogue *r)
{
    say_state(r, 1, 1);
}

static void say_a_holdup(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_HOLDUP, tb_frame_holdup, .holdup = TB_HOLDUP_LOSS);
}

static void say_a_holdup_that_is_none(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_HOLDUP, tb_frame_holdup, .holdup = TB_HOLDUP_END);
}

/* P9: a message that protocol 2 added is no word of protocol 1. */
static void bases_have_an_order(void **state)
{
    (void)state;
    rogue_in_session(1, say_base_to_who_has_none);
    rogue_in_session(1, say_no_base_without_one);
    rogue_in_session(2, say_base_of_no_crossing);
    rogue_in_session(2, say_two_bases);
    rogue_in_session(2, say_base_too_late);
    rogue_in_session(2, say_no_base_without_one);
    rogue_in_session(2, say_a_refusal_of_no_reason);
}

static void say_segment(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_SEGMENT, tb_frame_segment, .bytes = 1000);
}

static void say_segment_too_small(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_SEGMENT, tb_frame_segment, .bytes = TB_SEGMENT_BYTES_MIN - 1);
}

static void say_segment_too_large(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_SEGMENT, tb_frame_segment, .bytes = TB_SEGMENT_BYTES_MAX + 1);
}

static void say_paused(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_PAUSED, tb_frame_paused, .paused = 1);
}

static void say_paused_twice_over(struct rogue *r)
{
    ROGUE_SEND(r, TB_FRAME_PAUSED, tb_frame_paused, .paused = 2);
}

/* P7 P9: PAUSED is a word of protocol 3, and says yes or no. */
static void pauses_are_yes_or_no(void **state)
{
    (void)state;
    rogue_in_session(2, say_paused);
    rogue_in_session(3, say_paused_twice_over);
}

/* P7 P9: protocol 3 has sizes of segments, and none that no path has. */
static void segments_have_bounds(void **state)
{
    (void)state;
    rogue_in_session(2, say_segment);
    rogue_in_session(3, say_segment_too_small);
    rogue_in_session(3, say_segment_too_large);
}

static void a_day_is_spent_or_not(void **state)
{
    (void)state;
    rogue_in_session(1, say_spent);
    rogue_in_session(2, say_spent_twice_over);
}

/* P9: a message that protocol 3 added for views is no word of protocol 2, and has its bounds. */
static void views_have_bounds(void **state)
{
    (void)state;
    rogue_in_session(2, say_a_good_state);
    rogue_in_session(2, say_a_holdup);
    rogue_in_session(3, say_a_state_that_went_too_far);
    rogue_in_session(3, say_an_estimate_from_late_to_soon);
    rogue_in_session(3, say_a_holdup_that_is_none);
}

/* P8: manifests and bytes of a model that was not granted, or not asked for, are not given. */
static void nothing_is_given_without_a_subscription(void **state)
{
    (void)state;
    struct rogue r;
    rogue_init(&r);
    rogue_hello(&r, "west");
    WORLD_UNTIL(&r.w.net, r.greeted);
    ROGUE_SEND(&r, TB_FRAME_ASK, tb_frame_ask, .uid = r.t.key.uid);
    ROGUE_SEND(&r, TB_FRAME_WANT, tb_frame_want, .crossing = 1, .uid = r.t.key.uid);
    world_turns(&r.w.net, 50);
    assert_int_equal(r.manifests_seen, 0);
    assert_int_equal(site_stats(r.east, 0).crossings, 0);
    ROGUE_SEND(&r, TB_FRAME_SUBSCRIBE, tb_frame_subscribe, .model = rogue_name("policy"));
    ROGUE_SEND(&r, TB_FRAME_ASK, tb_frame_ask, .uid = r.t.key.uid);
    WORLD_UNTIL(&r.w.net, r.manifests_seen == 1);
    rogue_fini(&r);
}

static struct tb_version_key numbered(const struct rogue *r, uint32_t number)
{
    struct tb_version_key key = r->t.key;
    key.uid.bytes[0] ^= (uint8_t)number;
    key.uid.bytes[1] ^= (uint8_t)(number >> 8);
    return key;
}

static void announce(struct rogue *r, uint32_t number)
{
    const struct tb_version_key key = numbered(r, number);
    ROGUE_SEND(r, TB_FRAME_VERSION, tb_frame_version, .key = key, .state = TB_FRAME_VERSION_READY);
}

static struct tb_links_usage usage_of(const struct rogue *r, enum tb_links_table table)
{
    struct tb_links_usage usage;
    tb_links_usage(r->east->links, table, &usage);
    return usage;
}

/* P6, P7: asks have a bound. Those of a session before, which may never be answered, give way to
 * new ones, and the daemon hears it. */
static void asks_that_nobody_will_answer_give_way(void **state)
{
    (void)state;
    struct rogue r;
    rogue_init(&r);
    r.east->forgiving = true;
    rogue_greet(&r);
    for (uint32_t i = 1; i <= TB_LINKS_ASKS_MAX; i++)
        announce(&r, i);
    WORLD_UNTIL(&r.w.net, r.east->versions == TB_LINKS_ASKS_MAX);
    assert_false(r.east->again);
    struct tb_name user;
    assert_int_equal(usage_of(&r, TB_LINKS_TABLE_ASKS).used, TB_LINKS_ASKS_MAX);
    announce(&r, TB_LINKS_ASKS_MAX + 1); /* all may be answered yet */
    WORLD_UNTIL(&r.w.net, r.east->again);
    assert_int_equal(usage_of(&r, TB_LINKS_TABLE_ASKS).refused, 1);
    assert_int_equal(tb_links_table_most(r.east->links, TB_LINKS_TABLE_ASKS, &user), TB_LINKS_ASKS_MAX);
    assert_string_equal(user.text, "west");
    tb_wire_close(r.wire, TB_CANCELLED);
    WORLD_UNTIL(&r.w.net, r.closed && r.east->downs == 1);
    r.east->again = false;
    rogue_dial(&r);
    rogue_greet(&r);
    announce(&r, TB_LINKS_ASKS_MAX);
    announce(&r, TB_LINKS_ASKS_MAX + 2);
    WORLD_UNTIL(&r.w.net, r.asked == TB_LINKS_ASKS_SENT_MAX + 2);
    assert_int_equal(r.east->failed, 1);
    CHECK_STATUS(r.east->failed_why, TB_NOT_FOUND);
    rogue_fini(&r);
}

/* P6, P7: a peer has as many asks to answer as it may have, and the others go once it answered.
 * All of them leave the table. */
static void asks_wait_for_their_turn(void **state)
{
    (void)state;
    enum { COUNT = TB_LINKS_ASKS_SENT_MAX + 3 };
    struct rogue r;
    rogue_init(&r);
    rogue_greet(&r);
    for (uint32_t i = 1; i <= COUNT; i++)
        announce(&r, i);
    WORLD_UNTIL(&r.w.net, r.east->versions == COUNT && r.asked == TB_LINKS_ASKS_SENT_MAX);
    assert_int_equal(usage_of(&r, TB_LINKS_TABLE_ASKS).used, COUNT);
    world_turns(&r.w.net, 50);
    assert_int_equal(r.asked, TB_LINKS_ASKS_SENT_MAX);
    for (uint32_t i = 1; i <= COUNT; i++) {
        const struct tb_version_key key = numbered(&r, i);
        ROGUE_SEND(&r, TB_FRAME_GONE, tb_frame_gone, .uid = key.uid,
                   .status_negated = tb_frame_status(TB_SUPERSEDED));
        WORLD_UNTIL(&r.w.net, r.east->gone == (int)i);
    }
    WORLD_UNTIL(&r.w.net, r.asked == COUNT);
    assert_int_equal(usage_of(&r, TB_LINKS_TABLE_ASKS).used, 0);
    assert_int_equal(usage_of(&r, TB_LINKS_TABLE_ASKS).most, COUNT);
    assert_int_equal(usage_of(&r, TB_LINKS_TABLE_ANNOUNCED).used, 0);
    assert_int_equal(usage_of(&r, TB_LINKS_TABLE_ANNOUNCED).most, COUNT);
    rogue_fini(&r);
}

/* P7, P10: a peer that announces without end is dropped, and the table says that it was it. */
static void announcements_are_bounded(void **state)
{
    (void)state;
    struct rogue r;
    struct tb_name user;
    rogue_init(&r);
    r.east->no_land = true;
    rogue_greet(&r);
    for (uint32_t i = 1; i <= TB_LINKS_OFFERS_MAX + 1; i++)
        announce(&r, i);
    rogue_dropped(&r, TB_PEER_GARBLED);
    assert_int_equal(usage_of(&r, TB_LINKS_TABLE_ANNOUNCED).most, TB_LINKS_OFFERS_MAX);
    assert_int_equal(usage_of(&r, TB_LINKS_TABLE_ANNOUNCED).refused, 1);
    assert_int_equal(usage_of(&r, TB_LINKS_TABLE_ANNOUNCED).used, 0); /* its session is over */
    assert_int_equal(tb_links_table_most(r.east->links, TB_LINKS_TABLE_ANNOUNCED, &user),
                     TB_LINKS_OFFERS_MAX);
    assert_string_equal(user.text, "west");
    rogue_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_that_is_no_greeting_is_refused),
        cmocka_unit_test(a_frame_over_the_limit_is_refused),
        cmocka_unit_test(a_peer_that_breaks_the_protocol_is_dropped),
        cmocka_unit_test(bases_have_an_order),
        cmocka_unit_test(a_day_is_spent_or_not),
        cmocka_unit_test(runs_are_no_word_of_protocol_2),
        cmocka_unit_test(segments_have_bounds),
        cmocka_unit_test(pauses_are_yes_or_no),
        cmocka_unit_test(views_have_bounds),
        cmocka_unit_test(nothing_is_given_without_a_subscription),
        cmocka_unit_test(asks_that_nobody_will_answer_give_way),
        cmocka_unit_test(asks_wait_for_their_turn),
        cmocka_unit_test(announcements_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
