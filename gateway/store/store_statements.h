/* store_statements.h - the store's statements, prepared once, and how one is bound and run. For the
 * files of the store alone.
 *
 * A statement is bound, run by tb_store_run_once, and unbound by it. One that gives many rows is
 * stepped by its reader, which resets it. */
#ifndef TB_STORE_STATEMENTS_H
#define TB_STORE_STATEMENTS_H

#include <sqlite3.h>

#include "gateway/store/audit_record.h"
#include "gateway/store/store.h"
#include "gateway/store/store_rekey.h"
#include "gateway/store/store_vfs.h"

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
    X(epoch_next, "INSERT INTO meta VALUES('epoch','1') ON CONFLICT(name) DO UPDATE SET "                    \
                  "value=CAST(value AS INTEGER)+1")                                                          \
    X(epoch_settle, "INSERT OR REPLACE INTO meta SELECT 'settled', value FROM meta WHERE name='epoch'")      \
    X(model_put,                                                                                             \
      "INSERT OR REPLACE INTO model VALUES(?1, COALESCE((SELECT CAST(value AS INTEGER) FROM meta "           \
      "WHERE name='epoch'),0))")                                                                             \
    X(model_doubted, "SELECT EXISTS(SELECT 1 FROM doubt WHERE model=?1) OR COALESCE((SELECT CAST(value AS "  \
                     "INTEGER) FROM meta WHERE name='epoch'),0) > MAX(COALESCE((SELECT epoch FROM model "    \
                     "WHERE name=?1),0), COALESCE((SELECT CAST(value AS INTEGER) FROM meta WHERE "           \
                     "name='settled'),0))")                                                                  \
    X(run_of_model, "SELECT * FROM (SELECT * FROM run WHERE model=?1 ORDER BY run_order DESC LIMIT ?2) "     \
                    "ORDER BY run_order")                                                                    \
    X(version_of_model, "SELECT * FROM (SELECT * FROM version WHERE model=?1 ORDER BY run_order DESC, "      \
                        "number DESC LIMIT ?2) ORDER BY run_order, number")                                  \
    X(run_put, "INSERT OR REPLACE INTO run VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9)")                              \
    X(run_trim,                                                                                              \
      "DELETE FROM run WHERE fenced=1 AND id NOT IN (SELECT run FROM version) AND id IN (SELECT id FROM "    \
      "(SELECT id, ROW_NUMBER() OVER (PARTITION BY model ORDER BY run_order DESC) AS place FROM run) "       \
      "WHERE place > ?1)")                                                                                   \
    X(run_owner_put, "INSERT OR REPLACE INTO run_owner VALUES(?1,?2,?3)")                                    \
    X(run_owner_get, "SELECT opened_by, fenced_by FROM run_owner WHERE id=?1")                               \
    X(run_owner_trim, "DELETE FROM run_owner WHERE id NOT IN (SELECT id FROM run)")                          \
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
    X(version_pin, "UPDATE version SET pinned=(uid=?1 AND ?2=1) WHERE uid=?1 OR (?2=1 AND pinned=1 AND "     \
                   "model=?3)")                                                                              \
    X(operator_of_pin, "SELECT who FROM operator WHERE uid=?1 AND what='pin'")                               \
    X(withdrawn_put, "INSERT OR IGNORE INTO withdrawn(uid,model,run,run_order,number,shard_count,root) "     \
                     "VALUES(?1,?2,?3,?4,?5,?6,?7)")                                                         \
    X(withdrawn_all, "SELECT w.uid,w.model,w.run,w.run_order,w.number,w.shard_count,w.root,"                 \
                     "COALESCE(o.here,0),COALESCE(o.who,'') FROM withdrawn w LEFT JOIN operator o "          \
                     "ON o.uid=w.uid AND o.what='withdrawn' ORDER BY w.id")                                  \
    X(operator_put, "INSERT OR REPLACE INTO operator(uid,what,here,who) VALUES(?1,?2,?3,?4)")                \
    X(operator_trim, "DELETE FROM operator WHERE uid NOT IN (SELECT uid FROM withdrawn) AND uid NOT IN "     \
                     "(SELECT uid FROM version)")                                                            \
    X(withdrawn_trim, "DELETE FROM withdrawn WHERE id IN (SELECT id FROM (SELECT id, ROW_NUMBER() OVER "     \
                      "(PARTITION BY model ORDER BY id DESC) AS place FROM withdrawn) WHERE place > ?1)")    \
    X(signed_put, "INSERT OR REPLACE INTO signed VALUES(?1,?2,?3,?4,?5,?6)")                                 \
    X(signed_all, "SELECT kind, said FROM signed ORDER BY run_order DESC, number DESC")                      \
    X(signed_trim, "DELETE FROM signed WHERE (kind, id) IN (SELECT kind, id FROM (SELECT kind, id, "         \
                   "ROW_NUMBER() OVER (PARTITION BY kind, model ORDER BY run_order DESC, number DESC) "      \
                   "AS place FROM signed) WHERE place > ?1)")                                                \
    X(pointer_put, "INSERT OR REPLACE INTO pointer VALUES(?1,?2,?3)")                                        \
    X(spent_put, "INSERT OR REPLACE INTO spent VALUES(?1,?2,?3)")                                            \
    X(spent_all, "SELECT site, day, bytes FROM spent")                                                       \
    X(path_put, "INSERT OR REPLACE INTO path VALUES(?1,?2,?3)")                                              \
    X(path_all, "SELECT site, streams, bytes_per_s FROM path")                                               \
    X(pause_put, "INSERT OR REPLACE INTO paused VALUES(?1,?2,?3,?4)")                                        \
    X(pause_end, "DELETE FROM paused WHERE is_peer=?1 AND name=?2")                                          \
    X(pause_all, "SELECT is_peer, name, who, wall_ms FROM paused ORDER BY wall_ms")                          \
    X(record_put,                                                                                            \
      "INSERT INTO record(wall_ms,minute,share,action,identity,object,origin,result,count,bytes) "           \
      "VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10) ON CONFLICT(minute,share,action,identity,object,origin,"       \
      "result) DO UPDATE SET count=count+excluded.count")                                                    \
    X(record_bytes, "SELECT COALESCE(SUM(bytes),0) FROM record WHERE share=?1")                              \
    X(record_trim,                                                                                           \
      "DELETE FROM record WHERE share=?1 AND id <= (SELECT COALESCE(MAX(id),0) FROM (SELECT id, "            \
      "SUM(bytes) OVER (ORDER BY id DESC) AS total FROM record WHERE share=?1) WHERE total > ?2)")           \
    X(record_age, "DELETE FROM record WHERE wall_ms < ?1")                                                   \
    X(record_old, "SELECT COUNT(*) FROM record WHERE wall_ms < ?1")                                          \
    X(record_list, "SELECT id,wall_ms,share,action,identity,object,origin,result,count FROM record WHERE "   \
                   "wall_ms >= ?1 AND id < ?2 AND (?3='' OR instr(action,?3)>0) AND (?4='' OR "              \
                   "instr(identity,?4)>0) ORDER BY id DESC LIMIT ?5")                                        \
    X(setting_any, "SELECT 1 FROM setting LIMIT 1")                                                          \
    X(setting_get, "SELECT value FROM setting WHERE key=?1")                                                 \
    X(setting_all, "SELECT key FROM setting")                                                                \
    X(setting_clear, "DELETE FROM setting")                                                                  \
    X(setting_put, "INSERT OR REPLACE INTO setting VALUES(?1,?2)")

enum statement {
#define STATEMENT_ENUM(name, sql) ST_##name,
    STATEMENTS(STATEMENT_ENUM)
#undef STATEMENT_ENUM
        STATEMENT_COUNT
};

#define TB_STORE_TRIM_EVERY 256 /* writes: old rows go with every so many */

struct tb_store {
    sqlite3 *db;
    const struct tb_disk_key *key; /* NULL: it is in clear */
    struct tb_store_vfs *vfs;      /* of that key; closed after the database */
    sqlite3_stmt *st[STATEMENT_COUNT];
    int lock_fd; /* closed after the database: closing any descriptor of the file drops SQLite's own locks */
    uint64_t writes;
    bool batch; /* tb_store_rows has a transaction open: rows are written in it */
    /* Of the audit record (store_audit.c): of each share what it has, about, and may have. */
    uint64_t audit_bytes[TB_AUDIT_SHARES], audit_most[TB_AUDIT_SHARES];
    bool audit_measured[TB_AUDIT_SHARES];
    uint64_t audit_max_ms, audit_aged_ms;
    struct tb_audit_lines *audit_lines; /* NULL: none are kept beside the table */
    enum tb_store_origin origin;
    char file[TB_STORE_FILE_NAME_BYTES]; /* which file this is; empty: the filesystem does not tell */
    char error[256];
};

/* Keeps the sentence for tb_store_error: what was being done, SQLite's words, what an operator
 * can do. */
enum tb_status tb_store_failed(struct tb_store *s, const char *doing);

TB_MUST_USE enum tb_status tb_store_prepare_all(struct tb_store *s);
/* False: its table is not there, in which case nothing of it is wrong. */
bool tb_store_prepare(struct tb_store *s, enum statement which);
TB_MUST_USE enum tb_status tb_store_run_once(struct tb_store *s, enum statement which, const char *doing);

/* TB_OK: what was written since `begin` is on disk. Else none of it is. */
TB_MUST_USE enum tb_status tb_store_transaction_end(struct tb_store *s, enum tb_status status);

void tb_store_bind_text(sqlite3_stmt *st, int at, const char *text); /* NULL: the empty text */
void tb_store_bind_u64(sqlite3_stmt *st, int at, uint64_t v);        /* SQLite keeps it as a signed one */
void tb_store_bind_id(sqlite3_stmt *st, int at, const struct tb_id *id);

#endif
