/* leases.c - a session opens, comes back, renews its lease, leaves. A lease ends in session_rows.c
 * (tb_leases_tick). */
#include "gateway/catalog/leases.h"

#include <string.h>

#include "base/assert.h"
#include "gateway/catalog/rows/group_rows.h"
#include "gateway/catalog/rows/reference_rows.h"
#include "gateway/catalog/rows/session_rows.h"
#include "gateway/catalog/rows/source_links.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched_rows.h"
#include "gateway/catalog/rows/wait_rows.h"
#include "gateway/catalog/rules/settle.h"

enum tb_status tb_catalog_session_open(struct tb_catalog *c, tb_time_ns now,
                                       const struct tb_catalog_session *info)
{
    tb_catalog_enter(c, now);
    if (tb_id_is_zero(&info->id) || !tb_name_valid(info->name.text) || !tb_name_valid(info->host.text))
        return TB_BAD_ARGUMENT;
    if (tb_catalog_session_find(c, &info->id) != NONE) return TB_CONFLICT;
    return tb_catalog_session_row_new(c, info) == NONE ? tb_catalog_refuse_full(c, &c->sessions) : TB_OK;
}

static void set_silent(struct tb_catalog *c, struct session *s, bool silent)
{
    if (s->silent == silent) return;
    s->silent = silent;
    for (uint32_t r = s->references; r != NONE; r = reference_at(c, r)->owner_next)
        reference_at(c, r)->silent = silent;
}

static void hear(struct tb_catalog *c, struct session *s)
{
    TB_ASSERT(s->row.live && !s->row.dead); /* a lease that ran out stays so */
    s->lease_until = tb_time_add(c->now, c->config.lease_ns);
    set_silent(c, s, false);
}

enum tb_status tb_catalog_session_resume(struct tb_catalog *c, tb_time_ns now, const struct tb_id *session,
                                         const char *identity)
{
    tb_catalog_enter(c, now);
    const uint32_t i = tb_catalog_session_find(c, session);
    if (i == NONE) return TB_PEER_LEASE;
    struct session *s = session_at(c, i);
    if (strncmp(s->info.identity, identity, sizeof s->info.identity) != 0) return TB_CONFLICT;
    /* P7: the old connection may have seemed to be there still. The worker asks again on the new
     * one, and nobody hears an answer to the old one. */
    tb_waits_end_session(c, i);
    s->attached = true;
    hear(c, s);
    for (uint32_t r = 0; r < c->references.high; r++) {
        struct row *row = tb_table_row(&c->references, r);
        if (!row->live || reference_at(c, r)->owner != i || reference_at(c, r)->kind == TB_REFERENCE_SITE)
            continue;
        for (uint32_t kind = 1; kind < 32; kind++)
            if (row->held & (1u << kind)) tb_table_mark(&c->references, r, (enum tb_catalog_todo_kind)kind);
        row->held = 0;
        if (!row->dead) tb_plan_retell(c, r);
    }
    tb_member_retell(c, i);
    return tb_catalog_settle(c, TB_OK);
}

void tb_catalog_session_detach(struct tb_catalog *c, tb_time_ns now, const struct tb_id *session)
{
    tb_catalog_enter(c, now);
    const uint32_t i = tb_catalog_session_find(c, session);
    if (i == NONE) return;
    session_at(c, i)->attached = false;
    tb_waits_end_session(c, i);
    (void)tb_catalog_settle(c, TB_OK);
}

enum tb_status tb_catalog_session_renew(struct tb_catalog *c, tb_time_ns now, const struct tb_id *session)
{
    tb_catalog_enter(c, now);
    const uint32_t i = tb_catalog_session_find(c, session);
    if (i == NONE) return TB_PEER_LEASE;
    hear(c, session_at(c, i));
    return TB_OK;
}

void tb_catalog_session_silent(struct tb_catalog *c, tb_time_ns now, const struct tb_id *session)
{
    tb_catalog_enter(c, now);
    const uint32_t i = tb_catalog_session_find(c, session);
    if (i != NONE) set_silent(c, session_at(c, i), true);
}

void tb_catalog_session_close(struct tb_catalog *c, tb_time_ns now, const struct tb_id *session)
{
    tb_catalog_enter(c, now);
    const uint32_t i = tb_catalog_session_find(c, session);
    if (i == NONE) return;
    tb_catalog_session_end(c, i, false);
    (void)tb_catalog_settle(c, TB_OK);
}
