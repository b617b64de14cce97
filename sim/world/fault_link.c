/* fault_link.c - what goes wrong between sites: delay and reordering, broken streams, cuts one and
 * both ways, links that take nothing. Duplicates, rotten chunks and slow readers strike where bytes
 * pass (world_pipe.c, world_fabric.c). */
#include "world.h"
#include "world_faults.h"
#include "world_machine.h"
#include "world_process.h"

/* Across connections everything may overtake everything: each byte's delay is drawn, each
 * connection keeps its own order. */
static void delays(uint32_t a, uint32_t b)
{
    struct path *p = &the->paths[a][b];
    if (world_strikes(FAULT_DELAY, 50))
        p->delay = TB_MS(20 + world_draw(FAULT_DELAY, 100) * world_strength(FAULT_DELAY));
    if (world_strikes(FAULT_REORDER, 50))
        p->jitter = TB_MS(10 + world_draw(FAULT_REORDER, 60) * world_strength(FAULT_REORDER));
    if (p->delay + p->jitter > p->slowest) p->slowest = p->delay + p->jitter;
}

static tb_time_ns later(enum fault f, uint64_t most_ms)
{
    return tb_time_add(the->now, TB_MS(10 + world_draw(f, most_ms)));
}

static void block(uint32_t a, uint32_t b, tb_time_ns until)
{
    world_say("%s > %s is cut for %llu ms", the->sites[a].name.text, the->sites[b].name.text,
              (unsigned long long)((until - the->now) / TB_MS(1)));
    the->paths[a][b].blocked_until = until;
}

static void cuts(uint32_t a, uint32_t b)
{
    if (world_strikes(FAULT_CUT, 40)) {
        const tb_time_ns until = later(FAULT_CUT, 2500);
        block(a, b, until);
        block(b, a, until);
        if (world_draw(FAULT_CUT, 3) == 0) world_connections_break(a, b, true); /* a middlebox forgot them */
    }
    if (world_strikes(FAULT_ONEWAY, 40)) {
        const bool turned = world_draw(FAULT_ONEWAY, 2) == 1;
        block(turned ? b : a, turned ? a : b, later(FAULT_ONEWAY, 2500));
    }
    if (world_strikes(FAULT_CLOG, 40)) {
        const bool turned = world_draw(FAULT_CLOG, 2) == 1;
        struct path *p = turned ? &the->paths[b][a] : &the->paths[a][b];
        p->clogged_until = later(FAULT_CLOG, 1500);
        world_say("%s - %s is clogged", the->sites[a].name.text, the->sites[b].name.text);
    }
    if (world_strikes(FAULT_LOSS, 100)) {
        world_say("%s - %s loses a connection", the->sites[a].name.text, the->sites[b].name.text);
        world_connections_break(a, b, false);
    }
}

static void calm(uint32_t a, uint32_t b)
{
    struct path *p = &the->paths[a][b];
    if (p->blocked_until > the->now) p->blocked_until = the->now;
    if (p->clogged_until > the->now) p->clogged_until = the->now;
}

void world_fault_link_step(void)
{
    for (uint32_t a = 0; a < the->site_count; a++) {
        for (uint32_t b = 0; b < the->site_count; b++) {
            if (!the->faulty) calm(a, b);
            if (a != b) delays(a, b);
            if (a < b) cuts(a, b);
        }
    }
}
