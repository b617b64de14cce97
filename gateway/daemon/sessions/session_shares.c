/* session_shares.c - see session_shares.h. */
#include "gateway/daemon/sessions/session_shares.h"

#include "base/assert.h"
#include "base/limits/keyed_rows.h"
#include "base/limits/share_table.h"
#include "gateway/daemon/counters.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/rights.h"
#include "gateway/daemon/sessions/session_table.h"

uint64_t tb_worker_session_owner(const struct tb_identity *identity)
{
    char text[TB_URI_BYTES_MAX];
    TB_ASSERT(identity->kind != TB_IDENTITY_NONE);
    tb_identity_format(identity, text);
    return tb_key_of_text(text);
}

uint64_t tb_worker_session_share_used(const struct tb_worker_session *s, tb_worker_session_uses_fn uses)
{
    uint64_t used = 0;
    for (const struct tb_worker_session *other = s->d->sessions; other != NULL; other = other->next)
        if (tb_identity_equal(&other->identity, &s->identity)) used += uses(other);
    return used;
}

/* As sessions are: a share of a few rows would stop an honest host. */
static bool is_divided(const struct tb_daemon *d, uint64_t bound)
{
    return d->bounds.sessions >= TB_SHARE_LEAST && bound >= TB_SHARE_LEAST;
}

bool tb_worker_session_share_room(const struct tb_worker_session *s, struct tb_gauge *g, uint64_t bound,
                                  uint64_t more, tb_worker_session_uses_fn uses)
{
    const uint64_t used = g->used + more;
    if (used > bound) {
        g->refused++;
        return false;
    }
    if (!is_divided(s->d, bound) || used <= bound / 4) return true;
    const bool kept = used > bound - bound / 4; /* for publishers */
    if (tb_worker_session_share_used(s, uses) + more <= bound / 4 &&
        (!kept || tb_rights_publishes(s->d->config, &s->identity)))
        return true;
    g->refused++;
    g->spent++;
    return false;
}
