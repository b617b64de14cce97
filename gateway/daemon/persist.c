/* persist.c - the catalog's durable todos. While the store cannot be written they wait here, in order, new
 * publishing is refused (TB_SITE_STORE), and what is held goes on being served: a full disk stops the new,
 * never the old. */
#include "gateway/daemon/daemon.h"

#include <string.h>

#include "base/fault.h"

#define WAITING_MAX 256

struct waiting {
    enum tb_catalog_todo_kind kind;
    struct tb_catalog_run run;
    struct tb_store_version version;
    struct tb_store_pointer pointer;
    char what[64], who[TB_CATALOG_TEXT_MAX], why[64];
    uint64_t wall_ms;
};

struct tb_persist {
    struct waiting rows[WAITING_MAX];
    uint32_t count;
    uint64_t dropped;
};

static void row_fill(struct waiting *r, const struct tb_catalog_todo *todo)
{
    *r = (struct waiting){.kind = todo->kind, .wall_ms = tb_clock_wall_ms()};
    const char *who = todo->who != NULL && todo->who[0] != '\0' ? todo->who : todo->name.text;
    snprintf(r->who, sizeof r->who, "%s", who);
    snprintf(r->why, sizeof r->why, "%s", todo->why != NULL ? todo->why : "");
    switch (todo->kind) {
    case TB_CATALOG_PERSIST_RUN:
        r->run = todo->run;
        snprintf(r->what, sizeof r->what, "run.%s", todo->run.fenced ? "fenced" : "open");
        return;
    case TB_CATALOG_PERSIST_VERSION:
        r->version = (struct tb_store_version){.key = todo->key, .state = todo->state, .bytes = todo->bytes};
        snprintf(r->what, sizeof r->what, "version.%s", tb_catalog_state_name(todo->state));
        return;
    default:
        r->pointer = (struct tb_store_pointer){
            .model = todo->model, .uid = todo->uid, .pin = !todo->head, .pinned = todo->pinned};
        snprintf(r->what, sizeof r->what, "%s", todo->head ? "head" : todo->pinned ? "pin" : "unpin");
    }
}

static enum tb_status row_write(struct tb_daemon *d, const struct waiting *r)
{
    const struct tb_store_audit audit = {r->what, r->who, r->why, r->wall_ms};
    if (r->kind == TB_CATALOG_PERSIST_RUN) return tb_store_run(d->store, &r->run, &audit);
    if (r->kind == TB_CATALOG_PERSIST_VERSION) return tb_store_version(d->store, &r->version, &audit);
    return tb_store_pointer(d->store, &r->pointer, &audit);
}

static void store_down_log(struct tb_daemon *d)
{
    d->counters.store_failed++;
    if (d->store_down) return; /* one line a time, not one a row */
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_ERROR, "store.failed");
    tb_log_str(&l, "path", d->config->store_path);
    tb_log_str(&l, "why", tb_store_error(d->store));
    tb_log_str(&l, "action", "publishing is refused until it can be written");
    tb_log_end(&l);
    d->store_down = true;
}

/* The oldest waiting row is the least true by now; a version's later row says it all again. */
static void row_wait(struct tb_daemon *d, const struct waiting *r)
{
    if (d->persist == NULL) d->persist = tb_calloc(1, sizeof *d->persist);
    struct tb_persist *p = d->persist;
    if (p == NULL) return;
    if (p->count == WAITING_MAX) {
        memmove(p->rows, p->rows + 1, (WAITING_MAX - 1) * sizeof p->rows[0]);
        p->count--;
        p->dropped++;
    }
    p->rows[p->count++] = *r;
}

enum tb_status tb_persist_todo(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    struct waiting row;
    row_fill(&row, todo);
    const bool behind = d->persist != NULL && d->persist->count != 0; /* order is kept */
    if (!behind && row_write(d, &row) == TB_OK) return TB_OK;
    store_down_log(d);
    row_wait(d, &row);
    return TB_SITE_STORE;
}

void tb_persist_retry(struct tb_daemon *d)
{
    struct tb_persist *p = d->persist;
    if (!d->store_down) return;
    uint32_t done = 0;
    while (p != NULL && done < p->count && row_write(d, &p->rows[done]) == TB_OK)
        done++;
    if (p != NULL) {
        memmove(p->rows, p->rows + done, (p->count - done) * sizeof p->rows[0]);
        p->count -= done;
        if (p->count != 0) return;
    }
    d->store_down = false;
    tb_log(TB_LOG_INFO, "store.recovered", "rows=%u dropped=%llu", done,
           p != NULL ? (unsigned long long)p->dropped : 0ull);
}

void tb_persist_free(struct tb_daemon *d)
{
    tb_persist_retry(d);
    tb_free(d->persist);
    d->persist = NULL;
}

static enum tb_status restore_run(void *user, const struct tb_catalog_run *run)
{
    struct tb_daemon *d = user;
    const enum tb_status status = tb_catalog_restore_run(d->catalog, run);
    return status == TB_NOT_FOUND ? TB_OK : status; /* of a model that is not configured any more */
}

static enum tb_status restore_version(void *user, const struct tb_store_version *v)
{
    struct tb_daemon *d = user;
    const enum tb_status status =
        tb_catalog_restore_version(d->catalog, &v->key, v->state, v->bytes, v->pinned);
    return status == TB_NOT_FOUND || status == TB_SITE_NOMEM ? TB_OK : status;
}

enum tb_status tb_persist_incarnation(struct tb_daemon *d, uint64_t at_least)
{
    const enum tb_status status = tb_store_incarnation(d->store, at_least, &d->incarnation);
    if (status != TB_OK) store_down_log(d);
    return status;
}

enum tb_status tb_persist_restore(struct tb_daemon *d)
{
    const enum tb_status status = tb_store_load(d->store, restore_run, restore_version, d);
    if (status == TB_OK) return tb_persist_incarnation(d, 1);
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_ERROR, "store.damaged");
    tb_log_str(&l, "path", d->config->store_path);
    tb_log_str(&l, "why", tb_store_error(d->store));
    tb_log_str(&l, "action",
               "move the file away: the arena's ready versions are found again, runs begin anew");
    tb_log_end(&l);
    return status;
}
