/* source_division.c - how fast the sources are, who is silent, and which chunks each is given,
 * loses and gets back. Pure. */
#include "base/assert.h"
#include "wan/send/source_division_table.h"

#define LATE_TIMES   4
#define STANDS_STILL (TB_DIVIDE_SILENT + TB_DIVIDE_EVERY)

/* ---- how fast they are ---- */

static uint64_t clamp(uint64_t bytes)
{
    if (bytes < TB_DIVIDE_BYTES_MIN) return TB_DIVIDE_BYTES_MIN;
    return bytes < TB_DIVIDE_BYTES_MAX ? bytes : TB_DIVIDE_BYTES_MAX;
}

/* A window of twice what came in the time that a word and its answer take: one that is too small
 * for the path doubles, as soon as all of it came. */
static void measure(struct tb_divide_source *s, tb_time_ns now)
{
    const tb_time_ns passed = tb_time_since(s->measured_at, now);
    const uint64_t window = clamp(2 * s->came_bytes);
    if (window > s->window_bytes) s->window_bytes = window;
    if (passed < TB_DIVIDE_EVERY + s->rtt) return;
    if (s->came_bytes > 0) {
        const uint64_t rate = (uint64_t)((double)s->came_bytes * 1e9 / (double)passed);
        s->bytes_per_s = s->bytes_per_s == 0 ? rate : (s->bytes_per_s + rate) / 2;
        s->window_bytes = window;
    }
    s->came_bytes = 0;
    s->measured_at = now;
    TB_ASSERT(s->window_bytes >= TB_DIVIDE_BYTES_MIN && s->window_bytes <= TB_DIVIDE_BYTES_MAX);
}

/* The time until which we know how it is there: a near gateway that says nothing may be busy. */
static tb_time_ns known_until(const struct tb_divide_source *s, tb_time_ns now)
{
    return s->near ? tb_time_min(s->known_at, now) : now;
}

/* At the rate that it had, all that it was given would be here: it has become slower,
 * whatever bytes still come. */
static void doubt(struct tb_divide_source *s, tb_time_ns now)
{
    const tb_time_ns waited = tb_time_since(s->came_at, known_until(s, now));
    if (s->given_bytes == 0 || waited < TB_DIVIDE_EVERY + s->rtt) return;
    TB_ASSERT(waited > 0);
    const uint64_t most = 1 + (uint64_t)((double)s->given_bytes * 1e9 / (double)waited);
    if (s->bytes_per_s > most) s->bytes_per_s = most;
}

/* How fast another lane gets on with what is not ours. */
static void measure_near(struct tb_divide_source *s, tb_time_ns now)
{
    TB_ASSERT(s->near);
    const tb_time_ns passed = tb_time_since(s->landed_at, now);
    if (s->landed_bytes < s->landed_then_bytes) s->landed_then_bytes = s->landed_bytes;
    const uint64_t bytes = s->landed_bytes - s->landed_then_bytes;
    if (bytes == 0 && tb_time_since(s->landed_at, known_until(s, now)) >= STANDS_STILL) s->landed_per_s = 0;
    if (bytes == 0 || passed < TB_DIVIDE_EVERY) return;
    const uint64_t rate = (uint64_t)((double)bytes * 1e9 / (double)passed);
    s->landed_per_s = s->landed_per_s == 0 ? rate : (s->landed_per_s + rate) / 2;
    s->landed_then_bytes = s->landed_bytes;
    s->landed_at = now;
}

/* ---- who is silent ---- */

static bool is_silent(const struct tb_divide_source *s, tb_time_ns now)
{
    return now < s->silent_until;
}

/* Nothing is won by taking a share back from the only far source: what is near comes from there
 * anyway, as soon as it is there. */
static bool another_may(const struct tb_divide *d, uint32_t source, tb_time_ns now)
{
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++) {
        const struct tb_divide_source *s = &d->sources[i];
        if (i == source || !s->on || is_silent(s, now)) continue;
        if (!s->near || d->sources[source].near) return true;
    }
    return false;
}

/* Nothing came of what it was given: others get it, and it is tried again later. */
static void watch(struct tb_divide *d, uint32_t source, tb_time_ns now)
{
    TB_ASSERT(source < TB_DIVIDE_SOURCES_MAX && d->sources[source].on);
    struct tb_divide_source *s = &d->sources[source];
    const tb_time_ns waited = tb_time_since(s->moved_at, known_until(s, now));
    if (s->given_bytes == 0 || waited < TB_DIVIDE_SILENT + 2 * s->rtt) return;
    if (!another_may(d, source, now)) return;
    tb_divide_take_back_all(d, source);
    s->silent_until = now + TB_DIVIDE_SILENT;
    s->window_bytes = TB_DIVIDE_BYTES_MIN;
    s->bytes_per_s = 0;
}

/* A time in which nobody looked here is nobody's silence. */
static void heed_sleep(struct tb_divide *d, tb_time_ns now)
{
    const tb_time_ns slept = d->stepped_at != 0 ? tb_time_since(d->stepped_at, now) : 0;
    d->stepped_at = now;
    if (slept < TB_DIVIDE_EVERY) return;
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++) {
        struct tb_divide_source *s = &d->sources[i];
        s->moved_at = tb_time_min(s->moved_at + slept, now);
        s->came_at = tb_time_min(s->came_at + slept, now);
        s->busy_at = tb_time_min(s->busy_at + slept, now);
    }
}

static void look_at_all(struct tb_divide *d, tb_time_ns now)
{
    bool turned = false;
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++) {
        struct tb_divide_source *s = &d->sources[i];
        if (!s->on) continue;
        measure(s, now);
        doubt(s, now);
        if (s->near) measure_near(s, now);
        watch(d, i, now);
        turned |= s->near && s->silent != is_silent(s, now);
        s->silent = is_silent(s, now);
    }
    if (turned) tb_divide_see_all_near(d);
}

static uint32_t near_count(const struct tb_divide *d)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++)
        count += d->sources[i].on && d->sources[i].near && !d->sources[i].silent;
    return count;
}

/* ---- giving ---- */

/* Chunks that this source could send and that no source was given. Chunks of a near source do not
 * come from far. */
static uint64_t free_word(const struct tb_divide *d, uint32_t source, const struct tb_divide_at *at)
{
    const struct tb_divide_shard *shard = at->shard;
    const uint64_t word =
        at->mask & shard->of[source].has[at->word] & ~shard->seen[at->word] & ~shard->given[at->word];
    return d->sources[source].near ? word : word & ~shard->near[at->word];
}

static bool may_get_more(const struct tb_divide *d, const struct tb_divide_task *t)
{
    return d->sources[t->source].given_bytes < t->most_bytes;
}

static uint64_t first_bit(uint64_t word)
{
    TB_ASSERT(word != 0);
    return word & ~(word - 1);
}

static uint64_t last_bit(uint64_t word)
{
    TB_ASSERT(word != 0);
    return UINT64_C(1) << (63 - __builtin_clzll(word));
}

static bool give_up(struct tb_divide *d, const struct tb_divide_at *at, const struct tb_divide_task *t)
{
    uint64_t word = free_word(d, t->source, at);
    if (word == 0) return may_get_more(d, t);
    if (d->sources[t->source].given_bytes + tb_divide_bytes_of(at->shard, at->word, word) < t->most_bytes) {
        tb_divide_give(d, at, word, t);
        return true;
    }
    for (; word != 0 && may_get_more(d, t); word &= word - 1)
        tb_divide_give(d, at, first_bit(word), t);
    return may_get_more(d, t);
}

static bool give_down(struct tb_divide *d, const struct tb_divide_at *at, const struct tb_divide_task *t)
{
    uint64_t word = free_word(d, t->source, at);
    for (; word != 0 && may_get_more(d, t); word &= ~last_bit(word))
        tb_divide_give(d, at, last_bit(word), t);
    return may_get_more(d, t);
}

/* No other site sends: what is our lane's is its, all of it, and the path is never without work. */
static bool alone_far(const struct tb_divide *d, uint32_t source)
{
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++)
        if (d->sources[i].on && d->sources[i].near == (i == source)) return false;
    return true;
}

static bool take_last(struct tb_divide *d, const struct tb_divide_at *at, const struct tb_divide_task *t)
{
    const struct tb_divide_source *from = &d->sources[t->victim];
    uint64_t word = at->shard->of[t->victim].mine[at->word] & at->mask;
    for (; word != 0 && from->given_bytes > t->least_bytes; word &= ~last_bit(word))
        tb_divide_take_back(d, t->victim, at->shard, at->word, last_bit(word));
    return from->given_bytes > t->least_bytes;
}

/* Another site came: what was given to this one because it was alone is divided. */
static void share_again(struct tb_divide *d, uint32_t source)
{
    TB_ASSERT(d->sources[source].on);
    struct tb_divide_source *s = &d->sources[source];
    const struct tb_divide_task t = {.victim = source, .least_bytes = s->window_bytes};
    if (!s->whole || alone_far(d, source)) return;
    s->whole = false;
    if (s->given_bytes > s->window_bytes && tb_divide_down(d, tb_divide_theirs(d), take_last, &t))
        (void)tb_divide_down(d, tb_divide_ours(d), take_last, &t);
}

/* Chunks in whose middle streams are, of those that far sources were given: what another lane has
 * in hand and does not hold is as much, for it has as many streams. */
static bool add_in_hand(struct tb_divide *d, const struct tb_divide_at *at, const struct tb_divide_task *t)
{
    (void)t;
    const struct tb_divide_shard *shard = at->shard;
    const uint64_t claimed = __atomic_load_n(&shard->place->claimed[at->word], __ATOMIC_RELAXED) & at->mask;
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX && claimed != 0; i++)
        if (!d->sources[i].near)
            d->in_hand_now_bytes +=
                tb_divide_bytes_of(shard, at->word, claimed & shard->of[i].mine[at->word]);
    return true;
}

static void look_in_hand(struct tb_divide *d, tb_time_ns now)
{
    const struct tb_divide_task none = {0};
    if (near_count(d) == 0 || tb_time_since(d->in_hand_at, now) < TB_DIVIDE_EVERY) return;
    d->in_hand_at = now;
    d->in_hand_now_bytes = 0;
    (void)tb_divide_up(d, tb_divide_ours(d), add_in_hand, &none);
    if (d->in_hand_now_bytes > d->in_hand_bytes) d->in_hand_bytes = d->in_hand_now_bytes;
}

/* The bytes of their shares that the other lanes land. */
struct others {
    double per_s;
    double untold; /* at that rate, since they said how much landed */
};

/* False: it is not known yet. */
static bool others_land(const struct tb_divide *d, tb_time_ns now, struct others *others_out)
{
    *others_out = (struct others){0};
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++) {
        const struct tb_divide_source *s = &d->sources[i];
        if (!s->on || !s->near) continue;
        const tb_time_ns known = known_until(s, now);
        if (s->landed_per_s == 0 && tb_time_since(s->landed_at, known) < STANDS_STILL) return false;
        others_out->per_s += (double)s->landed_per_s;
        const double passed = 1e-9 * (double)tb_time_since(s->landed_at, now);
        const double untold =
            passed * (double)s->landed_per_s - (double)s->landed_bytes + (double)s->landed_then_bytes;
        others_out->untold += untold > 0 ? untold : 0;
    }
    return true;
}

/* Of what the others lack, what they have begun before a part that we ask for now is here, and what
 * they have in hand by now, which would come twice; but not that where they need several times as
 * long for it as we do. */
static double left_to_others(const struct tb_divide *d, const struct others *others, double delay_s)
{
    TB_ASSERT(others->per_s >= 0 && delay_s >= 0);
    const double in_hand = (double)d->in_hand_bytes * near_count(d);
    const bool late = in_hand > LATE_TIMES * others->per_s * delay_s;
    const double begun = late ? 0 : in_hand; /* what they have not told yet was among it */
    return others->per_s * delay_s + (begun > others->untold ? begun : others->untold);
}

/* Another lane's share from far, from its end: it goes on from its beginning meanwhile. So much
 * that both are done at once; nothing where it is done before our part would be here. */
static void help(struct tb_divide *d, uint32_t source, tb_time_ns now)
{
    TB_ASSERT(!d->sources[source].near && d->sources[source].on);
    const struct tb_divide_source *to = &d->sources[source];
    const double ours_per_s = (double)to->bytes_per_s;
    const double hand_s = to->bytes_per_s > 0 ? (double)d->in_hand_bytes / ours_per_s : 0;
    struct others others;
    if (d->theirs_lacking_bytes == 0 || !others_land(d, now, &others)) return;
    const double delay_s = hand_s + 1e-9 * (double)(TB_DIVIDE_EVERY + 2 * to->rtt);
    const double left = (double)d->theirs_lacking_bytes - left_to_others(d, &others, delay_s);
    const double more = to->bytes_per_s == 0 ? left / 2
                                             : (left * ours_per_s - (double)to->given_bytes * others.per_s) /
                                                   (ours_per_s + others.per_s);
    if (more <= 0) return;
    const uint64_t most = to->given_bytes + (uint64_t)more + 1;
    const struct tb_divide_task t = {
        .source = source, .most_bytes = most < to->window_bytes ? most : to->window_bytes, .now = now};
    if (may_get_more(d, &t)) (void)tb_divide_down(d, tb_divide_theirs(d), give_down, &t);
}

/* Nothing of ours is to come from there, now or soon. */
static bool is_done(const struct tb_divide *d, uint32_t source, tb_time_ns now)
{
    const struct tb_divide_source *s = &d->sources[source];
    if (s->given_ours_bytes > 0) return false;
    return d->ours_lacking_bytes == 0 || tb_time_since(s->moved_at, now) >= STANDS_STILL;
}

/* First the chunks of our lane. Chunks of another lane come from far where that lane is not there.
 * True: as much as it may have is free, and given. */
static bool give_in_order(struct tb_divide *d, uint32_t source, tb_time_ns now)
{
    struct tb_divide_source *to = &d->sources[source];
    const bool alone = alone_far(d, source);
    const struct tb_divide_task t = {.source = source, .most_bytes = to->window_bytes, .now = now};
    const struct tb_divide_task all = {.source = source, .most_bytes = UINT64_MAX, .now = now};
    to->whole |= alone;
    if ((to->near || d->ours_lacking_bytes > 0) &&
        !tb_divide_up(d, tb_divide_ours(d), give_up, alone ? &all : &t))
        return true;
    return (to->near || near_count(d) == 0) && !tb_divide_up(d, tb_divide_theirs(d), give_up, &t);
}

static void give_all(struct tb_divide *d, uint32_t source, tb_time_ns now)
{
    TB_ASSERT(d->sources[source].on && !d->sources[source].silent);
    struct tb_divide_source *to = &d->sources[source];
    if (to->nothing_at != d->freed && !give_in_order(d, source, now)) to->nothing_at = d->freed;
    if (!to->near && near_count(d) > 0 && is_done(d, source, now)) help(d, source, now);
}

static bool steal_last(struct tb_divide *d, const struct tb_divide_at *at, const struct tb_divide_task *t)
{
    const struct tb_divide_source *from = &d->sources[t->victim];
    uint64_t word =
        at->shard->of[t->victim].mine[at->word] & at->shard->of[t->source].has[at->word] & at->mask;
    for (; word != 0 && from->given_bytes > t->least_bytes && may_get_more(d, t); word &= ~last_bit(word)) {
        tb_divide_take_back(d, t->victim, at->shard, at->word, last_bit(word));
        tb_divide_give(d, at, last_bit(word), t);
    }
    return from->given_bytes > t->least_bytes && may_get_more(d, t);
}

/* All of it went to others, for no chunk came: as if it were new, until one comes. */
static void forget_rate(struct tb_divide_source *s, tb_time_ns now)
{
    const tb_time_ns waited = tb_time_since(s->came_at, known_until(s, now));
    if (s->given_bytes > 0 || waited < TB_DIVIDE_SILENT + 2 * s->rtt) return;
    s->window_bytes = TB_DIVIDE_BYTES_MIN;
    s->bytes_per_s = 0;
}

static double left_s(const struct tb_divide_source *s)
{
    return (double)s->given_bytes / (double)(s->bytes_per_s > 0 ? s->bytes_per_s : 1);
}

/* A source that had nothing to send a moment ago was measured at what there was, which says nothing
 * of what it can. */
static bool is_measured(const struct tb_divide_source *s, tb_time_ns now)
{
    return tb_time_since(s->busy_at, known_until(s, now)) >= TB_DIVIDE_SILENT + 2 * s->rtt;
}

/* Nothing is left to give. A source that is done takes half from the source that needs longest,
 * the last of it, if that is long enough to be worth a chunk that comes twice. */
static void steal(struct tb_divide *d, uint32_t thief, tb_time_ns now)
{
    const struct tb_divide_source *to = &d->sources[thief];
    uint32_t victim = TB_DIVIDE_NONE;
    if (to->given_bytes > 0 || to->bytes_per_s == 0) return;
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++) {
        const struct tb_divide_source *s = &d->sources[i];
        if (i == thief || !s->on || s->given_bytes == 0) continue;
        if (left_s(s) < 1.0 + 2e-9 * (double)(s->rtt + to->rtt) || !is_measured(s, now)) continue;
        if (victim == TB_DIVIDE_NONE || left_s(s) > left_s(&d->sources[victim])) victim = i;
    }
    if (victim == TB_DIVIDE_NONE) return;
    TB_ASSERT(victim != thief && d->sources[victim].given_bytes > 0);
    const struct tb_divide_task t = {.source = thief,
                                     .victim = victim,
                                     .most_bytes = to->window_bytes,
                                     .least_bytes = d->sources[victim].given_bytes / 2,
                                     .now = now};
    if (tb_divide_down(d, tb_divide_theirs(d), steal_last, &t))
        (void)tb_divide_down(d, tb_divide_ours(d), steal_last, &t);
    forget_rate(&d->sources[victim], now);
}

/* The fastest of those that were not asked yet in this turn. */
static uint32_t next_source(const struct tb_divide *d, uint32_t done)
{
    uint32_t best = TB_DIVIDE_NONE;
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++) {
        const struct tb_divide_source *s = &d->sources[i];
        if (!s->on || (done >> i & 1) != 0 || s->silent) continue;
        if (best == TB_DIVIDE_NONE || s->bytes_per_s > d->sources[best].bytes_per_s) best = i;
    }
    return best;
}

void tb_divide_step(struct tb_divide *d, tb_time_ns now)
{
    uint32_t done = 0;
    heed_sleep(d, now);
    tb_divide_count_came(d, now);
    look_at_all(d, now);
    look_in_hand(d, now);
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++)
        if (d->sources[i].on) share_again(d, i);
    for (uint32_t i; (i = next_source(d, done)) != TB_DIVIDE_NONE; done |= 1u << i) {
        give_all(d, i, now);
        steal(d, i, now);
    }
}
