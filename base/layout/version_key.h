/* version_key.h - which version it is: its key on the wire, its root, its place in the order of
 * versions. Pure. */
#ifndef TB_BASE_VERSION_KEY_H
#define TB_BASE_VERSION_KEY_H

#include "base/bytes.h"
#include "base/digest.h"
#include "base/ident.h"
#include "tombolo/status.h"

/* Which version it is. On the wire: uid, name, run id, u64 run_order, u64 number,
 * u32 shard_count, root. */
struct tb_version_key {
    struct tb_id uid;
    struct tb_name model;
    struct tb_id run;
    uint64_t run_order; /* the first run of a model is 1; versions are ordered by (run_order, number) */
    uint64_t number;
    uint32_t shard_count;
    struct tb_digest root; /* zero until ready */
};

struct tb_digest tb_version_key_root(const struct tb_version_key *key, const struct tb_digest *shard_roots);
void tb_version_key_encode(const struct tb_version_key *key, struct tb_writer *w);
/* TB_PEER_GARBLED for a bad name, zero uid, shard_count 0 or over TB_SHARDS_MAX. */
TB_MUST_USE enum tb_status tb_version_key_decode(struct tb_reader *r, struct tb_version_key *key_out);
/* Negative, 0, positive as a is older than, the same as, newer than b: by (run_order, number). */
int tb_version_key_compare(const struct tb_version_key *a, const struct tb_version_key *b);

#endif
