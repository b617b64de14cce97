/* session_unpublish.c - UNPUBLISH: a rank takes memory back that it had published. */
#include "gateway/daemon/daemon.h"

#include "base/allocate.h"
#include "base/assert.h"
#include "base/net/wire.h"
#include "gateway/catalog/unpublish.h"
#include "gateway/daemon/copies/copies.h"
#include "gateway/daemon/counters.h"
#include "gateway/daemon/sessions/session_reply.h"
#include "gateway/daemon/sessions/session_seal.h"
#include "gateway/daemon/sessions/session_table.h"
#include "gateway/daemon/sessions/session_unpublish.h"
#include "intra/session_msg.h"

#define UNPUBLISHES_JOINED_MAX TB_BOUNDS_JOINED /* P7 */

uint64_t tb_unpublishes_max(const struct tb_daemon *d)
{
    return d->bounds.references + (uint64_t)UNPUBLISHES_JOINED_MAX * d->bounds.sessions;
}

static enum tb_status unpublish_ask(const struct tb_worker_session *s, const struct tb_msg_unpublish *m)
{
    struct tb_catalog *c = s->d->catalog;
    const bool gone = m->shard != TB_CATALOG_ALL_SHARDS && (m->drain_ms & TB_MSG_UNPUBLISH_GONE) != 0;
    if (!gone) return tb_catalog_unpublish(c, tb_clock_now(), &s->id, &m->uid, m->shard, TB_MS(m->drain_ms));
    const tb_time_ns drain = TB_MS(m->drain_ms & ~TB_MSG_UNPUBLISH_GONE);
    return tb_catalog_unpublish_gone(c, tb_clock_now(), &s->id, &m->uid, m->shard, drain);
}

/* A rank that came back repeats its request, which waits once. Returns how many others wait. */
static uint32_t unpublish_forget(struct tb_worker_session *s, uint64_t request,
                                 struct tb_unpublish_wait *before_out)
{
    uint32_t count = 0;
    for (struct tb_unpublish_wait **at = &s->unpublishes; *at != NULL;) {
        struct tb_unpublish_wait *u = *at;
        if (u->request != request) {
            at = &u->next;
            count++;
            continue;
        }
        *at = u->next;
        *before_out = *u;
        TB_ASSERT(s->d->unpublish_waits.used > 0);
        s->d->unpublish_waits.used--;
        tb_free(u);
    }
    return count;
}

/* P3: a chunk that has rotted here is taken from the rank before it goes, also when the
 * verifier's wake is still to come. P1: shards that another request hid (or this one, before the
 * connection was cut) are read until that drain ends: the answer waits for it as well. Where
 * nothing is hidden anew, the earlier status still counts: some shards may have come back into
 * sight. */
enum tb_status tb_worker_unpublish_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    struct tb_msg_unpublish m;
    if (tb_msg_unpublish_decode(&frame->payload, &m) != TB_OK || frame->request == 0) return TB_PEER_GARBLED;
    struct tb_unpublish_wait *u = tb_calloc(1, sizeof *u), before = {.status = TB_OK};
    tb_copies_rotted(s->d);
    enum tb_status status = u == NULL ? TB_SITE_NOMEM : unpublish_ask(s, &m);
    const uint32_t waiting = unpublish_forget(s, frame->request, &before);
    const bool anew = status == TB_OK, unparked = tb_seals_unpark(s, &m.uid, m.shard);
    if (status == TB_DONE_BEFORE) {
        status = waiting < UNPUBLISHES_JOINED_MAX ? TB_OK : TB_SITE_NOMEM;
        s->d->unpublish_waits.refused += status != TB_OK;
    }
    if (status != TB_OK) {
        tb_free(u);
        tb_worker_reply(s, frame->request, status == TB_NOT_FOUND && unparked ? TB_OK : status, "");
        return TB_OK;
    }
    *u = (struct tb_unpublish_wait){
        .next = s->unpublishes, .uid = m.uid, .shard = m.shard, .request = frame->request};
    if (!anew) {
        u->status = before.status;
        u->judged = before.judged;
    }
    s->unpublishes = u;
    tb_gauge_add(&s->d->unpublish_waits, 1);
    return TB_OK;
}

/* P10: a rank took its memory away before all of it was here. version.state says which version that
 * ends. */
static void tell_gone(const struct tb_catalog_todo *todo)
{
    char uid[TB_HEX_CHARS];
    tb_id_format(&todo->uid, uid);
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_WARN, "unpublish.gone");
    tb_log_str(&l, "worker", todo->name.text);
    tb_log_str(&l, "uid", uid);
    tb_log_u64(&l, "shard", todo->shard);
    tb_log_end(&l);
}

static const char *unpublished_why(enum tb_status status)
{
    if (status == TB_OK) return "";
    return status == TB_PEER_REVOKED ? "the gateway could not take it in time, and the memory went"
                                     : "the gateway could not take it in time";
}

/* A request for all shards hears that some stay; a request for one shard, how that one ended. */
static void unpublish_note(struct tb_unpublish_wait *u, const struct tb_catalog_todo *todo)
{
    TB_ASSERT(tb_id_equal(&u->uid, &todo->uid));
    const bool own = u->shard == todo->shard && u->shard != TB_CATALOG_ALL_SHARDS;
    if (u->judged && !own) return;
    if (u->shard == TB_CATALOG_ALL_SHARDS && todo->status == TB_PEER_REVOKED)
        return; /* told to the request for that one */
    if (own || u->status == TB_OK || todo->status == TB_TIMEOUT) u->status = todo->status;
    u->judged = own;
}

/* The todo concerns shards of `u`, and all shards of `u` have ended or come back. */
static bool unpublish_over(const struct tb_worker_session *s, struct tb_unpublish_wait *u,
                           const struct tb_catalog_todo *todo)
{
    const bool all = u->shard == TB_CATALOG_ALL_SHARDS || todo->shard == TB_CATALOG_ALL_SHARDS;
    if (!tb_id_equal(&u->uid, &todo->uid) || (!all && u->shard != todo->shard)) return false;
    unpublish_note(u, todo);
    return !tb_catalog_unpublishing(s->d->catalog, &s->id, &u->uid, u->shard);
}

void tb_worker_unpublished(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    if (todo->status == TB_PEER_REVOKED) tell_gone(todo);
    struct tb_worker_session *s = tb_worker_find(d, &todo->session);
    if (s == NULL) return;
    if (todo->status != TB_TIMEOUT) tb_worker_exports_drop(s, &todo->uid, todo->shard);
    for (struct tb_unpublish_wait **at = &s->unpublishes; *at != NULL;) {
        struct tb_unpublish_wait *u = *at;
        if (!unpublish_over(s, u, todo)) {
            at = &u->next;
            continue;
        }
        *at = u->next;
        tb_worker_reply(s, u->request, u->status, unpublished_why(u->status));
        d->unpublish_waits.used--;
        tb_free(u);
    }
}
