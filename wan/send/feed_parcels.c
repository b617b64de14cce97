/* feed_parcels.c - parcels that wait for a stream, and those that a stream took. */
#include <string.h>

#include "base/assert.h"
#include "wan/send/feed_inside.h"
#include "wan/send/outbound_parcels.h"

static struct tb_feed_parcel *ready_at(struct tb_feed *f, uint32_t i)
{
    TB_ASSERT(f->ready_first < TB_FEED_READY_MAX && i < TB_FEED_READY_MAX);
    return &f->ready[(f->ready_first + i) % TB_FEED_READY_MAX];
}

bool tb_feed_push(struct tb_feed *f, const struct tb_feed_parcel *parcel)
{
    TB_ASSERT(parcel->share != NULL && parcel->crossing != 0 && parcel->parcel.count > 0);
    uv_mutex_lock(&f->lock);
    const bool fits = f->ready_count < TB_FEED_READY_MAX;
    if (fits && parcel->again) f->ready_first = (f->ready_first + TB_FEED_READY_MAX - 1) % TB_FEED_READY_MAX;
    if (fits) *ready_at(f, parcel->again ? 0 : f->ready_count) = *parcel;
    f->ready_count += fits;
    uv_mutex_unlock(&f->lock);
    return fits;
}

uint32_t tb_feed_ready(struct tb_feed *f)
{
    uv_mutex_lock(&f->lock);
    const uint32_t count = f->ready_count;
    uv_mutex_unlock(&f->lock);
    return count;
}

static void drop(const struct tb_feed_parcel *p)
{
    if (p->base != NULL) tb_shared_places_unref(p->base);
    tb_shared_places_unref(p->share);
}

/* `c` not NULL: only what goes again and is held there by now. */
static void purge_locked(struct tb_feed *f, uint32_t crossing, const struct tb_outbound *c)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < f->ready_count; i++) {
        const struct tb_feed_parcel p = *ready_at(f, i);
        const bool over = c == NULL || (p.again && tb_outbound_left(c, &p.parcel) == 0);
        if ((crossing == 0 || p.crossing == crossing) && over)
            drop(&p);
        else
            *ready_at(f, kept++) = p;
    }
    f->ready_count = kept;
    TB_ASSERT(f->ready_count <= TB_FEED_READY_MAX);
}

void tb_feed_purge(struct tb_feed *f, uint32_t crossing)
{
    uv_mutex_lock(&f->lock);
    purge_locked(f, crossing, NULL);
    uv_mutex_unlock(&f->lock);
}

void tb_feed_purge_held(struct tb_feed *f, uint32_t crossing, const struct tb_outbound *c)
{
    uv_mutex_lock(&f->lock);
    purge_locked(f, crossing, c);
    uv_mutex_unlock(&f->lock);
}

static bool goes_again(const struct tb_feed_parcel *p, const struct tb_frame_refused *chunk)
{
    return p->again && p->crossing == chunk->crossing && p->parcel.shard == chunk->shard &&
           chunk->chunk >= p->parcel.first && chunk->chunk < p->parcel.first + p->parcel.count;
}

bool tb_feed_recall(struct tb_feed *f, const struct tb_frame_refused *refused, struct tb_parcel *parcel_out)
{
    uint32_t kept = 0;
    uv_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < f->ready_count; i++) {
        const struct tb_feed_parcel p = *ready_at(f, i);
        if (!goes_again(&p, refused)) {
            *ready_at(f, kept++) = p;
            continue;
        }
        *parcel_out = p.parcel;
        drop(&p);
    }
    const bool found = kept < f->ready_count;
    f->ready_count = kept;
    uv_mutex_unlock(&f->lock);
    return found;
}

bool tb_feed_take_back(struct tb_feed *f, uint32_t crossing, struct tb_feed_parcel *parcel_out)
{
    uint32_t kept = 0;
    bool found = false;
    TB_ASSERT(crossing != 0);
    uv_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < f->ready_count; i++) {
        const struct tb_feed_parcel p = *ready_at(f, i);
        if (found || p.crossing != crossing) {
            *ready_at(f, kept++) = p;
            continue;
        }
        found = true;
        *parcel_out = p;
        parcel_out->share = parcel_out->base = NULL;
        drop(&p);
    }
    f->ready_count = kept;
    uv_mutex_unlock(&f->lock);
    return found;
}

bool tb_feed_use(struct tb_feed *f, uint64_t slots)
{
    uv_mutex_lock(&f->lock);
    bool more = f->ready_count > 0 && (slots & ~f->slots) != 0;
    f->slots = slots;
    for (uint32_t i = 0; i < f->ready_count; i++) {
        struct tb_feed_parcel *p = ready_at(f, i);
        if (p->avoid == 0 || (slots & ~p->avoid) != 0) continue;
        p->avoid = 0;
        more = true;
    }
    uv_mutex_unlock(&f->lock);
    return more;
}

/* The first parcel that this slot may take; ready_count if there is none. Those
 * before it move up. */
static uint32_t find_for(struct tb_feed *f, uint32_t slot)
{
    TB_ASSERT(slot < TB_FEED_SLOTS_MAX);
    const uint64_t bit = UINT64_C(1) << (slot % 64);
    uint32_t i = 0;
    if ((f->slots & bit) == 0) return f->ready_count;
    while (i < f->ready_count && (ready_at(f, i)->avoid & bit) != 0)
        i++;
    return i;
}

enum tb_status tb_feed_pop(struct tb_feed *f, uint64_t session, uint32_t slot, atomic_bool *hungry,
                           struct tb_feed_parcel *out)
{
    enum tb_status status = TB_AGAIN;
    uv_mutex_lock(&f->lock);
    const uint32_t found = find_for(f, slot);
    if (f->session == session && found < f->ready_count && f->taken_count < TB_FEED_TAKEN_MAX) {
        *out = *ready_at(f, found);
        for (uint32_t i = found; i > 0; i--)
            *ready_at(f, i) = *ready_at(f, i - 1);
        f->ready_first = (f->ready_first + 1) % TB_FEED_READY_MAX;
        f->ready_count--;
        f->taken[f->taken_count++] = (struct tb_feed_taken){out->crossing, slot, out->again, out->parcel};
        TB_ASSERT(f->taken_count <= TB_FEED_TAKEN_MAX && out->share != NULL);
        status = TB_OK;
    } else {
        atomic_store_explicit(hungry, true, memory_order_relaxed);
    }
    uv_mutex_unlock(&f->lock);
    return status;
}

uint32_t tb_feed_collect_taken(struct tb_feed *f, struct tb_feed_taken *out)
{
    uv_mutex_lock(&f->lock);
    const uint32_t count = f->taken_count;
    memcpy(out, f->taken, count * sizeof *out);
    f->taken_count = 0;
    uv_mutex_unlock(&f->lock);
    return count;
}

void tb_feed_parcels_session_locked(struct tb_feed *f, uint64_t session)
{
    f->session = session;
    purge_locked(f, 0, NULL);
    f->taken_count = 0; /* of crossings that ended with their session */
}

void tb_feed_parcels_base_gone_locked(struct tb_feed *f, struct tb_shared_places *base)
{
    for (uint32_t i = 0; i < f->ready_count; i++) {
        struct tb_feed_parcel *p = ready_at(f, i);
        if (p->base != base) continue;
        p->base = NULL;
        tb_shared_places_unref(base);
    }
}

void tb_feed_parcels_check_locked(struct tb_feed *f)
{
    TB_ASSERT(f->ready_first < TB_FEED_READY_MAX && f->ready_count <= TB_FEED_READY_MAX);
    TB_ASSERT(f->taken_count <= TB_FEED_TAKEN_MAX);
    for (uint32_t i = 0; i < f->ready_count; i++) {
        const struct tb_feed_parcel *p = ready_at(f, i);
        TB_ASSERT(p->share != NULL && p->share != p->base && p->crossing != 0 && p->parcel.count > 0);
        TB_ASSERT(p->parcel.shard < p->share->shard_count);
    }
    for (uint32_t i = 0; i < f->taken_count; i++)
        TB_ASSERT(f->taken[i].slot < TB_FEED_SLOTS_MAX && f->taken[i].parcel.count > 0);
}
