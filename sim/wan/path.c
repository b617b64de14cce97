#include "sim/wan/path.h"

#include <string.h>

#include "base/assert.h"

#define NS_PER_S 1000000000

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* The draw of one packet for one fault. */
static uint64_t draw(const struct tb_path *p, enum tb_path_key fault)
{
    return mix(p->key + p->counters.packets * UINT64_C(0x9e3779b97f4a7c15) + ((uint64_t)fault << 56));
}

static bool falls(const struct tb_path *p, enum tb_path_key fault)
{
    const uint64_t chance = p->now.value[fault];
    return chance > 0 && ((draw(p, fault) >> 32) * TB_PATH_PPB) >> 32 < chance;
}

void tb_path_init(struct tb_path *p, const struct tb_path_settings *settings, struct tb_path_queue *queue,
                  uint64_t seed, uint32_t number)
{
    *p = (struct tb_path){.base = *settings, .now = *settings, .queue = queue, .next_change = INT64_MAX};
    queue->rate = settings->value[TB_PATH_RATE];
    p->key = mix(mix(seed + 1) ^ mix(UINT64_C(0x746f6d626f6c6f) + number));
}

bool tb_path_schedule(struct tb_path *p, const struct tb_path_change *change)
{
    if (p->change_count == TB_PATH_CHANGES_MAX) return false;
    p->changes[p->change_count++] = *change;
    if (change->at < p->next_change) p->next_change = change->at;
    return true;
}

/* When the change last happened, or -1. */
static int64_t last_time(const struct tb_path_change *c, int64_t now)
{
    if (now < c->at) return -1;
    return c->every > 0 ? now - (now - c->at) % c->every : c->at;
}

static int64_t next_time(const struct tb_path_change *c, int64_t now)
{
    if (now < c->at) return c->at;
    return c->every > 0 ? now - (now - c->at) % c->every + c->every : INT64_MAX;
}

static void apply(struct tb_path_settings *to, const struct tb_path_change *c)
{
    for (uint32_t key = 0; key < TB_PATH_KEY_COUNT; key++)
        if (c->mask & 1u << key) to->value[key] = c->to.value[key];
}

/* The changes that have happened are laid over the base, the newest last; of two at one moment,
 * the later line wins. */
static void lay_changes(struct tb_path *p, int64_t now)
{
    TB_ASSERT(p->change_count <= TB_PATH_CHANGES_MAX);
    p->now = p->base;
    p->next_change = INT64_MAX;
    bool done[TB_PATH_CHANGES_MAX] = {false};
    for (uint32_t round = 0; round < p->change_count; round++) {
        uint32_t oldest = TB_PATH_CHANGES_MAX;
        for (uint32_t i = 0; i < p->change_count; i++) {
            if (done[i] || last_time(&p->changes[i], now) < 0) continue;
            if (oldest == TB_PATH_CHANGES_MAX ||
                last_time(&p->changes[i], now) < last_time(&p->changes[oldest], now))
                oldest = i;
        }
        if (oldest == TB_PATH_CHANGES_MAX) break;
        done[oldest] = true;
        apply(&p->now, &p->changes[oldest]);
    }
    for (uint32_t i = 0; i < p->change_count; i++) {
        const int64_t next = next_time(&p->changes[i], now);
        if (next < p->next_change) p->next_change = next;
    }
}

/* From `at` on the queue drains at another rate: what waits in it takes as many times longer, or
 * shorter. A path that was silent may come with what another path has long said. */
static void set_rate(struct tb_path_queue *q, int64_t at, uint64_t rate)
{
    if (at < q->rate_since || rate == q->rate) return;
    const double times = rate > 0 ? (double)q->rate / (double)rate : 0;
    if (q->free_at > at) q->free_at = at + (int64_t)((double)(q->free_at - at) * times);
    if (q->best_at > at) q->best_at = at + (int64_t)((double)(q->best_at - at) * times);
    q->rate = rate;
    q->rate_since = at;
}

/* When the schedule last changed the rate, or -1. */
static int64_t rate_said(const struct tb_path *p, int64_t now)
{
    int64_t at = -1;
    for (const struct tb_path_change *c = p->changes; c < p->changes + p->change_count; c++)
        if (c->mask & 1u << TB_PATH_RATE && last_time(c, now) > at) at = last_time(c, now);
    return at;
}

/* Change by change while something waits in the queue, which drains at each rate for its time; of
 * those that met an empty one only what they come to matters. */
static void follow_schedule(struct tb_path *p, int64_t now)
{
    while (p->next_change <= now) {
        const int64_t next = p->next_change, at = p->queue->free_at > next ? next : now;
        lay_changes(p, at);
        TB_ASSERT(p->next_change > at); /* else this never ends */
        if (rate_said(p, at) >= next) set_rate(p->queue, rate_said(p, at), p->now.value[TB_PATH_RATE]);
    }
}

void tb_path_turn(struct tb_path *p, int64_t now, uint32_t mask, const struct tb_path_settings *to)
{
    const struct tb_path_change change = {.mask = mask, .to = *to};
    follow_schedule(p, now);
    apply(&p->base, &change);
    apply(&p->now, &change);
    if (mask & 1u << TB_PATH_RATE) set_rate(p->queue, now, to->value[TB_PATH_RATE]);
}

/* ns that so many bytes take at the rate, which is not 0. */
static int64_t drain_ns(uint64_t rate, uint64_t bytes)
{
    TB_ASSERT(rate > 0);
    return (int64_t)((bytes * 8 * NS_PER_S + rate / 2) / rate);
}

/* A packet as it comes. */
struct guest {
    int64_t now, late_ns;
    uint32_t bytes;
};

/* Whether the packet has room in the queue; then v->arrival is when its last byte leaves it. */
static bool enter_queue(struct tb_path *p, const struct guest *g, struct tb_path_verdict *v)
{
    struct tb_path_queue *q = p->queue;
    v->late_ns = g->late_ns;
    if (q->rate == 0) return true;
    const int64_t wait = q->free_at > g->now ? q->free_at - g->now : 0;
    /* In double: wait x rate passes 64 bits, and a byte more or less in a queue is nothing. */
    const uint64_t waiting = (uint64_t)((double)wait * (double)q->rate / 8e9);
    if (waiting + g->bytes > p->now.value[TB_PATH_QUEUE] && waiting > 0) return false;
    if (waiting + g->bytes > p->counters.queue_bytes_max) p->counters.queue_bytes_max = waiting + g->bytes;
    const int64_t came = g->now - g->late_ns;
    q->free_at = g->now + wait + drain_ns(q->rate, g->bytes);
    q->best_at = (q->best_at > came ? q->best_at : came) + drain_ns(q->rate, g->bytes);
    v->arrival = q->free_at;
    TB_ASSERT(q->free_at >= g->now && q->best_at <= q->free_at);
    if (q->free_at - q->best_at < v->late_ns) v->late_ns = q->free_at - q->best_at;
    return true;
}

static bool lost_on_wire(struct tb_path *p)
{
    const bool was = p->in_burst;
    if (was && falls(p, TB_PATH_BURST_LEAVE))
        p->in_burst = false;
    else if (!was && falls(p, TB_PATH_BURST_ENTER))
        p->in_burst = true;
    p->counters.bursts += !was && p->in_burst;
    return falls(p, p->in_burst ? TB_PATH_BURST_LOSS : TB_PATH_LOSS);
}

static enum tb_path_fate fate(struct tb_path *p, const struct guest *g, struct tb_path_verdict *v)
{
    const uint64_t mtu = p->now.value[TB_PATH_MTU];
    if (p->now.value[TB_PATH_CUT] != 0) return TB_PATH_LOST_CUT;
    if (mtu > 0 && g->bytes > mtu) return TB_PATH_LOST_MTU;
    if (!enter_queue(p, g, v)) return TB_PATH_LOST_QUEUE;
    return lost_on_wire(p) ? TB_PATH_LOST_WIRE : TB_PATH_ARRIVES;
}

static int64_t arrival(struct tb_path *p, int64_t out_at)
{
    const uint64_t jitter = p->now.value[TB_PATH_JITTER];
    int64_t at = out_at + (int64_t)p->now.value[TB_PATH_DELAY];
    if (falls(p, TB_PATH_REORDER)) {
        p->counters.reordered++;
        return out_at;
    }
    if (jitter > 0) at += (int64_t)((double)(draw(p, TB_PATH_JITTER) >> 32) / 4294967296.0 * (double)jitter);
    /* Without jitter a delay that is shortened, or a rate that rises, lets packets overtake,
     * as a new route does. */
    if (p->now.value[TB_PATH_KEEP_ORDER] != 0 && at < p->last_arrival) at = p->last_arrival;
    TB_ASSERT(at >= out_at);
    p->last_arrival = at;
    return at;
}

static void count(struct tb_path *p, const struct tb_path_verdict *v, uint32_t bytes)
{
    struct tb_path_counters *c = &p->counters;
    uint64_t *const lost[] = {
        [TB_PATH_LOST_CUT] = &c->lost_cut,
        [TB_PATH_LOST_MTU] = &c->lost_mtu,
        [TB_PATH_LOST_QUEUE] = &c->lost_queue,
        [TB_PATH_LOST_WIRE] = &c->lost_wire,
    };
    if (v->fate != TB_PATH_ARRIVES) ++*lost[v->fate];
    c->duplicated += v->twice;
    c->corrupted += v->flip;
    c->decisions_hash = mix(c->decisions_hash * 31 + 1 + (uint64_t)v->fate + (v->twice ? 8 : 0) +
                            (v->flip ? 16 + v->flip_bit : 0));
    c->packets++;
    c->bytes += bytes;
}

struct tb_path_verdict tb_path_decide(struct tb_path *p, int64_t now, uint32_t bytes, int64_t late_ns)
{
    TB_ASSERT(bytes > 0 && late_ns >= 0);
    follow_schedule(p, now);
    struct tb_path_verdict v = {.arrival = now};
    v.fate = fate(p, &(struct guest){now, late_ns, bytes}, &v);
    if (v.fate == TB_PATH_ARRIVES) {
        v.arrival = arrival(p, v.arrival);
        v.twice = falls(p, TB_PATH_DUPLICATE);
        v.flip = falls(p, TB_PATH_CORRUPT);
        /* Another draw than the one that said that it falls. */
        if (v.flip) v.flip_bit = (uint32_t)(mix(draw(p, TB_PATH_CORRUPT)) % ((uint64_t)bytes * 8));
    }
    count(p, &v, bytes);
    return v;
}
