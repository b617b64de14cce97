/* store_bounds.c - the rows of the store stay bounded: versions that ended, runs and
 * withdrawals. Rows that a restart still needs are never trimmed.
 * Covers: gateway/store/store.c */
#include "gateway/store/store.h"

#include "gateway/store/store_load.h"
#include "store_world.h"

/* P7: versions that ended are bounded, of every model, also where it is never a version's row that
 * makes a round number: each version here is two rows beside it, and the period divides every
 * other. Of what is pinned or has not ended nothing goes. */
static void the_rows_of_ended_versions_are_bounded(void **state)
{
    (void)state;
    tb_store_close(store_open_good());
    store_ask(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<10300) INSERT INTO version "
        "SELECT CAST(printf('%016d',i) AS BLOB),'a',zeroblob(16),1,i,1,zeroblob(16),4,0,i=2 FROM n");
    store_ask("UPDATE version SET state=2 WHERE number=3");
    store_ask("INSERT INTO version SELECT CAST('b'||substr(CAST(uid AS TEXT),2) AS "
              "BLOB),'b',run,1,number,1,root,4,0,0 "
              "FROM version");
    assert_int_equal(store_ask("SELECT COUNT(*) FROM version"), 20600);
    struct tb_store *store = store_open_good();
    const struct tb_catalog_run run = store_make_run(1);
    assert_int_equal(tb_store_run(store, &run, &store_audit), TB_OK);
    tb_store_close(store);
    assert_int_equal(store_ask("SELECT COUNT(*) FROM version WHERE model='a'"), 18);
    assert_int_equal(store_ask("SELECT COUNT(*) FROM version WHERE model='b'"), 16);
    assert_int_equal(store_ask("SELECT MIN(number) FROM version WHERE model='b'"), 10285);
    assert_int_equal(store_ask("SELECT COUNT(*) FROM version WHERE number=2 AND pinned"), 1);
    assert_int_equal(store_ask("SELECT COUNT(*) FROM version WHERE number=3 AND state=2"), 1);
}

/* P7: of each model after each of its versions, not only now and then; what has not ended takes
 * no place among them. */
static void the_rows_of_ended_versions_do_not_swing(void **state)
{
    (void)state;
    struct tb_store *store = store_open_good();
    for (uint32_t i = 0; i < 40; i++) {
        struct tb_store_version v = store_make_version(100 + i);
        v.state = i >= 20 ? TB_VERSION_RETIRED : TB_VERSION_READY;
        assert_int_equal(tb_store_version(store, &v, &store_audit), TB_OK);
        if (i < 36) continue;
        assert_int_equal(store_ask("SELECT COUNT(*) FROM version WHERE state=4"), 16);
        assert_int_equal(store_ask("SELECT COUNT(*) FROM version WHERE number>=100 AND state=2"), 20);
    }
    tb_store_close(store);
    assert_int_equal(store_ask("SELECT MIN(number) FROM version WHERE state=4"), 124);
}

/* P7, P2: and the runs, of every model: as many are kept as a catalog remembers, and all that may
 * publish or have a version here. */
static void the_rows_of_runs_are_bounded(void **state)
{
    (void)state;
    tb_store_close(store_open_good());
    store_ask("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<1200) INSERT INTO run "
              "SELECT 'a',i,CAST(printf('%016d',i) AS BLOB),'k'||i,0,0,0,0,i NOT IN (3,1200) FROM n");
    store_ask("INSERT INTO run SELECT 'b',run_order,CAST('b'||substr(CAST(id AS TEXT),2) AS "
              "BLOB),key,0,0,0,0,fenced FROM run "
              "WHERE run_order<=100");
    store_ask(
        "INSERT INTO version SELECT CAST(printf('%016d',1) AS BLOB),'a',id,run_order,1,1,zeroblob(16),4,0,0 "
        "FROM run "
        "WHERE model='a' AND run_order=2");
    struct tb_store *store = store_open_good();
    const struct tb_store_version v = store_make_version(1);
    assert_int_equal(tb_store_version(store, &v, &store_audit), TB_OK);
    tb_store_close(store);
    assert_int_equal(store_ask("SELECT COUNT(*) FROM run WHERE model='a'"), TB_CATALOG_RUNS + 2);
    assert_int_equal(store_ask("SELECT COUNT(*) FROM run WHERE model='a' AND run_order IN (2,3,177,1200)"),
                     4);
    assert_int_equal(store_ask("SELECT COUNT(*) FROM run WHERE model='b'"), 100);
}

struct withdrawn {
    uint32_t count;
    uint64_t first, last; /* numbers */
};

static void take_withdrawn(void *user, const struct tb_store_withdrawal *withdrawal)
{
    struct withdrawn *w = user;
    const struct tb_version_key *key = &withdrawal->key;
    assert_string_equal(key->model.text, "policy");
    assert_int_equal(key->shard_count, 2);
    if (w->count++ == 0) w->first = key->number;
    w->last = key->number;
}

static struct withdrawn withdrawn(struct tb_store *store)
{
    struct withdrawn w = {0};
    assert_int_equal(tb_store_load_withdrawn(store, take_withdrawn, &w), TB_OK);
    return w;
}

/* P3: a site that was away may ask of any: so a withdrawal outlives its version's row, in the
 * order in which they came. P7: of so many. */
static void withdrawals_outlive_their_versions(void **state)
{
    (void)state;
    enum { LEAST = 700, MANY = TB_STORE_WITHDRAWN_MAX + 600 };
    struct tb_store *store = store_open_good();
    const struct tb_store_row ready = {.kind = TB_STORE_VERSION, .version = store_make_version(MANY + 1)};
    struct tb_store_row row = ready;
    assert_int_equal(tb_store_rows(store, &row, 1), TB_OK);
    assert_int_equal(withdrawn(store).count, 0);
    for (uint64_t i = 1; i <= LEAST; i++) {
        row.version = store_make_version(i);
        row.version.state = TB_VERSION_ENDED_WITHDRAWN;
        assert_int_equal(tb_store_rows(store, &row, 1), TB_OK);
        assert_int_equal(tb_store_rows(store, &row, 1), TB_OK); /* said again */
    }
    tb_store_close(store);
    store = store_open_good();
    assert_true(store_ask("SELECT COUNT(*) FROM version") < LEAST);
    assert_int_equal(withdrawn(store).count, LEAST);
    assert_int_equal(withdrawn(store).first, 1);
    assert_int_equal(withdrawn(store).last, LEAST);
    for (uint64_t i = LEAST + 1; i <= MANY; i++) {
        row.version = store_make_version(i);
        row.version.state = TB_VERSION_ENDED_WITHDRAWN;
        assert_int_equal(tb_store_rows(store, &row, 1), TB_OK);
    }
    assert_in_range(withdrawn(store).count, TB_STORE_WITHDRAWN_MAX, TB_STORE_WITHDRAWN_MAX + 256);
    assert_int_equal(withdrawn(store).last, MANY);
    tb_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORE_TEST(the_rows_of_ended_versions_are_bounded),
        STORE_TEST(the_rows_of_ended_versions_do_not_swing),
        STORE_TEST(the_rows_of_runs_are_bounded),
        STORE_TEST(withdrawals_outlive_their_versions),
    };
    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
