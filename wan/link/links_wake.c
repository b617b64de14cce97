/* links_wake.c - what wakes the turn of the links, and what wakes the loops of their streams. */
#include "base/assert.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/stream/stream_loop.h"

uint64_t tb_links_random(void)
{
    uint64_t v = 0;
    tb_random_bytes(&v, sizeof v);
    return v;
}

void tb_links_fed(struct tb_links *ls)
{
    for (uint32_t i = 0; i < ls->loop_count; i++)
        tb_stream_loop_feed(ls->loops[i]);
}

void tb_links_heed(struct tb_links *ls)
{
    for (uint32_t i = 0; i < ls->loop_count; i++)
        tb_stream_loop_wake(ls->loops[i]);
}

void tb_links_set_clock(struct tb_links *ls, uint32_t ms)
{
    TB_ASSERT(ms == LINKS_TICK_BUSY_MS || ms == LINKS_TICK_IDLE_MS);
    if (ls->clock_ms == ms) return;
    ls->clock_ms = ms;
    uv_timer_start(&ls->clock, ls->on_clock, ms, ms);
}

void tb_links_busy(struct tb_links *ls)
{
    tb_links_set_clock(ls, LINKS_TICK_BUSY_MS);
}
