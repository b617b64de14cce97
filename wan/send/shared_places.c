/* shared_places.c - a count of references keeps the places of a version while
 * streams touch them. */
#include "wan/send/shared_places.h"
#include "base/allocate.h"
#include "base/assert.h"
#include "wan/send/encoded_chunks_chain.h"
#include <string.h>

struct tb_shared_places *tb_shared_places_new(const struct tb_id *uid, const struct tb_place *places,
                                              uint32_t shard_count, uv_async_t *wake)
{
    struct tb_shared_places *s = tb_malloc(sizeof *s + shard_count * sizeof s->places[0]);
    if (s == NULL) return NULL;
    atomic_init(&s->refs, 1);
    atomic_init(&s->revoked, false);
    atomic_init(&s->received_bytes, 0);
    s->sent = NULL;
    s->encoded_chunks = NULL;
    s->known = NULL;
    s->wake = wake;
    s->uid = *uid;
    s->shard_count = shard_count;
    memcpy(s->places, places, shard_count * sizeof s->places[0]);
    return s;
}

void tb_shared_places_ref(struct tb_shared_places *s)
{
    const unsigned before = atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    TB_ASSERT(before > 0); /* somebody kept it alive until now */
}

void tb_shared_places_unref(struct tb_shared_places *s)
{
    uv_async_t *wake = s->wake; /* after the count is down, s may be gone */
    const bool revoked = tb_shared_places_revoked(s);
    const unsigned before = atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel);
    TB_ASSERT(before > 1);
    if (before == 2 && revoked) uv_async_send(wake);
}

bool tb_shared_places_revoked(const struct tb_shared_places *s)
{
    return atomic_load_explicit(&s->revoked, memory_order_acquire);
}

void tb_shared_places_revoke(struct tb_shared_places *s)
{
    TB_ASSERT(!tb_shared_places_revoked(s)); /* one call takes the places back */
    atomic_store_explicit(&s->revoked, true, memory_order_release);
}

bool tb_shared_places_only_ours(struct tb_shared_places *s)
{
    return atomic_load_explicit(&s->refs, memory_order_acquire) == 1;
}

void tb_shared_places_free(struct tb_shared_places *s)
{
    TB_ASSERT(tb_shared_places_only_ours(s));
    TB_ASSERT((s->known == NULL) == (s->encoded_chunks == NULL));
    tb_sent_free(s->sent);
    if (s->known != NULL) tb_known_unref(s->encoded_chunks, s->known);
    tb_free(s);
}

bool tb_shared_places_layouts_meet(const struct tb_shared_places *a, const struct tb_shared_places *b)
{
    for (uint32_t s = 0; s < a->shard_count && s < b->shard_count; s++)
        if (tb_digest_equal(&a->places[s].manifest->layout.id, &b->places[s].manifest->layout.id))
            return true;
    return false;
}
