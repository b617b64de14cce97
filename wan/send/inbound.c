/* inbound.c - what is held against what was told. Pure. */
#include "wan/send/inbound.h"

#include "base/assert.h"

#define ALIGN 16u

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t bitmap_bytes(const struct tb_place *place)
{
    return aligned(TB_BITMAP_WORDS(place->manifest->chunk_count) * sizeof(uint64_t));
}

size_t tb_inbound_bytes_for(const struct tb_place *places, uint32_t shard_count)
{
    size_t bytes = aligned(shard_count * sizeof(struct tb_inbound_shard));
    for (uint32_t s = 0; s < shard_count; s++)
        bytes += bitmap_bytes(&places[s]);
    return bytes;
}

void tb_inbound_init(struct tb_inbound *l, const struct tb_place *places, uint32_t shard_count, void *memory)
{
    uint8_t *at = memory;
    memset(l, 0, sizeof *l);
    memset(memory, 0, tb_inbound_bytes_for(places, shard_count));
    l->shards = memory;
    l->shard_count = shard_count;
    at += aligned(shard_count * sizeof(struct tb_inbound_shard));
    for (uint32_t s = 0; s < shard_count; s++) {
        l->shards[s].place = &places[s];
        l->shards[s].told = (uint64_t *)(void *)at;
        l->chunks += places[s].manifest->chunk_count;
        at += bitmap_bytes(&places[s]);
    }
}

void tb_inbound_rewind(struct tb_inbound *l)
{
    for (uint32_t s = 0; s < l->shard_count; s++)
        memset(l->shards[s].told, 0, bitmap_bytes(l->shards[s].place));
    l->told_count = 0;
    l->told_any = false;
    l->lost = false;
    l->dropped_count = 0;
}

bool tb_inbound_due(const struct tb_inbound *l, tb_time_ns now)
{
    return !l->told_any || tb_time_since(l->told_at, now) >= TB_HELD_EVERY;
}

void tb_inbound_told(struct tb_inbound *l, tb_time_ns now)
{
    l->told_at = now;
    l->told_any = true;
}

static uint32_t shard_differences(struct tb_inbound *l, struct tb_inbound_shard *shard,
                                  struct tb_held_word *words_out, uint32_t cap)
{
    const uint32_t words = (uint32_t)TB_BITMAP_WORDS(shard->place->manifest->chunk_count);
    uint32_t count = 0;
    for (uint32_t w = 0; w < words && count < cap; w++) {
        const uint64_t word = __atomic_load_n(&shard->place->held[w], __ATOMIC_ACQUIRE);
        if ((shard->told[w] & ~word) != 0) l->lost = true;
        if (word == shard->told[w] || l->lost) continue;
        l->told_count += (uint32_t)__builtin_popcountll(word & ~shard->told[w]);
        shard->told[w] = word;
        words_out[count++] = (struct tb_held_word){w, word};
    }
    return count;
}

uint32_t tb_inbound_differences(struct tb_inbound *l, uint32_t *shard_out, struct tb_held_word *words_out,
                                uint32_t cap)
{
    for (uint32_t s = 0; s < l->shard_count; s++) {
        const uint32_t count = shard_differences(l, &l->shards[s], words_out, cap);
        if (count == 0) continue;
        *shard_out = s;
        return count;
    }
    return 0;
}

bool tb_inbound_whole(const struct tb_inbound *l)
{
    return l->told_count == l->chunks;
}

enum tb_status tb_inbound_check(const struct tb_place *places, uint32_t shard_count,
                                const struct tb_chunk_frame *frame)
{
    if (frame->shard >= shard_count) return TB_PEER_GARBLED;
    const struct tb_manifest *m = places[frame->shard].manifest;
    if (frame->chunk >= m->chunk_count) return TB_PEER_GARBLED;
    return frame->raw_bytes == m->chunks[frame->chunk].bytes ? TB_OK : TB_PEER_GARBLED;
}

bool tb_inbound_knows(const struct tb_inbound *l, uint32_t shard, uint32_t chunk)
{
    return (l->shards[shard].told[chunk / 64] >> (chunk % 64) & 1) != 0;
}

uint32_t tb_inbound_bad(struct tb_inbound *l, uint32_t shard, uint32_t chunk)
{
    return tb_refusals_add(&l->refusals, shard, chunk);
}

bool tb_inbound_dropped(struct tb_inbound *l, uint32_t shard, uint32_t chunk)
{
    if (tb_place_held(l->shards[shard].place, chunk)) return true;
    if (l->dropped_count == TB_INBOUND_DROPPED_MAX) return false;
    l->dropped[l->dropped_count++] = (struct tb_inbound_chunk){shard, chunk};
    return true;
}

bool tb_inbound_again(struct tb_inbound *l, struct tb_inbound_chunk *chunk_out)
{
    uint32_t i = 0;
    while (i < l->dropped_count) {
        const struct tb_inbound_chunk d = l->dropped[i];
        const struct tb_place *place = l->shards[d.shard].place;
        /* before held: finish sets held, then unclaims */
        const bool claimed = tb_bitmap_test(place->claimed, d.chunk);
        const bool held = tb_place_held(place, d.chunk);
        if (claimed && !held) {
            i++;
            continue;
        }
        l->dropped[i] = l->dropped[--l->dropped_count];
        if (held) continue;
        *chunk_out = d;
        return true;
    }
    return false;
}
