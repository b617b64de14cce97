/* read_window.h - how much of a hop's data READs may be posted at once. Pure.
 *
 * RC answers in order, so what is posted too much costs the next bitmap READ its wait, and what is
 * posted too little leaves the NIC idle. The window is twice what the path holds: the best rate
 * seen times the shortest READ seen, both forgotten after TB_WINDOW_MEMORY. Then so little is
 * posted for one READ's time that it does not wait for others: a path that changed is measured
 * again. It begins with what the link's rate would need at 20 us.
 *
 * Chunks are read in segments: several READs in flight, none so long that a bitmap READ
 * waits long behind it.
 *
 * Threads: one. */
#ifndef TB_INTRA_VERBS_WINDOW_H
#define TB_INTRA_VERBS_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/time.h"

#define TB_WINDOW_SEGMENT_MIN ((uint32_t)64 << 10)
#define TB_WINDOW_SEGMENT_MAX ((uint32_t)1 << 20)
#define TB_WINDOW_MIN         ((uint64_t)512 << 10) /* nothing to any NIC; hides a slow start */
#define TB_WINDOW_MAX         ((uint64_t)8 << 20)   /* as much as a hop has in flight */
#define TB_WINDOW_MEMORY      TB_SECONDS(2)

struct tb_window {
    uint32_t segment_bytes; /* of one READ at most */
    uint32_t reads_max;     /* posted at once: the queue's size */
    uint64_t bytes;         /* the window */
    uint64_t done_bytes; /* of all READs that completed; its value at a READ's posting goes into its sample */

    uint64_t rate_best; /* bytes a second, of the two spans of TB_WINDOW_MEMORY */
    uint64_t rate_before;
    tb_time_ns shortest;
    tb_time_ns shortest_before;
    tb_time_ns span_at; /* 0: no READ has completed */
    bool probing;       /* little is posted until a READ that was posted in this span has completed */
};

/* link_bytes_per_s 0: not known. */
void tb_read_window_init(struct tb_window *w, uint64_t link_bytes_per_s, uint32_t reads_max);

struct tb_window_sample {
    uint32_t bytes;       /* of the READ that completed */
    tb_time_ns posted_at; /* and what done_bytes was then */
    uint64_t done_before;
};
void tb_read_window_completed(struct tb_window *w, const struct tb_window_sample *sample, tb_time_ns now);

/* How many bytes of a READ of `want` may be posted now as one; 0: the window is full. */
uint32_t tb_read_window_next(const struct tb_window *w, uint64_t posted_bytes, uint32_t posted_reads,
                             uint32_t want);

#endif
