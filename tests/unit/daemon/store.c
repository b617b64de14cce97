/* store.c - what survives a restart, and every way in which a file can refuse: read-only, full,
 * damaged, held by another.
 * Covers: gateway/store/store.c gateway/store/store_file.c gateway/store/store_load.c
 * Covers: gateway/store/store_statements.c */
#include "gateway/store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sqlite3.h>

#include "gateway/store/store_load.h"
#include "store_world.h"

static const struct tb_disk_keys in_clear = {.key = NULL};

static char error[256];
static sqlite3 *opened;   /* the newest connection of this process */
static sqlite3 *store_db; /* the store's */

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
    struct tb_store *store = store_open_good();
    store_db = opened;
    return store;
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

/* P3, of what is not in the arena. */
static void rows_survive_a_restart(void **state)
{
    (void)state;
    struct loaded l;
    struct tb_store *store = open_good();
    for (uint64_t i = 2; i >= 1; i--) {
        const struct tb_catalog_run run = store_make_run(i);
        assert_int_equal(tb_store_run(store, &run, &store_audit), TB_OK);
    }
    struct tb_store_version v = store_make_version(8);
    assert_int_equal(tb_store_version(store, &v, &store_audit), TB_OK);
    v = store_make_version(7);
    assert_int_equal(tb_store_version(store, &v, &store_audit), TB_OK);
    v.state = TB_VERSION_KEPT; /* a later state replaces the row */
    assert_int_equal(tb_store_version(store, &v, &store_audit), TB_OK);
    struct tb_store_pointer p = {.model = v.key.model, .uid = v.key.uid, .pin = true, .pinned = true};
    assert_int_equal(tb_store_pointer(store, &p, &store_audit), TB_OK);
    p.pin = false;
    assert_int_equal(tb_store_pointer(store, &p, &store_audit), TB_OK);
    tb_store_close(store);

    store = open_good();
    assert_int_equal(load(store, &l), TB_OK);
    assert_int_equal(l.run_count, 2);
    for (uint64_t i = 1; i <= 2; i++) {
        const struct tb_catalog_run want = store_make_run(i);
        const struct tb_catalog_run *have = &l.runs[i - 1];
        assert_int_equal(have->order, want.order);
        assert_memory_equal(&have->id, &want.id, sizeof want.id);
        assert_string_equal(have->key, want.key);
        assert_string_equal(have->model.text, "policy");
        assert_true(have->has_last && have->last_number == want.last_number);
        assert_true(have->resumed_run_order == want.resumed_run_order && have->resumed_number == UINT64_MAX);
        assert_int_equal(have->fenced, want.fenced);
        assert_string_equal(have->opened_by, want.opened_by);
        assert_string_equal(have->fenced_by, want.fenced_by);
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
    assert_int_equal(stat(store_path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

/* A pin survives that its version is written again. */
static void a_new_state_keeps_the_pin(void **state)
{
    (void)state;
    struct loaded l;
    struct tb_store *store = open_good();
    struct tb_store_version v = store_make_version(7);
    assert_int_equal(tb_store_version(store, &v, &store_audit), TB_OK);
    struct tb_store_pointer p = {.model = v.key.model, .uid = v.key.uid, .pin = true, .pinned = true};
    assert_int_equal(tb_store_pointer(store, &p, &store_audit), TB_OK);
    assert_int_equal(tb_store_version(store, &v, &store_audit), TB_OK);
    assert_int_equal(load(store, &l), TB_OK);
    assert_true(l.versions[0].pinned);
    p.pinned = false;
    assert_int_equal(tb_store_pointer(store, &p, &store_audit), TB_OK);
    assert_int_equal(load(store, &l), TB_OK);
    assert_false(l.versions[0].pinned);
    tb_store_close(store);
}

/* P3 P10: a model has one pin, and its operator is known. */
static void another_pin_takes_its_place(void **state)
{
    (void)state;
    struct loaded l;
    struct tb_store *store = open_good();
    for (uint64_t number = 7; number <= 8; number++) {
        const struct tb_store_version v = store_make_version(number);
        const struct tb_store_pointer p = {
            .model = v.key.model, .uid = v.key.uid, .pin = true, .pinned = true};
        assert_int_equal(tb_store_version(store, &v, &store_audit), TB_OK);
        assert_int_equal(tb_store_pointer(store, &p, &store_audit), TB_OK);
    }
    tb_store_close(store);
    store = open_good();
    assert_int_equal(load(store, &l), TB_OK);
    assert_int_equal(l.version_count, 2);
    assert_true(!l.versions[0].pinned && l.versions[1].pinned);
    assert_string_equal(l.versions[1].pinned_by, store_audit.who);
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
    assert_int_equal(tb_store_open(store_path, &in_clear, &second, error), TB_SITE_STORE);
    assert_null(second);
    assert_non_null(strstr(error, store_path));
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
    assert_int_equal(chmod(store_path, 0444), 0);
    assert_int_equal(chmod(store_folder, 0755), 0);
    const pid_t pid = scratch_fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct tb_store *store = NULL;
        if (geteuid() == 0 && seteuid(65534) != 0) _exit(9);
        const enum tb_status status = tb_store_open(store_path, &in_clear, &store, error);
        _exit(status == TB_SITE_STORE && strstr(error, "cannot open for writing: Permission denied") != NULL
                  ? 0
                  : 1);
    }
    int how = 0;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_int_equal(how, 0);
    assert_int_equal(tb_store_open("/tmp/no-such-folder/s", &in_clear, &(struct tb_store *){NULL}, error),
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
    struct tb_store_version v = store_make_version(1);
    assert_int_equal(tb_store_version(store, &v, &store_audit), TB_OK);
    memset(long_why, 'x', sizeof long_why - 1);
    long_why[sizeof long_why - 1] = '\0';
    const struct tb_store_audit fat = {.what = "test", .who = "unix:0", .why = long_why};
    pragma("PRAGMA max_page_count=1"); /* SQLite takes the present size for the least */
    enum tb_status status = TB_OK;
    v = store_make_version(2);
    for (int i = 0; i < 1000 && status == TB_OK; i++)
        status = tb_store_version(store, &v, &fat);
    assert_int_equal(status, TB_SITE_STORE);
    assert_non_null(strstr(tb_store_error(store), "full"));
    assert_non_null(strstr(tb_store_error(store), "free some space"));
    v = store_make_version(3); /* both the row and its audit line, or neither */
    assert_int_equal(tb_store_version(store, &v, &fat), TB_SITE_STORE);
    assert_int_equal(store_ask("SELECT COUNT(*) FROM version WHERE number=3"), 0);
    assert_int_equal(load(store, &l), TB_OK);
    assert_int_equal(l.versions[0].key.number, 1);
    pragma("PRAGMA max_page_count=100000");
    assert_int_equal(tb_store_version(store, &v, &fat), TB_OK);
    assert_int_equal(store_ask("SELECT COUNT(*) FROM version WHERE number=3"), 1);
    tb_store_close(store);
}

/* P3: a batch is on disk as a whole or not at all. */
static void a_batch_is_all_or_nothing(void **state)
{
    (void)state;
    struct tb_store *store = open_good();
    static struct tb_store_row rows[4];
    for (uint64_t i = 0; i < 2; i++) {
        rows[i] = (struct tb_store_row){.kind = TB_STORE_VERSION, .version = store_make_version(i + 1)};
        snprintf(rows[i].what, sizeof rows[i].what, "batch");
        rows[i].wall_ms = UINT64_C(1) << 42; /* of rows that are old the store lets go */
    }
    rows[2] = (struct tb_store_row){.kind = TB_STORE_INCARNATION, .incarnation = 90};
    rows[3] = (struct tb_store_row){.kind = TB_STORE_RUN, .run = store_make_run(1)};
    assert_int_equal(tb_store_rows(store, rows, 4), TB_OK);
    assert_int_equal(rows[2].incarnation, 90);
    assert_int_equal(store_ask("SELECT COUNT(*) FROM version"), 2);
    assert_int_equal(store_ask("SELECT COUNT(*) FROM record WHERE action='batch'"), 2);
    assert_int_equal(store_ask("SELECT COUNT(*) FROM run"), 1);
    rows[0].version = store_make_version(3);
    rows[1].version = store_make_version(4);
    rows[3].kind = (enum tb_store_row_kind)99; /* nothing writes it */
    assert_int_equal(tb_store_rows(store, rows, 4), TB_BAD_ARGUMENT);
    assert_int_equal(store_ask("SELECT COUNT(*) FROM version"), 2);
    assert_int_equal(store_ask("SELECT CAST(value AS INTEGER) FROM meta WHERE name='incarnation'"), 90);
    assert_int_equal(tb_store_rows(store, rows, 3), TB_OK); /* and the store is as good as before */
    assert_int_equal(store_ask("SELECT COUNT(*) FROM version"), 4);
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
static void path_rates_survive_a_restart(void **state)
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
    store_ask("INSERT INTO path VALUES('not a name!', 3, 3)");
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
    const struct tb_store_version v = store_make_version(1);
    uint64_t incarnation = 0;
    pragma("PRAGMA query_only=1");
    assert_int_equal(tb_store_version(store, &v, &store_audit), TB_SITE_STORE);
    assert_non_null(strstr(tb_store_error(store), "readonly"));
    assert_non_null(strstr(tb_store_error(store), "must be writable"));
    assert_int_equal(tb_store_incarnation(store, 0, &incarnation), TB_SITE_STORE);
    assert_int_equal(incarnation, 0);
    pragma("PRAGMA query_only=0");
    assert_int_equal(tb_store_version(store, &v, &store_audit), TB_OK);
    tb_store_close(store);
}

static void damage_is_a_clear_error(void **state)
{
    (void)state;
    struct tb_store *store = NULL;
    FILE *f = fopen(store_path, "w");
    for (int i = 0; i < 8192; i++)
        fputc('x', f);
    fclose(f);
    assert_int_equal(chmod(store_path, 0644), 0); /* whatever the umask is */
    assert_int_equal(tb_store_open(store_path, &in_clear, &store, error), TB_SITE_STORE);
    assert_non_null(strstr(error, "others may use it (mode 0644)"));
    assert_int_equal(chmod(store_path, 0600), 0);
    assert_int_equal(tb_store_open(store_path, &in_clear, &store, error), TB_SITE_STORE);
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
    const struct tb_catalog_run run = store_make_run(1);
    const struct tb_store_version v = store_make_version(1);
    assert_int_equal(tb_store_run(store, &run, &store_audit), TB_OK);
    assert_int_equal(tb_store_version(store, &v, &store_audit), TB_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        store_ask(cases[i].sql);
        assert_int_equal(load(store, &l), TB_SITE_STORE);
        assert_non_null(strstr(tb_store_error(store), cases[i].table));
        store_ask(cases[i].undo);
        assert_int_equal(load(store, &l), TB_OK);
    }
    tb_store_close(store);
}

static void another_schema_is_not_touched(void **state)
{
    (void)state;
    struct tb_store *store = NULL;
    tb_store_close(open_good());
    store_ask("UPDATE meta SET value='2' WHERE name='schema'");
    assert_int_equal(tb_store_open(store_path, &in_clear, &store, error), TB_SITE_STORE);
    assert_non_null(strstr(error, "schema 2 is not 1"));
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
    assert_int_equal(tb_store_own(store, &policy, 1, true), TB_OK);
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
    snprintf(copy, sizeof copy, "%s.copy", store_path);
    snprintf(command, sizeof command, "cp '%s' '%s' && mv '%s' '%s'", store_path, copy, copy, store_path);
    assert_int_equal(system(command), 0);
    store = open_good();
    assert_int_equal(tb_store_origin(store), TB_STORE_RESTORED);
    assert_int_equal(tb_store_own(store, &policy, 1, true), TB_OK);
    tb_store_close(store);
    store = open_good();
    assert_int_equal(tb_store_origin(store), TB_STORE_SAME);
    assert_int_equal(doubts(store), 1);
    tb_store_close(store);
}

static bool is_doubted(struct tb_store *store, const char *name)
{
    static struct tb_store_model m;
    assert_int_equal(tb_name_set(&m.name, name), TB_OK);
    assert_int_equal(tb_store_model(store, &m), TB_OK);
    return m.doubted;
}

/* P2: a home that lost its disk knows no name of its patterns, and doubts each; unless an operator
 * says that it is the first installation. One that was put back is no first one. */
static void a_new_store_doubts_the_names_that_it_does_not_know(void **state)
{
    (void)state;
    char command[700];
    uint64_t incarnation;
    for (int first = 0; first < 2; first++) {
        struct tb_store *store = open_good();
        assert_int_equal(tb_store_origin(store), TB_STORE_NEW);
        assert_int_equal(tb_store_own(store, NULL, 0, first != 0), TB_OK);
        assert_int_equal(tb_store_incarnation(store, 1, &incarnation), TB_OK);
        assert_int_equal(is_doubted(store, "lora-7"), first == 0);
        tb_store_close(store);
        store = open_good();
        assert_int_equal(tb_store_origin(store), TB_STORE_SAME);
        assert_int_equal(tb_store_own(store, NULL, 0, false), TB_OK);
        assert_int_equal(is_doubted(store, "lora-7"), first == 0);
        tb_store_close(store);
        snprintf(command, sizeof command, "rm -f '%s' '%s-wal' '%s-shm'", store_path, store_path, store_path);
        assert_int_equal(system(command), 0);
    }
}

static bool doubted_after_start(bool first, const char *name)
{
    uint64_t incarnation;
    struct tb_store *store = open_good();
    assert_int_equal(tb_store_own(store, NULL, 0, first), TB_OK);
    assert_int_equal(tb_store_incarnation(store, 1, &incarnation), TB_OK);
    const bool is = is_doubted(store, name);
    tb_store_close(store);
    return is;
}

/* P2: a first start without --new-home leaves each name that is still to come in doubt. The
 * operator ends that at any later start; a doubt that comes after it counts. */
static void a_later_start_ends_the_doubt_of_all_names(void **state)
{
    (void)state;
    struct tb_store_doubt one = {.doubted = true};
    const struct tb_store_doubt all = {.doubted = true};
    assert_true(doubted_after_start(false, "lora-1"));
    assert_true(doubted_after_start(false, "lora-2"));
    assert_false(doubted_after_start(true, "lora-1"));
    assert_false(doubted_after_start(false, "lora-2"));
    struct tb_store *store = open_good();
    assert_int_equal(tb_name_set(&one.model, "lora-1"), TB_OK);
    assert_int_equal(tb_store_doubt(store, &one), TB_OK);
    assert_true(is_doubted(store, "lora-1"));
    assert_false(is_doubted(store, "lora-2"));
    assert_int_equal(tb_store_doubt(store, &all), TB_OK);
    assert_true(is_doubted(store, "lora-2"));
    tb_store_close(store);
}

struct pauses {
    uint32_t count;
    struct tb_store_pause rows[4];
};

static void note_pause(void *user, const struct tb_store_pause *pause)
{
    struct pauses *p = user;
    assert_true(p->count < 4);
    p->rows[p->count++] = *pause;
}

/* P10: a pause holds over a restart until it is ended, and keeps the name of its operator. A model
 * and a peer of one name have a pause each. */
static void pauses_survive_a_restart(void **state)
{
    (void)state;
    struct pauses p = {0};
    struct tb_store_pause model = {.paused = true, .who = "ann (uid 7)", .wall_ms = 11};
    assert_int_equal(tb_name_set(&model.name, "policy"), TB_OK);
    struct tb_store_pause peer = model;
    peer.is_peer = true;
    peer.wall_ms = 12;
    struct tb_store *store = open_good();
    assert_int_equal(tb_store_pause(store, &model), TB_OK);
    assert_int_equal(tb_store_pause(store, &peer), TB_OK);
    tb_store_close(store);
    store = open_good();
    assert_int_equal(tb_store_load_pauses(store, note_pause, &p), TB_OK);
    assert_int_equal(p.count, 2);
    assert_true(!p.rows[0].is_peer && p.rows[1].is_peer && p.rows[0].paused);
    assert_string_equal(p.rows[0].name.text, "policy");
    assert_string_equal(p.rows[0].who, "ann (uid 7)");
    assert_int_equal(p.rows[0].wall_ms, 11);
    model.paused = false;
    assert_int_equal(tb_store_pause(store, &model), TB_OK);
    tb_store_close(store);
    store = open_good();
    p.count = 0;
    assert_int_equal(tb_store_load_pauses(store, note_pause, &p), TB_OK);
    assert_int_equal(p.count, 1);
    assert_true(p.rows[0].is_peer);
    tb_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORE_TEST(a_new_store_doubts_the_names_that_it_does_not_know),
        STORE_TEST(a_later_start_ends_the_doubt_of_all_names),
        STORE_TEST(rows_survive_a_restart),
        STORE_TEST(pauses_survive_a_restart),
        STORE_TEST(a_new_state_keeps_the_pin),
        STORE_TEST(another_pin_takes_its_place),
        STORE_TEST(the_incarnation_grows_at_each_start),
        STORE_TEST(a_second_process_is_refused),
        STORE_TEST(a_read_only_file_is_refused),
        STORE_TEST(a_full_file_refuses_and_recovers),
        STORE_TEST(a_batch_is_all_or_nothing),
        STORE_TEST(a_store_that_turns_read_only_says_so),
        STORE_TEST(damage_is_a_clear_error),
        STORE_TEST(rows_that_make_no_sense_are_refused),
        STORE_TEST(another_schema_is_not_touched),
        STORE_TEST(path_rates_survive_a_restart),
        STORE_TEST(a_copy_that_was_put_back_is_known),
    };
    sqlite3_auto_extension((void (*)(void))note_connection);
    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
