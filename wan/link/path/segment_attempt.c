/* segment_attempt.c - the segment size of the next attempt, after attempts that stall in TLS. */
#include "wan/link/path/segment_attempt.h"

#include "base/assert.h"
#include "base/clock.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/session/link_conn.h"
#include "wan/link/session/link_control.h"

static bool shakes_too_long(const struct tb_link_conn *c, tb_time_ns now)
{
    if (!c->dialled || c->ended || c->opened_at != 0 || c->connected_at == 0) return false;
    return tb_time_since(c->connected_at, now) >= tb_link_silent_after(c->link);
}

uint32_t tb_link_segment_to_try(const struct tb_link *l)
{
    uint32_t stalled = 0;
    const tb_time_ns now = tb_clock_now();
    for (const struct tb_link_conn *c = l->links->conns; c != NULL; c = c->next)
        stalled += c->link == l && shakes_too_long(c, now);
    return tb_segment_below(l->path.segment.bytes_max, stalled);
}

/* Before those that run against it are closed. */
void tb_link_segment_won(const struct tb_link_conn *won)
{
    TB_ASSERT(won->dialled && won->link != NULL);
    struct tb_link *l = won->link;
    const tb_time_ns now = tb_clock_now();
    if (won->segment_max == 0 || won->segment_max == l->path.segment.bytes_max) return;
    for (struct tb_link_conn *c = l->links->conns; c != NULL; c = c->next) {
        if (c->link != l || !shakes_too_long(c, now)) continue;
        if (c->segment_max != 0 && c->segment_max <= won->segment_max) continue;
        c->probe = true;
        l->path.segment.bytes_max = won->segment_max;
        return;
    }
}
