/* divide.c - bitmaps of who has, who was given, and what came. Pure. */
#include "wan/divide.h"

#include <string.h>

#include "base/assert.h"
#include "base/bitmap.h"

#define ALIGN        16u
#define STANDS_STILL (TB_DIVIDE_SILENT + TB_DIVIDE_EVERY)
#define BITMAPS      (3u + 4u * TB_DIVIDE_SOURCES_MAX)

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
        for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++) {
            shard->of[i].has = carve(&at, bytes);
            shard->of[i].mine = carve(&at, bytes);
            shard->of[i].take = carve(&at, bytes);
            shard->of[i].told = carve(&at, bytes);
        }
    }
    d->start = d->chunks * start_65536 >> 16;
    d->share = d->chunks;
}

void tb_divide_lane(struct tb_divide *d, uint32_t lane, uint32_t lanes)
{
    TB_ASSERT(lane < lanes);
    if (d->chunks == 0) return;
    const uint64_t first = d->chunks * lane / lanes, end = d->chunks * (lane + 1) / lanes;
    d->start = (d->start + first) % d->chunks;
    d->share = end - first;
}

/* Of the set chunks of word w. */
static uint64_t bytes_of(const struct tb_divide_shard *shard, uint32_t w, uint64_t word)
{
    uint64_t bytes = 0;
    for (; word != 0; word &= word - 1)
        bytes += shard->place->manifest->chunks[w * 64 + (uint32_t)__builtin_ctzll(word)].bytes;
    return bytes;
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
static void take_back(struct tb_divide *d, uint32_t source, uint32_t s, uint32_t w, uint64_t word)
{
    struct tb_divide_shard *shard = &d->shards[s];
    word &= shard->of[source].mine[w];
    shard->of[source].mine[w] &= ~word;
    shard->of[source].take[w] &= ~word;
    shard->given[w] &= ~word;
    d->sources[source].given_bytes -= bytes_of(shard, w, word);
}

static void take_back_all(struct tb_divide *d, uint32_t source)
{
    for (uint32_t s = 0; s < d->shard_count; s++)
        for (uint32_t w = 0; w < word_count(d->shards[s].place); w++)
            take_back(d, source, s, w, UINT64_MAX);
}

void tb_divide_near(struct tb_divide *d, uint32_t source)
{
    d->sources[source].near = true;
}

void tb_divide_leave(struct tb_divide *d, uint32_t source)
{
    take_back_all(d, source);
    d->sources[source].on = false;
}

uint32_t tb_divide_count(const struct tb_divide *d)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++)
        count += d->sources[i].on;
    return count;
}

/* What another lane has by now does not come from far: what was asked for there and has not been sent is taken back. Only once, as
 * it is told: what a far source is given afterwards, because the lane brings it too slowly, stays there. */
static void take_back_far(struct tb_divide *d, uint32_t s, uint32_t w, uint64_t word)
{
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++)
        if (d->sources[i].on && !d->sources[i].near) take_back(d, i, s, w, word);
}

enum tb_status tb_divide_has(struct tb_divide *d, uint32_t source, uint32_t s, const struct tb_span *words)
{
    if (s >= d->shard_count) return TB_PEER_GARBLED;
    struct tb_divide_shard *shard = &d->shards[s];
    const enum tb_status status = tb_held_words_check(words, shard->place->manifest->chunk_count);
    if (status != TB_OK) return status;
    for (uint32_t i = 0; i < words->count / TB_HELD_WORD_BYTES; i++) {
        const struct tb_held_word word = tb_held_words_at(words, i);
        const uint64_t fresh = word.word & ~shard->of[source].has[word.index];
        shard->of[source].has[word.index] = word.word;
        if (d->sources[source].near && !d->sources[source].silent) take_back_far(d, s, word.index, fresh);
        take_back(d, source, s, word.index, ~word.word); /* what it lost it cannot send */
    }
    return TB_OK;
}

void tb_divide_rtt(struct tb_divide *d, uint32_t source, tb_time_ns rtt)
{
    d->sources[source].rtt = rtt;
}

/* ---- what came ---- */

static void count_word(struct tb_divide *d, struct tb_divide_shard *shard, uint32_t w, tb_time_ns now)
{
    const uint64_t held = __atomic_load_n(&shard->place->held[w], __ATOMIC_ACQUIRE);
    const uint64_t fresh = held & ~shard->seen[w];
    shard->seen[w] = held;
    if (fresh == 0) return;
    shard->given[w] &= ~fresh;
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++) {
        struct tb_divide_source *source = &d->sources[i];
        const uint64_t came = shard->of[i].mine[w] & fresh;
        if (came == 0) continue;
        const uint64_t bytes = bytes_of(shard, w, came);
        shard->of[i].mine[w] &= ~came;
        if (!source->near) shard->far[w] |= came;
        source->given_bytes -= bytes;
        source->came_bytes += bytes;
        source->moved_at = now;
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

/* A window of twice what came in the time that a word and its answer take: one that is too small for the path doubles. */
static void measure(struct tb_divide_source *s, tb_time_ns now)
{
    const tb_time_ns passed = tb_time_since(s->measured_at, now);
    if (passed < TB_DIVIDE_EVERY + s->rtt) return;
    if (s->came_bytes > 0) {
        const uint64_t rate = (uint64_t)((double)s->came_bytes * 1e9 / (double)passed);
        s->bytes_per_s = s->bytes_per_s == 0 ? rate : (s->bytes_per_s + rate) / 2;
        s->window_bytes = clamp(2 * s->came_bytes);
    }
    s->came_bytes = 0;
    s->measured_at = now;
}

/* ---- giving ---- */

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

static bool near_lives(const struct tb_divide *d, tb_time_ns now)
{
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++)
        if (d->sources[i].on && d->sources[i].near && !is_silent(&d->sources[i], now)) return true;
    return false;
}

/* Chunks of word w that this source could send and nobody was given. What is near does not come from far. */
static uint64_t free_word(const struct tb_divide *d, const struct tb_divide_shard *shard, uint32_t source,
                          uint32_t w, tb_time_ns now)
{
    uint64_t word = shard->of[source].has[w] & ~shard->seen[w] & ~shard->given[w];
    if (d->sources[source].near) return word;
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++) {
        const struct tb_divide_source *s = &d->sources[i];
        if (s->on && s->near && !is_silent(s, now)) word &= ~shard->of[i].has[w];
    }
    return word;
}

static void give(struct tb_divide *d, uint32_t source, uint32_t s, uint32_t k, tb_time_ns now)
{
    struct tb_divide_shard *shard = &d->shards[s];
    const uint64_t one = UINT64_C(1) << (k % 64);
    shard->of[source].mine[k / 64] |= one;
    shard->of[source].take[k / 64] |= one;
    shard->given[k / 64] |= one;
    if (d->sources[source].given_bytes == 0) d->sources[source].moved_at = now;
    d->sources[source].given_bytes += shard->place->manifest->chunks[k].bytes;
}

/* Chunks of word w that are in the range. */
static uint64_t in_range(uint64_t word, uint32_t w, struct tb_range range)
{
    if (w == range.first / 64) word &= UINT64_MAX << (range.first % 64);
    if (w == range.end / 64) word &= ~(UINT64_MAX << (range.end % 64));
    return word;
}

static bool may_get_more(const struct tb_divide *d, uint32_t source)
{
    return d->sources[source].given_bytes < d->sources[source].window_bytes;
}

/* Of the chunks of one shard, from the first on. */
static void give_up_to(struct tb_divide *d, uint32_t source, uint32_t s, struct tb_range range,
                       tb_time_ns now)
{
    for (uint32_t w = range.first / 64; w * 64 < range.end && may_get_more(d, source); w++) {
        uint64_t word = in_range(free_word(d, &d->shards[s], source, w, now), w, range);
        for (; word != 0 && may_get_more(d, source); word &= word - 1)
            give(d, source, s, w * 64 + (uint32_t)__builtin_ctzll(word), now);
    }
}

/* From the last back. */
static void give_down_to(struct tb_divide *d, uint32_t source, uint32_t s, struct tb_range range,
                         tb_time_ns now)
{
    for (uint32_t w = (range.end + 63) / 64; w-- > range.first / 64 && may_get_more(d, source);) {
        uint64_t word = in_range(free_word(d, &d->shards[s], source, w, now), w, range);
        while (word != 0 && may_get_more(d, source)) {
            const uint32_t bit = 63 - (uint32_t)__builtin_clzll(word);
            word &= ~(UINT64_C(1) << bit);
            give(d, source, s, w * 64 + bit, now);
        }
    }
}

/* Chunks of the version, counted through all shards. */
struct stretch {
    uint64_t first, end;
};

/* What of a stretch is in shard s, which begins at `before`. */
static struct tb_range of_shard(const struct tb_divide *d, uint32_t s, uint64_t before, struct stretch all)
{
    const uint64_t count = d->shards[s].place->manifest->chunk_count;
    const uint64_t first = all.first > before ? all.first - before : 0;
    const uint64_t end = all.end > before ? all.end - before : 0;
    const uint64_t until = end < count ? end : count;
    return (struct tb_range){(uint32_t)(first < until ? first : until), (uint32_t)until};
}

static void give_up(struct tb_divide *d, uint32_t source, struct stretch all, tb_time_ns now)
{
    uint64_t before = 0;
    for (uint32_t s = 0; s < d->shard_count && before < all.end; s++) {
        give_up_to(d, source, s, of_shard(d, s, before, all), now);
        before += d->shards[s].place->manifest->chunk_count;
    }
}

static void give_down(struct tb_divide *d, uint32_t source, struct stretch all, tb_time_ns now)
{
    uint64_t behind = d->chunks;
    for (uint32_t s = d->shard_count; s-- > 0 && behind > all.first;) {
        behind -= d->shards[s].place->manifest->chunk_count;
        give_down_to(d, source, s, of_shard(d, s, behind, all), now);
    }
}

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

static bool was_given_of(const struct tb_divide *d, uint32_t source, struct stretch all)
{
    uint64_t before = 0;
    for (uint32_t s = 0; s < d->shard_count && before < all.end; s++) {
        const struct tb_range range = of_shard(d, s, before, all);
        for (uint32_t w = range.first / 64; w * 64 < range.end; w++)
            if (in_range(d->shards[s].of[source].mine[w], w, range) != 0) return true;
        before += d->shards[s].place->manifest->chunk_count;
    }
    return false;
}

/* Chunks of word w that are not here, were given to nobody, and that no other lane has. */
static uint64_t lacking_word(const struct tb_divide *d, const struct tb_divide_shard *shard, uint32_t w)
{
    uint64_t word = ~(shard->seen[w] | shard->given[w]);
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++)
        if (d->sources[i].on && d->sources[i].near) word &= ~shard->of[i].has[w];
    return word;
}

/* Bytes of a stretch that a lane has, and not from here; with TB_DIVIDE_NONE, that are lacking. */
static uint64_t bytes_in(const struct tb_divide *d, uint32_t source, struct stretch all)
{
    uint64_t bytes = 0, before = 0;
    for (uint32_t s = 0; s < d->shard_count && before < all.end; s++) {
        const struct tb_divide_shard *shard = &d->shards[s];
        const struct tb_range range = of_shard(d, s, before, all);
        for (uint32_t w = range.first / 64; w * 64 < range.end; w++) {
            const uint64_t word = source == TB_DIVIDE_NONE ? lacking_word(d, shard, w)
                                                           : shard->of[source].has[w] & ~shard->far[w];
            bytes += bytes_of(shard, w, in_range(word, w, range));
        }
        before += shard->place->manifest->chunk_count;
    }
    return bytes;
}

/* How fast another lane gets on with what is not ours. */
static void watch_near(struct tb_divide *d, uint32_t source, struct around theirs, tb_time_ns now)
{
    struct tb_divide_source *s = &d->sources[source];
    const uint64_t bytes = bytes_in(d, source, theirs.one) + bytes_in(d, source, theirs.two);
    const tb_time_ns passed = tb_time_since(s->landed_at, now);
    if (bytes < s->landed_bytes) s->landed_bytes = bytes;
    if (bytes == s->landed_bytes && passed >= STANDS_STILL) s->landed_per_s = 0;
    if (bytes == s->landed_bytes || passed < TB_DIVIDE_EVERY) return;
    const uint64_t rate = (uint64_t)((double)(bytes - s->landed_bytes) * 1e9 / (double)passed);
    s->landed_per_s = s->landed_per_s == 0 ? rate : (s->landed_per_s + rate) / 2;
    s->landed_bytes = bytes;
    s->landed_at = now;
}

static uint64_t lacking(const struct tb_divide *d, struct around of)
{
    return bytes_in(d, TB_DIVIDE_NONE, of.one) + bytes_in(d, TB_DIVIDE_NONE, of.two);
}

/* So many bytes of their shares the other lanes land in a time; false: it is not known yet. */
static bool others_land(const struct tb_divide *d, tb_time_ns time, tb_time_ns now, double *bytes_out)
{
    double per_s = 0;
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++) {
        const struct tb_divide_source *s = &d->sources[i];
        if (!s->on || !s->near) continue;
        if (s->landed_per_s == 0 && tb_time_since(s->landed_at, now) < STANDS_STILL) return false;
        per_s += (double)s->landed_per_s;
    }
    *bytes_out = per_s * (double)time / 1e9;
    return true;
}

/* Another lane's share from far, from its end: it goes on from its beginning meanwhile. Half of what it has before it, and nothing
 * where it is done before our part would be here. */
static void help(struct tb_divide *d, uint32_t source, struct around theirs, tb_time_ns now)
{
    struct tb_divide_source *to = &d->sources[source];
    const uint64_t left = lacking(d, theirs), window = to->window_bytes;
    double soon = 0;
    if (!others_land(d, TB_DIVIDE_SILENT + 2 * to->rtt, now, &soon) || (double)left <= soon) return;
    if (to->given_bytes + left / 2 < window) to->window_bytes = to->given_bytes + left / 2 + 1;
    give_down(d, source, theirs.two, now);
    give_down(d, source, theirs.one, now);
    to->window_bytes = window;
}

/* Nothing of ours is to come from there, now or soon. */
static bool is_done(const struct tb_divide *d, uint32_t source, struct around ours, tb_time_ns now)
{
    if (was_given_of(d, source, ours.one) || was_given_of(d, source, ours.two)) return false;
    return lacking(d, ours) == 0 || tb_time_since(d->sources[source].moved_at, now) >= STANDS_STILL;
}

/* First what is our lane's. What is another's comes from far where that one is not there, or, once nothing of ours is to come from
 * there, to help it. */
static void give_all(struct tb_divide *d, uint32_t source, struct around theirs, tb_time_ns now)
{
    const struct around ours = around(d, d->start, d->share);
    give_up(d, source, ours.one, now);
    give_up(d, source, ours.two, now);
    if (d->sources[source].near || !near_lives(d, now)) {
        give_up(d, source, theirs.one, now);
        give_up(d, source, theirs.two, now);
    } else if (is_done(d, source, ours, now)) {
        help(d, source, theirs, now);
    }
}

/* The last of the victim's chunks that the thief has; it sends its first ones meanwhile. */
static bool steal_one(struct tb_divide *d, uint32_t victim, uint32_t thief, tb_time_ns now)
{
    for (uint32_t s = d->shard_count; s-- > 0;) {
        struct tb_divide_shard *shard = &d->shards[s];
        for (uint32_t w = word_count(shard->place); w-- > 0;) {
            const uint64_t word = shard->of[victim].mine[w] & shard->of[thief].has[w];
            if (word == 0) continue;
            const uint32_t bit = 63 - (uint32_t)__builtin_clzll(word);
            take_back(d, victim, s, w, UINT64_C(1) << bit);
            give(d, thief, s, w * 64 + bit, now);
            return true;
        }
    }
    return false;
}

static double left_s(const struct tb_divide_source *s)
{
    return (double)s->given_bytes / (double)(s->bytes_per_s > 0 ? s->bytes_per_s : 1);
}

/* Nothing is left to give: who is done takes half from whoever needs longest, if that is long enough to be worth a chunk that
 * comes twice. */
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
    const uint64_t half = d->sources[victim].given_bytes / 2;
    while (d->sources[victim].given_bytes > half && to->given_bytes < to->window_bytes)
        if (!steal_one(d, victim, thief, now)) return;
}

/* The fastest of those that were not asked yet in this step. */
static uint32_t next_source(const struct tb_divide *d, uint32_t done, tb_time_ns now)
{
    uint32_t best = TB_DIVIDE_NONE;
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++) {
        const struct tb_divide_source *s = &d->sources[i];
        if (!s->on || (done >> i & 1) != 0 || is_silent(s, now)) continue;
        if (best == TB_DIVIDE_NONE || s->bytes_per_s > d->sources[best].bytes_per_s) best = i;
    }
    return best;
}

void tb_divide_step(struct tb_divide *d, tb_time_ns now)
{
    uint32_t done = 0;
    const uint64_t next = d->chunks > 0 ? (d->start + d->share) % d->chunks : 0;
    const struct around theirs = around(d, next, d->chunks - d->share);
    count_all(d, now);
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++) {
        if (!d->sources[i].on) continue;
        measure(&d->sources[i], now);
        watch(d, i, now);
        d->sources[i].silent = is_silent(&d->sources[i], now);
        if (d->sources[i].near) watch_near(d, i, theirs, now);
    }
    for (uint32_t i; (i = next_source(d, done, now)) != TB_DIVIDE_NONE; done |= 1u << i) {
        give_all(d, i, theirs, now);
        steal(d, i, now);
    }
}

uint32_t tb_divide_news(struct tb_divide *d, uint32_t source, uint32_t *shard_out,
                        struct tb_held_word *words_out, uint32_t cap)
{
    for (uint32_t s = 0; s < d->shard_count; s++) {
        struct tb_divide_shard *shard = &d->shards[s];
        uint32_t count = 0;
        for (uint32_t w = 0; w < word_count(shard->place) && count < cap; w++) {
            if (shard->of[source].told[w] == shard->of[source].take[w]) continue;
            shard->of[source].told[w] = shard->of[source].take[w];
            words_out[count++] = (struct tb_held_word){w, shard->of[source].take[w]};
        }
        *shard_out = s;
        if (count > 0) return count;
    }
    return 0;
}
