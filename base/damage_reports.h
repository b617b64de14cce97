/* damage_reports.h - which reports of a damaged chunk the holder answers by
 * digesting its own copy. Pure.
 *
 * A report is a stranger's word. The holder believes only its own digest, and a digest costs a pass
 * over the chunk (32 MiB at most). So a chunk is digested at most once a second, at most
 * TB_DOUBTS_MAX chunks are digested in any second, and at most TB_DOUBTS_EACH of them after reports
 * of one reporter: a reporter that lies does not use up the looks of the others. A report that is
 * not answered is not kept. The reader that needs the chunk reports it again.
 *
 * Threads: one. Zeroed memory is ready. */
#ifndef TB_BASE_DOUBTS_H
#define TB_BASE_DOUBTS_H

#include "base/ident.h"
#include "base/time.h"

/* Chunks in any second. They have 16 MiB at most: 256 MiB in all, 30 ms of one core. */
#define TB_DOUBTS_MAX   16u
#define TB_DOUBTS_EACH  4u
#define TB_DOUBTS_EVERY TB_SECONDS(1)

struct tb_doubt {
    struct tb_id uid;
    uint64_t reporter; /* the owner's number for it; equal for reports that share a part of the looks */
    uint64_t holder;   /* whose copy it is; 0: the owner's own */
    uint32_t shard, chunk;
    tb_time_ns at; /* 0: the place is free */
};

struct tb_doubts {
    struct tb_doubt last[TB_DOUBTS_MAX]; /* the oldest at `next` */
    uint32_t next;
};

/* `doubt->at` is now, above 0. True: the owner digests the chunk now. */
bool tb_doubts_take(struct tb_doubts *d, const struct tb_doubt *doubt);

#endif
