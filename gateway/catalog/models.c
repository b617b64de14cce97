/* models.c - models as configured, and the runs that fence each other: one run at a time may
 * publish. */

#include "gateway/catalog/models.h"

#include <string.h>

#include "base/assert.h"
#include "gateway/catalog/rows/group_rows.h"
#include "gateway/catalog/rows/model_rows.h"
#include "gateway/catalog/rows/record_rows.h"
#include "gateway/catalog/rows/session_rows.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched_rows.h"
#include "gateway/catalog/rows/version_changes.h"
#include "gateway/catalog/rows/version_rows.h"
#include "gateway/catalog/rows/wait_rows.h"
#include "gateway/catalog/rules/settle.h"
#include "gateway/catalog/rules/version_removal.h"

static bool model_valid(const struct tb_catalog_model *m)
{
    if (!tb_name_valid(m->name.text) || !tb_name_valid(m->home.text)) return false;
    if (m->from_count > TB_CATALOG_FROM_MAX || m->durable_count > TB_CATALOG_DURABLE_MAX) return false;
    return !(m->is_home && m->subscribed);
}

enum tb_status tb_catalog_model_add(struct tb_catalog *c, const struct tb_catalog_model *given)
{
    tb_catalog_enter(c, c->now);
    if (!model_valid(given)) return TB_BAD_ARGUMENT;
    uint32_t i = tb_catalog_model_find(c, &given->name);
    if (i != NONE) {
        const struct tb_catalog_model *old = &model_at(c, i)->config;
        if (!tb_catalog_same_name(&old->home, &given->home) || old->is_home != given->is_home)
            return TB_CONFLICT;
    } else {
        i = tb_table_new(&c->models);
        if (i == NONE) return tb_catalog_refuse_full(c, &c->models);
        model_at(c, i)->pin = NONE;
    }
    struct model *m = model_at(c, i);
    m->config = *given;
    if (m->config.keep == 0) m->config.keep = 2;
    tb_catalog_touch_model(c, i);
    return tb_catalog_settle(c, TB_OK);
}

/* ---- a model that nobody uses ---- */

static bool is_followed(const struct tb_catalog *c, uint32_t model)
{
    EACH(c->groups, g) if (group_at(c, g)->model == model) return true;
    EACH(c->waits, w)
    if (tb_catalog_same_name(&wait_at(c, w)->q.model, &model_at(c, model)->config.name)) return true;
    return false;
}

/* A row on its way to the disk says what a later start reads. */
static bool has_unsaved_runs(const struct tb_catalog *c, uint32_t model)
{
    EACH(c->runs, r) if (run_at(c, r)->model == model && run_at(c, r)->row.todos != 0) return true;
    return false;
}

bool tb_catalog_model_idle(const struct tb_catalog *c, const struct tb_name *name)
{
    const uint32_t i = tb_catalog_model_find(c, name);
    if (i == NONE) return false;
    const struct model *m = model_at(c, i);
    if (m->row.todos != 0 || m->unsaved != 0 || m->pin != NONE) return false;
    return tb_versions_past(c, i) && !is_followed(c, i) && !has_unsaved_runs(c, i);
}

enum tb_status tb_catalog_model_forget(struct tb_catalog *c, tb_time_ns now, const struct tb_name *name)
{
    tb_catalog_enter(c, now);
    const uint32_t i = tb_catalog_model_find(c, name);
    if (i == NONE) return TB_NOT_FOUND;
    if (!tb_catalog_model_idle(c, name)) return TB_BAD_STATE;
    tb_versions_forget_past(c, i);
    EACH(c->runs, r) if (run_at(c, r)->model == i) tb_table_free(&c->runs, r);
    tb_records_of_model_leave(c, name);
    tb_table_free(&c->models, i);
    return tb_catalog_settle(c, TB_OK);
}

static uint32_t run_by_key(const struct tb_catalog *c, uint32_t model, const char *key)
{
    EACH(c->runs, i) if (run_at(c, i)->model == model && strcmp(run_at(c, i)->info.key, key) == 0) return i;
    return NONE;
}

static uint32_t newest_run(const struct tb_catalog *c, uint32_t model)
{
    EACH(c->runs, i) if (run_at(c, i)->model == model && !run_at(c, i)->info.fenced) return i;
    return NONE;
}

static bool run_has_versions(const struct tb_catalog *c, const struct tb_id *id)
{
    EACH(c->versions, i) if (tb_id_equal(&version_at(c, i)->key.run, id)) return true;
    return false;
}

/* A full table forgets the oldest run that was shut out and has no version here. Its id can publish
 * nothing then either: it is not found. */
static uint32_t run_row(struct tb_catalog *c)
{
    const uint32_t i = tb_table_new(&c->runs);
    if (i != NONE) return i;
    uint32_t oldest = NONE;
    EACH(c->runs, r)
    {
        const struct run *run = run_at(c, r);
        if (!run->info.fenced || run->row.todos != 0 || run_has_versions(c, &run->info.id)) continue;
        if (oldest == NONE || run->info.order < run_at(c, oldest)->info.order) oldest = r;
    }
    if (oldest == NONE) return NONE;
    tb_table_free(&c->runs, oldest);
    return tb_table_new(&c->runs);
}

/* A run that was forgotten is in the store all the same, and its key may have begun another
 * one: that one counts. */
static bool key_begun_anew(struct tb_catalog *c, uint32_t model, const struct tb_catalog_run *given)
{
    const uint32_t i = run_by_key(c, model, given->key);
    if (i == NONE) return true;
    const struct run *old = run_at(c, i);
    if (old->info.order >= given->order) return false;
    tb_table_free(&c->runs, i);
    return true;
}

enum tb_status tb_catalog_restore_run(struct tb_catalog *c, const struct tb_catalog_run *given)
{
    tb_catalog_enter(c, c->now);
    const uint32_t model = tb_catalog_model_find(c, &given->model);
    if (model == NONE) return TB_NOT_FOUND;
    if (given->order == 0 || tb_id_is_zero(&given->id) || memchr(given->key, 0, sizeof given->key) == NULL)
        return TB_BAD_ARGUMENT;
    if (tb_catalog_run_find(c, model, &given->id) != NONE || !key_begun_anew(c, model, given))
        return TB_CONFLICT;
    const uint32_t i = run_row(c);
    if (i == NONE) return tb_catalog_refuse_full(c, &c->runs);
    struct run *run = run_at(c, i);
    run->info = *given;
    run->model = model;
    struct model *m = model_at(c, model);
    if (given->order > m->run_order) m->run_order = given->order;
    tb_runs_fence_older(c, model, m->run_order);
    return TB_OK;
}

/* A late rank of this run publishes nothing: its open versions end here, its next calls are
 * refused. */
static void fence(struct tb_catalog *c, uint32_t i)
{
    struct run *run = run_at(c, i);
    TB_ASSERT(!run->info.fenced);
    run->info.fenced = true;
    tb_table_mark(&c->runs, i, TB_CATALOG_PERSIST_RUN);
    EACH(c->versions, v)
    {
        const struct version *version = version_at(c, v);
        if (version->life == TB_LIFE_OPEN && tb_id_equal(&version->key.run, &run->info.id))
            tb_version_end(c, v, TB_VERSION_IS_ABANDONED, "fenced");
    }
}

static void fence_others(struct tb_catalog *c, uint32_t newest)
{
    EACH(c->runs, i)
    {
        struct run *run = run_at(c, i);
        if (i == newest || run->model != run_at(c, newest)->model || run->info.fenced) continue;
        memcpy(run->info.fenced_by, run_at(c, newest)->info.opened_by, sizeof run->info.fenced_by);
        fence(c, i);
    }
}

/* P8: a right to publish is none to end what another one publishes. */
static bool may_fence(const struct tb_catalog *c, uint32_t old, const struct tb_catalog_run_request *q)
{
    if (old == NONE || q->may_fence || run_at(c, old)->info.opened_by[0] == 0) return true;
    const struct session *s = session_at(c, tb_catalog_session_find(c, &q->session));
    return strncmp(run_at(c, old)->info.opened_by, s->info.identity, sizeof s->info.identity) == 0;
}

/* ---- runs that other sites remember ---- */

bool tb_catalog_known_run(const struct tb_catalog *c, const struct tb_name *name,
                          struct tb_catalog_known_run *known_out)
{
    const uint32_t model = tb_catalog_model_find(c, name);
    if (model == NONE) return false;
    const struct model *m = model_at(c, model);
    *known_out = m->known;
    if (m->run_order > m->known.order) *known_out = (struct tb_catalog_known_run){.order = m->run_order};
    known_out->model = *name;
    EACH(c->runs, i)
    {
        const struct tb_catalog_run *run = &run_at(c, i)->info;
        if (run_at(c, i)->model != model || run->order != known_out->order) continue;
        known_out->id = run->id;
        if (run->has_last && run->last_number > known_out->number) known_out->number = run->last_number;
    }
    return known_out->order != 0;
}

/* P7: a number that one of them makes up leaves numbers for the runs to come. */
static bool believable(const struct model *m, const struct tb_catalog_known_run *told)
{
    return told->order <= TB_CATALOG_RUN_ORDER_MAX && told->number <= INT64_MAX &&
           told->order <= m->run_order + TB_CATALOG_RUN_ORDER_STEP;
}

/* A run here, of the same order as one that is told: the same one goes on above the number that is
 * told. A worker tells no id. */
static bool goes_on(struct tb_catalog *c, uint32_t i, const struct tb_catalog_known_run *told)
{
    struct tb_catalog_run *run = &run_at(c, i)->info;
    const bool newer = !run->has_last || told->number > run->last_number;
    if (tb_id_is_zero(&told->id)) return told->number == 0 || !newer;
    if (!tb_id_equal(&told->id, &run->id)) return false;
    if (told->number == 0 || !newer) return true;
    run->has_last = true;
    run->last_number = told->number;
    tb_table_mark(&c->runs, i, TB_CATALOG_PERSIST_RUN);
    return true;
}

/* True: a run was shut out. */
static bool shut_out(struct tb_catalog *c, uint32_t model, const struct tb_catalog_known_run *told)
{
    bool any = false;
    EACH(c->runs, i)
    {
        const struct run *run = run_at(c, i);
        if (run->model != model || run->info.fenced || run->info.order > told->order) continue;
        if (run->info.order == told->order && goes_on(c, i, told)) continue;
        fence(c, i);
        any = true;
    }
    return any;
}

enum tb_status tb_catalog_run_told(struct tb_catalog *c, tb_time_ns now,
                                   const struct tb_catalog_known_run *told, bool doubted)
{
    tb_catalog_enter(c, now);
    const uint32_t model = tb_catalog_model_find(c, &told->model);
    if (model == NONE) return TB_NOT_FOUND;
    struct model *m = model_at(c, model);
    if (told->order == 0) return TB_DONE_BEFORE;
    if (!believable(m, told)) return TB_TOO_LARGE;
    if (!m->config.is_home && m->known.order != 0) return TB_DONE_BEFORE;
    const bool shut = m->config.is_home && doubted && shut_out(c, model, told);
    const bool newer = tb_catalog_run_seen_after(&m->known, told->order, told->number);
    if (told->order > m->run_order) m->run_order = told->order;
    if (newer) m->known = *told;
    return tb_catalog_settle(c, shut || newer ? TB_OK : TB_DONE_BEFORE);
}

static void note_shut_out(struct tb_catalog *c, uint32_t run, uint32_t old)
{
    if (old == NONE) return;
    struct tb_catalog_run *info = &run_at(c, run)->info;
    info->shut_out_order = run_at(c, old)->info.order;
    info->shut_out_has_last = run_at(c, old)->info.has_last;
    info->shut_out_number = run_at(c, old)->info.last_number;
}

static void fill_run(struct tb_catalog *c, uint32_t i, uint32_t model, const struct tb_catalog_run_request *q)
{
    struct run *run = run_at(c, i);
    struct model *m = model_at(c, model);
    run->model = model;
    run->info.model = q->model;
    run->info.id = q->fresh_id;
    run->info.order = ++m->run_order;
    (void)tb_catalog_copy_text(run->info.key, q->key); /* its length was checked */
    run->info.resumed_run_order = m->head.run_order;
    run->info.resumed_number = m->head.number;
    TB_ASSERT(run->info.order > m->head.run_order); /* P2: its versions are newer */
    const struct session *opener = session_at(c, tb_catalog_session_find(c, &q->session));
    memcpy(run->info.opened_by, opener->info.identity, sizeof run->info.opened_by);
}

bool tb_catalog_run_newest(const struct tb_catalog *c, const struct tb_name *model,
                           struct tb_catalog_run *run_out)
{
    const uint32_t m = tb_catalog_model_find(c, model);
    const uint32_t i = m == NONE ? NONE : newest_run(c, m);
    if (i == NONE) return false;
    *run_out = run_at(c, i)->info;
    return true;
}

/* P2: the key is of a run that a store before knew. A newer run shut that one out, or may do so
 * still. False: it has. */
static bool was_newest(struct model *m, uint64_t was_order)
{
    if (was_order == 0) return true;
    if (was_order < m->run_order) return false;
    const struct tb_catalog_known_run was = {.order = was_order};
    if (believable(m, &was)) m->run_order = was_order;
    return true;
}

enum tb_status tb_catalog_run_open(struct tb_catalog *c, tb_time_ns now,
                                   const struct tb_catalog_run_request *q, struct tb_catalog_run *run_out,
                                   bool *joined_out)
{
    tb_catalog_enter(c, now);
    if (tb_catalog_session_find(c, &q->session) == NONE) return TB_PEER_LEASE;
    const uint32_t model = tb_catalog_model_find(c, &q->model);
    if (model == NONE) return TB_NOT_FOUND;
    if (!model_at(c, model)->config.is_home) return TB_NOT_HOME;
    const size_t length = strnlen(q->key, TB_CATALOG_TEXT_MAX);
    if (length == TB_CATALOG_TEXT_MAX || tb_id_is_zero(&q->fresh_id)) return TB_BAD_ARGUMENT;
    uint32_t i = length == 0 ? newest_run(c, model) : run_by_key(c, model, q->key);
    const bool joined = i != NONE;
    if (length == 0 && !joined) return TB_NOT_FOUND;
    if (joined && run_at(c, i)->info.fenced) return TB_FENCED;
    if (!joined && !may_fence(c, newest_run(c, model), q)) return TB_PEER_DENIED;
    if (!joined && !was_newest(model_at(c, model), q->was_order)) return TB_FENCED;
    if (!joined && q->joins && model_at(c, model)->run_order > 0) return TB_BAD_STATE;
    if (!joined) {
        if (tb_catalog_run_find(c, model, &q->fresh_id) != NONE) return TB_CONFLICT;
        const uint32_t old = newest_run(c, model); /* the new row would be found as well */
        i = run_row(c);
        if (i == NONE) return tb_catalog_refuse_full(c, &c->runs);
        fill_run(c, i, model, q);
        note_shut_out(c, i, old);
        tb_table_mark(&c->runs, i, TB_CATALOG_PERSIST_RUN);
        fence_others(c, i);
    }
    *run_out = run_at(c, i)->info;
    *joined_out = joined;
    return tb_catalog_settle(c, TB_OK);
}
