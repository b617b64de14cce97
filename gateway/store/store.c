/* store.c - what is written into the store: every write is one transaction with its audit line,
 * and old rows go with every so many. */
#include "gateway/store/store.h"

#include <stdio.h>

#include "base/assert.h"
#include "gateway/store/store_audit.h"
#include "gateway/store/store_backup.h"
#include "gateway/store/store_statements.h"

/* Rows of a model's versions that ended. A catalog remembers 8 of a model; the others would only be
 * read at a start and forgotten there. */
#define ENDED_KEPT 16
/* Of a model: as many as a catalog remembers, so a key that was used is known after a restart for
 * as long as it was before. */
#define RUNS_KEPT TB_CATALOG_RUNS

struct audit_row {
    const struct tb_store_audit *audit;
    const char *model;
    uint64_t run_order, number;
};

/* With its row, or not at all. A change of no interest has no name. */
static enum tb_status audit_put(struct tb_store *s, const struct audit_row *row)
{
    TB_ASSERT(!sqlite3_get_autocommit(s->db));
    struct tb_audit_record r = {.wall_ms = row->audit->wall_ms, .share = TB_AUDIT_VERSIONS, .count = 1};
    if (row->audit->what[0] == '\0') return TB_OK;
    snprintf(r.action, sizeof r.action, "%s", row->audit->what);
    snprintf(r.identity, sizeof r.identity, "%s", row->audit->who);
    if (row->number != 0)
        snprintf(r.object, sizeof r.object, "%s %llu:%llu", row->model, (unsigned long long)row->run_order,
                 (unsigned long long)row->number);
    else
        snprintf(r.object, sizeof r.object, "%s %llu", row->model, (unsigned long long)row->run_order);
    snprintf(r.result, sizeof r.result, "%s", row->audit->why[0] != '\0' ? row->audit->why : "ok");
    return tb_store_audit(s, &r);
}

/* P7: whatever the rows are about: of a kind that always falls between two trims
 * there would be no end. */
static enum tb_status trim(struct tb_store *s)
{
    if (++s->writes % TB_STORE_TRIM_EVERY != 0) return TB_OK;
    tb_store_bind_u64(s->st[ST_version_trim], 1, ENDED_KEPT);
    enum tb_status status = tb_store_run_once(s, ST_version_trim, "trimming ended versions");
    if (status != TB_OK) return status;
    tb_store_bind_u64(s->st[ST_withdrawn_trim], 1, TB_STORE_WITHDRAWN_MAX);
    status = tb_store_run_once(s, ST_withdrawn_trim, "trimming withdrawals");
    if (status != TB_OK) return status;
    tb_store_bind_u64(s->st[ST_signed_trim], 1, TB_STORE_SIGNED_MAX);
    status = tb_store_run_once(s, ST_signed_trim, "trimming signed statements");
    if (status != TB_OK) return status;
    status = tb_store_run_once(s, ST_operator_trim, "trimming operators' words");
    if (status != TB_OK) return status;
    tb_store_bind_u64(s->st[ST_run_trim], 1, RUNS_KEPT);
    status = tb_store_run_once(s, ST_run_trim, "trimming runs");
    if (status != TB_OK) return status;
    return tb_store_run_once(s, ST_run_owner_trim, "trimming the owners of runs");
}

/* P7: a model's rows that ended are as many after each of its versions. */
static enum tb_status trim_model(struct tb_store *s, const char *model)
{
    tb_store_bind_u64(s->st[ST_version_trim_model], 1, ENDED_KEPT);
    tb_store_bind_text(s->st[ST_version_trim_model], 2, model);
    return tb_store_run_once(s, ST_version_trim_model, "trimming a model's ended versions");
}

/* Inside a transaction. */
static enum tb_status put_with_audit(struct tb_store *s, enum statement which, const struct audit_row *row)
{
    enum tb_status status = tb_store_run_once(s, which, "writing");
    if (status != TB_OK) return status;
    status = audit_put(s, row);
    if (status != TB_OK) return status;
    if (which == ST_run_put) {
        status = tb_store_run_once(s, ST_run_owner_put, "writing the owner of a run");
        if (status != TB_OK) return status;
    }
    if (which == ST_version_put) {
        status = trim_model(s, row->model);
        if (status != TB_OK) return status;
    }
    return trim(s);
}

/* One row (its statement is bound) and its audit line, both or neither. Now and then old rows go
 * with them. */
static enum tb_status transact(struct tb_store *s, enum statement which, const struct audit_row *row)
{
    if (s->batch) return put_with_audit(s, which, row);
    const enum tb_status status = tb_store_run_once(s, ST_begin, "beginning a transaction");
    if (status != TB_OK) {
        sqlite3_clear_bindings(s->st[which]);
        return status;
    }
    return tb_store_transaction_end(s, put_with_audit(s, which, row));
}

enum tb_status tb_store_incarnation(struct tb_store *s, uint64_t at_least, uint64_t *incarnation_out)
{
    sqlite3_stmt *st = s->st[ST_incarnation_get];
    if (sqlite3_step(st) != SQLITE_ROW) {
        sqlite3_reset(st);
        return tb_store_failed(s, "reading the incarnation");
    }
    uint64_t next = (uint64_t)sqlite3_column_int64(st, 0) + 1;
    sqlite3_reset(st);
    if (next < at_least) next = at_least;
    TB_ASSERT(next > 0);
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)next);
    tb_store_bind_text(s->st[ST_incarnation_set], 1, text);
    const enum tb_status status = tb_store_run_once(s, ST_incarnation_set, "writing the incarnation");
    if (status == TB_OK) *incarnation_out = next;
    return status;
}

enum tb_status tb_store_doubt(struct tb_store *s, const struct tb_store_doubt *doubt)
{
    if (doubt->model.text[0] == '\0') return tb_store_run_once(s, ST_epoch_next, "doubting all models");
    const enum statement which = doubt->doubted ? ST_doubt_put : ST_doubt_end;
    tb_store_bind_text(s->st[which], 1, doubt->model.text);
    const enum tb_status status = tb_store_run_once(s, which, "writing a doubted model");
    if (status != TB_OK || doubt->doubted) return status;
    tb_store_bind_text(s->st[ST_model_put], 1, doubt->model.text);
    return tb_store_run_once(s, ST_model_put, "writing a model");
}

/* Each model that is not named is doubted from now on, or none of them any more. */
static enum tb_status doubt_all(struct tb_store *s, bool doubted)
{
    if (doubted) return tb_store_doubt(s, &(struct tb_store_doubt){.doubted = true});
    return tb_store_run_once(s, ST_epoch_settle, "ending the doubt of all models");
}

enum tb_status tb_store_own(struct tb_store *s, const struct tb_name *doubted, uint32_t count, bool first)
{
    const bool others = s->origin == TB_STORE_RESTORED || (s->origin == TB_STORE_NEW && !first);
    enum tb_status status = tb_store_run_once(s, ST_begin, "beginning a transaction");
    if (status != TB_OK) return status;
    for (uint32_t i = 0; status == TB_OK && i < count; i++)
        status = tb_store_doubt(s, &(struct tb_store_doubt){doubted[i], true});
    if (status == TB_OK && (others || first)) status = doubt_all(s, others);
    if (status == TB_OK) {
        tb_store_bind_text(s->st[ST_file_set], 1, s->file);
        status = tb_store_run_once(s, ST_file_set, "writing the file's name");
    }
    return tb_store_transaction_end(s, status);
}

enum tb_status tb_store_run(struct tb_store *s, const struct tb_catalog_run *run,
                            const struct tb_store_audit *audit)
{
    sqlite3_stmt *st = s->st[ST_run_put];
    tb_store_bind_text(st, 1, run->model.text);
    tb_store_bind_u64(st, 2, run->order);
    tb_store_bind_id(st, 3, &run->id);
    tb_store_bind_text(st, 4, run->key);
    tb_store_bind_u64(st, 5, run->has_last);
    tb_store_bind_u64(st, 6, run->last_number);
    tb_store_bind_u64(st, 7, run->resumed_run_order);
    tb_store_bind_u64(st, 8, run->resumed_number);
    tb_store_bind_u64(st, 9, run->fenced);
    sqlite3_stmt *owner = s->st[ST_run_owner_put];
    tb_store_bind_id(owner, 1, &run->id);
    tb_store_bind_text(owner, 2, run->opened_by);
    tb_store_bind_text(owner, 3, run->fenced_by);
    const struct audit_row row = {audit, run->model.text, run->order, 0};
    return transact(s, ST_run_put, &row);
}

static sqlite3_stmt *bind_key(sqlite3_stmt *st, const struct tb_version_key *key)
{
    TB_ASSERT(sqlite3_bind_parameter_count(st) >= 7);
    tb_store_bind_id(st, 1, &key->uid);
    tb_store_bind_text(st, 2, key->model.text);
    tb_store_bind_id(st, 3, &key->run);
    tb_store_bind_u64(st, 4, key->run_order);
    tb_store_bind_u64(st, 5, key->number);
    tb_store_bind_u64(st, 6, key->shard_count);
    sqlite3_bind_blob(st, 7, key->root.bytes, TB_DIGEST_BYTES, SQLITE_TRANSIENT);
    return st;
}

/* The operator that decided something about a version. */
static enum tb_status operator_put(struct tb_store *s, const struct tb_id *uid, const char *what, bool here,
                                   const char *who)
{
    sqlite3_stmt *st = s->st[ST_operator_put];
    tb_store_bind_id(st, 1, uid);
    tb_store_bind_text(st, 2, what);
    tb_store_bind_u64(st, 3, here);
    tb_store_bind_text(st, 4, who);
    return tb_store_run_once(s, ST_operator_put, "writing an operator's word");
}

/* Ahead of the version's row: where they are two transactions, one that is cut off between them
 * withdrew it. The operator's word comes before both: without it other sites would be told. */
static enum tb_status withdrawn_put(struct tb_store *s, const struct tb_store_version *v, const char *who)
{
    if (v->state != TB_VERSION_ENDED_WITHDRAWN) return TB_OK;
    const enum tb_status status = operator_put(s, &v->key.uid, "withdrawn", v->withdrawn_here, who);
    if (status != TB_OK) return status;
    (void)bind_key(s->st[ST_withdrawn_put], &v->key);
    return tb_store_run_once(s, ST_withdrawn_put, "writing a withdrawal");
}

enum tb_status tb_store_version(struct tb_store *s, const struct tb_store_version *v,
                                const struct tb_store_audit *audit)
{
    const enum tb_status status = withdrawn_put(s, v, audit->who);
    if (status != TB_OK) return status;
    sqlite3_stmt *st = bind_key(s->st[ST_version_put], &v->key);
    tb_store_bind_u64(st, 8, (uint64_t)v->state);
    tb_store_bind_u64(st, 9, v->bytes);
    tb_store_bind_u64(st, 10, v->pinned);
    const struct audit_row row = {audit, v->key.model.text, v->key.run_order, v->key.number};
    return transact(s, ST_version_put, &row);
}

enum tb_status tb_store_pointer(struct tb_store *s, const struct tb_store_pointer *p,
                                const struct tb_store_audit *audit)
{
    const enum statement which = p->pin ? ST_version_pin : ST_pointer_put;
    sqlite3_stmt *st = s->st[which];
    if (p->pin) {
        const enum tb_status status = operator_put(s, &p->uid, "pin", true, audit->who);
        if (status != TB_OK) return status;
        tb_store_bind_id(st, 1, &p->uid);
        tb_store_bind_u64(st, 2, p->pinned);
        tb_store_bind_text(st, 3, p->model.text);
    } else {
        tb_store_bind_text(st, 1, p->model.text);
        tb_store_bind_text(st, 2, "head");
        tb_store_bind_id(st, 3, &p->uid);
    }
    const struct audit_row row = {audit, p->model.text, 0, 0};
    return transact(s, which, &row);
}

enum tb_status tb_store_spent(struct tb_store *s, const struct tb_store_spent *spent)
{
    sqlite3_stmt *st = s->st[ST_spent_put];
    tb_store_bind_text(st, 1, spent->site.text);
    tb_store_bind_u64(st, 2, spent->day);
    tb_store_bind_u64(st, 3, spent->bytes);
    return tb_store_run_once(s, ST_spent_put, "writing the bytes sent today");
}

enum tb_status tb_store_path(struct tb_store *s, const struct tb_store_path *path)
{
    sqlite3_stmt *st = s->st[ST_path_put];
    tb_store_bind_text(st, 1, path->site.text);
    tb_store_bind_u64(st, 2, path->streams);
    tb_store_bind_u64(st, 3, path->bytes_per_s);
    return tb_store_run_once(s, ST_path_put, "writing the rate of a path");
}

enum tb_status tb_store_pause(struct tb_store *s, const struct tb_store_pause *pause)
{
    const enum statement which = pause->paused ? ST_pause_put : ST_pause_end;
    tb_store_bind_u64(s->st[which], 1, pause->is_peer);
    tb_store_bind_text(s->st[which], 2, pause->name.text);
    if (pause->paused) tb_store_bind_text(s->st[which], 3, pause->who);
    if (pause->paused) tb_store_bind_u64(s->st[which], 4, pause->wall_ms);
    return tb_store_run_once(s, which, "writing a pause");
}

enum tb_status tb_store_signed(struct tb_store *s, const struct tb_store_signed *said)
{
    sqlite3_stmt *st = s->st[ST_signed_put];
    const struct tb_statement *what = &said->what;
    TB_ASSERT(said->bytes != NULL && said->count > 0);
    tb_store_bind_u64(st, 1, (uint64_t)what->kind);
    const struct tb_id id = tb_statement_id(what);
    tb_store_bind_id(st, 2, &id);
    tb_store_bind_text(st, 3, what->model.text);
    tb_store_bind_u64(st, 4, what->run_order);
    tb_store_bind_u64(st, 5, what->number);
    sqlite3_bind_blob(st, 6, said->bytes, (int)said->count, SQLITE_TRANSIENT);
    return tb_store_run_once(s, ST_signed_put, "writing a signed statement");
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
    case TB_STORE_PAUSE:
        return tb_store_pause(s, &row->pause);
    case TB_STORE_SIGNED:
        return tb_store_signed(s, &row->said);
    case TB_STORE_RECORD:
        return tb_store_audit(s, &row->record);
    case TB_STORE_RECORDS_ASKED:
        return tb_store_audit_list(s, row->asked);
    case TB_STORE_MODEL_ASKED:
        row->model->read = tb_store_model(s, row->model) == TB_OK; /* rows of others are sound all the same */
        return TB_OK;
    case TB_STORE_BACKUP:
        return TB_OK; /* behind the transaction */
    }
    return TB_BAD_ARGUMENT;
}

enum tb_status tb_store_rows(struct tb_store *s, struct tb_store_row *rows, uint32_t count)
{
    enum tb_status status = tb_store_run_once(s, ST_begin, "beginning a transaction");
    if (status != TB_OK) return status;
    TB_ASSERT(!s->batch);
    s->batch = true;
    for (uint32_t i = 0; status == TB_OK && i < count; i++)
        status = row_put(s, &rows[i]);
    s->batch = false;
    status = tb_store_transaction_end(s, status);
    for (uint32_t i = 0; status == TB_OK && i < count; i++)
        if (rows[i].kind == TB_STORE_BACKUP) tb_store_backup_step(s, rows[i].backup);
    return status;
}
