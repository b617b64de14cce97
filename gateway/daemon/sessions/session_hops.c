/* session_hops.c - see session_hops.h. */
#include "gateway/daemon/sessions/session_hops.h"

#include <stdbool.h>

#include "base/assert.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/sessions/session_shares.h"
#include "gateway/daemon/sessions/session_table.h"
#include "intra/fabric/fabric_exports.h"

static bool has(const uint64_t *owners, uint32_t count, uint64_t owner)
{
    for (uint32_t i = 0; i < count; i++)
        if (owners[i] == owner) return true;
    return false;
}

void tb_session_hops_flush(struct tb_daemon *d)
{
    struct tb_session_hops *h = &d->session_hops;
    if (d->fabric != NULL) tb_export_owners_end(d->fabric, h->ending, h->ending_count);
    h->ending_count = 0;
}

void tb_session_hops_end_owner(struct tb_daemon *d, uint64_t owner)
{
    struct tb_session_hops *h = &d->session_hops;
    TB_ASSERT(owner != 0 && h->ending_count <= TB_SESSION_HOPS_MAX);
    if (has(h->ending, h->ending_count, owner)) return;
    if (h->ending_count == TB_SESSION_HOPS_MAX) tb_session_hops_flush(d);
    h->ending[h->ending_count++] = owner;
}

void tb_session_hops_end(struct tb_daemon *d, const struct tb_identity *identity)
{
    if (identity->kind == TB_IDENTITY_NONE) return; /* its certificate could not be read: no memory */
    tb_session_hops_end_owner(d, tb_worker_session_owner(identity));
}

/* Takes each owner off the list that has another session, or a new one. */
static void returned_drop(struct tb_daemon *d)
{
    struct tb_session_hops *h = &d->session_hops;
    for (const struct tb_worker_session *s = d->sessions; s != NULL && h->left_count > 0; s = s->next) {
        if (!s->bucketed || s->identity.kind == TB_IDENTITY_NONE) continue;
        const uint64_t owner = tb_worker_session_owner(&s->identity);
        for (uint32_t i = 0; i < h->left_count; i++)
            if (h->left[i] == owner) h->left[i--] = h->left[--h->left_count];
    }
}

void tb_session_hops_tick(struct tb_daemon *d)
{
    struct tb_session_hops *h = &d->session_hops;
    returned_drop(d);
    for (uint32_t i = 0; i < h->left_count; i++)
        tb_session_hops_end_owner(d, h->left[i]);
    h->left_count = 0;
    tb_session_hops_flush(d);
}

void tb_session_hops_left(struct tb_daemon *d, const struct tb_identity *identity)
{
    struct tb_session_hops *h = &d->session_hops;
    if (identity->kind == TB_IDENTITY_NONE || d->draining) return;
    const uint64_t owner = tb_worker_session_owner(identity);
    if (has(h->left, h->left_count, owner)) return;
    if (h->left_count == TB_SESSION_HOPS_MAX) tb_session_hops_tick(d);
    h->left[h->left_count++] = owner;
}
