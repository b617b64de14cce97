/* fault_process.c - processes that die, come back, stand still, leave and join;
 * machines that reboot. */
#include "gateway/daemon/daemon.h"
#include "world.h"
#include "world_clients.h"
#include "world_faults.h"
#include "world_hostile.h"
#include "world_machine.h"
#include "world_process.h"

static tb_time_ns later(enum fault f, uint64_t most_ms)
{
    return tb_time_add(the->now, TB_MS(20 + world_draw(f, most_ms)));
}

static void pauses(struct process *p)
{
    if (!p->alive || the->now < p->paused_until) return;
    if (!world_strikes(FAULT_PAUSE, 15)) return;
    p->paused_until = later(FAULT_PAUSE, 3000);
    world_say("%s stands still for %llu ms", p->name,
              (unsigned long long)((p->paused_until - the->now) / TB_MS(1)));
}

/* Its gateway is down. A disk that lied about what it wrote shows it when the power goes; a store
 * that somebody puts back from a copy is as old. */
static void store_is_older(struct site *s)
{
    if (world_strength(FAULT_DISK) == 0 || world_draw(FAULT_DISK, 2) == 0) return;
    world_store_write_lost(&s->store, 1 + (uint32_t)world_draw(FAULT_DISK, DISK_PAST));
    the->struck[FAULT_DISK]++;
    world_say("and its store lost its last writes");
}

/* A new life, without an arena, that begins from what the disk still has. */
static void reboot(struct site *s)
{
    world_say("the gateway's machine of %s reboots", s->name.text);
    the->forgot_at = the->now;
    world_gateway_end(s, true);
    store_is_older(s);
    world_arena_drop(&s->arena);
    world_arena_new(&s->arena);
    s->gateway->back_at = later(FAULT_REBOOT, 2500);
}

static void gateway_step(struct site *s)
{
    struct process *p = s->gateway;
    if (!p->alive) {
        if (!the->faulty || the->now >= p->back_at) world_gateway_open(s);
        return;
    }
    pauses(p);
    if (world_strikes(FAULT_KILL, 25)) {
        world_say("the gateway of %s is killed", s->name.text);
        world_gateway_end(s, false);
        store_is_older(s);
        p->back_at = later(FAULT_KILL, 1500);
    } else if (world_strikes(FAULT_REBOOT, 15)) {
        reboot(s);
    }
}

static void worker_step(struct worker *k)
{
    struct process *p = k->c.process;
    if (!p->alive) {
        if (!the->faulty || the->now >= p->back_at) world_worker_start(k);
        return;
    }
    pauses(p);
    if (world_strikes(FAULT_CRASH, 25)) {
        the->forgot_at = the->now;
        world_worker_end(k, false);
        p->back_at = later(FAULT_CRASH, 1500);
    } else if (k->solo && world_strikes(FAULT_MEMBER, 60)) {
        the->forgot_at = the->now;
        world_worker_end(k, true);
        p->back_at = later(FAULT_MEMBER, 3000);
    }
}

static void trainer_step(struct trainer *t)
{
    struct process *p = t->c.process;
    if (!p->alive) {
        if (!the->faulty || the->now >= p->back_at) world_trainer_start(t);
        return;
    }
    pauses(p);
    if (!world_strikes(FAULT_TRAINER, 30)) return;
    world_trainer_end(t);
    p->back_at = later(FAULT_TRAINER, 1500);
}

void world_fault_process_step(void)
{
    for (uint32_t i = 0; i < the->site_count; i++) {
        struct site *s = &the->sites[i];
        gateway_step(s);
        for (uint32_t k = 0; k < s->worker_count; k++)
            worker_step(&s->workers[k]);
    }
    world_twin_step();
    for (uint32_t m = 0; m < the->model_count; m++)
        trainer_step(&the->trainers[m]);
}
