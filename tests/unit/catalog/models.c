/* models.c - tests of gateway/catalog/models.c: one run at a time publishes, the newest.
 *
 * Covers: gateway/catalog/models.c gateway/catalog/rows/model_rows.c */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "gateway/catalog/sites.h"
#include "gateway/catalog/versions.h"
#include "gateway/catalog/views.h"
#include "site.h"

static struct tb_catalog_run open_key(struct site *s, const char *rank, const char *key, uint64_t fresh,
                                      bool *joined)
{
    const struct tb_catalog_run_request q = {
        .session = session_of(rank), .model = name_of("policy"), .key = key, .fresh_id = id_of(fresh)};
    struct tb_catalog_run run;
    CHECK_OK(tb_catalog_run_open(s->c, s->now, &q, &run, joined));
    return run;
}

/* P4: the same key is the same run, however often it is said and by whom. */
static void the_same_key_joins(void **state)
{
    (void)state;
    struct site s;
    bool joined;
    east_open(&s, 2);
    come(&s, "rank-0");
    come(&s, "rank-1");
    const struct tb_catalog_run first = open_key(&s, "rank-0", "job-7", 100, &joined);
    assert_false(joined);
    assert_int_equal(first.order, 1);
    said(&s, "[   0] store run job-7 opened, last 0\n");
    const struct tb_catalog_run second = open_key(&s, "rank-1", "job-7", 101, &joined);
    assert_true(joined);
    assert_true(tb_id_equal(&first.id, &second.id));
    const struct tb_catalog_run newest = open_key(&s, "rank-1", "", 102, &joined);
    assert_true(joined);
    assert_true(tb_id_equal(&first.id, &newest.id));
    said(&s, "");
    site_close(&s);
}

/* The twin: another key shuts the first run out, with what it had open. */
static void a_new_key_fences_the_old_run(void **state)
{
    (void)state;
    struct site s;
    bool joined;
    east_open(&s, 2);
    come(&s, "old");
    come(&s, "new");
    CHECK_OK(run_open(&s, "old", "a", 100));
    publish_whole(&s, "old", 5);
    CHECK_OK(version_open(&s, "old", 6, 2, 6));
    CHECK_OK(seal(&s, "old", 6, 0, 60));
    land(&s, 6, 0, 3);
    const struct tb_id run_a = s.run;
    hush(&s);
    const struct tb_catalog_run b = open_key(&s, "new", "b", 101, &joined);
    assert_int_equal(b.order, 2);
    assert_int_equal(b.resumed_run_order, 1);
    assert_int_equal(b.resumed_number, 5);
    said(&s, "[   0] store run b opened, last 0\n"
             "[   0] store run a fenced, last 5\n"
             "[   0] store v6 abandoned: fenced\n"
             "[   0] leave v6 shard 0 of old\n"
             "[   0] evict v6: fenced\n"
             "[   0] tell old v6 fenced\n");
    s.run = run_a;
    CHECK_STATUS(seal(&s, "old", 6, 1, 61), TB_FENCED);
    CHECK_STATUS(version_open(&s, "old", 7, 1, 7), TB_FENCED);
    const struct tb_catalog_run_request again = {
        .session = session_of("old"), .model = name_of("policy"), .key = "a", .fresh_id = id_of(102)};
    struct tb_catalog_run run;
    CHECK_STATUS(tb_catalog_run_open(s.c, s.now, &again, &run, &joined), TB_FENCED);
    assert_string_equal(state_of(&s, 5), "kept"); /* what was ready stays */
    said(&s, "");
    site_close(&s);
}

/* P8: an identity fences its own runs, and those of others where the configuration says so. */
static void a_publisher_fences_its_own_runs(void **state)
{
    (void)state;
    struct site s;
    struct tb_catalog_run run, restored;
    bool joined;
    east_open(&s, 2);
    come(&s, "mine");
    struct tb_catalog_session other = {.id = id_of(77), .name = name_of("other"), .host = name_of("h")};
    strcpy(other.identity, "tombolo://east/worker/other");
    CHECK_OK(tb_catalog_session_open(s.c, s.now, &other));
    run = open_key(&s, "mine", "a", 100, &joined);
    assert_string_equal(run.opened_by, "unix:1000");
    struct tb_catalog_run_request q = {
        .session = other.id, .model = name_of("policy"), .key = "b", .fresh_id = id_of(101)};
    CHECK_STATUS(tb_catalog_run_open(s.c, s.now, &q, &run, &joined), TB_PEER_DENIED);
    assert_true(tb_catalog_run_newest(s.c, &q.model, &restored));
    assert_int_equal(restored.order, 1);
    q.key = "a"; /* to join it is no fence */
    CHECK_OK(tb_catalog_run_open(s.c, s.now, &q, &run, &joined));
    assert_true(joined);
    run = open_key(&s, "mine", "c", 102, &joined); /* its own */
    assert_int_equal(run.order, 2);
    q.key = "b", q.may_fence = true;
    CHECK_OK(tb_catalog_run_open(s.c, s.now, &q, &run, &joined));
    assert_string_equal(run.opened_by, other.identity);
    uint32_t cursor = 0;
    while (tb_catalog_run_at(s.c, &cursor, &restored)) {
        assert_int_equal(restored.fenced, restored.order < 3);
        const char *by[] = {"", "unix:1000", other.identity, ""};
        assert_string_equal(restored.fenced_by, by[restored.order]);
    }
    hush(&s);
    q.key = "d", q.may_fence = false, q.fresh_id = id_of(104), q.session = session_of("mine");
    CHECK_STATUS(tb_catalog_run_open(s.c, s.now, &q, &run, &joined), TB_PEER_DENIED);
    site_close(&s);
    /* An older release wrote no owner. */
    east_open(&s, 2);
    come(&s, "mine");
    restored = (struct tb_catalog_run){.model = name_of("policy"), .id = id_of(100), .order = 1, .key = "a"};
    CHECK_OK(tb_catalog_restore_run(s.c, &restored));
    run = open_key(&s, "mine", "b", 101, &joined);
    assert_int_equal(run.order, 2);
    site_close(&s);
}

static enum tb_status join_key(struct site *s, const char *key, uint64_t fresh, struct tb_catalog_run *run)
{
    const struct tb_catalog_run_request q = {.session = session_of("new"),
                                             .model = name_of("policy"),
                                             .key = key,
                                             .fresh_id = id_of(fresh),
                                             .joins = true};
    bool joined;
    return tb_catalog_run_open(s->c, s->now, &q, run, &joined);
}

/* P2: a command that only joins starts the model's first run, and no other. */
static void a_join_starts_the_first_run_alone(void **state)
{
    (void)state;
    struct site s;
    struct tb_catalog_run run;
    east_open(&s, 2);
    come(&s, "old");
    come(&s, "new");
    const struct tb_name model = name_of("policy");
    assert_false(tb_catalog_run_newest(s.c, &model, &run));
    CHECK_STATUS(join_key(&s, "", 100, &run), TB_NOT_FOUND);
    CHECK_OK(join_key(&s, "a", 100, &run));
    assert_int_equal(run.order, 1);
    CHECK_OK(join_key(&s, "a", 101, &run));
    const struct tb_id first = id_of(100);
    assert_true(tb_id_equal(&run.id, &first));
    hush(&s);
    CHECK_STATUS(join_key(&s, "b", 102, &run), TB_BAD_STATE);
    said(&s, ""); /* and nobody is shut out */
    assert_true(tb_catalog_run_newest(s.c, &model, &run));
    assert_string_equal(run.key, "a");
    CHECK_OK(run_open(&s, "old", "c", 103));
    CHECK_STATUS(join_key(&s, "a", 104, &run), TB_FENCED);
    CHECK_OK(join_key(&s, "", 105, &run));
    assert_string_equal(run.key, "c");
    assert_int_equal(run.shut_out_order, 1);
    assert_false(run.shut_out_has_last);
    publish_whole(&s, "old", 5);
    CHECK_OK(run_open(&s, "old", "d", 106));
    CHECK_OK(join_key(&s, "d", 107, &run));
    assert_int_equal(run.shut_out_order, 2);
    assert_true(run.shut_out_has_last);
    assert_int_equal(run.shut_out_number, 5);
    site_close(&s);
}

static void a_run_is_opened_at_home_by_somebody_for_something(void **state)
{
    (void)state;
    struct site s;
    west_open(&s, 2);
    come(&s, "rank-0");
    CHECK_STATUS(run_open(&s, "rank-0", "a", 100), TB_NOT_HOME);
    site_close(&s);
    east_open(&s, 2);
    CHECK_STATUS(run_open(&s, "rank-0", "a", 100), TB_PEER_LEASE);
    come(&s, "rank-0");
    CHECK_STATUS(run_open(&s, "rank-0", "", 100), TB_NOT_FOUND);
    CHECK_STATUS(run_open(&s, "rank-0", "a", 0), TB_BAD_ARGUMENT);
    char huge[TB_CATALOG_TEXT_MAX + 1];
    memset(huge, 'k', sizeof huge);
    huge[sizeof huge - 1] = 0;
    CHECK_STATUS(run_open(&s, "rank-0", huge, 100), TB_BAD_ARGUMENT);
    struct tb_catalog_run run;
    bool joined;
    const struct tb_catalog_run_request other = {
        .session = session_of("rank-0"), .model = name_of("unknown"), .key = "a", .fresh_id = id_of(9)};
    CHECK_STATUS(tb_catalog_run_open(s.c, s.now, &other, &run, &joined), TB_NOT_FOUND);
    site_close(&s);
}

/* P7: more runs than the table has rows; the oldest shut-out ones without versions are
 * forgotten. */
static void old_runs_are_forgotten(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 2);
    come(&s, "rank-0");
    for (uint64_t n = 0; n < 20; n++) {
        const char key[2] = {(char)('a' + n), 0};
        CHECK_OK(run_open(&s, "rank-0", key, 100 + n));
        hush(&s);
    }
    uint32_t cursor = 0, runs = 0, live = 0;
    struct tb_catalog_run run;
    while (tb_catalog_run_at(s.c, &cursor, &run)) {
        runs++;
        live += !run.fenced;
    }
    assert_int_equal(runs, 4);
    assert_int_equal(live, 1);
    site_close(&s);
}

static void a_model_may_change_but_not_move(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 2);
    struct tb_catalog_model m = {
        .name = name_of("policy"), .home = name_of("east"), .is_home = true, .keep = 5};
    CHECK_OK(tb_catalog_model_add(s.c, &m));
    uint32_t cursor = 0;
    struct tb_catalog_model seen;
    assert_true(tb_catalog_model_at(s.c, &cursor, &seen));
    assert_int_equal(seen.keep, 5);
    m.home = name_of("west");
    CHECK_STATUS(tb_catalog_model_add(s.c, &m), TB_CONFLICT);
    m.home = name_of("east");
    m.subscribed = true;
    CHECK_STATUS(tb_catalog_model_add(s.c, &m), TB_BAD_ARGUMENT); /* home does not cross to itself */
    site_close(&s);
}

static struct tb_catalog_run stored_run(uint64_t order, const char *key, bool fenced)
{
    struct tb_catalog_run run = {
        .model = name_of("policy"), .order = order, .fenced = fenced, .id = id_of(200 + order)};
    (void)snprintf(run.key, sizeof run.key, "%s", key);
    return run;
}

/* A full table forgets runs that the store keeps, and their keys may begin others: the
 * newer of two is the key's, and no start is refused for it. The twin: a run that the store
 * cannot have written is refused. */
static void a_key_that_began_again_is_its_newer_runs(void **state)
{
    (void)state;
    struct site s;
    bool joined;
    east_open(&s, 2);
    const struct tb_catalog_run a1 = stored_run(1, "a", true), b2 = stored_run(2, "b", true);
    const struct tb_catalog_run a3 = stored_run(3, "a", false), again = stored_run(2, "a", true);
    CHECK_OK(tb_catalog_restore_run(s.c, &a1));
    CHECK_OK(tb_catalog_restore_run(s.c, &b2));
    CHECK_OK(tb_catalog_restore_run(s.c, &a3));
    CHECK_STATUS(tb_catalog_restore_run(s.c, &again), TB_CONFLICT);
    come(&s, "rank");
    const struct tb_catalog_run run = open_key(&s, "rank", "a", 100, &joined);
    assert_true(joined);
    assert_int_equal(run.order, 3);
    site_close(&s);
}

/* P2: a crash between the row of a run and that of the one that it shut out leaves two in the store
 * that may publish, or, where a third came, the oldest alone. The newest is the one. */
static void the_newest_run_fences_at_a_start(void **state)
{
    (void)state;
    bool joined;
    struct site s;
    struct tb_catalog_run out, cut = stored_run(2, "b", false);
    struct tb_catalog_run_request q = {.key = "a", .fresh_id = id_of(100)};
    east_open(&s, 2);
    const struct tb_catalog_run old = stored_run(1, "a", false);
    CHECK_OK(tb_catalog_restore_run(s.c, &old));
    CHECK_OK(tb_catalog_restore_run(s.c, &cut));
    drain(&s);
    said(&s, "[   0] store run a fenced, last 0\n");
    come(&s, "rank");
    q.session = session_of("rank");
    q.model = name_of("policy");
    CHECK_STATUS(tb_catalog_run_open(s.c, s.now, &q, &out, &joined), TB_FENCED);
    q.key = "b";
    CHECK_OK(tb_catalog_run_open(s.c, s.now, &q, &out, &joined));
    assert_true(joined);
    site_close(&s);
}

/* The same where a version alone is left of the newer run. */
static void a_version_of_a_lost_run_fences_at_a_start(void **state)
{
    (void)state;
    bool joined;
    struct site s;
    struct tb_catalog_run out;
    struct tb_catalog_run_request q = {.key = "a", .fresh_id = id_of(100)};
    east_open(&s, 2);
    const struct tb_catalog_run old = stored_run(1, "a", false);
    struct tb_version_key key = {.model = name_of("policy"),
                                 .run = id_of(77),
                                 .run_order = 2,
                                 .number = 5,
                                 .uid = id_of(5),
                                 .shard_count = 1,
                                 .root = root_of(5)};
    CHECK_OK(tb_catalog_restore_run(s.c, &old));
    CHECK_OK(tb_catalog_restore_version(s.c, &key, TB_VERSION_READY, 1, false));
    come(&s, "rank");
    q.session = session_of("rank");
    q.model = name_of("policy");
    CHECK_STATUS(tb_catalog_run_open(s.c, s.now, &q, &out, &joined), TB_FENCED);
    site_close(&s);
}

static struct tb_catalog_known_run remembered(uint64_t order, uint64_t number, uint64_t id)
{
    return (struct tb_catalog_known_run){name_of("policy"), order, number, id_of(id)};
}

/* P2: a run that another site remembers makes the next run newer; runs here that are older publish
 * nothing, where the store is doubted. */
static void a_remembered_run_is_below_the_next(void **state)
{
    (void)state;
    bool joined;
    struct site s;
    east_open(&s, 2);
    come(&s, "rank");
    CHECK_OK(run_open(&s, "rank", "a", 100));
    CHECK_OK(version_open(&s, "rank", 5, 1, 5));
    hush(&s);
    const struct tb_catalog_known_run told = remembered(7, 30, 77);
    CHECK_OK(tb_catalog_run_told(s.c, s.now, &told, true));
    drain(&s);
    said(&s, "[   0] store run a fenced, last 0\n"
             "[   0] store v5 abandoned: fenced\n"
             "[   0] tell rank v5 fenced\n");
    CHECK_STATUS(tb_catalog_run_told(s.c, s.now, &told, true), TB_DONE_BEFORE);
    const struct tb_catalog_known_run lower = remembered(3, 1, 78);
    CHECK_STATUS(tb_catalog_run_told(s.c, s.now, &lower, true), TB_DONE_BEFORE);
    assert_int_equal(open_key(&s, "rank", "b", 101, &joined).order, 8);
    site_close(&s);
}

static enum tb_status open_again(struct site *s, const char *key, uint64_t id, uint64_t was_order,
                                 uint64_t *order_out)
{
    const struct tb_catalog_run_request q = {.session = session_of("rank"),
                                             .model = name_of("policy"),
                                             .key = key,
                                             .fresh_id = id_of(id),
                                             .was_order = was_order};
    struct tb_catalog_run run = {0};
    bool joined;
    const enum tb_status status = tb_catalog_run_open(s->c, s->now, &q, &run, &joined);
    *order_out = run.order;
    return status;
}

/* P2: a home without a store knows no key. A session that opened a run before says of which order
 * it was: one that is older than what is remembered begins nothing, and the newest begins above
 * itself, whichever comes first. */
static void a_key_of_an_older_run_begins_none(void **state)
{
    (void)state;
    for (uint32_t newest_first = 0; newest_first < 2; newest_first++) {
        struct site s;
        uint64_t order;
        east_open(&s, 2);
        come(&s, "rank");
        if (newest_first == 0) CHECK_OK(open_again(&s, "old", 100, 6, &order)); /* nobody said anything yet */
        CHECK_OK(open_again(&s, "new", 101, 7, &order));
        assert_int_equal(order, 8);
        CHECK_STATUS(open_again(&s, "old", 102, 6, &order), TB_FENCED);
        CHECK_OK(open_again(&s, "new", 103, 7, &order)); /* known: it joins */
        assert_int_equal(order, 8);
        CHECK_OK(open_again(&s, "other", 104, 0, &order)); /* on purpose */
        assert_int_equal(order, 9);
        CHECK_STATUS(open_again(&s, "new", 105, 8, &order), TB_FENCED);
        site_close(&s);
    }
    struct site s;
    uint64_t order;
    east_open(&s, 2);
    come(&s, "rank");
    CHECK_OK(open_again(&s, "far", 100, UINT64_MAX, &order)); /* P7: it uses up no numbers */
    assert_int_equal(order, 1);
    site_close(&s);
}

/* P8: the twin: a home that knows its store goes on with its run, whatever others say; only
 * the next one is above. */
static void a_home_that_knows_its_store_goes_on(void **state)
{
    (void)state;
    bool joined;
    struct site s;
    east_open(&s, 2);
    come(&s, "rank");
    CHECK_OK(run_open(&s, "rank", "a", 100));
    const struct tb_catalog_known_run told = remembered(7, 30, 77);
    CHECK_OK(tb_catalog_run_told(s.c, s.now, &told, false));
    CHECK_OK(version_open(&s, "rank", 5, 1, 5));
    assert_int_equal(open_key(&s, "rank", "b", 101, &joined).order, 8);
    site_close(&s);
}

/* A store that was put back knows the run, and not how far it came. A run of the same order and
 * another id is another run; of a worker, which knows no id, a number above the last one is. */
static void the_same_run_goes_on_above_what_is_remembered(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 2);
    come(&s, "rank");
    CHECK_OK(run_open(&s, "rank", "a", 100));
    publish_whole(&s, "rank", 5);
    const struct tb_catalog_known_run same = remembered(1, 9, 100), older = remembered(1, 9, 0);
    CHECK_OK(tb_catalog_run_told(s.c, s.now, &same, true));
    CHECK_STATUS(version_open(&s, "rank", 9, 1, 90), TB_BAD_STATE);
    CHECK_OK(version_open(&s, "rank", 10, 1, 10));
    CHECK_STATUS(tb_catalog_run_told(s.c, s.now, &older, true), TB_DONE_BEFORE);
    CHECK_OK(version_open(&s, "rank", 11, 1, 11));
    const struct tb_catalog_known_run worker = remembered(1, 12, 0);
    CHECK_OK(tb_catalog_run_told(s.c, s.now, &worker, true));
    CHECK_STATUS(version_open(&s, "rank", 13, 1, 13), TB_FENCED);
    site_close(&s);
    east_open(&s, 2);
    come(&s, "rank");
    CHECK_OK(run_open(&s, "rank", "a", 100));
    const struct tb_catalog_known_run other = remembered(1, 0, 101);
    CHECK_OK(tb_catalog_run_told(s.c, s.now, &other, true));
    CHECK_STATUS(version_open(&s, "rank", 1, 1, 1), TB_FENCED);
    site_close(&s);
}

/* P7: one word cannot use up the numbers of runs. */
static void an_order_without_end_is_refused(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 2);
    struct tb_catalog_known_run told = remembered(TB_CATALOG_RUN_ORDER_STEP + 1, 1, 77);
    CHECK_STATUS(tb_catalog_run_told(s.c, s.now, &told, true), TB_TOO_LARGE);
    told.order = UINT64_MAX;
    CHECK_STATUS(tb_catalog_run_told(s.c, s.now, &told, true), TB_TOO_LARGE);
    told = remembered(1, UINT64_MAX, 77);
    CHECK_STATUS(tb_catalog_run_told(s.c, s.now, &told, true), TB_TOO_LARGE);
    told = remembered(TB_CATALOG_RUN_ORDER_STEP, 1, 77);
    CHECK_OK(tb_catalog_run_told(s.c, s.now, &told, true));
    site_close(&s);
}

/* A follower remembers the newest version that it heard of; what a worker says counts only
 * where it knows none. */
static void a_follower_remembers_the_newest_run(void **state)
{
    (void)state;
    struct site s;
    struct tb_catalog_known_run known;
    const struct tb_name policy = name_of("policy");
    west_open(&s, 2);
    assert_false(tb_catalog_known_run(s.c, &policy, &known));
    const struct tb_catalog_known_run worker = remembered(2, 3, 0);
    CHECK_OK(tb_catalog_run_told(s.c, s.now, &worker, false));
    assert_true(tb_catalog_known_run(s.c, &policy, &known));
    assert_int_equal(known.order, 2);
    struct tb_version_key key = {.model = policy,
                                 .run = id_of(77),
                                 .run_order = 4,
                                 .number = 5,
                                 .uid = id_of(5),
                                 .shard_count = 1,
                                 .root = root_of(5)};
    const struct tb_name east = name_of("east");
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &east, true));
    CHECK_OK(tb_catalog_remote_version(s.c, s.now, &east, &key, TB_VERSION_READY));
    const struct tb_catalog_known_run higher = remembered(6, 3, 0);
    CHECK_STATUS(tb_catalog_run_told(s.c, s.now, &higher, false), TB_DONE_BEFORE);
    assert_true(tb_catalog_known_run(s.c, &policy, &known));
    assert_int_equal(known.order, 4);
    assert_int_equal(known.number, 5);
    assert_true(tb_id_equal(&known.id, &key.run));
    site_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_key_joins),
        cmocka_unit_test(a_new_key_fences_the_old_run),
        cmocka_unit_test(a_publisher_fences_its_own_runs),
        cmocka_unit_test(a_join_starts_the_first_run_alone),
        cmocka_unit_test(a_run_is_opened_at_home_by_somebody_for_something),
        cmocka_unit_test(old_runs_are_forgotten),
        cmocka_unit_test(a_model_may_change_but_not_move),
        cmocka_unit_test(a_key_that_began_again_is_its_newer_runs),
        cmocka_unit_test(the_newest_run_fences_at_a_start),
        cmocka_unit_test(a_version_of_a_lost_run_fences_at_a_start),
        cmocka_unit_test(a_remembered_run_is_below_the_next),
        cmocka_unit_test(a_key_of_an_older_run_begins_none),
        cmocka_unit_test(a_home_that_knows_its_store_goes_on),
        cmocka_unit_test(the_same_run_goes_on_above_what_is_remembered),
        cmocka_unit_test(an_order_without_end_is_refused),
        cmocka_unit_test(a_follower_remembers_the_newest_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
