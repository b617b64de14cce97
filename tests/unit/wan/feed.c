/* feed.c - what streams and the main loop share: bases that go, notes that wait,
 * what the link carries.
 *
 * Covers: wan/send/feed.c wan/send/feed_parcels.c wan/send/feed_landings.c
 * Covers: wan/send/feed_choice.c wan/send/feed_day_budget.c wan/send/feed_rate_cap.c
 * Covers: wan/send/shared_places.c */
#include "wan/send/feed.h"

#include <string.h>

#include "tests/unit/check.h"
#include "wan/send/feed_choice.h"
#include "wan/send/feed_landings.h"
#include "wan/send/feed_limits.h"
#include "wan/send/feed_parcels.h"

static struct tb_shared_places *share_of(uint8_t n)
{
    static const struct tb_place none;
    const struct tb_id uid = {{n}};
    struct tb_shared_places *s = tb_shared_places_new(&uid, &none, 0, NULL);
    assert_non_null(s);
    return s;
}

static struct tb_feed *feed_new(void)
{
    struct tb_feed *f = tb_feed_new(TB_CHOICE_AUTO, 2);
    assert_non_null(f);
    tb_feed_session(f, 1, TB_LINK_PROTOCOL);
    tb_feed_use(f, 1);
    return f;
}

/* A parcel that waits goes whole once its base went, and nobody keeps the base alive. */
static void a_base_that_goes_is_let_go_of(void **state)
{
    (void)state;
    struct tb_feed *f = feed_new();
    struct tb_shared_places *version = share_of(2), *base = share_of(1);
    struct tb_feed_parcel p = {.share = version, .base = base, .crossing = 1, .parcel = {.count = 1}};
    atomic_bool hungry;
    atomic_init(&hungry, false);
    for (int i = 0; i < 2; i++) {
        tb_shared_places_ref(version);
        tb_shared_places_ref(base);
        assert_true(tb_feed_push(f, &p));
    }
    assert_false(tb_shared_places_only_ours(base));
    tb_feed_base_gone(f, base);
    assert_true(tb_shared_places_only_ours(base));
    CHECK_OK(tb_feed_pop(f, 1, 0, &hungry, &p));
    assert_null(p.base);
    tb_shared_places_unref(p.share);
    tb_feed_purge(f, 0);
    assert_true(tb_shared_places_only_ours(version));
    tb_feed_free(f);
    tb_shared_places_free(version);
    tb_shared_places_free(base);
}

/* A chunk that was refused takes the parcel back that has it and was to go again, and no other. */
static void a_parcel_that_goes_again_can_be_recalled(void **state)
{
    (void)state;
    struct tb_feed *f = feed_new();
    struct tb_shared_places *version = share_of(2);
    static const struct {
        uint32_t crossing, shard, first;
        bool again;
    } rows[] = {{1, 0, 5, false}, {1, 0, 5, true}, {1, 0, 9, true}, {1, 1, 5, true}, {2, 0, 5, true}};
    const uint32_t count = sizeof rows / sizeof rows[0];
    for (uint32_t i = 0; i < count; i++) {
        const struct tb_feed_parcel p = {
            .share = version,
            .crossing = rows[i].crossing,
            .again = rows[i].again,
            .parcel = {.shard = rows[i].shard, .first = rows[i].first, .count = 4}};
        tb_shared_places_ref(version);
        assert_true(tb_feed_push(f, &p));
    }
    struct tb_parcel parcel;
    assert_false(tb_feed_recall(f, &(struct tb_frame_refused){.crossing = 1, .chunk = 4}, &parcel));
    assert_false(tb_feed_recall(f, &(struct tb_frame_refused){.crossing = 1, .chunk = 13}, &parcel));
    assert_true(tb_feed_recall(f, &(struct tb_frame_refused){.crossing = 1, .chunk = 8}, &parcel));
    assert_true(parcel.shard == 0 && parcel.first == 5 && parcel.count == 4);
    assert_int_equal(tb_feed_ready(f), count - 1);
    assert_false(tb_feed_recall(f, &(struct tb_frame_refused){.crossing = 1, .chunk = 8}, &parcel));
    tb_feed_purge(f, 0);
    assert_true(tb_shared_places_only_ours(version));
    tb_feed_free(f);
    tb_shared_places_free(version);
}

/* A stream that asks for a landing hears that it had a base, also when that went: then a delta is
 * no mistake of the peer's. */
static void a_landing_remembers_that_it_had_a_base(void **state)
{
    (void)state;
    struct tb_feed *f = feed_new();
    struct tb_shared_places *version = share_of(2), *base = share_of(1);
    struct tb_feed_landing l;
    const struct tb_feed_landing alone = {.share = version};
    const uint32_t on_base =
                       tb_feed_landing_add(f, 0, &(struct tb_feed_landing){.share = version, .base = base}),
                   plain = tb_feed_landing_add(f, 0, &alone);
    assert_true(tb_feed_landing(f, on_base, &l));
    assert_true(l.on_base && l.share == version && l.base == base);
    tb_shared_places_unref(l.share);
    tb_shared_places_unref(l.base);
    tb_feed_base_gone(f, base);
    assert_true(tb_feed_landing(f, on_base, &l));
    assert_true(l.on_base && l.base == NULL);
    tb_shared_places_unref(l.share);
    assert_true(tb_feed_landing(f, plain, &l));
    assert_false(l.on_base);
    tb_shared_places_unref(l.share);
    tb_feed_landing_remove(f, on_base);
    assert_true(tb_feed_landing(f, on_base, &l)); /* over, and once given */
    assert_null(l.share);
    assert_false(tb_feed_landing(f, plain + 1, &l));
    tb_feed_free(f);
    tb_shared_places_free(version);
    tb_shared_places_free(base);
}

/* Before it lands, an asker hears that it may; then that it does, or never will. As
 * many as are told of. */
static void an_expected_version_may_land_yet(void **state)
{
    (void)state;
    struct tb_feed *f = feed_new();
    struct tb_shared_places *version = share_of(2);
    struct tb_feed_landing l;
    const struct tb_feed_landing alone = {.share = version};
    const uint32_t first = tb_feed_expect(f), second = tb_feed_expect(f);
    assert_true(second > first);
    assert_true(tb_feed_landing(f, first, &l) && l.expected && l.share == NULL);
    assert_int_equal(tb_feed_landing_add(f, first, &alone), first);
    assert_true(tb_feed_landing(f, first, &l) && !l.expected && l.share == version);
    tb_shared_places_unref(l.share);
    tb_feed_unexpect(f, second);
    assert_true(tb_feed_landing(f, second, &l) && !l.expected && l.share == NULL);
    assert_true(tb_feed_landing_add(f, 0, &alone) > second);
    uint32_t more = 0;
    while (tb_feed_expect(f) != 0)
        more++;
    assert_int_equal(more, TB_FEED_EXPECTED_MAX);
    tb_feed_unexpect(f, 0);
    assert_true(tb_feed_expect(f) != 0);
    tb_feed_free(f);
    tb_shared_places_free(version);
}

/* P7: a sender that can wait leaves half of the notes to streams, which cannot. */
static void a_sender_that_can_wait_leaves_room(void **state)
{
    (void)state;
    static struct tb_note notes[TB_FEED_NOTES_MAX];
    struct tb_feed *f = feed_new();
    const struct tb_note n = {.kind = TB_NOTE_BAD};
    uint32_t late = 0, all = 0;
    while (tb_feed_note_late(f, &n))
        late++;
    while (tb_feed_note(f, &n))
        all++;
    assert_int_equal(late, TB_FEED_NOTES_MAX / 2);
    assert_int_equal(late + all, TB_FEED_NOTES_MAX);
    assert_int_equal(tb_feed_collect_notes(f, notes), TB_FEED_NOTES_MAX);
    assert_true(tb_feed_note_late(f, &n));
    tb_feed_free(f);
}

static double goodput(struct tb_feed *f)
{
    struct tb_choice c;
    tb_feed_choice(f, &c);
    return c.goodput;
}

/* Eight streams that are busy together carry the sum, however rarely each is heard of; a writer
 * that encodes most of the time makes no slow link. */
static void a_link_carries_what_its_streams_carry(void **state)
{
    (void)state;
    struct tb_feed *f = feed_new();
    for (tb_time_ns turn = 0; turn < 100; turn++) { /* each every 240 ms: 100 kB, busy all the time */
        const struct tb_feed_slot c = {TB_SECONDS(5) + turn * TB_MS(30), TB_MS(240), TB_MS(240), 100000,
                                       true};
        tb_feed_carry(f, (uint32_t)(turn % 8), &c);
    }
    assert_true(goodput(f) > 3.0e6 && goodput(f) < 3.5e6);
    tb_feed_free(f);
    f = feed_new();
    for (tb_time_ns turn = 0; turn < 20; turn++) { /* 100 kB in 2 ms of each 20 */
        const struct tb_feed_slot c = {TB_SECONDS(5) + turn * TB_MS(20), TB_MS(20), TB_MS(2), 100000, false};
        tb_feed_carry(f, 0, &c);
    }
    assert_true(goodput(f) > 45e6 && goodput(f) < 55e6);
    tb_feed_free(f);
}

/* P7: no frame goes over a day's bytes, whichever streams begin them; what a stream that ended did
 * not send goes again. */
static void a_days_bytes_are_not_gone_over(void **state)
{
    (void)state;
    struct tb_feed *f = feed_new();
    uint64_t needs = 1;
    assert_true(tb_feed_spend(f, (uint64_t)1 << 40)); /* without a limit, and before one */
    tb_feed_until(f, ((uint64_t)1 << 40) + 1000);
    assert_true(tb_feed_spend(f, 900));
    assert_false(tb_feed_spent(f, &needs));
    assert_int_equal(needs, 0);
    assert_false(tb_feed_spend(f, 101));
    assert_true(tb_feed_spent(f, &needs));
    assert_int_equal(needs, 101);
    tb_feed_unspend(f, 50);
    assert_false(tb_feed_spent(f, &needs)); /* there is room for that one */
    assert_true(tb_feed_spend(f, 150));
    assert_true(tb_feed_spent(f, &needs)); /* to the byte */
    assert_int_equal(needs, 0);
    tb_feed_until(f, 10); /* an operator lowered it */
    assert_true(tb_feed_spent(f, NULL));
    assert_false(tb_feed_spend(f, 1));
    tb_feed_until(f, ((uint64_t)1 << 40) + 1001);
    assert_true(tb_feed_spend(f, 1));
    tb_feed_until(f, UINT64_MAX);
    assert_false(tb_feed_spent(f, NULL));
    tb_feed_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_base_that_goes_is_let_go_of),
        cmocka_unit_test(a_parcel_that_goes_again_can_be_recalled),
        cmocka_unit_test(a_landing_remembers_that_it_had_a_base),
        cmocka_unit_test(an_expected_version_may_land_yet),
        cmocka_unit_test(a_sender_that_can_wait_leaves_room),
        cmocka_unit_test(a_link_carries_what_its_streams_carry),
        cmocka_unit_test(a_days_bytes_are_not_gone_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
