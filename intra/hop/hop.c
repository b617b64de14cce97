#include "intra/hop/hop.h"

#include <string.h>

#include "base/assert.h"

uint64_t tb_hop_shard_words(uint32_t chunk_count)
{
    return 4 * TB_BITMAP_WORDS(chunk_count);
}

static void see_all(struct tb_hop_shard *shard)
{
    for (uint32_t k = 0; k < shard->chunk_count; k++)
        (void)tb_bitmap_set(shard->seen, k);
}

static void shard_init(struct tb_hop_shard *shard)
{
    shard->chunk_count = shard->place->manifest->chunk_count;
    const uint64_t words = TB_BITMAP_WORDS(shard->chunk_count);
    memset(shard->memory, 0, (size_t)(4 * words) * sizeof(uint64_t));
    shard->seen = shard->memory;
    shard->suspect = shard->memory + words;
    shard->bad = shard->memory + 2 * words;
    shard->busy = shard->memory + 3 * words;
    shard->full_words = 0;
    if (shard->source->held_buffer == TB_SOURCE_ALL_HELD) see_all(shard);
}

void tb_hop_state_init(struct tb_hop_state *s, struct tb_hop_shard *shards, uint32_t shard_count,
                       uint32_t seed, tb_time_ns now)
{
    memset(s, 0, sizeof *s);
    s->shards = shards;
    TB_ASSERT(shard_count > 0);
    s->shard_count = shard_count;
    for (uint32_t i = 0; i < shard_count; i++) {
        shard_init(&shards[i]);
        s->chunk_total += shards[i].chunk_count;
    }
    s->at = s->chunk_total > 0 ? seed % s->chunk_total : 0;
    s->window_bytes = s->came_max_bytes = TB_HOP_WINDOW_BYTES;
    s->chunks_max = TB_HOP_CHUNKS_USUAL;
    s->threads = 1;
    s->poll_every = TB_HOP_POLL_MIN;
    s->poll_at = s->news_at = now;
}

static uint32_t aim_bytes(const struct tb_hop_shard *shard, uint32_t k)
{
    const struct tb_source_encoded *encoded;
    if (tb_source_encoded_of(shard->source, k, &encoded)) return encoded->bytes;
    return shard->place->manifest->chunks[k].bytes;
}

/* Of a word of the shard's chunks: those that can be judged when they come. */
static uint64_t judged(const struct tb_hop_shard *shard, uint32_t w)
{
    return shard->foreign ? __atomic_load_n(&shard->place->manifest->proven[w], __ATOMIC_ACQUIRE)
                          : UINT64_MAX;
}

/* First chunk of [from, end) of the shard that the source has and we lack, or `end`. Words at a
 * time: a shard may have two million chunks. */
static uint32_t wanted_from(const struct tb_hop_shard *shard, uint32_t from, uint32_t end)
{
    for (uint32_t k = from; k < end;) {
        const uint32_t w = k / 64;
        const uint64_t ours = __atomic_load_n(&shard->place->held[w], __ATOMIC_ACQUIRE) |
                              __atomic_load_n(&shard->place->claimed[w], __ATOMIC_ACQUIRE);
        const uint64_t wanted = shard->seen[w] & judged(shard, w) & ~ours & ~shard->bad[w] & ~shard->busy[w] &
                                (UINT64_MAX << (k % 64));
        if (wanted == 0) {
            k = (w + 1) * 64;
            continue;
        }
        const uint32_t found = w * 64 + (uint32_t)__builtin_ctzll(wanted);
        return found < end ? found : end;
    }
    return end;
}

static bool awaited(const struct tb_hop_state *s, uint64_t line)
{
    return s->shelf != NULL && tb_hop_shelf_awaited(s->shelf, (uint32_t)line);
}

/* Looks through [from, end) of the line of all shards' chunks. */
static bool find(struct tb_hop_state *s, uint64_t from, uint64_t end, struct tb_hop_aim *aim_out)
{
    uint64_t first = 0; /* of shard i */
    for (uint32_t i = 0; i < s->shard_count && first < end; first += s->shards[i].chunk_count, i++) {
        const struct tb_hop_shard *shard = &s->shards[i];
        if (from >= first + shard->chunk_count) continue;
        const uint64_t left = end - first;
        const uint32_t k_end = left < shard->chunk_count ? (uint32_t)left : shard->chunk_count;
        uint32_t k = wanted_from(shard, from > first ? (uint32_t)(from - first) : 0, k_end);
        while (k < k_end &&
               (awaited(s, first + k) || !tb_place_claim(shard->place, k))) /* another hop was sooner */
            k = wanted_from(shard, k + 1, k_end);
        if (k == k_end) continue;
        *aim_out = (struct tb_hop_aim){.shard_index = i, .chunk = k, .bytes = aim_bytes(shard, k)};
        TB_ASSERT(!tb_bitmap_test(shard->busy, k) && !tb_bitmap_test(shard->bad, k));
        s->at = first + k + 1;
        return true;
    }
    return false;
}

/* ---- encoded chunks of the source's shelf ---- */

/* Where a chunk of the line stands. */
static struct tb_hop_aim at_line(const struct tb_hop_state *s, uint32_t line)
{
    struct tb_hop_aim aim = {.line = line, .chunk = line};
    while (aim.chunk >= s->shards[aim.shard_index].chunk_count)
        aim.chunk -= s->shards[aim.shard_index++].chunk_count;
    return aim;
}

/* Decoded where we hold its base and lack the chunk, else passed on if somebody may want it. */
static bool take_encoded(struct tb_hop_state *s, uint32_t line, struct tb_hop_aim *aim_out)
{
    struct tb_hop_shelf *shelf = s->shelf;
    struct tb_hop_aim aim = at_line(s, line);
    struct tb_place *place = s->shards[aim.shard_index].place;
    const bool wanted = tb_hop_shelf_fits(shelf) && !tb_place_held(place, aim.chunk);
    if (wanted && tb_bitmap_test(place->claimed, aim.chunk)) return false; /* somebody has it in hand */
    if (wanted && (judged(&s->shards[aim.shard_index], aim.chunk / 64) >> aim.chunk % 64 & 1) == 0)
        return false;
    const bool lands = wanted && tb_place_claim(place, aim.chunk);
    const bool passes = tb_hop_shelf_passes(shelf, line);
    if (!lands && !passes) {
        tb_hop_shelf_done(shelf, line);
        return false;
    }
    aim.encoded = &shelf->entries[line];
    aim.bytes = aim.encoded->bytes;
    TB_ASSERT(aim.bytes > 0 && !tb_bitmap_test(shelf->busy, line)); /* tb_hop_shelf_find gave it */
    aim.passed_on = !lands;
    (void)tb_bitmap_set(shelf->busy, line);
    *aim_out = aim;
    return true;
}

static bool find_encoded(struct tb_hop_state *s, struct tb_hop_aim *aim_out)
{
    if (s->shelf == NULL) return false;
    for (uint32_t turn = 0; turn < 2; turn++) {
        for (uint32_t line = s->shelf_at; (line = tb_hop_shelf_find(s->shelf, line)) < s->shelf->count;
             line++) {
            if (!take_encoded(s, line, aim_out)) continue;
            s->shelf_at = line + 1;
            return true;
        }
        s->shelf_at = 0;
    }
    return false;
}

/* A word of the shard's chunks that the source holds and we lack. */
static uint64_t lacked_word(const struct tb_hop_shard *shard, uint32_t w)
{
    return shard->seen[w] & ~__atomic_load_n(&shard->place->held[w], __ATOMIC_ACQUIRE);
}

/* Is there one whose encoded chunk the source has not shown? */
static bool awaits_encoded_chunks(const struct tb_hop_state *s)
{
    uint32_t first = 0;
    for (uint32_t i = 0; i < s->shard_count; first += s->shards[i].chunk_count, i++)
        for (uint32_t w = 0; w < TB_BITMAP_WORDS(s->shards[i].chunk_count); w++)
            for (uint64_t left = lacked_word(&s->shards[i], w); left != 0; left &= left - 1)
                if (!tb_bitmap_test(s->shelf->listed, first + w * 64 + (uint32_t)__builtin_ctzll(left)))
                    return true;
    return false;
}

static bool window_open(const struct tb_hop_state *s)
{
    const uint32_t asked = s->in_flight_chunks - s->came_chunks;
    if (s->in_flight_chunks >= s->chunks_max || asked >= TB_HOP_ASKED_MAX) return false;
    if (s->came_chunks > s->threads && s->came_bytes >= s->came_max_bytes) return false;
    return asked < 2 || s->in_flight_bytes - s->came_bytes < s->window_bytes;
}

bool tb_hop_next(struct tb_hop_state *s, struct tb_hop_aim *aim_out)
{
    if (s->dry || !window_open(s)) return false;
    const uint64_t at = s->at;
    if (find_encoded(s, aim_out)) {
        s->in_flight_chunks++;
        s->in_flight_bytes += aim_out->bytes;
        return true;
    }
    if (!find(s, at, s->chunk_total, aim_out) && !find(s, 0, at, aim_out)) {
        s->dry = true;
        return false;
    }
    (void)tb_bitmap_set(s->shards[aim_out->shard_index].busy, aim_out->chunk);
    s->in_flight_chunks++;
    s->in_flight_bytes += aim_out->bytes;
    return true;
}

void tb_hop_came(struct tb_hop_state *s, struct tb_hop_aim *aim)
{
    TB_ASSERT(!aim->came);
    aim->came = true;
    s->came_chunks++;
    s->came_bytes += aim->bytes;
    TB_ASSERT(s->came_chunks <= s->in_flight_chunks && s->came_bytes <= s->in_flight_bytes);
}

static void settle(struct tb_hop_state *s, const struct tb_hop_aim *aim)
{
    TB_ASSERT(aim->shard_index < s->shard_count);
    TB_ASSERT(s->in_flight_chunks > 0 && s->in_flight_bytes >= aim->bytes);
    if (aim->came) {
        TB_ASSERT(s->came_chunks > 0 && s->came_bytes >= aim->bytes);
        s->came_chunks--;
        s->came_bytes -= aim->bytes;
    }
    if (aim->encoded == NULL)
        (void)tb_bitmap_clear(s->shards[aim->shard_index].busy, aim->chunk);
    else if (s->shelf != NULL)
        (void)tb_bitmap_clear(s->shelf->busy, aim->line);
    s->in_flight_chunks--;
    s->in_flight_bytes -= aim->bytes;
}

void tb_hop_landed(struct tb_hop_state *s, const struct tb_hop_aim *aim)
{
    settle(s, aim);
    if (aim->encoded != NULL && s->shelf != NULL) tb_hop_shelf_done(s->shelf, aim->line);
}

void tb_hop_encoded_failed(struct tb_hop_state *s, const struct tb_hop_aim *aim)
{
    TB_ASSERT(aim->encoded != NULL);
    tb_hop_landed(s, aim);
    s->dry = false;
}

bool tb_hop_failed(struct tb_hop_state *s, const struct tb_hop_aim *aim)
{
    TB_ASSERT(aim->encoded == NULL && !aim->passed_on); /* a delta's failure is nobody's fault */
    settle(s, aim);
    s->dry = false;
    struct tb_hop_shard *shard = &s->shards[aim->shard_index];
    if (tb_bitmap_set(shard->suspect, aim->chunk)) return false;
    (void)tb_bitmap_set(shard->bad, aim->chunk);
    return true;
}

void tb_hop_look_again(struct tb_hop_state *s)
{
    s->dry = false;
}

void tb_hop_dropped(struct tb_hop_state *s, const struct tb_hop_aim *aim)
{
    settle(s, aim);
    s->dry = false;
}

static uint64_t full_word(uint32_t chunk_count, uint32_t w)
{
    const uint32_t left = chunk_count - w * 64;
    return left >= 64 ? UINT64_MAX : ((uint64_t)1 << left) - 1;
}

bool tb_hop_poll_words(struct tb_hop_state *s, uint32_t shard_index, uint32_t *first_out, uint32_t *count_out)
{
    struct tb_hop_shard *shard = &s->shards[shard_index];
    uint32_t end = (uint32_t)TB_BITMAP_WORDS(shard->chunk_count);
    while (shard->full_words < end &&
           shard->seen[shard->full_words] == full_word(shard->chunk_count, shard->full_words))
        shard->full_words++;
    uint32_t first = shard->full_words;
    while (end > first && shard->seen[end - 1] == full_word(shard->chunk_count, end - 1))
        end--;
    if (shard->poll_from > first && shard->poll_from < end) first = shard->poll_from;
    uint32_t count = end - first;
    if (count > TB_HOP_POLL_WORDS_MAX) count = TB_HOP_POLL_WORDS_MAX;
    shard->poll_from = first + count < end ? first + count : 0;
    TB_ASSERT(count <= TB_HOP_POLL_WORDS_MAX && first + count <= TB_BITMAP_WORDS(shard->chunk_count));
    *first_out = first;
    *count_out = count;
    return count > 0;
}

enum tb_status tb_hop_seen(struct tb_hop_state *s, uint32_t shard_index, uint32_t first,
                           const uint64_t *words, uint32_t count)
{
    struct tb_hop_shard *shard = &s->shards[shard_index];
    TB_ASSERT((uint64_t)first + count <= TB_BITMAP_WORDS(shard->chunk_count));
    TB_ASSERT(shard_index < s->shard_count);
    for (uint32_t i = 0; i < count; i++)
        if ((words[i] & ~full_word(shard->chunk_count, first + i)) != 0) return TB_PEER_GARBLED;
    for (uint32_t i = 0; i < count; i++) {
        s->round_news += (uint32_t)__builtin_popcountll(words[i] & ~shard->seen[first + i]);
        shard->seen[first + i] = words[i];
    }
    if (first < shard->full_words) shard->full_words = first; /* it may say less now than before */
    return TB_OK;
}

static tb_time_ns bounded(tb_time_ns every, tb_time_ns min, tb_time_ns max)
{
    return every < min ? min : every > max ? max : every;
}

/* Many at once took a part of it each. */
static void note_news(struct tb_hop_state *s, tb_time_ns now)
{
    const tb_time_ns each = tb_time_since(s->news_at, now) / s->round_news;
    TB_ASSERT(now >= s->news_at);
    const bool pause = s->news_every > 0 && each > 2 * s->news_every;
    if (s->news_seen) s->news_every = pause ? 2 * s->news_every : each;
    s->news_seen = true;
    s->news_at = now;
}

static tb_time_ns share_of_wait(const struct tb_hop_state *s, tb_time_ns quiet)
{
    const bool deep = s->depth == 0 || s->depth > TB_HOP_POLL_DEPTH;
    return quiet / (TB_HOP_POLL_SHARE * (tb_time_ns)(deep ? TB_HOP_POLL_DEPTH : s->depth));
}

void tb_hop_round_done(struct tb_hop_state *s, tb_time_ns now)
{
    if (s->shelf != NULL) {
        s->round_news += s->shelf->news;
        tb_hop_shelf_round(s->shelf, awaits_encoded_chunks(s), now);
    }
    if (s->round_news > 0) note_news(s, now);
    const tb_time_ns of_wait = share_of_wait(s, tb_time_since(s->news_at, now));
    const tb_time_ns of_rhythm = s->news_every / TB_HOP_POLL_RHYTHM;
    s->poll_every = bounded(of_rhythm > of_wait ? of_rhythm : of_wait, TB_HOP_POLL_MIN, TB_HOP_POLL_MAX);
    s->poll_at = tb_time_add(now, s->poll_every);
    TB_ASSERT(s->poll_every >= TB_HOP_POLL_MIN && s->poll_every <= TB_HOP_POLL_MAX);
    s->round_news = 0;
    s->dry = false; /* another hop may have given a claim back meanwhile */
}

bool tb_hop_whole(const struct tb_hop_state *s)
{
    for (uint32_t i = 0; i < s->shard_count; i++)
        if (!tb_place_whole(s->shards[i].place)) return false;
    return true;
}

/* ---- its invariants ---- */

/* Bits of a shard in flight. A chunk that failed twice was suspected before. */
static uint32_t check_shard(const struct tb_hop_shard *shard)
{
    const uint32_t words = (uint32_t)TB_BITMAP_WORDS(shard->chunk_count);
    TB_ASSERT(shard->full_words <= words && shard->poll_from <= words);
    for (uint32_t w = 0; w < words; w++)
        TB_ASSERT((shard->bad[w] & ~shard->suspect[w]) == 0);
    return tb_bitmap_popcount(shard->busy, shard->chunk_count);
}

void tb_hop_state_check(const struct tb_hop_state *s)
{
    uint64_t chunks = 0, busy = 0;
    for (uint32_t i = 0; i < s->shard_count; i++) {
        busy += check_shard(&s->shards[i]);
        chunks += s->shards[i].chunk_count;
    }
    TB_ASSERT(chunks == s->chunk_total && s->at <= chunks);
    TB_ASSERT(s->in_flight_chunks <= s->chunks_max && s->chunks_max <= TB_HOP_CHUNKS_MAX &&
              s->came_chunks <= s->in_flight_chunks);
    TB_ASSERT(s->came_bytes <= s->in_flight_bytes);
    TB_ASSERT(s->in_flight_chunks > 0 || s->in_flight_bytes == 0);
    TB_ASSERT(busy <= s->in_flight_chunks);
    if (s->shelf == NULL) return; /* deltas of a shelf that was left are in flight, too */
    tb_hop_shelf_check(s->shelf);
    TB_ASSERT(busy + tb_bitmap_popcount(s->shelf->busy, s->shelf->count) == s->in_flight_chunks);
}
