/* stream_copy.c - chunks that are the same in a base cost no bytes: each is copied from the base,
 * digested, held.
 *
 * P1: the copy is verified like any chunk. P6: a chunk that cannot be made here is asked for whole
 * (no-base), and one that another writer has claimed is watched like one that was dropped. */
#include "wan/stream/stream_copy.h"
#include "base/assert.h"
#include "base/fault.h"
#include "wan/send/feed.h"
#include "wan/stream/stream.h"

const uint8_t *tb_stream_base_chunk(const struct tb_stream_trust *trust, const struct tb_shared_places *share,
                                    const struct tb_shared_places *base, uint32_t shard, uint32_t chunk)
{
    uint32_t bytes = 0;
    if (base == NULL || tb_shared_places_revoked(base) || shard >= base->shard_count) return NULL;
    const struct tb_place *place = &base->places[shard];
    TB_ASSERT(shard < share->shard_count && chunk < share->places[shard].manifest->chunk_count);
    if (!tb_base_fits(share->places[shard].manifest, place->manifest, chunk)) return NULL;
    if (!tb_place_held(place, chunk)) return NULL;
    if (trust->fn != NULL && !trust->fn(trust->user, &base->uid, shard, chunk)) return NULL;
    return tb_place_chunk(place, chunk, &bytes);
}

void tb_stream_copy_free(struct tb_stream_copy *copy)
{
    tb_shared_places_unref(copy->base);
    tb_shared_places_unref(copy->share);
    tb_free(copy);
}

static bool is_same(const struct tb_stream_copy *c)
{
    TB_ASSERT(c->shard < c->share->shard_count && c->shard < c->base->shard_count);
    return tb_base_same(c->share->places[c->shard].manifest, c->base->places[c->shard].manifest, c->chunk);
}

/* The next chunk of our part that is the same. False: there is none. */
static bool find(struct tb_stream_copy *c)
{
    for (; c->shard < c->share->shard_count && c->shard < c->base->shard_count;
         c->shard++, c->chunk = c->part) {
        const uint32_t count = c->share->places[c->shard].manifest->chunk_count;
        while (c->chunk < count && !is_same(c))
            c->chunk += c->parts;
        if (c->chunk < count) return true;
    }
    return false;
}

static bool note(const struct tb_stream_copy *c, enum tb_note_kind kind, enum tb_refusal why)
{
    const struct tb_note n = {
        .kind = kind, .why = why, .crossing = c->crossing, .shard = c->shard, .chunk = c->chunk};
    return tb_feed_note_late(c->feed, &n);
}

/* False: no room for the note; the same chunk again, later. */
static bool copy_one(struct tb_stream_copy *c)
{
    struct tb_place *place = &c->share->places[c->shard];
    uint32_t bytes = 0;
    if (!tb_place_claim(place, c->chunk))
        return tb_place_held(place, c->chunk) || note(c, TB_NOTE_DROPPED, TB_REFUSAL_LOST);
    const uint8_t *from = tb_stream_base_chunk(&c->trust, c->share, c->base, c->shard, c->chunk);
    if (from == NULL) {
        tb_place_unclaim(place, c->chunk);
        return note(c, TB_NOTE_BAD, TB_REFUSAL_NO_BASE);
    }
    uint8_t *to = tb_place_chunk(place, c->chunk, &bytes);
    memcpy(to, from, bytes);
    return tb_place_finish(place, c->chunk) == TB_OK || note(c, TB_NOTE_BAD, TB_REFUSAL_NO_BASE);
}

enum tb_stream_copied tb_stream_copy_step(struct tb_stream_copy *c, uint64_t budget)
{
    TB_ASSERT(c->part < c->parts && c->crossing != 0);
    uint64_t done = 0;
    while (done < budget) {
        if (tb_shared_places_revoked(c->share) || !find(c)) return TB_STREAM_COPIED;
        done += c->share->places[c->shard].manifest->chunks[c->chunk].bytes;
        if (!copy_one(c)) return TB_STREAM_COPY_WAITS;
        c->chunk += c->parts;
    }
    return TB_STREAM_COPY_MORE;
}
