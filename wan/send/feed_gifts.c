/* feed_gifts.c - chunks that came by a second way while a slower stream has the claim. */
#include "base/allocate.h"
#include "base/assert.h"
#include "wan/send/feed_inside.h"

static void gift_drop(struct tb_feed *f, uint32_t i)
{
    TB_ASSERT(i < f->gift_count && f->gifts[i].share != NULL);
    tb_shared_places_unref(f->gifts[i].share);
    tb_free(f->gifts[i].bytes);
    f->gifts[i] = f->gifts[--f->gift_count];
}

static bool same_chunk(const struct tb_gift *a, const struct tb_gift *b)
{
    return a->share == b->share && a->shard == b->shard && a->chunk == b->chunk;
}

bool tb_feed_gift(struct tb_feed *f, const struct tb_gift *gift)
{
    TB_ASSERT(gift->bytes != NULL && gift->shard < gift->share->shard_count);
    uv_mutex_lock(&f->lock);
    bool fits = f->gift_count < TB_FEED_GIFTS_MAX;
    for (uint32_t i = 0; i < f->gift_count; i++)
        fits = fits && !same_chunk(&f->gifts[i], gift);
    if (fits) f->gifts[f->gift_count++] = *gift;
    uv_mutex_unlock(&f->lock);
    return fits;
}

uint8_t *tb_feed_gift_take(struct tb_feed *f, const struct tb_shared_places *share, uint32_t shard,
                           uint32_t chunk)
{
    uint8_t *bytes = NULL;
    if (atomic_load_explicit(&f->gift_count, memory_order_relaxed) == 0) return NULL; /* nearly always */
    uv_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < f->gift_count && bytes == NULL; i++) {
        struct tb_gift *g = &f->gifts[i];
        if (g->share != share || g->shard != shard || g->chunk != chunk) continue;
        bytes = g->bytes;
        g->bytes = NULL;
        gift_drop(f, i);
    }
    uv_mutex_unlock(&f->lock);
    return bytes;
}

/* True: nothing is left to do for it. */
static bool gift_over(struct tb_gift *g)
{
    struct tb_place *place = &g->share->places[g->shard];
    const struct tb_place_came came = {.beside = g->bytes};
    if (tb_shared_places_revoked(g->share) || tb_place_held(place, g->chunk)) return true;
    if (!tb_place_claim(place, g->chunk)) return false;
    /* Its digest was right before. If it is wrong now, this machine's memory is, and the chunk is
     * asked for again. */
    (void)!tb_place_take(place, g->chunk, &came);
    return true;
}

bool tb_feed_gifts_settle(struct tb_feed *f)
{
    bool fresh = false;
    uv_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < f->gift_count;) {
        if (gift_over(&f->gifts[i])) {
            gift_drop(f, i);
            continue;
        }
        fresh |= f->gifts[i].fresh;
        f->gifts[i++].fresh = false;
    }
    uv_mutex_unlock(&f->lock);
    return fresh;
}

void tb_feed_gifts_drop(struct tb_feed *f)
{
    uv_mutex_lock(&f->lock);
    while (f->gift_count > 0)
        gift_drop(f, 0);
    uv_mutex_unlock(&f->lock);
}

void tb_feed_gifts_check_locked(const struct tb_feed *f)
{
    const uint32_t count = f->gift_count;
    TB_ASSERT(count <= TB_FEED_GIFTS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        TB_ASSERT(f->gifts[i].share != NULL && f->gifts[i].bytes != NULL);
        for (uint32_t k = 0; k < i; k++)
            TB_ASSERT(!same_chunk(&f->gifts[i], &f->gifts[k]));
    }
}
