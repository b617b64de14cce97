/* store.c - one SQLite file in WAL mode, its statements prepared once, every write one
 * transaction. Readers such as the sqlite3 shell may look on; a second daemon is kept out by a
 * lock that SQLite does not know. */
#include "gateway/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/fault.h"

#define SCHEMA_VERSION "1"
#define TRIM_EVERY     256 /* writes */
#define OPEN_BUSY_MS   2000
/* Who is locked out so long says so and tries again later. */
#define BUSY_MS 500
/* Rows of a model's versions that ended. A catalog remembers 8 of a model; the others would only be
 * read at a start and forgotten there. */
#define ENDED_KEPT 16
/* Of a model: as many as a catalog remembers, so a key that was used is known after a restart for
 * as long as it was before. */
#define RUNS_KEPT TB_CATALOG_RUNS

static const char schema_sql[] =
    "CREATE TABLE IF NOT EXISTS meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    "INSERT OR IGNORE INTO meta VALUES('schema','" SCHEMA_VERSION "'),('incarnation','0');"
    "CREATE TABLE IF NOT EXISTS run(model TEXT NOT NULL, run_order INTEGER NOT NULL, id BLOB NOT NULL UNIQUE,"
    " key TEXT NOT NULL, has_last INTEGER NOT NULL, last_number INTEGER NOT NULL,"
    " resumed_run_order INTEGER NOT NULL, resumed_number INTEGER NOT NULL, fenced INTEGER NOT NULL,"
    " PRIMARY KEY(model, run_order)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS version(uid BLOB PRIMARY KEY, model TEXT NOT NULL, run BLOB NOT NULL,"
    " run_order INTEGER NOT NULL, number INTEGER NOT NULL, shard_count INTEGER NOT NULL, root BLOB NOT NULL,"
    " state INTEGER NOT NULL, bytes INTEGER NOT NULL, pinned INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;"
    "CREATE INDEX IF NOT EXISTS version_order ON version(model, run_order, number);"
    "CREATE TABLE IF NOT EXISTS withdrawn(id INTEGER PRIMARY KEY AUTOINCREMENT, uid BLOB NOT NULL UNIQUE,"
    " model TEXT NOT NULL, run BLOB NOT NULL, run_order INTEGER NOT NULL, number INTEGER NOT NULL,"
    " shard_count INTEGER NOT NULL, root BLOB NOT NULL);"
    "CREATE TABLE IF NOT EXISTS pointer(model TEXT NOT NULL, name TEXT NOT NULL, uid BLOB NOT NULL,"
    " PRIMARY KEY(model, name)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS spent(site TEXT PRIMARY KEY, day INTEGER NOT NULL, bytes INTEGER NOT NULL) "
    "WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS path(site TEXT PRIMARY KEY, streams INTEGER NOT NULL, bytes_per_s INTEGER "
    "NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS doubt(model TEXT PRIMARY KEY) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS audit(id INTEGER PRIMARY KEY AUTOINCREMENT, wall_ms INTEGER NOT NULL,"
    " what TEXT NOT NULL, who TEXT NOT NULL, why TEXT NOT NULL, model TEXT NOT NULL, run_order INTEGER NOT "
    "NULL,"
    " number INTEGER NOT NULL, uid BLOB NOT NULL);";

#define STATEMENTS(X)                                                                                        \
    X(begin, "BEGIN IMMEDIATE")                                                                              \
    X(commit, "COMMIT")                                                                                      \
    X(rollback, "ROLLBACK")                                                                                  \
    X(incarnation_get, "SELECT CAST(value AS INTEGER) FROM meta WHERE name='incarnation'")                   \
    X(incarnation_set, "UPDATE meta SET value=?1 WHERE name='incarnation'")                                  \
    X(file_get, "SELECT value FROM meta WHERE name='file'")                                                  \
    X(file_set, "INSERT OR REPLACE INTO meta VALUES('file', ?1)")                                            \
    X(doubt_put, "INSERT OR IGNORE INTO doubt VALUES(?1)")                                                   \
    X(doubt_end, "DELETE FROM doubt WHERE model=?1")                                                         \
    X(doubt_all, "SELECT model FROM doubt")                                                                  \
    X(run_put, "INSERT OR REPLACE INTO run VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9)")                              \
    X(run_trim,                                                                                              \
      "DELETE FROM run WHERE fenced=1 AND id NOT IN (SELECT run FROM version) AND id IN (SELECT id FROM "    \
      "(SELECT id, ROW_NUMBER() OVER (PARTITION BY model ORDER BY run_order DESC) AS place FROM run) "       \
      "WHERE place > ?1)")                                                                                   \
    X(run_all, "SELECT * FROM run ORDER BY model, run_order")                                                \
    X(version_put,                                                                                           \
      "INSERT INTO version VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10) ON CONFLICT(uid) DO UPDATE SET "           \
      "root=?7, state=?8, bytes=?9, shard_count=?6")                                                         \
    X(version_all, "SELECT * FROM version ORDER BY model, run_order, number")                                \
    X(version_trim,                                                                                          \
      "DELETE FROM version WHERE uid IN (SELECT uid FROM (SELECT uid, ROW_NUMBER() OVER (PARTITION BY "      \
      "model ORDER BY run_order DESC, number DESC) AS place FROM version WHERE state>=4 AND pinned=0) "      \
      "WHERE place > ?1)")                                                                                   \
    X(version_trim_model,                                                                                    \
      "DELETE FROM version WHERE uid IN (SELECT uid FROM version WHERE model=?2 AND state>=4 AND pinned=0 "  \
      "ORDER BY run_order DESC, number DESC LIMIT -1 OFFSET ?1)")                                            \
    X(version_pin, "UPDATE version SET pinned=?2 WHERE uid=?1")                                              \
    X(withdrawn_put, "INSERT OR IGNORE INTO withdrawn(uid,model,run,run_order,number,shard_count,root) "     \
                     "VALUES(?1,?2,?3,?4,?5,?6,?7)")                                                         \
    X(withdrawn_all, "SELECT uid,model,run,run_order,number,shard_count,root FROM withdrawn ORDER BY id")    \
    X(withdrawn_trim, "DELETE FROM withdrawn WHERE id IN (SELECT id FROM (SELECT id, ROW_NUMBER() OVER "     \
                      "(PARTITION BY model ORDER BY id DESC) AS place FROM withdrawn) WHERE place > ?1)")    \
    X(pointer_put, "INSERT OR REPLACE INTO pointer VALUES(?1,?2,?3)")                                        \
    X(spent_put, "INSERT OR REPLACE INTO spent VALUES(?1,?2,?3)")                                            \
    X(spent_all, "SELECT site, day, bytes FROM spent")                                                       \
    X(path_put, "INSERT OR REPLACE INTO path VALUES(?1,?2,?3)")                                              \
    X(path_all, "SELECT site, streams, bytes_per_s FROM path")                                               \
    X(audit_put,                                                                                             \
      "INSERT INTO audit(wall_ms,what,who,why,model,run_order,number,uid) VALUES(?1,?2,?3,?4,?5,?6,?7,?8)")  \
    X(audit_trim, "DELETE FROM audit WHERE id <= (SELECT MAX(id) FROM audit) - ?1")

enum statement {
#define STATEMENT_ENUM(name, sql) ST_##name,
    STATEMENTS(STATEMENT_ENUM)
#undef STATEMENT_ENUM
        STATEMENT_COUNT
};

struct tb_store {
    sqlite3 *db;
    sqlite3_stmt *st[STATEMENT_COUNT];
    int lock_fd; /* closed after the database: closing any descriptor of the file drops SQLite's own locks */
    uint64_t writes;
    bool batch; /* a transaction is open: rows are written in it */
    enum tb_store_origin origin;
    char file[48]; /* which file this is; empty: the filesystem does not tell */
    char error[256];
};

/* What an operator can do about it; "" where SQLite's own words say it. */
static const char *hint(int code)
{
    switch (code & 0xff) {
    case SQLITE_FULL:
        return "; free some space on its filesystem";
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
        return "; the file and its folder must be writable";
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return "; another process writes to it";
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return "; restore a copy, or move it away to begin empty";
    case SQLITE_IOERR:
        return "; look at its disk";
    default:
        return "";
    }
}

static enum tb_status failed(struct tb_store *s, const char *doing)
{
    if (s->db == NULL)
        snprintf(s->error, sizeof s->error, "%s: no memory", doing);
    else
        snprintf(s->error, sizeof s->error, "%s: %.120s%s", doing, sqlite3_errmsg(s->db),
                 hint(sqlite3_errcode(s->db)));
    return TB_SITE_STORE;
}

static enum tb_status run_once(struct tb_store *s, enum statement which, const char *doing)
{
    sqlite3_stmt *st = s->st[which];
    const int rc = sqlite3_step(st);
    const enum tb_status status = rc == SQLITE_DONE || rc == SQLITE_ROW ? TB_OK : failed(s, doing);
    sqlite3_reset(st);
    sqlite3_clear_bindings(st);
    return status;
}

static void bind_text(sqlite3_stmt *st, int at, const char *text)
{
    sqlite3_bind_text(st, at, text != NULL ? text : "", -1, SQLITE_TRANSIENT);
}

static void bind_u64(sqlite3_stmt *st, int at, uint64_t v)
{
    sqlite3_bind_int64(st, at, (sqlite3_int64)v);
}

static void bind_id(sqlite3_stmt *st, int at, const struct tb_id *id)
{
    sqlite3_bind_blob(st, at, id->bytes, sizeof id->bytes, SQLITE_TRANSIENT);
}

/* ---- opening ---- */

static const char *const statements[STATEMENT_COUNT] = {
#define STATEMENT_SQL(name, text) text,
    STATEMENTS(STATEMENT_SQL)
#undef STATEMENT_SQL
};

static enum tb_status prepare_all(struct tb_store *s)
{
    for (int i = 0; i < STATEMENT_COUNT; i++) {
        if (sqlite3_prepare_v3(s->db, statements[i], -1, SQLITE_PREPARE_PERSISTENT, &s->st[i], NULL) !=
            SQLITE_OK) {
            return failed(s, "preparing");
        }
    }
    return TB_OK;
}

static enum tb_status schema_check(struct tb_store *s)
{
    sqlite3_stmt *st = NULL;
    enum tb_status status = TB_SITE_STORE;
    if (sqlite3_prepare_v2(s->db, "SELECT value FROM meta WHERE name='schema'", -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW) {
        const char *have = (const char *)sqlite3_column_text(st, 0);
        if (have != NULL && strcmp(have, SCHEMA_VERSION) == 0)
            status = TB_OK;
        else
            snprintf(s->error, sizeof s->error, "schema %s is not " SCHEMA_VERSION,
                     have != NULL ? have : "?");
    } else {
        status = failed(s, "reading the schema");
    }
    sqlite3_finalize(st);
    return status;
}

/* The file is made here so that its mode is right from its first byte on. */
static enum tb_status lock_file(struct tb_store *s, const char *path)
{
    s->lock_fd = tb_sys_open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (s->lock_fd < 0) {
        snprintf(s->error, sizeof s->error, "cannot open for writing: %s", strerror(errno));
        return TB_SITE_STORE;
    }
    if (flock(s->lock_fd, LOCK_EX | LOCK_NB) == 0) return TB_OK;
    snprintf(s->error, sizeof s->error, "%s",
             errno == EWOULDBLOCK ? "another process holds it; is a second tombolod running?"
                                  : strerror(errno));
    return TB_SITE_STORE;
}

static sqlite3_mem_methods plain; /* SQLite's own, which also knows how large what it gave is */

static void *fallible_malloc(int bytes)
{
    return tb_fault_hit(TB_FAULT_library, ENOMEM) ? NULL : plain.xMalloc(bytes);
}

static void *fallible_realloc(void *old, int bytes)
{
    return tb_fault_hit(TB_FAULT_library, ENOMEM) ? NULL : plain.xRealloc(old, bytes);
}

void tb_store_library_faults(void)
{
    TB_ASSERT(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &plain) == SQLITE_OK);
    sqlite3_mem_methods fallible = plain;
    fallible.xMalloc = fallible_malloc;
    fallible.xRealloc = fallible_realloc;
    TB_ASSERT(sqlite3_config(SQLITE_CONFIG_MALLOC, &fallible) == SQLITE_OK);
}

/* An inode's number is used again, its time of birth is not. A filesystem without one says 0, and
 * then says so always. */
static void file_name(struct tb_store *s)
{
    struct statx x;
    if (statx(s->lock_fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &x) != 0) return;
    const bool born = (x.stx_mask & STATX_BTIME) != 0;
    snprintf(s->file, sizeof s->file, "%llx:%llx.%x", (unsigned long long)x.stx_ino,
             born ? (unsigned long long)x.stx_btime.tv_sec : 0, born ? x.stx_btime.tv_nsec : 0);
}

/* What incarnation 0 says is new; a file without a name was written by a release that gave none. */
static enum tb_status origin_find(struct tb_store *s)
{
    sqlite3_stmt *st = s->st[ST_incarnation_get];
    file_name(s);
    if (sqlite3_step(st) != SQLITE_ROW) {
        sqlite3_reset(st);
        return failed(s, "reading the incarnation");
    }
    const bool fresh = sqlite3_column_int64(st, 0) == 0;
    sqlite3_reset(st);
    st = s->st[ST_file_get];
    const int rc = sqlite3_step(st);
    const char *was = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(st, 0) : NULL;
    const bool other = was != NULL && s->file[0] != '\0' && strcmp(was, s->file) != 0;
    s->origin = fresh ? TB_STORE_NEW : other ? TB_STORE_RESTORED : TB_STORE_SAME;
    sqlite3_reset(st);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? TB_OK : failed(s, "reading the file's name");
}

enum tb_store_origin tb_store_origin(const struct tb_store *store)
{
    return store->origin;
}

static enum tb_status open_db(struct tb_store *s, const char *path)
{
    const enum tb_status locked = lock_file(s, path);
    if (locked != TB_OK) return locked;
    if (sqlite3_open_v2(path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK) {
        return failed(s, "opening");
    }
    sqlite3_extended_result_codes(s->db, 1);
    sqlite3_busy_timeout(s->db, OPEN_BUSY_MS);
    /* P7: pages are kept in 256 KiB; SQLite's own 2 MB fill with the audit trail,
     * which nobody reads again. */
    static const char pragmas[] = "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON; "
                                  "PRAGMA cache_size=-256;";
    if (sqlite3_exec(s->db, pragmas, NULL, NULL, NULL) != SQLITE_OK) return failed(s, "setting WAL mode");
    if (sqlite3_exec(s->db, schema_sql, NULL, NULL, NULL) != SQLITE_OK) return failed(s, "making tables");
    enum tb_status status = schema_check(s);
    if (status == TB_OK) status = prepare_all(s);
    if (status == TB_OK) status = origin_find(s);
    sqlite3_busy_timeout(s->db, BUSY_MS);
    return status;
}

enum tb_status tb_store_open(const char *path, struct tb_store **store_out, char error_out[256])
{
    struct tb_store *s = tb_calloc(1, sizeof *s);
    if (s == NULL) {
        snprintf(error_out, 256, "store %.100s: no memory", path);
        return TB_SITE_NOMEM;
    }
    s->lock_fd = -1;
    s->writes = TRIM_EVERY - 1; /* the first write trims what an earlier process left over */
    const enum tb_status status = open_db(s, path);
    if (status != TB_OK) {
        snprintf(error_out, 256, "store %.100s: %.140s", path, s->error);
        tb_store_close(s);
        return status;
    }
    *store_out = s;
    return TB_OK;
}

void tb_store_close(struct tb_store *store)
{
    if (store == NULL) return;
    for (int i = 0; i < STATEMENT_COUNT; i++)
        sqlite3_finalize(store->st[i]);
    sqlite3_close(store->db);
    if (store->lock_fd >= 0) close(store->lock_fd);
    tb_free(store);
}

const char *tb_store_error(const struct tb_store *store)
{
    return store->error;
}

/* ---- writing ---- */

struct audit_row {
    const struct tb_store_audit *audit;
    const char *model;
    uint64_t run_order, number;
    const struct tb_id *uid;
};

static enum tb_status audit_put(struct tb_store *s, const struct audit_row *row)
{
    sqlite3_stmt *st = s->st[ST_audit_put];
    bind_u64(st, 1, row->audit->wall_ms);
    bind_text(st, 2, row->audit->what);
    bind_text(st, 3, row->audit->who);
    bind_text(st, 4, row->audit->why);
    bind_text(st, 5, row->model);
    bind_u64(st, 6, row->run_order);
    bind_u64(st, 7, row->number);
    bind_id(st, 8, row->uid);
    return run_once(s, ST_audit_put, "writing the audit trail");
}

/* P7: whatever the rows are about: of a kind that always falls between two trims
 * there would be no end. */
static enum tb_status trim(struct tb_store *s)
{
    if (++s->writes % TRIM_EVERY != 0) return TB_OK;
    bind_u64(s->st[ST_audit_trim], 1, TB_STORE_AUDIT_MAX);
    enum tb_status status = run_once(s, ST_audit_trim, "trimming the audit trail");
    if (status != TB_OK) return status;
    bind_u64(s->st[ST_version_trim], 1, ENDED_KEPT);
    status = run_once(s, ST_version_trim, "trimming ended versions");
    if (status != TB_OK) return status;
    bind_u64(s->st[ST_withdrawn_trim], 1, TB_STORE_WITHDRAWN_MAX);
    status = run_once(s, ST_withdrawn_trim, "trimming withdrawals");
    if (status != TB_OK) return status;
    bind_u64(s->st[ST_run_trim], 1, RUNS_KEPT);
    return run_once(s, ST_run_trim, "trimming runs");
}

/* TB_OK: what was written since `begin` is on disk. Else none of it is. */
static enum tb_status transaction_end(struct tb_store *s, enum tb_status status)
{
    if (status == TB_OK) status = run_once(s, ST_commit, "committing");
    if (status == TB_OK) return TB_OK;
    /* may have been rolled back already: then this fails and nothing is lost */
    sqlite3_step(s->st[ST_rollback]);
    sqlite3_reset(s->st[ST_rollback]);
    return status;
}

/* P7: a model's rows that ended are as many after each of its versions. */
static enum tb_status trim_model(struct tb_store *s, const char *model)
{
    bind_u64(s->st[ST_version_trim_model], 1, ENDED_KEPT);
    bind_text(s->st[ST_version_trim_model], 2, model);
    return run_once(s, ST_version_trim_model, "trimming a model's ended versions");
}

/* One row (its statement is bound) and its audit line, both or neither. Now and then
 * old rows go with them. */
static enum tb_status transact(struct tb_store *s, enum statement which, const struct audit_row *row)
{
    enum tb_status status = s->batch ? TB_OK : run_once(s, ST_begin, "beginning a transaction");
    if (status != TB_OK) {
        sqlite3_clear_bindings(s->st[which]);
        return status;
    }
    status = run_once(s, which, "writing");
    if (status == TB_OK) status = audit_put(s, row);
    if (status == TB_OK && which == ST_version_put) status = trim_model(s, row->model);
    if (status == TB_OK) status = trim(s);
    return s->batch ? status : transaction_end(s, status);
}

enum tb_status tb_store_incarnation(struct tb_store *s, uint64_t at_least, uint64_t *incarnation_out)
{
    sqlite3_stmt *st = s->st[ST_incarnation_get];
    if (sqlite3_step(st) != SQLITE_ROW) {
        sqlite3_reset(st);
        return failed(s, "reading the incarnation");
    }
    uint64_t next = (uint64_t)sqlite3_column_int64(st, 0) + 1;
    sqlite3_reset(st);
    if (next < at_least) next = at_least;
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)next);
    bind_text(s->st[ST_incarnation_set], 1, text);
    const enum tb_status status = run_once(s, ST_incarnation_set, "writing the incarnation");
    if (status == TB_OK) *incarnation_out = next;
    return status;
}

enum tb_status tb_store_doubt(struct tb_store *s, const struct tb_store_doubt *doubt)
{
    const enum statement which = doubt->doubted ? ST_doubt_put : ST_doubt_end;
    bind_text(s->st[which], 1, doubt->model.text);
    return run_once(s, which, "writing whose runs are doubted");
}

enum tb_status tb_store_own(struct tb_store *s, const struct tb_name *doubted, uint32_t count)
{
    enum tb_status status = run_once(s, ST_begin, "beginning a transaction");
    if (status != TB_OK) return status;
    for (uint32_t i = 0; status == TB_OK && i < count; i++)
        status = tb_store_doubt(s, &(struct tb_store_doubt){doubted[i], true});
    if (status == TB_OK) {
        bind_text(s->st[ST_file_set], 1, s->file);
        status = run_once(s, ST_file_set, "writing the file's name");
    }
    return transaction_end(s, status);
}

enum tb_status tb_store_run(struct tb_store *s, const struct tb_catalog_run *run,
                            const struct tb_store_audit *audit)
{
    sqlite3_stmt *st = s->st[ST_run_put];
    bind_text(st, 1, run->model.text);
    bind_u64(st, 2, run->order);
    bind_id(st, 3, &run->id);
    bind_text(st, 4, run->key);
    bind_u64(st, 5, run->has_last);
    bind_u64(st, 6, run->last_number);
    bind_u64(st, 7, run->resumed_run_order);
    bind_u64(st, 8, run->resumed_number);
    bind_u64(st, 9, run->fenced);
    const struct audit_row row = {audit, run->model.text, run->order, 0, &run->id};
    return transact(s, ST_run_put, &row);
}

static sqlite3_stmt *bind_key(sqlite3_stmt *st, const struct tb_version_key *key)
{
    bind_id(st, 1, &key->uid);
    bind_text(st, 2, key->model.text);
    bind_id(st, 3, &key->run);
    bind_u64(st, 4, key->run_order);
    bind_u64(st, 5, key->number);
    bind_u64(st, 6, key->shard_count);
    sqlite3_bind_blob(st, 7, key->root.bytes, TB_DIGEST_BYTES, SQLITE_TRANSIENT);
    return st;
}

/* Ahead of the version's row: where they are two transactions, one that is cut off between them
 * withdrew it. */
static enum tb_status withdrawn_put(struct tb_store *s, const struct tb_store_version *v)
{
    if (v->state != TB_VERSION_ENDED_WITHDRAWN) return TB_OK;
    (void)bind_key(s->st[ST_withdrawn_put], &v->key);
    return run_once(s, ST_withdrawn_put, "writing a withdrawal");
}

enum tb_status tb_store_version(struct tb_store *s, const struct tb_store_version *v,
                                const struct tb_store_audit *audit)
{
    const enum tb_status status = withdrawn_put(s, v);
    if (status != TB_OK) return status;
    sqlite3_stmt *st = bind_key(s->st[ST_version_put], &v->key);
    bind_u64(st, 8, (uint64_t)v->state);
    bind_u64(st, 9, v->bytes);
    bind_u64(st, 10, v->pinned);
    const struct audit_row row = {audit, v->key.model.text, v->key.run_order, v->key.number, &v->key.uid};
    return transact(s, ST_version_put, &row);
}

enum tb_status tb_store_pointer(struct tb_store *s, const struct tb_store_pointer *p,
                                const struct tb_store_audit *audit)
{
    const enum statement which = p->pin ? ST_version_pin : ST_pointer_put;
    sqlite3_stmt *st = s->st[which];
    if (p->pin) {
        bind_id(st, 1, &p->uid);
        bind_u64(st, 2, p->pinned);
    } else {
        bind_text(st, 1, p->model.text);
        bind_text(st, 2, "head");
        bind_id(st, 3, &p->uid);
    }
    const struct audit_row row = {audit, p->model.text, 0, 0, &p->uid};
    return transact(s, which, &row);
}

enum tb_status tb_store_spent(struct tb_store *s, const struct tb_store_spent *spent)
{
    sqlite3_stmt *st = s->st[ST_spent_put];
    bind_text(st, 1, spent->site.text);
    bind_u64(st, 2, spent->day);
    bind_u64(st, 3, spent->bytes);
    return run_once(s, ST_spent_put, "writing what was sent today");
}

enum tb_status tb_store_path(struct tb_store *s, const struct tb_store_path *path)
{
    sqlite3_stmt *st = s->st[ST_path_put];
    bind_text(st, 1, path->site.text);
    bind_u64(st, 2, path->streams);
    bind_u64(st, 3, path->bytes_per_s);
    return run_once(s, ST_path_put, "writing what a path bears");
}

static enum tb_status row_put(struct tb_store *s, struct tb_store_row *row)
{
    const struct tb_store_audit audit = {row->what, row->who, row->why, row->wall_ms};
    switch (row->kind) {
    case TB_STORE_RUN:
        return tb_store_run(s, &row->run, &audit);
    case TB_STORE_VERSION:
        return tb_store_version(s, &row->version, &audit);
    case TB_STORE_POINTER:
        return tb_store_pointer(s, &row->pointer, &audit);
    case TB_STORE_INCARNATION:
        return tb_store_incarnation(s, row->incarnation, &row->incarnation);
    case TB_STORE_SPENT:
        return tb_store_spent(s, &row->spent);
    case TB_STORE_PATH:
        return tb_store_path(s, &row->path);
    case TB_STORE_DOUBT:
        return tb_store_doubt(s, &row->doubt);
    }
    return TB_BAD_ARGUMENT;
}

enum tb_status tb_store_rows(struct tb_store *s, struct tb_store_row *rows, uint32_t count)
{
    enum tb_status status = run_once(s, ST_begin, "beginning a transaction");
    if (status != TB_OK) return status;
    s->batch = true;
    for (uint32_t i = 0; status == TB_OK && i < count; i++)
        status = row_put(s, &rows[i]);
    s->batch = false;
    return transaction_end(s, status);
}

/* ---- loading ---- */

static bool column_id(sqlite3_stmt *st, int at, struct tb_id *out)
{
    if (sqlite3_column_bytes(st, at) != (int)sizeof out->bytes) return false;
    memcpy(out->bytes, sqlite3_column_blob(st, at), sizeof out->bytes);
    return true;
}

static uint64_t column_u64(sqlite3_stmt *st, int at)
{
    return (uint64_t)sqlite3_column_int64(st, at);
}

static bool column_name(sqlite3_stmt *st, int at, struct tb_name *out)
{
    const char *text = (const char *)sqlite3_column_text(st, at);
    return text != NULL && tb_name_set(out, text) == TB_OK;
}

static bool run_row(sqlite3_stmt *st, struct tb_catalog_run *run)
{
    *run = (struct tb_catalog_run){.order = column_u64(st, 1),
                                   .has_last = column_u64(st, 4) != 0,
                                   .last_number = column_u64(st, 5),
                                   .resumed_run_order = column_u64(st, 6),
                                   .resumed_number = column_u64(st, 7),
                                   .fenced = column_u64(st, 8) != 0};
    const char *key = (const char *)sqlite3_column_text(st, 3);
    if (key == NULL || strlen(key) >= sizeof run->key) return false;
    memcpy(run->key, key, strlen(key) + 1);
    return column_name(st, 0, &run->model) && column_id(st, 2, &run->id);
}

/* The first seven columns. */
static bool key_row(sqlite3_stmt *st, struct tb_version_key *key)
{
    *key = (struct tb_version_key){.run_order = column_u64(st, 3),
                                   .number = column_u64(st, 4),
                                   .shard_count = (uint32_t)column_u64(st, 5)};
    if (sqlite3_column_bytes(st, 6) != TB_DIGEST_BYTES) return false;
    memcpy(key->root.bytes, sqlite3_column_blob(st, 6), TB_DIGEST_BYTES);
    return column_id(st, 0, &key->uid) && column_name(st, 1, &key->model) && column_id(st, 2, &key->run);
}

static bool version_row(sqlite3_stmt *st, struct tb_store_version *v)
{
    *v = (struct tb_store_version){.state = (enum tb_catalog_state)column_u64(st, 7),
                                   .bytes = column_u64(st, 8),
                                   .pinned = column_u64(st, 9) != 0};
    return v->state >= TB_VERSION_OPEN && v->state < TB_CATALOG_STATE_END && key_row(st, &v->key);
}

static enum tb_status damaged(struct tb_store *s, sqlite3_stmt *st, const char *table)
{
    sqlite3_reset(st);
    snprintf(s->error, sizeof s->error, "a row of table %s does not make sense", table);
    return TB_SITE_STORE;
}

enum tb_status tb_store_load(struct tb_store *s, tb_store_run_fn run, tb_store_version_fn version, void *user)
{
    sqlite3_stmt *st = s->st[ST_run_all];
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct tb_catalog_run row;
        if (!run_row(st, &row) || run(user, &row) != TB_OK) return damaged(s, st, "run");
    }
    sqlite3_reset(st);
    if (rc != SQLITE_DONE) return failed(s, "reading runs");
    st = s->st[ST_version_all];
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct tb_store_version row;
        if (!version_row(st, &row) || version(user, &row) != TB_OK) return damaged(s, st, "version");
    }
    sqlite3_reset(st);
    return rc == SQLITE_DONE ? TB_OK : failed(s, "reading versions");
}

enum tb_status tb_store_load_withdrawn(struct tb_store *s, tb_store_withdrawn_fn withdrawn, void *user)
{
    sqlite3_stmt *st = s->st[ST_withdrawn_all];
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct tb_version_key key;
        if (!key_row(st, &key)) return damaged(s, st, "withdrawn");
        withdrawn(user, &key);
    }
    sqlite3_reset(st);
    return rc == SQLITE_DONE ? TB_OK : failed(s, "reading withdrawals");
}

/* ---- a look before a start ---- */

/* A store with a log beside it: the store and the log are read as they stand. A store without one
 * is read as a file that nobody changes, and so SQLite makes no file beside it. */
static void look_uri(const char *path, bool logged, char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "file:");
    for (; *path != '\0' && used + 36 < size; path++) {
        const unsigned char c = (unsigned char)*path;
        const bool as_it_is = c > 0x20 && c < 0x7f && c != '?' && c != '#' && c != '%';
        used += (size_t)snprintf(out + used, size - used, as_it_is ? "%c" : "%%%02x", c);
    }
    snprintf(out + used, size - used, logged ? "?mode=ro&vfs=unix-none" : "?immutable=1");
}

struct look {
    tb_store_run_fn run;
    tb_store_version_fn version;
    void *user;
};

/* In a table that is not there yet nothing is wrong. */
static bool look_prepare(struct tb_store *s, enum statement which)
{
    return sqlite3_prepare_v2(s->db, statements[which], -1, &s->st[which], NULL) == SQLITE_OK;
}

static enum tb_status look_at_rows(struct tb_store *s, const struct look *look)
{
    if (!look_prepare(s, ST_run_all) || !look_prepare(s, ST_version_all)) return TB_OK;
    return tb_store_load(s, look->run, look->version, look->user);
}

/* A killed process left it. SQLite takes it in at the next start. */
static bool has_log(const char *path)
{
    char log[4096];
    struct stat st;
    snprintf(log, sizeof log, "%s-wal", path);
    return stat(log, &st) == 0 && st.st_size > 0;
}

/* The log is read in, but nothing is written. The exclusive mode keeps the index of the log in
 * memory instead of a file, and without SQLite's own locks (unix-none) that mode needs no
 * descriptor that may write: the lock of the file keeps gateways away. The log stays when the store
 * is closed. */
static enum tb_status look_open(struct tb_store *s, const char *path)
{
    char uri[3 * 4096];
    const bool logged = has_log(path);
    look_uri(path, logged, uri, sizeof uri);
    if (sqlite3_open_v2(uri, &s->db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL) != SQLITE_OK)
        return failed(s, "opening");
    if (!logged) return TB_OK;
    if (sqlite3_db_config(s->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL) != SQLITE_OK ||
        sqlite3_exec(s->db, "PRAGMA locking_mode=EXCLUSIVE", NULL, NULL, NULL) != SQLITE_OK)
        return failed(s, "opening");
    return TB_OK;
}

static enum tb_status look_inside(struct tb_store *s, const char *path, const struct look *look)
{
    struct stat st;
    if (fstat(s->lock_fd, &st) != 0 || st.st_size == 0) return TB_OK;
    if (flock(s->lock_fd, LOCK_SH | LOCK_NB) != 0) {
        snprintf(s->error, sizeof s->error, "another process holds it");
        return TB_SITE_LOCKED;
    }
    enum tb_status status = look_open(s, path);
    if (status != TB_OK) return status;
    status = schema_check(s);
    /* No table yet: it is made at the first start. */
    if (status != TB_OK) return sqlite3_errcode(s->db) == SQLITE_ERROR ? TB_OK : status;
    return look_at_rows(s, look);
}

static enum tb_status look_at(struct tb_store *s, const char *path, const struct look *look)
{
    s->lock_fd = tb_sys_open(path, O_RDWR | O_CLOEXEC, 0);
    if (s->lock_fd >= 0) return look_inside(s, path, look);
    char folder[4096];
    const char *slash = strrchr(path, '/');
    const int bytes = slash == NULL ? 0 : (int)(slash - path);
    const int missing = errno;
    snprintf(folder, sizeof folder, "%.*s", bytes, path);
    if (bytes == 0) snprintf(folder, sizeof folder, slash == NULL ? "." : "/");
    if (missing == ENOENT && access(folder, W_OK | X_OK) == 0) return TB_OK;
    snprintf(s->error, sizeof s->error, "cannot open for writing: %s",
             strerror(missing == ENOENT ? errno : missing));
    return TB_SITE_STORE;
}

enum tb_status tb_store_check(const char *path, tb_store_run_fn run, tb_store_version_fn version, void *user,
                              char error_out[256])
{
    struct tb_store s = {.lock_fd = -1};
    const struct look look = {run, version, user};
    const enum tb_status status = look_at(&s, path, &look);
    if (status != TB_OK) snprintf(error_out, 256, "store %.100s: %.140s", path, s.error);
    sqlite3_finalize(s.st[ST_run_all]);
    sqlite3_finalize(s.st[ST_version_all]);
    sqlite3_close(s.db);
    if (s.lock_fd >= 0) close(s.lock_fd);
    return status;
}

/* ---- the rest of a load ---- */

/* A row that makes no sense is passed over: it holds back no start, and its day is over soon. */
enum tb_status tb_store_load_spent(struct tb_store *s, tb_store_spent_fn spent, void *user)
{
    sqlite3_stmt *st = s->st[ST_spent_all];
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct tb_store_spent row = {.day = column_u64(st, 1), .bytes = column_u64(st, 2)};
        if (column_name(st, 0, &row.site)) spent(user, &row);
    }
    sqlite3_reset(st);
    return rc == SQLITE_DONE ? TB_OK : failed(s, "reading what was sent");
}

enum tb_status tb_store_load_paths(struct tb_store *s, tb_store_path_fn path, void *user)
{
    sqlite3_stmt *st = s->st[ST_path_all];
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        const uint64_t streams = column_u64(st, 1);
        struct tb_store_path row = {.streams = streams <= UINT32_MAX ? (uint32_t)streams : 0,
                                    .bytes_per_s = column_u64(st, 2)};
        if (column_name(st, 0, &row.site)) path(user, &row);
    }
    sqlite3_reset(st);
    return rc == SQLITE_DONE ? TB_OK : failed(s, "reading what paths bear");
}

enum tb_status tb_store_load_doubts(struct tb_store *s, tb_store_doubt_fn doubt, void *user)
{
    sqlite3_stmt *st = s->st[ST_doubt_all];
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct tb_name model;
        if (column_name(st, 0, &model)) doubt(user, &model);
    }
    sqlite3_reset(st);
    return rc == SQLITE_DONE ? TB_OK : failed(s, "reading whose runs are doubted");
}
