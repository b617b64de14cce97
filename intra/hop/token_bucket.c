#include "intra/hop/token_bucket.h"

#include <string.h>

#include "base/assert.h"

void tb_pace_init(struct tb_pace *p, uint64_t bytes_per_s, tb_time_ns now)
{
    memset(p, 0, sizeof *p);
    p->bytes_per_s = bytes_per_s;
    p->burst_bytes = bytes_per_s / 100;
    if (p->burst_bytes < 4 * TB_PACE_QUANTUM_BYTES) p->burst_bytes = 4 * TB_PACE_QUANTUM_BYTES;
    p->at = now;
}

static void refill(struct tb_pace *p, tb_time_ns now)
{
    tb_time_ns passed = tb_time_since(p->at, now);
    if (passed > TB_SECONDS(1))
        passed = TB_SECONDS(1); /* the bucket is full long before, and nothing below overflows */
    const uint64_t new_tokens = (uint64_t)((double)passed * 1e-9 * (double)p->bytes_per_s);
    if (new_tokens == 0) return; /* keep `at`: fractions of a byte add up */
    p->tokens += new_tokens;
    if (p->tokens > p->burst_bytes) p->tokens = p->burst_bytes;
    p->at = now;
}

static uint64_t quantum(size_t want)
{
    return want < TB_PACE_QUANTUM_BYTES ? want : TB_PACE_QUANTUM_BYTES;
}

size_t tb_pace_take(struct tb_pace *p, size_t want, tb_time_ns now)
{
    if (p->bytes_per_s == 0) return want;
    refill(p, now);
    if (p->tokens < quantum(want)) return 0;
    const size_t granted = want < p->tokens ? want : (size_t)p->tokens;
    p->tokens -= granted;
    TB_ASSERT(granted > 0 || want == 0);
    return granted;
}

void tb_pace_give_back(struct tb_pace *p, size_t bytes)
{
    if (p->bytes_per_s != 0) p->tokens += bytes;
}

tb_time_ns tb_pace_ready_at(const struct tb_pace *p, size_t want, tb_time_ns now)
{
    if (p->bytes_per_s == 0 || p->tokens >= quantum(want)) return now;
    const double missing = (double)(quantum(want) - p->tokens);
    return tb_time_add(now, (tb_time_ns)(missing * 1e9 / (double)p->bytes_per_s) + TB_US(10));
}
