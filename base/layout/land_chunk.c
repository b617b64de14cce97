/* land_chunk.c - base, decoder, digest: one way for every chunk that lands. */
#include "base/layout/land_chunk.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/layout/chunk_digest.h"

const uint8_t *tb_land_base(const struct tb_place *base, const struct tb_manifest *manifest, uint32_t k)
{
    TB_ASSERT(k < manifest->chunk_count);
    if (k >= base->manifest->chunk_count) return NULL;
    const struct tb_chunk *ours = &manifest->chunks[k], *theirs = &base->manifest->chunks[k];
    uint32_t bytes = 0;
    if (ours->offset != theirs->offset || ours->bytes != theirs->bytes) return NULL;
    if (!tb_place_held(base, k) || tb_place_is_far(base, k)) return NULL;
    return tb_place_chunk(base, k, &bytes);
}

static enum tb_status decode(struct tb_land *l, uint8_t *to)
{
    const uint32_t bytes = l->place->manifest->chunks[l->chunk].bytes;
    const bool on_base = l->encoded->form.on_base;
    if (on_base && l->base == NULL) return TB_NOT_FOUND;
    TB_ASSERT(!on_base || to + bytes <= l->base || l->base + bytes <= to);
    const struct tb_codec_output out = {.bytes = to, .count = bytes, .base = on_base ? l->base : NULL};
    const tb_time_ns began = tb_clock_now();
    const enum tb_status status = tb_codec_decode(l->codec, l->encoded, &out);
    l->decoded = status == TB_OK;
    l->decode_ns = tb_time_since(began, tb_clock_now());
    return status;
}

static void check(const struct tb_land *l)
{
    TB_ASSERT(tb_bitmap_test(l->place->claimed, l->chunk));
    TB_ASSERT(l->encoded == NULL || l->beside == NULL);
    TB_ASSERT(!l->owner_decodes || (l->encoded != NULL && l->encoded->form.on_base && l->into == NULL));
}

/* The chunk as the place gets it. A delta on the owner's base goes there as it is. */
static enum tb_status came_of(struct tb_land *l, struct tb_place_came *came_out)
{
    uint32_t bytes = 0;
    *came_out = (struct tb_place_came){.beside = l->beside, .foreign = l->foreign};
    if (l->encoded == NULL) return TB_OK;
    if (l->owner_decodes) {
        came_out->encoded = l->encoded;
        return TB_OK;
    }
    TB_ASSERT(l->into != NULL || !tb_place_is_far(l->place, l->chunk));
    came_out->beside = l->into;
    return decode(l, l->into != NULL ? l->into : tb_place_chunk(l->place, l->chunk, &bytes));
}

enum tb_status tb_land_chunk(struct tb_land *l)
{
    struct tb_place_came came;
    l->decoded = false;
    check(l);
    TB_ASSERT(!tb_land_is_owners(l));
    const enum tb_status status = came_of(l, &came);
    if (status == TB_OK) return tb_place_take(l->place, l->chunk, &came);
    tb_place_unclaim(l->place, l->chunk);
    return status;
}

bool tb_land_is_owners(const struct tb_land *l)
{
    return l->owner_decodes || tb_place_is_far(l->place, l->chunk);
}

void tb_land_later(struct tb_land *l, struct tb_place_look *look)
{
    struct tb_place_came came;
    l->decoded = false;
    check(l);
    TB_ASSERT(tb_land_is_owners(l));
    const enum tb_status status = came_of(l, &came);
    if (status == TB_OK) {
        tb_place_take_later(l->place, l->chunk, &came, look);
        return;
    }
    tb_place_unclaim(l->place, l->chunk);
    look->done(look, status);
}

enum tb_status tb_land_beside(struct tb_land *l)
{
    l->decoded = false;
    TB_ASSERT(!l->owner_decodes && (l->encoded == NULL) == (l->into == NULL));
    TB_ASSERT((l->encoded == NULL) == (l->beside != NULL));
    if (l->encoded != NULL) {
        const enum tb_status status = decode(l, l->into);
        if (status != TB_OK) return status;
    }
    const uint8_t *bytes = l->encoded != NULL ? l->into : l->beside;
    const bool fit = l->foreign ? tb_chunk_proven(l->place->manifest, l->chunk, bytes)
                                : tb_chunk_matches(l->place->manifest, l->chunk, bytes);
    return fit ? TB_OK : TB_CHUNK_DIGEST;
}
