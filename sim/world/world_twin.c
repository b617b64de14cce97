/* world_twin.c - two gateways with one identity: somebody started a copy of a machine, or has a
 * gateway's key. It takes part as that gateway would, with an arena of its own. */
#include <stdio.h>

#include "base/assert.h"
#include "gateway/daemon/daemon.h"
#include "world.h"
#include "world_clients.h"
#include "world_faults.h"
#include "world_hostile.h"
#include "world_machine.h"
#include "world_process.h"

/* Of a site that is no home: a home's key is what everybody trusts. */
void world_twin_init(void)
{
    uint32_t able[SITES_MAX], count = 0;
    the->twin = the->twin_of = NONE;
    for (uint32_t i = the->model_count; i < the->site_count; i++)
        if (i != the->lane && i != the->hostile) able[count++] = i;
    if (the->strength[FAULT_TWIN] == 0 || count == 0) return;
    the->twin = the->site_count;
    the->twin_of = able[world_draw(FAULT_TWIN, count)];
    the->twin_stays = world_draw(FAULT_TWIN, 2) == 0;
    struct site *s = &the->sites[the->twin];
    const struct site *of = &the->sites[the->twin_of];
    char text[24];
    s->name = of->name;
    s->of = of->of;
    s->config = of->config;
    s->config.session_socket = "/site/4";
    s->config.session_listen = "127.0.0.1:7504";
    s->config.link_listen = "127.0.0.1:7404";
    for (uint32_t i = 0; i < the->site_count; i++) {
        the->paths[the->twin][i] = the->paths[the->twin_of][i];
        the->paths[i][the->twin] = the->paths[i][the->twin_of];
    }
    (void)snprintf(text, sizeof text, "%.18s.twin", of->name.text);
    s->gateway = world_process_new(PROCESS_GATEWAY, the->twin, text);
    s->gateway->back_at = tb_time_add(the->now, TB_MS(world_draw(FAULT_TWIN, 2000)));
    world_arena_new(&s->arena);
}

static tb_time_ns later(uint64_t most_ms)
{
    return tb_time_add(the->now, TB_MS(50 + world_draw(FAULT_TWIN, most_ms)));
}

/* Each life begins from nothing, or from a copy of the other's disk as it is now. Then both have
 * one incarnation. */
static void begin(struct site *s)
{
    const bool copied = world_draw(FAULT_TWIN, 2) == 0;
    if (copied) s->store = the->sites[the->twin_of].store;
    the->struck[FAULT_TWIN]++;
    world_say("a twin of %s comes, %s", s->name.text, copied ? "with a copy of its store" : "with its own");
    world_gateway_open(s);
    s->gateway->back_at = later(4000);
}

void world_twin_step(void)
{
    if (the->twin == NONE) return;
    struct site *s = &the->sites[the->twin];
    const bool comes = the->faulty || the->twin_stays;
    if (s->gateway->alive && (!comes || the->now >= s->gateway->back_at)) {
        world_say("the twin of %s goes", s->name.text);
        world_gateway_end(s, world_draw(FAULT_TWIN, 2) == 0);
        s->gateway->back_at = later(1000 * (STRENGTH_MAX - the->strength[FAULT_TWIN]) + 100);
    } else if (!s->gateway->alive && comes && the->now >= s->gateway->back_at) {
        begin(s);
    }
}
