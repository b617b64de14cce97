/* version_unpublish.c - tb_unpublish: the gateway sends readers elsewhere, they drain, and what
 * this rank sealed of the version is its own again. */
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "intra/client/publish/publication.h"
#include "intra/client/publish/publication_messages.h"
#include "intra/client/session/request.h"
#include "intra/client/session/session.h"

/* over the drain: a gateway that has just been started answers, too */
#define UNPUBLISH_MORE_MS 5000u

static struct tb_publication *next_of(struct tb_session *s, const struct tb_id *uid)
{
    for (struct tb_publication *p = s->publications; p != NULL; p = p->next)
        if (tb_id_equal(&p->uid, uid) && !tb_publication_is_busy(p->life)) return p;
    return NULL;
}

/* Another call works on it: removes it, or suspends, resumes or publishes it again, and then it
 * would come back with that. */
static bool is_held(const struct tb_session *s, const struct tb_id *uid)
{
    for (const struct tb_publication *p = s->publications; p != NULL; p = p->next)
        if (tb_id_equal(&p->uid, uid) && tb_publication_is_busy(p->life) &&
            (p->unpublished || p->life == TB_PUBLICATION_REMOVING))
            return true;
    return false;
}

/* Whether this rank has, or has yet to let go, something of it that was sealed. A publication that
 * another call works on now ends with that call. */
static bool end_all(struct tb_session *s, const struct tb_id *uid)
{
    bool any = false;
    for (struct tb_publication *p = s->publications; p != NULL; p = p->next) {
        const bool new = p->life == TB_PUBLICATION_NEW && p->state == TB_OK;
        if (!tb_id_equal(&p->uid, uid) || new) continue;
        any = true;
        p->unpublished = p->unpublished || tb_publication_is_busy(p->life);
    }
    return any;
}

/* Readers were sent elsewhere when the gateway heard of it, and all drain at once: what its answer
 * took is gone of their time. */
static void remove_all(struct tb_session *s, const struct tb_id *uid, tb_time_ns until)
{
    TB_ASSERT_LOCKED(s);
    for (;;) {
        struct tb_publication *p = next_of(s, uid);
        if (p != NULL) {
            /* It may have been sealed again since the gateway answered. */
            if (p->unpublished) tb_request_farewell(s, tb_publication_gone_request(s, p, 0));
            tb_publication_remove(s, p, (uint32_t)(tb_time_since(tb_clock_now(), until) / 1000000u));
        } else if (is_held(s, uid)) {
            tb_session_wait_unbounded(s);
        } else {
            break;
        }
    }
}

static int unpublish(struct tb_session *s, const struct tb_id *uid, uint32_t drain_ms)
{
    const uint64_t most = (uint64_t)drain_ms + UNPUBLISH_MORE_MS;
    const struct tb_call call =
        tb_call_begin(s, most >= TB_WAIT_FOREVER ? TB_WAIT_FOREVER - 1 : (uint32_t)most);
    const tb_time_ns until = tb_time_add(tb_clock_now(), TB_MS(drain_ms));
    struct tb_request *request = tb_publication_unpublish(s, uid, TB_UNPUBLISH_ALL, drain_ms);
    const int status = tb_request_call(s, request, &call, "tb_unpublish");
    tb_request_free(request);
    if (status != TB_OK && status != TB_DONE_BEFORE && status != TB_NOT_FOUND)
        return status; /* the reference stays */
    tb_session_lock(s);
    const bool any = end_all(s, uid);
    remove_all(s, uid, until);
    tb_session_unlock(s);
    /* The gateway does not know the version if a suspend took it away, or if this call did: its
     * answer was lost in a cut, and the request was sent again. */
    return status == TB_NOT_FOUND && !any ? status : TB_OK;
}

int tb_unpublish(struct tb_session *session, const struct tb_uid *uid, uint32_t drain_ms)
{
    int status = tb_session_enter(session);
    if (status != TB_OK) return status;
    struct tb_id id;
    if (uid == NULL) {
        status = tb_fail(TB_BAD_ARGUMENT, "no uid given");
    } else {
        memcpy(id.bytes, uid->bytes, sizeof id.bytes);
        status = unpublish(session, &id, drain_ms);
    }
    tb_session_leave(session);
    return status;
}
