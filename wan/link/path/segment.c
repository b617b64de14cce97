/* segment.c - sizes, and the two connections that make one guilty. Pure. */
#include "wan/link/path/segment.h"

#include "base/assert.h"

#define STALLED_MIN 2u

/* Below Ethernet's, for tunnels and overlays; what a path of 1280 leaves; a margin; what must
 * pass. */
static const uint32_t sizes[TB_SEGMENT_STEPS] = {1360, 1200, 1000, TB_SEGMENT_BYTES_MIN};

uint32_t tb_segment_below(uint32_t bytes, uint32_t steps)
{
    uint32_t at = 0;
    if (steps == 0) return bytes;
    while (bytes != 0 && at < TB_SEGMENT_STEPS - 1 && sizes[at] >= bytes)
        at++;
    TB_ASSERT(at < TB_SEGMENT_STEPS);
    at += steps - 1;
    return sizes[at < TB_SEGMENT_STEPS ? at : TB_SEGMENT_STEPS - 1];
}

static void trial_failed(struct tb_segment *s)
{
    if (s->back == 0) return;
    s->back = 0;
    const tb_time_ns twice = 2 * (s->wait != 0 ? s->wait : TB_SEGMENT_AGAIN_MIN);
    s->wait = twice < TB_SEGMENT_AGAIN_MAX ? twice : TB_SEGMENT_AGAIN_MAX;
    TB_ASSERT(s->wait <= TB_SEGMENT_AGAIN_MAX);
}

static bool lower(struct tb_segment *s, uint32_t from, uint32_t to)
{
    s->stalled = 0;
    trial_failed(s);
    if (s->bytes_max != 0 && to >= s->bytes_max) return false;
    if (s->from == 0 || from < s->from) s->from = from;
    s->bytes_max = to;
    s->proven = true;
    TB_ASSERT(s->bytes_max >= TB_SEGMENT_BYTES_MIN);
    return true;
}

bool tb_segment_stalled(struct tb_segment *s, uint32_t bytes)
{
    if (bytes <= TB_SEGMENT_BYTES_MIN) return false;             /* there is nothing below */
    if (s->bytes_max != 0 && bytes > s->bytes_max) return false; /* of the time before */
    if (s->back != 0 && bytes > s->back) return lower(s, bytes, s->back);
    if (++s->stalled < STALLED_MIN && !s->proven) return false;
    return lower(s, bytes, tb_segment_below(bytes, 1));
}

void tb_segment_moved(struct tb_segment *s)
{
    s->stalled = 0;
}

void tb_segment_try_own(struct tb_segment *s)
{
    s->back = s->bytes_max;
    s->bytes_max = s->stalled = 0;
    s->again_at = 0;
    s->proven = false;
}

bool tb_segment_again(struct tb_segment *s, tb_time_ns now)
{
    if (!s->proven || s->bytes_max == 0) return false;
    if (s->again_at == 0) s->again_at = tb_time_add(now, s->wait != 0 ? s->wait : TB_SEGMENT_AGAIN_MIN);
    if (now < s->again_at) return false;
    tb_segment_try_own(s);
    return true;
}

bool tb_segment_told(struct tb_segment *s, uint32_t bytes)
{
    const bool new = !s->proven;
    if (s->bytes_max != 0 && bytes >= s->bytes_max) {
        trial_failed(s);
        s->proven = true;
        return new;
    }
    return lower(s, s->from, bytes);
}
