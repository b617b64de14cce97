/* model_life.c - see model_life.h. */
#include "gateway/daemon/models/model_life.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/limits/share_table.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/catalog/versions.h"
#include "gateway/config/model_rules.h"
#include "gateway/daemon/catalog_models.h"
#include "gateway/daemon/copies/anchors.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/links/link_opening.h"
#include "gateway/daemon/links/site_lag.h"
#include "gateway/daemon/links/site_records.h"
#include "gateway/daemon/models/model_table.h"
#include "gateway/daemon/models/model_wake.h"
#include "gateway/daemon/sessions/home_runs.h"
#include "gateway/store/store_load.h"

#define IDLE_NS   TB_SECONDS(60) /* nobody spoke of it for so long: it goes */
#define SPARE_NS  TB_SECONDS(1)  /* the same where rows are scarce */
#define FAILED_NS TB_SECONDS(10) /* a model that the store cannot read is asked for again */
#define TICK_PART 8u             /* of the rows: so many seconds go by until each was looked at */

/* ---- at the start ---- */

/* One of a pattern; others have a row, or none. */
static void start_with(struct tb_daemon *d, const struct tb_name *name)
{
    const struct tb_config_model *m = tb_config_model_for(d->config, name);
    if (m == NULL || !m->is_pattern || tb_model_row_of(d, name) != TB_MODEL_NONE) return;
    const uint32_t row = tb_model_row_new(d, name, TB_SHARE_OURS);
    if (row == TB_MODEL_NONE) {
        d->models.awake.refused++;
        tb_log(TB_LOG_ERROR, "models.full", "model=%s table=models_awake bound=%u action=withdraw_versions",
               name->text, TB_CONFIG_AWAKE_MAX);
        return;
    }
    d->models.rows[row].life = TB_MODEL_AWAKE;
    d->models.rows[row].used_at = tb_clock_now();
}

static enum tb_status run_pass(void *user, const struct tb_catalog_run *run)
{
    (void)user, (void)run; /* of an idle model it stays on the disk */
    return TB_OK;
}

static enum tb_status version_start(void *user, const struct tb_store_version *v)
{
    const bool ended = tb_catalog_state_status(v->state) != TB_OK;
    if (!ended || v->pinned) start_with(user, &v->key.model);
    return TB_OK;
}

enum tb_status tb_models_open(struct tb_daemon *d)
{
    TB_ASSERT(d->store != NULL && d->arena != NULL && d->catalog == NULL);
    tb_random_bytes(&d->models.salt, sizeof d->models.salt); /* while there is no row */
    tb_model_rows_named(d);
    for (uint32_t i = 0; i < d->config->subscribe_count; i++)
        if (!tb_model_pattern_is(d->config->subscribe[i].model.text))
            start_with(d, &d->config->subscribe[i].model);
    for (struct tb_arena_region *r = tb_arena_region_next(d->arena, NULL); r != NULL;
         r = tb_arena_region_next(d->arena, r))
        start_with(d, &tb_arena_region_key(r)->model);
    /* store_restore.c takes the rows over, and says what is wrong with one. */
    TB_MOOT(tb_store_load(d->store, run_pass, version_start, d));
    return TB_OK;
}

void tb_models_close(struct tb_daemon *d)
{
    for (uint32_t i = 0; i < TB_CONFIG_MODELS_MAX; i++) {
        struct tb_model_row *r = &d->models.rows[i];
        if (!d->left) tb_free(r->store); /* else the store's thread has it still */
        r->store = NULL;
    }
}

/* ---- a row goes ---- */

static void row_end(struct tb_daemon *d, uint32_t row)
{
    struct tb_model_row *r = &d->models.rows[row];
    tb_free(r->store);
    r->store = NULL;
    tb_site_records_row_ends(d, row);
    memset(&d->paces[row], 0, sizeof d->paces[row]);
    memset(&d->policies[row], 0, sizeof d->policies[row]);
    tb_home_runs_row_ends(d, row);
    tb_anchors_row_ends(d, row);
    tb_model_row_free(d, row);
    d->models.changed = true;
}

static bool is_idle(struct tb_daemon *d, uint32_t row)
{
    const struct tb_model_row *r = &d->models.rows[row];
    TB_ASSERT(r->life == TB_MODEL_AWAKE);
    const struct tb_config_subscribe *s = tb_config_subscribe_for(d->config, &r->name);
    if (s != NULL && tb_name_equal(&s->model, &r->name)) return false;
    if (!tb_catalog_model_idle(d->catalog, &r->name)) return false;
    if (tb_home_runs_row_waits(d, row) || tb_anchors_row_busy(d, row)) return false;
    for (const struct tb_copy *c = d->copies; c != NULL; c = c->next)
        if (tb_name_equal(&c->key.model, &r->name)) return false;
    return !tb_model_home_has(d, row);
}

static bool give_back(struct tb_daemon *d, uint32_t row, tb_time_ns for_ns)
{
    const tb_time_ns now = tb_clock_now();
    const struct tb_model_row *r = &d->models.rows[row];
    if (r->life != TB_MODEL_AWAKE || tb_time_since(r->used_at, now) < for_ns || !is_idle(d, row))
        return false;
    if (tb_catalog_model_forget(d->catalog, now, &r->name) != TB_OK) return false;
    tb_log(TB_LOG_DEBUG, "model.asleep", "model=%s", r->name.text);
    row_end(d, row);
    tb_daemon_wake(d);
    return true;
}

/* The one of which nobody spoke for longest; `owner`: of its rows alone, but for TB_SHARE_OURS. */
static void give_one_back(struct tb_daemon *d, uint64_t owner)
{
    const tb_time_ns now = tb_clock_now();
    uint32_t oldest = TB_MODEL_NONE;
    /* P7: a look is some milliseconds; an asker for names without end gets one a second. */
    if (d->models.looked_at != 0 && tb_time_since(d->models.looked_at, now) < SPARE_NS) return;
    for (uint32_t i = TB_CONFIG_LIST_MAX; i < TB_CONFIG_MODELS_MAX; i++) {
        const struct tb_model_row *r = &d->models.rows[i];
        const bool may = r->life == TB_MODEL_AWAKE && (owner == TB_SHARE_OURS || r->owner == owner);
        if (!may || (oldest != TB_MODEL_NONE && r->used_at >= d->models.rows[oldest].used_at)) continue;
        if (is_idle(d, i)) oldest = i;
    }
    const bool given = oldest != TB_MODEL_NONE && give_back(d, oldest, SPARE_NS);
    d->models.looked_at = given ? 0 : now;
}

/* ---- what the store said ---- */

/* Rows that make no sense here are passed over as at a start: the store bounds them, and the
 * catalog knows the model from here on. */
static enum tb_status restore(struct tb_daemon *d, uint32_t row, const struct tb_store_model *m)
{
    enum tb_status status = tb_daemon_model(d, row);
    for (uint32_t i = 0; status == TB_OK && i < m->run_count; i++) {
        status = tb_catalog_restore_run(d->catalog, &m->runs[i]);
        if (status == TB_CONFLICT) status = TB_OK;
    }
    for (uint32_t i = 0; status == TB_OK && i < m->version_count; i++) {
        const struct tb_store_version *v = &m->versions[i];
        status = tb_catalog_restore_version(d->catalog, &v->key, v->state, v->bytes, v->pinned);
        if (status == TB_CONFLICT || status == TB_SITE_NOMEM) status = TB_OK;
    }
    return status;
}

static void read_failed(struct tb_daemon *d, uint32_t row, enum tb_status status)
{
    struct tb_model_row *r = &d->models.rows[row];
    if (tb_catalog_model_forget(d->catalog, tb_clock_now(), &r->name) != TB_OK) d->models.changed = true;
    r->failed_at = tb_clock_now();
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_ERROR, "model.unread");
    tb_log_str(&l, "model", r->name.text);
    tb_log_str(&l, "status", tb_status_name(status));
    tb_log_str(&l, "action", "its publishers and subscribers are refused; restore a copy of the store");
    tb_log_end(&l);
}

static void read_take(struct tb_daemon *d, uint32_t row)
{
    struct tb_model_row *r = &d->models.rows[row];
    struct tb_store_model *m = r->store;
    TB_ASSERT(r->life == TB_MODEL_READING && m->answered);
    enum tb_status status = m->read ? restore(d, row, m) : TB_SITE_STORE;
    if (status == TB_OK) status = tb_site_records_row_begins(d, row);
    const bool doubted = m->doubted || r->doubted;
    r->store = NULL;
    tb_free(m);
    if (status != TB_OK) {
        read_failed(d, row, status);
    } else {
        r->life = TB_MODEL_AWAKE;
        r->used_at = tb_clock_now();
        tb_home_runs_row_begins(d, row, doubted);
        d->models.changed = true;
        d->news_refused = true; /* P6: news of peers while it slept is not in the catalog */
        tb_log(TB_LOG_DEBUG, "model.awake", "model=%s pattern=%s", r->name.text,
               tb_model_config(d, row)->name.text);
    }
    tb_home_runs_tick(d, tb_clock_now()); /* requests that waited for it */
    tb_daemon_wake(d);
}

/* ---- time ---- */

static void row_tick(struct tb_daemon *d, uint32_t row)
{
    struct tb_model_row *r = &d->models.rows[row];
    if (r->life != TB_MODEL_READING) {
        (void)give_back(d, row, IDLE_NS);
    } else if (r->failed_at == 0) {
        if (!r->asked || r->store->dropped) tb_model_ask(d, row);
    } else if (tb_time_since(r->failed_at, tb_clock_now()) >= FAILED_NS && !tb_home_runs_row_waits(d, row)) {
        r->failed_at = 0;
        row_end(d, row);
    }
}

void tb_models_tick(struct tb_daemon *d)
{
    if (d->draining) return;
    const uint32_t part = d->models.ticks++ % TICK_PART;
    for (uint32_t i = TB_CONFIG_LIST_MAX; i < TB_CONFIG_MODELS_MAX; i++) {
        const enum tb_model_life life = d->models.rows[i].life;
        if (life == TB_MODEL_READING || (life == TB_MODEL_AWAKE && i % TICK_PART == part)) row_tick(d, i);
    }
}

void tb_models_follow(struct tb_daemon *d)
{
    struct tb_model_table *t = &d->models;
    if (t->answers != 0) {
        t->answers = 0;
        for (uint32_t i = TB_CONFIG_LIST_MAX; i < TB_CONFIG_MODELS_MAX; i++)
            if (t->rows[i].life == TB_MODEL_READING && t->rows[i].store != NULL && t->rows[i].store->answered)
                read_take(d, i);
    }
    if (t->scarce) give_one_back(d, t->scarce_for);
    t->scarce = false;
    if (!t->changed) return;
    t->changed = false;
    tb_link_opening_wanted(d);
}
