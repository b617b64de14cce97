/* store_statements.c - each statement is prepared once, and a failure becomes a sentence. */
#include "gateway/store/store_statements.h"

#include <stdio.h>

#include "base/assert.h"
#include "gateway/store/audit_lines.h"

static const char *const statements[STATEMENT_COUNT] = {
#define STATEMENT_SQL(name, text) text,
    STATEMENTS(STATEMENT_SQL)
#undef STATEMENT_SQL
};

/* Advice for an operator; "" where SQLite's own words are enough. */
static const char *hint(int code)
{
    if (code == SQLITE_IOERR_DATA) /* of an encrypted store alone */
        return "; a page of it is damaged, or somebody changed it: restore a copy, or move it away";
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

enum tb_status tb_store_failed(struct tb_store *s, const char *doing)
{
    if (s->db == NULL)
        snprintf(s->error, sizeof s->error, "%s: no memory", doing);
    else
        snprintf(s->error, sizeof s->error, "%s: %.120s%s", doing, sqlite3_errmsg(s->db),
                 hint(sqlite3_extended_errcode(s->db)));
    return TB_SITE_STORE;
}

enum tb_status tb_store_prepare_all(struct tb_store *s)
{
    for (int i = 0; i < STATEMENT_COUNT; i++) {
        if (sqlite3_prepare_v3(s->db, statements[i], -1, SQLITE_PREPARE_PERSISTENT, &s->st[i], NULL) !=
            SQLITE_OK) {
            return tb_store_failed(s, "preparing");
        }
    }
    return TB_OK;
}

bool tb_store_prepare(struct tb_store *s, enum statement which)
{
    TB_ASSERT(which < STATEMENT_COUNT && s->st[which] == NULL);
    return sqlite3_prepare_v2(s->db, statements[which], -1, &s->st[which], NULL) == SQLITE_OK;
}

enum tb_status tb_store_run_once(struct tb_store *s, enum statement which, const char *doing)
{
    TB_ASSERT(which < STATEMENT_COUNT && s->st[which] != NULL);
    TB_ASSERT(which != ST_begin || sqlite3_get_autocommit(s->db)); /* a transaction inside another */
    sqlite3_stmt *st = s->st[which];
    TB_ASSERT(!sqlite3_stmt_busy(st)); /* its last reader has reset it */
    const int rc = sqlite3_step(st);
    const enum tb_status status = rc == SQLITE_DONE || rc == SQLITE_ROW ? TB_OK : tb_store_failed(s, doing);
    sqlite3_reset(st);
    sqlite3_clear_bindings(st);
    return status;
}

enum tb_status tb_store_transaction_end(struct tb_store *s, enum tb_status status)
{
    if (status == TB_OK) status = tb_store_run_once(s, ST_commit, "committing");
    if (s->audit_lines != NULL) tb_audit_lines_end(s->audit_lines, status == TB_OK);
    if (status == TB_OK) return TB_OK;
    /* may have been rolled back already: then this fails and nothing is lost */
    sqlite3_step(s->st[ST_rollback]);
    sqlite3_reset(s->st[ST_rollback]);
    return status;
}

void tb_store_bind_text(sqlite3_stmt *st, int at, const char *text)
{
    sqlite3_bind_text(st, at, text != NULL ? text : "", -1, SQLITE_TRANSIENT);
}

void tb_store_bind_u64(sqlite3_stmt *st, int at, uint64_t v)
{
    sqlite3_bind_int64(st, at, (sqlite3_int64)v);
}

void tb_store_bind_id(sqlite3_stmt *st, int at, const struct tb_id *id)
{
    sqlite3_bind_blob(st, at, id->bytes, sizeof id->bytes, SQLITE_TRANSIENT);
}
