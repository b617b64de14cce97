/* source_links.c - whom each worker reads from: links between references, and the load that they
 * put on a NIC. */
#include "gateway/catalog/rows/source_links.h"

#include "base/assert.h"
#include "gateway/catalog/rows/reference_rows.h"
#include "gateway/catalog/rows/session_rows.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched_rows.h"
#include "gateway/catalog/rows/version_changes.h"
#include "gateway/catalog/rows/version_rows.h"
#include "intra/planner.h"

static uint32_t *source_load(struct tb_catalog *c, uint32_t source)
{
    return source == GATEWAY ? &c->gateway_readers : &c->session_readers[reference_at(c, source)->owner];
}

static uint32_t source_host(const struct tb_catalog *c, uint32_t source)
{
    return source == GATEWAY ? 1 : session_at(c, reference_at(c, source)->owner)->host;
}

static void unload_source(struct tb_catalog *c, struct reference *ref)
{
    if (!ref->source_loads) return;
    TB_ASSERT(*source_load(c, ref->source) > 0);
    (*source_load(c, ref->source))--;
    ref->source_loads = false;
}

/* One step of its life, and the counts that go by it. A pair that there is not is our mistake. */
static void moves(struct tb_catalog *c, uint32_t reference, enum tb_reading_event event)
{
    struct reference *ref = reference_at(c, reference);
    struct version *v = version_at(c, ref->version);
    const enum tb_reading before = ref->reading;
    ref->reading = tb_reading_after(before, event);
    TB_ASSERT(ref->reading != TB_READING_END);
    if (before == ref->reading) return;
    TB_ASSERT(before != TB_READING_ASKS || v->asking_count > 0);
    TB_ASSERT(before != TB_READING_YIELDS || v->yielding_count > 0);
    if (before == TB_READING_ASKS) v->asking_count--;
    if (before == TB_READING_YIELDS) v->yielding_count--;
    if (ref->reading == TB_READING_YIELDS) v->yielding_count++;
    if (ref->reading != TB_READING_ASKS) return;
    v->asking_count++;
    v->asking_last = reference;
}

void tb_plan_yields(struct tb_catalog *c, uint32_t reference)
{
    struct reference *ref = reference_at(c, reference);
    if (ref->reading == TB_READING_YIELDS) return;
    moves(c, reference, TB_READING_GIVES_UP);
    unload_source(c, ref);
}

void tb_plan_begins(struct tb_catalog *c, uint32_t version)
{
    struct version *v = version_at(c, version);
    if (v->search == TB_VERSION_SEARCH_NONE) return;
    EACH_WORKER(c, v, r)
    {
        if (!reference_at(c, r)->whole) return;
    }
    tb_version_search_moves(v, TB_VERSION_SEARCH_BEGINS_ANEW);
    v->trials = 0;
}

bool tb_plan_wanted(const struct reference *ref)
{
    return ref->kind == TB_REFERENCE_WORKER && !ref->row.dead && !ref->whole && ref->source == NONE;
}

void tb_plan_note(struct tb_catalog *c, uint32_t reference)
{
    const bool wanted = tb_plan_wanted(reference_at(c, reference));
    moves(c, reference, wanted ? TB_READING_WANTS : TB_READING_IS_DONE);
}

void tb_plan_set_source(struct tb_catalog *c, uint32_t reference, uint32_t source)
{
    struct reference *ref = reference_at(c, reference);
    TB_ASSERT(ref->kind == TB_REFERENCE_WORKER && source != reference);
    TB_ASSERT(source >= GATEWAY || reference_at(c, source)->version == ref->version);
    unload_source(c, ref);
    TB_ASSERT(ref->source >= GATEWAY || reference_at(c, ref->source)->followers > 0);
    if (ref->source < GATEWAY) reference_at(c, ref->source)->followers--;
    ref->source = source;
    ref->source_from = ref->held_chunks;
    ref->pace = (struct tb_planner_pace){.heard = false};
    if (source == NONE) {
        tb_plan_note(c, reference);
        return;
    }
    if (source < GATEWAY) reference_at(c, source)->followers++;
    moves(c, reference, TB_READING_IS_SENT);
    if (source_host(c, source) == session_at(c, ref->owner)->host) return;
    ref->source_loads = true;
    (*source_load(c, source))++;
}

void tb_plan_forget(struct tb_catalog *c, uint32_t reference)
{
    struct reference *ref = reference_at(c, reference);
    if (ref->kind != TB_REFERENCE_WORKER) return;
    tb_plan_set_source(c, reference, NONE);
    ref->plan = 0;
}

void tb_plan_forgive(struct reference *ref, uint32_t source)
{
    uint32_t kept = 0;
    for (uint32_t a = 0; a < ref->avoided_count; a++)
        if (ref->avoided[a].source != source) ref->avoided[kept++] = ref->avoided[a];
    ref->avoided_count = kept;
}

static bool can_be_told(const struct tb_catalog *c, uint32_t source)
{
    return source == GATEWAY || (source != NONE && reference_at(c, source)->export_id != 0);
}

/* A source that has not exported yet is told to its reader when it has. */
void tb_plan_tell(struct tb_catalog *c, uint32_t reference)
{
    struct reference *ref = reference_at(c, reference);
    TB_ASSERT(ref->kind == TB_REFERENCE_WORKER && !ref->row.dead && !ref->whole);
    if (!can_be_told(c, ref->source)) return;
    ref->plan = ++c->plans;
    tb_table_unmark(&c->references, reference, TB_CATALOG_PLAN_END);
    tb_table_mark(&c->references, reference, TB_CATALOG_PLAN);
}

void tb_plan_lose_source(struct tb_catalog *c, uint32_t reference)
{
    struct reference *ref = reference_at(c, reference);
    const bool told = ref->plan != 0 && !tb_table_marked(&ref->row, TB_CATALOG_PLAN);
    tb_plan_set_source(c, reference, NONE);
    tb_table_unmark(&c->references, reference, TB_CATALOG_PLAN);
    if (told && !ref->whole) tb_table_mark(&c->references, reference, TB_CATALOG_PLAN_END);
    tb_catalog_touch_version(c, ref->version);
}

/* `source` is already out of the version's list, or is the gateway. */
void tb_plan_drop_source(struct tb_catalog *c, uint32_t version, uint32_t source)
{
    EACH_WORKER(c, version_at(c, version), r)
    {
        struct reference *ref = reference_at(c, r);
        tb_plan_forgive(ref, source);
        if (ref->source == source) tb_plan_lose_source(c, r);
    }
    TB_ASSERT(source == GATEWAY || reference_at(c, source)->followers == 0);
}

void tb_plan_tell_readers(struct tb_catalog *c, uint32_t version, uint32_t source)
{
    if (source < GATEWAY && reference_at(c, source)->followers == 0) return;
    EACH_WORKER(c, version_at(c, version), r)
    {
        const struct reference *ref = reference_at(c, r);
        if (ref->source == source && !ref->whole) tb_plan_tell(c, r);
    }
}

void tb_plan_retell(struct tb_catalog *c, uint32_t reference)
{
    const struct reference *ref = reference_at(c, reference);
    if (ref->kind != TB_REFERENCE_WORKER || ref->whole || ref->source == NONE) return;
    tb_plan_tell(c, reference);
}
