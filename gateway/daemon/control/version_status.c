/* version_status.c - how a version moves: the time it took in each stage here, what went to other
 * sites of it, when it will be whole (docs/control.md, "versions"). */
#include "gateway/catalog/views.h"
#include "gateway/daemon/daemon.h"

#include <jansson.h>
#include <string.h>

#include "base/assert.h"
#include "gateway/daemon/control/version_status.h"
#include "gateway/daemon/copies/copy_table.h"

/* From `from` to `to`; what has not ended goes on; null: it has not begun. */
static json_t *span(tb_time_ns from, tb_time_ns to)
{
    if (from == 0) return json_null();
    return json_real((double)tb_time_since(from, to != 0 ? to : tb_clock_now()) / 1e9);
}

static tb_time_ns first_of(tb_time_ns a, tb_time_ns b)
{
    return a != 0 ? a : b;
}

static bool has_readers(const struct tb_daemon *d, const struct tb_name *model)
{
    struct tb_catalog_member_view m;
    uint32_t cursor = 0;
    while (tb_catalog_member_at(d->catalog, &cursor, &m))
        if (tb_name_equal(&m.model, model)) return true;
    return false;
}

static json_t *stages(const struct tb_daemon *d, const struct tb_copy *c)
{
    const tb_time_ns whole_at = tb_copy_is_whole(c) ? c->whole_at : 0;
    /* Where nobody is to activate it, it does not wait for that. */
    const bool awaited = whole_at != 0 && (c->activated_at != 0 || has_readers(d, &c->key.model));
    return json_pack("{s:o, s:o, s:o, s:o}", "queued_s",
                     span(c->seen_at, first_of(c->asked_at, c->landing_at)), "manifests_s",
                     span(c->asked_at, c->landing_at), "landing_s", span(c->landing_at, whole_at),
                     "activating_s", span(awaited ? whole_at : 0, c->activated_at));
}

static json_t *ways(const struct tb_sent_sum *sum)
{
    json_t *o = json_object();
    bool all = o != NULL;
    for (int way = 0; way < TB_WAYS; way++)
        all = all && json_object_set_new(o, tb_choice_way_name((enum tb_choice_way)way),
                                         json_integer((json_int_t)sum->chunks[way])) == 0;
    if (all) return o;
    json_decref(o);
    return NULL;
}

static json_t *sent(const struct tb_daemon *d, const struct tb_copy *c)
{
    struct tb_sent_sum sum = {0};
    if (d->links == NULL || d->links_restarting || tb_links_sent(d->links, &c->key.uid, &sum) != TB_OK)
        return json_null();
    return json_pack("{s:I, s:I, s:I, s:o}", "raw_bytes", (json_int_t)sum.raw_bytes, "bytes",
                     (json_int_t)sum.bytes, "resent_bytes", (json_int_t)sum.again_bytes, "chunks",
                     ways(&sum));
}

/* null: no estimate */
static json_t *eta_json(const struct tb_lag_pace *pace, uint64_t left_bytes)
{
    struct tb_lag_eta eta;
    if (!tb_lag_estimate(pace, left_bytes, &eta)) return json_null();
    TB_ASSERT(eta.low_s <= eta.high_s);
    return json_pack("[f, f]", eta.low_s, eta.high_s);
}

static json_t *eta(const struct tb_copy *c, uint64_t bytes)
{
    const uint64_t held = tb_copy_held_bytes(c);
    if (tb_copy_is_whole(c) || c->region == NULL || held >= bytes) return json_null();
    return eta_json(&c->pace, bytes - held);
}

bool tb_status_moves(struct tb_daemon *d, const struct tb_copy *copy, uint64_t bytes, json_t *version)
{
    bool all = json_object_set_new(version, "stages", copy != NULL ? stages(d, copy) : json_null()) == 0;
    all &= json_object_set_new(version, "sent", copy != NULL ? sent(d, copy) : json_null()) == 0;
    all &= json_object_set_new(version, "eta_s", copy != NULL ? eta(copy, bytes) : json_null()) == 0;
    return all;
}

#define RUNS_SHOWN 16 /* of a model, the newest */

static bool next_older_run(const struct tb_daemon *d, const struct tb_name *model, uint64_t below,
                           struct tb_catalog_run *out)
{
    static struct tb_catalog_run run; /* large; the main loop's alone */
    out->order = 0;
    for (uint32_t cursor = 0; tb_catalog_run_at(d->catalog, &cursor, &run);)
        if (tb_name_equal(&run.model, model) && run.order < below && run.order > out->order) *out = run;
    TB_ASSERT(out->order < below);
    return out->order != 0;
}

json_t *tb_status_runs(const struct tb_daemon *d, const struct tb_name *model)
{
    static struct tb_catalog_run run; /* likewise */
    json_t *list = json_array();
    uint64_t below = UINT64_MAX;
    for (uint32_t n = 0; list != NULL && n < RUNS_SHOWN && next_older_run(d, model, below, &run); n++) {
        json_t *o = json_pack("{s:I, s:s, s:b, s:s}", "run", (json_int_t)run.order, "opened_by",
                              run.opened_by, "fenced", run.fenced, "fenced_by", run.fenced_by);
        below = run.order;
        if (o != NULL && json_array_append_new(list, o) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}
