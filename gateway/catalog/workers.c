/* workers.c - a worker's staging of a version: where others read it, how far it is, that it goes,
 * and what becomes of its plan. */
#include "gateway/catalog/workers.h"

#include "base/assert.h"
#include "gateway/catalog/rows/group_rows.h"
#include "gateway/catalog/rows/reference_rows.h"
#include "gateway/catalog/rows/session_rows.h"
#include "gateway/catalog/rows/source_links.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched_rows.h"
#include "gateway/catalog/rows/version_changes.h"
#include "gateway/catalog/rows/version_rows.h"
#include "gateway/catalog/rules/plans.h"
#include "gateway/catalog/rules/settle.h"

static enum tb_status find_worker(struct tb_catalog *c, const struct tb_id *session, const struct tb_id *uid,
                                  uint32_t *session_out, uint32_t *version_out)
{
    *session_out = tb_catalog_session_find(c, session);
    if (*session_out == NONE) return TB_PEER_LEASE;
    *version_out = tb_version_find(c, uid);
    return *version_out == NONE ? TB_NOT_FOUND : TB_OK;
}

/* It found a chunk damaged, and fetches it again: it is no whole copy until it says
 * so, and gets a source. */
static void note_damaged(struct tb_catalog *c, uint32_t r, uint32_t held_chunks)
{
    struct reference *ref = reference_at(c, r);
    ref->whole = false;
    if (held_chunks < ref->held_chunks) ref->held_chunks = held_chunks;
    tb_plan_note(c, r);
    tb_catalog_touch_version(c, ref->version);
}

/* A worker's count of chunks only grows while it stages. */
static void note_held(struct tb_catalog *c, uint32_t r, uint32_t held_chunks, bool whole)
{
    struct reference *ref = reference_at(c, r);
    TB_ASSERT(ref->kind == TB_REFERENCE_WORKER && !ref->row.dead);
    if (ref->whole && !whole) note_damaged(c, r, held_chunks);
    const bool first = ref->held_chunks == 0 && held_chunks > 0;
    if (held_chunks > ref->held_chunks) {
        ref->held_chunks = held_chunks;
        tb_version_fed(c, ref);
    }
    if (first) tb_catalog_touch_version(c, ref->version);
    if (!whole || ref->whole) return;
    ref->whole = true;
    tb_plan_forget(c, r); /* it reads no more: its source has a hand free */
    tb_table_unmark(&c->references, r, TB_CATALOG_PLAN);
    tb_table_unmark(&c->references, r, TB_CATALOG_PLAN_END);
    /* Its word of where it can be read was lost, or came before this catalog knew the version: a
     * reader that waits for that goes elsewhere (P6). */
    if (ref->export_id == 0 && ref->followers > 0) tb_plan_drop_source(c, ref->version, r);
    tb_member_progress(c, ref->owner, ref->version);
    tb_catalog_touch_version(c, ref->version);
}

enum tb_status tb_catalog_export(struct tb_catalog *c, tb_time_ns now, const struct tb_id *session,
                                 const struct tb_id *uid, uint64_t export_id, uint32_t held_chunks,
                                 bool whole)
{
    tb_catalog_enter(c, now);
    uint32_t s, i;
    const enum tb_status found = find_worker(c, session, uid, &s, &i);
    if (found != TB_OK) return found;
    const struct version *v = version_at(c, i);
    const enum tb_status ended = tb_version_status(c, v);
    if (ended != TB_OK && tb_version_state(v) != TB_VERSION_RETIRED) return ended;
    if (v->life == TB_LIFE_OPEN) return TB_NOT_FOUND;
    /* After a restart of the catalog a worker may come back with staging that no stage
     * asked for in this life. */
    uint32_t r = tb_reference_find(c, TB_REFERENCE_WORKER, i, s);
    if (r == NONE) r = tb_reference_new(c, TB_REFERENCE_WORKER, i, s);
    if (r == NONE) return tb_catalog_refuse_full(c, &c->references);
    struct reference *ref = reference_at(c, r);
    const bool moved = ref->export_id != export_id;
    ref->export_id = export_id;
    ref->reads_only = export_id == 0;
    if (ref->reads_only && ref->followers > 0) tb_plan_drop_source(c, i, r);
    if (moved && !ref->reads_only) tb_plan_tell_readers(c, i, r);
    if (moved) tb_catalog_touch_version(c, i);
    note_held(c, r, held_chunks, whole);
    return tb_catalog_settle(c, TB_OK);
}

enum tb_status tb_catalog_progress(struct tb_catalog *c, tb_time_ns now, const struct tb_catalog_progress *p)
{
    tb_catalog_enter(c, now);
    uint32_t s, i;
    const enum tb_status found = find_worker(c, &p->session, &p->uid, &s, &i);
    if (found != TB_OK) return found;
    const uint32_t r = tb_reference_find(c, TB_REFERENCE_WORKER, i, s);
    if (r == NONE) return TB_NOT_FOUND;
    struct reference *ref = reference_at(c, r);
    ref->total_chunks = p->total_chunks;
    ref->bytes_per_s = p->bytes_per_s;
    ref->transport = p->transport;
    note_held(c, r, p->held_chunks, p->whole);
    tb_plan_judge(c, r);
    return tb_catalog_settle(c, TB_OK);
}

enum tb_status tb_catalog_release(struct tb_catalog *c, tb_time_ns now, const struct tb_id *session,
                                  const struct tb_id *uid)
{
    tb_catalog_enter(c, now);
    uint32_t s, i;
    const enum tb_status found = find_worker(c, session, uid, &s, &i);
    if (found == TB_PEER_LEASE) return found;
    const uint32_t r = found != TB_OK ? NONE : tb_reference_find(c, TB_REFERENCE_WORKER, i, s);
    if (r == NONE) return TB_DONE_BEFORE;
    tb_member_release(c, s, i);
    tb_reference_end(c, r);
    return tb_catalog_settle(c, TB_OK);
}

/* The reader that this plan is of. */
static enum tb_status find_reader(const struct tb_catalog *c, const struct tb_id *session,
                                  const struct tb_id *uid, uint64_t plan_number, uint32_t *reference_out)
{
    const uint32_t s = tb_catalog_session_find(c, session);
    if (s == NONE) return TB_PEER_LEASE;
    const uint32_t i = tb_version_find(c, uid);
    const uint32_t r = i == NONE ? NONE : tb_reference_find(c, TB_REFERENCE_WORKER, i, s);
    if (r == NONE) return TB_NOT_FOUND;
    const struct reference *ref = reference_at(c, r);
    if (ref->plan != plan_number || ref->source == NONE) return TB_DONE_BEFORE;
    *reference_out = r;
    return TB_OK;
}

enum tb_status tb_catalog_plan_told(struct tb_catalog *c, tb_time_ns now, const struct tb_id *session,
                                    const struct tb_id *uid, uint64_t plan_number)
{
    tb_catalog_enter(c, now);
    uint32_t r;
    const enum tb_status found = find_reader(c, session, uid, plan_number, &r);
    if (found != TB_OK) return found;
    const uint32_t source = reference_at(c, r)->source;
    const struct version *v = version_at(c, reference_at(c, r)->version);
    if (v->yielding_count == 0) return TB_OK;
    EACH_WORKER(c, v, other)
    {
        const struct reference *o = reference_at(c, other);
        if (o->reading == TB_READING_YIELDS && o->source == source && other != r)
            tb_plan_yield_place(c, other);
    }
    return tb_catalog_settle(c, TB_OK);
}

enum tb_status tb_catalog_hop_lost(struct tb_catalog *c, tb_time_ns now, const struct tb_id *session,
                                   const struct tb_id *uid, uint64_t plan_number)
{
    tb_catalog_enter(c, now);
    uint32_t r;
    const enum tb_status found = find_reader(c, session, uid, plan_number, &r);
    if (found != TB_OK) return found;
    tb_plan_source_failed(c, r);
    return tb_catalog_settle(c, TB_OK);
}

void tb_catalog_version_unproven(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid, bool unproven)
{
    uint32_t i;
    struct version *v = tb_version_enter(c, now, uid, &i);
    if (v == NULL || v->unproven == unproven) return;
    v->unproven = unproven;
    if (unproven) tb_plan_unproven(c, i);
    tb_catalog_touch_version(c, i);
    (void)tb_catalog_settle(c, TB_OK);
}
