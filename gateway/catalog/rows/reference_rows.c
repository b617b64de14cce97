/* reference_rows.c - references of ranks, workers and sites, in the lists of their version and
 * their owner. */
#include "gateway/catalog/rows/reference_rows.h"

#include "base/assert.h"
#include "gateway/catalog/rows/session_rows.h"
#include "gateway/catalog/rows/site_rows.h"
#include "gateway/catalog/rows/source_links.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched_rows.h"
#include "gateway/catalog/rows/version_rows.h"

static void name_reference(struct tb_catalog *c, struct reference *ref)
{
    if (ref->kind == TB_REFERENCE_SITE) {
        ref->name = site_at(c, ref->owner)->name;
        return;
    }
    const struct session *s = session_at(c, ref->owner);
    ref->session_id = s->info.id;
    ref->name = s->info.name;
    ref->host = s->host;
    ref->rack = s->rack;
    ref->spot = s->info.spot;
    ref->nic_bytes_per_s = s->info.nic_bytes_per_s;
    ref->silent = s->silent;
    if (ref->kind == TB_REFERENCE_WORKER && s->slow) tb_reference_standing_moves(ref, TB_STANDING_IS_SLOW);
}

static uint32_t *list_of(struct version *v, const struct reference *ref)
{
    return ref->kind == TB_REFERENCE_WORKER ? &v->workers : &v->holders;
}

static uint32_t *owner_list(const struct tb_catalog *c, const struct reference *ref)
{
    return ref->kind == TB_REFERENCE_SITE ? &site_at(c, ref->owner)->references
                                          : &session_at(c, ref->owner)->references;
}

/* P7: sites that peers speak of, and versions that they make up, are no reason to refuse a rank or
 * a worker; nor the other way round. */
static uint32_t *count_of(struct tb_catalog *c, int kind)
{
    return kind == TB_REFERENCE_SITE ? &c->site_references : &c->worker_references;
}

void tb_reference_sight_moves(struct reference *ref, enum tb_sight_event event)
{
    ref->sight = tb_sight_after(ref->sight, event);
    TB_ASSERT(ref->sight != TB_SIGHT_END);
}

void tb_reference_standing_moves(struct reference *ref, enum tb_standing_event event)
{
    TB_ASSERT(ref->kind == TB_REFERENCE_WORKER);
    ref->standing = tb_standing_after(ref->standing, event);
    TB_ASSERT(ref->standing != TB_STANDING_END);
}

bool tb_site_has_its_share(const struct tb_catalog *c, uint32_t site)
{
    const uint32_t most = c->limits.site_references;
    if (most < TB_SHARE_LEAST || c->site_references < most / 4) return false;
    uint32_t count = 0;
    for (uint32_t r = site_at(c, site)->references; r != NONE; r = reference_at(c, r)->owner_next)
        count++;
    return count >= most / 4;
}

static uint32_t reference_row(struct tb_catalog *c, int kind, uint32_t owner)
{
    const bool site = kind == TB_REFERENCE_SITE;
    const uint32_t most = site ? c->limits.site_references : c->limits.references;
    if (*count_of(c, kind) >= most) return NONE;
    if (!site) return tb_table_new_for(c, &c->references, owner);
    return tb_site_has_its_share(c, owner) ? NONE : tb_table_new(&c->references);
}

uint32_t tb_reference_new(struct tb_catalog *c, int kind, uint32_t version, uint32_t owner)
{
    TB_ASSERT(kind == TB_REFERENCE_PUBLISHER || tb_reference_find(c, kind, version, owner) == NONE);
    const uint32_t i = reference_row(c, kind, owner);
    if (i == NONE) return NONE;
    ++*count_of(c, kind);
    struct reference *ref = reference_at(c, i);
    struct version *v = version_at(c, version);
    ref->kind = kind;
    ref->version = version;
    ref->uid = v->key.uid;
    ref->owner = owner;
    name_reference(c, ref);
    ref->source = NONE;
    ref->shard = NONE;
    ref->since = c->now;
    if (kind == TB_REFERENCE_WORKER) tb_plan_begins(c, version);
    uint32_t *list = list_of(v, ref);
    ref->next = *list;
    ref->previous = NONE;
    if (*list != NONE) reference_at(c, *list)->previous = i;
    *list = i;
    ref->owner_next = *owner_list(c, ref);
    *owner_list(c, ref) = i;
    tb_plan_note(c, i);
    return i;
}

/* A caller that walks the list may stand on this reference: `next` stays. */
static void unlink_reference(struct tb_catalog *c, uint32_t reference)
{
    const struct reference *ref = reference_at(c, reference);
    uint32_t *first = list_of(version_at(c, ref->version), ref);
    *(ref->previous == NONE ? first : &reference_at(c, ref->previous)->next) = ref->next;
    if (ref->next != NONE) reference_at(c, ref->next)->previous = ref->previous;
    uint32_t *at = owner_list(c, ref);
    while (*at != reference) {
        TB_ASSERT(*at != NONE);
        at = &reference_at(c, *at)->owner_next;
    }
    *at = ref->owner_next;
}

void tb_reference_set_landing(struct tb_catalog *c, struct reference *ref, bool landing)
{
    TB_ASSERT(ref->landing != landing); /* else landing_workers counts it twice */
    ref->landing = landing;
    if (ref->kind == TB_REFERENCE_WORKER)
        version_at(c, ref->version)->landing_workers += landing ? 1 : UINT32_MAX;
}

void tb_reference_end(struct tb_catalog *c, uint32_t reference)
{
    struct reference *ref = reference_at(c, reference);
    const uint32_t version = ref->version;
    TB_ASSERT(ref->row.live && !ref->row.dead);
    if (ref->landing) {
        tb_reference_set_landing(c, ref, false);
        if (tb_table_marked(&ref->row, TB_CATALOG_LAND_FROM))
            tb_table_unmark(&c->references, reference, TB_CATALOG_LAND_FROM);
        else
            tb_table_mark(&c->references, reference, TB_CATALOG_LAND_END);
    }
    tb_plan_forget(c, reference);
    tb_table_unmark(&c->references, reference, TB_CATALOG_PLAN);
    tb_table_unmark(&c->references, reference, TB_CATALOG_PLAN_END);
    unlink_reference(c, reference);
    /* A rank in place is a source, too: nobody avoids it any more, as its row will be another's. */
    if (ref->kind == TB_REFERENCE_WORKER || ref->in_place) tb_plan_drop_source(c, version, reference);
    TB_ASSERT(ref->followers == 0 && ref->source == NONE);
    ref->row.dead = true;
    TB_ASSERT(*count_of(c, ref->kind) > 0);
    --*count_of(c, ref->kind);
    tb_plan_note(c, reference);
    if (ref->row.todos == 0 && ref->row.held == 0) tb_table_free(&c->references, reference);
    tb_catalog_touch_version(c, version);
}

void tb_reference_lost(struct tb_catalog *c, uint32_t reference)
{
    const struct reference *ref = reference_at(c, reference);
    struct version *v = version_at(c, ref->version);
    TB_ASSERT(ref->kind != TB_REFERENCE_SITE); /* no site takes its bytes along */
    if (ref->kind == TB_REFERENCE_PUBLISHER && v->life == TB_LIFE_OPEN && !v->rank_lost) {
        v->rank_lost = true;
        v->blamed = ref->session_id;
        v->blamed_name = ref->name;
        v->blamed_shard = ref->shard;
    }
    tb_reference_end(c, reference);
}

uint32_t tb_reference_find(const struct tb_catalog *c, int kind, uint32_t version, uint32_t owner)
{
    /* Each request of each worker asks: an owner has few, a version may have thousands. */
    uint32_t r = kind == TB_REFERENCE_SITE ? site_at(c, owner)->references : session_at(c, owner)->references;
    for (; r != NONE; r = reference_at(c, r)->owner_next) {
        const struct reference *ref = reference_at(c, r);
        if (ref->kind == kind && ref->version == version) return r;
    }
    return NONE;
}

void tb_references_tell(struct tb_catalog *c, uint32_t version, enum tb_status status, bool workers_too)
{
    const uint64_t stamp = ++c->stamps;
    EACH_REFERENCE(c, version_at(c, version), r)
    {
        struct reference *ref = reference_at(c, r);
        if (ref->kind == TB_REFERENCE_SITE || (ref->kind == TB_REFERENCE_WORKER && !workers_too)) continue;
        struct session *s = session_at(c, ref->owner);
        if (s->stamp == stamp) continue;
        s->stamp = stamp;
        ref->tell = status;
        tb_table_mark(&c->references, r, TB_CATALOG_TELL);
    }
}
