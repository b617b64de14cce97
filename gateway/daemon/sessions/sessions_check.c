/* sessions_check.c - see sessions_check.h. */
#include "gateway/daemon/daemon.h"

#include "base/assert.h"
#include "gateway/daemon/sessions/session_seal.h"
#include "gateway/daemon/sessions/session_table.h"
#include "gateway/daemon/sessions/sessions_check.h"

/* Of all sessions. */
struct sums {
    uint64_t sessions, exports, source_bytes, unpublishes;
};

static bool is_in_bucket(const struct tb_daemon *d, const struct tb_worker_session *s)
{
    const struct tb_worker_session *b =
        d->session_buckets[(s->id.bytes[0] | (uint32_t)s->id.bytes[1] << 8) % TB_SESSION_BUCKETS];
    while (b != NULL && b != s)
        b = b->bucket_next;
    return b != NULL;
}

#define NEIGHBOURS 8u /* with which an export is compared: each pair of thousands takes too long */

/* One export for each shard and for the staging: a second one would never be found. */
static void check_export(const struct tb_worker_export *e)
{
    const struct tb_worker_export *other = e->next;
    TB_ASSERT(!tb_id_is_zero(&e->uid));
    for (uint32_t i = 0; i < NEIGHBOURS && other != NULL; i++, other = other->next)
        TB_ASSERT(other->shard != e->shard || !tb_id_equal(&other->uid, &e->uid));
}

static void check_session(const struct tb_daemon *d, const struct tb_worker_session *s, struct sums *sums)
{
    TB_ASSERT(s->d == d);
    TB_ASSERT(s->next == NULL || s->next->previous == s);
    TB_ASSERT(s->previous != NULL ? s->previous->next == s : d->sessions == s);
    TB_ASSERT(!s->welcomed || s->bucketed);
    TB_ASSERT(!s->bucketed || is_in_bucket(d, s));
    for (const struct tb_worker_export *e = s->exports; e != NULL; e = e->next) {
        check_export(e);
        sums->exports++;
        sums->source_bytes += e->source_bytes;
    }
    for (const struct tb_unpublish_wait *u = s->unpublishes; u != NULL; u = u->next)
        sums->unpublishes++;
    for (const struct tb_pending_wait *w = s->waits; w != NULL; w = w->next)
        TB_ASSERT(w->handle != 0 && w->handle <= d->next_wait);
    sums->sessions++;
}

static void check_parked(const struct tb_daemon *d)
{
    uint64_t bytes = 0;
    for (const struct tb_parked_seal *p = d->parked; p != NULL; p = p->next)
        bytes += p->bytes;
    TB_ASSERT(bytes == d->parked_bytes.used && bytes <= tb_seals_max());
}

void tb_sessions_check(const struct tb_daemon *d)
{
    struct sums sums = {0};
    for (const struct tb_worker_session *s = d->sessions; s != NULL; s = s->next)
        check_session(d, s, &sums);
    TB_ASSERT(sums.sessions == d->session_count && sums.sessions == d->connections.used);
    TB_ASSERT(sums.exports == d->worker_exports.used);
    TB_ASSERT(sums.source_bytes == d->source_bytes.used);
    TB_ASSERT(sums.unpublishes == d->unpublish_waits.used);
    check_parked(d);
    tb_grants_check(&d->grants);
}
