/* hop_follow.c - what a hop's source holds: its bitmaps and, where it has one, its shelf, asked
 * again at the rhythm that hop.c says.
 *
 * A round is one READ of each: head and bits of the shelf, then entries that are new; the
 * bitmap of each shard. These are the source's word: hop.c and hop_shelf.c bound them before
 * they are believed. */
#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "intra/fabric/fabric_queue.h"
#include "intra/hop/hop_inside.h"
#include "intra/hop/hop_wire.h"

/* ---- following the source's bitmaps ---- */

static void snapshot_came(struct tb_hop *hop, struct tb_hop_snapshot *snap)
{
    const uint32_t index = (uint32_t)(snap - hop->snapshots);
    TB_ASSERT(index < hop->state.shard_count && snap->read.bytes % 8 == 0);
    if (tb_hop_seen(&hop->state, index, snap->first, snap->words, snap->read.bytes / 8) != TB_OK)
        tb_hop_lose(hop, TB_PEER_GARBLED);
}

static void end_round(struct tb_hop *hop)
{
    TB_ASSERT(hop->round_running && hop->snapshots_owed == 0);
    hop->round_running = false;
    tb_hop_round_done(&hop->state, tb_clock_now());
    tb_hop_pump(hop);
    tb_fabric_wake_at(hop->fabric, hop->state.poll_at);
}

/* Words within reach are copied at once: they are few. */
static void ask_snapshot(struct tb_hop *hop, uint32_t index)
{
    struct tb_hop_snapshot *snap = &hop->snapshots[index];
    const struct tb_source_shard *source = hop->shards[index].source;
    uint32_t count_words = 0;
    if (!tb_hop_poll_words(&hop->state, index, &snap->first, &count_words)) return;
    snap->read = (struct tb_read){.buffer = source->held_buffer,
                                  .offset = source->held_offset + (uint64_t)snap->first * 8,
                                  .bytes = count_words * 8,
                                  .words = true,
                                  .to = (uint8_t *)snap->words,
                                  .owner = NULL};
    if (!hop->upstream->ops->reaches(hop->upstream, &snap->read)) {
        hop->snapshots_owed++;
        hop->upstream->ops->read(hop->upstream, &snap->read);
        return;
    }
    if (hop->upstream->ops->copy(hop->upstream, &snap->read) == TB_OK)
        snapshot_came(hop, snap);
    else
        tb_hop_lose(hop, TB_STREAM_IO);
}

/* ---- and its shelf ---- */

static uint32_t chunk_bytes(void *user, uint32_t line)
{
    const struct tb_hop *hop = user;
    uint32_t shard = 0;
    TB_ASSERT(line < hop->state.chunk_total);
    while (line >= hop->shards[shard].chunk_count)
        line -= hop->shards[shard++].chunk_count;
    return hop->shards[shard].place->manifest->chunks[line].bytes;
}

/* Nonsense on a shelf costs the shelf, not the source: what counts of a source is its chunks. */
void tb_hop_leave_shelf(struct tb_hop *hop)
{
    TB_ASSERT(!tb_hop_life_ends(hop->life));
    hop->state.shelf = NULL;
    if (hop->options.shelf != NULL) tb_shelf_close(hop->options.shelf);
}

static void shelf_came(struct tb_hop *hop);

static void ask_words(struct tb_hop *hop, uint64_t offset, uint64_t words)
{
    struct tb_hop_shelf_read *r = &hop->shelf_read;
    r->read = (struct tb_read){.buffer = hop->shelf_at.buffer,
                               .offset = hop->shelf_at.offset + offset,
                               .bytes = (uint32_t)(words * sizeof(uint64_t)),
                               .words = true,
                               .to = (uint8_t *)r->words,
                               .owner = NULL};
    if (!hop->upstream->ops->reaches(hop->upstream, &r->read)) {
        hop->snapshots_owed++;
        hop->upstream->ops->read(hop->upstream, &r->read);
        return;
    }
    if (hop->upstream->ops->copy(hop->upstream, &r->read) == TB_OK)
        shelf_came(hop);
    else
        tb_hop_lose(hop, TB_STREAM_IO);
}

static void ask_shelf(struct tb_hop *hop)
{
    if (hop->state.shelf == NULL) return;
    hop->shelf_read.entries = false;
    ask_words(hop, 0, TB_SHELF_HEAD_WORDS + TB_BITMAP_WORDS(hop->shelf.count));
}

static void ask_entries(struct tb_hop *hop)
{
    uint32_t entries = 0;
    struct tb_hop_shelf_read *r = &hop->shelf_read;
    if (!tb_hop_shelf_wanted(&hop->shelf, &r->first, &entries)) return;
    r->entries = true;
    ask_words(hop, tb_shelf_entry_offset(hop->shelf.count, r->first),
              (uint64_t)entries * TB_SHELF_ENTRY_WORDS);
}

/* Chunks without an encoded chunk are known at once. */
static void tell_none(const struct tb_hop *hop, uint32_t first, uint32_t count)
{
    uint32_t shard = 0, line = first;
    if (hop->options.encoded_chunks == NULL) return;
    for (uint32_t i = 0; i < count; i++, line++) {
        while (line >= hop->shards[shard].chunk_count)
            line -= hop->shards[shard++].chunk_count;
        const struct tb_hop_encoded none = {.shard = hop->shards[shard].source->shard,
                                            .chunk = line,
                                            .chunk_count = hop->shards[shard].chunk_count,
                                            .base = hop->shelf.head.base};
        if (tb_hop_shelf_none(&hop->shelf, first + i)) hop->options.encoded_chunks(hop->options.user, &none);
    }
}

static void shelf_came(struct tb_hop *hop)
{
    struct tb_hop_shelf_read *r = &hop->shelf_read;
    const uint32_t entries = r->read.bytes / (uint32_t)(TB_SHELF_ENTRY_WORDS * sizeof(uint64_t));
    enum tb_status status;
    if (r->entries)
        status = tb_hop_shelf_entries(&hop->shelf, r->first, r->words, entries, chunk_bytes, hop);
    else
        status = tb_hop_shelf_head(&hop->shelf, r->words);
    if (status != TB_OK)
        tb_hop_leave_shelf(hop);
    else if (r->entries)
        tell_none(hop, r->first, entries);
    else
        ask_entries(hop);
}

void tb_hop_begin_round(struct tb_hop *hop)
{
    TB_ASSERT(!hop->round_running && hop->snapshots_owed == 0);
    hop->round_running = true;
    ask_shelf(hop);
    for (uint32_t i = 0; i < hop->state.shard_count && !tb_hop_life_ends(hop->life); i++)
        ask_snapshot(hop, i);
    if (!tb_hop_life_ends(hop->life) && hop->snapshots_owed == 0) end_round(hop);
}

void tb_hop_words_came(struct tb_hop *hop, struct tb_read *read)
{
    TB_ASSERT(hop->round_running && hop->snapshots_owed > 0);
    hop->snapshots_owed--;
    if (read == &hop->shelf_read.read)
        shelf_came(hop);
    else
        snapshot_came(hop, (struct tb_hop_snapshot *)((char *)read - offsetof(struct tb_hop_snapshot, read)));
    if (!tb_hop_life_ends(hop->life) && hop->snapshots_owed == 0) end_round(hop);
}

/* A source's shelf is of all its shards; ours too. */
void tb_hop_follow_shelf(struct tb_hop *hop, uint32_t buffer, uint64_t offset)
{
    const uint64_t words = TB_SHELF_HEAD_WORDS + TB_BITMAP_WORDS(hop->state.chunk_total);
    const uint64_t entries = (uint64_t)TB_HOP_SHELF_ENTRIES_MAX * TB_SHELF_ENTRY_WORDS;
    if (hop->state.chunk_total == 0 || hop->state.chunk_total > TB_SHELF_COUNT_MAX) return;
    if (hop->shelf_memory != NULL || words * sizeof(uint64_t) > TB_HOP_WORDS_BYTES_MAX) return;
    if (offset % sizeof(uint64_t) != 0 || offset >= (uint64_t)1 << 62) return;
    const uint32_t count = (uint32_t)hop->state.chunk_total;
    const uint64_t bytes = tb_hop_shelf_bytes(count);
    const uint64_t read_words = words > entries ? words : entries;
    hop->shelf_memory = tb_malloc(bytes + read_words * sizeof(uint64_t));
    if (hop->shelf_memory == NULL) return; /* chunks come whole */
    tb_hop_shelf_init(&hop->shelf, hop->shelf_memory, count);
    if (hop->options.shelf_ms > 0) hop->shelf.patience = TB_MS(hop->options.shelf_ms);
    hop->shelf_read.words = (uint64_t *)(void *)((uint8_t *)hop->shelf_memory + bytes);
    hop->shelf_at = (struct tb_shelf_at){buffer, offset};
    hop->shelf.base = hop->base;
    hop->shelf.keeps = hop->options.encoded_chunks != NULL;
    hop->shelf.ours =
        hop->options.shelf != NULL && hop->options.shelf->count == count ? hop->options.shelf : NULL;
    hop->state.shelf = &hop->shelf;
}
