/* waiters.c - the requests of those who wait for a version or for a site. When they are answered:
 * wait_rules.c. */
#include "gateway/catalog/waiters.h"

#include "gateway/catalog/rows/model_rows.h"
#include "gateway/catalog/rows/session_rows.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched_rows.h"
#include "gateway/catalog/rows/version_rows.h"
#include "gateway/catalog/rows/wait_rows.h"

static bool wait_valid(const struct tb_catalog_wait *q)
{
    return (unsigned)q->kind <= TB_CATALOG_WAIT_SITE_ACTIVATED;
}

enum tb_status tb_catalog_wait(struct tb_catalog *c, tb_time_ns now, const struct tb_catalog_wait *q)
{
    tb_catalog_enter(c, now);
    if (!wait_valid(q)) return TB_BAD_ARGUMENT;
    const uint32_t session = tb_id_is_zero(&q->session) ? NONE : tb_catalog_session_find(c, &q->session);
    if (session == NONE && !tb_id_is_zero(&q->session)) return TB_PEER_LEASE;
    const bool of_site = q->kind >= TB_CATALOG_WAIT_SITE_HOLDS;
    if (!of_site && tb_catalog_model_find(c, &q->model) == NONE) return TB_NOT_FOUND;
    if (of_site && tb_version_find(c, &q->uid) == NONE) return TB_NOT_FOUND;
    if (tb_wait_find(c, q->handle) != NONE) return TB_CONFLICT;
    const uint32_t i = session == NONE ? tb_table_new(&c->waits) : tb_table_new_for(c, &c->waits, session);
    if (i == NONE) return tb_catalog_refuse_full(c, &c->waits);
    struct wait *w = wait_at(c, i);
    w->q = *q;
    w->session = session;
    if (q->deadline <= c->now) w->q.deadline = 0; /* asks once */
    c->waits_touched = true;
    return TB_OK;
}

void tb_catalog_cancel(struct tb_catalog *c, tb_time_ns now, uint64_t handle)
{
    tb_catalog_enter(c, now);
    const uint32_t i = tb_wait_find(c, handle);
    if (i != NONE && !tb_wait_answered(wait_at(c, i))) tb_wait_answer(c, i, TB_CANCELLED);
}
