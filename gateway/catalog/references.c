/* references.c - who holds what: the gateway itself, ranks that sealed, workers that stage, other sites.
 *
 * A reference that ends leaves its version's list at once; its row stays until its todos are told. */
#include "gateway/catalog/tables.h"

#include "base/assert.h"

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
    ref->slow = ref->kind == TB_REFERENCE_WORKER && s->slow;
    ref->silent = s->silent;
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

/* P7: sites that peers speak of, and versions that they make up, are no reason to refuse a rank or a worker; nor the other way round. */
static uint32_t *count_of(struct tb_catalog *c, int kind)
{
    return kind == TB_REFERENCE_SITE ? &c->site_references : &c->worker_references;
}

uint32_t tb_reference_new(struct tb_catalog *c, int kind, uint32_t version, uint32_t owner)
{
    const uint32_t most = kind == TB_REFERENCE_SITE ? c->limits.site_references : c->limits.references;
    const uint32_t i = *count_of(c, kind) < most ? tb_table_new(&c->references) : NONE;
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

/* Whoever walks the list may stand on it: `next` stays. */
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

static void set_landing(struct tb_catalog *c, struct reference *ref, bool landing)
{
    ref->landing = landing;
    if (ref->kind == TB_REFERENCE_WORKER)
        version_at(c, ref->version)->landing_workers += landing ? 1 : UINT32_MAX;
}

void tb_reference_end(struct tb_catalog *c, uint32_t reference)
{
    struct reference *ref = reference_at(c, reference);
    const uint32_t version = ref->version;
    if (ref->landing) {
        set_landing(c, ref, false);
        if (tb_row_marked(&ref->row, TB_CATALOG_LAND_FROM))
            tb_row_unmark(&c->references, reference, TB_CATALOG_LAND_FROM);
        else
            tb_row_mark(&c->references, reference, TB_CATALOG_LAND_END);
    }
    tb_plan_forget(c, reference);
    tb_row_unmark(&c->references, reference, TB_CATALOG_PLAN);
    tb_row_unmark(&c->references, reference, TB_CATALOG_PLAN_END);
    unlink_reference(c, reference);
    /* A rank in place is a source, too: nobody avoids it any more, as its row will be another's. */
    if (ref->kind == TB_REFERENCE_WORKER || ref->in_place) tb_plan_drop_source(c, version, reference);
    ref->row.dead = true;
    --*count_of(c, ref->kind);
    tb_plan_note(c, reference);
    if (ref->row.todos == 0 && ref->row.held == 0) tb_table_free(&c->references, reference);
    tb_catalog_touch_version(c, version);
}

void tb_reference_lost(struct tb_catalog *c, uint32_t reference)
{
    const struct reference *ref = reference_at(c, reference);
    struct version *v = version_at(c, ref->version);
    if (ref->kind == TB_REFERENCE_PUBLISHER && v->state == TB_VERSION_OPEN && !v->rank_lost) {
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

bool tb_shard_published(const struct tb_catalog *c, const struct version *v, uint32_t shard)
{
    EACH_HOLDER(c, v, r)
    {
        const struct reference *ref = reference_at(c, r);
        if (ref->kind == TB_REFERENCE_PUBLISHER && ref->shard == shard) return true;
    }
    return false;
}

bool tb_shard_whole(const struct version *v, uint32_t shard)
{
    const struct shard *s = &v->shards[shard];
    return v->reserved && s->known && s->held_chunks == s->info.chunk_count;
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
        tb_row_mark(&c->references, r, TB_CATALOG_TELL);
    }
}

/* ---- whom the gateway may read ---- */

/* Workers are read only for what no rank holds: while ranks are there, workers have better to do. */
static bool lacks_unpublished_shard(const struct tb_catalog *c, const struct version *v)
{
    for (uint32_t s = 0; s < v->key.shard_count; s++)
        if (!tb_shard_whole(v, s) && !tb_shard_published(c, v, s)) return true;
    return false;
}

static bool landing_possible(const struct version *v)
{
    const bool coming = v->state == TB_VERSION_OPEN || tb_version_lives(v);
    return coming && v->reserved && !v->whole && !v->evicting;
}

static bool rank_wanted(const struct version *v, const struct reference *ref)
{
    return landing_possible(v) && ref->kind == TB_REFERENCE_PUBLISHER && ref->shard != NONE &&
           !tb_shard_whole(v, ref->shard);
}

/* Holds a part of what was here, and serves it. */
static bool serves_a_part(const struct reference *ref)
{
    return !ref->whole && ref->held_chunks > 0 && ref->export_id != 0;
}

static bool whole_worker_serves(const struct tb_catalog *c, const struct version *v)
{
    EACH_WORKER(c, v, r) if (reference_at(c, r)->whole && reference_at(c, r)->export_id != 0) return true;
    return false;
}

static void tell_landing(struct tb_catalog *c, uint32_t r, bool wanted)
{
    struct reference *ref = reference_at(c, r);
    if (wanted == ref->landing) return;
    set_landing(c, ref, wanted);
    const bool untold = tb_row_marked(&ref->row, TB_CATALOG_LAND_FROM);
    tb_row_unmark(&c->references, r, wanted ? TB_CATALOG_LAND_END : TB_CATALOG_LAND_FROM);
    if (wanted)
        tb_row_mark(&c->references, r, TB_CATALOG_LAND_FROM);
    else if (!untold)
        tb_row_mark(&c->references, r, TB_CATALOG_LAND_END);
}

void tb_landing_settle(struct tb_catalog *c, uint32_t version)
{
    struct version *v = version_at(c, version);
    if (!model_at(c, v->model)->config.is_home) return;
    EACH_HOLDER(c, v, r) tell_landing(c, r, rank_wanted(v, reference_at(c, r)));
    const bool from_workers = tb_version_lives(v) && landing_possible(v) && lacks_unpublished_shard(c, v);
    if (!from_workers && v->landing_workers == 0) return;
    const bool from_whole = from_workers && whole_worker_serves(c, v);
    const bool from_parts = from_workers && !from_whole && v->had_more;
    uint32_t parts = 0;
    EACH_WORKER(c, v, r)
    {
        const struct reference *ref = reference_at(c, r);
        const bool part = from_parts && serves_a_part(ref) && !ref->was_asked && parts < LANDING_PARTS_MAX;
        parts += part;
        tell_landing(c, r, part || (from_whole && ref->whole && ref->export_id != 0));
    }
}

bool tb_landing_ask_others(struct tb_catalog *c, uint32_t version)
{
    /* Without room in the arena nobody is ever asked: who was not asked yet is nothing to wait for (P6). */
    if (!landing_possible(version_at(c, version))) return false;
    bool more = false;
    EACH_WORKER(c, version_at(c, version), r)
    {
        struct reference *ref = reference_at(c, r);
        if (ref->landing) ref->was_asked = true;
        more = more || (serves_a_part(ref) && !ref->was_asked);
    }
    return more;
}

/* ---- the gateway's own copy ---- */

static void refresh_whole(struct tb_catalog *c, uint32_t version)
{
    struct version *v = version_at(c, version);
    const bool whole =
        v->reserved && v->known_count == v->key.shard_count && v->held_chunks == v->chunk_count;
    if (whole == v->whole) return;
    v->whole = whole;
    if (whole && v->whole_at == 0) v->whole_at = c->now;
}

static bool shard_plausible(const struct tb_catalog_shard *info)
{
    return info->bytes <= TB_SHARD_BYTES_MAX && info->chunk_count <= TB_CHUNKS_MAX;
}

static void learn_shard(struct version *v, uint32_t shard, const struct tb_catalog_shard *info)
{
    v->shards[shard].info = *info;
    v->shards[shard].known = true;
    v->known_count++;
    v->bytes += info->bytes;
    v->chunk_count += info->chunk_count;
}

enum tb_status tb_catalog_arena_shard(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid,
                                      uint32_t shard, const struct tb_catalog_shard *info)
{
    tb_catalog_enter(c, now);
    const uint32_t i = tb_version_find(c, uid);
    if (i == NONE) return TB_NOT_FOUND;
    struct version *v = version_at(c, i);
    if (shard >= v->key.shard_count || !shard_plausible(info)) return TB_BAD_ARGUMENT;
    if (v->shards[shard].known)
        return tb_digest_equal(&v->shards[shard].info.root, &info->root) ? TB_DONE_BEFORE : TB_CONFLICT;
    if (info->chunk_count > UINT32_MAX - v->chunk_count) return TB_TOO_LARGE;
    /* What a restored row remembered of its size gives way to what its shards say. */
    if (v->known_count == 0) v->bytes = 0;
    learn_shard(v, shard, info);
    refresh_whole(c, i);
    tb_catalog_touch_version(c, i);
    return tb_catalog_settle(c, TB_OK);
}

enum tb_status tb_catalog_arena_reserved(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid)
{
    tb_catalog_enter(c, now);
    const uint32_t i = tb_version_find(c, uid);
    if (i == NONE) return TB_NOT_FOUND;
    struct version *v = version_at(c, i);
    if (v->reserved) return TB_DONE_BEFORE;
    v->reserved = true;
    refresh_whole(c, i);
    if (tb_version_status(c, v) != TB_OK) tb_catalog_evict(c, i); /* it ended while the region was made */
    tb_catalog_touch_version(c, i);
    return tb_catalog_settle(c, TB_OK);
}

static void set_shard_held(struct tb_catalog *c, uint32_t version, uint32_t shard, uint32_t held_chunks)
{
    struct version *v = version_at(c, version);
    struct shard *s = &v->shards[shard];
    const bool was_whole = tb_shard_whole(v, shard);
    v->held_chunks += held_chunks - s->held_chunks;
    s->held_chunks = held_chunks;
    refresh_whole(c, version);
    if (tb_shard_whole(v, shard) != was_whole) tb_catalog_touch_version(c, version);
}

static enum tb_status find_shard(const struct tb_catalog *c, const struct tb_id *uid, uint32_t shard,
                                 uint32_t held_chunks, uint32_t *version_out)
{
    const uint32_t i = tb_version_find(c, uid);
    if (i == NONE) return TB_NOT_FOUND;
    const struct version *v = version_at(c, i);
    if (shard >= v->key.shard_count) return TB_BAD_ARGUMENT;
    if (!v->reserved || !v->shards[shard].known) return TB_BAD_STATE;
    if (held_chunks > v->shards[shard].info.chunk_count) return TB_BAD_ARGUMENT;
    *version_out = i;
    return TB_OK;
}

enum tb_status tb_catalog_arena_progress(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid,
                                         uint32_t shard, uint32_t held_chunks)
{
    tb_catalog_enter(c, now);
    uint32_t i;
    const enum tb_status found = find_shard(c, uid, shard, held_chunks, &i);
    if (found != TB_OK) return found;
    if (held_chunks <= version_at(c, i)->shards[shard].held_chunks) return TB_OK;
    version_at(c, i)->moved_at = version_at(c, i)->fed_at = c->now;
    set_shard_held(c, i, shard, held_chunks);
    tb_plan_arrival(c, i);
    if (tb_version_here(version_at(c, i))) tb_groups_touch(c, version_at(c, i)->model);
    return tb_catalog_settle(c, TB_OK);
}

enum tb_status tb_catalog_arena_came(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid,
                                     uint64_t bytes)
{
    tb_catalog_enter(c, now);
    const uint32_t i = tb_version_find(c, uid);
    if (i == NONE) return TB_NOT_FOUND;
    struct version *v = version_at(c, i);
    if (bytes > v->came_bytes) v->came_at = c->now;
    v->came_bytes = bytes;
    return TB_OK;
}

enum tb_status tb_catalog_arena_shrunk(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid,
                                       uint32_t shard, uint32_t held_chunks)
{
    tb_catalog_enter(c, now);
    uint32_t i;
    const enum tb_status found = find_shard(c, uid, shard, held_chunks, &i);
    if (found != TB_OK) return found;
    struct version *v = version_at(c, i);
    if (tb_shard_whole(v, shard) && held_chunks == v->shards[shard].held_chunks) return TB_DONE_BEFORE;
    if (held_chunks < v->shards[shard].held_chunks) set_shard_held(c, i, shard, held_chunks);
    v->cross_begun = false; /* it has to be asked for again */
    v->had_more = true;
    EACH_WORKER(c, version_at(c, i), r) reference_at(c, r)->was_asked = false;
    tb_catalog_touch_version(c, i);
    return tb_catalog_settle(c, TB_OK);
}

/* The memory is gone; what the shards are stays known. */
void tb_version_forget_shards(struct version *v)
{
    for (uint32_t s = 0; s < v->key.shard_count; s++)
        v->shards[s].held_chunks = 0;
    v->held_chunks = 0;
    v->reserved = false;
    v->whole = false;
    v->evicting = false;
    v->cross_begun = false;
    v->cross_asked = false;
    v->arriving_since = 0;
}
