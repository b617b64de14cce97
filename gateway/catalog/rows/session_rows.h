/* session_rows.h - sessions: found by their id, placed on a host and a rack, and ended with all
 * that is theirs. */
#ifndef TB_GATEWAY_SESSION_ROWS_H
#define TB_GATEWAY_SESSION_ROWS_H

#include "base/limits/keyed_rows.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/rows/tables.h"

struct session {
    struct row row;
    struct tb_catalog_session info;
    tb_time_ns lease_until;
    bool attached;
    uint32_t host, rack; /* planner's numbers */
    bool slow;           /* plans.c: it was, when it last told a rate that could be judged */
    bool silent;         /* leases.c: it was asked and has said nothing since */
    uint64_t stamp;
    uint32_t references; /* its own, of all versions: the first of the list */
    uint32_t members;    /* its memberships: likewise */
};

static inline struct session *session_at(const struct tb_catalog *c, uint32_t i)
{
    return (struct session *)tb_table_row(&c->sessions, i);
}

uint32_t tb_catalog_session_find(const struct tb_catalog *c, const struct tb_id *id);
/* The owner, in shares, of rows of that identity. */
static inline uint64_t tb_identity_owner(const char *identity)
{
    return identity[0] != 0 ? tb_key_of_text(identity) : TB_SHARE_OURS;
}
/* A row of the share of that session's identity. NONE: the table is full, or the share spent. */
static inline uint32_t tb_table_new_for(const struct tb_catalog *c, struct table *t, uint32_t session)
{
    const struct tb_catalog_session *info = &session_at(c, session)->info;
    return tb_table_new_of(t, tb_identity_owner(info->identity), info->publishes);
}
/* NONE: the table is full, or the identity's share spent. */
uint32_t tb_catalog_session_row_new(struct tb_catalog *c, const struct tb_catalog_session *info);
/* With its waits, memberships and references. `tell`: SESSION_LOST is marked. */
void tb_catalog_session_end(struct tb_catalog *c, uint32_t session, bool tell);
/* Ends those whose lease ran out. */
void tb_leases_tick(struct tb_catalog *c);

#endif
