/* workers.h - what a worker says of its staging of a version. A room of the catalog (catalog.h). */
#ifndef TB_GATEWAY_CATALOG_WORKERS_H
#define TB_GATEWAY_CATALOG_WORKERS_H

#include "gateway/catalog/catalog.h"

/* Other workers can read the staging at this export. 0: they cannot, and it is no copy of the
 * version. */
TB_MUST_USE enum tb_status tb_catalog_export(struct tb_catalog *c, tb_time_ns now,
                                             const struct tb_id *session, const struct tb_id *uid,
                                             uint64_t export_id, uint32_t held_chunks, bool whole);

struct tb_catalog_progress {
    struct tb_id session;
    struct tb_id uid;
    uint32_t held_chunks;
    uint32_t total_chunks;
    bool whole; /* counts towards go */
    uint64_t bytes_per_s;
    uint8_t transport; /* as the worker says it; for status */
};
TB_MUST_USE enum tb_status tb_catalog_progress(struct tb_catalog *c, tb_time_ns now,
                                               const struct tb_catalog_progress *p);

/* The source of that plan takes its reader in, and the reader knows. A worker that was to yield its
 * place there does so now. TB_DONE_BEFORE: an old plan. */
TB_MUST_USE enum tb_status tb_catalog_plan_told(struct tb_catalog *c, tb_time_ns now,
                                                const struct tb_id *session, const struct tb_id *uid,
                                                uint64_t plan);

/* The source of that plan failed. Another PLAN avoids it until it shows progress, or until retry_ns
 * has passed and there is no other. TB_DONE_BEFORE: an old plan. */
TB_MUST_USE enum tb_status tb_catalog_hop_lost(struct tb_catalog *c, tb_time_ns now,
                                               const struct tb_id *session, const struct tb_id *uid,
                                               uint64_t plan);

/* P6: no proofs of that version come, so a reader would wait for ever before it read from another
 * worker. All read from the gateway, where that serves, until the version is proven. */
void tb_catalog_version_unproven(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid,
                                 bool unproven);

/* The staging goes, and its readers are planned anew. TB_DONE_BEFORE: the worker has none. */
TB_MUST_USE enum tb_status tb_catalog_release(struct tb_catalog *c, tb_time_ns now,
                                              const struct tb_id *session, const struct tb_id *uid);

#endif
