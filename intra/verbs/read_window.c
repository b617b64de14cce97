#include "intra/verbs/read_window.h"

#include <string.h>

#include "base/assert.h"

#define RTT_GUESS    TB_US(20)
#define RATE_GUESS   UINT64_C(12500000000) /* 100 Gbit/s */
#define SEGMENTS_MIN 8u                    /* of a window: several are in flight */

static uint64_t within(uint64_t bytes)
{
    if (bytes < TB_WINDOW_MIN) return TB_WINDOW_MIN;
    return bytes > TB_WINDOW_MAX ? TB_WINDOW_MAX : bytes;
}

/* An eighth of the window, a power of two. */
static uint32_t segment_of(uint64_t window)
{
    uint32_t bytes = TB_WINDOW_SEGMENT_MIN;
    while (bytes < TB_WINDOW_SEGMENT_MAX && (uint64_t)bytes * 2 * SEGMENTS_MIN <= window)
        bytes *= 2;
    return bytes;
}

static uint64_t twice_held(uint64_t bytes_per_s, tb_time_ns rtt)
{
    const double bytes = 2 * (double)bytes_per_s * (double)rtt / 1e9;
    return within(bytes < 1e15 ? (uint64_t)bytes : (uint64_t)1e15);
}

static void resize(struct tb_window *w, uint64_t bytes)
{
    w->bytes = bytes;
    w->segment_bytes = segment_of(bytes);
    TB_ASSERT(w->bytes >= TB_WINDOW_MIN && w->bytes <= TB_WINDOW_MAX);
    TB_ASSERT(w->segment_bytes >= TB_WINDOW_SEGMENT_MIN && w->segment_bytes <= TB_WINDOW_SEGMENT_MAX);
}

void tb_read_window_init(struct tb_window *w, uint64_t link_bytes_per_s, uint32_t reads_max)
{
    memset(w, 0, sizeof *w);
    w->reads_max = reads_max > 0 ? reads_max : 1;
    w->shortest = w->shortest_before = TB_TIME_NEVER;
    resize(w, twice_held(link_bytes_per_s != 0 ? link_bytes_per_s : RATE_GUESS, RTT_GUESS));
}

static void next_span(struct tb_window *w, tb_time_ns now)
{
    if (w->span_at != 0 && tb_time_since(w->span_at, now) < TB_WINDOW_MEMORY) return;
    w->rate_before = w->rate_best;
    w->shortest_before = w->shortest;
    w->rate_best = 0;
    w->shortest = TB_TIME_NEVER;
    w->probing = w->span_at != 0;
    w->span_at = now;
}

void tb_read_window_completed(struct tb_window *w, const struct tb_window_sample *sample, tb_time_ns now)
{
    next_span(w, now);
    w->done_bytes += sample->bytes;
    TB_ASSERT(sample->done_before < w->done_bytes || sample->bytes == 0);
    if (sample->posted_at > w->span_at) w->probing = false;
    tb_time_ns took = tb_time_since(sample->posted_at, now);
    if (took == 0) took = 1;
    const double rate = (double)(w->done_bytes - sample->done_before) * 1e9 / (double)took;
    if (rate > (double)w->rate_best) w->rate_best = rate < 1e15 ? (uint64_t)rate : (uint64_t)1e15;
    if (took < w->shortest) w->shortest = took;
    const uint64_t best = w->rate_best > w->rate_before ? w->rate_best : w->rate_before;
    resize(w, twice_held(best, tb_time_min(w->shortest, w->shortest_before)));
}

uint32_t tb_read_window_next(const struct tb_window *w, uint64_t posted_bytes, uint32_t posted_reads,
                             uint32_t want)
{
    TB_ASSERT(w->segment_bytes > 0 && w->reads_max > 0);
    const uint64_t most = w->probing ? TB_WINDOW_MIN / SEGMENTS_MIN : w->bytes;
    if (posted_reads >= w->reads_max || posted_bytes >= most) return 0;
    return want < w->segment_bytes ? want : w->segment_bytes;
}
