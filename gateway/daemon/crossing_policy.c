/* crossing_policy.c - once a second each model's crossing is weighed against the newest version
 * that waits for it to end. The rule is a core's (gateway/catalog/crossing_abandonment.h); this
 * says how much is still to come of each, by what came so far. */
#include "base/layout/version_key.h"
#include "gateway/catalog/crossing_answers.h"
#include "gateway/catalog/views.h"
#include "gateway/config/model_rules.h"
#include "gateway/daemon/daemon.h"

#include "base/assert.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/crossing_policy.h"
#include "gateway/daemon/models/model_table.h"

#define DEFAULT_WEIGHT 10u

uint32_t tb_policy_weight(void *daemon, const struct tb_name *model)
{
    const struct tb_daemon *d = daemon;
    const struct tb_config_model *m = tb_config_model_for(d->config, model);
    return m != NULL && m->weight > 0 ? m->weight : DEFAULT_WEIGHT;
}

struct weighed {
    struct tb_catalog_version_view crossing, newest;
    bool has_crossing, has_newest;
};

static void weigh(struct tb_daemon *d, const struct tb_name *model, struct weighed *w)
{
    uint32_t cursor = 0;
    struct tb_catalog_version_view v;
    *w = (struct weighed){.has_crossing = false};
    while (tb_catalog_version_at(d->catalog, &cursor, &v)) {
        if (!tb_name_equal(&v.key.model, model) || tb_catalog_state_status(v.state) != TB_OK) continue;
        if (v.crossing && !w->has_crossing) {
            w->crossing = v;
            w->has_crossing = true;
        }
        if (w->has_newest && tb_version_key_compare(&v.key, &w->newest.key) < 0) continue;
        w->newest = v;
        w->has_newest = true;
    }
}

/* The bytes of a version as its holders announced them; those of the crossing where nobody
 * did: one size a layout. */
static uint64_t size_of(struct tb_daemon *d, const struct tb_catalog_version_view *v, uint64_t otherwise)
{
    const uint64_t announced = tb_links_announced_bytes(d->links, &v->key.uid);
    return announced != 0 ? announced : otherwise;
}

/* Wire bytes a byte of the version, by what came: in 65536ths. */
static uint64_t ratio(uint64_t wire_bytes, uint64_t held_bytes)
{
    if (held_bytes < (1u << 20) || wire_bytes == 0) return 65536;
    return (uint64_t)((double)wire_bytes / (double)held_bytes * 65536.0);
}

/* Another version crosses now: because the one before is whole, or because it was given up. */
static void begin(struct tb_daemon *d, struct tb_policy *p, const struct tb_id *uid)
{
    TB_ASSERT(!tb_id_equal(&p->uid, uid));
    const struct tb_copy *last = tb_copy_find(d, &p->uid);
    if (last != NULL && tb_copy_is_whole(last)) tb_abandon_whole(&p->abandon);
    p->uid = *uid;
    p->wire_bytes = 0;
}

static void consider(struct tb_daemon *d, struct tb_policy *p, const struct weighed *w)
{
    TB_ASSERT(w->has_crossing && w->has_newest); /* the crossing itself, if no other */
    const struct tb_copy *copy = tb_copy_find(d, &w->crossing.key.uid);
    if (copy == NULL || copy->region == NULL || tb_copy_leaves(copy)) return;
    const uint64_t held = tb_copy_held_bytes(copy), wire = tb_copy_wire_bytes(copy);
    const uint64_t scale = ratio(wire, held);
    if (!tb_id_equal(&p->uid, &w->crossing.key.uid)) begin(d, p, &w->crossing.key.uid);
    tb_abandon_came(&p->abandon, wire - p->wire_bytes);
    p->wire_bytes = wire;
    if (tb_version_key_compare(&w->newest.key, &w->crossing.key) <= 0) return;
    const struct tb_abandon_view view = {
        .left_bytes = (uint64_t)((double)(w->crossing.bytes - held) / 65536.0 * (double)scale),
        .newer_bytes =
            (uint64_t)((double)size_of(d, &w->newest, w->crossing.bytes) / 65536.0 * (double)scale)};
    const struct tb_abandon before = p->abandon;
    if (!tb_abandon_ask(&p->abandon, &view)) return;
    if (tb_catalog_crossing_abandon(d->catalog, tb_clock_now(), &w->crossing.key.uid) != TB_OK) {
        p->abandon = before; /* somebody waits for it, or the newer cannot come */
        return;
    }
    tb_log(TB_LOG_INFO, "crossing.abandoned",
           "model=%s run=%llu number=%llu left_bytes=%llu newer=%llu newer_bytes=%llu",
           w->crossing.key.model.text, (unsigned long long)w->crossing.key.run_order,
           (unsigned long long)w->crossing.key.number, (unsigned long long)view.left_bytes,
           (unsigned long long)w->newest.key.number, (unsigned long long)view.newer_bytes);
}

/* Some version of it is on its way to here: there are few, and models that rest are many. */
static bool arrives(const struct tb_daemon *d, const struct tb_name *model)
{
    for (const struct tb_copy *c = d->copies; c != NULL; c = c->next)
        if (tb_copy_is_crossing(c) && tb_name_equal(&c->key.model, model)) return true;
    return false;
}

void tb_policy_tick(struct tb_daemon *d)
{
    if (d->links == NULL || d->links_restarting) return;
    TB_EACH_MODEL(d, i)
    {
        const struct tb_config_model *m = tb_model_config(d, i);
        struct weighed w;
        if (m->every || tb_name_equal(&m->home, &d->site) || !arrives(d, tb_model_name(d, i))) continue;
        weigh(d, tb_model_name(d, i), &w);
        if (w.has_crossing) consider(d, &d->policies[i], &w);
    }
}
