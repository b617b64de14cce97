/* shadow.c - host copies that a version is served from while the trainer writes the next one: at most two for
 * a (model, shard).
 *
 * Two, because the older is taken home while the newer is written; a third is waited for, so a trainer that
 * publishes faster than its home lands meets that limit here and in hold, and memory stays bounded (P7). The
 * memory is allocated once and used again.
 *
 * The older is also what the newer is compared with: once that is sealed, its chunks are encoded as differences to the older one
 * (encode.h), until the older is written again. */
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "intra/client/session/client.h"

static bool is_of(const struct tb_shadow *sh, const struct tb_publication *p)
{
    return sh->shard == p->shard && tb_name_equal(&sh->model, &p->model);
}

static uint32_t count_shadows(const struct tb_session *s, const struct tb_publication *p)
{
    uint32_t count = 0;
    for (const struct tb_shadow *sh = s->shadows; sh != NULL; sh = sh->next)
        count += is_of(sh, p);
    return count;
}

/* A free one, the smallest that is large enough; else any free one. */
static struct tb_shadow *find_free(struct tb_session *s, const struct tb_publication *p, uint64_t bytes)
{
    struct tb_shadow *best = NULL;
    for (struct tb_shadow *sh = s->shadows; sh != NULL; sh = sh->next) {
        if (!is_of(sh, p) || sh->user != NULL) continue;
        if (best == NULL || (sh->memory.count >= bytes && best->memory.count < bytes)) best = sh;
    }
    return best;
}

/* The oldest whose version has a keeper besides us, or will never be. */
static struct tb_shadow *find_spent(struct tb_session *s, const struct tb_publication *p)
{
    struct tb_shadow *oldest = NULL;
    for (struct tb_shadow *sh = s->shadows; sh != NULL; sh = sh->next) {
        if (!is_of(sh, p) || sh->user == NULL || sh->user->busy) continue;
        if (!sh->user->kept && sh->user->state == TB_OK) continue;
        if (oldest == NULL || sh->user->order < oldest->user->order) oldest = sh;
    }
    return oldest;
}

/* Ends our reference to the version in it: the gateway is told, readers go on elsewhere with what they hold. */
static void reclaim(struct tb_session *s, struct tb_shadow *sh)
{
    struct tb_publication *p = sh->user;
    tb_request_farewell(s, tb_unpublish_gone_request(s, p, 0));
    tb_publication_remove(s, p, 0);
}

static struct tb_publication *first_on(const struct tb_session *s, const struct tb_shadow *sh)
{
    struct tb_publication *p = s->publications;
    while (p != NULL && p->base != sh)
        p = p->next;
    return p;
}

/* It is written next: nothing is compared with it, and nothing of it is encoded, any more. The lock is let go meanwhile: first it is
 * nobody's base, then it ceases to be, and whoever ends another's encoding looks again from the start. */
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

/* Its pages are all made here, once, so that a later pass copies at the speed of memory. The lock is let go
 * meanwhile. */
static enum tb_status make_room(struct tb_session *s, struct tb_shadow *sh, uint64_t bytes)
{
    if (sh->memory.count >= bytes) return TB_OK;
    struct tb_shared_memory old = sh->memory, grown = {.memfd = -1};
    sh->memory = (struct tb_shared_memory){.memfd = -1};
    tb_session_unlock(s);
    tb_session_memory_free(s, &old);
    const enum tb_status status = tb_session_memory_new(s, "tombolo-shadow", bytes, &grown);
    tb_session_lock(s);
    if (status == TB_OK) sh->memory = grown;
    return status;
}

enum tb_status tb_shadow_take(struct tb_session *s, struct tb_publication *p, uint64_t bytes,
                              const struct tb_call *call)
{
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
    sh->user = p;
    p->shadow = sh;
    forget_content(s, sh);
    /* on failure the publication is removed, and the shadow with it is free again */
    return make_room(s, sh, bytes);
}

/* ---- differences ---- */

void tb_shadow_filled(struct tb_publication *p)
{
    if (p->shadow == NULL) return;
    p->shadow->uid = p->uid;
    p->shadow->layout_id = p->manifest.layout.id;
    p->shadow->bytes = p->manifest.bytes;
}

/* With one layout and one size the cut is the same. */
static struct tb_shadow *find_base(const struct tb_session *s, const struct tb_publication *p)
{
    for (struct tb_shadow *sh = s->shadows; sh != NULL; sh = sh->next) {
        if (!is_of(sh, p) || sh == p->shadow || tb_id_is_zero(&sh->uid)) continue;
        if (sh->bytes == p->manifest.bytes && tb_digest_equal(&sh->layout_id, &p->manifest.layout.id))
            return sh;
    }
    return NULL;
}

static bool shelf_memory(struct tb_session *s, struct tb_shadow *sh, uint32_t chunks, uint64_t room)
{
    const uint64_t bytes = tb_shelf_bytes(chunks, room);
    if (sh->shelf.count < bytes) {
        tb_session_memory_free(s, &sh->shelf);
        if (tb_session_memory_new(s, "tombolo-shelf", bytes, &sh->shelf) != TB_OK) return false;
    }
    memset(sh->shelf.bytes, 0, (size_t)tb_shelf_zero_bytes(chunks));
    return true;
}

void tb_shadow_shelf(struct tb_session *s, struct tb_publication *p, uint32_t classes)
{
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
    if (p->base == NULL) return;
    const struct tb_encoding_task task = {.manifest = &p->manifest,
                                          .bytes = p->shadow->memory.bytes,
                                          .base = p->base->memory.bytes,
                                          .classes = p->classes,
                                          .shelf = &p->shelf};
    if (tb_encoding_begin(s->crew, &task, &p->encoding) != TB_OK) p->encoding = NULL; /* it goes whole */
}

void tb_shadow_encode_end(struct tb_session *s, struct tb_publication *p)
{
    while (p->ending) /* by who writes to its base next, and has no other business with it */
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
        tb_session_memory_free(s, &sh->memory);
        tb_session_memory_free(s, &sh->shelf);
        tb_free(sh);
    }
}
