/* outbound.c - bitmaps against bitmaps: held here, not held there, not on its way. Pure. */
#include "wan/send/outbound.h"

#include "base/assert.h"
#include "wan/send/base_chunks.h"
#include "wan/send/outbound_parcels.h"

#define OUTBOUND_QUEUED  255u
#define OUTBOUND_BITMAPS 7u /* of a shard */
#define ALIGN            16u

uint32_t tb_refusals_add(struct tb_refusals *r, uint32_t shard, uint32_t chunk)
{
    for (uint32_t i = 0; i < r->count; i++)
        if (r->items[i].shard == shard && r->items[i].chunk == chunk) return ++r->items[i].times;
    if (r->count == TB_OUTBOUND_REFUSALS_MAX) return 1;
    r->items[r->count].shard = shard;
    r->items[r->count].chunk = chunk;
    r->items[r->count++].times = 1;
    return 1;
}

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t bitmap_bytes(const struct tb_place *place)
{
    return aligned(TB_BITMAP_WORDS(place->manifest->chunk_count) * sizeof(uint64_t));
}

static size_t owner_bytes(const struct tb_place *place)
{
    return aligned(place->manifest->chunk_count);
}

size_t tb_outbound_bytes_for(const struct tb_place *places, uint32_t shard_count)
{
    size_t bytes = aligned(shard_count * sizeof(struct tb_outbound_shard));
    for (uint32_t s = 0; s < shard_count; s++)
        bytes += OUTBOUND_BITMAPS * bitmap_bytes(&places[s]) + 2 * owner_bytes(&places[s]);
    return bytes;
}

void tb_outbound_init(struct tb_outbound *c, const struct tb_place *places, uint32_t shard_count,
                      void *memory)
{
    uint8_t *at = memory;
    memset(c, 0, sizeof *c);
    memset(memory, 0, tb_outbound_bytes_for(places, shard_count));
    c->shards = memory;
    c->shard_count = shard_count;
    at += aligned(shard_count * sizeof(struct tb_outbound_shard));
    for (uint32_t s = 0; s < shard_count; s++) {
        struct tb_outbound_shard *shard = &c->shards[s];
        const size_t words = bitmap_bytes(&places[s]);
        shard->place = &places[s];
        shard->peer = (uint64_t *)(void *)at;
        shard->busy = (uint64_t *)(void *)(at + words);
        shard->same = (uint64_t *)(void *)(at + 2 * words);
        shard->plain = (uint64_t *)(void *)(at + 3 * words);
        shard->take = (uint64_t *)(void *)(at + 4 * words);
        shard->said = (uint64_t *)(void *)(at + 5 * words);
        shard->wait = (uint64_t *)(void *)(at + 6 * words);
        memset(shard->take, 0xff, words);
        shard->owner = at + OUTBOUND_BITMAPS * words;
        shard->again = shard->owner + owner_bytes(&places[s]);
        at += OUTBOUND_BITMAPS * words + 2 * owner_bytes(&places[s]);
        c->chunks += places[s].manifest->chunk_count;
    }
    TB_ASSERT(at == (uint8_t *)memory + tb_outbound_bytes_for(places, shard_count)); /* all was carved */
}

static bool bit(const uint64_t *words, uint32_t k)
{
    return (words[k / 64] >> (k % 64) & 1) != 0;
}

static void bit_clear(uint64_t *words, uint32_t k)
{
    words[k / 64] &= ~(UINT64_C(1) << (k % 64));
}

static void bit_set(uint64_t *words, uint32_t k)
{
    words[k / 64] |= UINT64_C(1) << (k % 64);
}

enum tb_status tb_outbound_name_base(struct tb_outbound *c)
{
    return tb_outbound_state_step(&c->state, TB_OUTBOUND_EVENT_BASE) ? TB_OK : TB_PEER_GARBLED;
}

/* The parcel names chunks of the version. */
static bool is_of(const struct tb_outbound *c, const struct tb_parcel *p)
{
    if (p->shard >= c->shard_count) return false;
    const uint32_t count = c->shards[p->shard].place->manifest->chunk_count;
    return p->first <= count && p->count <= count - p->first;
}

void tb_outbound_base(struct tb_outbound *c, const struct tb_place *base, uint32_t shard_count)
{
    TB_ASSERT(c->state == TB_OUTBOUND_ON_BASE);
    for (uint32_t s = 0; s < c->shard_count && s < shard_count; s++) {
        const struct tb_manifest *m = c->shards[s].place->manifest;
        for (uint32_t k = 0; k < m->chunk_count && k < base[s].manifest->chunk_count; k++)
            if (tb_base_same(m, base[s].manifest, k)) bit_set(c->shards[s].same, k);
    }
}

void tb_outbound_push(struct tb_outbound *c)
{
    const bool legal = tb_outbound_state_step(&c->state, TB_OUTBOUND_EVENT_PUSH);
    TB_ASSERT(legal);
}

/* Within one crossing what a peer holds only grows. */
static bool peer_lost_some(const struct tb_outbound_shard *shard, const struct tb_span *words)
{
    for (uint32_t i = 0; i < words->count / TB_HELD_WORD_BYTES; i++) {
        const struct tb_held_word word = tb_held_words_at(words, i);
        if ((shard->peer[word.index] & ~word.word) != 0) return true;
    }
    return false;
}

enum tb_status tb_outbound_held(struct tb_outbound *c, uint32_t shard_index, const struct tb_span *words)
{
    if (shard_index >= c->shard_count) return TB_PEER_GARBLED;
    struct tb_outbound_shard *shard = &c->shards[shard_index];
    const enum tb_status status = tb_held_words_check(words, shard->place->manifest->chunk_count);
    if (status != TB_OK) return status;
    if (peer_lost_some(shard, words)) return TB_PEER_GARBLED;
    for (uint32_t i = 0; i < words->count / TB_HELD_WORD_BYTES; i++) {
        const struct tb_held_word word = tb_held_words_at(words, i);
        const uint32_t more = (uint32_t)__builtin_popcountll(word.word & ~shard->peer[word.index]);
        TB_ASSERT(c->busy >= (uint32_t)__builtin_popcountll(word.word & shard->busy[word.index]));
        shard->peer[word.index] = word.word;
        c->busy -= (uint32_t)__builtin_popcountll(word.word & shard->busy[word.index]);
        shard->busy[word.index] &= ~word.word;
        shard->peer_count += more;
        c->peer_held += more;
    }
    TB_ASSERT(c->peer_held <= c->chunks);
    return TB_OK;
}

/* The peer says first what it wants first. */
static void aim(struct tb_outbound *c, uint32_t shard, uint32_t chunk)
{
    TB_ASSERT(shard < c->shard_count && c->takes == TB_OUTBOUND_TAKES_NAMED);
    c->takes = TB_OUTBOUND_TAKES_AIMED;
    c->at_shard = shard;
    c->at_chunk = chunk;
}

static void take_none(struct tb_outbound *c)
{
    TB_ASSERT(c->takes == TB_OUTBOUND_TAKES_ALL);
    for (uint32_t s = 0; s < c->shard_count; s++)
        memset(c->shards[s].take, 0, bitmap_bytes(c->shards[s].place));
    c->takes = TB_OUTBOUND_TAKES_NAMED;
}

enum tb_status tb_outbound_take(struct tb_outbound *c, uint32_t shard_index, const struct tb_span *words)
{
    if (shard_index >= c->shard_count) return TB_PEER_GARBLED;
    struct tb_outbound_shard *shard = &c->shards[shard_index];
    const enum tb_status status = tb_held_words_check(words, shard->place->manifest->chunk_count);
    if (status != TB_OK) return status;
    if (c->takes == TB_OUTBOUND_TAKES_ALL) take_none(c);
    for (uint32_t i = 0; i < words->count / TB_HELD_WORD_BYTES; i++) {
        const struct tb_held_word word = tb_held_words_at(words, i);
        shard->take[word.index] = word.word;
        if (c->takes == TB_OUTBOUND_TAKES_NAMED && word.word != 0)
            aim(c, shard_index, word.index * 64 + (uint32_t)__builtin_ctzll(word.word));
    }
    return TB_OK;
}

static uint32_t shard_news(struct tb_outbound_shard *shard, struct tb_held_word *words_out, uint32_t cap)
{
    const uint32_t words = (uint32_t)TB_BITMAP_WORDS(shard->place->manifest->chunk_count);
    uint32_t count = 0;
    for (uint32_t w = 0; w < words && count < cap; w++) {
        const uint64_t word = __atomic_load_n(&shard->place->held[w], __ATOMIC_ACQUIRE);
        if (word == shard->said[w]) continue;
        shard->said[w] = word;
        words_out[count++] = (struct tb_held_word){w, word};
    }
    return count;
}

uint32_t tb_outbound_have(struct tb_outbound *c, uint32_t *shard_out, struct tb_held_word *words_out,
                          uint32_t cap)
{
    for (uint32_t s = 0; c->takes != TB_OUTBOUND_TAKES_ALL && s < c->shard_count; s++) {
        const uint32_t count = shard_news(&c->shards[s], words_out, cap);
        *shard_out = s;
        if (count > 0) return count;
    }
    return 0;
}

enum tb_status tb_outbound_start(struct tb_outbound *c)
{
    return tb_outbound_state_step(&c->state, TB_OUTBOUND_EVENT_START) ? TB_OK : TB_PEER_GARBLED;
}

/* Chunks of word w that are left to go: held here, not there, not on the way, and not made
 * there. */
static uint64_t left_word(const struct tb_outbound_shard *shard, uint32_t w)
{
    const uint64_t held = __atomic_load_n(&shard->place->held[w], __ATOMIC_ACQUIRE);
    return held & ~shard->peer[w] & ~shard->busy[w] & ~shard->same[w] & shard->take[w];
}

static uint64_t sendable_word(const struct tb_outbound_shard *shard, uint32_t w)
{
    return left_word(shard, w) & (~shard->wait[w] | shard->plain[w]);
}

static bool sendable(const struct tb_outbound_shard *shard, uint32_t k)
{
    return (sendable_word(shard, k / 64) >> (k % 64) & 1) != 0;
}

/* The first chunk at or after `from` that can go; chunk_count if none. */
static uint32_t find_sendable(const struct tb_outbound_shard *shard, uint32_t from)
{
    const uint32_t count = shard->place->manifest->chunk_count;
    if (from >= count) return count;
    uint32_t w = from / 64;
    uint64_t word = sendable_word(shard, w) & (UINT64_MAX << (from % 64));
    const uint32_t words = (uint32_t)TB_BITMAP_WORDS(count);
    while (word == 0 && ++w < words)
        word = sendable_word(shard, w);
    return word == 0 ? count : w * 64 + (uint32_t)__builtin_ctzll(word);
}

static void queue_run(struct tb_outbound_shard *shard, struct tb_parcel *parcel)
{
    const struct tb_manifest *m = shard->place->manifest;
    uint32_t k = parcel->first;
    parcel->plain = bit(shard->plain, k);
    do {
        parcel->bytes += m->chunks[k].bytes;
        bit_set(shard->busy, k);
        shard->again[k] = 0;
        shard->owner[k++] = OUTBOUND_QUEUED;
        parcel->count++;
    } while (parcel->bytes < TB_PARCEL_BYTES_MIN && parcel->count < TB_PARCEL_CHUNKS_MAX &&
             k < m->chunk_count && parcel->bytes + m->chunks[k].bytes <= TB_PARCEL_BYTES_MAX &&
             sendable(shard, k) && bit(shard->plain, k) == parcel->plain);
    TB_ASSERT(parcel->count > 0 && parcel->count <= TB_PARCEL_CHUNKS_MAX);
    TB_ASSERT(parcel->bytes <= TB_PARCEL_BYTES_MAX || parcel->count == 1);
}

static bool sends(const struct tb_outbound *c)
{
    return c->state == TB_OUTBOUND_PUSHED || tb_outbound_state_started(c->state);
}

bool tb_outbound_next(struct tb_outbound *c, struct tb_parcel *parcel_out)
{
    if (!sends(c)) return false;
    for (uint32_t tried = 0; tried <= c->shard_count; tried++) {
        struct tb_outbound_shard *shard = &c->shards[c->at_shard];
        const uint32_t first = find_sendable(shard, c->at_chunk);
        if (first < shard->place->manifest->chunk_count) {
            *parcel_out = (struct tb_parcel){.shard = c->at_shard, .first = first};
            queue_run(shard, parcel_out);
            c->busy += parcel_out->count;
            TB_ASSERT(c->peer_held + c->busy <= c->chunks);
            c->at_chunk = first + parcel_out->count;
            return true;
        }
        c->at_chunk = 0;
        c->at_shard = (c->at_shard + 1) % c->shard_count;
    }
    return false;
}

void tb_outbound_taken(struct tb_outbound *c, const struct tb_parcel *parcel, uint32_t slot)
{
    TB_ASSERT(slot < TB_OUTBOUND_SLOTS_MAX);
    TB_ASSERT(is_of(c, parcel));
    struct tb_outbound_shard *shard = &c->shards[parcel->shard];
    for (uint32_t k = parcel->first; k < parcel->first + parcel->count; k++) {
        if (!bit(shard->busy, k)) continue;
        if (shard->owner[k] == OUTBOUND_QUEUED)
            shard->owner[k] = (uint8_t)slot;
        else if (shard->again[k] == OUTBOUND_QUEUED)
            shard->again[k] = (uint8_t)(slot + 1);
    }
}

/* ---- a second way ---- */

void tb_outbound_again(struct tb_outbound *c, const struct tb_parcel *parcel)
{
    TB_ASSERT(is_of(c, parcel));
    struct tb_outbound_shard *shard = &c->shards[parcel->shard];
    for (uint32_t k = parcel->first; k < parcel->first + parcel->count; k++)
        if (bit(shard->busy, k) && shard->owner[k] != OUTBOUND_QUEUED) shard->again[k] = OUTBOUND_QUEUED;
}

uint32_t tb_outbound_left(const struct tb_outbound *c, const struct tb_parcel *parcel)
{
    TB_ASSERT(is_of(c, parcel));
    const struct tb_outbound_shard *shard = &c->shards[parcel->shard];
    uint32_t left = 0;
    for (uint32_t k = parcel->first; k < parcel->first + parcel->count; k++)
        left += !bit(shard->peer, k);
    return left;
}

bool tb_outbound_rest(const struct tb_outbound *c, const struct tb_parcel *parcel, struct tb_parcel *rest_out)
{
    TB_ASSERT(is_of(c, parcel));
    const struct tb_outbound_shard *shard = &c->shards[parcel->shard];
    uint32_t first = parcel->first, end = parcel->first + parcel->count;
    while (first < end && bit(shard->peer, first))
        first++;
    while (first < end && bit(shard->peer, end - 1))
        end--;
    *rest_out = (struct tb_parcel){
        .shard = parcel->shard, .first = first, .count = end - first, .plain = parcel->plain};
    for (uint32_t k = first; k < end; k++)
        rest_out->bytes += shard->place->manifest->chunks[k].bytes;
    return first < end;
}

/* Chunks that the peer makes itself and does not hold yet. */
static uint64_t made_there(const struct tb_outbound *c)
{
    uint64_t count = 0;
    for (uint32_t s = 0; tb_outbound_state_on_base(c->state) && s < c->shard_count; s++) {
        const struct tb_outbound_shard *shard = &c->shards[s];
        for (size_t w = 0; w < TB_BITMAP_WORDS(shard->place->manifest->chunk_count); w++)
            count += (uint32_t)__builtin_popcountll(shard->same[w] & ~shard->peer[w] & ~shard->busy[w]);
    }
    return count;
}

bool tb_outbound_all_on_their_way(const struct tb_outbound *c)
{
    return tb_outbound_state_started(c->state) && c->peer_held + c->busy + made_there(c) == c->chunks;
}

/* ---- ways that ended ---- */

void tb_outbound_unqueued(struct tb_outbound *c, const struct tb_parcel *parcel)
{
    TB_ASSERT(is_of(c, parcel));
    struct tb_outbound_shard *shard = &c->shards[parcel->shard];
    for (uint32_t k = parcel->first; k < parcel->first + parcel->count; k++) {
        if (!bit(shard->busy, k)) continue;
        if (shard->again[k] == OUTBOUND_QUEUED) {
            shard->again[k] = 0;
        } else if (shard->owner[k] == OUTBOUND_QUEUED) {
            TB_ASSERT(c->busy > 0);
            bit_clear(shard->busy, k);
            c->busy--;
        }
    }
}

/* One way of a busy chunk ended with its slot. True: it was the only one, and the chunk can go
 * again. */
static bool way_gone(struct tb_outbound_shard *shard, uint32_t k, uint32_t slot)
{
    const uint8_t again = shard->again[k];
    if (again == slot + 1) shard->again[k] = 0;
    if (shard->owner[k] != slot) return false;
    if (again == 0 || again == slot + 1) return true;
    shard->owner[k] = again == OUTBOUND_QUEUED ? OUTBOUND_QUEUED : (uint8_t)(again - 1);
    shard->again[k] = 0;
    return false;
}

static uint32_t shard_stream_gone(struct tb_outbound_shard *shard, uint32_t slot)
{
    const uint32_t count = shard->place->manifest->chunk_count;
    uint32_t released = 0;
    for (uint32_t k = 0; k < count; k++) {
        if (!bit(shard->busy, k) || !way_gone(shard, k, slot)) continue;
        bit_clear(shard->busy, k);
        released++;
    }
    return released;
}

uint32_t tb_outbound_stream_gone(struct tb_outbound *c, uint32_t slot)
{
    TB_ASSERT(slot < TB_OUTBOUND_SLOTS_MAX);
    uint32_t released = 0;
    for (uint32_t s = 0; s < c->shard_count; s++)
        released += shard_stream_gone(&c->shards[s], slot);
    TB_ASSERT(released <= c->busy);
    c->busy -= released;
    return released;
}

bool tb_outbound_on_base(const struct tb_outbound *c, uint32_t shard_index, uint32_t chunk)
{
    if (shard_index >= c->shard_count) return false;
    const struct tb_outbound_shard *shard = &c->shards[shard_index];
    if (chunk >= shard->place->manifest->chunk_count) return false;
    return bit(shard->busy, chunk) && shard->owner[chunk] != OUTBOUND_QUEUED && !bit(shard->plain, chunk);
}

enum tb_status tb_outbound_refused(struct tb_outbound *c, const struct tb_frame_refused *refused,
                                   uint32_t *times_out)
{
    if (refused->shard >= c->shard_count) return TB_PEER_GARBLED;
    struct tb_outbound_shard *shard = &c->shards[refused->shard];
    if (refused->chunk >= shard->place->manifest->chunk_count) return TB_PEER_GARBLED;
    if (bit(shard->peer, refused->chunk)) return TB_PEER_GARBLED;
    /* One that is only queued was released by the end of its stream already, and is on its way
     * again. */
    if (bit(shard->busy, refused->chunk) && shard->owner[refused->chunk] != OUTBOUND_QUEUED) {
        bit_clear(shard->busy, refused->chunk);
        TB_ASSERT(c->busy > 0);
        c->busy--;
    }
    bit_clear(shard->same, refused->chunk);
    *times_out = 0;
    if (refused->why == TB_REFUSAL_LOST) return TB_OK;
    bit_set(shard->plain, refused->chunk);
    if (refused->why != TB_REFUSAL_NO_BASE)
        *times_out = tb_refusals_add(&c->refusals, refused->shard, refused->chunk);
    return TB_OK;
}

bool tb_outbound_whole(const struct tb_outbound *c)
{
    TB_ASSERT(c->peer_held <= c->chunks);
    return c->peer_held == c->chunks;
}

static void shard_check(const struct tb_outbound_shard *shard, uint64_t *peer_held, uint64_t *busy)
{
    uint32_t peer_count = 0;
    for (size_t w = 0; w < TB_BITMAP_WORDS(shard->place->manifest->chunk_count); w++) {
        TB_ASSERT((shard->peer[w] & shard->busy[w]) == 0); /* P5: a chunk that the peer holds is not sent */
        peer_count += (uint32_t)__builtin_popcountll(shard->peer[w]);
        *busy += (uint32_t)__builtin_popcountll(shard->busy[w]);
    }
    TB_ASSERT(peer_count == shard->peer_count);
    *peer_held += peer_count;
}

void tb_outbound_check(const struct tb_outbound *c)
{
    uint64_t peer_held = 0, busy = 0, chunks = 0;
    TB_ASSERT(c->state < TB_OUTBOUND_STATES && c->takes <= TB_OUTBOUND_TAKES_AIMED);
    TB_ASSERT(c->shard_count == 0 || c->at_shard < c->shard_count);
    for (uint32_t s = 0; s < c->shard_count; s++) {
        shard_check(&c->shards[s], &peer_held, &busy);
        chunks += c->shards[s].place->manifest->chunk_count;
    }
    TB_ASSERT(peer_held == c->peer_held && busy == c->busy && chunks == c->chunks);
    TB_ASSERT(c->refusals.count <= TB_OUTBOUND_REFUSALS_MAX);
}
