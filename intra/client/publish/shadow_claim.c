/* shadow_claim.c - which shadow the next version is written to.
 *
 * At most two for a (model, shard), because the older one is taken home while the newer one is
 * written. A third is waited for. So a trainer that publishes faster than its home lands meets that
 * limit here and in hold, and memory stays bounded (P7). */
#include "intra/client/publish/shadow_claim.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/fault.h"
#include "base/layout/shelf.h"
#include "intra/client/memory/buffers.h"
#include "intra/client/memory/reserve.h"
#include "intra/client/memory/shadow.h"
#include "intra/client/publish/publication.h"
#include "intra/client/publish/publication_messages.h"
#include "intra/client/session/request.h"
#include "intra/client/session/session.h"

static uint32_t count_shadows(const struct tb_session *s, const struct tb_publication *p)
{
    uint32_t count = 0;
    for (const struct tb_shadow *sh = s->shadows; sh != NULL; sh = sh->next)
        count += tb_shadow_is_of(sh, p);
    return count;
}

/* A free one, the smallest that is large enough; else any free one. */
static struct tb_shadow *find_free(struct tb_session *s, const struct tb_publication *p, uint64_t bytes)
{
    struct tb_shadow *best = NULL;
    for (struct tb_shadow *sh = s->shadows; sh != NULL; sh = sh->next) {
        if (!tb_shadow_is_of(sh, p) || sh->user != NULL) continue;
        if (best == NULL || (sh->memory.count >= bytes && best->memory.count < bytes)) best = sh;
    }
    return best;
}

/* The oldest whose version has a keeper besides us, or will never be. */
static struct tb_shadow *find_spent(struct tb_session *s, const struct tb_publication *p)
{
    struct tb_shadow *oldest = NULL;
    for (struct tb_shadow *sh = s->shadows; sh != NULL; sh = sh->next) {
        if (!tb_shadow_is_of(sh, p) || sh->user == NULL || tb_publication_is_busy(sh->user->life)) continue;
        if (!sh->user->kept && sh->user->state == TB_OK) continue;
        if (oldest == NULL || sh->user->order < oldest->user->order) oldest = sh;
    }
    return oldest;
}

/* Ends our reference to the version in it: the gateway is told, readers go on elsewhere with what
 * they hold. */
static void reclaim(struct tb_session *s, struct tb_shadow *sh)
{
    TB_ASSERT(sh->user != NULL && !tb_publication_is_busy(sh->user->life));
    struct tb_publication *p = sh->user;
    tb_request_farewell(s, tb_publication_gone_request(s, p, 0));
    tb_publication_remove(s, p, 0);
}

static struct tb_publication *first_on(const struct tb_session *s, const struct tb_shadow *sh)
{
    struct tb_publication *p = s->publications;
    while (p != NULL && p->base != sh)
        p = p->next;
    return p;
}

/* It is written next: nothing is compared with it, and nothing of it is encoded, any more. The lock
 * is let go meanwhile: first it is nobody's base, then it ceases to be, and a thread that ends
 * another's encoding looks again from the start. */
static void forget_content(struct tb_session *s, struct tb_shadow *sh)
{
    memset(&sh->uid, 0, sizeof sh->uid);
    struct tb_publication *p;
    while ((p = first_on(s, sh)) != NULL) {
        if (p->ending)
            tb_session_wait_unbounded(s);
        else
            tb_shadow_encode_end(s, p);
    }
}

static struct tb_shadow *new_shadow(struct tb_session *s, const struct tb_publication *p)
{
    struct tb_shadow *sh = tb_calloc(1, sizeof *sh);
    if (sh == NULL) return NULL;
    sh->model = p->model;
    sh->shard = p->shard;
    sh->next = s->shadows;
    s->shadows = sh;
    return sh;
}

static struct tb_reserve_wish wish_for(enum tb_reserve_kind kind, const struct tb_publication *p,
                                       uint64_t bytes)
{
    return (struct tb_reserve_wish){.kind = kind, .model = &p->model, .shard = p->shard, .bytes = bytes};
}

/* Its pages are all there behind it, once, so that a later pass copies at the speed of memory. The
 * lock is let go meanwhile. */
static enum tb_status make_room(struct tb_session *s, struct tb_shadow *sh,
                                const struct tb_reserve_wish *wish)
{
    TB_ASSERT_LOCKED(s);
    TB_ASSERT(tb_id_is_zero(&sh->uid)); /* nobody compares with it */
    if (sh->memory.count >= wish->bytes) return TB_OK;
    struct tb_shared_memory old = sh->memory, grown = {.memfd = -1};
    sh->memory = (struct tb_shared_memory){.memfd = -1};
    tb_session_unlock(s);
    tb_buffer_memory_free(s, &old);
    const enum tb_status status = tb_reserve_take(s, wish, &grown);
    tb_session_lock(s);
    if (status == TB_OK) sh->memory = grown;
    return status;
}

enum tb_status tb_shadow_claim_take(struct tb_session *s, struct tb_publication *p, uint64_t bytes,
                                    const struct tb_call *call)
{
    TB_ASSERT_LOCKED(s);
    TB_ASSERT(p->shadow == NULL && p->life == TB_PUBLICATION_NEW);
    struct tb_shadow *sh;
    for (;;) {
        sh = find_free(s, p, bytes);
        if (sh == NULL && count_shadows(s, p) < TB_SHADOWS_MAX) {
            sh = new_shadow(s, p);
            if (sh == NULL) return TB_SITE_NOMEM;
        }
        if (sh != NULL) break;
        struct tb_shadow *spent = find_spent(s, p);
        if (spent != NULL) {
            reclaim(s, spent);
            continue;
        }
        const enum tb_status status = tb_session_wait_change(s, call);
        if (status != TB_OK) return status;
    }
    TB_ASSERT(sh->user == NULL && count_shadows(s, p) <= TB_SHADOWS_MAX);
    sh->user = p;
    p->shadow = sh;
    forget_content(s, sh);
    /* on failure the publication is removed, and the shadow with it is free again */
    const struct tb_reserve_wish wish = wish_for(TB_RESERVE_SHADOW, p, bytes);
    return make_room(s, sh, &wish);
}

/* ---- the next one's, in background ---- */

static uint32_t count_shelves(const struct tb_session *s, const struct tb_publication *p)
{
    uint32_t count = 0;
    for (const struct tb_shadow *sh = s->shadows; sh != NULL; sh = sh->next)
        count += tb_shadow_is_of(sh, p) && sh->shelf.bytes != NULL;
    return count;
}

void tb_shadow_claim_prepare(struct tb_session *s, const struct tb_publication *p, uint64_t bytes, bool pin,
                             struct tb_registration *of)
{
    TB_ASSERT_LOCKED(s);
    struct tb_reserve_wish wish = wish_for(TB_RESERVE_SHADOW, p, bytes);
    wish.pin = pin;
    wish.of = of;
    if (count_shadows(s, p) + tb_reserve_count(s, &wish) < (of != NULL ? 1 : TB_SHADOWS_MAX))
        tb_reserve_ask(s, &wish);
}

void tb_shadow_claim_next(struct tb_session *s, const struct tb_publication *p, uint32_t classes, bool pin)
{
    TB_ASSERT_LOCKED(s);
    if (s->no_prepare || p->shadow == NULL) return;
    tb_shadow_claim_prepare(s, p, p->manifest.bytes, pin, NULL);
    const uint32_t chunks = p->manifest.chunk_count;
    if (classes == 0 || chunks > TB_SHELF_COUNT_MAX) return;
    const struct tb_reserve_wish shelf =
        wish_for(TB_RESERVE_SHELF, p, tb_shelf_bytes(chunks, TB_SHELF_ROOM(p->manifest.bytes)));
    if (count_shelves(s, p) + tb_reserve_count(s, &shelf) < TB_SHADOWS_MAX) tb_reserve_ask(s, &shelf);
}
