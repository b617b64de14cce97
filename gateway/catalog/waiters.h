/* waiters.h - requests that wait for a version or for a site. A room of the catalog (catalog.h). */
#ifndef TB_GATEWAY_CATALOG_WAITERS_H
#define TB_GATEWAY_CATALOG_WAITERS_H

#include "gateway/catalog/catalog.h"

enum tb_catalog_wait_kind {
    TB_CATALOG_WAIT_MINIMUM = 0, /* the first four as enum tb_wait_kind of tombolo.h */
    TB_CATALOG_WAIT_EXACT,
    TB_CATALOG_WAIT_LATEST,
    TB_CATALOG_WAIT_NEXT,
    TB_CATALOG_WAIT_SITE_HOLDS,
    TB_CATALOG_WAIT_SITE_ACTIVATED,
};

struct tb_catalog_wait {
    uint64_t handle;      /* the caller's name for it, unique */
    struct tb_id session; /* zero: the gateway's own (control socket) */
    enum tb_catalog_wait_kind kind;
    struct tb_name model;
    uint64_t run_order; /* EXACT; 0: the newest run that has the number */
    uint64_t number;    /* MINIMUM, EXACT */
    /* LATEST, NEXT: newer than this one, or another when this one was withdrawn; zero: any */
    struct tb_id after;
    struct tb_id uid;    /* SITE_* */
    struct tb_name site; /* SITE_*; empty: this one */
    tb_time_ns deadline; /* TB_TIME_NEVER: none; not after now: asks once */
};

/* TB_OK: one ANSWER follows, maybe at once. It says TB_OK, TB_AGAIN (asked once), TB_TIMEOUT or
 * TB_CANCELLED. Of an exact version or a uid that will not come it says TB_VERSION_LOST, _BROKEN or
 * _WITHDRAWN.
 *
 * EXACT, MINIMUM and LATEST are answered with a version that is whole here. An EXACT version that
 * is known, and was never here, crosses for its waiter. */
TB_MUST_USE enum tb_status tb_catalog_wait(struct tb_catalog *c, tb_time_ns now,
                                           const struct tb_catalog_wait *w);
void tb_catalog_cancel(struct tb_catalog *c, tb_time_ns now, uint64_t handle);

#endif
