/* leases.h - sessions of workers and ranks, and their leases. A room of the catalog (catalog.h). */
#ifndef TB_GATEWAY_CATALOG_LEASES_H
#define TB_GATEWAY_CATALOG_LEASES_H

#include "gateway/catalog/catalog.h"

struct tb_catalog_session {
    struct tb_id id; /* fresh */
    char identity[TB_CATALOG_TEXT_MAX];
    struct tb_name name;
    struct tb_name host;
    struct tb_name rack; /* empty: unknown */
    bool spot;
    uint64_t nic_bytes_per_s; /* of its host, each way; 0: not known, and one reader at a time */
};

/* TB_CONFLICT: the id is in use. */
TB_MUST_USE enum tb_status tb_catalog_session_open(struct tb_catalog *c, tb_time_ns now,
                                                   const struct tb_catalog_session *s);

/* The connection is back: TB_OK within the lease (its GO, PLAN and what could not be told
 * come out again; waits end as by detach, which an old connection that still seems to be
 * there was spared), TB_PEER_LEASE after it: open a new one. TB_CONFLICT: the identity is not
 * the one that opened it. */
TB_MUST_USE enum tb_status tb_catalog_session_resume(struct tb_catalog *c, tb_time_ns now,
                                                     const struct tb_id *session, const char *identity);

/* The connection is gone; the lease goes on. Waits of the session end without an answer. */
void tb_catalog_session_detach(struct tb_catalog *c, tb_time_ns now, const struct tb_id *session);

/* Any word of it: its lease begins anew, and it is silent no more. */
TB_MUST_USE enum tb_status tb_catalog_session_renew(struct tb_catalog *c, tb_time_ns now,
                                                    const struct tb_id *session);

/* It was asked for something, by a reader of it or by the site, and did not answer: until
 * its next word nobody is sent there, nor to who depends on it, while there is anybody else
 * (P6). Its lease goes on. */
void tb_catalog_session_silent(struct tb_catalog *c, tb_time_ns now, const struct tb_id *session);

/* Good-bye: like an expired lease, without SESSION_LOST. Unknown is fine. */
void tb_catalog_session_close(struct tb_catalog *c, tb_time_ns now, const struct tb_id *session);

#endif
