/* store.c - what survives a restart, and every way in which a file can refuse: read-only, full,
 * damaged, held by another. */
#include "gateway/store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sqlite3.h>

#include "store_folder.h"

static char error[256];
static sqlite3 *opened;   /* the newest connection of this process */
static sqlite3 *store_db; /* the store's */

static const struct tb_store_audit audit = {.what = "test", .who = "unix:0", .why = "", .wall_ms = 1234};

/* SQLite tells every new connection to its extensions: so a test can make the
 * store's own file "full". */
static int note_connection(sqlite3 *db, const char **message, const struct sqlite3_api_routines *api)
{
    (void)message;
    (void)api;
    opened = db;
    return SQLITE_OK;
}

static struct tb_store *open_good(void)
{
    struct tb_store *store = NULL;
    if (tb_store_open(path, &store, error) != TB_OK) fail_msg("%s", error);
    store_db = opened;
    return store;
}

static struct tb_catalog_run make_run(uint64_t order)
{
    struct tb_catalog_run run = {.order = order,
                                 .has_last = true,
                                 .last_number = 40 + order,
                                 .resumed_run_order = order - 1,
                                 .resumed_number = UINT64_MAX, /* 64 bits go through SQLite's signed ones */
                                 .fenced = order == 1};
    run.id.bytes[0] = (uint8_t)order;
    assert_int_equal(tb_name_set(&run.model, "policy"), TB_OK);
    snprintf(run.key, sizeof run.key, "key-%d", (int)order);
    return run;
}

static struct tb_store_version make_version(uint64_t number)
{
    struct tb_store_version v = {.state = TB_VERSION_READY, .bytes = 1000 + number};
    v.key = (struct tb_version_key){.run_order = 1, .number = number, .shard_count = 2};
    memcpy(v.key.uid.bytes, &number, sizeof number);
    v.key.uid.bytes[15] = 1;
    v.key.run.bytes[0] = 1;
    v.key.root.bytes[3] = (uint8_t)number;
    assert_int_equal(tb_name_set(&v.key.model, "policy"), TB_OK);
    return v;
}

struct loaded {
    struct tb_catalog_run runs[8];
    struct tb_store_version versions[8];
    uint32_t run_count, version_count;
};

static enum tb_status take_run(void *user, const struct tb_catalog_run *run)
{
    struct loaded *l = user;
    assert_true(l->run_count < 8);
    l->runs[l->run_count++] = *run;
    return TB_OK;
}

static enum tb_status take_version(void *user, const struct tb_store_version *version)
{
    struct loaded *l = user;
    assert_true(l->version_count < 8);
    l->versions[l->version_count++] = *version;
    return TB_OK;
}

static enum tb_status load(struct tb_store *store, struct loaded *l)
{
    memset(l, 0, sizeof *l);
    return tb_store_load(store, take_run, take_version, l);
}

/* A number that a statement on a connection of the test's own answers. */
static int64_t ask(const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
    const int rc = sqlite3_step(st);
    assert_true(rc == SQLITE_ROW || rc == SQLITE_DONE);
    const int64_t answer = rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    sqlite3_finalize(st);
    sqlite3_close(db);
    return answer;
}

/* P3, of what is not in the arena. */
static void what_was_written_is_there_after_a_restart(void **state)
{
    (void)state;
    struct loaded l;
    struct tb_store *store = open_good();
    for (uint64_t i = 2; i >= 1; i--) {
        const struct tb_catalog_run run = make_run(i);
        assert_int_equal(tb_store_run(store, &run, &audit), TB_OK);
    }
    struct tb_store_version v = make_version(8);
    assert_int_equal(tb_store_version(store, &v, &audit), TB_OK);
    v = make_version(7);
    assert_int_equal(tb_store_version(store, &v, &audit), TB_OK);
    v.state = TB_VERSION_KEPT; /* a later state replaces the row */
    assert_int_equal(tb_store_version(store, &v, &audit), TB_OK);
    struct tb_store_pointer p = {.model = v.key.model, .uid = v.key.uid, .pin = true, .pinned = true};
    assert_int_equal(tb_store_pointer(store, &p, &audit), TB_OK);
    p.pin = false;
    assert_int_equal(tb_store_pointer(store, &p, &audit), TB_OK);
    tb_store_close(store);

    store = open_good();
    assert_int_equal(load(store, &l), TB_OK);
    assert_int_equal(l.run_count, 2);
    for (uint64_t i = 1; i <= 2; i++) {
        const struct tb_catalog_run want = make_run(i);
        const struct tb_catalog_run *have = &l.runs[i - 1];
        assert_int_equal(have->order, want.order);
        assert_memory_equal(&have->id, &want.id, sizeof want.id);
        assert_string_equal(have->key, want.key);
        assert_string_equal(have->model.text, "policy");
        assert_true(have->has_last && have->last_number == want.last_number);
        assert_true(have->resumed_run_order == want.resumed_run_order && have->resumed_number == UINT64_MAX);
        assert_int_equal(have->fenced, want.fenced);
    }
    assert_int_equal(l.version_count, 2); /* in their order, not that of writing */
    assert_int_equal(l.versions[0].key.number, 7);
    assert_int_equal(l.versions[0].state, TB_VERSION_KEPT);
    assert_true(l.versions[0].pinned);
    assert_false(l.versions[1].pinned);
    assert_memory_equal(&l.versions[0].key.root, &v.key.root, sizeof v.key.root);
    assert_memory_equal(&l.versions[0].key.uid, &v.key.uid, sizeof v.key.uid);
    assert_int_equal(l.versions[0].bytes, 1007);
    assert_int_equal(l.versions[0].key.shard_count, 2);
    tb_store_close(store);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

/* A pin survives that its version is written again. */
static void a_new_state_keeps_the_pin(void **state)
{
    (void)state;
    struct loaded l;
    struct tb_store *store = open_good();
    struct tb_store_version v = make_version(7);
    assert_int_equal(tb_store_version(store, &v, &audit), TB_OK);
    struct tb_store_pointer p = {.model = v.key.model, .uid = v.key.uid, .pin = true, .pinned = true};
    assert_int_equal(tb_store_pointer(store, &p, &audit), TB_OK);
    assert_int_equal(tb_store_version(store, &v, &audit), TB_OK);
    assert_int_equal(load(store, &l), TB_OK);
    assert_true(l.versions[0].pinned);
    p.pinned = false;
    assert_int_equal(tb_store_pointer(store, &p, &audit), TB_OK);
    assert_int_equal(load(store, &l), TB_OK);
    assert_false(l.versions[0].pinned);
    tb_store_close(store);
}

static void the_incarnation_grows_at_each_start(void **state)
{
    (void)state;
    uint64_t incarnation = 0;
    for (uint64_t start = 1; start <= 3; start++) {
        struct tb_store *store = open_good();
        assert_int_equal(tb_store_incarnation(store, 0, &incarnation), TB_OK);
        assert_int_equal(incarnation, start);
        tb_store_close(store);
    }
    struct tb_store *store = open_good();
    assert_int_equal(tb_store_incarnation(store, 90, &incarnation), TB_OK); /* a peer has seen 89 */
    assert_int_equal(incarnation, 90);
    assert_int_equal(tb_store_incarnation(store, 5, &incarnation), TB_OK);
    assert_int_equal(incarnation, 91);
    tb_store_close(store);
}

static void a_second_process_is_refused(void **state)
{
    (void)state;
    struct tb_store *store = open_good();
    struct tb_store *second = NULL;
    assert_int_equal(tb_store_open(path, &second, error), TB_SITE_STORE);
    assert_null(second);
    assert_non_null(strstr(error, path));
    assert_non_null(strstr(error, "another process holds it"));
    tb_store_close(store);
    tb_store_close(open_good());
}

/* As a user who may read the file and not write it. Root may do both, so a child
 * gives that up first. */
static void a_read_only_file_is_refused(void **state)
{
    (void)state;
    tb_store_close(open_good());
    assert_int_equal(chmod(path, 0444), 0);
    assert_int_equal(chmod(folder, 0755), 0);
    const pid_t pid = scratch_fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct tb_store *store = NULL;
        if (geteuid() == 0 && seteuid(65534) != 0) _exit(9);
        const enum tb_status status = tb_store_open(path, &store, error);
        _exit(status == TB_SITE_STORE && strstr(error, "cannot open for writing: Permission denied") != NULL
                  ? 0
                  : 1);
    }
    int how = 0;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_int_equal(how, 0);
    assert_int_equal(tb_store_open("/tmp/no-such-folder/s", &(struct tb_store *){NULL}, error),
                     TB_SITE_STORE);
    assert_non_null(strstr(error, "No such file or directory"));
}

static void pragma(const char *sql)
{
    assert_int_equal(sqlite3_exec(store_db, sql, NULL, NULL, NULL), SQLITE_OK);
}

/* P10 and P6: a full file says so, loses nothing that was there, and is good again once there is
 * room. */
static void a_full_file_refuses_and_recovers(void **state)
{
    (void)state;
    struct loaded l;
    char long_why[3000];
    struct tb_store *store = open_good();
    struct tb_store_version v = make_version(1);
    assert_int_equal(tb_store_version(store, &v, &audit), TB_OK);
    memset(long_why, 'x', sizeof long_why - 1);
    long_why[sizeof long_why - 1] = '\0';
    const struct tb_store_audit fat = {.what = "test", .who = "unix:0", .why = long_why};
    pragma("PRAGMA max_page_count=1"); /* SQLite takes the present size for the least */
    enum tb_status status = TB_OK;
    v = make_version(2);
    for (int i = 0; i < 10 && status == TB_OK; i++)
        status = tb_store_version(store, &v, &fat);
    assert_int_equal(status, TB_SITE_STORE);
    assert_non_null(strstr(tb_store_error(store), "full"));
    assert_non_null(strstr(tb_store_error(store), "free some space"));
    v = make_version(3); /* both the row and its audit line, or neither */
    assert_int_equal(tb_store_version(store, &v, &fat), TB_SITE_STORE);
    assert_int_equal(ask("SELECT COUNT(*) FROM version WHERE number=3"), 0);
    assert_int_equal(load(store, &l), TB_OK);
    assert_int_equal(l.versions[0].key.number, 1);
    pragma("PRAGMA max_page_count=100000");
    assert_int_equal(tb_store_version(store, &v, &fat), TB_OK);
    assert_int_equal(ask("SELECT COUNT(*) FROM version WHERE number=3"), 1);
    tb_store_close(store);
}

/* P3: a batch is on disk as a whole or not at all. */
static void a_batch_is_all_or_nothing(void **state)
{
    (void)state;
    struct tb_store *store = open_good();
    static struct tb_store_row rows[4];
    for (uint64_t i = 0; i < 2; i++) {
        rows[i] = (struct tb_store_row){.kind = TB_STORE_VERSION, .version = make_version(i + 1)};
        snprintf(rows[i].what, sizeof rows[i].what, "batch");
    }
    rows[2] = (struct tb_store_row){.kind = TB_STORE_INCARNATION, .incarnation = 90};
    rows[3] = (struct tb_store_row){.kind = TB_STORE_RUN, .run = make_run(1)};
    assert_int_equal(tb_store_rows(store, rows, 4), TB_OK);
    assert_int_equal(rows[2].incarnation, 90);
    assert_int_equal(ask("SELECT COUNT(*) FROM version"), 2);
    assert_int_equal(ask("SELECT COUNT(*) FROM audit WHERE what='batch'"), 2);
    assert_int_equal(ask("SELECT COUNT(*) FROM run"), 1);
    rows[0].version = make_version(3);
    rows[1].version = make_version(4);
    rows[3].kind = (enum tb_store_row_kind)9; /* nothing writes it */
    assert_int_equal(tb_store_rows(store, rows, 4), TB_BAD_ARGUMENT);
    assert_int_equal(ask("SELECT COUNT(*) FROM version"), 2);
    assert_int_equal(ask("SELECT CAST(value AS INTEGER) FROM meta WHERE name='incarnation'"), 90);
    assert_int_equal(tb_store_rows(store, rows, 3), TB_OK); /* and the store is as good as before */
    assert_int_equal(ask("SELECT COUNT(*) FROM version"), 4);
    tb_store_close(store);
}

static void found_path(void *user, const struct tb_store_path *found)
{
    struct tb_store_path *last = user;
    assert_string_equal(found->site.text, "west");
    *last = *found;
}

/* The newest word about a path is the one that is there after a restart; a row that is no
 * path holds nothing up. */
static void what_paths_bear_is_there_after_a_restart(void **state)
{
    (void)state;
    struct tb_store_path last = {.streams = 0};
    struct tb_store *store = open_good();
    struct tb_store_path west = {.streams = 8, .bytes_per_s = 100};
    assert_int_equal(tb_name_set(&west.site, "west"), TB_OK);
    assert_int_equal(tb_store_path(store, &west), TB_OK);
    struct tb_store_row row = {.kind = TB_STORE_PATH, .path = west};
    row.path.streams = 12;
    row.path.bytes_per_s = UINT64_C(1) << 40;
    assert_int_equal(tb_store_rows(store, &row, 1), TB_OK);
    tb_store_close(store);
    ask("INSERT INTO path VALUES('not a name!', 3, 3)");
    store = open_good();
    assert_int_equal(tb_store_load_paths(store, found_path, &last), TB_OK);
    assert_int_equal(last.streams, 12);
    assert_int_equal(last.bytes_per_s, UINT64_C(1) << 40);
    tb_store_close(store);
}

static void a_store_that_turns_read_only_says_so(void **state)
{
    (void)state;
    struct tb_store *store = open_good();
    const struct tb_store_version v = make_version(1);
    uint64_t incarnation = 0;
    pragma("PRAGMA query_only=1");
    assert_int_equal(tb_store_version(store, &v, &audit), TB_SITE_STORE);
    assert_non_null(strstr(tb_store_error(store), "readonly"));
    assert_non_null(strstr(tb_store_error(store), "must be writable"));
    assert_int_equal(tb_store_incarnation(store, 0, &incarnation), TB_SITE_STORE);
    assert_int_equal(incarnation, 0);
    pragma("PRAGMA query_only=0");
    assert_int_equal(tb_store_version(store, &v, &audit), TB_OK);
    tb_store_close(store);
}

static void damage_is_a_clear_error(void **state)
{
    (void)state;
    struct tb_store *store = NULL;
    FILE *f = fopen(path, "w");
    for (int i = 0; i < 8192; i++)
        fputc('x', f);
    fclose(f);
    assert_int_equal(tb_store_open(path, &store, error), TB_SITE_STORE);
    assert_non_null(strstr(error, "not a database"));
    assert_non_null(strstr(error, "restore a copy, or move it away"));
    assert_null(store);
}

/* Rows of a stranger's hand: each is refused with the name of its table. */
static void rows_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *sql, *undo, *table;
    } cases[] = {
        {"UPDATE version SET state=99", "UPDATE version SET state=2", "version"},
        {"UPDATE version SET state=0", "UPDATE version SET state=2", "version"},
        {"UPDATE version SET root=x'00'", "UPDATE version SET root=zeroblob(16)", "version"},
        {"UPDATE version SET model='a b'", "UPDATE version SET model='policy'", "version"},
        {"UPDATE run SET id=x'00'", "UPDATE run SET id=zeroblob(16)", "run"},
        {"UPDATE run SET key=replace(hex(zeroblob(5000)),'0','k')", "UPDATE run SET key='k'", "run"},
    };
    struct loaded l;
    struct tb_store *store = open_good();
    const struct tb_catalog_run run = make_run(1);
    const struct tb_store_version v = make_version(1);
    assert_int_equal(tb_store_run(store, &run, &audit), TB_OK);
    assert_int_equal(tb_store_version(store, &v, &audit), TB_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ask(cases[i].sql);
        assert_int_equal(load(store, &l), TB_SITE_STORE);
        assert_non_null(strstr(tb_store_error(store), cases[i].table));
        ask(cases[i].undo);
        assert_int_equal(load(store, &l), TB_OK);
    }
    tb_store_close(store);
}

static void another_schema_is_not_touched(void **state)
{
    (void)state;
    struct tb_store *store = NULL;
    tb_store_close(open_good());
    ask("UPDATE meta SET value='2' WHERE name='schema'");
    assert_int_equal(tb_store_open(path, &store, error), TB_SITE_STORE);
    assert_non_null(strstr(error, "schema 2 is not 1"));
}

/* P7: the trail is bounded; the first write of a process trims what is over. */
static void the_audit_trail_is_bounded(void **state)
{
    (void)state;
    tb_store_close(open_good());
    ask("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<100500) INSERT INTO audit "
        "SELECT i,0,'old','','','',0,0,x'00' FROM n");
    assert_int_equal(ask("SELECT COUNT(*) FROM audit"), 100500);
    struct tb_store *store = open_good();
    const struct tb_store_version v = make_version(1);
    assert_int_equal(tb_store_version(store, &v, &audit), TB_OK);
    tb_store_close(store);
    assert_int_equal(ask("SELECT COUNT(*) FROM audit"), TB_STORE_AUDIT_MAX);
    assert_int_equal(ask("SELECT COUNT(*) FROM audit WHERE what='test'"), 1);
}

/* P7: so are the versions that ended, of every model, also where it is never a version's row that
 * makes a round number: each version here is two rows beside it, and the period divides every
 * other. Of what is pinned or has not ended nothing goes. */
static void the_rows_of_ended_versions_are_bounded(void **state)
{
    (void)state;
    tb_store_close(open_good());
    ask("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<10300) INSERT INTO version "
        "SELECT CAST(printf('%016d',i) AS BLOB),'a',zeroblob(16),1,i,1,zeroblob(16),4,0,i=2 FROM n");
    ask("UPDATE version SET state=2 WHERE number=3");
    ask("INSERT INTO version SELECT CAST('b'||substr(CAST(uid AS TEXT),2) AS "
        "BLOB),'b',run,1,number,1,root,4,0,0 "
        "FROM version");
    assert_int_equal(ask("SELECT COUNT(*) FROM version"), 20600);
    struct tb_store *store = open_good();
    const struct tb_catalog_run run = make_run(1);
    assert_int_equal(tb_store_run(store, &run, &audit), TB_OK);
    tb_store_close(store);
    assert_int_equal(ask("SELECT COUNT(*) FROM version WHERE model='a'"), 18);
    assert_int_equal(ask("SELECT COUNT(*) FROM version WHERE model='b'"), 16);
    assert_int_equal(ask("SELECT MIN(number) FROM version WHERE model='b'"), 10285);
    assert_int_equal(ask("SELECT COUNT(*) FROM version WHERE number=2 AND pinned"), 1);
    assert_int_equal(ask("SELECT COUNT(*) FROM version WHERE number=3 AND state=2"), 1);
}

/* P7: of each model after each of its versions, not only now and then; what has not ended takes
 * no place among them. */
static void the_rows_of_ended_versions_do_not_swing(void **state)
{
    (void)state;
    struct tb_store *store = open_good();
    for (uint32_t i = 0; i < 40; i++) {
        struct tb_store_version v = make_version(100 + i);
        v.state = i >= 20 ? TB_VERSION_RETIRED : TB_VERSION_READY;
        assert_int_equal(tb_store_version(store, &v, &audit), TB_OK);
        if (i < 36) continue;
        assert_int_equal(ask("SELECT COUNT(*) FROM version WHERE state=4"), 16);
        assert_int_equal(ask("SELECT COUNT(*) FROM version WHERE number>=100 AND state=2"), 20);
    }
    tb_store_close(store);
    assert_int_equal(ask("SELECT MIN(number) FROM version WHERE state=4"), 124);
}

/* P7, P2: and the runs, of every model: as many are kept as a catalog remembers, and all that may
 * publish or have a version here. */
static void the_rows_of_runs_are_bounded(void **state)
{
    (void)state;
    tb_store_close(open_good());
    ask("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<1200) INSERT INTO run "
        "SELECT 'a',i,CAST(printf('%016d',i) AS BLOB),'k'||i,0,0,0,0,i NOT IN (3,1200) FROM n");
    ask("INSERT INTO run SELECT 'b',run_order,CAST('b'||substr(CAST(id AS TEXT),2) AS "
        "BLOB),key,0,0,0,0,fenced FROM run "
        "WHERE run_order<=100");
    ask("INSERT INTO version SELECT CAST(printf('%016d',1) AS BLOB),'a',id,run_order,1,1,zeroblob(16),4,0,0 "
        "FROM run "
        "WHERE model='a' AND run_order=2");
    struct tb_store *store = open_good();
    const struct tb_store_version v = make_version(1);
    assert_int_equal(tb_store_version(store, &v, &audit), TB_OK);
    tb_store_close(store);
    assert_int_equal(ask("SELECT COUNT(*) FROM run WHERE model='a'"), TB_CATALOG_RUNS + 2);
    assert_int_equal(ask("SELECT COUNT(*) FROM run WHERE model='a' AND run_order IN (2,3,177,1200)"), 4);
    assert_int_equal(ask("SELECT COUNT(*) FROM run WHERE model='b'"), 100);
}

static void count_doubt(void *user, const struct tb_name *model)
{
    assert_string_equal(model->text, "policy");
    ++*(int *)user;
}

static int doubts(struct tb_store *store)
{
    int count = 0;
    assert_int_equal(tb_store_load_doubts(store, count_doubt, &count), TB_OK);
    return count;
}

/* Its first process finds it new until it owns it; a copy that is put back is another file. Doubts
 * stay until they end. */
static void a_copy_that_was_put_back_is_known(void **state)
{
    (void)state;
    struct tb_name policy;
    uint64_t incarnation;
    assert_int_equal(tb_name_set(&policy, "policy"), TB_OK);
    struct tb_store *store = open_good();
    assert_int_equal(tb_store_origin(store), TB_STORE_NEW);
    assert_int_equal(tb_store_own(store, &policy, 1), TB_OK);
    assert_int_equal(tb_store_incarnation(store, 1, &incarnation), TB_OK);
    tb_store_close(store);
    store = open_good();
    assert_int_equal(tb_store_origin(store), TB_STORE_SAME);
    assert_int_equal(doubts(store), 1);
    struct tb_store_row ended = {.kind = TB_STORE_DOUBT, .doubt = {policy, false}};
    assert_int_equal(tb_store_rows(store, &ended, 1), TB_OK);
    assert_int_equal(doubts(store), 0);
    tb_store_close(store);
    char copy[300], command[2000];
    snprintf(copy, sizeof copy, "%s.copy", path);
    snprintf(command, sizeof command, "cp '%s' '%s' && mv '%s' '%s'", path, copy, copy, path);
    assert_int_equal(system(command), 0);
    store = open_good();
    assert_int_equal(tb_store_origin(store), TB_STORE_RESTORED);
    assert_int_equal(tb_store_own(store, &policy, 1), TB_OK);
    tb_store_close(store);
    store = open_good();
    assert_int_equal(tb_store_origin(store), TB_STORE_SAME);
    assert_int_equal(doubts(store), 1);
    tb_store_close(store);
}

struct withdrawn {
    uint32_t count;
    uint64_t first, last; /* numbers */
};

static void take_withdrawn(void *user, const struct tb_version_key *key)
{
    struct withdrawn *w = user;
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
    struct tb_store *store = open_good();
    const struct tb_store_row ready = {.kind = TB_STORE_VERSION, .version = make_version(MANY + 1)};
    struct tb_store_row row = ready;
    assert_int_equal(tb_store_rows(store, &row, 1), TB_OK);
    assert_int_equal(withdrawn(store).count, 0);
    for (uint64_t i = 1; i <= LEAST; i++) {
        row.version = make_version(i);
        row.version.state = TB_VERSION_ENDED_WITHDRAWN;
        assert_int_equal(tb_store_rows(store, &row, 1), TB_OK);
        assert_int_equal(tb_store_rows(store, &row, 1), TB_OK); /* said again */
    }
    tb_store_close(store);
    store = open_good();
    assert_true(ask("SELECT COUNT(*) FROM version") < LEAST);
    assert_int_equal(withdrawn(store).count, LEAST);
    assert_int_equal(withdrawn(store).first, 1);
    assert_int_equal(withdrawn(store).last, LEAST);
    for (uint64_t i = LEAST + 1; i <= MANY; i++) {
        row.version = make_version(i);
        row.version.state = TB_VERSION_ENDED_WITHDRAWN;
        assert_int_equal(tb_store_rows(store, &row, 1), TB_OK);
    }
    assert_in_range(withdrawn(store).count, TB_STORE_WITHDRAWN_MAX, TB_STORE_WITHDRAWN_MAX + 256);
    assert_int_equal(withdrawn(store).last, MANY);
    tb_store_close(store);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_was_written_is_there_after_a_restart),
        TEST(a_new_state_keeps_the_pin),
        TEST(the_incarnation_grows_at_each_start),
        TEST(a_second_process_is_refused),
        TEST(a_read_only_file_is_refused),
        TEST(a_full_file_refuses_and_recovers),
        TEST(a_batch_is_all_or_nothing),
        TEST(a_store_that_turns_read_only_says_so),
        TEST(damage_is_a_clear_error),
        TEST(rows_that_make_no_sense_are_refused),
        TEST(another_schema_is_not_touched),
        TEST(what_paths_bear_is_there_after_a_restart),
        TEST(the_audit_trail_is_bounded),
        TEST(the_rows_of_ended_versions_are_bounded),
        TEST(the_rows_of_ended_versions_do_not_swing),
        TEST(the_rows_of_runs_are_bounded),
        TEST(withdrawals_outlive_their_versions),
        TEST(a_copy_that_was_put_back_is_known),
    };
    sqlite3_auto_extension((void (*)(void))note_connection);
    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
