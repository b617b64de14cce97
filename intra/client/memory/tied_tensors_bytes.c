/* tied_tensors_bytes.c - a version has the same bytes for tensors that share a memory, or it cannot
 * be written there: what a subscription checks before it begins, before its registration moves, and
 * of each version that it has staged. */
#include "intra/client/memory/tied_tensors_bytes.h"

#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "intra/client/follow/staged_use.h"
#include "intra/client/follow/staging.h"
#include "intra/client/follow/staging_match.h"
#include "intra/client/follow/subscription.h"
#include "intra/client/memory/registration.h"
#include "intra/client/session/session.h"

/* ---- registrations ---- */

static struct tb_tied_list list_of(const struct tb_registration *r)
{
    return (struct tb_tied_list){r->wants, r->want_memory, r->want_count};
}

static int no_overlap(const struct tb_registration *r, const struct tb_tied *tied)
{
    const uint32_t a = tied->overlap[0], b = tied->overlap[1];
    if (a == TB_TIED_NONE) return TB_OK;
    return tb_fail(TB_BAD_ARGUMENT,
                   "tensors \"%.200s\" and \"%.200s\" share a part of their memory, so no version can be "
                   "written to both: "
                   "give them memory of their own, or exactly the same",
                   r->wants[a].name, r->wants[b].name);
}

static int no_meeting(const struct tb_registration *first, const struct tb_registration *second)
{
    uint32_t meet[2];
    const struct tb_tied_list a = list_of(first), b = list_of(second);
    if (tb_tied_meet(&a, &b, meet) != TB_OK)
        return tb_fail(TB_SITE_NOMEM, "no memory to compare where %u tensors stand", first->want_count);
    if (meet[0] == TB_TIED_NONE) return TB_OK;
    return tb_fail(
        TB_BAD_ARGUMENT,
        "TB_UPDATE_SWITCH: \"%.200s\" of the registration and \"%.200s\" of the second stand in the same "
        "memory: a version would be written to the buffers in use",
        first->wants[meet[0]].name, second->wants[meet[1]].name);
}

int tb_tied_may_subscribe(const struct tb_registration *first, const struct tb_registration *second)
{
    TB_ASSERT_LOCKED(first->session);
    int status = no_overlap(first, &first->tied);
    if (second == NULL) return status;
    if (status == TB_OK) status = no_overlap(second, &second->tied);
    return status == TB_OK ? no_meeting(first, second) : status;
}

int tb_tied_may_move(const struct tb_session *s, const struct tb_registration *r)
{
    TB_ASSERT_LOCKED(s);
    struct tb_tied tied;
    const struct tb_tied_list list = list_of(r);
    if (r->subscriptions == 0) return TB_OK;
    if (tb_tied_find(&list, &tied) != TB_OK)
        return tb_fail(TB_SITE_NOMEM, "no memory to compare where %u tensors stand", r->want_count);
    int status = no_overlap(r, &tied);
    if (status == TB_OK && !tb_tied_equal(&tied, &r->tied, r->want_count))
        status = tb_fail(TB_BAD_ARGUMENT,
                         "a subscription uses the registration: tensors that shared one memory have to share "
                         "one again, and no others may");
    tb_tied_free(&tied);
    for (const struct tb_subscription *sub = s->subscriptions; sub != NULL && status == TB_OK;
         sub = sub->next)
        if (sub->second != NULL && (sub->registration == r || sub->second == r))
            status = no_meeting(sub->registration, sub->second);
    return status;
}

/* ---- a version, by its digests ---- */

/* The chunk that begins at `offset`; chunk_count: none does. */
static uint32_t chunk_at(const struct tb_manifest *m, uint64_t offset)
{
    uint32_t low = 0, high = m->chunk_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (m->chunks[middle].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low < m->chunk_count && m->chunks[low].offset == offset ? low : m->chunk_count;
}

struct placed {
    const struct tb_manifest *manifest;
    const struct tb_tensor *tensor;
};

static enum tb_tied_said compare_digests(struct placed a, struct placed b)
{
    uint32_t i = chunk_at(a.manifest, a.tensor->offset), k = chunk_at(b.manifest, b.tensor->offset);
    bool same = true;
    for (uint64_t at = 0; at < a.tensor->bytes; i++, k++) {
        if (i >= a.manifest->chunk_count || k >= b.manifest->chunk_count) return TB_TIED_UNSAID;
        const uint64_t bytes = a.manifest->chunks[i].bytes;
        if (b.manifest->chunks[k].bytes != bytes || bytes > a.tensor->bytes - at) return TB_TIED_UNSAID;
        same = same && tb_digest_equal(&a.manifest->digests[i], &b.manifest->digests[k]);
        at += bytes;
    }
    return same ? TB_TIED_SAME : TB_TIED_DIFFER;
}

enum tb_tied_said tb_tied_by_digests(const struct tb_staging *st, const struct tb_registration *r, uint32_t i)
{
    uint32_t shards[2];
    struct placed p[2];
    const uint32_t wants[2] = {r->tied.first_of[i], i};
    for (int n = 0; n < 2; n++) {
        if (r->slices != NULL) return TB_TIED_UNSAID;
        p[n].tensor = tb_staging_tensor(st, &r->wants[wants[n]], &shards[n]);
        if (p[n].tensor == NULL) return TB_TIED_UNSAID; /* it is in boxes there */
        p[n].manifest = &st->shards[shards[n]].manifest;
    }
    return compare_digests(p[0], p[1]);
}

/* ---- a version, by its bytes ---- */

struct gathering {
    const struct tb_staged_use *use;
    const struct tb_registration *r;
};

static uint32_t first_copy_of(const struct tb_box_copies *copies, uint32_t want)
{
    uint32_t low = 0, high = copies->count; /* they are in the order of what is wanted */
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (copies->list[middle].want < want)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* From a staging in memory of the host, or of the registration's GPU. */
static enum tb_status move_rows(const struct gathering *g, const struct tb_box_copy *copy, uint8_t *room)
{
    const struct tb_place *place = &g->use->staging->shards[copy->shard].place;
    uint8_t *from = place->bytes + copy->from;
    if (place->far != NULL) {
        const struct tb_gpu_rows rows = {.row = {room + copy->to, from, copy->run},
                                         .rows = copy->rows,
                                         .to_stride = copy->to_stride,
                                         .from_stride = copy->from_stride};
        return tb_gpu_move(g->r->gpu, &rows, 1);
    }
    for (uint64_t row = 0; row < copy->rows; row++)
        memcpy(room + copy->to + row * copy->to_stride, from + row * copy->from_stride, copy->run);
    return TB_OK;
}

static enum tb_status gather(const struct gathering *g, uint32_t want, uint8_t *room)
{
    const struct tb_box_copies *copies = &g->use->copies;
    enum tb_status status = TB_OK;
    for (uint32_t i = first_copy_of(copies, want);
         status == TB_OK && i < copies->count && copies->list[i].want == want; i++)
        status = move_rows(g, &copies->list[i], room);
    return status;
}

static enum tb_status gather_both(const struct gathering *g, uint32_t i, uint8_t *const room[2])
{
    if (room[0] == NULL || room[1] == NULL) return TB_SITE_NOMEM;
    const enum tb_status status = gather(g, g->r->tied.first_of[i], room[0]);
    return status == TB_OK ? gather(g, i, room[1]) : status;
}

/* TB_CONFLICT: they differ. */
static enum tb_status compare_bytes(const struct gathering *g, uint32_t i)
{
    const uint64_t bytes = g->r->wants[i].bytes;
    uint8_t *room[2] = {tb_malloc(bytes + 1), tb_malloc(bytes + 1)};
    enum tb_status status = gather_both(g, i, room);
    if (status == TB_OK && memcmp(room[0], room[1], bytes) != 0) status = TB_CONFLICT;
    tb_free(room[0]);
    tb_free(room[1]);
    return status;
}

/* Of a patch the bytes are nowhere: what its digests do not say is seen when they are in the
 * buffers. */
static enum tb_status compare(const struct gathering *g, uint32_t i)
{
    const enum tb_tied_said said = tb_tied_by_digests(g->use->staging, g->r, i);
    if (said != TB_TIED_UNSAID) return said == TB_TIED_SAME ? TB_OK : TB_CONFLICT;
    return g->use->staging->patch != NULL ? TB_OK : compare_bytes(g, i);
}

static int compare_all(const struct tb_staged_use *use, const struct tb_registration *r)
{
    const struct gathering g = {use, r};
    const unsigned long long number = use->staging->key.number;
    for (uint32_t i = 0; r != NULL && r->tied.count > 0 && i < r->want_count; i++) {
        if (!tb_tied_has(&r->tied, i)) continue;
        const enum tb_status status = compare(&g, i);
        if (status == TB_CONFLICT)
            return tb_fail(TB_LAYOUT_MISMATCH,
                           "tensors \"%.200s\" and \"%.200s\" are registered in one memory, and version %llu "
                           "has different bytes "
                           "for them",
                           r->wants[r->tied.first_of[i]].name, r->wants[i].name, number);
        if (status != TB_OK) return tb_fail(status, "version %llu: tied tensors cannot be compared", number);
    }
    return TB_OK;
}

int tb_tied_check_use(struct tb_subscription *sub, struct tb_staged_use *use)
{
    TB_ASSERT_LOCKED(sub->session);
    struct tb_session *s = sub->session;
    struct tb_registration *r = sub->registration;
    if (use->tied_compared || r == NULL) return TB_OK;
    if (r->tied.count == 0 && (sub->second == NULL || sub->second->tied.count == 0)) return TB_OK;
    if (r->suspended) return TB_OK; /* its GPU is closed; tb_activate looks again */
    tb_registration_begin_pass(r);  /* a suspension waits */
    /* calls on a subscription come one at a time, so the use stays */
    tb_session_unlock(s);
    int status = compare_all(use, r);
    if (status == TB_OK) status = compare_all(use, sub->second);
    tb_session_lock(s);
    tb_registration_end_pass(r);
    use->tied_compared = status == TB_OK;
    return status;
}
