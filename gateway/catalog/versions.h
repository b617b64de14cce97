/* versions.h - a version at its home: ranks open and seal it. An operator withdraws or pins it, at
 * its home and elsewhere. A room of the catalog (catalog.h). */
#ifndef TB_GATEWAY_CATALOG_VERSIONS_H
#define TB_GATEWAY_CATALOG_VERSIONS_H

#include "base/layout/version_key.h"
#include "gateway/catalog/catalog.h"
#include "gateway/catalog/version_state.h"

/* From the store, behind the runs (models.h), or from a region found in the arena. */
TB_MUST_USE enum tb_status tb_catalog_restore_version(struct tb_catalog *c, const struct tb_version_key *key,
                                                      enum tb_catalog_state state, uint64_t bytes,
                                                      bool pinned);

struct tb_catalog_version_request {
    struct tb_id session;
    struct tb_name model;
    struct tb_id run;
    uint64_t number;
    uint32_t shard_count;
    struct tb_id fresh_uid;
};

/* Every rank gets the same uid for the same (run, number, shard_count). The number of a version
 * that failed because a rank was lost may be opened again, with a new uid.
 *   TB_CONFLICT        another shard count
 *   TB_BAD_STATE       the number is not above the run's last ready one
 *   TB_VERSION_BROKEN  that number is spent
 *   TB_FENCED, TB_NOT_HOME, TB_TOO_LARGE (shards)
 *   TB_BAD_ARGUMENT    0 shards, or a number of 2^63 or above */
TB_MUST_USE enum tb_status tb_catalog_version_open(struct tb_catalog *c, tb_time_ns now,
                                                   const struct tb_catalog_version_request *q,
                                                   struct tb_version_key *key_out);

struct tb_catalog_seal {
    struct tb_id session;
    struct tb_id uid;
    uint32_t shard;
    struct tb_digest root; /* of the shard */
    struct tb_digest layout_id;
    uint32_t chunk_count;
    uint64_t bytes;
    uint64_t manifest_bytes; /* tb_manifest_decoded_bytes */
    uint64_t export_id;      /* where the gateway reads it */
    bool in_place; /* the bytes are the rank's own, and stay: workers of its host may read them too */
    bool retry;    /* other bytes than those of a ready version are TB_CONFLICT, and the version stays */
};

/* Adds a reference; the last shard makes the version ready. After a restart of the catalog, ranks
 * seal again what they still hold: on a ready version that only adds references.
 *   TB_DONE_BEFORE     this session sealed it with the same root; a new export replaces the old
 *   TB_CONFLICT        this session sealed it with another root, which changes nothing. A retry
 *                      with other bytes than a ready version has gets the same answer
 *   TB_VERSION_BROKEN  another session sealed it with another root: the version is broken
 *   TB_VERSION_*, TB_SUPERSEDED  it ended before
 *   TB_FENCED          its run is shut out, and the version was not ready */
TB_MUST_USE enum tb_status tb_catalog_seal(struct tb_catalog *c, tb_time_ns now,
                                           const struct tb_catalog_seal *s);

/* The refusals of tb_catalog_seal that need no look at roots, and TB_CONFLICT of a retry. Ask
 * before space is reserved, so that a refused manifest takes the place of no other.
 *   TB_TOO_LARGE  with the shards known before, the manifests would be over limits.manifest_bytes
 *                 and no site could take the version. It stays open for a smaller shard. */
TB_MUST_USE enum tb_status tb_catalog_seal_may(const struct tb_catalog *c, const struct tb_catalog_seal *s);

/* Bytes of the version's manifests together with that shard's, and the most that they may have: the
 * numbers of TB_TOO_LARGE. 0: not known. */
uint64_t tb_catalog_manifest_bytes(const struct tb_catalog *c, const struct tb_catalog_seal *s,
                                   uint64_t *max_out);

/* The gateway read a chunk with a wrong digest from this publisher.
 *   TB_AGAIN           the first time: read it again
 *   TB_VERSION_BROKEN  the second time: the version is broken, and the todo names the rank */
TB_MUST_USE enum tb_status tb_catalog_chunk_bad(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid,
                                                uint32_t shard, uint32_t chunk,
                                                const struct tb_id *publisher);

/* An operator withdraws it: at home for every site, elsewhere for this site alone. Other sites are
 * not told of the latter. `who` goes into the audit line.
 *   TB_BAD_STATE  it is not ready, or it ended otherwise
 *   TB_DONE_BEFORE */
TB_MUST_USE enum tb_status tb_catalog_withdraw(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid,
                                               const char *who);
/* The status that withdrawing it, or pinning it, would have now. Nothing changes. */
TB_MUST_USE enum tb_status tb_catalog_may_withdraw(const struct tb_catalog *c, const struct tb_id *uid);
TB_MUST_USE enum tb_status tb_catalog_may_pin(const struct tb_catalog *c, const struct tb_id *uid,
                                              bool pinned);
/* From the store, behind the versions: that withdrawal was this site's own. False: the catalog has
 * no such version, or it is not withdrawn. */
bool tb_catalog_restore_withdrawn(struct tb_catalog *c, const struct tb_id *uid, bool here, const char *who);

/* An operator's pin, one at most of a model; another pin takes its place. Readers of this site are
 * offered the pinned version and no newer one. Newer ones cross all the same. A reader that
 * computes from a newer one goes back. Retention spares it. The pin stays when the version ends.
 * Then nothing is offered until an operator takes the pin away. `who` goes into the audit line.
 *   TB_DONE_BEFORE; TB_VERSION_*, TB_SUPERSEDED: it ended; TB_BAD_STATE: it is not whole here */
TB_MUST_USE enum tb_status tb_catalog_pin(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid,
                                          bool pinned, const char *who);
/* From the store: the operator of a pin. False: that version is not pinned. */
bool tb_catalog_restore_pinned_by(struct tb_catalog *c, const struct tb_id *uid, const char *who);
/* False: no version of the model is pinned. */
bool tb_catalog_pinned(const struct tb_catalog *c, const struct tb_name *model, struct tb_id *uid_out);
/* A reader group here uses or stages a newer version, which was not withdrawn. A pin of this one
 * would take it back. */
bool tb_catalog_pin_goes_back(const struct tb_catalog *c, const struct tb_id *uid);

#endif
