/* feed.c - small tables behind one lock. */
#include "wan/send/feed.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/fault.h"
#include "wan/send/encoded_chunks.h"

struct tb_share *tb_share_new(const struct tb_id *uid, const struct tb_place *places, uint32_t shard_count,
                              uv_async_t *wake)
{
    struct tb_share *s = tb_malloc(sizeof *s + shard_count * sizeof s->places[0]);
    if (s == NULL) return NULL;
    atomic_init(&s->refs, 1);
    atomic_init(&s->revoked, false);
    atomic_init(&s->received_bytes, 0);
    s->sent = NULL;
    s->objects = NULL;
    s->known = NULL;
    s->wake = wake;
    s->uid = *uid;
    s->shard_count = shard_count;
    memcpy(s->places, places, shard_count * sizeof s->places[0]);
    return s;
}

void tb_share_ref(struct tb_share *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}

void tb_share_unref(struct tb_share *s)
{
    uv_async_t *wake = s->wake; /* after the count is down, s may be gone */
    const bool revoked = tb_share_revoked(s);
    const unsigned before = atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel);
    TB_ASSERT(before > 1);
    if (before == 2 && revoked) uv_async_send(wake);
}

bool tb_share_revoked(const struct tb_share *s)
{
    return atomic_load_explicit(&s->revoked, memory_order_acquire);
}

void tb_share_revoke(struct tb_share *s)
{
    atomic_store_explicit(&s->revoked, true, memory_order_release);
}

bool tb_share_only_ours(struct tb_share *s)
{
    return atomic_load_explicit(&s->refs, memory_order_acquire) == 1;
}

void tb_share_free(struct tb_share *s)
{
    TB_ASSERT(tb_share_only_ours(s));
    tb_sent_free(s->sent);
    if (s->known != NULL) tb_known_unref(s->objects, s->known);
    tb_free(s);
}

static void gift_drop(struct tb_feed *f, uint32_t i)
{
    tb_share_unref(f->gifts[i].share);
    tb_free(f->gifts[i].bytes);
    f->gifts[i] = f->gifts[--f->gift_count];
}

enum tb_status tb_feed_init(struct tb_feed *f, enum tb_choice_wish wish, uint32_t cores)
{
    memset(f, 0, sizeof *f);
    f->until_bytes = UINT64_MAX;
    tb_choice_init(&f->choice, wish, cores);
    return uv_mutex_init(&f->lock) == 0 ? TB_OK : TB_SITE_NOMEM;
}

void tb_feed_fini(struct tb_feed *f)
{
    tb_feed_purge(f, 0);
    tb_feed_gifts_drop(f);
    uv_mutex_destroy(&f->lock);
}

static struct tb_feed_parcel *ready_at(struct tb_feed *f, uint32_t i)
{
    return &f->ready[(f->ready_first + i) % TB_FEED_READY_MAX];
}

bool tb_feed_push(struct tb_feed *f, const struct tb_feed_parcel *parcel)
{
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
    if (p->base != NULL) tb_share_unref(p->base);
    tb_share_unref(p->share);
}

/* `c` not NULL: only what goes again and is held there by now. */
static void purge_locked(struct tb_feed *f, uint32_t crossing, const struct tb_crossing *c)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < f->ready_count; i++) {
        const struct tb_feed_parcel p = *ready_at(f, i);
        const bool over = c == NULL || (p.again && tb_crossing_left(c, &p.parcel) == 0);
        if ((crossing == 0 || p.crossing == crossing) && over)
            drop(&p);
        else
            *ready_at(f, kept++) = p;
    }
    f->ready_count = kept;
}

void tb_feed_purge(struct tb_feed *f, uint32_t crossing)
{
    uv_mutex_lock(&f->lock);
    purge_locked(f, crossing, NULL);
    uv_mutex_unlock(&f->lock);
}

void tb_feed_purge_held(struct tb_feed *f, uint32_t crossing, const struct tb_crossing *c)
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

void tb_feed_session(struct tb_feed *f, uint64_t session, uint32_t protocol)
{
    uv_mutex_lock(&f->lock);
    f->session = session;
    f->choice.protocol = protocol;
    purge_locked(f, 0, NULL);
    f->taken_count = 0; /* of crossings that ended with their session */
    uv_mutex_unlock(&f->lock);
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

uint32_t tb_feed_collect_notes(struct tb_feed *f, struct tb_note *out)
{
    uv_mutex_lock(&f->lock);
    const uint32_t count = f->note_count;
    memcpy(out, f->notes, count * sizeof *out);
    f->note_count = 0;
    uv_mutex_unlock(&f->lock);
    return count;
}

uint32_t tb_feed_expect(struct tb_feed *f)
{
    uint32_t crossing = 0;
    uv_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < TB_FEED_EXPECTED_MAX && crossing == 0; i++)
        if (f->expected[i] == 0) f->expected[i] = crossing = ++f->issued;
    uv_mutex_unlock(&f->lock);
    return crossing;
}

static void unexpect_locked(struct tb_feed *f, uint32_t crossing)
{
    for (uint32_t i = 0; i < TB_FEED_EXPECTED_MAX; i++)
        if (crossing == 0 || f->expected[i] == crossing) f->expected[i] = 0;
}

void tb_feed_unexpect(struct tb_feed *f, uint32_t crossing)
{
    uv_mutex_lock(&f->lock);
    unexpect_locked(f, crossing);
    uv_mutex_unlock(&f->lock);
}

uint32_t tb_feed_landing_add(struct tb_feed *f, uint32_t expected, struct tb_share *share,
                             struct tb_share *base)
{
    uint32_t crossing = 0;
    uv_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < TB_FEED_LANDINGS_MAX && crossing == 0; i++) {
        if (f->landings[i].crossing != 0) continue;
        crossing = expected != 0 ? expected : ++f->issued;
        f->landings[i] = (struct tb_feed_landing){
            .crossing = crossing, .based = base != NULL, .share = share, .base = base};
    }
    if (expected != 0) unexpect_locked(f, expected); /* it lands, or never does */
    uv_mutex_unlock(&f->lock);
    return crossing;
}

void tb_feed_landing_remove(struct tb_feed *f, uint32_t crossing)
{
    uv_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < TB_FEED_LANDINGS_MAX; i++)
        if (f->landings[i].crossing == crossing) f->landings[i].crossing = 0;
    uv_mutex_unlock(&f->lock);
}

void tb_feed_base_gone(struct tb_feed *f, struct tb_share *base)
{
    uv_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < TB_FEED_LANDINGS_MAX; i++)
        if (f->landings[i].base == base) f->landings[i].base = NULL;
    for (uint32_t i = 0; i < f->ready_count; i++) {
        struct tb_feed_parcel *p = &f->ready[(f->ready_first + i) % TB_FEED_READY_MAX];
        if (p->base != base) continue;
        p->base = NULL;
        tb_share_unref(base);
    }
    uv_mutex_unlock(&f->lock);
}

/* The first parcel that this slot may take; ready_count if there is none. Those before it move up. */
static uint32_t find_for(struct tb_feed *f, uint32_t slot)
{
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
        status = TB_OK;
    } else {
        atomic_store_explicit(hungry, true, memory_order_relaxed);
    }
    uv_mutex_unlock(&f->lock);
    return status;
}

/* ---- gifts ---- */

static bool same_chunk(const struct tb_gift *a, const struct tb_gift *b)
{
    return a->share == b->share && a->shard == b->shard && a->chunk == b->chunk;
}

bool tb_feed_gift(struct tb_feed *f, const struct tb_gift *gift)
{
    uv_mutex_lock(&f->lock);
    bool fits = f->gift_count < TB_FEED_GIFTS_MAX;
    for (uint32_t i = 0; i < f->gift_count; i++)
        fits = fits && !same_chunk(&f->gifts[i], gift);
    if (fits) f->gifts[f->gift_count++] = *gift;
    uv_mutex_unlock(&f->lock);
    return fits;
}

uint8_t *tb_feed_gift_take(struct tb_feed *f, const struct tb_share *share, uint32_t shard, uint32_t chunk)
{
    uint8_t *bytes = NULL;
    if (atomic_load_explicit(&f->gift_count, memory_order_relaxed) == 0) return NULL; /* nearly always */
    uv_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < f->gift_count && bytes == NULL; i++) {
        struct tb_gift *g = &f->gifts[i];
        if (g->share != share || g->shard != shard || g->chunk != chunk) continue;
        bytes = g->bytes;
        g->bytes = NULL;
        gift_drop(f, i);
    }
    uv_mutex_unlock(&f->lock);
    return bytes;
}

/* True: nothing is left to do for it. */
static bool gift_over(struct tb_gift *g)
{
    struct tb_place *place = &g->share->places[g->shard];
    uint32_t bytes = 0;
    if (tb_share_revoked(g->share) || tb_place_held(place, g->chunk)) return true;
    if (!tb_place_claim(place, g->chunk)) return false;
    uint8_t *at = tb_place_chunk(place, g->chunk, &bytes);
    memcpy(at, g->bytes, bytes);
    /* Its digest was right before: what is wrong now is this machine's memory, and the chunk is asked for again. */
    (void)!tb_place_finish(place, g->chunk);
    return true;
}

bool tb_feed_gifts_settle(struct tb_feed *f)
{
    bool fresh = false;
    uv_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < f->gift_count;) {
        if (gift_over(&f->gifts[i])) {
            gift_drop(f, i);
            continue;
        }
        fresh |= f->gifts[i].fresh;
        f->gifts[i++].fresh = false;
    }
    uv_mutex_unlock(&f->lock);
    return fresh;
}

void tb_feed_gifts_drop(struct tb_feed *f)
{
    uv_mutex_lock(&f->lock);
    while (f->gift_count > 0)
        gift_drop(f, 0);
    uv_mutex_unlock(&f->lock);
}

bool tb_feed_landing(struct tb_feed *f, uint32_t crossing, struct tb_feed_landing *out)
{
    *out = (struct tb_feed_landing){0};
    uv_mutex_lock(&f->lock);
    const bool known = crossing != 0 && crossing <= f->issued;
    for (uint32_t i = 0; i < TB_FEED_LANDINGS_MAX; i++)
        if (crossing != 0 && f->landings[i].crossing == crossing) *out = f->landings[i];
    for (uint32_t i = 0; i < TB_FEED_EXPECTED_MAX; i++)
        out->expected |= crossing != 0 && f->expected[i] == crossing;
    if (out->share != NULL) tb_share_ref(out->share);
    if (out->base != NULL) tb_share_ref(out->base);
    uv_mutex_unlock(&f->lock);
    return known;
}

enum tb_choice_way tb_feed_pick(struct tb_feed *f, const struct tb_choice_ask *ask)
{
    uv_mutex_lock(&f->lock);
    const enum tb_choice_way way = tb_choice_pick(&f->choice, ask);
    uv_mutex_unlock(&f->lock);
    return way;
}

void tb_feed_learn(struct tb_feed *f, const struct tb_choice_sample *sample)
{
    uv_mutex_lock(&f->lock);
    tb_choice_learn(&f->choice, sample);
    uv_mutex_unlock(&f->lock);
}

bool tb_feed_takes(struct tb_feed *f, const struct tb_choice_made *made)
{
    uv_mutex_lock(&f->lock);
    const bool takes = tb_choice_takes(&f->choice, made);
    uv_mutex_unlock(&f->lock);
    return takes;
}

bool tb_feed_joins(struct tb_feed *f, const struct tb_choice_made *joined, unsigned steps)
{
    uv_mutex_lock(&f->lock);
    const bool joins = tb_choice_joins(&f->choice, joined, steps);
    uv_mutex_unlock(&f->lock);
    return joins;
}

void tb_feed_choice(struct tb_feed *f, struct tb_choice *choice_out)
{
    uv_mutex_lock(&f->lock);
    *choice_out = f->choice;
    uv_mutex_unlock(&f->lock);
}

#define CARRIED_EVERY TB_MS(40)
#define CARRIED_STALE TB_SECONDS(1)

/* Streams that are busy are so together: what all carried, over the part of the time in which the busiest one was. */
static void carry_locked(struct tb_feed *f, bool full, tb_time_ns now)
{
    double bytes_per_s = 0, busy = 0;
    for (uint32_t i = 0; i < TB_FEED_SLOTS_MAX; i++) {
        const struct tb_feed_slot *slot = &f->slots_carried[i];
        if (slot->time == 0 || tb_time_since(slot->at, now) > CARRIED_STALE + 2 * slot->time) continue;
        const double share = (double)slot->busy / (double)slot->time;
        bytes_per_s += (double)slot->acked_bytes * 1e9 / (double)slot->time;
        if (share > busy) busy = share;
    }
    const struct tb_choice_carried carried = {.bytes_per_s = busy > 0 ? bytes_per_s / busy : 0, .full = full};
    tb_choice_carried(&f->choice, &carried);
}

void tb_feed_carry(struct tb_feed *f, uint32_t slot, const struct tb_feed_slot *carried)
{
    TB_ASSERT(slot < TB_FEED_SLOTS_MAX);
    uv_mutex_lock(&f->lock);
    f->slots_carried[slot] = *carried;
    f->carried_full |= carried->full;
    if (tb_time_since(f->carried_at, carried->at) >= CARRIED_EVERY) {
        carry_locked(f, f->carried_full, carried->at);
        f->carried_at = carried->at;
        f->carried_full = false;
    }
    uv_mutex_unlock(&f->lock);
}

static bool note_below(struct tb_feed *f, const struct tb_note *note, uint32_t most)
{
    uv_mutex_lock(&f->lock);
    const bool fits = f->note_count < most;
    if (fits) f->notes[f->note_count++] = *note;
    uv_mutex_unlock(&f->lock);
    return fits;
}

bool tb_feed_note(struct tb_feed *f, const struct tb_note *note)
{
    return note_below(f, note, TB_FEED_NOTES_MAX);
}

bool tb_feed_note_late(struct tb_feed *f, const struct tb_note *note)
{
    return note_below(f, note, TB_FEED_NOTES_MAX / 2);
}

/* ---- the cap ---- */

void tb_feed_cap(struct tb_feed *f, uint64_t bytes_per_s)
{
    uv_mutex_lock(&f->lock);
    if (f->cap.bytes_per_s != bytes_per_s) tb_cap_set(&f->cap, bytes_per_s, tb_clock_now());
    f->choice.cap = (double)bytes_per_s;
    atomic_store_explicit(&f->capped, bytes_per_s != 0, memory_order_relaxed);
    uv_mutex_unlock(&f->lock);
}

bool tb_feed_capped(const struct tb_feed *f)
{
    return atomic_load_explicit(&f->capped, memory_order_relaxed);
}

uint32_t tb_feed_piece(struct tb_feed *f, uint32_t want, const struct tb_cap_price *price, tb_time_ns *at_out)
{
    uv_mutex_lock(&f->lock);
    const uint32_t most = tb_cap_piece(&f->cap);
    const uint32_t bytes = want < most ? want : most;
    *at_out = tb_cap_reserve(&f->cap, tb_cap_wire_bytes(price, bytes), tb_clock_now());
    uv_mutex_unlock(&f->lock);
    return bytes;
}

void tb_feed_charge(struct tb_feed *f, uint64_t bytes)
{
    uv_mutex_lock(&f->lock);
    tb_cap_charge(&f->cap, bytes, tb_clock_now());
    uv_mutex_unlock(&f->lock);
}

/* ---- a day's bytes ---- */

static bool fits(const struct tb_feed *f, uint64_t bytes)
{
    return f->until_bytes == UINT64_MAX ||
           (f->begun_bytes < f->until_bytes && bytes <= f->until_bytes - f->begun_bytes);
}

void tb_feed_until(struct tb_feed *f, uint64_t bytes)
{
    uv_mutex_lock(&f->lock);
    f->until_bytes = bytes;
    if (fits(f, f->short_bytes)) f->short_bytes = 0;
    uv_mutex_unlock(&f->lock);
}

bool tb_feed_spend(struct tb_feed *f, uint64_t bytes)
{
    uv_mutex_lock(&f->lock);
    const bool begins = fits(f, bytes);
    if (begins)
        f->begun_bytes += bytes;
    else if (f->short_bytes == 0 || bytes < f->short_bytes)
        f->short_bytes = bytes;
    uv_mutex_unlock(&f->lock);
    return begins;
}

void tb_feed_unspend(struct tb_feed *f, uint64_t bytes)
{
    uv_mutex_lock(&f->lock);
    f->begun_bytes -= bytes;
    if (fits(f, f->short_bytes)) f->short_bytes = 0;
    uv_mutex_unlock(&f->lock);
}

bool tb_feed_spent(struct tb_feed *f, uint64_t *short_bytes_out)
{
    uv_mutex_lock(&f->lock);
    const bool spent = f->short_bytes != 0 || !fits(f, 1);
    if (short_bytes_out != NULL) *short_bytes_out = f->short_bytes;
    uv_mutex_unlock(&f->lock);
    return spent;
}
