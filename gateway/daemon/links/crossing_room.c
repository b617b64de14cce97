/* crossing_room.c - space for a version that crosses to here, once its manifests have come; and
 * the line where it has none. */
#include "gateway/daemon/daemon.h"

#include <stdio.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/arena/arena.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/arena/arena_reserve.h"
#include "gateway/catalog/crossing_answers.h"
#include "gateway/daemon/copies/copies.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/links/crossing_room.h"
#include "gateway/daemon/links/crossings.h"
#include "gateway/daemon/links/peer_rights.h"
#include "gateway/daemon/models/quota.h"

static uint64_t manifests_bytes(const struct tb_version_key *key, const struct tb_manifest *manifests)
{
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < key->shard_count; s++)
        bytes += manifests[s].bytes;
    return bytes;
}

/* The arena's answer for a version that has no place there. */
struct no_room {
    const char *why, *action;
    uint64_t needed_bytes;
    struct tb_catalog_room room;
};

/* P10: counted each time, told when something of it is another than it was. */
static void tell_no_room(struct tb_copy *copy, const struct no_room *n)
{
    struct tb_arena_budget budget;
    char text[TB_ARENA_ERROR_BYTES + 128];
    TB_ASSERT(n->why != NULL && n->action != NULL);
    tb_arena_budget(copy->d->arena, &budget);
    const int used = snprintf(text, sizeof text, "%llu %llu %llu %s", (unsigned long long)n->room.evictable,
                              (unsigned long long)n->room.heads, (unsigned long long)n->room.pinned, n->why);
    TB_ASSERT(used > 0 && (size_t)used < sizeof text);
    const struct tb_digest told = tb_digest_of(text, (size_t)used);
    copy->d->counters.arena_refused++;
    if (tb_digest_equal(&told, &copy->room_told)) return;
    copy->room_told = told;
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_ERROR, "arena.refused");
    tb_log_str(&l, "model", copy->key.model.text);
    tb_log_u64(&l, "number", copy->key.number);
    tb_log_u64(&l, "needed_bytes", n->needed_bytes);
    tb_log_u64(&l, "evictable_bytes", n->room.evictable);
    tb_log_u64(&l, "heads_bytes", n->room.heads);
    tb_log_u64(&l, "pinned_bytes", n->room.pinned);
    tb_log_u64(&l, "needed_slots", (uint64_t)copy->key.shard_count + 1);
    tb_log_u64(&l, "free_slots", budget.slots_free);
    tb_log_u64(&l, "slots", budget.slots);
    tb_log_str(&l, "why", n->why);
    tb_log_str(&l, "action", n->action);
    tb_log_end(&l);
}

/* TB_AGAIN: something is being evicted for it. */
static enum tb_status make_room(struct tb_copy *copy, struct no_room *n)
{
    const enum tb_status status = tb_copies_make_room(copy->d, n->needed_bytes, &n->room);
    if (status == TB_SITE_NOMEM) tell_no_room(copy, n);
    return status;
}

static enum tb_status reserve(struct tb_copy *copy, const struct tb_manifest *manifests, char *error)
{
    struct tb_daemon *d = copy->d;
    const uint32_t count = copy->key.shard_count;
    const struct tb_manifest **pointers = tb_calloc(count, sizeof *pointers);
    if (pointers == NULL) return TB_SITE_NOMEM;
    for (uint32_t s = 0; s < count; s++)
        pointers[s] = &manifests[s];
    const enum tb_status status =
        tb_arena_reserve(d->arena, &copy->key, pointers, count, &copy->region, error);
    tb_free(pointers);
    return status == TB_DONE_BEFORE ? TB_OK : status;
}

static void catalog_shards(struct tb_copy *copy, const struct tb_manifest *manifests)
{
    struct tb_daemon *d = copy->d;
    const tb_time_ns now = tb_clock_now();
    for (uint32_t s = 0; s < copy->key.shard_count; s++) {
        const struct tb_manifest *m = &manifests[s];
        const struct tb_catalog_shard info = {m->root, m->layout.id, m->chunk_count, m->bytes,
                                              tb_manifest_decoded_bytes(m)};
        TB_MOOT(tb_catalog_arena_shard(d->catalog, now, &copy->key.uid, s, &info));
    }
    TB_MOOT(tb_catalog_arena_reserved(d->catalog, now, &copy->key.uid));
    TB_MOOT(tb_catalog_crossing_begun(d->catalog, now, &copy->key.uid));
}

enum tb_status tb_crossing_reserve(struct tb_copy *copy, const struct tb_manifest *manifests)
{
    char error[TB_ARENA_ERROR_BYTES] = "", quota[TB_TEXT_BYTES_MAX + 1];
    struct no_room n = {.why = error, .needed_bytes = manifests_bytes(&copy->key, manifests)};
    if (copy->region == NULL && !tb_quota_room(copy->d, &copy->key, n.needed_bytes, quota)) {
        n.why = quota;
        n.action = "withdraw versions, or raise that quota";
        copy->lacks_room = true;
        copy->room_bytes = n.needed_bytes;
        tell_no_room(copy, &n);
        return TB_SITE_NOMEM;
    }
    enum tb_status status = reserve(copy, manifests, error);
    copy->lacks_room = status == TB_TOO_LARGE || status == TB_SITE_NOMEM;
    copy->room_bytes = n.needed_bytes;
    if (status == TB_TOO_LARGE) {
        n.action = "begin with a new file of more arena.bytes, or publish in fewer shards";
        tell_no_room(copy, &n);
    } else if (status == TB_SITE_NOMEM) {
        n.action = "raise arena.bytes or lower models.keep";
        status = make_room(copy, &n);
    }
    if (status != TB_OK) return status;
    if (copy->region == NULL) return TB_SITE_NOMEM;
    TB_ASSERT(tb_id_equal(&tb_arena_region_key(copy->region)->uid, &copy->key.uid));
    if (copy->landing_at == 0) copy->landing_at = tb_clock_now();
    copy->room_told = (struct tb_digest){{0}};
    catalog_shards(copy, manifests);
    tb_copy_serve(copy); /* a relay offers it before the first chunk is here */
    return TB_OK;
}

void tb_crossing_manifests(struct tb_daemon *d, uint32_t peer, const struct tb_version_key *key,
                           const struct tb_manifest *manifests)
{
    TB_ASSERT(peer < d->config->peer_count);
    struct tb_copy *copy = tb_copy_find(d, &key->uid);
    if (copy == NULL || copy->life != TB_COPY_ASKED) return;
    if (!tb_catalog_crossing_wanted(d->catalog, &key->uid)) { /* a newer one was told of meanwhile */
        tb_copy_life_step(&copy->life, TB_COPY_STOPS);
        return;
    }
    copy->key = *key;
    const enum tb_status status = tb_crossing_reserve(copy, manifests);
    if (status == TB_OK) {
        tb_copy_life_step(&copy->life, TB_COPY_BEGINS);
        tb_crossing_land(copy, peer);
        tb_crossing_land_all(copy);
        tb_log(TB_LOG_INFO, "crossing.begun", "model=%s run=%llu number=%llu from=%s bytes=%llu",
               key->model.text, (unsigned long long)key->run_order, (unsigned long long)key->number,
               tb_peer_site(d, peer), (unsigned long long)manifests_bytes(key, manifests));
    } else if (status == TB_TOO_LARGE) {
        tb_log(TB_LOG_WARN, "crossing.refused",
               "peer=%s model=%s number=%llu status=too_large action=not_asked_again", tb_peer_site(d, peer),
               key->model.text, (unsigned long long)key->number);
        tb_crossing_hopeless(copy);
    } else if (status == TB_AGAIN) {
        tb_copy_life_step(&copy->life, TB_COPY_NEEDS_ROOM);
    } else {
        tb_crossing_refused(copy, status);
    }
}
