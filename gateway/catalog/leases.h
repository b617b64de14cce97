/* leases.h - sessions of ranks and workers, and their leases. A room of the catalog (catalog.h). */
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
    bool publishes;           /* some model: the rows that are reserved are for it too */
    uint64_t nic_bytes_per_s; /* of its host, each way; 0: not known, and one reader at a time */
};

/* TB_CONFLICT: the id is in use. */
TB_MUST_USE enum tb_status tb_catalog_session_open(struct tb_catalog *c, tb_time_ns now,
                                                   const struct tb_catalog_session *s);

/* The connection is back within the lease. GO, PLAN and todos that waited for the session come out
 * again. Waits end as by detach: the old connection may still have seemed to be there.
 *   TB_PEER_LEASE  the lease ran out: open a new session
 *   TB_CONFLICT    another identity opened it */
TB_MUST_USE enum tb_status tb_catalog_session_resume(struct tb_catalog *c, tb_time_ns now,
                                                     const struct tb_id *session, const char *identity);

/* The connection is gone; the lease goes on. Waits of the session end without an answer. */
void tb_catalog_session_detach(struct tb_catalog *c, tb_time_ns now, const struct tb_id *session);

/* The session sent something: its lease begins anew, and it is silent no more. */
TB_MUST_USE enum tb_status tb_catalog_session_renew(struct tb_catalog *c, tb_time_ns now,
                                                    const struct tb_id *session);

/* The session was asked for something, by a reader or by the site, and did not answer (P6). Until
 * it sends something, readers use it, and sources that depend on it, only where there is no other.
 * Its lease goes on. */
void tb_catalog_session_silent(struct tb_catalog *c, tb_time_ns now, const struct tb_id *session);

/* The session says good-bye: as when a lease runs out, without SESSION_LOST. It may be unknown. */
void tb_catalog_session_close(struct tb_catalog *c, tb_time_ns now, const struct tb_id *session);

#endif
