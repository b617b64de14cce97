/* workers.h - what workers say of their staging. A room of the catalog (catalog.h). */
#ifndef TB_GATEWAY_CATALOG_WORKERS_H
#define TB_GATEWAY_CATALOG_WORKERS_H

#include "gateway/catalog/catalog.h"

/* This worker's staging can be read at this export of it. 0: it can not, and is no copy of the
 * version: nobody is sent there. */
TB_MUST_USE enum tb_status tb_catalog_export(struct tb_catalog *c, tb_time_ns now,
                                             const struct tb_id *session, const struct tb_id *uid,
                                             uint64_t export_id, uint32_t held_chunks, bool whole);

struct tb_catalog_progress {
    struct tb_id session;
    struct tb_id uid;
    uint32_t held_chunks;
    uint32_t total_chunks;
    bool whole;
    uint64_t bytes_per_s;
    uint8_t transport; /* as the worker says it; for status */
};

/* Held progress of a worker; whole counts towards go. */
TB_MUST_USE enum tb_status tb_catalog_progress(struct tb_catalog *c, tb_time_ns now,
                                               const struct tb_catalog_progress *p);

/* The source of that plan takes its reader in, and the reader is told: a worker that was to give
 * its place there up to it does so now. TB_DONE_BEFORE: an old plan. */
TB_MUST_USE enum tb_status tb_catalog_plan_told(struct tb_catalog *c, tb_time_ns now,
                                                const struct tb_id *session, const struct tb_id *uid,
                                                uint64_t plan);

/* The source of that plan failed: another PLAN without it until it shows progress (or retry_ns
 * passed and there is no other). TB_DONE_BEFORE: an old plan. */
TB_MUST_USE enum tb_status tb_catalog_hop_lost(struct tb_catalog *c, tb_time_ns now,
                                               const struct tb_id *session, const struct tb_id *uid,
                                               uint64_t plan);

/* The worker's staging of it goes: nobody is sent there any more, its readers are planned anew.
 * TB_DONE_BEFORE: it has none. */
TB_MUST_USE enum tb_status tb_catalog_release(struct tb_catalog *c, tb_time_ns now,
                                              const struct tb_id *session, const struct tb_id *uid);

#endif
