/* place.c - claim, write, take: the only way in which a chunk becomes held (P1). */
#include "base/layout/place.h"

#include <string.h>

#include "base/assert.h"
#include "base/layout/chunk_digest.h"

bool tb_place_held(const struct tb_place *p, uint32_t k)
{
    TB_ASSERT(k < p->manifest->chunk_count);
    return tb_bitmap_test(p->held, k);
}

bool tb_place_claim(struct tb_place *p, uint32_t k)
{
    if (tb_place_held(p, k)) return false;
    if (!tb_bitmap_set(p->claimed, k)) return false;
    /* Between the two lines above another caller may have landed the chunk and ended its claim. It
     * sets the held bit first, so a look after the claim sees the bit. */
    if (tb_bitmap_test(p->held, k)) {
        tb_bitmap_clear(p->claimed, k);
        return false;
    }
    return true;
}

void tb_place_unclaim(struct tb_place *p, uint32_t k)
{
    TB_ASSERT(k < p->manifest->chunk_count);
    const bool was_claimed = tb_bitmap_clear(p->claimed, k);
    TB_ASSERT(was_claimed);
}

bool tb_place_owner_looks(const struct tb_place *p, uint32_t k, const struct tb_place_came *came)
{
    TB_ASSERT(came->beside == NULL || came->encoded == NULL);
    return came->encoded != NULL || tb_place_is_far(p, k);
}

/* P1: only bytes that fit make a chunk held. */
static enum tb_status judge(const struct tb_place *p, uint32_t k, const struct tb_place_came *came, bool fit)
{
    if (!fit) return TB_CHUNK_DIGEST;
    if (p->owner == NULL || p->owner->keep == NULL) {
        TB_ASSERT(came->encoded == NULL); /* held means that the bytes are somewhere */
        return TB_OK;
    }
    return p->owner->keep(p->owner->user, p, k, came);
}

static void settle(struct tb_place *p, uint32_t k, enum tb_status status)
{
    TB_ASSERT(!tb_place_held(p, k) && tb_bitmap_test(p->claimed, k)); /* one writer at a time */
    if (status == TB_OK) tb_bitmap_set(p->held, k);
    tb_place_unclaim(p, k);
}

/* The claimer alone writes the proof of its chunk. */
static void prove(struct tb_place *p, uint32_t k, const uint8_t *chunk)
{
    struct tb_blake3 proof;
    TB_ASSERT(p->proves == p->manifest);
    if (tb_manifest_proof(p->manifest, k, &proof)) return;
    proof = tb_chunk_proof(p->manifest, k, chunk);
    tb_manifest_set_proof(p->proves, k, &proof);
}

enum tb_status tb_place_take(struct tb_place *p, uint32_t k, const struct tb_place_came *came)
{
    uint32_t bytes = 0;
    TB_ASSERT(!tb_place_held(p, k) && tb_bitmap_test(p->claimed, k));
    TB_ASSERT(!tb_place_owner_looks(p, k, came));
    uint8_t *chunk = tb_place_chunk(p, k, &bytes);
    if (came->beside != NULL) memcpy(chunk, came->beside, bytes);
    /* Home proved the bytes that it had digested: what fits the proof fits the digest. */
    const bool fit =
        came->foreign ? tb_chunk_proven(p->manifest, k, chunk) : tb_chunk_matches(p->manifest, k, chunk);
    const enum tb_status status = judge(p, k, came, fit);
    if (status == TB_OK && p->proves != NULL) prove(p, k, chunk);
    settle(p, k, status);
    return status;
}

void tb_place_take_later(struct tb_place *p, uint32_t k, const struct tb_place_came *came,
                         struct tb_place_look *look)
{
    TB_ASSERT(!tb_place_held(p, k) && tb_bitmap_test(p->claimed, k));
    TB_ASSERT(tb_place_owner_looks(p, k, came) && look->done != NULL);
    TB_ASSERT(p->owner != NULL && p->owner->look != NULL);
    look->place = p;
    look->chunk = k;
    look->came = *came;
    look->proof = (struct tb_blake3){{0}};
    p->owner->look(p->owner->user, look);
}

void tb_place_looked(struct tb_place_look *look, enum tb_status status, const struct tb_digest *digest)
{
    TB_ASSERT(status != TB_OK || digest != NULL);
    struct tb_place *p = look->place;
    const bool believed = !look->came.foreign || tb_chunk_has_proof(p->manifest, look->chunk, &look->proof);
    if (status == TB_OK) {
        const bool fit = believed && tb_chunk_has_digest(p->manifest, look->chunk, digest);
        status = judge(p, look->chunk, &look->came, fit);
    }
    settle(p, look->chunk, status);
    look->done(look, status);
}

enum tb_status tb_place_finish(struct tb_place *p, uint32_t k)
{
    return tb_place_take(p, k, &(struct tb_place_came){0});
}

uint32_t tb_place_held_count(const struct tb_place *p)
{
    return tb_bitmap_popcount(p->held, p->manifest->chunk_count);
}

static bool wanted_whole(const struct tb_place *p)
{
    for (uint64_t w = 0; w < TB_BITMAP_WORDS(p->manifest->chunk_count); w++)
        if ((p->owner->wanted[w] & ~__atomic_load_n(&p->held[w], __ATOMIC_ACQUIRE)) != 0) return false;
    return true;
}

bool tb_place_whole(const struct tb_place *p)
{
    const uint32_t count = p->manifest->chunk_count;
    if (p->owner != NULL && p->owner->wanted != NULL) return wanted_whole(p);
    return tb_bitmap_next_clear(p->held, count, 0) == count;
}

bool tb_place_is_far(const struct tb_place *p, uint32_t k)
{
    TB_ASSERT(k < p->manifest->chunk_count);
    return p->far != NULL && p->manifest->chunks[k].offset < p->far->bytes;
}

uint8_t *tb_place_chunk(const struct tb_place *p, uint32_t k, uint32_t *bytes_out)
{
    TB_ASSERT(k < p->manifest->chunk_count);
    const uint64_t offset = p->manifest->chunks[k].offset;
    *bytes_out = p->manifest->chunks[k].bytes;
    if (p->far != NULL && offset >= p->far->bytes) return p->far->rest + (offset - p->far->bytes);
    return p->bytes + offset;
}
