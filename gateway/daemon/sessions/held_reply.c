/* held_reply.c - replies to workers that wait for the disk. */
#include "gateway/daemon/daemon.h"

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/daemon/persist_usage.h"
#include "gateway/daemon/sessions/held_reply.h"
#include "gateway/daemon/sessions/session_reply.h"
#include "gateway/daemon/sessions/session_shares.h"
#include "gateway/daemon/sessions/session_table.h"

/* P7: of one session. In one turn it may seal all shards of some versions. */
#define HELD_REPLIES_MAX 256

static void send_or_fail(struct tb_worker_session *s, const struct tb_held_reply *h, enum tb_status status)
{
    if (s->held_replies != 0) s->held_replies--; /* 0: its connection is another one meanwhile */
    if (status == TB_OK) {
        h->send(s, h);
        return;
    }
    if (h->failed != NULL) h->failed(s, h, status);
    tb_worker_reply(s, h->request, status, "");
}

static void held_reply_done(struct tb_daemon *d, struct tb_held *held, enum tb_status status)
{
    struct tb_held_reply *h = (struct tb_held_reply *)(void *)held;
    struct tb_worker_session *s = tb_worker_find(d, &h->session);
    if (status == TB_OK && h->saved != NULL) h->saved(d, h);
    if (s != NULL) send_or_fail(s, h, status);
    tb_free(h);
}

static uint64_t held_of(const struct tb_worker_session *s)
{
    return s->held_replies;
}

static bool held_share_spent(const struct tb_worker_session *s)
{
    struct tb_persist_usage u;
    tb_persist_usage(s->d, &u);
    const uint64_t before = u.held.spent; /* of all sessions, ever */
    return !tb_worker_session_share_room(s, &u.held, u.held_max, 1, held_of) && u.held.spent != before;
}

static enum tb_status hold(struct tb_worker_session *s, const struct tb_held_reply *reply)
{
    const bool full = s->held_replies >= HELD_REPLIES_MAX || held_share_spent(s);
    if (full) tb_persist_refused(s->d);
    struct tb_held_reply *h = full ? NULL : tb_malloc(sizeof *h);
    if (h == NULL) return TB_SITE_NOMEM;
    *h = *reply;
    h->held = (struct tb_held){.fn = held_reply_done};
    h->session = s->id;
    s->held_replies++; /* before: it may be sent at once */
    const enum tb_status status = tb_persist_then(s->d, &h->held);
    if (status == TB_OK) return TB_OK;
    s->held_replies--;
    tb_free(h);
    return status;
}

void tb_reply_when_saved(struct tb_worker_session *s, const struct tb_held_reply *reply)
{
    TB_ASSERT(reply->send != NULL && reply->request != 0 && s->welcomed);
    const enum tb_status status = hold(s, reply);
    if (status != TB_OK)
        tb_worker_reply(s, reply->request, status, "too many requests wait for the gateway's store");
}
