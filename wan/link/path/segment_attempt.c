/* segment_attempt.c - the segment size of the next attempt, after attempts that stall in TLS. */
#include "wan/link/path/segment_attempt.h"

#include "base/assert.h"
#include "base/clock.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/session/link_conn.h"
#include "wan/link/session/link_control.h"

/* Of a session's own connection, at most, whatever the path takes. Heartbeats wait there behind
 * signatures and manifests, and a path that swallows full segments has to be told apart from one
 * that is down. Every path of IPv6 takes it. */
#define CONTROL_SEGMENT 1200u

static bool shakes_too_long(const struct tb_link_conn *c, tb_time_ns now)
{
    if (!c->dialled || c->ended || c->opened_at != 0 || c->connected_at == 0) return false;
    return tb_time_since(c->connected_at, now) >= tb_link_silent_after(c->link);
}

uint32_t tb_link_segment_to_try(const struct tb_link *l)
{
    uint32_t stalled = l->path.segment_stalls;
    const tb_time_ns now = tb_clock_now();
    for (const struct tb_link_conn *c = l->links->conns; c != NULL; c = c->next)
        stalled += c->link == l && shakes_too_long(c, now);
    const uint32_t most = l->path.segment.bytes_max;
    return tb_segment_below(most == 0 || most > CONTROL_SEGMENT ? CONTROL_SEGMENT : most, stalled);
}

/* Attempts come at random times. So it is left to chance how many of them stall at the same time,
 * and those that ended count too. */
void tb_link_segment_lost(const struct tb_link_conn *lost, enum tb_status why)
{
    TB_ASSERT(lost->dialled && lost->link != NULL);
    struct tb_link *l = lost->link;
    const bool stalled = why == TB_STREAM_IDLE && lost->opened_at == 0 && lost->connected_at != 0;
    if (stalled && l->path.segment_stalls < TB_SEGMENT_STEPS) l->path.segment_stalls++;
}

/* Before those that run against it are closed. */
void tb_link_segment_won(const struct tb_link_conn *won)
{
    TB_ASSERT(won->dialled && won->link != NULL);
    struct tb_link *l = won->link;
    const tb_time_ns now = tb_clock_now();
    l->path.segment_stalls = 0;
    if (won->segment_max == 0 || won->segment_max == l->path.segment.bytes_max) return;
    for (struct tb_link_conn *c = l->links->conns; c != NULL; c = c->next) {
        if (c->link != l || !shakes_too_long(c, now)) continue;
        if (c->segment_max != 0 && c->segment_max <= won->segment_max) continue;
        c->probe = true;
        l->path.segment.bytes_max = won->segment_max;
        return;
    }
}
