/* plans.c - tests of gateway/catalog/plans.c and workers.c: whom a worker reads from. P6: it goes on elsewhere, and only it. */
#include "check.h"
#include "site.h"

/* v5 is in the gateway, in part; a, b and c are groups of one on three hosts. */
static void spread(struct site *s)
{
    east_open(s, 8);
    s->left_out = NOT_STORE | NOT_LANDING | NOT_PEERS | NOT_TELL | 1u << TB_CATALOG_GO;
    rank_begins(s);
    CHECK_OK(version_open(s, "rank", 5, 1, 5));
    CHECK_OK(seal(s, "rank", 5, 0, 50));
    land(s, 5, 0, 4);
    const char *const names[] = {"a", "b", "c"};
    for (uint32_t i = 0; i < 3; i++) {
        come(s, names[i]);
        CHECK_OK(join(s, names[i], names[i], 0, 1));
    }
    hush(s);
}

static uint64_t plan_of(struct site *s, const char *worker)
{
    uint32_t cursor = 0;
    struct tb_catalog_reference_view view;
    const struct tb_id id = session_of(worker);
    while (tb_catalog_reference_at(s->c, &cursor, &view))
        if (view.kind == TB_REFERENCE_WORKER && tb_id_equal(&view.session, &id)) return view.plan;
    return 0;
}

static enum tb_status hop_lost(struct site *s, const char *worker, uint64_t plan)
{
    const struct tb_id session = session_of(worker), v5 = id_of(5);
    return tb_catalog_hop_lost(s->c, s->now, &session, &v5, plan);
}

/* The second reader's source is told once it can be read there. */
static void hosts_form_a_chain_behind_the_gateway(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    CHECK_OK(stage(&s, "a", 5));
    said(&s, "[   0] plan a v5 from gateway\n");
    CHECK_OK(stage(&s, "b", 5));
    said(&s, ""); /* behind a, which has not exported */
    CHECK_OK(export_of(&s, "a", 5, 0));
    said(&s, "[   0] plan b v5 from a\n");
    CHECK_OK(export_of(&s, "b", 5, 0));
    CHECK_OK(stage(&s, "c", 5));
    said(&s, "[   0] plan c v5 from b\n");
    site_close(&s);
}

/* A byte reaches a host once. */
static void the_same_host_is_preferred(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    come_from(&s, "a2", "host-of-a", false);
    CHECK_OK(join(&s, "a2", "a2", 0, 1));
    CHECK_OK(stage(&s, "a", 5));
    CHECK_OK(export_of(&s, "a", 5, 0));
    CHECK_OK(stage(&s, "b", 5));
    CHECK_OK(export_of(&s, "b", 5, 0));
    CHECK_OK(stage(&s, "a2", 5));
    said(&s, "[   0] plan a v5 from gateway\n"
             "[   0] plan b v5 from a\n"
             "[   0] plan a2 v5 from a\n");
    site_close(&s);
}

/* P6: killed in the middle of the chain; its reader goes on with what it has, the others stay where they are. */
static void only_the_readers_of_the_dead_are_moved(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    const char *const names[] = {"a", "b", "c"};
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_OK(stage(&s, names[i], 5));
        CHECK_OK(export_of(&s, names[i], 5, 0));
    }
    said(&s, "[   0] plan a v5 from gateway\n"
             "[   0] plan b v5 from a\n"
             "[   0] plan c v5 from b\n");
    const struct tb_id b = session_of("b");
    tb_catalog_session_close(s.c, s.now, &b);
    said(&s, "[   0] plan c v5 from a\n");
    site_close(&s);
}

static void a_release_moves_its_readers(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    CHECK_OK(stage(&s, "a", 5));
    CHECK_OK(export_of(&s, "a", 5, 0));
    CHECK_OK(stage(&s, "b", 5));
    hush(&s);
    const struct tb_id a = session_of("a"), v5 = id_of(5);
    CHECK_OK(tb_catalog_release(s.c, s.now, &a, &v5));
    said(&s, "[   0] plan b v5 from gateway\n");
    CHECK_STATUS(tb_catalog_release(s.c, s.now, &a, &v5), TB_DONE_BEFORE); /* P4 */
    site_close(&s);
}

/* Nobody else has it: the reader is told so, and when somebody has. */
static void without_a_source_it_waits(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    CHECK_OK(version_open(&s, "rank", 6, 1, 6));
    CHECK_OK(seal(&s, "rank", 6, 0, 60)); /* the gateway has no space for it yet */
    CHECK_OK(export_of(&s, "a", 6, SHARD_CHUNKS));
    CHECK_OK(stage(&s, "b", 6));
    said(&s, "[   0] plan b v6 from a\n");
    const struct tb_id a = session_of("a"), v6 = id_of(6);
    CHECK_OK(tb_catalog_release(s.c, s.now, &a, &v6));
    said(&s, "[   0] plan b v6 from nobody\n");
    land(&s, 6, 0, 1);
    said(&s, "[   0] plan b v6 from gateway\n");
    site_close(&s);
}

static void a_failed_source_is_avoided_until_it_shows_progress(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    CHECK_OK(stage(&s, "a", 5));
    CHECK_OK(export_of(&s, "a", 5, 2));
    CHECK_OK(stage(&s, "b", 5));
    hush(&s);
    const uint64_t first = plan_of(&s, "b");
    CHECK_OK(hop_lost(&s, "b", first));
    said(&s, "[   0] plan b v5 from gateway\n");
    CHECK_STATUS(hop_lost(&s, "b", first), TB_DONE_BEFORE); /* of an old plan: P4 */
    said(&s, "");
    /* a goes on, so it is as good as before. */
    CHECK_OK(progress(&s, "a", 5, 3));
    CHECK_OK(hop_lost(&s, "b", plan_of(&s, "b")));
    said(&s, "[   0] plan b v5 from a\n");
    site_close(&s);
}

/* P6: who reads from the same source gets nothing either until it has noticed, too: the first to notice goes to the gateway, though that
 * feeds the source, and the next comes behind it. */
static void who_reads_from_what_failed_is_no_way_out(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    come_from(&s, "a2", "host-of-a", false);
    CHECK_OK(join(&s, "a2", "a2", 0, 1));
    const char *const names[] = {"a", "b", "a2"};
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_OK(stage(&s, names[i], 5));
        CHECK_OK(export_of(&s, names[i], 5, 0));
    }
    said(&s, "[   0] plan a v5 from gateway\n"
             "[   0] plan b v5 from a\n"
             "[   0] plan a2 v5 from a\n");
    CHECK_OK(hop_lost(&s, "a2", plan_of(&s, "a2")));
    said(&s, "[   0] plan a2 v5 from gateway\n");
    CHECK_OK(hop_lost(&s, "b", plan_of(&s, "b")));
    said(&s, "[   0] plan b v5 from a2\n");
    site_close(&s);
}

/* The twin: it was the only one; it is tried again after a while. */
static void the_only_source_is_tried_again(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    CHECK_OK(stage(&s, "a", 5));
    hush(&s);
    CHECK_OK(hop_lost(&s, "a", plan_of(&s, "a")));
    said(&s, "");
    const char *const renewing[] = {"rank", "a", "b", "c", NULL};
    assert_true(tb_catalog_next_deadline(s.c) == s.now + TB_SECONDS(1));
    pass_ms(&s, 950, renewing);
    said(&s, "");
    pass_ms(&s, 50, renewing);
    said(&s, "[1000] plan a v5 from gateway\n");
    site_close(&s);
}

/* P3: after a restart a worker says what it has, and is a source again. */
static void an_export_nobody_asked_for_is_a_source(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    CHECK_OK(export_of(&s, "a", 5, SHARD_CHUNKS));
    CHECK_OK(stage(&s, "b", 5));
    said(&s, "[   0] plan b v5 from a\n");
    assert_string_equal(state_of(&s, 5), "kept");
    site_close(&s);
}

static enum tb_status reads_only(struct site *s, const char *worker, bool whole)
{
    const struct tb_id session = session_of(worker), v5 = id_of(5);
    const enum tb_status status = tb_catalog_export(s->c, s->now, &session, &v5, 0, whole ? 10 : 0, whole);
    drain(s);
    return status;
}

/* P3 P6: a worker that keeps a version in a form of its own is nobody's source, who waited for it goes elsewhere, and what it has
 * is no copy. */
static void who_reads_only_is_no_source_and_no_copy(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    CHECK_OK(stage(&s, "a", 5));
    CHECK_OK(stage(&s, "b", 5));
    said(&s, "[   0] plan a v5 from gateway\n");
    CHECK_OK(reads_only(&s, "a", false));
    said(&s, "[   0] plan b v5 from gateway\n");
    CHECK_OK(reads_only(&s, "a", true));
    assert_string_equal(state_of(&s, 5), "ready"); /* of ten chunks the gateway has four */
    CHECK_OK(stage(&s, "c", 5));
    CHECK_OK(export_of(&s, "b", 5, 0));
    said(&s, "[   0] plan c v5 from b\n");
    CHECK_OK(staged(&s, "b", 5));
    assert_string_equal(state_of(&s, 5), "kept");
    site_close(&s);
}

/* P6: a worker whose word of where it can be read was lost, as one that said it before a restarted gateway knew the version: who
 * waited for that word goes elsewhere once it is whole, and nobody is sent to it until it says it again. */
static void who_is_whole_and_said_not_where_is_no_source(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    CHECK_OK(stage(&s, "a", 5));
    CHECK_OK(stage(&s, "b", 5));
    said(&s, "[   0] plan a v5 from gateway\n"); /* b waits for a, which reads still */
    CHECK_OK(progress(&s, "a", 5, SHARD_CHUNKS));
    said(&s, "[   0] plan b v5 from gateway\n");
    CHECK_OK(export_of(&s, "a", 5, SHARD_CHUNKS));
    CHECK_OK(stage(&s, "c", 5));
    said(&s, "[   0] plan c v5 from a\n");
    site_close(&s);
}

static void whole_readers_read_no_more(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    CHECK_OK(stage(&s, "a", 5));
    CHECK_OK(export_of(&s, "a", 5, 0));
    CHECK_OK(progress(&s, "a", 5, SHARD_CHUNKS));
    assert_int_equal(plan_of(&s, "a"), 0);
    CHECK_OK(stage(&s, "b", 5));
    CHECK_OK(stage(&s, "c", 5));
    said(&s, "[   0] plan b v5 from a\n"); /* a plan that was overtaken is not said any more */
    const struct tb_id b = session_of("b"), v5 = id_of(5);
    struct tb_catalog_reference_view view;
    assert_true(tb_catalog_plan_get(s.c, &b, &v5, plan_of(&s, "b"), &view));
    assert_string_equal(view.upstream_name.text, "a");
    assert_false(tb_catalog_plan_get(s.c, &b, &v5, 12345, &view));
    site_close(&s);
}

/* gateway - a - b - c; a reads 10,000 bytes a second, which are eight chunks in 80 ms, b and c `rate`. */
static void chain_with_a_brake(struct site *s, uint64_t rate)
{
    const char *const names[] = {"a", "b", "c"};
    spread(s);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_OK(stage(s, names[i], 5));
        CHECK_OK(export_of(s, names[i], 5, 0));
    }
    hush(s);
    for (uint32_t held = 1; held < SHARD_CHUNKS - 3; held++) {
        s->now += TB_MS(20);
        CHECK_OK(progress_at(s, "a", 5, held, 10000));
        CHECK_OK(progress_at(s, "b", 5, held, rate));
        CHECK_OK(progress_at(s, "c", 5, held, rate)); /* held up by b, and not to be blamed */
    }
}

static bool slow(struct site *s, const char *worker)
{
    uint32_t cursor = 0;
    struct tb_catalog_reference_view view;
    const struct tb_id id = session_of(worker);
    while (tb_catalog_reference_at(s->c, &cursor, &view))
        if (view.kind == TB_REFERENCE_WORKER && tb_id_equal(&view.session, &id)) return view.slow;
    return false;
}

/* P6: who holds up those behind it becomes a leaf: its reader takes its place, and it comes behind that one; nobody else moves. */
static void a_slow_worker_becomes_a_leaf(void **state)
{
    (void)state;
    struct site s;
    chain_with_a_brake(&s, 4000);
    said(&s, "[ 120] plan c v5 from a\n"
             "[ 120] plan b v5 from c\n");
    assert_true(slow(&s, "b"));
    assert_false(slow(&s, "c"));
    site_close(&s);
}

/* P6: what it reads from has stopped, which shows as its own slowness first. Who is to take its place is not taken in there, so it
 * stays: when it notices it goes on at once, and not behind that one, which still waits for an answer. */
static void nobody_is_put_behind_who_waits_for_the_stopped(void **state)
{
    (void)state;
    struct site s;
    chain_with_a_brake(&s, 4000);
    s.stopped = "a";
    said(&s, "[ 120] plan c v5 from a\n");
    CHECK_OK(hop_lost(&s, "b", plan_of(&s, "b")));
    said(&s, "[ 120] plan b v5 from gateway\n");
    CHECK_OK(hop_lost(&s, "c", plan_of(&s, "c"))); /* no answer came */
    said(&s, "[ 120] plan c v5 from gateway\n");   /* b counts as slow */
    site_close(&s);
}

/* The twin: what had stopped goes on and answers, late. */
static void who_is_slow_goes_behind_who_was_taken_in_late(void **state)
{
    (void)state;
    struct site s;
    chain_with_a_brake(&s, 4000);
    s.stopped = "a";
    said(&s, "[ 120] plan c v5 from a\n");
    const struct tb_id c = session_of("c"), v5 = id_of(5);
    CHECK_STATUS(tb_catalog_plan_told(s.c, s.now, &c, &v5, plan_of(&s, "c") - 1), TB_DONE_BEFORE); /* P4 */
    come(&s, "d");
    CHECK_OK(join(&s, "d", "d", 0, 1));
    CHECK_OK(stage(&s, "d", 5));
    said(&s, "[ 120] plan d v5 from c\n"); /* which says nothing of a */
    CHECK_OK(tb_catalog_plan_told(s.c, s.now, &c, &v5, plan_of(&s, "c")));
    CHECK_OK(export_of(&s, "d", 5, 0));
    said(&s, "[ 120] plan b v5 from d\n");
    CHECK_OK(tb_catalog_plan_told(s.c, s.now, &c, &v5, plan_of(&s, "c")));
    said(&s, "");
    site_close(&s);
}

/* P6: a worker that did not answer a reader, or the site, is not found out by each of those who come next; nor is who reads from it.
 * Its next word ends that. */
static void nobody_is_sent_to_who_does_not_answer(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    come_from(&s, "a2", "host-of-a", false);
    CHECK_OK(join(&s, "a2", "a2", 0, 1));
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_OK(stage(&s, i == 0 ? "a" : "b", 5));
        CHECK_OK(export_of(&s, i == 0 ? "a" : "b", 5, 0));
    }
    hush(&s);
    const struct tb_id a = session_of("a"), c = session_of("c"), v5 = id_of(5);
    tb_catalog_session_silent(s.c, s.now, &a);
    said(&s, ""); /* nobody is moved for it */
    CHECK_OK(stage(&s, "c", 5));
    CHECK_OK(export_of(&s, "c", 5, 0));
    CHECK_OK(stage(&s, "a2", 5)); /* though it is of a's host */
    said(&s, "[   0] plan c v5 from gateway\n"
             "[   0] plan a2 v5 from c\n");
    CHECK_OK(tb_catalog_release(s.c, s.now, &c, &v5));
    CHECK_OK(tb_catalog_session_renew(s.c, s.now, &a));
    CHECK_OK(stage(&s, "c", 5));
    said(&s, "[   0] plan a2 v5 from gateway\n"
             "[   0] plan c v5 from b\n");
    site_close(&s);
}

/* P6: also of a version that it stages while it is silent, as a restarted catalog hears of it, and of a rank. */
static void who_does_not_answer_is_no_source_of_any_version(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    const struct tb_id a = session_of("a");
    tb_catalog_session_silent(s.c, s.now, &a);
    CHECK_OK(stage(&s, "a", 5));
    CHECK_OK(export_of(&s, "a", 5, 2));
    CHECK_OK(stage(&s, "b", 5));
    said(&s, "[   0] plan a v5 from gateway\n"
             "[   0] plan b v5 from gateway\n");
    site_close(&s);
}

/* P6: nothing gets to it any more, although its session is alive: it does not keep the rate that it told last. */
static void a_worker_that_gets_nothing_becomes_a_leaf(void **state)
{
    (void)state;
    struct site s;
    chain_with_a_brake(&s, 10000);
    for (uint32_t held = 7; held < 9; held++) {
        said(&s, "");
        s.now += TB_MS(50);
        CHECK_OK(progress_at(&s, "a", 5, held, 10000));
        CHECK_OK(progress_at(&s, "b", 5, 6, 0));
        CHECK_OK(progress_at(&s, "c", 5, 6, 0));
    }
    said(&s, "[ 220] plan c v5 from a\n"
             "[ 220] plan b v5 from c\n");
    assert_true(slow(&s, "b"));
    site_close(&s);
}

/* The twin: there is nothing more for them. */
static void who_waits_for_its_source_is_not_slow(void **state)
{
    (void)state;
    struct site s;
    chain_with_a_brake(&s, 10000);
    land(&s, 5, 0, 6);
    for (uint32_t times = 0; times < 10; times++) {
        s.now += TB_SECONDS(1);
        CHECK_OK(progress_at(&s, "b", 5, 6, 0)); /* before the others have said so */
        CHECK_OK(progress_at(&s, "c", 5, 6, 0));
        CHECK_OK(progress_at(&s, "a", 5, 6, 0));
    }
    land(&s, 5, 0, 8);
    s.now += TB_MS(10);
    CHECK_OK(progress_at(&s, "a", 5, 8, 10000));
    s.now += TB_MS(500);
    CHECK_OK(progress_at(&s, "b", 5, 7, 200)); /* it came down the chain in that time */
    said(&s, "");
    assert_false(slow(&s, "a") || slow(&s, "b") || slow(&s, "c"));
    site_close(&s);
}

/* P6: it is one of the next version too, from the beginning; unless it kept up with one. */
static void who_was_slow_begins_as_a_leaf(void **state)
{
    (void)state;
    for (uint32_t forgiven = 0; forgiven < 2; forgiven++) {
        struct site s;
        chain_with_a_brake(&s, 4000);
        if (forgiven)
            for (uint32_t held = SHARD_CHUNKS - 3; held < SHARD_CHUNKS - 1; held++, s.now += TB_MS(20))
                CHECK_OK(progress_at(&s, "b", 5, held, 5000));
        const char *const names[] = {"a", "b", "c"};
        for (uint32_t i = 0; i < 3; i++) {
            const struct tb_id session = session_of(names[i]), v5 = id_of(5);
            CHECK_OK(tb_catalog_release(s.c, s.now, &session, &v5));
        }
        CHECK_OK(version_open(&s, "rank", 6, 1, 6));
        CHECK_OK(seal(&s, "rank", 6, 0, 60));
        land(&s, 6, 0, 4);
        hush(&s);
        s.left_out = ~(1u << TB_CATALOG_PLAN);
        CHECK_OK(stage(&s, "b", 6));
        CHECK_OK(export_of(&s, "b", 6, 0));
        CHECK_OK(stage(&s, "c", 6));
        said(&s, forgiven ? "[ 160] plan b v6 from gateway\n"
                            "[ 160] plan c v6 from b\n"
                          : "[ 120] plan b v6 from gateway\n"
                            "[ 120] plan c v6 from gateway\n");
        for (uint32_t times = 0; times < 2; times++, s.now += TB_SECONDS(1))
            CHECK_OK(progress_at(&s, "b", 6, 0, 0)); /* which is nothing to be forgiven for */
        const struct tb_id b = session_of("b"), v6 = id_of(6);
        CHECK_OK(tb_catalog_release(s.c, s.now, &b, &v6));
        CHECK_OK(stage(&s, "b", 6));
        assert_int_equal(slow(&s, "b"), !forgiven);
        site_close(&s);
    }
}

/* The twin: half of what the others do is not slow. */
static void who_keeps_up_stays(void **state)
{
    (void)state;
    struct site s;
    chain_with_a_brake(&s, 6000);
    said(&s, "");
    assert_false(slow(&s, "b"));
    site_close(&s);
}

/* P6: one bad word makes no leaf, also where nobody had time to look at the word before it. */
static void a_word_that_nobody_looked_at_counts_for_nothing(void **state)
{
    (void)state;
    struct site s;
    chain_with_a_brake(&s, 10000); /* until 120 ms all is well */
    s.now += TB_MS(30);
    CHECK_OK(progress_at(&s, "c", 5, 7, 4000)); /* it is looked at */
    CHECK_OK(progress_at(&s, "b", 5, 7, 4000)); /* and this one is not, so soon after */
    s.now += TB_MS(60); /* eight chunks take the others 80 ms: 90 have gone by, and it has told of 60 */
    CHECK_OK(progress_at(&s, "b", 5, 8, 4000));
    assert_false(slow(&s, "b"));
    s.now += TB_MS(30);
    CHECK_OK(progress_at(&s, "b", 5, 9, 4000));
    assert_true(slow(&s, "b"));
    site_close(&s);
}

/* ---- ranks ---- */

/* A version of that many shards, sealed in place or not; "near" is on the rank's host, "a" is not. */
static void beside_a_rank(struct site *s, bool in_place, uint32_t shards)
{
    east_open(s, 8);
    s->left_out = NOT_STORE | NOT_LANDING | NOT_PEERS | NOT_TELL | 1u << TB_CATALOG_GO;
    come_from(s, "rank", "mill", false);
    CHECK_OK(run_open(s, "rank", "k", 100));
    CHECK_OK(version_open(s, "rank", 5, shards, 5));
    for (uint32_t i = 0; i < shards; i++) {
        const struct tb_catalog_seal q = {.session = session_of("rank"),
                                          .uid = id_of(5),
                                          .shard = i,
                                          .root = root_of(50),
                                          .chunk_count = SHARD_CHUNKS,
                                          .bytes = SHARD_BYTES,
                                          .export_id = 1,
                                          .in_place = in_place};
        CHECK_OK(tb_catalog_seal(s->c, s->now, &q));
    }
    land(s, 5, 0, 4);
    come_from(s, "near", "mill", false);
    come(s, "a");
    CHECK_OK(join(s, "near", "near", 0, 1));
    CHECK_OK(join(s, "a", "a", 0, 1));
    hush(s);
}

/* What was published in place is read by its own host there, and by nobody else. When the rank takes it back the reader goes on
 * elsewhere, at once (P6). */
static void a_rank_in_place_is_read_by_its_own_host(void **state)
{
    (void)state;
    struct site s;
    beside_a_rank(&s, true, 1);
    CHECK_OK(stage(&s, "near", 5));
    said(&s, "[   0] plan near v5 from rank\n");
    CHECK_OK(stage(&s, "a", 5));
    CHECK_OK(export_of(&s, "near", 5, 0));
    said(&s, "[   0] plan a v5 from near\n");
    const struct tb_id rank = session_of("rank"), v5 = id_of(5);
    CHECK_OK(tb_catalog_unpublish(s.c, s.now, &rank, &v5, 0, TB_SECONDS(1)));
    said(&s, "[   0] plan near v5 from gateway\n");
    site_close(&s);
}

/* One that fails its reader is avoided like any source. */
static void a_rank_that_failed_is_avoided(void **state)
{
    (void)state;
    struct site s;
    beside_a_rank(&s, true, 1);
    CHECK_OK(stage(&s, "near", 5));
    said(&s, "[   0] plan near v5 from rank\n");
    CHECK_OK(hop_lost(&s, "near", plan_of(&s, "near")));
    said(&s, "[   0] plan near v5 from gateway\n");
    site_close(&s);
}

/* Nor is one that answers nobody asked. */
static void a_rank_that_does_not_answer_is_left_alone(void **state)
{
    (void)state;
    struct site s;
    beside_a_rank(&s, true, 1);
    const struct tb_id rank = session_of("rank");
    tb_catalog_session_silent(s.c, s.now, &rank);
    CHECK_OK(stage(&s, "near", 5));
    said(&s, "[   0] plan near v5 from gateway\n");
    site_close(&s);
}

/* P6: who comes after such a rank has gone, and is given its row, has failed nobody. */
static void nobody_is_avoided_in_place_of_a_rank(void **state)
{
    (void)state;
    struct site s;
    const struct tb_id rank = session_of("rank"), v5 = id_of(5);
    beside_a_rank(&s, true, 1);
    CHECK_OK(stage(&s, "near", 5));
    CHECK_OK(reads_only(&s, "near", false)); /* nobody is behind it */
    said(&s, "[   0] plan near v5 from rank\n");
    CHECK_OK(hop_lost(&s, "near", plan_of(&s, "near")));
    land(&s, 5, 0, SHARD_CHUNKS);
    hush(&s);
    CHECK_OK(tb_catalog_unpublish(s.c, s.now, &rank, &v5, 0, TB_SECONDS(1)));
    hush(&s);
    CHECK_OK(stage(&s, "a", 5));
    CHECK_OK(export_of(&s, "a", 5, 0));
    hush(&s);
    CHECK_OK(hop_lost(&s, "near", plan_of(&s, "near")));
    said(&s, "[   0] plan near v5 from a\n");
    site_close(&s);
}

/* P6: a rank whose process ends is a source that ends. */
static void a_rank_that_is_gone_feeds_nobody(void **state)
{
    (void)state;
    struct site s;
    beside_a_rank(&s, true, 1);
    CHECK_OK(stage(&s, "near", 5));
    said(&s, "[   0] plan near v5 from rank\n");
    land(&s, 5, 0, SHARD_CHUNKS); /* else the version ends with it */
    hush(&s);
    const struct tb_id rank = session_of("rank");
    tb_catalog_session_close(s.c, s.now, &rank);
    said(&s, "[   0] plan near v5 from gateway\n");
    site_close(&s);
}

/* The twins: a shadow is used again, and of several shards a rank has one. */
static void other_ranks_are_read_by_the_gateway_alone(void **state)
{
    (void)state;
    for (uint32_t shards = 1; shards <= 2; shards++) {
        struct site s;
        beside_a_rank(&s, shards == 2, shards);
        CHECK_OK(stage(&s, "near", 5));
        said(&s, "[   0] plan near v5 from gateway\n");
        site_close(&s);
    }
}

/* ---- the first of a chain ---- */

#define LONG_CHUNKS 64u /* of 100 bytes */

static void all_stage(struct site *s, uint64_t number, const char *const *names)
{
    for (uint32_t i = 0; names[i] != NULL; i++) {
        CHECK_OK(stage(s, names[i], number));
        CHECK_OK(export_of(s, names[i], number, 0));
    }
    drain(s);
}

/* A version of so many chunks, of which the gateway holds `landed`, for the workers in that order: a chain. */
static void long_chain(struct site *s, uint64_t number, uint32_t landed, const char *const *names)
{
    const struct tb_id uid = id_of(number);
    CHECK_OK(version_open(s, "rank", number, 1, number));
    const struct tb_catalog_seal q = {.session = session_of("rank"),
                                      .uid = uid,
                                      .root = root_of((uint8_t)number),
                                      .chunk_count = LONG_CHUNKS,
                                      .bytes = 100 * (uint64_t)LONG_CHUNKS,
                                      .export_id = 1};
    CHECK_OK(tb_catalog_seal(s->c, s->now, &q));
    land(s, number, 0, landed);
    all_stage(s, number, names);
}

static void long_chain_ends(struct site *s, uint64_t number, const char *const *names)
{
    const struct tb_id uid = id_of(number);
    for (uint32_t i = 0; names[i] != NULL; i++) {
        const struct tb_id session = session_of(names[i]);
        CHECK_OK(tb_catalog_release(s->c, s->now, &session, &uid));
    }
    hush(s);
}

static void tell(struct site *s, const char *worker, uint64_t number, uint32_t held, uint64_t rate)
{
    const struct tb_catalog_progress p = {.session = session_of(worker),
                                          .uid = id_of(number),
                                          .held_chunks = held,
                                          .total_chunks = LONG_CHUNKS,
                                          .bytes_per_s = rate};
    CHECK_OK(tb_catalog_progress(s->c, s->now, &p));
}

/* A second passes, and each tells of it in their order, 10 ms after the one before: one look in 10 ms is all that a version gets. */
static void second(struct site *s, uint64_t number, const char *const *names, uint32_t held, uint64_t rate)
{
    const tb_time_ns end = tb_time_add(s->now, TB_SECONDS(1));
    uint32_t count = 0;
    while (names[count] != NULL)
        count++;
    for (uint32_t i = 0; i < count; i++) {
        s->now = end - TB_MS(10) * (count - 1 - i);
        tell(s, names[i], number, held > i ? held - i : 1, rate);
    }
    drain(s);
}

static const char *const abc[] = {"a", "b", "c", NULL}, *const bc[] = {"b", "c", NULL},
                         *const cab[] = {"c", "a", "b", NULL}, *const bca[] = {"b", "c", "a", NULL};

static void three_workers(struct site *s)
{
    spread(s);
    s->left_out = ~(1u << TB_CATALOG_PLAN);
    hush(s);
}

/* P6: all read at the rate of the first, so nobody shows that it is slow. One that depends on it takes its place, reads five times
 * as fast, and then it is slow beside the others; in the next version it stands last from the beginning. */
static void a_slow_first_of_a_chain_is_found(void **state)
{
    (void)state;
    struct site s;
    three_workers(&s);
    long_chain(&s, 6, LONG_CHUNKS, abc);
    said(&s, "[   0] plan a v6 from gateway\n"
             "[   0] plan b v6 from a\n"
             "[   0] plan c v6 from b\n");
    second(&s, 6, abc, 4, 400);
    said(&s, ""); /* its first word is not judged */
    second(&s, 6, abc, 8, 400);
    said(&s, "[2000] plan b v6 from gateway\n"
             "[2000] plan a v6 from c\n");
    assert_false(slow(&s, "a")); /* nothing is known of it yet */
    second(&s, 6, bc, 20, 2000);
    tell(&s, "a", 6, 12, 400);
    second(&s, 6, bc, 40, 2000);
    tell(&s, "a", 6, 16, 400);
    assert_true(slow(&s, "a"));
    said(&s, "");
    long_chain_ends(&s, 6, abc);
    long_chain(&s, 7, LONG_CHUNKS, abc);
    said(&s, "[4000] plan a v7 from gateway\n"
             "[4000] plan b v7 from gateway\n"
             "[4000] plan c v7 from b\n");
    site_close(&s);
}

/* The twin: where the chain is as fast as before whoever leads it, two are tried and nobody is slow; versions after it are not
 * troubled, unless the first of a chain reads at under half of what was seen here. */
static void a_chain_as_slow_as_its_source_is_left_alone(void **state)
{
    (void)state;
    struct site s;
    three_workers(&s);
    long_chain(&s, 6, LONG_CHUNKS, abc);
    hush(&s);
    second(&s, 6, abc, 4, 400);
    second(&s, 6, abc, 8, 400);
    said(&s, "[2000] plan b v6 from gateway\n"
             "[2000] plan a v6 from c\n");
    second(&s, 6, bca, 12, 400);
    second(&s, 6, bca, 16, 400);
    said(&s, ""); /* how the last reads there is not known yet */
    second(&s, 6, bca, 18, 400);
    said(&s, "[5000] plan c v6 from gateway\n"
             "[5000] plan b v6 from a\n");
    for (uint32_t held = 20; held < 32; held += 4)
        second(&s, 6, cab, held, 400);
    for (uint32_t held = 32; held < 52; held += 4)
        second(&s, 6, cab, held, 100); /* this one has been troubled enough */
    said(&s, "");
    assert_false(slow(&s, "a") || slow(&s, "b") || slow(&s, "c"));
    long_chain_ends(&s, 6, abc);
    long_chain(&s, 7, LONG_CHUNKS, abc);
    hush(&s);
    for (uint32_t held = 4; held < 32; held += 2)
        second(&s, 7, abc, held, 200);
    said(&s, "");
    second(&s, 7, abc, 33, 100);
    said(&s, "[28000] plan b v7 from gateway\n"
             "[28000] plan a v7 from c\n");
    long_chain_ends(&s, 7, abc);
    site_close(&s);
}

/* P6: what was tried with those who read it before says nothing of those who come when all of them have ended. */
static void who_comes_when_all_have_ended_is_searched_anew(void **state)
{
    (void)state;
    struct site s;
    three_workers(&s);
    long_chain(&s, 6, LONG_CHUNKS, abc);
    for (uint32_t held = 4; held < 40; held += 4)
        second(&s, 6, abc, held, 400); /* two are tried, and it stays as fast as that */
    long_chain_ends(&s, 6, abc);
    all_stage(&s, 6, abc);
    hush(&s);
    second(&s, 6, abc, 4, 100);
    said(&s, "");
    second(&s, 6, abc, 8, 100);
    said(&s, "[11000] plan b v6 from gateway\n"
             "[11000] plan a v6 from c\n");
    site_close(&s);
}

/* P6: it got all that was to be had, and then nothing any more: one that depends on it takes its place. */
static void a_first_of_a_chain_that_gets_nothing_is_found(void **state)
{
    (void)state;
    struct site s;
    three_workers(&s);
    long_chain(&s, 6, LONG_CHUNKS, abc);
    second(&s, 6, abc, 4, 400);
    second(&s, 6, abc, 8, 400);
    for (uint32_t held = 12; held <= 18; held += 3)
        second(&s, 6, bca, held, 400);
    for (uint32_t held = 20; held < 32; held += 4)
        second(&s, 6, cab, held, 400); /* 400 is what is to be had */
    long_chain_ends(&s, 6, abc);
    long_chain(&s, 7, LONG_CHUNKS, abc);
    hush(&s);
    second(&s, 7, abc, 4, 400);
    second(&s, 7, abc, 8, 400);
    said(&s, "");
    second(&s, 7, abc, 8, 0);
    said(&s, "[11000] plan b v7 from gateway\n"
             "[11000] plan a v7 from c\n");
    site_close(&s);
}

/* P6: nothing at all comes to the first of a chain, not even one chunk, while its gateway has all: nobody has told a rate, so nobody
 * can be compared. At the second such word one that waits for it takes its place, also one that joined long after, and however little
 * there is to read; where that one reads, the other is slow beside it. */
static void a_first_of_a_chain_that_never_got_anything_is_found(void **state)
{
    (void)state;
    for (uint32_t landed = 2; landed <= LONG_CHUNKS; landed += LONG_CHUNKS - 2) {
        struct site s;
        three_workers(&s);
        long_chain(&s, 6, landed, abc + 3);
        for (uint32_t i = 0; i < 3; i++, s.now += TB_SECONDS(1)) {
            CHECK_OK(stage(&s, abc[i], 6));
            CHECK_OK(export_of(&s, abc[i], 6, 0));
        }
        hush(&s);
        tell(&s, "b", 6, 0, 0);
        tell(&s, "a", 6, 0, 0);
        tell(&s, "c", 6, 0, 0);
        said(&s, ""); /* one word is no verdict */
        s.now += TB_SECONDS(1);
        tell(&s, "a", 6, 0, 0);
        said(&s, "[4000] plan b v6 from gateway\n"
                 "[4000] plan a v6 from c\n");
        assert_false(slow(&s, "a"));
        s.now += TB_SECONDS(1);
        tell(&s, "b", 6, 1, 2000);
        tell(&s, "c", 6, 1, 2000);
        for (uint32_t word = 0; word < 4; word++, s.now += TB_SECONDS(1))
            tell(&s, "a", 6, 0, 0);
        assert_true(slow(&s, "a"));
        assert_false(slow(&s, "b") || slow(&s, "c"));
        site_close(&s);
    }
}

/* P6: however many of them stand before the others. */
static void three_that_get_nothing_before_the_others_are_found(void **state)
{
    (void)state;
    struct site s;
    static const char *const abcd[] = {"a", "b", "c", "d", NULL};
    three_workers(&s);
    come(&s, "d");
    CHECK_OK(join(&s, "d", "d", 0, 1));
    long_chain(&s, 6, LONG_CHUNKS, abcd);
    hush(&s);
    for (uint32_t word = 0; word < 9; word++) {
        s.now += TB_MS(970);
        for (uint32_t i = 0; i < 4; i++, s.now += TB_MS(10))
            tell(&s, abcd[i], 6, i == 3 && word > 3 ? word : 0, i == 3 && word > 3 ? 2000 : 0);
        drain(&s);
    }
    said(&s, "[2020] plan b v6 from gateway\n"
             "[2020] plan a v6 from d\n"
             "[3030] plan c v6 from gateway\n"
             "[3030] plan b v6 from a\n"
             "[4040] plan d v6 from gateway\n"
             "[4040] plan c v6 from b\n"
             "[8080] plan b v6 from d\n" /* a gets nothing of what d has */
             "[8080] plan a v6 from c\n");
    assert_true(slow(&s, "a"));
    assert_false(slow(&s, "d"));
    site_close(&s);
}

/* The twin: where it is the gateway that stands still, each is tried once and that is all; what comes then is not troubled. */
static void where_nothing_comes_to_anybody_nobody_is_slow(void **state)
{
    (void)state;
    struct site s;
    three_workers(&s);
    long_chain(&s, 6, LONG_CHUNKS, abc);
    hush(&s);
    for (uint32_t word = 0; word < 12; word++) {
        s.now += TB_MS(980);
        for (uint32_t i = 0; i < 3; i++, s.now += TB_MS(10))
            tell(&s, abc[i], 6, 0, 0);
        drain(&s);
    }
    said(&s, "[2020] plan b v6 from gateway\n"
             "[2020] plan a v6 from c\n"
             "[3030] plan c v6 from gateway\n"
             "[3030] plan b v6 from a\n"
             "[4040] plan a v6 from gateway\n"
             "[4040] plan c v6 from b\n");
    for (uint32_t held = 4; held < 44; held += 4)
        second(&s, 6, abc, held, 400);
    said(&s, "");
    assert_false(slow(&s, "a") || slow(&s, "b") || slow(&s, "c"));
    site_close(&s);
}

/* P6: the first of a chain does not even get a connection, and there is nobody else whom it could read from: those behind it do not
 * wait for that, and it goes on behind them. */
static void a_first_of_a_chain_that_reaches_nobody_steps_aside(void **state)
{
    (void)state;
    struct site s;
    three_workers(&s);
    long_chain(&s, 6, LONG_CHUNKS, abc);
    hush(&s);
    const struct tb_id a = session_of("a"), v6 = id_of(6);
    CHECK_OK(tb_catalog_hop_lost(s.c, s.now, &a, &v6, plan_of(&s, "a")));
    said(&s, "[   0] plan b v6 from gateway\n"
             "[   0] plan a v6 from c\n");
    site_close(&s);
}

/* The twin: it had got something there, and may hold much more than they. It tries again, and they stay. */
static void a_first_of_a_chain_that_was_cut_off_tries_again(void **state)
{
    (void)state;
    struct site s;
    three_workers(&s);
    long_chain(&s, 6, LONG_CHUNKS, abc);
    second(&s, 6, abc, 40, 400);
    hush(&s);
    const struct tb_id a = session_of("a"), v6 = id_of(6);
    CHECK_OK(tb_catalog_hop_lost(s.c, s.now, &a, &v6, plan_of(&s, "a")));
    said(&s, "");
    static const char *const renewing[] = {"rank", "a", "b", "c", NULL};
    pass_ms(&s, 1000, renewing);
    said(&s, "[2000] plan a v6 from gateway\n");
    site_close(&s);
}

/* P6: nothing comes from a source that itself reads as well as any: who reads from it is sent elsewhere, and does not come back for
 * what the source gets meanwhile. */
static void a_source_that_gives_nothing_is_left(void **state)
{
    (void)state;
    struct site s;
    three_workers(&s);
    long_chain(&s, 6, 8, abc);
    second(&s, 6, abc, 4, 2000);
    hush(&s);
    for (uint32_t held = 8; held < 20; held += 4) {
        land(&s, 6, 0, held + 3); /* a is not to be tried */
        s.now += TB_SECONDS(1);
        tell(&s, "c", 6, 2, 0);
        s.now += TB_MS(10);
        tell(&s, "a", 6, held, 2000);
        tell(&s, "b", 6, held - 1, 2000);
        drain(&s);
    }
    said(&s, "[3020] plan c v6 from a\n");
    const struct tb_id c = session_of("c"), v6 = id_of(6);
    CHECK_OK(tb_catalog_hop_lost(s.c, s.now, &c, &v6, plan_of(&s, "c")));
    said(&s, "[4030] plan c v6 from gateway\n");
    site_close(&s);
}

/* P6: behind the first stands another slow one: it is found too, once it leads all but those that are known to be slow. */
static void two_slow_ones_before_the_others_are_found(void **state)
{
    (void)state;
    struct site s;
    static const char *const abcd[] = {"a", "b", "c", "d", NULL}, *const bcd[] = {"b", "c", "d", NULL},
                             *const cd[] = {"c", "d", NULL};
    three_workers(&s);
    come(&s, "d");
    CHECK_OK(join(&s, "d", "d", 0, 1));
    long_chain(&s, 6, LONG_CHUNKS, abcd);
    second(&s, 6, abcd, 4, 250);
    second(&s, 6, abcd, 8, 250);
    for (uint32_t held = 12; held < 28; held += 4) {
        second(&s, 6, bcd, held, 700);
        tell(&s, "a", 6, held, 250);
    }
    drain(&s);
    assert_true(slow(&s, "a"));
    for (uint32_t held = 28; held < 40; held += 4) {
        second(&s, 6, cd, held, 2000);
        tell(&s, "b", 6, held, 700);
        tell(&s, "a", 6, held, 250);
    }
    drain(&s);
    assert_true(slow(&s, "a") && slow(&s, "b"));
    assert_false(slow(&s, "c") || slow(&s, "d"));
    site_close(&s);
}

/* A look goes over all workers, of which there may be thousands whose words each come from a reader of the first. */
static void a_version_is_looked_at_once_in_10_ms(void **state)
{
    (void)state;
    struct site s;
    three_workers(&s);
    long_chain(&s, 6, LONG_CHUNKS, abc);
    second(&s, 6, abc, 4, 400);
    hush(&s);
    s.now += TB_SECONDS(1);
    tell(&s, "a", 6, 8, 400); /* its reader is not steady yet */
    tell(&s, "b", 6, 7, 400);
    drain(&s);
    said(&s, "");
    s.now += TB_MS(10);
    tell(&s, "b", 6, 7, 400);
    drain(&s);
    said(&s, "[2010] plan b v6 from gateway\n"
             "[2010] plan a v6 from c\n");
    site_close(&s);
}

/* P6: who was tried is no leaf: a worker that joins comes behind it, and shares nobody's NIC. */
static void who_joins_after_a_trial_comes_behind_it(void **state)
{
    (void)state;
    struct site s;
    three_workers(&s);
    come(&s, "d");
    CHECK_OK(join(&s, "d", "d", 0, 1));
    long_chain(&s, 6, LONG_CHUNKS, abc);
    second(&s, 6, abc, 4, 400);
    second(&s, 6, abc, 8, 400);
    hush(&s);
    CHECK_OK(stage(&s, "d", 6));
    said(&s, "[2000] plan d v6 from a\n");
    site_close(&s);
}

/* P6: where workers join one after another the first holds much more than who came later, and is not put behind them. */
static void where_workers_join_later_nobody_is_tried(void **state)
{
    (void)state;
    struct site s;
    static const char *const joined[] = {"a", "b", "c", NULL};
    three_workers(&s);
    long_chain(&s, 6, LONG_CHUNKS, joined + 3);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_OK(stage(&s, joined[i], 6));
        CHECK_OK(export_of(&s, joined[i], 6, 0));
        s.now += TB_SECONDS(1);
    }
    hush(&s);
    for (uint32_t held = 4; held < 44; held += 4)
        second(&s, 6, joined, held, 400);
    said(&s, "");
    site_close(&s);
}

/* The other twin: who has nearly all that its source has waits for it, and holds up nobody. */
static void who_waits_for_its_source_is_not_tried(void **state)
{
    (void)state;
    struct site s;
    three_workers(&s);
    long_chain(&s, 6, 8, abc);
    hush(&s);
    for (uint32_t held = 4; held < 44; held += 4) {
        land(&s, 6, 0, held + 7);
        second(&s, 6, abc, held, 400);
    }
    said(&s, "");
    land(&s, 6, 0, 60); /* it does not take what is there now */
    second(&s, 6, abc, 44, 400);
    said(&s, "[11000] plan b v6 from gateway\n"
             "[11000] plan a v6 from c\n");
    site_close(&s);
}

/* v1 arrives at west, a chunk of 100 bytes every 10 ms: 10,000 bytes a second. Then v2 is spread. */
static void after_one_arrival(struct site *s, uint64_t nic_bytes_per_s)
{
    west_open_wide(s, 8, nic_bytes_per_s);
    s->left_out = ~(1u << TB_CATALOG_PLAN | 1u << TB_CATALOG_PLAN_END);
    const struct tb_name east = name_of("east");
    CHECK_OK(tb_catalog_site_up(s->c, s->now, &east, true));
    CHECK_OK(hear(s, "east", 1, TB_VERSION_KEPT));
    cross_begin(s, 1);
    for (uint32_t held = 1; held <= SHARD_CHUNKS; held++, s->now += TB_MS(10))
        land(s, 1, 0, held);
    CHECK_OK(hear(s, "east", 2, TB_VERSION_KEPT));
    cross_begin(s, 2);
    s->now = TB_SECONDS(1000);
    const char *const names[] = {"a", "b", "c"};
    for (uint32_t i = 0; i < 3; i++) {
        come(s, names[i]);
        CHECK_OK(join(s, names[i], names[i], 0, 1));
        CHECK_OK(stage(s, names[i], 2));
        CHECK_OK(export_of(s, names[i], 2, 0));
    }
}

/* NICs that carry twice the rate of arrival feed two readers each. */
static void a_slow_arrival_makes_the_tree_wide(void **state)
{
    (void)state;
    struct site s;
    after_one_arrival(&s, 20000);
    said(&s, "[   0] plan a v2 from gateway\n"
             "[   0] plan b v2 from a\n"
             "[   0] plan c v2 from a\n");
    site_close(&s);
}

/* The twins: as fast as a NIC, or not known, is a chain. */
static void a_fast_arrival_makes_a_chain(void **state)
{
    (void)state;
    const uint64_t nics[] = {10000, 0};
    for (uint32_t i = 0; i < 2; i++) {
        struct site s;
        after_one_arrival(&s, nics[i]);
        said(&s, "[   0] plan a v2 from gateway\n"
                 "[   0] plan b v2 from a\n"
                 "[   0] plan c v2 from b\n");
        site_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_form_a_chain_behind_the_gateway),
        cmocka_unit_test(the_same_host_is_preferred),
        cmocka_unit_test(only_the_readers_of_the_dead_are_moved),
        cmocka_unit_test(a_release_moves_its_readers),
        cmocka_unit_test(without_a_source_it_waits),
        cmocka_unit_test(a_failed_source_is_avoided_until_it_shows_progress),
        cmocka_unit_test(who_reads_from_what_failed_is_no_way_out),
        cmocka_unit_test(the_only_source_is_tried_again),
        cmocka_unit_test(an_export_nobody_asked_for_is_a_source),
        cmocka_unit_test(who_reads_only_is_no_source_and_no_copy),
        cmocka_unit_test(who_is_whole_and_said_not_where_is_no_source),
        cmocka_unit_test(whole_readers_read_no_more),
        cmocka_unit_test(a_slow_worker_becomes_a_leaf),
        cmocka_unit_test(nobody_is_put_behind_who_waits_for_the_stopped),
        cmocka_unit_test(who_is_slow_goes_behind_who_was_taken_in_late),
        cmocka_unit_test(nobody_is_sent_to_who_does_not_answer),
        cmocka_unit_test(who_does_not_answer_is_no_source_of_any_version),
        cmocka_unit_test(a_rank_that_does_not_answer_is_left_alone),
        cmocka_unit_test(a_worker_that_gets_nothing_becomes_a_leaf),
        cmocka_unit_test(who_waits_for_its_source_is_not_slow),
        cmocka_unit_test(who_was_slow_begins_as_a_leaf),
        cmocka_unit_test(who_keeps_up_stays),
        cmocka_unit_test(a_word_that_nobody_looked_at_counts_for_nothing),
        cmocka_unit_test(a_rank_in_place_is_read_by_its_own_host),
        cmocka_unit_test(a_rank_that_failed_is_avoided),
        cmocka_unit_test(nobody_is_avoided_in_place_of_a_rank),
        cmocka_unit_test(a_rank_that_is_gone_feeds_nobody),
        cmocka_unit_test(other_ranks_are_read_by_the_gateway_alone),
        cmocka_unit_test(a_slow_first_of_a_chain_is_found),
        cmocka_unit_test(a_chain_as_slow_as_its_source_is_left_alone),
        cmocka_unit_test(who_comes_when_all_have_ended_is_searched_anew),
        cmocka_unit_test(a_first_of_a_chain_that_gets_nothing_is_found),
        cmocka_unit_test(a_first_of_a_chain_that_never_got_anything_is_found),
        cmocka_unit_test(three_that_get_nothing_before_the_others_are_found),
        cmocka_unit_test(where_nothing_comes_to_anybody_nobody_is_slow),
        cmocka_unit_test(a_first_of_a_chain_that_reaches_nobody_steps_aside),
        cmocka_unit_test(a_first_of_a_chain_that_was_cut_off_tries_again),
        cmocka_unit_test(a_source_that_gives_nothing_is_left),
        cmocka_unit_test(two_slow_ones_before_the_others_are_found),
        cmocka_unit_test(a_version_is_looked_at_once_in_10_ms),
        cmocka_unit_test(who_joins_after_a_trial_comes_behind_it),
        cmocka_unit_test(where_workers_join_later_nobody_is_tried),
        cmocka_unit_test(who_waits_for_its_source_is_not_tried),
        cmocka_unit_test(a_slow_arrival_makes_the_tree_wide),
        cmocka_unit_test(a_fast_arrival_makes_a_chain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
