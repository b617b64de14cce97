/* hedge.c - times of parcels, and those that are over. Pure. */
#include "wan/send/hedge.h"

#include "base/assert.h"
#include "wan/send/outbound_parcels.h"

#define TIMES_MIN     8u         /* before a median says anything */
#define USUAL_UNKNOWN TB_MS(500) /* until then */
#define LATE_SLACK    TB_MS(20)  /* HELD comes every 10 ms, and loops have turns of 5 */
#define STALL_SLACK   TB_MS(250)

void tb_hedge_init(struct tb_hedge *h, uint32_t permille)
{
    memset(h, 0, sizeof *h);
    h->permille = permille;
}

static bool same_chunks(const struct tb_hedge_way *a, const struct tb_hedge_way *b)
{
    return a->crossing == b->crossing && a->parcel.shard == b->parcel.shard &&
           a->parcel.first < b->parcel.first + b->parcel.count &&
           b->parcel.first < a->parcel.first + a->parcel.count;
}

/* ---- what may go again ---- */

/* The crossing's, or one that is free; NULL: neither. */
static struct tb_hedge_credit *credit_of(struct tb_hedge *h, uint32_t crossing)
{
    TB_ASSERT(crossing != 0);
    struct tb_hedge_credit *found = NULL;
    for (uint32_t i = 0; i < TB_HEDGE_CROSSINGS_MAX; i++) {
        struct tb_hedge_credit *c = &h->credits[i];
        if (c->crossing == crossing) return c;
        if (c->crossing == 0 && found == NULL) found = c;
    }
    return found;
}

static void earn(struct tb_hedge *h, const struct tb_hedge_way *way, bool on_base)
{
    struct tb_hedge_credit *c = credit_of(h, way->crossing);
    if (c == NULL) return;
    c->crossing = way->crossing;
    c->millibytes[on_base] += way->parcel.bytes * h->permille;
    TB_ASSERT(c->crossing == way->crossing); /* one row for each crossing */
}

/* The credit that others left is for one parcel, and gone then: a link that hedged nothing for a
 * day owes no version a second copy. */
static bool pay(struct tb_hedge *h, uint32_t crossing, bool on_base, uint64_t bytes)
{
    TB_ASSERT(crossing != 0 && bytes > 0);
    struct tb_hedge_kind *k = &h->kinds[on_base];
    struct tb_hedge_credit *c = credit_of(h, crossing);
    const uint64_t price = bytes * 1000;
    if (c == NULL || c->millibytes[on_base] + k->left_millibytes < price) return false;
    if (c->millibytes[on_base] < price) k->left_millibytes = 0;
    c->millibytes[on_base] -= price < c->millibytes[on_base] ? price : c->millibytes[on_base];
    return true;
}

/* The crossing is over; 0: all are. */
static void settle(struct tb_hedge *h, uint32_t crossing)
{
    for (uint32_t i = 0; i < TB_HEDGE_CROSSINGS_MAX; i++) {
        struct tb_hedge_credit *c = &h->credits[i];
        if (c->crossing == 0 || (crossing != 0 && c->crossing != crossing)) continue;
        h->kinds[0].left_millibytes += c->millibytes[0];
        h->kinds[1].left_millibytes += c->millibytes[1];
        *c = (struct tb_hedge_credit){0};
    }
}

/* ---- ways ---- */

/* Adds the part of the way's parcel that is not there yet, if there is any. */
static void add(struct tb_hedge *h, const struct tb_hedge_way *way, const struct tb_outbound *c)
{
    struct tb_parcel rest;
    if (h->way_count == TB_HEDGE_WAYS_MAX || !tb_outbound_rest(c, &way->parcel, &rest)) return;
    struct tb_hedge_way *w = &h->ways[h->way_count++];
    *w = *way;
    w->parcel = rest;
    TB_ASSERT(rest.count > 0 && rest.count <= way->parcel.count);
    w->left = tb_outbound_left(c, &rest);
    TB_ASSERT(w->left > 0); /* tb_outbound_rest found a chunk */
}

void tb_hedge_taken(struct tb_hedge *h, tb_time_ns now, const struct tb_hedge_way *way,
                    const struct tb_outbound *c)
{
    TB_ASSERT(way->slot < TB_HEDGE_SLOTS_MAX);
    TB_ASSERT(way->crossing != 0);
    struct tb_hedge_way w = *way;
    w.taken_at = now;
    w.on_base = way->on_base && !way->parcel.plain; /* a chunk whose base was refused goes whole */
    if (!way->again) earn(h, way, w.on_base);
    bool second = false; /* its first way may have ended meanwhile */
    for (uint32_t i = 0; i < h->way_count; i++)
        second |= same_chunks(&h->ways[i], way);
    w.again = way->again && second;
    add(h, &w, c);
}

static void forget(struct tb_hedge *h, uint32_t i)
{
    TB_ASSERT(i < h->way_count);
    h->ways[i] = h->ways[--h->way_count];
}

/* The chunk goes out of the middle of its parcel: two ways are left of one. */
void tb_hedge_refused(struct tb_hedge *h, const struct tb_frame_refused *refused, const struct tb_outbound *c)
{
    const uint32_t k = refused->chunk;
    const struct tb_hedge_way chunk = {.crossing = refused->crossing,
                                       .parcel = {.shard = refused->shard, .first = k, .count = 1}};
    for (uint32_t i = h->way_count; i-- > 0;) { /* what is added comes behind, and was looked at */
        if (!same_chunks(&h->ways[i], &chunk)) continue;
        struct tb_hedge_way before = h->ways[i], behind = before;
        TB_ASSERT(k >= before.parcel.first &&
                  k - before.parcel.first < before.parcel.count); /* same_chunks said so */
        before.parcel.count = k - before.parcel.first;
        behind.parcel.first = k + 1;
        behind.parcel.count -= before.parcel.count + 1;
        forget(h, i);
        add(h, &before, c);
        add(h, &behind, c);
    }
}

tb_time_ns tb_hedge_usual(const struct tb_hedge_kind *k)
{
    tb_time_ns sorted[TB_HEDGE_TIMES_MAX] = {0};
    if (k->time_count < TIMES_MIN) return 0;
    for (uint32_t i = 0; i < k->time_count; i++) {
        uint32_t at = i;
        for (; at > 0 && sorted[at - 1] > k->times[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = k->times[i];
    }
    TB_ASSERT(k->time_count <= TB_HEDGE_TIMES_MAX);
    return sorted[k->time_count / 2];
}

/* Of one that went twice nobody knows which way it came. */
static void learn(struct tb_hedge *h, const struct tb_hedge_way *w, tb_time_ns now)
{
    TB_ASSERT(w->slot < TB_HEDGE_SLOTS_MAX && w->left == 0);
    struct tb_hedge_kind *k = &h->kinds[w->on_base];
    tb_time_ns *slot_ns = &h->slots[w->slot].parcel_ns[w->on_base];
    const tb_time_ns took = tb_time_since(w->taken_at, now);
    if (w->again) {
        if (took > *slot_ns) *slot_ns = took;
        return;
    }
    *slot_ns = *slot_ns == 0 ? took : (3 * *slot_ns + took) / 4;
    k->times[k->time_at++ % TB_HEDGE_TIMES_MAX] = took;
    if (k->time_count < TB_HEDGE_TIMES_MAX) k->time_count++;
}

void tb_hedge_held(struct tb_hedge *h, tb_time_ns now, uint32_t crossing, const struct tb_outbound *c)
{
    for (uint32_t i = 0; i < h->way_count;) {
        struct tb_hedge_way *w = &h->ways[i];
        const uint32_t left = w->crossing == crossing ? tb_outbound_left(c, &w->parcel) : w->left;
        if (left < w->left && !w->again) h->slots[w->slot].moved_at = now;
        w->left = left;
        if (left > 0) {
            i++;
            continue;
        }
        learn(h, w, now);
        forget(h, i);
    }
}

void tb_hedge_started(struct tb_hedge *h, tb_time_ns now, uint32_t crossing)
{
    TB_ASSERT(crossing != 0);
    for (uint32_t i = 0; i < h->way_count; i++)
        if (h->ways[i].crossing == crossing) h->ways[i].taken_at = now;
}

void tb_hedge_over(struct tb_hedge *h, uint32_t crossing)
{
    settle(h, crossing);
    for (uint32_t i = 0; i < h->way_count;)
        if (crossing == 0 || h->ways[i].crossing == crossing)
            forget(h, i);
        else
            i++;
    TB_ASSERT(crossing != 0 || h->way_count == 0);
}

/* A parcel that went by two ways has one left, and may go again. */
static void part(struct tb_hedge *h, const struct tb_hedge_way *ended)
{
    for (uint32_t i = 0; i < h->way_count; i++)
        if (same_chunks(&h->ways[i], ended)) h->ways[i].again = false;
}

void tb_hedge_unqueued(struct tb_hedge *h, uint32_t crossing, const struct tb_parcel *parcel)
{
    part(h, &(struct tb_hedge_way){.crossing = crossing, .parcel = *parcel});
}

void tb_hedge_stream_gone(struct tb_hedge *h, uint32_t slot)
{
    if (slot >= TB_HEDGE_SLOTS_MAX) return;
    for (uint32_t i = 0; i < h->way_count;) {
        if (h->ways[i].slot != slot) {
            i++;
            continue;
        }
        const struct tb_hedge_way ended = h->ways[i];
        forget(h, i);
        if (ended.again) part(h, &ended);
    }
    h->slots[slot] = (struct tb_hedge_slot){0};
}

void tb_hedge_check(const struct tb_hedge *h)
{
    TB_ASSERT(h->way_count <= TB_HEDGE_WAYS_MAX);
    for (uint32_t i = 0; i < h->way_count; i++) {
        const struct tb_hedge_way *w = &h->ways[i];
        TB_ASSERT(w->crossing != 0 && w->slot < TB_HEDGE_SLOTS_MAX);
        TB_ASSERT(w->left > 0 && w->left <= w->parcel.count);
    }
    for (uint32_t i = 0; i < TB_HEDGE_CROSSINGS_MAX; i++)
        for (uint32_t k = 0; k < i; k++)
            TB_ASSERT(h->credits[i].crossing == 0 || h->credits[i].crossing != h->credits[k].crossing);
    TB_ASSERT(h->kinds[0].time_count <= TB_HEDGE_TIMES_MAX && h->kinds[1].time_count <= TB_HEDGE_TIMES_MAX);
}

/* Some other stream brought something since then. */
static bool others_move(const struct tb_hedge *h, const struct tb_hedge_way *w)
{
    for (uint32_t s = 0; s < TB_HEDGE_SLOTS_MAX; s++)
        if (s != w->slot && h->slots[s].moved_at > w->taken_at) return true;
    return false;
}

/* The times that mean late at this moment, for parcels of one kind. */
struct clock {
    tb_time_ns now, late, stalled;
    bool near_end;
};

static struct clock clock_now(const struct tb_hedge_kind *k, tb_time_ns now, bool near_end)
{
    const tb_time_ns known = tb_hedge_usual(k), usual = known != 0 ? known : USUAL_UNKNOWN;
    return (struct clock){now, 2 * usual + LATE_SLACK, 4 * usual + STALL_SLACK, near_end};
}

static bool late(const struct tb_hedge *h, const struct tb_hedge_way *w, const struct clock *c)
{
    TB_ASSERT(w->slot < TB_HEDGE_SLOTS_MAX);
    const struct tb_hedge_slot *slot = &h->slots[w->slot];
    const tb_time_ns since = slot->moved_at > w->taken_at ? slot->moved_at : w->taken_at;
    const bool stalled = tb_time_since(since, c->now) > c->stalled;
    const bool slow = tb_time_since(w->taken_at, c->now) > c->late || slot->parcel_ns[w->on_base] > c->late;
    return !w->again && (stalled || (c->near_end && slow)) && others_move(h, w);
}

static uint64_t slow_slots(const struct tb_hedge *h, bool on_base, const struct clock *c)
{
    uint64_t slow = 0;
    for (uint32_t s = 0; s < TB_HEDGE_SLOTS_MAX; s++)
        if (h->slots[s].parcel_ns[on_base] > c->late) slow |= UINT64_C(1) << s;
    return slow;
}

bool tb_hedge_next(struct tb_hedge *h, tb_time_ns now, uint32_t crossing, const struct tb_outbound *c,
                   struct tb_hedge_again *again_out)
{
    const bool near_end = tb_outbound_all_on_their_way(c);
    const struct clock clocks[2] = {clock_now(&h->kinds[0], now, near_end),
                                    clock_now(&h->kinds[1], now, near_end)};
    struct tb_hedge_way *found = NULL;
    for (uint32_t i = 0; i < h->way_count; i++) {
        struct tb_hedge_way *w = &h->ways[i];
        if (w->crossing != crossing || (found != NULL && found->taken_at <= w->taken_at)) continue;
        if (late(h, w, &clocks[w->on_base])) found = w;
    }
    if (found == NULL || !tb_outbound_rest(c, &found->parcel, &again_out->parcel)) return false;
    if (!pay(h, crossing, found->on_base, again_out->parcel.bytes)) return false;
    TB_ASSERT(!found->again && found->crossing == crossing); /* a parcel goes again once */
    found->again = true;
    again_out->avoid = slow_slots(h, found->on_base, &clocks[found->on_base]) | UINT64_C(1) << found->slot;
    return true;
}
