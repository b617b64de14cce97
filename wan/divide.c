/* divide.c - bitmaps of who has, who was given, and what came. Pure. */
#include "wan/divide.h"

#include <string.h>

#include "base/assert.h"
#include "base/bitmap.h"

#define ALIGN        16u
#define LATE_TIMES   4
#define STANDS_STILL (TB_DIVIDE_SILENT + TB_DIVIDE_EVERY)
#define BITMAPS      (5u + 4u * TB_DIVIDE_SOURCES_MAX)

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static uint32_t word_count(const struct tb_place *place)
{
    return (uint32_t)TB_BITMAP_WORDS(place->manifest->chunk_count);
}

static size_t bitmap_bytes(const struct tb_place *place)
{
    return aligned(word_count(place) * sizeof(uint64_t));
}

size_t tb_divide_bytes_for(const struct tb_place *places, uint32_t shard_count)
{
    size_t bytes = aligned(shard_count * sizeof(struct tb_divide_shard));
    for (uint32_t s = 0; s < shard_count; s++)
        bytes += BITMAPS * bitmap_bytes(&places[s]);
    return bytes;
}

static uint64_t *carve(uint8_t **at, size_t bytes)
{
    uint64_t *words = (uint64_t *)(void *)*at;
    *at += bytes;
    return words;
}

/* ---- words of chunks ---- */

/* A word of a shard's bitmaps, and which of its bits are meant. */
struct at {
    struct tb_divide_shard *shard;
    uint32_t word;
    uint64_t mask;
};

static uint64_t bytes_of(const struct tb_divide_shard *shard, uint32_t w, uint64_t word)
{
    uint64_t bytes = 0;
    for (; word != 0; word &= word - 1)
        bytes += shard->place->manifest->chunks[w * 64 + (uint32_t)__builtin_ctzll(word)].bytes;
    return bytes;
}

/* Bits of word w that stand for chunks and are in the range. */
static uint64_t in_range(uint32_t w, struct tb_range range)
{
    uint64_t word = UINT64_MAX;
    if (w == range.first / 64) word &= UINT64_MAX << (range.first % 64);
    if (w == range.end / 64) word &= ~(UINT64_MAX << (range.end % 64));
    return word;
}

static uint64_t all_of(const struct tb_divide_shard *shard, uint32_t w)
{
    return in_range(w, (struct tb_range){0, shard->place->manifest->chunk_count});
}

/* Chunks that are not here, were given to nobody, and that no other lane has. */
static uint64_t lacking_word(const struct tb_divide_shard *shard, uint32_t w)
{
    return all_of(shard, w) & ~(shard->seen[w] | shard->given[w] | shard->near[w]);
}

/* What is lacking is counted as it changes, for a version may have millions of chunks: who changed word w says what lacked before. */
static void recount(struct tb_divide *d, const struct tb_divide_shard *shard, uint32_t w, uint64_t before)
{
    const uint64_t after = lacking_word(shard, w), ours = shard->ours[w];
    if (after == before) return;
    const uint64_t more = after & ~before, less = before & ~after;
    d->ours_lacking_bytes += bytes_of(shard, w, more & ours) - bytes_of(shard, w, less & ours);
    d->theirs_lacking_bytes += bytes_of(shard, w, more & ~ours) - bytes_of(shard, w, less & ~ours);
}

/* ---- the order in which chunks are given ---- */

/* Chunks of the version, counted through all shards. */
struct stretch {
    uint64_t first, end;
};

/* `count` chunks from `first` on and around: of the two stretches the second may be empty. */
struct around {
    struct stretch one, two;
};

static struct around around(const struct tb_divide *d, uint64_t first, uint64_t count)
{
    const uint64_t end = first + count;
    if (end <= d->chunks) return (struct around){{first, end}, {0, 0}};
    return (struct around){{first, d->chunks}, {0, end - d->chunks}};
}

/* Our lane's share; without lanes, all. */
static struct around ours(const struct tb_divide *d)
{
    return around(d, d->start, d->share);
}

static struct around theirs(const struct tb_divide *d)
{
    return around(d, d->chunks > 0 ? (d->start + d->share) % d->chunks : 0, d->chunks - d->share);
}

/* What of a stretch is in shard s, which begins at `before`. */
static struct tb_range of_shard(const struct tb_divide *d, uint32_t s, uint64_t before, struct stretch all)
{
    const uint64_t count = d->shards[s].place->manifest->chunk_count;
    const uint64_t first = all.first > before ? all.first - before : 0;
    const uint64_t end = all.end > before ? all.end - before : 0;
    const uint64_t until = end < count ? end : count;
    return (struct tb_range){(uint32_t)(first < until ? first : until), (uint32_t)until};
}

/* What is done with words of chunks. */
struct task {
    uint32_t source, victim;
    uint64_t most_bytes;  /* the source is given */
    uint64_t least_bytes; /* the victim keeps */
    tb_time_ns now;
};
typedef bool word_fn(struct tb_divide *d, const struct at *at, const struct task *t); /* false: enough */

/* From the first on. True: to the end. */
static bool walk_up(struct tb_divide *d, struct stretch all, word_fn *fn, const struct task *t)
{
    uint64_t before = 0;
    for (uint32_t s = 0; s < d->shard_count && before < all.end; s++) {
        const struct tb_range range = of_shard(d, s, before, all);
        for (uint32_t w = range.first / 64; w * 64 < range.end; w++)
            if (!fn(d, &(struct at){&d->shards[s], w, in_range(w, range)}, t)) return false;
        before += d->shards[s].place->manifest->chunk_count;
    }
    return true;
}

/* From the last back. */
static bool walk_down(struct tb_divide *d, struct stretch all, word_fn *fn, const struct task *t)
{
    uint64_t behind = d->chunks;
    for (uint32_t s = d->shard_count; s-- > 0 && behind > all.first;) {
        behind -= d->shards[s].place->manifest->chunk_count;
        const struct tb_range range = of_shard(d, s, behind, all);
        for (uint32_t w = (range.end + 63) / 64; w-- > range.first / 64;)
            if (!fn(d, &(struct at){&d->shards[s], w, in_range(w, range)}, t)) return false;
    }
    return true;
}

static bool up(struct tb_divide *d, struct around all, word_fn *fn, const struct task *t)
{
    return walk_up(d, all.one, fn, t) && walk_up(d, all.two, fn, t);
}

static bool down(struct tb_divide *d, struct around all, word_fn *fn, const struct task *t)
{
    return walk_down(d, all.two, fn, t) && walk_down(d, all.one, fn, t);
}

static bool set_ours(struct tb_divide *d, const struct at *at, const struct task *t)
{
    (void)d, (void)t;
    at->shard->ours[at->word] |= at->mask;
    return true;
}

static void begin(struct tb_divide *d)
{
    const struct task none = {0};
    d->ours_lacking_bytes = d->theirs_lacking_bytes = 0;
    d->freed = 1;
    for (uint32_t s = 0; s < d->shard_count; s++)
        memset(d->shards[s].ours, 0, bitmap_bytes(d->shards[s].place));
    (void)up(d, ours(d), set_ours, &none);
    for (uint32_t s = 0; s < d->shard_count; s++)
        for (uint32_t w = 0; w < word_count(d->shards[s].place); w++)
            recount(d, &d->shards[s], w, 0);
}

void tb_divide_init(struct tb_divide *d, const struct tb_place *places, uint32_t shard_count,
                    uint16_t start_65536, void *memory)
{
    uint8_t *at = memory;
    memset(d, 0, sizeof *d);
    memset(memory, 0, tb_divide_bytes_for(places, shard_count));
    d->shards = memory;
    d->shard_count = shard_count;
    at += aligned(shard_count * sizeof(struct tb_divide_shard));
    for (uint32_t s = 0; s < shard_count; s++) {
        struct tb_divide_shard *shard = &d->shards[s];
        const size_t bytes = bitmap_bytes(&places[s]);
        d->chunks += places[s].manifest->chunk_count;
        shard->place = &places[s];
        shard->seen = carve(&at, bytes);
        shard->given = carve(&at, bytes);
        shard->far = carve(&at, bytes);
        shard->near = carve(&at, bytes);
        shard->ours = carve(&at, bytes);
        for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++) {
            shard->of[i].has = carve(&at, bytes);
            shard->of[i].mine = carve(&at, bytes);
            shard->of[i].take = carve(&at, bytes);
            shard->of[i].told = carve(&at, bytes);
        }
    }
    d->start = d->chunks * start_65536 >> 16;
    d->share = d->chunks;
    begin(d);
}

static uint64_t bytes_before(const struct tb_divide *d, uint64_t chunk)
{
    uint64_t k = 0, bytes = 0;
    for (uint32_t s = 0; s < d->shard_count; s++)
        for (uint32_t i = 0; i < d->shards[s].place->manifest->chunk_count && k < chunk; i++, k++)
            bytes += d->shards[s].place->manifest->chunks[i].bytes;
    return bytes;
}

/* The first chunk before which there are so many bytes. */
static uint64_t chunk_after(const struct tb_divide *d, uint64_t bytes)
{
    uint64_t k = 0, before = 0;
    for (uint32_t s = 0; s < d->shard_count; s++)
        for (uint32_t i = 0; i < d->shards[s].place->manifest->chunk_count && before < bytes; i++, k++)
            before += d->shards[s].place->manifest->chunks[i].bytes;
    return k;
}

/* How many chunks from the start on are the shares of lanes before this one. */
static uint64_t before_lane(const struct tb_divide *d, uint64_t total, uint32_t lane, uint32_t lanes)
{
    const uint64_t from = bytes_before(d, d->start) + total / lanes * lane;
    if (lane == lanes) return d->chunks;
    return from < total ? chunk_after(d, from) - d->start
                        : d->chunks - d->start + chunk_after(d, from - total);
}

void tb_divide_lane(struct tb_divide *d, uint32_t lane, uint32_t lanes)
{
    TB_ASSERT(lane < lanes);
    if (d->chunks == 0) return;
    const uint64_t total = d->ours_lacking_bytes; /* all of it, as yet */
    const uint64_t first = before_lane(d, total, lane, lanes);
    d->share = before_lane(d, total, lane + 1, lanes) - first;
    d->start = (d->start + first) % d->chunks;
    begin(d);
}

/* ---- sources ---- */

uint32_t tb_divide_join(struct tb_divide *d, tb_time_ns now)
{
    uint32_t i = 0;
    while (i < TB_DIVIDE_SOURCES_MAX && d->sources[i].on)
        i++;
    if (i == TB_DIVIDE_SOURCES_MAX) return TB_DIVIDE_NONE;
    d->sources[i] = (struct tb_divide_source){.on = true,
                                              .window_bytes = TB_DIVIDE_BYTES_MIN,
                                              .measured_at = now,
                                              .moved_at = now,
                                              .came_at = now,
                                              .landed_at = now};
    for (uint32_t s = 0; s < d->shard_count; s++) {
        const size_t bytes = bitmap_bytes(d->shards[s].place);
        memset(d->shards[s].of[i].has, 0, bytes);
        memset(d->shards[s].of[i].take, 0, bytes);
        memset(d->shards[s].of[i].told, 0, bytes);
    }
    return i;
}

/* The chunks of `word` are nobody's again. */
static void take_back(struct tb_divide *d, uint32_t source, struct tb_divide_shard *shard, uint32_t w,
                      uint64_t word)
{
    struct tb_divide_source *from = &d->sources[source];
    const uint64_t before = lacking_word(shard, w);
    word &= shard->of[source].mine[w];
    if (word == 0) return;
    shard->of[source].mine[w] &= ~word;
    shard->of[source].take[w] &= ~word;
    shard->given[w] &= ~word;
    from->given_bytes -= bytes_of(shard, w, word);
    from->given_ours_bytes -= bytes_of(shard, w, word & shard->ours[w]);
    recount(d, shard, w, before);
    d->freed++;
}

static void take_back_all(struct tb_divide *d, uint32_t source)
{
    for (uint32_t s = 0; s < d->shard_count; s++)
        for (uint32_t w = 0; w < word_count(d->shards[s].place); w++)
            take_back(d, source, &d->shards[s], w, UINT64_MAX);
}

/* What other lanes have, and may be had from there now. */
static void see_near(struct tb_divide *d, struct tb_divide_shard *shard, uint32_t w)
{
    const uint64_t before = lacking_word(shard, w);
    shard->near[w] = 0;
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++) {
        const struct tb_divide_source *s = &d->sources[i];
        if (s->on && s->near && !s->silent) shard->near[w] |= shard->of[i].has[w];
    }
    recount(d, shard, w, before);
}

static void see_all_near(struct tb_divide *d)
{
    for (uint32_t s = 0; s < d->shard_count; s++)
        for (uint32_t w = 0; w < word_count(d->shards[s].place); w++)
            see_near(d, &d->shards[s], w);
    d->freed++;
}

void tb_divide_near(struct tb_divide *d, uint32_t source)
{
    d->sources[source].near = true;
    d->freed++;
}

void tb_divide_leave(struct tb_divide *d, uint32_t source)
{
    take_back_all(d, source);
    d->sources[source].on = false;
    if (d->sources[source].near) see_all_near(d);
}

uint32_t tb_divide_count(const struct tb_divide *d)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++)
        count += d->sources[i].on;
    return count;
}

/* Chunks of other lanes' shares that a lane has, and not from here. */
static uint64_t landed_word(const struct tb_divide_shard *shard, uint32_t source, uint32_t w)
{
    return shard->of[source].has[w] & ~shard->far[w] & ~shard->ours[w];
}

/* What another lane has by now does not come from far: what was asked for there and has not been sent is taken back. Only once, as
 * it is told: what a far source is given afterwards, because the lane brings it too slowly, stays there. */
static void near_has(struct tb_divide *d, uint32_t source, struct tb_divide_shard *shard,
                     const struct tb_held_word *word)
{
    struct tb_divide_source *from = &d->sources[source];
    const uint64_t fresh = word->word & ~shard->of[source].has[word->index];
    from->landed_bytes -= bytes_of(shard, word->index, landed_word(shard, source, word->index));
    shard->of[source].has[word->index] = word->word;
    from->landed_bytes += bytes_of(shard, word->index, landed_word(shard, source, word->index));
    see_near(d, shard, word->index);
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX && !from->silent; i++)
        if (d->sources[i].on && !d->sources[i].near) take_back(d, i, shard, word->index, fresh);
}

enum tb_status tb_divide_has(struct tb_divide *d, uint32_t source, uint32_t s, const struct tb_span *words)
{
    if (s >= d->shard_count) return TB_PEER_GARBLED;
    struct tb_divide_shard *shard = &d->shards[s];
    const enum tb_status status = tb_held_words_check(words, shard->place->manifest->chunk_count);
    if (status != TB_OK) return status;
    for (uint32_t i = 0; i < words->count / TB_HELD_WORD_BYTES; i++) {
        const struct tb_held_word word = tb_held_words_at(words, i);
        if (d->sources[source].near)
            near_has(d, source, shard, &word);
        else
            shard->of[source].has[word.index] = word.word;
        take_back(d, source, shard, word.index, ~word.word); /* what it lost it cannot send */
    }
    d->freed++;
    return TB_OK;
}

void tb_divide_rtt(struct tb_divide *d, uint32_t source, tb_time_ns rtt)
{
    d->sources[source].rtt = rtt;
}

void tb_divide_received(struct tb_divide *d, uint32_t source, uint64_t bytes, tb_time_ns now)
{
    struct tb_divide_source *from = &d->sources[source];
    if (bytes != from->received_bytes) from->moved_at = now;
    from->received_bytes = bytes;
}

/* ---- what came ---- */

/* Another lane that has one of these got it from here. */
static void came_from_far(struct tb_divide *d, struct tb_divide_shard *shard, uint32_t w, uint64_t came)
{
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++)
        if (d->sources[i].on && d->sources[i].near)
            d->sources[i].landed_bytes -= bytes_of(shard, w, landed_word(shard, i, w) & came);
    shard->far[w] |= came;
}

static void came_from(struct tb_divide *d, uint32_t source, struct tb_divide_shard *shard, uint32_t w,
                      uint64_t came)
{
    struct tb_divide_source *from = &d->sources[source];
    const uint64_t bytes = bytes_of(shard, w, came);
    shard->of[source].mine[w] &= ~came;
    if (!from->near) came_from_far(d, shard, w, came);
    from->given_bytes -= bytes;
    from->given_ours_bytes -= bytes_of(shard, w, came & shard->ours[w]);
    from->came_bytes += bytes;
}

static void count_word(struct tb_divide *d, struct tb_divide_shard *shard, uint32_t w, tb_time_ns now)
{
    const uint64_t held = __atomic_load_n(&shard->place->held[w], __ATOMIC_ACQUIRE);
    if (held == shard->seen[w]) return;
    const uint64_t fresh = held & ~shard->seen[w], before = lacking_word(shard, w);
    if ((shard->seen[w] & ~held) != 0) d->freed++;
    shard->seen[w] = held;
    shard->given[w] &= ~fresh;
    recount(d, shard, w, before);
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++) {
        const uint64_t came = shard->of[i].mine[w] & fresh;
        if (came == 0) continue;
        came_from(d, i, shard, w, came);
        d->sources[i].moved_at = d->sources[i].came_at = now;
    }
}

static void count_all(struct tb_divide *d, tb_time_ns now)
{
    for (uint32_t s = 0; s < d->shard_count; s++)
        for (uint32_t w = 0; w < word_count(d->shards[s].place); w++)
            count_word(d, &d->shards[s], w, now);
}

static uint64_t clamp(uint64_t bytes)
{
    if (bytes < TB_DIVIDE_BYTES_MIN) return TB_DIVIDE_BYTES_MIN;
    return bytes < TB_DIVIDE_BYTES_MAX ? bytes : TB_DIVIDE_BYTES_MAX;
}

/* A window of twice what came in the time that a word and its answer take: one that is too small for the path doubles, as soon as all of
 * it came. */
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
}

/* At the rate that it had, all that it was given would be here: it has become slower, whatever bytes still come. */
static void doubt(struct tb_divide_source *s, tb_time_ns now)
{
    const tb_time_ns waited = tb_time_since(s->came_at, now);
    if (s->given_bytes == 0 || waited < TB_DIVIDE_EVERY + s->rtt) return;
    const uint64_t most = 1 + (uint64_t)((double)s->given_bytes * 1e9 / (double)waited);
    if (s->bytes_per_s > most) s->bytes_per_s = most;
}

/* How fast another lane gets on with what is not ours. */
static void measure_near(struct tb_divide_source *s, tb_time_ns now)
{
    const tb_time_ns passed = tb_time_since(s->landed_at, now);
    if (s->landed_bytes < s->landed_then_bytes) s->landed_then_bytes = s->landed_bytes;
    const uint64_t bytes = s->landed_bytes - s->landed_then_bytes;
    if (bytes == 0 && passed >= STANDS_STILL) s->landed_per_s = 0;
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

static bool another_may(const struct tb_divide *d, uint32_t source, tb_time_ns now)
{
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++)
        if (i != source && d->sources[i].on && !is_silent(&d->sources[i], now)) return true;
    return false;
}

/* Nothing came of what it was given: others get it, and it is tried again later. */
static void watch(struct tb_divide *d, uint32_t source, tb_time_ns now)
{
    struct tb_divide_source *s = &d->sources[source];
    if (s->given_bytes == 0 || tb_time_since(s->moved_at, now) < TB_DIVIDE_SILENT + 2 * s->rtt) return;
    if (!another_may(d, source, now)) return;
    take_back_all(d, source);
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
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++)
        d->sources[i].moved_at = tb_time_min(d->sources[i].moved_at + slept, now);
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++)
        d->sources[i].came_at = tb_time_min(d->sources[i].came_at + slept, now);
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
    if (turned) see_all_near(d);
}

static uint32_t near_count(const struct tb_divide *d)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++)
        count += d->sources[i].on && d->sources[i].near && !d->sources[i].silent;
    return count;
}

/* ---- giving ---- */

/* Chunks that this source could send and nobody was given. What is near does not come from far. */
static uint64_t free_word(const struct tb_divide *d, uint32_t source, const struct at *at)
{
    const struct tb_divide_shard *shard = at->shard;
    const uint64_t word =
        at->mask & shard->of[source].has[at->word] & ~shard->seen[at->word] & ~shard->given[at->word];
    return d->sources[source].near ? word : word & ~shard->near[at->word];
}

static void give(struct tb_divide *d, const struct at *at, uint64_t word, const struct task *t)
{
    struct tb_divide_shard *shard = at->shard;
    struct tb_divide_source *to = &d->sources[t->source];
    const uint64_t before = lacking_word(shard, at->word);
    shard->of[t->source].mine[at->word] |= word;
    shard->of[t->source].take[at->word] |= word;
    shard->given[at->word] |= word;
    if (to->given_bytes == 0) to->moved_at = to->came_at = t->now;
    to->given_bytes += bytes_of(shard, at->word, word);
    to->given_ours_bytes += bytes_of(shard, at->word, word & shard->ours[at->word]);
    recount(d, shard, at->word, before);
}

static bool may_get_more(const struct tb_divide *d, const struct task *t)
{
    return d->sources[t->source].given_bytes < t->most_bytes;
}

static uint64_t first_bit(uint64_t word)
{
    return word & ~(word - 1);
}

static uint64_t last_bit(uint64_t word)
{
    return UINT64_C(1) << (63 - __builtin_clzll(word));
}

static bool give_up(struct tb_divide *d, const struct at *at, const struct task *t)
{
    uint64_t word = free_word(d, t->source, at);
    if (word == 0) return may_get_more(d, t);
    if (d->sources[t->source].given_bytes + bytes_of(at->shard, at->word, word) < t->most_bytes) {
        give(d, at, word, t);
        return true;
    }
    for (; word != 0 && may_get_more(d, t); word &= word - 1)
        give(d, at, first_bit(word), t);
    return may_get_more(d, t);
}

static bool give_down(struct tb_divide *d, const struct at *at, const struct task *t)
{
    uint64_t word = free_word(d, t->source, at);
    for (; word != 0 && may_get_more(d, t); word &= ~last_bit(word))
        give(d, at, last_bit(word), t);
    return may_get_more(d, t);
}

/* No other site sends: what is our lane's is its, all of it, and the path is never without work. */
static bool alone_far(const struct tb_divide *d, uint32_t source)
{
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++)
        if (d->sources[i].on && d->sources[i].near == (i == source)) return false;
    return true;
}

static bool take_last(struct tb_divide *d, const struct at *at, const struct task *t)
{
    const struct tb_divide_source *from = &d->sources[t->victim];
    uint64_t word = at->shard->of[t->victim].mine[at->word] & at->mask;
    for (; word != 0 && from->given_bytes > t->least_bytes; word &= ~last_bit(word))
        take_back(d, t->victim, at->shard, at->word, last_bit(word));
    return from->given_bytes > t->least_bytes;
}

/* Another site came: what was given to this one because it was alone is divided. */
static void share_again(struct tb_divide *d, uint32_t source)
{
    struct tb_divide_source *s = &d->sources[source];
    const struct task t = {.victim = source, .least_bytes = s->window_bytes};
    if (!s->whole || alone_far(d, source)) return;
    s->whole = false;
    if (s->given_bytes > s->window_bytes && down(d, theirs(d), take_last, &t))
        (void)down(d, ours(d), take_last, &t);
}

/* Chunks in whose middle streams are, of those that far sources were given: what another lane has in hand and does not hold is as much,
 * for it has as many streams. */
static bool add_in_hand(struct tb_divide *d, const struct at *at, const struct task *t)
{
    (void)t;
    const struct tb_divide_shard *shard = at->shard;
    const uint64_t claimed = __atomic_load_n(&shard->place->claimed[at->word], __ATOMIC_RELAXED) & at->mask;
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX && claimed != 0; i++)
        if (!d->sources[i].near)
            d->in_hand_now_bytes += bytes_of(shard, at->word, claimed & shard->of[i].mine[at->word]);
    return true;
}

static void look_in_hand(struct tb_divide *d, tb_time_ns now)
{
    const struct task none = {0};
    if (near_count(d) == 0 || tb_time_since(d->in_hand_at, now) < TB_DIVIDE_EVERY) return;
    d->in_hand_at = now;
    d->in_hand_now_bytes = 0;
    (void)up(d, ours(d), add_in_hand, &none);
    if (d->in_hand_now_bytes > d->in_hand_bytes) d->in_hand_bytes = d->in_hand_now_bytes;
}

/* So many bytes of their shares the other lanes land in a second; false: it is not known yet. */
static bool others_land(const struct tb_divide *d, tb_time_ns now, double *per_s_out)
{
    *per_s_out = 0;
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++) {
        const struct tb_divide_source *s = &d->sources[i];
        if (!s->on || !s->near) continue;
        if (s->landed_per_s == 0 && tb_time_since(s->landed_at, now) < STANDS_STILL) return false;
        *per_s_out += (double)s->landed_per_s;
    }
    return true;
}

/* Of what the others lack, what they have begun before a part that we ask for now is here, and what they have in hand by now, which would
 * come twice; but not that where they need several times as long for it as we do. */
static double left_to_others(const struct tb_divide *d, double theirs_per_s, double delay_s)
{
    const double in_hand = (double)d->in_hand_bytes * near_count(d);
    const bool late = in_hand > LATE_TIMES * theirs_per_s * delay_s;
    return theirs_per_s * delay_s + (late ? 0 : in_hand);
}

/* Another lane's share from far, from its end: it goes on from its beginning meanwhile. So much that both are done at once; nothing
 * where it is done before our part would be here. */
static void help(struct tb_divide *d, uint32_t source, tb_time_ns now)
{
    const struct tb_divide_source *to = &d->sources[source];
    const double ours_per_s = (double)to->bytes_per_s;
    const double hand_s = to->bytes_per_s > 0 ? (double)d->in_hand_bytes / ours_per_s : 0;
    double theirs_per_s = 0;
    if (d->theirs_lacking_bytes == 0 || !others_land(d, now, &theirs_per_s)) return;
    const double delay_s = hand_s + 1e-9 * (double)(TB_DIVIDE_EVERY + 2 * to->rtt);
    const double left = (double)d->theirs_lacking_bytes - left_to_others(d, theirs_per_s, delay_s);
    const double more = to->bytes_per_s == 0 ? left / 2
                                             : (left * ours_per_s - (double)to->given_bytes * theirs_per_s) /
                                                   (ours_per_s + theirs_per_s);
    if (more <= 0) return;
    const uint64_t most = to->given_bytes + (uint64_t)more + 1;
    const struct task t = {
        .source = source, .most_bytes = most < to->window_bytes ? most : to->window_bytes, .now = now};
    if (may_get_more(d, &t)) (void)down(d, theirs(d), give_down, &t);
}

/* Nothing of ours is to come from there, now or soon. */
static bool is_done(const struct tb_divide *d, uint32_t source, tb_time_ns now)
{
    const struct tb_divide_source *s = &d->sources[source];
    if (s->given_ours_bytes > 0) return false;
    return d->ours_lacking_bytes == 0 || tb_time_since(s->moved_at, now) >= STANDS_STILL;
}

/* First what is our lane's. What is another's comes from far where that one is not there. True: as much as it may have is free, and
 * given. */
static bool give_in_order(struct tb_divide *d, uint32_t source, tb_time_ns now)
{
    struct tb_divide_source *to = &d->sources[source];
    const bool alone = alone_far(d, source);
    const struct task t = {.source = source, .most_bytes = to->window_bytes, .now = now};
    const struct task all = {.source = source, .most_bytes = UINT64_MAX, .now = now};
    to->whole |= alone;
    if ((to->near || d->ours_lacking_bytes > 0) && !up(d, ours(d), give_up, alone ? &all : &t)) return true;
    return (to->near || near_count(d) == 0) && !up(d, theirs(d), give_up, &t);
}

static void give_all(struct tb_divide *d, uint32_t source, tb_time_ns now)
{
    struct tb_divide_source *to = &d->sources[source];
    if (to->nothing_at != d->freed && !give_in_order(d, source, now)) to->nothing_at = d->freed;
    if (!to->near && near_count(d) > 0 && is_done(d, source, now)) help(d, source, now);
}

static bool steal_last(struct tb_divide *d, const struct at *at, const struct task *t)
{
    const struct tb_divide_source *from = &d->sources[t->victim];
    uint64_t word =
        at->shard->of[t->victim].mine[at->word] & at->shard->of[t->source].has[at->word] & at->mask;
    for (; word != 0 && from->given_bytes > t->least_bytes && may_get_more(d, t); word &= ~last_bit(word)) {
        take_back(d, t->victim, at->shard, at->word, last_bit(word));
        give(d, at, last_bit(word), t);
    }
    return from->given_bytes > t->least_bytes && may_get_more(d, t);
}

/* All of it went to others, for no chunk came: as if it were new, until one comes. */
static void forget_rate(struct tb_divide_source *s, tb_time_ns now)
{
    if (s->given_bytes > 0 || tb_time_since(s->came_at, now) < TB_DIVIDE_SILENT + 2 * s->rtt) return;
    s->window_bytes = TB_DIVIDE_BYTES_MIN;
    s->bytes_per_s = 0;
}

static double left_s(const struct tb_divide_source *s)
{
    return (double)s->given_bytes / (double)(s->bytes_per_s > 0 ? s->bytes_per_s : 1);
}

/* Nothing is left to give: who is done takes half from whoever needs longest, the last of it, if that is long enough to be worth a
 * chunk that comes twice. */
static void steal(struct tb_divide *d, uint32_t thief, tb_time_ns now)
{
    const struct tb_divide_source *to = &d->sources[thief];
    uint32_t victim = TB_DIVIDE_NONE;
    if (to->given_bytes > 0 || to->bytes_per_s == 0) return;
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++) {
        const struct tb_divide_source *s = &d->sources[i];
        if (i == thief || !s->on || s->given_bytes == 0) continue;
        if (left_s(s) < 1.0 + 2e-9 * (double)(s->rtt + to->rtt)) continue;
        if (victim == TB_DIVIDE_NONE || left_s(s) > left_s(&d->sources[victim])) victim = i;
    }
    if (victim == TB_DIVIDE_NONE) return;
    const struct task t = {.source = thief,
                           .victim = victim,
                           .most_bytes = to->window_bytes,
                           .least_bytes = d->sources[victim].given_bytes / 2,
                           .now = now};
    if (down(d, theirs(d), steal_last, &t)) (void)down(d, ours(d), steal_last, &t);
    forget_rate(&d->sources[victim], now);
}

/* The fastest of those that were not asked yet in this step. */
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
    count_all(d, now);
    look_at_all(d, now);
    look_in_hand(d, now);
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++)
        if (d->sources[i].on) share_again(d, i);
    for (uint32_t i; (i = next_source(d, done)) != TB_DIVIDE_NONE; done |= 1u << i) {
        give_all(d, i, now);
        steal(d, i, now);
    }
}

/* ---- what the sources are told ---- */

static uint32_t news_of(struct tb_divide_shard *shard, uint32_t source, struct tb_range words,
                        struct tb_held_word *words_out, uint32_t cap)
{
    uint32_t count = 0;
    for (uint32_t w = words.first; w < words.end && count < cap; w++) {
        if (shard->of[source].told[w] == shard->of[source].take[w]) continue;
        shard->of[source].told[w] = shard->of[source].take[w];
        words_out[count++] = (struct tb_held_word){w, shard->of[source].take[w]};
    }
    return count;
}

/* From where our share begins, and around: a source sends first what it is told of first. */
uint32_t tb_divide_news(struct tb_divide *d, uint32_t source, uint32_t *shard_out,
                        struct tb_held_word *words_out, uint32_t cap)
{
    uint32_t first = 0;
    uint64_t start = d->start;
    while (first + 1 < d->shard_count && start >= d->shards[first].place->manifest->chunk_count)
        start -= d->shards[first++].place->manifest->chunk_count;
    for (uint32_t i = 0; i <= d->shard_count && d->shard_count > 0; i++) {
        const uint32_t s = (first + i) % d->shard_count, at = (uint32_t)start / 64;
        const struct tb_range words = {i == 0 ? at : 0,
                                       i == d->shard_count ? at : word_count(d->shards[s].place)};
        const uint32_t count = news_of(&d->shards[s], source, words, words_out, cap);
        *shard_out = s;
        if (count > 0) return count;
    }
    return 0;
}
