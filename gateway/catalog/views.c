/* views.c - what the catalog knows, row by row, for status and metrics. Changes nothing. */
#include "gateway/catalog/views.h"

#include <string.h>

#include "gateway/catalog/rows/group_rows.h"
#include "gateway/catalog/rows/model_rows.h"
#include "gateway/catalog/rows/reference_rows.h"
#include "gateway/catalog/rows/session_rows.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/version_rows.h"
#include "gateway/catalog/rules/plans.h"

static uint32_t next_row(const struct table *t, uint32_t *cursor)
{
    const uint32_t i = tb_table_next(t, *cursor);
    *cursor = i == NONE ? t->high : i + 1;
    return i;
}

enum tb_status tb_catalog_find(const struct tb_catalog *c, const struct tb_name *model, uint64_t run_order,
                               uint64_t number, struct tb_id *uid_out)
{
    const uint32_t m = tb_catalog_model_find(c, model);
    uint32_t best = NONE;
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if (m == NONE || v->model != m || v->key.number != number) continue;
        if (run_order != 0 && v->key.run_order != run_order) continue;
        if (best == NONE || tb_version_older(version_at(c, best), v) ||
            (v->was_ready && !version_at(c, best)->was_ready && !tb_version_older(v, version_at(c, best))))
            best = i;
    }
    if (best == NONE) return TB_NOT_FOUND;
    *uid_out = version_at(c, best)->key.uid;
    return TB_OK;
}

static void view_version(const struct tb_catalog *c, const struct version *v,
                         struct tb_catalog_version_view *out)
{
    *out = (struct tb_catalog_version_view){.key = v->key,
                                            .state = tb_version_state(v),
                                            .crossing = tb_version_cross_begun(v) && !v->whole,
                                            .wanted = v->wanted,
                                            .bytes = v->bytes,
                                            .chunk_count = v->chunk_count,
                                            .held_chunks = v->held_chunks,
                                            .sealed_count = v->sealed_count,
                                            .whole = v->whole,
                                            .arriving = tb_version_reserved(v) && !v->whole,
                                            .head = tb_which_is(&model_at(c, v->model)->head, &v->key.uid),
                                            .awaits = v->awaits,
                                            .pinned = v->pinned,
                                            .pinned_by = v->pinned_by,
                                            .withdrawn_here = v->withdrawn_here,
                                            .who = v->who,
                                            .evicting = tb_version_leaves(v),
                                            .fan_out = tb_plan_fan_out(c, v, c->gateway_nic),
                                            .arrival_bytes_per_s = model_at(c, v->model)->arrival_bytes_per_s,
                                            .opened_at = v->opened_at,
                                            .ready_at = v->ready_at,
                                            .activated = v->activated_here,
                                            .whole_at = v->whole_at};
    EACH_REFERENCE(c, v, r)
    {
        const struct reference *ref = reference_at(c, r);
        out->publishers += ref->kind == TB_REFERENCE_PUBLISHER && ref->shard != NONE;
        out->workers += ref->kind == TB_REFERENCE_WORKER;
        out->gateway_readers += ref->kind == TB_REFERENCE_WORKER && ref->source == GATEWAY;
        out->sites += ref->kind == TB_REFERENCE_SITE;
    }
}

bool tb_catalog_version_at(const struct tb_catalog *c, uint32_t *cursor, struct tb_catalog_version_view *out)
{
    const uint32_t i = next_row(&c->versions, cursor);
    if (i == NONE) return false;
    view_version(c, version_at(c, i), out);
    return true;
}

bool tb_catalog_version_get(const struct tb_catalog *c, const struct tb_id *uid,
                            struct tb_catalog_version_view *out)
{
    const uint32_t i = tb_version_find(c, uid);
    if (i == NONE) return false;
    view_version(c, version_at(c, i), out);
    return true;
}

static void view_session(const struct session *s, struct tb_catalog_session_view *out)
{
    *out = (struct tb_catalog_session_view){
        .session = s->info, .attached = s->attached, .lease_until = s->lease_until};
}

bool tb_catalog_session_at(const struct tb_catalog *c, uint32_t *cursor, struct tb_catalog_session_view *out)
{
    const uint32_t i = next_row(&c->sessions, cursor);
    if (i == NONE) return false;
    view_session(session_at(c, i), out);
    return true;
}

bool tb_catalog_session_get(const struct tb_catalog *c, const struct tb_id *session,
                            struct tb_catalog_session_view *out)
{
    const uint32_t i = tb_catalog_session_find(c, session);
    if (i == NONE) return false;
    view_session(session_at(c, i), out);
    return true;
}

static bool member_whole(const struct tb_catalog *c, const struct member *m)
{
    const uint32_t v = tb_id_is_zero(&m->staging.uid) ? NONE : tb_version_find(c, &m->staging.uid);
    const uint32_t r = v == NONE ? NONE : tb_reference_find(c, TB_REFERENCE_WORKER, v, m->session);
    return r != NONE && reference_at(c, r)->whole;
}

/* Without its members. */
static struct tb_catalog_group_view group_view(const struct tb_catalog *c, uint32_t i)
{
    const struct group *g = group_at(c, i);
    return (struct tb_catalog_group_view){.model = model_at(c, g->model)->config.name,
                                          .name = g->name,
                                          .count = g->count,
                                          .uid = g->go.uid,
                                          .attempt = g->attempt.uid,
                                          .row = i};
}

static void view_member(const struct tb_catalog *c, const struct member *m, struct tb_catalog_group_view *out)
{
    out->present++;
    out->staged_whole += member_whole(c, m);
    out->activated += tb_which_is(&m->active, &out->uid);
}

bool tb_catalog_group_at(const struct tb_catalog *c, uint32_t *cursor, struct tb_catalog_group_view *out)
{
    const uint32_t i = next_row(&c->groups, cursor);
    if (i == NONE) return false;
    *out = group_view(c, i);
    EACH(c->members, j)
    {
        const struct member *m = member_at(c, j);
        if (m->group == i) view_member(c, m, out);
    }
    return true;
}

/* They are in the order of their rows. */
static struct tb_catalog_group_view *view_of_row(struct tb_catalog_group_view *views, uint32_t count,
                                                 uint32_t row)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (views[middle].row == row) return &views[middle];
        if (views[middle].row < row)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

uint32_t tb_catalog_groups(const struct tb_catalog *c, struct tb_catalog_group_view *out, uint32_t most)
{
    uint32_t count = 0, cursor = 0;
    for (uint32_t i; count < most && (i = next_row(&c->groups, &cursor)) != NONE;)
        out[count++] = group_view(c, i);
    EACH(c->members, j)
    {
        const struct member *m = member_at(c, j);
        struct tb_catalog_group_view *of = view_of_row(out, count, m->group);
        if (of != NULL) view_member(c, m, of);
    }
    return count;
}

bool tb_catalog_member_at(const struct tb_catalog *c, uint32_t *cursor, struct tb_catalog_member_view *out)
{
    const uint32_t i = next_row(&c->members, cursor);
    if (i == NONE) return false;
    const struct member *m = member_at(c, i);
    const struct group *g = group_at(c, m->group);
    *out = (struct tb_catalog_member_view){.model = model_at(c, g->model)->config.name,
                                           .group = g->name,
                                           .worker = session_at(c, m->session)->info.name,
                                           .session = session_at(c, m->session)->info.id,
                                           .active = m->active.uid,
                                           .staging = m->staging.uid,
                                           .subscription = m->subscription,
                                           .index = m->index,
                                           .staged_whole = member_whole(c, m)};
    if (tb_which_is(&m->active, &m->update.uid)) out->update = m->update;
    if (tb_id_equal(&m->active.uid, &m->proof.uid)) out->proof = m->proof;
    return true;
}

static void view_reference(const struct tb_catalog *c, const struct reference *ref,
                           struct tb_catalog_reference_view *out)
{
    memset(out, 0, sizeof *out);
    out->kind = ref->kind;
    out->uid = ref->uid;
    out->session = ref->session_id;
    out->name = ref->name;
    out->shard = ref->shard;
    out->export_id = ref->export_id;
    out->held_chunks = ref->held_chunks;
    out->total_chunks = ref->total_chunks;
    out->whole = ref->whole;
    out->hidden = tb_reference_hidden(ref);
    out->activated =
        ref->kind == TB_REFERENCE_WORKER ? tb_member_active(c, ref->owner, &ref->uid) : ref->activated;
    out->slow = tb_reference_slow(ref);
    out->silent = ref->silent;
    out->spot = ref->spot;
    out->readers = ref->followers;
    if (ref->kind == TB_REFERENCE_WORKER && !ref->row.dead)
        out->fan_out = tb_plan_fan_out(c, version_at(c, ref->version), ref->nic_bytes_per_s);
    out->bytes_per_s = ref->bytes_per_s;
    out->transport = ref->transport;
    out->plan = ref->source == NONE ? 0 : ref->plan;
    out->from_gateway = ref->source == GATEWAY;
    out->upstream_row = NONE;
    if (ref->source == NONE || ref->source == GATEWAY) return;
    out->upstream_row = ref->source;
    out->upstream = reference_at(c, ref->source)->session_id;
    out->upstream_name = reference_at(c, ref->source)->name;
}

bool tb_catalog_reference_at(const struct tb_catalog *c, uint32_t *cursor,
                             struct tb_catalog_reference_view *out)
{
    const uint32_t i = next_row(&c->references, cursor);
    if (i == NONE) return false;
    view_reference(c, reference_at(c, i), out);
    out->row = i;
    return true;
}

bool tb_catalog_plan_get(const struct tb_catalog *c, const struct tb_id *session, const struct tb_id *uid,
                         uint64_t plan, struct tb_catalog_reference_view *out)
{
    const uint32_t s = tb_catalog_session_find(c, session);
    const uint32_t v = tb_version_find(c, uid);
    if (s == NONE || v == NONE) return false;
    const uint32_t r = tb_reference_find(c, TB_REFERENCE_WORKER, v, s);
    if (r == NONE || reference_at(c, r)->source == NONE || reference_at(c, r)->plan != plan) return false;
    view_reference(c, reference_at(c, r), out);
    out->row = r;
    return true;
}

bool tb_catalog_model_at(const struct tb_catalog *c, uint32_t *cursor, struct tb_catalog_model *out)
{
    const uint32_t i = next_row(&c->models, cursor);
    if (i == NONE) return false;
    *out = model_at(c, i)->config;
    return true;
}

bool tb_catalog_run_at(const struct tb_catalog *c, uint32_t *cursor, struct tb_catalog_run *out)
{
    const uint32_t i = next_row(&c->runs, cursor);
    if (i == NONE) return false;
    *out = run_at(c, i)->info;
    return true;
}

/* ---- lag ---- */

static uint64_t lacking_bytes(const struct version *v)
{
    if (tb_version_here(v)) return 0;
    if (v->chunk_count == 0 || v->held_chunks > v->chunk_count) return v->bytes;
    /* Not bytes * share: that overflows. */
    return v->bytes / v->chunk_count * (v->chunk_count - v->held_chunks) +
           (v->held_chunks == 0 ? v->bytes % v->chunk_count : 0);
}

static uint32_t newest_whole(const struct tb_catalog *c, uint32_t model)
{
    uint32_t best = NONE;
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if (v->model != model || !tb_version_here(v)) continue;
        if (best == NONE || tb_version_older(version_at(c, best), v)) best = i;
    }
    return best;
}

/* A version that was superseded before it crossed is lacked by nobody. */
static void count_behind(const struct tb_catalog *c, tb_time_ns now, uint32_t model, uint32_t newest,
                         struct tb_catalog_lag *lag)
{
    tb_time_ns since = TB_TIME_NEVER;
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if (v->model != model || !tb_version_lives(v)) continue;
        if (newest != NONE && !tb_version_older(version_at(c, newest), v)) continue;
        lag->versions++;
        if (v->ready_at != 0) since = tb_time_min(since, v->ready_at);
    }
    if (since != TB_TIME_NEVER) lag->behind_ns = tb_time_since(since, now);
}

enum tb_status tb_catalog_lag(const struct tb_catalog *c, tb_time_ns now, const struct tb_name *model,
                              struct tb_catalog_lag *lag_out)
{
    const uint32_t m = tb_catalog_model_find(c, model);
    if (m == NONE) return TB_NOT_FOUND;
    *lag_out = (struct tb_catalog_lag){.known = false};
    const struct which *head = &model_at(c, m)->head;
    const uint32_t h = tb_id_is_zero(&head->uid) ? NONE : tb_version_find(c, &head->uid);
    if (h == NONE) return TB_OK;
    lag_out->known = true;
    lag_out->head = head->uid;
    lag_out->head_run_order = head->run_order;
    lag_out->head_number = head->number;
    lag_out->bytes = lacking_bytes(version_at(c, h));
    const uint32_t newest = newest_whole(c, m);
    if (newest != NONE) lag_out->newest = version_at(c, newest)->key.uid;
    count_behind(c, now, m, newest, lag_out);
    return TB_OK;
}
