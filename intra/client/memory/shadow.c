/* shadow.c - host copies that a version is served from while the trainer writes the next one. Which
 * of them the next version is written to: publish/shadow_claim.c. Its memory is allocated once and
 * used again.
 *
 * Once the newer version is sealed, its chunks are encoded as deltas against the older one
 * (encode_jobs.h), until the older one is written again. */
#include "intra/client/memory/shadow.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "intra/client/memory/buffers.h"
#include "intra/client/memory/reserve.h"
#include "intra/client/publish/publication.h"
#include "intra/client/session/session.h"

bool tb_shadow_is_of(const struct tb_shadow *sh, const struct tb_publication *p)
{
    return sh->shard == p->shard && tb_name_equal(&sh->model, &p->model);
}

/* ---- deltas ---- */

void tb_shadow_filled(struct tb_publication *p)
{
    if (p->shadow == NULL) return;
    TB_ASSERT(p->shadow->user == p && p->manifest.bytes <= p->shadow->memory.count);
    p->shadow->uid = p->uid;
    p->shadow->layout_id = p->manifest.layout.id;
    p->shadow->bytes = p->manifest.bytes;
}

/* With one layout and one size the cut is the same. */
static struct tb_shadow *find_base(const struct tb_session *s, const struct tb_publication *p)
{
    for (struct tb_shadow *sh = s->shadows; sh != NULL; sh = sh->next) {
        if (!tb_shadow_is_of(sh, p) || sh == p->shadow || tb_id_is_zero(&sh->uid)) continue;
        if (sh->bytes == p->manifest.bytes && tb_digest_equal(&sh->layout_id, &p->manifest.layout.id))
            return sh;
    }
    return NULL;
}

static bool shelf_memory(struct tb_session *s, struct tb_shadow *sh, uint32_t chunks, uint64_t room)
{
    const struct tb_reserve_wish wish = {.kind = TB_RESERVE_SHELF,
                                         .model = &sh->model,
                                         .shard = sh->shard,
                                         .bytes = tb_shelf_bytes(chunks, room)};
    if (sh->shelf.count < wish.bytes) {
        tb_buffer_memory_free(s, &sh->shelf);
        if (tb_reserve_take(s, &wish, &sh->shelf) != TB_OK) return false;
    }
    memset(sh->shelf.bytes, 0, (size_t)tb_shelf_zero_bytes(chunks));
    return true;
}

void tb_shadow_shelf(struct tb_session *s, struct tb_publication *p, uint32_t classes)
{
    TB_ASSERT_UNLOCKED(s);
    const uint64_t room = TB_SHELF_ROOM(p->manifest.bytes);
    const uint32_t chunks = p->manifest.chunk_count;
    if (p->shadow == NULL || classes == 0 || chunks == 0 || chunks > TB_SHELF_COUNT_MAX) return;
    tb_session_lock(s);
    struct tb_shadow *base = find_base(s, p);
    tb_session_unlock(s);
    if (base == NULL || !shelf_memory(s, p->shadow, chunks, room)) return;
    tb_session_lock(s);
    if (!tb_id_is_zero(&base->uid)) { /* else somebody publishes the next one already */
        p->base = base;
        p->base_uid = base->uid;
        p->classes = classes;
        tb_shelf_init(&p->shelf, p->shadow->shelf.bytes, chunks, room);
        tb_shelf_open(&p->shelf, &p->base_uid);
    }
    tb_session_unlock(s);
}

void tb_shadow_encode(struct tb_session *s, struct tb_publication *p)
{
    TB_ASSERT_LOCKED(s);
    TB_ASSERT(p->encoding == NULL);
    if (p->base == NULL) return;
    TB_ASSERT(p->shadow != NULL && p->classes > 0);
    const struct tb_encoding_task task = {.manifest = &p->manifest,
                                          .bytes = p->shadow->memory.bytes,
                                          .base = p->base->memory.bytes,
                                          .classes = p->classes,
                                          .shelf = &p->shelf};
    /* it goes whole */
    if (tb_encoding_begin(s->crew, &task, &p->encoding) != TB_OK) p->encoding = NULL;
}

void tb_shadow_encode_end(struct tb_session *s, struct tb_publication *p)
{
    TB_ASSERT_LOCKED(s);
    while (p->ending) /* by the next writer to its base, and has no other business with it */
        tb_session_wait_unbounded(s);
    if (p->base == NULL) return;
    struct tb_encoding *encoding = p->encoding;
    p->encoding = NULL;
    if (encoding != NULL) {
        p->ending = true;
        tb_session_unlock(s);
        tb_encoding_end(encoding); /* a batch of large chunks takes as long as they take */
        tb_session_lock(s);
        p->ending = false;
        tb_session_changed(s, false);
    }
    tb_shelf_close(&p->shelf);
    p->base = NULL;
}

void tb_shadows_free(struct tb_session *s)
{
    while (s->shadows != NULL) {
        struct tb_shadow *sh = s->shadows;
        s->shadows = sh->next;
        tb_buffer_memory_free(s, &sh->memory);
        tb_buffer_memory_free(s, &sh->shelf);
        tb_free(sh);
    }
}

/* ---- invariants ---- */

static uint32_t count_like(const struct tb_session *s, const struct tb_shadow *wanted)
{
    uint32_t count = 0;
    for (const struct tb_shadow *sh = s->shadows; sh != NULL; sh = sh->next)
        count += sh->shard == wanted->shard && tb_name_equal(&sh->model, &wanted->model);
    return count;
}

static uint32_t count_made(const struct tb_session *s, const struct tb_shadow *wanted)
{
    uint32_t count = 0;
    for (const struct tb_shadow *sh = s->shadows; sh != NULL; sh = sh->next)
        count += sh->memory.bytes != NULL && sh->shard == wanted->shard &&
                 tb_name_equal(&sh->model, &wanted->model);
    return count;
}

static uint32_t count_prepared(const struct tb_session *s, const struct tb_shadow *sh)
{
    const struct tb_reserve_wish wish = {.kind = TB_RESERVE_SHADOW, .model = &sh->model, .shard = sh->shard};
    return tb_reserve_count(s, &wish);
}

static bool is_published(const struct tb_session *s, const struct tb_publication *wanted)
{
    const struct tb_publication *p = s->publications;
    while (p != NULL && p != wanted)
        p = p->next;
    return p != NULL;
}

/* P7: memory of a shard is bounded. A shadow and the version that stands in it name each other. */
void tb_shadows_check(const struct tb_session *s)
{
    TB_ASSERT_LOCKED(s);
    for (const struct tb_shadow *sh = s->shadows; sh != NULL; sh = sh->next) {
        TB_ASSERT(count_like(s, sh) <= TB_SHADOWS_MAX);
        TB_ASSERT(count_made(s, sh) + count_prepared(s, sh) <= TB_SHADOWS_MAX);
        if (sh->user != NULL) TB_ASSERT(is_published(s, sh->user) && sh->user->shadow == sh);
        if (!tb_id_is_zero(&sh->uid)) TB_ASSERT(sh->bytes > 0 && sh->bytes <= sh->memory.count);
    }
}
