/* place.c - claim, write, finish: the only way in which a chunk becomes held (P1). */
#include "base/layout/place.h"

#include "base/assert.h"

bool tb_place_held(const struct tb_place *p, uint32_t k)
{
    TB_ASSERT(k < p->manifest->chunk_count);
    return tb_bitmap_test(p->held, k);
}

bool tb_place_claim(struct tb_place *p, uint32_t k)
{
    if (tb_place_held(p, k)) return false;
    if (!tb_bitmap_set(p->claimed, k)) return false;
    /* Between the two lines above another may have finished the chunk and ended its claim: finish
     * sets held first, so a look behind the claim sees it. */
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

static enum tb_status finish_far(struct tb_place *p, uint32_t k, const uint8_t *from)
{
    TB_ASSERT(!tb_place_held(p, k) && tb_bitmap_test(p->claimed, k));
    const enum tb_status status = p->far->finish(p->far->owner, p, k, from);
    if (status == TB_OK) tb_bitmap_set(p->held, k);
    tb_place_unclaim(p, k);
    return status;
}

enum tb_status tb_place_bring(struct tb_place *p, uint32_t k, const uint8_t *from)
{
    TB_ASSERT(tb_place_is_far(p, k) && from != NULL);
    return finish_far(p, k, from);
}

enum tb_status tb_place_finish(struct tb_place *p, uint32_t k)
{
    uint32_t bytes = 0;
    if (tb_place_is_far(p, k)) return finish_far(p, k, NULL);
    TB_ASSERT(!tb_place_held(p, k) && tb_bitmap_test(p->claimed, k));
    const uint8_t *chunk = tb_place_chunk(p, k, &bytes);
    const struct tb_digest digest = tb_digest_of(chunk, bytes);
    const bool good = tb_digest_equal(&digest, &p->manifest->digests[k]);
    if (good && p->landed != NULL) p->landed(p->owner, p, k);
    if (good) tb_bitmap_set(p->held, k);
    tb_place_unclaim(p, k);
    return good ? TB_OK : TB_CHUNK_DIGEST;
}

void tb_place_accept(struct tb_place *p, uint32_t k)
{
    TB_ASSERT(p->landed != NULL && !tb_place_held(p, k));
    tb_bitmap_set(p->held, k);
    tb_place_unclaim(p, k);
}

uint32_t tb_place_held_count(const struct tb_place *p)
{
    return tb_bitmap_popcount(p->held, p->manifest->chunk_count);
}

static bool wanted_whole(const struct tb_place *p)
{
    for (uint64_t w = 0; w < TB_BITMAP_WORDS(p->manifest->chunk_count); w++)
        if ((p->wanted[w] & ~__atomic_load_n(&p->held[w], __ATOMIC_ACQUIRE)) != 0) return false;
    return true;
}

bool tb_place_whole(const struct tb_place *p)
{
    const uint32_t count = p->manifest->chunk_count;
    if (p->wanted != NULL) return wanted_whole(p);
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
