/* token_bucket.h - a token bucket: an emulated NIC lets so many bytes a second through. Pure. */
#ifndef TB_INTRA_PACE_H
#define TB_INTRA_PACE_H

#include <stddef.h>

#include "base/time.h"

/* below this a grant waits, so that no one is woken for a few bytes */
#define TB_PACE_QUANTUM_BYTES ((uint64_t)64 << 10)

struct tb_pace {
    uint64_t bytes_per_s; /* 0: no limit */
    uint64_t tokens;      /* bytes that may go now */
    uint64_t burst_bytes; /* what may be saved up: 10 ms, at least four quanta */
    tb_time_ns at;
};

void tb_pace_init(struct tb_pace *p, uint64_t bytes_per_s, tb_time_ns now);
/* How much of `want` may go now; taken from the bucket. 0: not yet. */
size_t tb_pace_take(struct tb_pace *p, size_t want, tb_time_ns now);
/* Of a grant, what was not used. */
void tb_pace_give_back(struct tb_pace *p, size_t bytes);
/* When a take of `want` bytes that got 0 is worth repeating. */
tb_time_ns tb_pace_ready_at(const struct tb_pace *p, size_t want, tb_time_ns now);

#endif
