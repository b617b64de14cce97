/* store_file.c - the SQLite file, in WAL mode: opened, locked, its schema checked, told from a
 * copy that was put back, and looked at before a start. Readers such as the sqlite3 shell may
 * look on. A lock that SQLite does not know keeps a second daemon out. */
#include "gateway/store/audit_lines.h"
#include "gateway/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/fault.h"
#include "base/private_file.h"
#include "base/system_calls.h"
#include "gateway/store/store_audit.h"
#include "gateway/store/store_backup.h"
#include "gateway/store/store_load.h"
#include "gateway/store/store_statements.h"

#define SCHEMA_VERSION "1"
/* PRAGMA user_version: other tables have another number. 0: of a release before there was one. */
#define TABLES       2
#define OPEN_BUSY_MS 2000
#define AUDIT_BYTES  (UINT64_C(16) << 20) /* until the configuration says another bound */
#define AUDIT_DAYS   400
#define BUSY_MS      500 /* a write that is locked out so long says so, and is tried again later */

static const char schema_sql[] =
    "CREATE TABLE IF NOT EXISTS meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    "INSERT OR IGNORE INTO meta VALUES('schema','" SCHEMA_VERSION "'),('incarnation','0');"
    "CREATE TABLE IF NOT EXISTS run(model TEXT NOT NULL, run_order INTEGER NOT NULL, id BLOB NOT NULL UNIQUE,"
    " key TEXT NOT NULL, has_last INTEGER NOT NULL, last_number INTEGER NOT NULL,"
    " resumed_run_order INTEGER NOT NULL, resumed_number INTEGER NOT NULL, fenced INTEGER NOT NULL,"
    " PRIMARY KEY(model, run_order)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS run_owner(id BLOB PRIMARY KEY, opened_by TEXT NOT NULL,"
    " fenced_by TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS version(uid BLOB PRIMARY KEY, model TEXT NOT NULL, run BLOB NOT NULL,"
    " run_order INTEGER NOT NULL, number INTEGER NOT NULL, shard_count INTEGER NOT NULL, root BLOB NOT NULL,"
    " state INTEGER NOT NULL, bytes INTEGER NOT NULL, pinned INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;"
    "CREATE INDEX IF NOT EXISTS version_order ON version(model, run_order, number);"
    "CREATE TABLE IF NOT EXISTS withdrawn(id INTEGER PRIMARY KEY AUTOINCREMENT, uid BLOB NOT NULL UNIQUE,"
    " model TEXT NOT NULL, run BLOB NOT NULL, run_order INTEGER NOT NULL, number INTEGER NOT NULL,"
    " shard_count INTEGER NOT NULL, root BLOB NOT NULL);"
    "CREATE TABLE IF NOT EXISTS signed(kind INTEGER NOT NULL, id BLOB NOT NULL, model TEXT NOT NULL,"
    " run_order INTEGER NOT NULL, number INTEGER NOT NULL, said BLOB NOT NULL, PRIMARY KEY(kind, id)) "
    "WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS operator(uid BLOB NOT NULL, what TEXT NOT NULL, here INTEGER NOT NULL,"
    " who TEXT NOT NULL, PRIMARY KEY(uid, what)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS pointer(model TEXT NOT NULL, name TEXT NOT NULL, uid BLOB NOT NULL,"
    " PRIMARY KEY(model, name)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS spent(site TEXT PRIMARY KEY, day INTEGER NOT NULL, bytes INTEGER NOT NULL) "
    "WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS path(site TEXT PRIMARY KEY, streams INTEGER NOT NULL, bytes_per_s INTEGER "
    "NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS paused(is_peer INTEGER NOT NULL, name TEXT NOT NULL, who TEXT NOT NULL,"
    " wall_ms INTEGER NOT NULL, PRIMARY KEY(is_peer, name)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS doubt(model TEXT PRIMARY KEY) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS model(name TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID;"
    "DROP TABLE IF EXISTS audit;" /* of releases before the record (layout_keep) */
    "CREATE TABLE IF NOT EXISTS record(id INTEGER PRIMARY KEY AUTOINCREMENT, wall_ms INTEGER NOT NULL,"
    " minute INTEGER, share INTEGER NOT NULL, action TEXT NOT NULL, identity TEXT NOT NULL,"
    " object TEXT NOT NULL, origin TEXT NOT NULL, result TEXT NOT NULL, count INTEGER NOT NULL,"
    " bytes INTEGER NOT NULL);"
    /* A minute that is NULL equals no other. */
    "CREATE UNIQUE INDEX IF NOT EXISTS record_sum ON record(minute, share, action, identity, object, origin,"
    " result);"
    "CREATE INDEX IF NOT EXISTS record_share ON record(share, id);"
    "CREATE TABLE IF NOT EXISTS setting(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;";

/* A number that a statement answers; 0 where it answers none. */
static int64_t number_of(struct tb_store *s, const char *sql)
{
    sqlite3_stmt *st = NULL;
    int64_t number = 0;
    if (sqlite3_prepare_v2(s->db, sql, -1, &st, NULL) == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
        number = sqlite3_column_int64(st, 0);
    (void)sqlite3_finalize(st);
    return number;
}

/* P9: the release before may run again with this store, which has its tables all the same; what it
 * wrote into the one that goes is in a copy. A store that it had meanwhile has that table again. */
static enum tb_status layout_keep(struct tb_store *s, const char *path, bool *older_out)
{
    static const char table[] = "SELECT COUNT(*) FROM sqlite_master WHERE type='table' AND name=";
    char sql[128], name[4096];
    (void)snprintf(sql, sizeof sql, "%s'meta'", table);
    const bool fresh = number_of(s, sql) == 0;
    (void)snprintf(sql, sizeof sql, "%s'audit'", table);
    const bool had = number_of(s, sql) != 0;
    *older_out = number_of(s, "PRAGMA user_version") < TABLES;
    if (fresh || !(*older_out || had)) return TB_OK;
    if (snprintf(name, sizeof name, "%s.before-%d", path, TABLES) >= (int)sizeof name) return TB_BAD_ARGUMENT;
    return tb_store_keep_as(s, name, s->error);
}

/* All of it or nothing: a start that was killed in between finds what the release before left. */
static enum tb_status tables_make(struct tb_store *s, const char *path)
{
    char version[64] = "COMMIT";
    bool older = false;
    const enum tb_status status = layout_keep(s, path, &older);
    if (status != TB_OK) return status;
    if (older) (void)snprintf(version, sizeof version, "PRAGMA user_version=%d; COMMIT", TABLES);
    if (sqlite3_exec(s->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK &&
        sqlite3_exec(s->db, schema_sql, NULL, NULL, NULL) == SQLITE_OK &&
        sqlite3_exec(s->db, version, NULL, NULL, NULL) == SQLITE_OK)
        return TB_OK;
    return tb_store_failed(s, "making tables");
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
        status = tb_store_failed(s, "reading the schema");
    }
    sqlite3_finalize(st);
    return status;
}

/* The file is made here so that its mode is right from its first byte on. */
static enum tb_status lock_file(struct tb_store *s, const char *path)
{
    TB_ASSERT(s->lock_fd < 0);
    char why[TB_PRIVATE_WHY_BYTES];
    s->lock_fd = tb_sys_open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (s->lock_fd < 0) {
        snprintf(s->error, sizeof s->error, "cannot open for writing: %s", strerror(errno));
        return TB_SITE_STORE;
    }
    if (!tb_private_file(s->lock_fd, why)) {
        snprintf(s->error, sizeof s->error, "%s", why);
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

/* Incarnation 0: the store is new. A file without a name was written by a release that gave
 * none. A backup says that it is one: a filesystem may not tell one file from another. */
static enum tb_status origin_find(struct tb_store *s)
{
    sqlite3_stmt *st = s->st[ST_incarnation_get];
    tb_store_file_name(s->lock_fd, s->file);
    if (sqlite3_step(st) != SQLITE_ROW) {
        sqlite3_reset(st);
        return tb_store_failed(s, "reading the incarnation");
    }
    const bool fresh = sqlite3_column_int64(st, 0) == 0;
    sqlite3_reset(st);
    st = s->st[ST_file_get];
    const int rc = sqlite3_step(st);
    const char *was = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(st, 0) : NULL;
    const bool copy = was != NULL && strcmp(was, TB_STORE_IS_BACKUP) == 0;
    const bool other = copy || (was != NULL && s->file[0] != '\0' && strcmp(was, s->file) != 0);
    s->origin = fresh ? TB_STORE_NEW : other ? TB_STORE_RESTORED : TB_STORE_SAME;
    sqlite3_reset(st);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? TB_OK : tb_store_failed(s, "reading the file's name");
}

enum tb_store_origin tb_store_origin(const struct tb_store *store)
{
    return store->origin;
}

/* P3: a store that the keys do not open stays as it is. */
static enum tb_status key_look(struct tb_store *s, const struct tb_disk_keys *keys,
                               struct tb_disk_look *look_out)
{
    *look_out = tb_disk_look(s->lock_fd, TB_SEAL_STORE, TB_STORE_MAGIC, keys);
    const bool other = look_out->found == TB_DISK_OTHER;
    if (!other && look_out->found != TB_DISK_UNREAD) return TB_OK;
    (void)snprintf(s->error, sizeof s->error, "%s", other ? look_out->why : strerror(errno));
    return TB_SITE_STORE;
}

/* Locked, and under the key that is wanted. */
static enum tb_status file_open(struct tb_store *s, const char *path, const struct tb_disk_keys *keys)
{
    struct tb_disk_look look;
    enum tb_status status = lock_file(s, path);
    if (status != TB_OK) return status;
    tb_store_rekey_clear(path);
    status = key_look(s, keys, &look);
    if (status != TB_OK) return status;
    s->key = keys->key;
    if (look.found != TB_DISK_OLD) return TB_OK;
    const struct tb_store_rekey rekey = {.path = path, .fd = s->lock_fd, .from = look.key, .to = keys->key};
    status = tb_store_rekey(&rekey, s->error);
    if (status != TB_OK) return status;
    (void)close(s->lock_fd); /* of the file that was there */
    s->lock_fd = -1;
    return lock_file(s, path);
}

static enum tb_status database_open(struct tb_store *s, const char *path, int flags, const char *below)
{
    if (s->key != NULL && tb_store_vfs_open(s->key, below, &s->vfs) != TB_OK)
        return tb_store_failed(s, "opening");
    const char *vfs = s->vfs != NULL ? tb_store_vfs_name(s->vfs) : below;
    return sqlite3_open_v2(path, &s->db, flags, vfs) == SQLITE_OK ? TB_OK : tb_store_failed(s, "opening");
}

/* An encrypted store makes no file but its log (store_vfs.h): an empty one comes to have a log
 * without a journal. */
static enum tb_status key_pragmas(struct tb_store *s)
{
    struct stat st;
    static const char always[] = "PRAGMA locking_mode=EXCLUSIVE;";
    static const char fresh[] = "PRAGMA page_size=4096; PRAGMA journal_mode=MEMORY;";
    if (s->key == NULL) return TB_OK;
    const bool is_fresh =
        fstat(s->lock_fd, &st) == 0 && st.st_size < (off_t)(TB_SEAL_HEADER_BYTES + TB_STORE_PAGE_BYTES +
                                                            TB_SEAL_MORE); /* no page of it was written */
    if (sqlite3_exec(s->db, always, NULL, NULL, NULL) == SQLITE_OK &&
        (!is_fresh || sqlite3_exec(s->db, fresh, NULL, NULL, NULL) == SQLITE_OK))
        return TB_OK;
    return tb_store_failed(s, "opening");
}

static enum tb_status open_db(struct tb_store *s, const char *path, const struct tb_disk_keys *keys)
{
    enum tb_status status = file_open(s, path, keys);
    if (status != TB_OK) return status;
    status = database_open(s, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (status != TB_OK) return status;
    status = key_pragmas(s);
    if (status != TB_OK) return status;
    sqlite3_extended_result_codes(s->db, 1);
    sqlite3_busy_timeout(s->db, OPEN_BUSY_MS);
    /* P7: pages are kept in 256 KiB; SQLite's own 2 MB fill with the audit record,
     * which is seldom read again. */
    static const char pragmas[] = "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON; "
                                  "PRAGMA cache_size=-256; PRAGMA temp_store=MEMORY;";
    if (sqlite3_exec(s->db, pragmas, NULL, NULL, NULL) != SQLITE_OK)
        return tb_store_failed(s, "setting WAL mode");
    status = tables_make(s, path);
    if (status != TB_OK) return status;
    status = schema_check(s);
    if (status != TB_OK) return status;
    status = tb_store_prepare_all(s);
    if (status != TB_OK) return status;
    status = origin_find(s);
    sqlite3_busy_timeout(s->db, BUSY_MS);
    return status;
}

enum tb_status tb_store_open(const char *path, const struct tb_disk_keys *keys, struct tb_store **store_out,
                             char error_out[256])
{
    struct tb_store *s = tb_calloc(1, sizeof *s);
    if (s == NULL) {
        snprintf(error_out, 256, "store %.100s: no memory", path);
        return TB_SITE_NOMEM;
    }
    s->lock_fd = -1;
    tb_store_audit_bounds(s, AUDIT_BYTES, AUDIT_DAYS);
    s->writes = TB_STORE_TRIM_EVERY - 1; /* the first write trims what an earlier process left over */
    const enum tb_status status = open_db(s, path, keys);
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
    tb_audit_lines_close(store->audit_lines);
    for (int i = 0; i < STATEMENT_COUNT; i++)
        sqlite3_finalize(store->st[i]);
    sqlite3_close(store->db);
    tb_store_vfs_close(store->vfs);
    if (store->lock_fd >= 0) close(store->lock_fd);
    tb_free(store);
}

const char *tb_store_error(const struct tb_store *store)
{
    return store->error;
}

/* ---- a look before a start ---- */

/* A store with a log beside it: the store and the log are read as they stand. A store without one
 * is read as a file that nobody changes, and so SQLite makes no file beside it. */
static void look_uri(const char *path, const char *ends, char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "file:");
    for (; *path != '\0' && used + 36 < size; path++) {
        const unsigned char c = (unsigned char)*path;
        const bool as_it_is = c > 0x20 && c < 0x7f && c != '?' && c != '#' && c != '%';
        used += (size_t)snprintf(out + used, size - used, as_it_is ? "%c" : "%%%02x", c);
    }
    snprintf(out + used, size - used, "%s", ends);
}

struct look {
    const struct tb_disk_keys *keys;
    tb_store_run_fn run;
    tb_store_version_fn version;
    void *user;
};

static void withdrawal_look(void *user, const struct tb_store_withdrawal *withdrawal)
{
    (void)user;
    (void)withdrawal;
}

static void signed_look(void *user, const uint8_t *bytes, uint32_t count)
{
    (void)user;
    (void)bytes;
    (void)count;
}

static void doubt_look(void *user, const struct tb_name *model)
{
    (void)user;
    (void)model;
}

/* All of which a start says that it cannot be read. A start makes a table that is not there. */
static enum tb_status look_at_rows(struct tb_store *s, const struct look *look)
{
    if (!tb_store_prepare(s, ST_run_all) || !tb_store_prepare(s, ST_version_all)) return TB_OK;
    (void)tb_store_prepare(s, ST_run_owner_get); /* which the load of runs asks */
    enum tb_status status = tb_store_load(s, look->run, look->version, look->user);
    if (status != TB_OK) return status;
    if (tb_store_prepare(s, ST_withdrawn_all)) status = tb_store_load_withdrawn(s, withdrawal_look, NULL);
    if (status != TB_OK) return status;
    if (tb_store_prepare(s, ST_signed_all)) status = tb_store_load_signed(s, signed_look, NULL);
    if (status != TB_OK) return status;
    return tb_store_prepare(s, ST_doubt_all) ? tb_store_load_doubts(s, doubt_look, NULL) : TB_OK;
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
    look_uri(path, logged ? "?mode=ro" : "?immutable=1", uri, sizeof uri);
    const enum tb_status status =
        database_open(s, uri, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, logged ? "unix-none" : NULL);
    if (status != TB_OK) return status;
    if (!logged) return TB_OK;
    if (sqlite3_db_config(s->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL) != SQLITE_OK ||
        sqlite3_exec(s->db, "PRAGMA locking_mode=EXCLUSIVE", NULL, NULL, NULL) != SQLITE_OK)
        return tb_store_failed(s, "opening");
    return TB_OK;
}

static enum tb_status look_inside(struct tb_store *s, const char *path, const struct look *look)
{
    struct stat st;
    char why[TB_PRIVATE_WHY_BYTES];
    if (!tb_private_file(s->lock_fd, why)) {
        snprintf(s->error, sizeof s->error, "%s", why);
        return TB_SITE_STORE;
    }
    if (fstat(s->lock_fd, &st) != 0 || st.st_size == 0) return TB_OK;
    if (flock(s->lock_fd, LOCK_SH | LOCK_NB) != 0) {
        snprintf(s->error, sizeof s->error, "another process holds it");
        return TB_SITE_LOCKED;
    }
    struct tb_disk_look found;
    enum tb_status status = key_look(s, look->keys, &found);
    if (status != TB_OK) return status;
    s->key = found.key;
    status = look_open(s, path);
    if (status != TB_OK) return status;
    status = schema_check(s);
    /* No table yet: it is made at the first start. */
    if (status != TB_OK) return sqlite3_errcode(s->db) == SQLITE_ERROR ? TB_OK : status;
    return look_at_rows(s, look);
}

static enum tb_status look_failed(struct tb_store *s, const char *what)
{
    snprintf(s->error, sizeof s->error, "cannot %s: %s", what, strerror(errno));
    return TB_SITE_STORE;
}

static enum tb_status look_at(struct tb_store *s, const char *path, const struct look *look)
{
    s->lock_fd = tb_sys_open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0);
    if (s->lock_fd < 0 && (errno != ENOENT || !tb_private_can_make(path)))
        return look_failed(s, "open for writing");
    if (s->lock_fd < 0) return TB_OK; /* a start makes it */
    if (!has_log(path) && !tb_private_can_make(path)) return look_failed(s, "make a log beside it");
    return look_inside(s, path, look);
}

enum tb_status tb_store_check(const char *path, const struct tb_disk_keys *keys, tb_store_run_fn run,
                              tb_store_version_fn version, void *user, char error_out[256])
{
    struct tb_store s = {.lock_fd = -1};
    const struct look look = {keys, run, version, user};
    const enum tb_status status = look_at(&s, path, &look);
    if (status != TB_OK) snprintf(error_out, 256, "store %.100s: %.140s", path, s.error);
    for (int i = 0; i < STATEMENT_COUNT; i++)
        sqlite3_finalize(s.st[i]);
    sqlite3_close(s.db);
    tb_store_vfs_close(s.vfs);
    if (s.lock_fd >= 0) close(s.lock_fd);
    return status;
}
