/* todo_marks.c - turns the marks on rows into todos, the durable ones first. */
#include "gateway/catalog/todos.h"

#include <string.h>

#include "base/assert.h"
#include "gateway/catalog/catalog_check.h"
#include "gateway/catalog/rows/group_rows.h"
#include "gateway/catalog/rows/model_rows.h"
#include "gateway/catalog/rows/reference_rows.h"
#include "gateway/catalog/rows/session_rows.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/version_rows.h"
#include "gateway/catalog/rows/wait_rows.h"
#include "gateway/catalog/rules/crossing_rules.h"
#include "gateway/catalog/rules/settle.h"
#include "gateway/catalog/rules/wait_rules.h"

/* Each fills a todo from its row. False: nobody is there to be told. */
typedef bool (*fill_fn)(struct tb_catalog *c, uint32_t row, struct tb_catalog_todo *t);

static bool fill_run(struct tb_catalog *c, uint32_t i, struct tb_catalog_todo *t)
{
    const struct run *run = run_at(c, i);
    t->run = run->info;
    t->model = run->info.model;
    t->why = run->info.fenced ? "fenced" : run->info.has_last ? "published" : "opened";
    /* Proven, and no name that a worker gave itself (P8). */
    t->who = run->info.fenced && run->info.fenced_by[0] != 0 ? run->info.fenced_by : run->info.opened_by;
    return true;
}

static bool fill_version(struct tb_catalog *c, uint32_t i, struct tb_catalog_todo *t)
{
    const struct version *v = version_at(c, i);
    t->key = v->key;
    t->uid = v->key.uid;
    t->model = v->key.model;
    t->state = tb_version_state(v);
    t->status = tb_version_status(c, v);
    t->why = v->why;
    t->who = v->who;
    t->bytes = v->bytes;
    t->whole = tb_version_here(v);
    t->activated = v->activated_here;
    t->pinned = v->pinned;
    t->withdrawn_here = v->withdrawn_here;
    t->from_count = 0;
    t->shard = v->blamed_shard;
    if (t->kind == TB_CATALOG_PERSIST_POINTER) {
        t->who = v->pinned_by;
        t->why = "";
    }
    if (t->kind != TB_CATALOG_PERSIST_VERSION) return true;
    t->session = v->blamed;
    t->name = v->blamed_name;
    return true;
}

static bool fill_cross(struct tb_catalog *c, uint32_t i, struct tb_catalog_todo *t)
{
    (void)fill_version(c, i, t);
    t->from_count = tb_catalog_crossing_from(c, version_at(c, i), t->from);
    return t->from_count > 0;
}

static bool fill_head(struct tb_catalog *c, uint32_t i, struct tb_catalog_todo *t)
{
    t->model = model_at(c, i)->config.name;
    t->uid = model_at(c, i)->head.uid;
    t->head = true;
    return true;
}

static bool fill_session(struct tb_catalog *c, uint32_t i, struct tb_catalog_todo *t)
{
    t->session = session_at(c, i)->info.id;
    t->name = session_at(c, i)->info.name;
    return true;
}

static bool fill_reference(struct tb_catalog *c, uint32_t i, struct tb_catalog_todo *t)
{
    const struct reference *ref = reference_at(c, i);
    (void)c;
    t->session = ref->session_id;
    t->name = ref->name;
    t->uid = ref->uid;
    t->export_id = ref->export_id;
    t->shard = ref->kind == TB_REFERENCE_PUBLISHER ? ref->shard : TB_CATALOG_ALL_SHARDS;
    t->plan = ref->plan;
    if (t->kind == TB_CATALOG_TELL) t->status = ref->tell;
    if (t->kind == TB_CATALOG_UNPUBLISHED) {
        t->status = ref->unpublished;
        t->shard = ref->unpublish_shard;
    }
    return true;
}

static bool attached(const struct tb_catalog *c, uint32_t session)
{
    return session != NONE && session_at(c, session)->attached;
}

/* For a detached session it waits: tb_catalog_session_resume marks it again. */
static bool fill_for_worker(struct tb_catalog *c, uint32_t i, struct tb_catalog_todo *t)
{
    struct reference *ref = reference_at(c, i);
    if (!attached(c, ref->owner)) {
        ref->row.held |= 1u << t->kind;
        return false;
    }
    return fill_reference(c, i, t);
}

static bool fill_plan(struct tb_catalog *c, uint32_t i, struct tb_catalog_todo *t)
{
    if (!fill_for_worker(c, i, t)) return false;
    const struct reference *ref = reference_at(c, i);
    if (ref->source == NONE) return false;
    t->from_gateway = ref->source == GATEWAY;
    t->export_id = t->from_gateway ? 0 : reference_at(c, ref->source)->export_id;
    if (!t->from_gateway) t->source_session = reference_at(c, ref->source)->session_id;
    return true;
}

static bool fill_member(struct tb_catalog *c, uint32_t i, struct tb_catalog_todo *t)
{
    struct member *m = member_at(c, i);
    if (!attached(c, m->session)) {
        m->row.held |= 1u << t->kind;
        return false;
    }
    t->session = session_at(c, m->session)->info.id;
    t->name = session_at(c, m->session)->info.name;
    t->subscription = m->subscription;
    t->model = model_at(c, group_at(c, m->group)->model)->config.name;
    t->uid = t->kind == TB_CATALOG_GO ? group_at(c, m->group)->go.uid : m->tell_uid;
    if (t->kind == TB_CATALOG_TELL) t->status = m->tell;
    return true;
}

static bool fill_wait(struct tb_catalog *c, uint32_t i, struct tb_catalog_todo *t)
{
    struct wait *w = wait_at(c, i);
    t->wait = w->q.handle;
    t->status = w->status;
    if (w->session != NONE) t->session = session_at(c, w->session)->info.id;
    if (w->session != NONE) t->name = session_at(c, w->session)->info.name;
    t->model = w->q.model;
    t->key = w->key;
    t->uid = w->key.uid;
    t->bytes = w->bytes;
    t->whole = w->whole;
    w->row.dead = true; /* answered once */
    return true;
}

/* ---- what waits for the disk ---- */

/* True: something that this row's todo rests upon is not on disk yet. */
typedef bool (*rests_fn)(const struct tb_catalog *c, uint32_t row);

static bool version_rests(const struct tb_catalog *c, uint32_t i)
{
    return version_at(c, i)->unsaved != 0;
}

static bool reference_rests(const struct tb_catalog *c, uint32_t i)
{
    const uint32_t version = tb_version_find(c, &reference_at(c, i)->uid);
    return version != NONE && version_rests(c, version);
}

static bool member_rests(const struct tb_catalog *c, uint32_t i)
{
    return model_at(c, group_at(c, member_at(c, i)->group)->model)->unsaved != 0;
}

static bool wait_rests(const struct tb_catalog *c, uint32_t i)
{
    const struct wait *w = wait_at(c, i);
    if (w->status == TB_TIMEOUT || w->status == TB_AGAIN) return false; /* rests on the clock */
    const uint32_t version = tb_version_find(c, &w->q.uid);
    const uint32_t model =
        version != NONE ? version_at(c, version)->model : tb_catalog_model_find(c, &w->q.model);
    return model != NONE && model_at(c, model)->unsaved != 0;
}

static void unsaved_count(struct tb_catalog *c, const struct tb_name *model, const struct tb_id *uid, int by)
{
    const uint32_t m = tb_catalog_model_find(c, model);
    if (m == NONE) return;
    TB_ASSERT(by > 0 || model_at(c, m)->unsaved != 0);
    c->unsaved += (uint32_t)by;
    model_at(c, m)->unsaved += (uint32_t)by;
    const uint32_t v = tb_id_is_zero(uid) ? NONE : tb_version_find(c, uid);
    if (v != NONE && (by > 0 || version_at(c, v)->unsaved != 0)) version_at(c, v)->unsaved += (uint32_t)by;
}

void tb_catalog_unsaved(struct tb_catalog *c, const struct tb_name *model, const struct tb_id *uid)
{
    unsaved_count(c, model, uid, 1);
}

void tb_catalog_saved(struct tb_catalog *c, const struct tb_name *model, const struct tb_id *uid)
{
    unsaved_count(c, model, uid, -1);
}

/* ---- the order ---- */

/* The order in which todos come out: durable rows, then ends, then beginnings. A todo comes out
 * only after all that it rests upon. */
struct step {
    enum tb_catalog_todo_kind kind;
    size_t table;
    fill_fn fill;
    rests_fn rests; /* NULL: on nothing that a disk holds */
};
#define TABLE(name) offsetof(struct tb_catalog, name)
static const struct step steps[] = {
    {TB_CATALOG_PERSIST_RUN, TABLE(runs), fill_run, NULL},
    {TB_CATALOG_PERSIST_VERSION, TABLE(versions), fill_version, NULL},
    {TB_CATALOG_PERSIST_POINTER, TABLE(versions), fill_version, NULL},
    {TB_CATALOG_PERSIST_POINTER, TABLE(models), fill_head, NULL},
    {TB_CATALOG_SESSION_LOST, TABLE(sessions), fill_session, NULL},
    {TB_CATALOG_LAND_END, TABLE(references), fill_reference, NULL},
    {TB_CATALOG_PLAN_END, TABLE(references), fill_for_worker, NULL},
    {TB_CATALOG_EVICT, TABLE(versions), fill_version, version_rests},
    {TB_CATALOG_LAND_FROM, TABLE(references), fill_reference, NULL},
    {TB_CATALOG_CROSS, TABLE(versions), fill_cross, NULL},
    {TB_CATALOG_SITE_STATE, TABLE(versions), fill_version, version_rests},
    {TB_CATALOG_TELL, TABLE(references), fill_for_worker, reference_rests},
    {TB_CATALOG_TELL, TABLE(members), fill_member, member_rests},
    {TB_CATALOG_PLAN, TABLE(references), fill_plan, reference_rests},
    {TB_CATALOG_UNPUBLISHED, TABLE(references), fill_for_worker, reference_rests},
    {TB_CATALOG_ANSWER, TABLE(waits), fill_wait, wait_rests},
    {TB_CATALOG_GO, TABLE(members), fill_member, member_rests},
};

/* One row's mark becomes one todo, or is put aside. */
static bool take(struct tb_catalog *c, const struct step *step, struct table *table, uint32_t i,
                 struct tb_catalog_todo *t)
{
    memset(t, 0, sizeof *t);
    t->kind = step->kind;
    t->why = "";
    t->who = "";
    TB_ASSERT((tb_table_row(table, i)->todos & (1u << step->kind)) != 0);
    tb_table_row(table, i)->todos &= ~(1u << step->kind);
    const bool filled = step->fill(c, i, t);
    struct row *row = tb_table_row(table, i);
    const uint32_t held = row->held;
    tb_table_unmark(table, i, step->kind); /* leaves the dirty list when it was the last */
    row->held = held;
    if (row->dead && row->todos == 0 && row->held == 0) tb_table_free(table, i);
    return filled;
}

/* The first row that is marked for this step and rests on nothing unsaved. */
static uint32_t row_for(const struct tb_catalog *c, const struct step *step, const struct table *table)
{
    uint32_t i = tb_table_todo(table, step->kind);
    if (c->unsaved == 0 || step->rests == NULL) return i;
    while (i != NONE && step->rests(c, i))
        i = tb_table_todo_after(table, i, step->kind);
    return i;
}

static void settle_waits(struct tb_catalog *c)
{
    tb_waits_settle(c);
    if (!c->unsettled) return;
    (void)tb_catalog_settle(c, TB_OK); /* an exact wait asked for a crossing, */
    c->waits_touched = false;          /* which answers no wait yet */
}

bool tb_catalog_next(struct tb_catalog *c, struct tb_catalog_todo *todo_out)
{
    TB_ASSERT(!c->unsettled); /* each request settles before it returns */
    settle_waits(c);
    for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++) {
        struct table *table = (struct table *)(void *)((uint8_t *)c + steps[s].table);
        for (uint32_t i; (i = row_for(c, &steps[s], table)) != NONE;)
            if (take(c, &steps[s], table, i, todo_out)) return true;
    }
    tb_catalog_check_turn(c);
    memset(todo_out, 0, sizeof *todo_out);
    return false;
}
