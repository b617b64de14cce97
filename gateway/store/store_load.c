/* store_load.c - the rows of the store, read at a start. A run, a version or a withdrawal that
 * makes no sense ends the load; of the rest such a row is passed over. */
#include "gateway/store/store.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "gateway/store/store_load.h"
#include "gateway/store/store_statements.h"

static bool column_id(sqlite3_stmt *st, int at, struct tb_id *out)
{
    TB_ASSERT(at < sqlite3_column_count(st));
    if (sqlite3_column_bytes(st, at) != (int)sizeof out->bytes) return false;
    memcpy(out->bytes, sqlite3_column_blob(st, at), sizeof out->bytes);
    return true;
}

static uint64_t column_u64(sqlite3_stmt *st, int at)
{
    TB_ASSERT(at < sqlite3_column_count(st));
    return (uint64_t)sqlite3_column_int64(st, at);
}

static bool column_name(sqlite3_stmt *st, int at, struct tb_name *out)
{
    TB_ASSERT(at < sqlite3_column_count(st));
    const char *text = (const char *)sqlite3_column_text(st, at);
    return text != NULL && tb_name_set(out, text) == TB_OK;
}

/* For people: cut where it is too long. */
static void column_text(sqlite3_stmt *st, int at, char out[TB_CATALOG_TEXT_MAX])
{
    TB_ASSERT(at < sqlite3_column_count(st));
    const char *text = (const char *)sqlite3_column_text(st, at);
    (void)snprintf(out, TB_CATALOG_TEXT_MAX, "%s", text != NULL ? text : "");
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

static bool column_identity(sqlite3_stmt *st, int at, char out[TB_CATALOG_TEXT_MAX])
{
    const char *text = (const char *)sqlite3_column_text(st, at);
    if (text == NULL || strlen(text) >= TB_CATALOG_TEXT_MAX) return false;
    memcpy(out, text, strlen(text) + 1);
    return true;
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

/* For people. A store that is only looked at names nobody. */
static void pin_row(struct tb_store *s, struct tb_store_version *v)
{
    sqlite3_stmt *st = s->st[ST_operator_of_pin];
    if (st == NULL || !v->pinned) return;
    tb_store_bind_id(st, 1, &v->key.uid);
    if (sqlite3_step(st) == SQLITE_ROW) column_text(st, 0, v->pinned_by);
    sqlite3_reset(st);
}

static enum tb_status damaged(struct tb_store *s, sqlite3_stmt *st, const char *table)
{
    sqlite3_reset(st);
    snprintf(s->error, sizeof s->error, "a row of table %s does not make sense", table);
    return TB_SITE_STORE;
}

/* A run that an older release wrote has no owner: anybody who may publish may fence it. */
static enum tb_status owner_of(struct tb_store *s, struct tb_catalog_run *run)
{
    sqlite3_stmt *st = s->st[ST_run_owner_get];
    if (st == NULL) return TB_OK; /* a file of a release without owners that is only looked at */
    tb_store_bind_id(st, 1, &run->id);
    const int rc = sqlite3_step(st);
    enum tb_status status = TB_OK;
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        status = tb_store_failed(s, "reading owners of runs");
    else if (rc == SQLITE_ROW &&
             !(column_identity(st, 0, run->opened_by) && column_identity(st, 1, run->fenced_by)))
        status = damaged(s, st, "run_owner");
    sqlite3_reset(st);
    sqlite3_clear_bindings(st);
    return status;
}

static enum tb_status run_read(struct tb_store *s, sqlite3_stmt *st, tb_store_run_fn run, void *user)
{
    struct tb_catalog_run row;
    if (!run_row(st, &row)) return damaged(s, st, "run");
    const enum tb_status status = owner_of(s, &row);
    if (status != TB_OK) return status;
    return run(user, &row) == TB_OK ? TB_OK : damaged(s, st, "run");
}

enum tb_status tb_store_load(struct tb_store *s, tb_store_run_fn run, tb_store_version_fn version, void *user)
{
    sqlite3_stmt *st = s->st[ST_run_all];
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        const enum tb_status status = run_read(s, st, run, user);
        if (status == TB_OK) continue;
        sqlite3_reset(st);
        return status;
    }
    sqlite3_reset(st);
    if (rc != SQLITE_DONE) return tb_store_failed(s, "reading runs");
    st = s->st[ST_version_all];
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct tb_store_version row;
        if (!version_row(st, &row)) return damaged(s, st, "version");
        pin_row(s, &row);
        if (version(user, &row) != TB_OK) return damaged(s, st, "version");
    }
    sqlite3_reset(st);
    return rc == SQLITE_DONE ? TB_OK : tb_store_failed(s, "reading versions");
}

/* ---- one model, of a store that is written meanwhile ---- */

static enum tb_status runs_of(struct tb_store *s, struct tb_store_model *m)
{
    sqlite3_stmt *st = s->st[ST_run_of_model];
    int rc;
    tb_store_bind_text(st, 1, m->name.text);
    tb_store_bind_u64(st, 2, TB_STORE_MODEL_RUNS);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW && m->run_count < TB_STORE_MODEL_RUNS) {
        struct tb_catalog_run *run = &m->runs[m->run_count++];
        if (!run_row(st, run)) return damaged(s, st, "run");
        const enum tb_status status = owner_of(s, run);
        if (status == TB_OK) continue;
        sqlite3_reset(st);
        return status;
    }
    sqlite3_reset(st);
    return rc == SQLITE_DONE ? TB_OK : tb_store_failed(s, "reading a model's runs");
}

static enum tb_status versions_of(struct tb_store *s, struct tb_store_model *m)
{
    sqlite3_stmt *st = s->st[ST_version_of_model];
    int rc;
    tb_store_bind_text(st, 1, m->name.text);
    tb_store_bind_u64(st, 2, TB_STORE_MODEL_VERSIONS);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW && m->version_count < TB_STORE_MODEL_VERSIONS) {
        struct tb_store_version *version = &m->versions[m->version_count++];
        if (!version_row(st, version)) return damaged(s, st, "version");
        pin_row(s, version);
    }
    sqlite3_reset(st);
    return rc == SQLITE_DONE ? TB_OK : tb_store_failed(s, "reading a model's versions");
}

enum tb_status tb_store_model(struct tb_store *s, struct tb_store_model *m)
{
    sqlite3_stmt *st = s->st[ST_model_doubted];
    m->run_count = m->version_count = 0;
    tb_store_bind_text(st, 1, m->name.text);
    const int rc = sqlite3_step(st);
    m->doubted = rc == SQLITE_ROW && sqlite3_column_int64(st, 0) != 0;
    sqlite3_reset(st);
    if (rc != SQLITE_ROW) return tb_store_failed(s, "reading a model");
    const enum tb_status status = runs_of(s, m);
    if (status != TB_OK) return status;
    return versions_of(s, m);
}

enum tb_status tb_store_load_withdrawn(struct tb_store *s, tb_store_withdrawn_fn withdrawn, void *user)
{
    sqlite3_stmt *st = s->st[ST_withdrawn_all];
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct tb_store_withdrawal row = {.here = column_u64(st, 7) != 0};
        if (!key_row(st, &row.key)) return damaged(s, st, "withdrawn");
        column_text(st, 8, row.who);
        withdrawn(user, &row);
    }
    sqlite3_reset(st);
    return rc == SQLITE_DONE ? TB_OK : tb_store_failed(s, "reading withdrawals");
}

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
    return rc == SQLITE_DONE ? TB_OK : tb_store_failed(s, "reading the bytes sent");
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
    return rc == SQLITE_DONE ? TB_OK : tb_store_failed(s, "reading the rates of paths");
}

enum tb_status tb_store_load_pauses(struct tb_store *s, tb_store_pause_fn pause, void *user)
{
    sqlite3_stmt *st = s->st[ST_pause_all];
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct tb_store_pause row = {
            .is_peer = column_u64(st, 0) != 0, .paused = true, .wall_ms = column_u64(st, 3)};
        const char *who = (const char *)sqlite3_column_text(st, 2);
        (void)snprintf(row.who, sizeof row.who, "%s", who != NULL ? who : "");
        if (!column_name(st, 1, &row.name)) return damaged(s, st, "paused");
        pause(user, &row);
    }
    sqlite3_reset(st);
    return rc == SQLITE_DONE ? TB_OK : tb_store_failed(s, "reading what is paused");
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
    return rc == SQLITE_DONE ? TB_OK : tb_store_failed(s, "reading doubted models");
}

/* A row that makes no sense is passed over: its home says the statement again. */
enum tb_status tb_store_load_signed(struct tb_store *s, tb_store_signed_fn said, void *user)
{
    sqlite3_stmt *st = s->st[ST_signed_all];
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        const void *bytes = sqlite3_column_blob(st, 1);
        if (bytes != NULL) said(user, bytes, (uint32_t)sqlite3_column_bytes(st, 1));
    }
    sqlite3_reset(st);
    return rc == SQLITE_DONE ? TB_OK : tb_store_failed(s, "reading signed statements");
}
