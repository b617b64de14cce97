/* store_audit.c - rows of the audit record: written, listed, and let go by size and by age. */
#include "gateway/store/store_audit.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "gateway/store/audit_lines.h"
#include "gateway/store/store_statements.h"

#define DAY_MS     UINT64_C(86400000)
#define ROW_BYTES  96u /* of a row and its places in the indexes, beside its texts twice */
#define AGED_EVERY (DAY_MS / 24)
/* A share that is full goes down to so much of it at once: finding the rows costs a look at all. */
#define TRIMMED(bytes) ((bytes) / 8 * 7)

void tb_store_audit_bounds(struct tb_store *s, uint64_t bytes, uint32_t days)
{
    s->audit_max_ms = days * DAY_MS;
    s->audit_most[TB_AUDIT_ACTS] = bytes / 2;
    s->audit_most[TB_AUDIT_VERSIONS] = s->audit_most[TB_AUDIT_DENIALS] = bytes / 4;
}

void tb_store_audit_file(struct tb_store *s, struct tb_audit_lines *lines)
{
    TB_ASSERT(s->audit_lines == NULL);
    s->audit_lines = lines;
}

static uint64_t row_bytes(const struct tb_audit_record *r)
{
    return ROW_BYTES + 2 * (strlen(r->action) + strlen(r->identity) + strlen(r->object) + strlen(r->origin) +
                            strlen(r->result));
}

/* The bytes of a share, counted anew: a row that another one was added to takes no more. */
static enum tb_status share_measure(struct tb_store *s, enum tb_audit_share share)
{
    sqlite3_stmt *st = s->st[ST_record_bytes];
    tb_store_bind_u64(st, 1, (uint64_t)share);
    const int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) s->audit_bytes[share] = (uint64_t)sqlite3_column_int64(st, 0);
    sqlite3_reset(st);
    return rc == SQLITE_ROW ? TB_OK : tb_store_failed(s, "measuring the audit record");
}

/* P7: the oldest of the share go. */
static enum tb_status share_trim(struct tb_store *s, enum tb_audit_share share)
{
    if (!s->audit_measured[share]) {
        const enum tb_status status = share_measure(s, share);
        if (status != TB_OK) return status;
        s->audit_measured[share] = true;
    }
    if (s->audit_bytes[share] <= s->audit_most[share]) return TB_OK;
    tb_store_bind_u64(s->st[ST_record_trim], 1, (uint64_t)share);
    tb_store_bind_u64(s->st[ST_record_trim], 2, TRIMMED(s->audit_most[share]));
    const enum tb_status status = tb_store_run_once(s, ST_record_trim, "trimming the audit record");
    return status == TB_OK ? share_measure(s, share) : status;
}

static enum tb_status age_trim(struct tb_store *s, uint64_t now_ms)
{
    if (s->audit_aged_ms != 0 && now_ms < s->audit_aged_ms + AGED_EVERY) return TB_OK;
    s->audit_aged_ms = now_ms;
    tb_store_bind_u64(s->st[ST_record_age], 1, now_ms > s->audit_max_ms ? now_ms - s->audit_max_ms : 0);
    return tb_store_run_once(s, ST_record_age, "trimming the audit record by age");
}

static enum tb_status put(struct tb_store *s, const struct tb_audit_record *r)
{
    sqlite3_stmt *st = s->st[ST_record_put];
    tb_store_bind_u64(st, 1, r->wall_ms);
    if (r->minute != 0) tb_store_bind_u64(st, 2, r->minute); /* else NULL, which equals nothing */
    tb_store_bind_u64(st, 3, (uint64_t)r->share);
    tb_store_bind_text(st, 4, r->action);
    tb_store_bind_text(st, 5, r->identity);
    tb_store_bind_text(st, 6, r->object);
    tb_store_bind_text(st, 7, r->origin);
    tb_store_bind_text(st, 8, r->result);
    tb_store_bind_u64(st, 9, r->count);
    tb_store_bind_u64(st, 10, row_bytes(r));
    enum tb_status status = tb_store_run_once(s, ST_record_put, "writing the audit record");
    if (status != TB_OK) return status;
    s->audit_bytes[r->share] += row_bytes(r);
    if (s->audit_lines != NULL) tb_audit_lines_put(s->audit_lines, r, tb_clock_wall_ms());
    status = share_trim(s, r->share);
    return status == TB_OK ? age_trim(s, tb_clock_wall_ms()) : status;
}

enum tb_status tb_store_audit(struct tb_store *s, const struct tb_audit_record *record)
{
    TB_ASSERT(record->share < TB_AUDIT_SHARES && record->count > 0);
    if (!sqlite3_get_autocommit(s->db)) return put(s, record);
    enum tb_status status = tb_store_run_once(s, ST_begin, "beginning a transaction");
    if (status != TB_OK) return status;
    return tb_store_transaction_end(s, put(s, record));
}

/* ---- reading ---- */

static void column(sqlite3_stmt *st, int at, char *out, size_t size)
{
    const char *text = (const char *)sqlite3_column_text(st, at);
    (void)snprintf(out, size, "%s", text != NULL ? text : "");
}

static void row_read(sqlite3_stmt *st, struct tb_audit_record *r)
{
    *r = (struct tb_audit_record){.id = (uint64_t)sqlite3_column_int64(st, 0),
                                  .wall_ms = (uint64_t)sqlite3_column_int64(st, 1),
                                  .share = (enum tb_audit_share)sqlite3_column_int64(st, 2),
                                  .count = (uint64_t)sqlite3_column_int64(st, 8)};
    if ((int)r->share < 0 || r->share >= TB_AUDIT_SHARES)
        r->share = TB_AUDIT_DENIALS; /* of a later release */
    column(st, 3, r->action, sizeof r->action);
    column(st, 4, r->identity, sizeof r->identity);
    column(st, 5, r->object, sizeof r->object);
    column(st, 6, r->origin, sizeof r->origin);
    column(st, 7, r->result, sizeof r->result);
}

/* Rows that are older than audit.days: they go at most an hour later by themselves. */
static enum tb_status old_rows(struct tb_store *s, struct tb_audit_query *q)
{
    const uint64_t now_ms = tb_clock_wall_ms();
    const uint64_t before_ms = now_ms > s->audit_max_ms ? now_ms - s->audit_max_ms : 0;
    sqlite3_stmt *st = s->st[ST_record_old];
    tb_store_bind_u64(st, 1, before_ms);
    const int rc = sqlite3_step(st);
    q->old_rows = rc == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(st, 0) : 0;
    sqlite3_reset(st);
    if (rc != SQLITE_ROW) return tb_store_failed(s, "counting the audit record");
    if (q->question == TB_AUDIT_COUNTS_OLD) return TB_OK;
    tb_store_bind_u64(s->st[ST_record_age], 1, before_ms);
    return tb_store_run_once(s, ST_record_age, "trimming the audit record by age");
}

enum tb_status tb_store_audit_list(struct tb_store *s, struct tb_audit_query *q)
{
    sqlite3_stmt *st = s->st[ST_record_list];
    if (q->question != TB_AUDIT_LISTS) return old_rows(s, q);
    TB_ASSERT(q->most > 0 && q->most <= TB_AUDIT_PAGE);
    q->count = 0;
    tb_store_bind_u64(st, 1, q->since_wall_ms);
    tb_store_bind_u64(st, 2, q->before_id != 0 ? q->before_id : INT64_MAX);
    tb_store_bind_text(st, 3, q->action);
    tb_store_bind_text(st, 4, q->identity);
    tb_store_bind_u64(st, 5, q->most);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW && q->count < q->most)
        row_read(st, &q->rows[q->count++]);
    sqlite3_reset(st);
    sqlite3_clear_bindings(st);
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? TB_OK : tb_store_failed(s, "reading the audit record");
}

/* ---- the configuration of the start before ---- */

static enum tb_status setting_look(struct tb_store *s, const struct tb_store_setting *set, bool *same_out)
{
    sqlite3_stmt *st = s->st[ST_setting_get];
    tb_store_bind_text(st, 1, set->key);
    const int rc = sqlite3_step(st);
    const char *was = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(st, 0) : NULL;
    *same_out = rc == SQLITE_ROW && was != NULL && strcmp(was, set->value != NULL ? set->value : "") == 0;
    sqlite3_reset(st);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? TB_OK : tb_store_failed(s, "reading a setting");
}

/* A start that has none begins the list, and nothing has changed. */
static enum tb_status has_settings(struct tb_store *s, bool *any_out)
{
    sqlite3_stmt *st = s->st[ST_setting_any];
    const int rc = sqlite3_step(st);
    *any_out = rc == SQLITE_ROW;
    sqlite3_reset(st);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? TB_OK : tb_store_failed(s, "reading settings");
}

static bool is_among(const struct tb_store_setting *settings, uint32_t count, const char *key)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(settings[i].key, key) == 0) return true;
    return false;
}

static enum tb_status settings_gone(struct tb_store *s, const struct tb_store_setting *settings,
                                    uint32_t count, tb_store_changed_fn changed, void *user)
{
    sqlite3_stmt *st = s->st[ST_setting_all];
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *key = (const char *)sqlite3_column_text(st, 0);
        if (key != NULL && !is_among(settings, count, key)) changed(user, key);
    }
    sqlite3_reset(st);
    if (rc != SQLITE_DONE) return tb_store_failed(s, "reading settings");
    return tb_store_run_once(s, ST_setting_clear, "writing settings");
}

static enum tb_status settings_keep(struct tb_store *s, const struct tb_store_setting *settings,
                                    uint32_t count, tb_store_changed_fn changed, void *user)
{
    bool any = false, same = false;
    enum tb_status status = has_settings(s, &any);
    for (uint32_t i = 0; any && status == TB_OK && i < count; i++) {
        status = setting_look(s, &settings[i], &same);
        if (status == TB_OK && !same) changed(user, settings[i].key);
    }
    if (status == TB_OK) status = settings_gone(s, settings, count, changed, user);
    for (uint32_t i = 0; status == TB_OK && i < count; i++) {
        tb_store_bind_text(s->st[ST_setting_put], 1, settings[i].key);
        tb_store_bind_text(s->st[ST_setting_put], 2, settings[i].value);
        status = tb_store_run_once(s, ST_setting_put, "writing a setting");
    }
    return status;
}

enum tb_status tb_store_settings(struct tb_store *s, const struct tb_store_setting *settings, uint32_t count,
                                 tb_store_changed_fn changed, void *user)
{
    const enum tb_status status = tb_store_run_once(s, ST_begin, "beginning a transaction");
    if (status != TB_OK) return status;
    return tb_store_transaction_end(s, settings_keep(s, settings, count, changed, user));
}
