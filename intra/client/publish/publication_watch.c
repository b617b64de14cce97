/* publication_watch.c - what became of memory that was sealed: somebody wrote to it, or cut short
 * the file that it maps. The session thread looks, and tells the log and the gateway. */
#include "intra/client/publish/publication_watch.h"

#include "base/allocate.h"
#include "base/assert.h"
#include "base/log.h"
#include "intra/client/memory/registration.h"
#include "intra/client/publish/publication.h"
#include "intra/client/publish/publication_messages.h"
#include "intra/client/session/request.h"
#include "intra/client/session/session.h"

static void wake(void *user)
{
    tb_session_wake(user); /* uv_async_send, which a signal handler may call */
}

void tb_publication_protect(struct tb_session *s, struct tb_publication *p)
{
    TB_ASSERT_UNLOCKED(s);
    TB_ASSERT(tb_publication_is_busy(p->life) && p->protection == NULL);
    if (!s->protect || !p->in_place || p->copied || p->registration == NULL) return;
    const struct tb_registration *r = p->registration;
    struct tb_protect_stretch *list = tb_calloc((size_t)r->layout.tensor_count + 1, sizeof *list);
    for (uint32_t i = 0; list != NULL && i < r->layout.tensor_count; i++)
        list[i] = (struct tb_protect_stretch){r->memory[i], r->layout.tensors[i].bytes};
    struct tb_protection *protection =
        list != NULL ? tb_protect(list, r->layout.tensor_count, wake, s) : NULL;
    tb_free(list);
    tb_session_lock(s); /* the session thread looks at it */
    p->protection = protection;
    tb_session_unlock(s);
    if (protection != NULL) return;
    tb_log(TB_LOG_WARN, "publish.unprotected", "number=%llu shard=%u", (unsigned long long)p->number,
           p->shard);
}

static const struct tb_tensor *tensor_of(const struct tb_publication *p, const uint8_t *at)
{
    TB_ASSERT(p->registration != NULL);
    const struct tb_layout *layout = &p->manifest.layout;
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        const uint8_t *tensor = p->registration->memory[i];
        if (at >= tensor && at < tensor + layout->tensors[i].bytes) return &layout->tensors[i];
    }
    return NULL;
}

static uint32_t chunk_of(const struct tb_manifest *m, uint64_t packed)
{
    TB_ASSERT(m->chunk_count > 0);
    uint32_t k = 0;
    while (k + 1 < m->chunk_count && m->chunks[k + 1].offset <= packed)
        k++;
    return k;
}

static void tell_written(struct tb_session *s, struct tb_publication *p, const uint8_t *at)
{
    const struct tb_tensor *t = tensor_of(p, at);
    const uint64_t inside =
        t == NULL ? 0 : (uint64_t)(at - p->registration->memory[t - p->manifest.layout.tensors]);
    const uint32_t chunk = t == NULL ? 0 : chunk_of(&p->manifest, t->offset + inside);
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_ERROR, "publish.written_to");
    tb_log_u64(&l, "number", p->number);
    tb_log_u64(&l, "shard", p->shard);
    tb_log_str(&l, "tensor", t == NULL ? "" : t->name);
    tb_log_u64(&l, "byte", inside);
    tb_log_str(&l, "action", "version_broken");
    tb_log_end(&l);
    struct tb_request *notice = tb_request_new(s, TB_MSG_CHUNK_BAD, 0, 0);
    if (notice == NULL) return; /* its readers find it too */
    const struct tb_msg_chunk_bad m = {.uid = p->uid, .plan = 0, .shard = p->shard, .chunk = chunk};
    tb_msg_chunk_bad_encode(&m, &notice->payload);
    tb_request_post(s, notice);
}

/* Its bytes are not other bytes: they are gone. So the reference ends, and the version is lost
 * where nobody else has all of it. */
static void tell_missing(struct tb_session *s, struct tb_publication *p)
{
    TB_ASSERT(p->life == TB_PUBLICATION_STANDING);
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_ERROR, "publish.memory_gone");
    tb_log_u64(&l, "number", p->number);
    tb_log_u64(&l, "shard", p->shard);
    tb_log_str(&l, "reason", "a_file_it_maps_was_cut_short");
    tb_log_str(&l, "action", "reference_ends");
    tb_log_end(&l);
    /* a gateway that comes anew does not hear of it */
    tb_publication_step(&p->life, TB_PUBLICATION_LOST);
    tb_request_farewell(s, tb_publication_gone_request(s, p, 0));
}

static bool is_missing(const struct tb_publication *p)
{
    return p->in_place && p->registration != NULL && tb_guard_missing(p->registration->guard) != NULL;
}

/* A task of the crew. The pass keeps the registration and its guard. */
static void look_at_files(void *user, uint32_t piece, uint32_t slot)
{
    (void)piece;
    (void)slot;
    struct tb_session *s = user;
    tb_session_lock(s);
    for (struct tb_registration *r = s->registrations; r != NULL; r = r->next) {
        if (r->guard == NULL || r->suspended) continue;
        tb_registration_begin_pass(r);
        tb_session_unlock(s);
        tb_guard_look(r->guard);
        tb_session_lock(s);
        tb_registration_end_pass(r);
    }
    s->looking = false;
    tb_session_unlock(s);
}

static bool maps_file(const struct tb_session *s)
{
    for (const struct tb_registration *r = s->registrations; r != NULL; r = r->next)
        if (r->guard != NULL && !r->suspended) return true;
    return false;
}

void tb_publication_watch_look(struct tb_session *s)
{
    TB_ASSERT_LOCKED(s);
    if (s->looking || s->closing || !maps_file(s)) return;
    s->looking = tb_crew_submit(s->crew, look_at_files, s) == TB_OK; /* or a second later */
}

void tb_publications_look(struct tb_session *s)
{
    TB_ASSERT_LOCKED(s);
    for (struct tb_publication *p = s->publications; p != NULL; p = p->next) {
        if (p->life == TB_PUBLICATION_STANDING && is_missing(p)) tell_missing(s, p);
        if (p->protection == NULL || p->written || !tb_publication_is_sealed(p->life)) continue;
        const uint8_t *at = tb_protection_written(p->protection);
        if (at == NULL) continue;
        p->written = true;
        tell_written(s, p, at);
    }
}
