/* fault_disk.c - what goes wrong at one gateway's own machine while it runs: a full disk, memory
 * that rots, a clock that jumps. (Lost last writes are a part of its end: fault_process.c.) */
#include "gateway/daemon/daemon.h"
#include "world.h"
#include "world_faults.h"
#include "world_machine.h"
#include "world_process.h"

/* The verifier found it: as its thread does, it notes and wakes the main loop. */
static void rot(struct site *s)
{
    the->current = s->gateway;
    if (world_arena_rot(&s->arena)) {
        atomic_fetch_add(&s->daemon->verify_bad, 1);
        uv_async_send(&s->daemon->verify_wake);
    }
    the->current = NULL;
}

void world_fault_disk_step(void)
{
    for (uint32_t i = 0; i < the->site_count; i++) {
        struct site *s = &the->sites[i];
        if (!the->faulty) s->store.full_until = 0;
        if (world_strikes(FAULT_FULL, 20)) {
            s->store.full_until = tb_time_add(the->now, TB_MS(50 + world_draw(FAULT_FULL, 1000)));
            world_say("the disk of %s is full", s->name.text);
        }
        if (s->daemon != NULL && world_strikes(FAULT_ROT, 20)) rot(s);
        if (world_strikes(FAULT_CLOCK, 40)) {
            s->gateway->wall_ms = (int64_t)world_draw(FAULT_CLOCK, 7200000) - 3600000;
            world_say("the clock of %s jumps to %lld ms", s->name.text, (long long)s->gateway->wall_ms);
        }
    }
}
