/* live_plan.h - the digests that the tensors of one active version must have where a rollout
 * computes from them.
 *
 * A plan is a list of units. A unit is a chunk of the version that the registered tensors cover.
 * Its digest is the manifest's. Or it is a box: a piece of a tensor that covers no whole chunk. Its
 * digest was taken from the staged bytes, whose chunks were compared with the manifest before.
 *
 * A plan knows tensors by their number in the registration, not by address: the memory may move. */
#ifndef TB_INTRA_CLIENT_LIVE_PLAN_H
#define TB_INTRA_CLIENT_LIVE_PLAN_H

#include "base/ident.h"
#include "intra/client/live/live_digest.h"
#include "intra/client/memory/boxes.h"

struct tb_registration;
struct tb_staging;

struct tb_live_unit {
    uint32_t shard, chunk; /* of a box: of its first byte */
    uint32_t first, count; /* pieces; of a staged unit none */
    uint64_t bytes;
    bool box;
    struct tb_live_sum sum; /* that it must have */
};

struct tb_live_plan {
    uint32_t refs; /* under the session's lock */
    struct tb_id uid;
    /* The rollout computes from the staging itself; NULL: from the registration. */
    const struct tb_staging *staging;
    struct tb_registration *registration; /* from the activation on */
    uint64_t wrote;                       /* target.writes behind the activation */
    struct tb_live_unit *units;
    struct tb_live_piece *pieces;
    uint32_t unit_count, piece_count, piece_cap;
    uint64_t bytes, box_bytes; /* of units; of those that are boxes */
    uint64_t left_bytes;       /* in boxes that have no digest: they were staged as a patch */
};

/* Of a whole staging, without the lock: the caller keeps the staging and `copies`. `r` NULL: there
 * are no registered tensors. NULL: no memory, or a device did not give its bytes. */
struct tb_live_plan *tb_live_plan_new(const struct tb_staging *st, const struct tb_registration *r,
                                      const struct tb_box_copies *copies);
/* One reference less. NULL is fine. */
void tb_live_plan_drop(struct tb_live_plan *plan);
/* The name of the unit's tensor; of a chunk that has several: of each, as far as there is room. */
void tb_live_unit_names(const struct tb_live_plan *plan, const struct tb_live_unit *unit, char *out,
                        size_t cap);

#endif
