/* stream_copy.c - chunks that are the same in a base cost no bytes: each is copied from the base,
 * digested, held.
 *
 * P1: the copy is verified like any chunk. P6: a chunk that cannot be made here is asked for whole
 * (no-base), and one that another writer has claimed is watched like one that was dropped. */
#include "wan/stream/stream_copy.h"
#include "base/allocate.h"
#include "base/assert.h"
#include "base/layout/land_chunk.h"
#include "wan/send/base_chunks.h"
#include "wan/send/feed.h"
#include "wan/stream/stream.h"

const uint8_t *tb_stream_base_chunk(const struct tb_stream_trust *trust, const struct tb_shared_places *share,
                                    const struct tb_shared_places *base, uint32_t shard, uint32_t chunk)
{
    if (base == NULL || tb_shared_places_revoked(base) || shard >= base->shard_count) return NULL;
    TB_ASSERT(shard < share->shard_count && chunk < share->places[shard].manifest->chunk_count);
    const struct tb_place *place = &base->places[shard];
    const struct tb_manifest *manifest = share->places[shard].manifest;
    if (!tb_base_fits(manifest, place->manifest, chunk)) return NULL;
    const uint8_t *bytes = tb_land_base(place, manifest, chunk);
    if (bytes == NULL) return NULL;
    return trust->fn == NULL || trust->fn(trust->user, &base->uid, shard, chunk) ? bytes : NULL;
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
    if (!tb_place_claim(place, c->chunk))
        return tb_place_held(place, c->chunk) || note(c, TB_NOTE_DROPPED, TB_REFUSAL_LOST);
    const uint8_t *from = tb_stream_base_chunk(&c->trust, c->share, c->base, c->shard, c->chunk);
    if (from == NULL) {
        tb_place_unclaim(place, c->chunk);
        return note(c, TB_NOTE_BAD, TB_REFUSAL_NO_BASE);
    }
    const struct tb_place_came came = {.beside = from};
    return tb_place_take(place, c->chunk, &came) == TB_OK || note(c, TB_NOTE_BAD, TB_REFUSAL_NO_BASE);
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
