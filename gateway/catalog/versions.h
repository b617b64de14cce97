/* versions.h - a version at its home: ranks open and seal it; an operator withdraws or pins it. A room of the catalog (catalog.h). */
#ifndef TB_GATEWAY_CATALOG_VERSIONS_H
#define TB_GATEWAY_CATALOG_VERSIONS_H

#include "base/layout/manifest.h"
#include "gateway/catalog/catalog.h"
#include "gateway/catalog/version_state.h"

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

/* The same (run, number, shard_count) gives the same uid to every rank. TB_CONFLICT: another shard
 * count. TB_BAD_STATE: number not above the run's last ready one. TB_FENCED, TB_NOT_HOME,
 * TB_TOO_LARGE (shards), TB_BAD_ARGUMENT (0 shards, a number of 2^63 or above). TB_VERSION_BROKEN:
 * that number is spent. A number whose version failed because a rank was lost, in this life or
 * before it, may be opened again, with a new uid. */
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

/* TB_OK: a reference more; the last shard makes the version ready. TB_DONE_BEFORE: this session
 * sealed it with the same root (a new export replaces the old). TB_CONFLICT: this session sealed it
 * with another root, which changes nothing. TB_VERSION_BROKEN: another session sealed it with
 * another root; the version is broken now (or was). A retry does not break a ready one:
 * TB_CONFLICT. TB_VERSION_*, TB_SUPERSEDED: it ended before. TB_FENCED: its run is shut out and the
 * version was not ready. After a restart of the catalog ranks seal again what they still hold; on a
 * ready version that only adds references. */
TB_MUST_USE enum tb_status tb_catalog_seal(struct tb_catalog *c, tb_time_ns now,
                                           const struct tb_catalog_seal *s);

/* What it would refuse without a look at roots, but a retry's (TB_CONFLICT): TB_PEER_LEASE,
 * TB_NOT_FOUND, TB_NOT_HOME, TB_BAD_ARGUMENT, TB_FENCED, what ended, and TB_TOO_LARGE: with the
 * shards known before, the version's manifests would be over limits.manifest_bytes, and no site
 * could take it; it stays open, for a smaller shard or until a newer one takes its place. Space
 * is reserved behind it: where no seal is taken, a manifest that somebody says would stand in the
 * way of the true one. */
TB_MUST_USE enum tb_status tb_catalog_seal_may(const struct tb_catalog *c, const struct tb_catalog_seal *s);

/* The version's manifests with that shard's, and how much they may have: the numbers of
 * TB_TOO_LARGE. 0: it is not known. */
uint64_t tb_catalog_manifest_bytes(const struct tb_catalog *c, const struct tb_catalog_seal *s,
                                   uint64_t *max_out);

/* A chunk that the gateway read from this publisher had a wrong digest. TB_AGAIN: once, read it
 * again. TB_VERSION_BROKEN: twice; the version is broken, the todo names the rank. */
TB_MUST_USE enum tb_status tb_catalog_chunk_bad(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid,
                                                uint32_t shard, uint32_t chunk,
                                                const struct tb_id *publisher);

/* At home, by an operator (`who` goes into the audit line). TB_NOT_HOME; TB_DONE_BEFORE;
 * TB_BAD_STATE: it is not ready, or it ended otherwise. */
TB_MUST_USE enum tb_status tb_catalog_withdraw(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid,
                                               const char *who);

/* An operator's pin keeps it from retention. TB_DONE_BEFORE. TB_VERSION_*: it ended. */
TB_MUST_USE enum tb_status tb_catalog_pin(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid,
                                          bool pinned);

#endif
