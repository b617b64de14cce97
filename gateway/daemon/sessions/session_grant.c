/* session_grant.c - a worker is asked to let a reader in at its door (GRANT), and answers
 * (GRANTED). grant_table.c says which answers count.
 *
 * P6: an owner that does not answer (stopped, or behind a dead network) holds its reader up for
 * GRANT_WAIT_NS and no longer. */
#include "gateway/daemon/daemon.h"

#include "base/assert.h"
#include "gateway/daemon/sessions/session_grant.h"
#include "gateway/daemon/sessions/session_reply.h"
#include "gateway/daemon/sessions/session_shares.h"
#include "gateway/daemon/sessions/session_table.h"
#include "intra/session_msg.h"

#define GRANT_WAIT_NS TB_SECONDS(1)

static uint64_t grants_of(const struct tb_worker_session *s)
{
    uint64_t count = 0;
    for (const struct tb_grant_wait *g = s->d->grants.first; g != NULL; g = g->next)
        count += tb_id_equal(&g->reader, &s->id);
    return count;
}

enum tb_status tb_grant_ask(struct tb_worker_session *owner, struct tb_grant_wait *grant,
                            const struct tb_fingerprint *reader)
{
    struct tb_daemon *d = owner->d;
    TB_ASSERT(owner->wire != NULL && owner->welcomed);
    grant->owner = owner->id;
    grant->deadline = tb_time_add(tb_clock_now(), GRANT_WAIT_NS);
    const struct tb_worker_session *by = tb_worker_find(d, &grant->reader); /* NULL: this gateway */
    if (by != NULL && !tb_worker_session_share_room(by, &d->grants.gauge, d->bounds.references, 1, grants_of))
        return TB_SITE_NOMEM;
    const enum tb_status status = tb_grants_put(&d->grants, d->bounds.references, grant);
    if (status != TB_OK) return status;
    const struct tb_msg_grant m = {grant->export_id, grant->token, *reader};
    TB_WORKER_SEND(owner, TB_MSG_GRANT, 0, &m, TB_WORKER_SMALL, tb_msg_grant_encode);
    return TB_OK;
}

/* An answer counts once, and only from the owner that was asked. Any other one is late, and is
 * ignored: its reader was given another plan, or asked again. */
enum tb_status tb_worker_granted_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    struct tb_daemon *d = s->d;
    struct tb_msg_granted m;
    struct tb_grant_wait grant;
    if (tb_msg_granted_decode(&frame->payload, &m) != TB_OK) return TB_PEER_GARBLED;
    const enum tb_status status = tb_msg_status_get(m.status_negated);
    if (status > TB_OK || status == TB_PEER_GARBLED) return TB_PEER_GARBLED;
    if (tb_grants_take(&d->grants, &s->id, &m.token, &grant)) grant.answer(d, &grant, status);
    return TB_OK;
}

void tb_grants_tick(struct tb_daemon *d, tb_time_ns now)
{
    struct tb_grant_wait grant;
    while (tb_grants_take_late(&d->grants, now, &grant))
        grant.answer(d, &grant, TB_STREAM_IDLE);
}
