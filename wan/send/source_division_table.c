/* source_division_table.c - bitmaps of holders, of given chunks, and of those that came, and the
 * order in which chunks are given. Pure. */
#include "wan/send/source_division_table.h"

#include <string.h>

#include "base/assert.h"
#include "base/bitmap.h"

#define ALIGN   16u
#define BITMAPS (6u + 4u * TB_DIVIDE_SOURCES_MAX)

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

uint64_t tb_divide_bytes_of(const struct tb_divide_shard *shard, uint32_t w, uint64_t word)
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

/* Lacking bytes are counted as they change, for a version may have millions of chunks. The caller,
 * which changed word w, says which chunks lacked before. */
static void recount(struct tb_divide *d, const struct tb_divide_shard *shard, uint32_t w, uint64_t before)
{
    const uint64_t after = lacking_word(shard, w), ours = shard->ours[w];
    if (after == before) return;
    const uint64_t more = after & ~before, less = before & ~after;
    TB_ASSERT(d->ours_lacking_bytes >= tb_divide_bytes_of(shard, w, less & ours));
    TB_ASSERT(d->theirs_lacking_bytes >= tb_divide_bytes_of(shard, w, less & ~ours));
    d->ours_lacking_bytes +=
        tb_divide_bytes_of(shard, w, more & ours) - tb_divide_bytes_of(shard, w, less & ours);
    d->theirs_lacking_bytes +=
        tb_divide_bytes_of(shard, w, more & ~ours) - tb_divide_bytes_of(shard, w, less & ~ours);
}

/* ---- the order in which chunks are given ---- */

static struct tb_divide_around around(const struct tb_divide *d, uint64_t first, uint64_t count)
{
    TB_ASSERT(first <= d->chunks && count <= d->chunks);
    const uint64_t end = first + count;
    if (end <= d->chunks) return (struct tb_divide_around){{first, end}, {0, 0}};
    return (struct tb_divide_around){{first, d->chunks}, {0, end - d->chunks}};
}

struct tb_divide_around tb_divide_ours(const struct tb_divide *d)
{
    return around(d, d->start, d->share);
}

struct tb_divide_around tb_divide_theirs(const struct tb_divide *d)
{
    return around(d, d->chunks > 0 ? (d->start + d->share) % d->chunks : 0, d->chunks - d->share);
}

/* The part of a stretch that is in shard s, which begins at `before`. */
static struct tb_range of_shard(const struct tb_divide *d, uint32_t s, uint64_t before,
                                struct tb_divide_stretch all)
{
    const uint64_t count = d->shards[s].place->manifest->chunk_count;
    const uint64_t first = all.first > before ? all.first - before : 0;
    const uint64_t end = all.end > before ? all.end - before : 0;
    const uint64_t until = end < count ? end : count;
    return (struct tb_range){(uint32_t)(first < until ? first : until), (uint32_t)until};
}

/* From the first on. True: to the end. */
static bool walk_up(struct tb_divide *d, struct tb_divide_stretch all, tb_divide_word_fn *fn,
                    const struct tb_divide_task *t)
{
    uint64_t before = 0;
    for (uint32_t s = 0; s < d->shard_count && before < all.end; s++) {
        const struct tb_range range = of_shard(d, s, before, all);
        for (uint32_t w = range.first / 64; w * 64 < range.end; w++)
            if (!fn(d, &(struct tb_divide_at){&d->shards[s], w, in_range(w, range)}, t)) return false;
        before += d->shards[s].place->manifest->chunk_count;
    }
    return true;
}

/* From the last back. */
static bool walk_down(struct tb_divide *d, struct tb_divide_stretch all, tb_divide_word_fn *fn,
                      const struct tb_divide_task *t)
{
    uint64_t behind = d->chunks;
    for (uint32_t s = d->shard_count; s-- > 0 && behind > all.first;) {
        behind -= d->shards[s].place->manifest->chunk_count;
        const struct tb_range range = of_shard(d, s, behind, all);
        for (uint32_t w = (range.end + 63) / 64; w-- > range.first / 64;)
            if (!fn(d, &(struct tb_divide_at){&d->shards[s], w, in_range(w, range)}, t)) return false;
    }
    return true;
}

bool tb_divide_up(struct tb_divide *d, struct tb_divide_around all, tb_divide_word_fn *fn,
                  const struct tb_divide_task *t)
{
    return walk_up(d, all.one, fn, t) && walk_up(d, all.two, fn, t);
}

bool tb_divide_down(struct tb_divide *d, struct tb_divide_around all, tb_divide_word_fn *fn,
                    const struct tb_divide_task *t)
{
    return walk_down(d, all.two, fn, t) && walk_down(d, all.one, fn, t);
}

static bool set_ours(struct tb_divide *d, const struct tb_divide_at *at, const struct tb_divide_task *t)
{
    (void)d, (void)t;
    at->shard->ours[at->word] |= at->mask;
    return true;
}

static void begin(struct tb_divide *d)
{
    const struct tb_divide_task none = {0};
    d->ours_lacking_bytes = d->theirs_lacking_bytes = 0;
    d->freed = 1;
    for (uint32_t s = 0; s < d->shard_count; s++)
        memset(d->shards[s].ours, 0, bitmap_bytes(d->shards[s].place));
    (void)tb_divide_up(d, tb_divide_ours(d), set_ours, &none);
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
        shard->asked = carve(&at, bytes);
        for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++) {
            shard->of[i].has = carve(&at, bytes);
            shard->of[i].mine = carve(&at, bytes);
            shard->of[i].take = carve(&at, bytes);
            shard->of[i].told = carve(&at, bytes);
        }
    }
    TB_ASSERT(at == (uint8_t *)memory + tb_divide_bytes_for(places, shard_count));
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
    TB_ASSERT(tb_divide_count(d) == 0); /* before the first source joins */
    if (d->chunks == 0) return;
    const uint64_t total = d->ours_lacking_bytes; /* all of it, as yet */
    const uint64_t first = before_lane(d, total, lane, lanes);
    d->share = before_lane(d, total, lane + 1, lanes) - first;
    d->start = (d->start + first) % d->chunks;
    TB_ASSERT(d->share <= d->chunks && d->start < d->chunks);
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
                                              .landed_at = now,
                                              .heard_at = now,
                                              .known_at = now};
    for (uint32_t s = 0; s < d->shard_count; s++) {
        const size_t bytes = bitmap_bytes(d->shards[s].place);
        memset(d->shards[s].of[i].has, 0, bytes);
        memset(d->shards[s].of[i].take, 0, bytes);
        memset(d->shards[s].of[i].told, 0, bytes);
    }
    return i;
}

void tb_divide_take_back(struct tb_divide *d, uint32_t source, struct tb_divide_shard *shard, uint32_t w,
                         uint64_t word)
{
    TB_ASSERT(source < TB_DIVIDE_SOURCES_MAX);
    struct tb_divide_source *from = &d->sources[source];
    const uint64_t before = lacking_word(shard, w);
    word &= shard->of[source].mine[w];
    if (word == 0) return;
    TB_ASSERT((word & ~shard->given[w]) == 0 && from->given_bytes >= tb_divide_bytes_of(shard, w, word));
    shard->of[source].mine[w] &= ~word;
    shard->of[source].take[w] &= ~word;
    shard->given[w] &= ~word;
    from->given_bytes -= tb_divide_bytes_of(shard, w, word);
    from->given_ours_bytes -= tb_divide_bytes_of(shard, w, word & shard->ours[w]);
    recount(d, shard, w, before);
    d->freed++;
}

void tb_divide_take_back_all(struct tb_divide *d, uint32_t source)
{
    for (uint32_t s = 0; s < d->shard_count; s++)
        for (uint32_t w = 0; w < word_count(d->shards[s].place); w++)
            tb_divide_take_back(d, source, &d->shards[s], w, UINT64_MAX);
}

/* Chunks that other lanes have, and that may be had from there now. */
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

void tb_divide_see_all_near(struct tb_divide *d)
{
    for (uint32_t s = 0; s < d->shard_count; s++)
        for (uint32_t w = 0; w < word_count(d->shards[s].place); w++)
            see_near(d, &d->shards[s], w);
    d->freed++;
}

void tb_divide_near(struct tb_divide *d, uint32_t source)
{
    TB_ASSERT(source < TB_DIVIDE_SOURCES_MAX && d->sources[source].on);
    d->sources[source].near = true;
    d->freed++;
}

void tb_divide_leave(struct tb_divide *d, uint32_t source)
{
    TB_ASSERT(source < TB_DIVIDE_SOURCES_MAX && d->sources[source].on);
    tb_divide_take_back_all(d, source);
    d->sources[source].on = false;
    if (d->sources[source].near) tb_divide_see_all_near(d);
    TB_ASSERT(d->sources[source].given_bytes == 0);
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

/* Chunks that another lane has by now do not come from far: those that were asked for there and
 * not sent are taken back. Only once, as it is told: chunks that a far source is given afterwards,
 * because the lane brings them too slowly, stay there. */
static void near_has(struct tb_divide *d, uint32_t source, struct tb_divide_shard *shard,
                     const struct tb_held_word *word)
{
    TB_ASSERT(d->sources[source].near && word->index < word_count(shard->place));
    struct tb_divide_source *from = &d->sources[source];
    const uint64_t fresh = word->word & ~shard->of[source].has[word->index];
    from->landed_bytes -= tb_divide_bytes_of(shard, word->index, landed_word(shard, source, word->index));
    shard->of[source].has[word->index] = word->word;
    from->landed_bytes += tb_divide_bytes_of(shard, word->index, landed_word(shard, source, word->index));
    see_near(d, shard, word->index);
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX && !from->silent; i++)
        if (d->sources[i].on && !d->sources[i].near) tb_divide_take_back(d, i, shard, word->index, fresh);
}

enum tb_status tb_divide_has(struct tb_divide *d, uint32_t source, uint32_t s, const struct tb_span *words)
{
    TB_ASSERT(source < TB_DIVIDE_SOURCES_MAX && d->sources[source].on);
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
        /* A source cannot send a chunk that it lost. */
        tb_divide_take_back(d, source, shard, word.index, ~word.word);
    }
    d->freed++;
    return TB_OK;
}

void tb_divide_rtt(struct tb_divide *d, uint32_t source, tb_time_ns rtt)
{
    TB_ASSERT(source < TB_DIVIDE_SOURCES_MAX);
    d->sources[source].rtt = rtt;
}

void tb_divide_heard(struct tb_divide *d, uint32_t source, tb_time_ns heard_at)
{
    TB_ASSERT(source < TB_DIVIDE_SOURCES_MAX && d->sources[source].on);
    struct tb_divide_source *from = &d->sources[source];
    if (tb_time_since(from->heard_at, heard_at) < TB_DIVIDE_EVERY) return;
    from->known_at = from->heard_at;
    from->heard_at = heard_at;
}

void tb_divide_received(struct tb_divide *d, uint32_t source, uint64_t bytes, tb_time_ns now)
{
    TB_ASSERT(source < TB_DIVIDE_SOURCES_MAX);
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
            d->sources[i].landed_bytes -= tb_divide_bytes_of(shard, w, landed_word(shard, i, w) & came);
    shard->far[w] |= came;
}

static void came_from(struct tb_divide *d, uint32_t source, struct tb_divide_shard *shard, uint32_t w,
                      uint64_t came)
{
    struct tb_divide_source *from = &d->sources[source];
    const uint64_t bytes = tb_divide_bytes_of(shard, w, came);
    shard->of[source].mine[w] &= ~came;
    if (!from->near) came_from_far(d, shard, w, came);
    TB_ASSERT(from->given_bytes >= bytes);
    from->given_bytes -= bytes;
    from->given_ours_bytes -= tb_divide_bytes_of(shard, w, came & shard->ours[w]);
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

void tb_divide_count_came(struct tb_divide *d, tb_time_ns now)
{
    for (uint32_t s = 0; s < d->shard_count; s++)
        for (uint32_t w = 0; w < word_count(d->shards[s].place); w++)
            count_word(d, &d->shards[s], w, now);
}

/* ---- what is given ---- */

static void count_again(struct tb_divide_source *to, struct tb_divide_shard *shard, uint32_t w, uint64_t word)
{
    if (to->near) return;
    to->again_bytes += tb_divide_bytes_of(shard, w, word & (shard->asked[w] | ~shard->ours[w]));
    shard->asked[w] |= word;
}

void tb_divide_give(struct tb_divide *d, const struct tb_divide_at *at, uint64_t word,
                    const struct tb_divide_task *t)
{
    TB_ASSERT(at->word < word_count(at->shard->place) && word != 0);
    TB_ASSERT((word & at->shard->given[at->word]) == 0); /* never one chunk to two */
    TB_ASSERT(d->sources[t->source].on);
    struct tb_divide_shard *shard = at->shard;
    struct tb_divide_source *to = &d->sources[t->source];
    const uint64_t before = lacking_word(shard, at->word);
    shard->of[t->source].mine[at->word] |= word;
    shard->of[t->source].take[at->word] |= word;
    shard->given[at->word] |= word;
    if (to->given_bytes == 0) to->moved_at = to->came_at = to->busy_at = t->now;
    count_again(to, shard, at->word, word);
    to->given_bytes += tb_divide_bytes_of(shard, at->word, word);
    to->given_ours_bytes += tb_divide_bytes_of(shard, at->word, word & shard->ours[at->word]);
    recount(d, shard, at->word, before);
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
    TB_ASSERT(source < TB_DIVIDE_SOURCES_MAX);
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

/* ---- what holds between two calls ---- */

struct sums {
    uint64_t given, given_ours;
};

static void word_check(const struct tb_divide *d, const struct tb_divide_shard *shard, uint32_t w,
                       struct sums sums[TB_DIVIDE_SOURCES_MAX])
{
    uint64_t given = 0;
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++) {
        const uint64_t mine = shard->of[i].mine[w];
        TB_ASSERT((given & mine) == 0 && (d->sources[i].on || mine == 0)); /* one chunk, one source */
        sums[i].given += tb_divide_bytes_of(shard, w, mine);
        sums[i].given_ours += tb_divide_bytes_of(shard, w, mine & shard->ours[w]);
        given |= mine;
    }
    TB_ASSERT(given == shard->given[w]);
}

void tb_divide_check(const struct tb_divide *d)
{
    uint64_t ours = 0, theirs = 0;
    struct sums sums[TB_DIVIDE_SOURCES_MAX] = {0};
    TB_ASSERT(d->share <= d->chunks && (d->chunks == 0 || d->start < d->chunks));
    for (uint32_t s = 0; s < d->shard_count; s++) {
        const struct tb_divide_shard *shard = &d->shards[s];
        for (uint32_t w = 0; w < word_count(shard->place); w++) {
            word_check(d, shard, w, sums);
            ours += tb_divide_bytes_of(shard, w, lacking_word(shard, w) & shard->ours[w]);
            theirs += tb_divide_bytes_of(shard, w, lacking_word(shard, w) & ~shard->ours[w]);
        }
    }
    TB_ASSERT(ours == d->ours_lacking_bytes && theirs == d->theirs_lacking_bytes);
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++)
        TB_ASSERT(sums[i].given == d->sources[i].given_bytes &&
                  sums[i].given_ours == d->sources[i].given_ours_bytes);
}
