/* world_run.c - one seed: who lives, faults for some seconds, then calm; and it must come to rest
 * (P6). */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "gateway/catalog/views.h"
#include "gateway/daemon/daemon.h"
#include "world.h"
#include "world_check.h"
#include "world_clients.h"
#include "world_faults.h"
#include "world_hostile.h"
#include "world_machine.h"
#include "world_process.h"
#include "world_run.h"
#include "world_versions.h"

#define FAULTS_LAST  TB_SECONDS(6)
#define CONVERGED_BY TB_SECONDS(45)
#define ROUNDS_MAX   40u

static void world_init(uint64_t seed, bool trace, const uint32_t *most)
{
    memset(the, 0, sizeof *the);
    the->seed = the->random = seed;
    the->hash = UINT64_C(0xcbf29ce484222325);
    the->trace = trace;
    the->faulty = true;
    the->began = the->now = TB_SECONDS(1000);
    world_faults_draw(most);
    the->site_count = 2 + (uint32_t)world_random(3);
    the->lane = the->site_count > 2 && world_random(3) == 0 ? the->site_count - 1 : NONE;
    the->went[WAY_LANES] = the->lane != NONE;
    the->model_count = world_random(4) == 0 ? MODELS_MAX : 1;
    the->went[WAY_MODELS] = the->model_count - 1;
    the->versions_wanted = 2 + (uint32_t)world_random(5);
    the->keep = 2 + (uint32_t)world_random(2);
    the->shard_count = 1 + (uint32_t)world_random(SHARDS_MAX);
    the->codec = (enum tb_choice_wish)world_random(TB_CHOICE_WISHES);
    the->window_bytes = 2048u << world_random(5);
    the->unpublishes = world_random(2) == 0;
    the->adopts = world_random(3) == 0;
    for (uint32_t a = 0; a < the->site_count; a++)
        for (uint32_t b = 0; b < the->site_count; b++)
            the->paths[a][b].delay = TB_MS(1 + world_random(20));
    world_sites_init();
    for (uint32_t m = 0; m < MODELS_MAX && m < the->model_count; m++) {
        static const char *const names[MODELS_MAX] = {"trainer", "critic"};
        the->trainers[m].model = m;
        the->trainers[m].c.process = world_process_new(PROCESS_TRAINER, m, names[m]);
        the->trainers[m].c.tls = world_random(2) == 1;
    }
}

/* Everybody who can runs until nobody has anything to do at this instant. */
static void everybody_runs(void)
{
    const uint32_t first = (uint32_t)world_random(the->process_count);
    bool did = true;
    for (uint32_t round = 0; did && round < ROUNDS_MAX && !the->failed; round++) {
        did = false;
        for (uint32_t i = 0; i < the->process_count; i++) {
            struct process *p = &the->processes[(first + i) % the->process_count];
            if (!world_process_runs(p)) continue;
            the->current = p;
            did |= world_uv_run(p);
            the->current = NULL;
        }
        did |= world_chan_run();
    }
}

enum world_plant world_plant;

static void planted(void)
{
    if (world_plant == PLANT_NONE || the->struck[FAULT_KILL] == 0) return;
    TB_ASSERT(world_plant == PLANT_HANG);
    for (volatile bool ever = true; ever;) {
    }
}

static void step(void)
{
    the->now += STEP;
    the->faulty = the->now < the->began + FAULTS_LAST;
    if (!the->faulty)
        for (uint32_t i = 0; i < the->process_count; i++)
            the->processes[i].paused_until = 0;
    world_fault_link_step();
    world_fault_process_step();
    world_fault_disk_step();
    planted();
    everybody_runs();
    for (uint32_t i = 0; i < the->process_count; i++)
        if (world_process_runs(&the->processes[i])) {
            world_threads_run(&the->processes[i]);
            world_shelves_run(&the->processes[i]);
            (void)world_fabric_run(&the->processes[i]);
        }
    for (uint32_t i = 0; i < the->site_count; i++) {
        struct site *s = &the->sites[i];
        for (uint32_t k = 0; k < s->worker_count; k++)
            if (world_process_runs(s->workers[k].c.process)) world_worker_step(&s->workers[k]);
        world_arena_check(s);
        world_adopt_step(s);
    }
    for (uint32_t m = 0; m < the->model_count; m++)
        if (world_process_runs(the->trainers[m].c.process)) world_trainer_step(&the->trainers[m]);
    if (the->twin != NONE) world_arena_check(&the->sites[the->twin]);
    world_check_memory();
    world_check_forged();
    world_check_leaving();
    world_connections_sweep();
}

/* Where everybody stood when it failed. */
static void state_say(const struct site *s)
{
    for (uint32_t m = 0; m < the->model_count; m++) {
        const uint32_t last = world_version_last(m);
        if (last == NONE) continue;
        world_say("%s: gateway %s, holds %llx of v%u", s->name.text, s->daemon != NULL ? "up" : "down",
                  (unsigned long long)world_arena_held(&s->arena, last, 0), last + 1);
    }
    for (uint32_t i = 0; i < s->worker_count; i++) {
        const struct worker *k = &s->workers[i];
        world_say("%s: %s %s %s, stages v%u, computes from v%u, waits %llu, asks %llu", s->name.text,
                  k->c.process->name, k->c.up ? "up" : "away", k->solo ? "alone" : "in the engine",
                  k->staging + 1, k->active + 1, (unsigned long long)k->wait_id,
                  (unsigned long long)k->stage_id);
    }
    struct tb_catalog_group_view g;
    for (uint32_t at = 0; s->daemon != NULL && tb_catalog_group_at(s->daemon->catalog, &at, &g);)
        world_say("%s: group %s: %u of %u here, %u staged whole, attempt v%u, go v%u", s->name.text,
                  g.name.text, g.present, g.count, g.staged_whole, world_version_find(&g.attempt) + 1,
                  world_version_find(&g.uid) + 1);
    struct tb_catalog_version_view v;
    for (uint32_t at = 0; s->daemon != NULL && tb_catalog_version_at(s->daemon->catalog, &at, &v);)
        world_say("%s: v%u %s, %u of %u chunks%s%s", s->name.text, world_version_find(&v.key.uid) + 1,
                  tb_catalog_state_name(v.state), v.held_chunks, v.chunk_count, v.head ? ", head" : "",
                  v.arriving ? ", arriving" : "");
}

static void world_end(void)
{
    for (uint32_t i = 0; the->failed && i < the->site_count; i++)
        state_say(&the->sites[i]);
    for (uint32_t i = 0; i < ROWS_MAX; i++)
        the->sites[i].daemon = NULL;
    for (uint32_t i = 0; i < the->process_count; i++)
        if (the->processes[i].alive) world_process_end(&the->processes[i], false);
    world_connections_free();
    for (uint32_t i = 0; i < ROWS_MAX; i++)
        world_arena_drop(&the->sites[i].arena);
}

void world_run(uint64_t seed, bool trace, const uint32_t *most)
{
    world_init(seed, trace, most);
    while (!the->failed && (the->faulty || !world_converged())) {
        step();
        if (the->now > the->began + CONVERGED_BY) world_fail("P6: no convergence after faults stopped");
    }
    world_end();
}
