/* publication.c - the table of sealed shards: how a row is found, hidden from readers and
 * removed. */
#include "intra/client/publish/publication.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "intra/client/memory/buffers.h"
#include "intra/client/memory/registration.h"
#include "intra/client/memory/shadow.h"
#include "intra/client/memory/spare_memory.h"
#include "intra/client/publish/publication_messages.h"
#include "intra/client/session/request.h"
#include "intra/client/session/runs.h"
#include "intra/client/session/session.h"
#include "intra/fabric/fabric_exports.h"

struct tb_publication *tb_publication_find(struct tb_session *s, const struct tb_id *uid, uint32_t shard)
{
    TB_ASSERT_LOCKED(s);
    for (struct tb_publication *p = s->publications; p != NULL; p = p->next)
        if (p->shard == shard && tb_id_equal(&p->uid, uid)) return p;
    return NULL;
}

void tb_publication_hide(struct tb_session *s, struct tb_publication *p, uint32_t drain_ms)
{
    TB_ASSERT_LOCKED(s);
    /* no other call touches it while the lock is away */
    TB_ASSERT(tb_publication_is_busy(p->life));
    const uint64_t id = p->export_id;
    tb_protection_end(p->protection);
    p->protection = NULL;
    p->export_id = 0;
    if (id == 0) return;
    tb_session_unlock(s);
    tb_export_close(s->fabric, id, drain_ms);
    tb_session_lock(s);
    tb_session_changed(s, false);
}

/* A packed copy of a device's memory is pinned, for it and for NICs, and is the next version's. The
 * caller gives back the memory that is returned. */
static struct tb_shared_memory leave_copy(struct tb_publication *p)
{
    if (!p->copied || p->blobs.bytes == NULL) return (struct tb_shared_memory){.memfd = -1};
    return tb_spare_keep(&p->registration->spare, &p->model, &p->blobs);
}

static void free_publication(struct tb_session *s, struct tb_publication *p)
{
    TB_ASSERT_UNLOCKED(s);
    TB_ASSERT(p->export_id == 0 && p->encoding == NULL && p->hiding == NULL && p->protection == NULL);
    tb_buffer_memory_free(s, &p->blobs);
    tb_shared_memory_free(&p->encoded_chunks);
    tb_free(p->blob_digests);
    tb_free(p->encoded_table);
    tb_free(p->devices);
    tb_layouts_release(s->layouts, &p->manifest_memory);
    tb_free(p->head);
    tb_free(p->said);
    tb_free(p->source);
    tb_free(p);
}

void tb_publication_remove(struct tb_session *s, struct tb_publication *p, uint32_t drain_ms)
{
    TB_ASSERT_LOCKED(s);
    tb_publication_step(&p->life, TB_PUBLICATION_REMOVE);
    tb_shadow_encode_end(s, p);
    tb_publication_hide(s, p, drain_ms);
    for (struct tb_publication **at = &s->publications; *at != NULL; at = &(*at)->next) {
        if (*at == p) {
            *at = p->next;
            break;
        }
    }
    TB_ASSERT(p->shadow == NULL || p->shadow->user == p);
    if (p->shadow != NULL) p->shadow->user = NULL;
    struct tb_shared_memory before = leave_copy(p);
    tb_session_unlock(s); /* memory may be large, and takes a while to go */
    tb_buffer_memory_free(s, &before);
    free_publication(s, p);
    tb_session_lock(s);
    tb_session_changed(s, false);
}

void tb_publications_free(struct tb_session *s)
{
    tb_session_lock(s);
    while (s->publications != NULL) {
        struct tb_publication *p = s->publications;
        if (tb_publication_is_sealed(p->life)) tb_request_farewell(s, tb_publication_gone_request(s, p, 0));
        tb_publication_remove(s, p, 0);
    }
    while (s->runs != NULL) {
        struct tb_run_opened *run = s->runs;
        s->runs = run->next;
        tb_free(run);
    }
    tb_session_unlock(s);
}

/* ---- invariants ---- */

static bool is_shadow_of(const struct tb_session *s, const struct tb_shadow *wanted)
{
    const struct tb_shadow *sh = s->shadows;
    while (sh != NULL && sh != wanted)
        sh = sh->next;
    return sh != NULL;
}

/* Fields that a call writes without the lock, while it publishes or resumes, are not looked at
 * then. */
static void check_export(const struct tb_publication *p)
{
    const enum tb_publication_life life = p->life;
    const bool hides = life == TB_PUBLICATION_HIDING || life == TB_PUBLICATION_HIDDEN;
    if (p->hiding != NULL) TB_ASSERT(hides);
    if (life == TB_PUBLICATION_STANDING || life == TB_PUBLICATION_CLAIMED) TB_ASSERT(p->export_id != 0);
    if (life == TB_PUBLICATION_SUSPENDED) TB_ASSERT(p->export_id == 0 && p->protection == NULL);
    if (life != TB_PUBLICATION_SUSPENDED && life != TB_PUBLICATION_RETURNING)
        TB_ASSERT(!p->counted_on || hides || life == TB_PUBLICATION_REMOVING);
}

void tb_publications_check(const struct tb_session *s)
{
    TB_ASSERT_LOCKED(s);
    for (const struct tb_publication *p = s->publications; p != NULL; p = p->next) {
        TB_ASSERT(p->order > 0 && p->order <= s->next_order);
        TB_ASSERT(!tb_id_is_zero(&p->uid));
        if (p->shadow != NULL) TB_ASSERT(!p->in_place && p->shadow->user == p);
        if (p->encoding != NULL) TB_ASSERT(p->base != NULL);
        if (p->base != NULL) TB_ASSERT(p->base != p->shadow && is_shadow_of(s, p->base));
        if (p->life != TB_PUBLICATION_NEW && p->copied) TB_ASSERT(p->in_place && p->registration != NULL);
        check_export(p);
    }
}
