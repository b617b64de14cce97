/* world_gateway.c - a site: its configuration, and its gateway, opened as tombolod opens it and
 * ended as SIGKILL ends it. */
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/daemon/daemon.h"
#include "wan/frame/frame.h"
#include "world.h"
#include "world_clients.h"
#include "world_hostile.h"
#include "world_machine.h"
#include "world_process.h"

static const char *const site_names[SITES_MAX] = {"east", "west", "north", "south"};
static const char *const unix_paths[SITES_MAX] = {"/site/0", "/site/1", "/site/2", "/site/3"};
static const char *const link_addresses[SITES_MAX] = {"127.0.0.1:7400", "127.0.0.1:7401", "127.0.0.1:7402",
                                                      "127.0.0.1:7403"};
static const char *const tls_addresses[SITES_MAX] = {"127.0.0.1:7500", "127.0.0.1:7501", "127.0.0.1:7502",
                                                     "127.0.0.1:7503"};

static const char *const gateway_names[] = {"gw", "gw1"};

const char *const world_models[MODELS_MAX] = {"policy", "critic"};
static const char *const publishers[MODELS_MAX] = {"tombolo://east/worker/*", "tombolo://west/worker/*"};

static void name(struct tb_name *out, const char *text)
{
    const enum tb_status status = tb_name_set(out, text);
    TB_ASSERT(status == TB_OK);
}

static void config_model(struct tb_config *c, uint32_t index, uint32_t model)
{
    struct tb_config_model *m = &c->models[c->model_count++];
    name(&m->name, world_models[model]);
    name(&m->home, site_names[model]);
    m->keep = the->keep;
    m->every = world_random(3) == 0;
    the->went[WAY_EVERY] += m->every;
    m->publish[m->publish_count++] = "unix:*";
    m->publish[m->publish_count++] = publishers[model];
    m->read[m->read_count++] = "unix:*";
    m->read[m->read_count++] = "tombolo://*";
    m->groups[m->groups_count++] = "unix:*"; /* an engine's ranks come by both ways */
    m->groups[m->groups_count++] = "tombolo://*";
    m->may_fence[m->may_fence_count++] = "unix:*"; /* and its trainer's */
    m->may_fence[m->may_fence_count++] = "tombolo://*";
    if (index == model) return;
    struct tb_config_subscribe *s = &c->subscribe[c->subscribe_count++];
    name(&s->model, world_models[model]);
    const uint32_t first = world_prefers_liar(index) ? the->hostile : model;
    s->from[s->from_count++] = the->sites[first].name; /* as a rule home, then any holder */
    for (uint32_t i = 0; i < the->site_count; i++)
        if (i != index && i != first) s->from[s->from_count++] = the->sites[i].name;
}

static void config_peers(struct tb_config *c, uint32_t index)
{
    for (uint32_t i = 0; i < the->site_count; i++) {
        if (i == index) continue;
        struct tb_config_peer *p = &c->peers[c->peer_count++];
        p->site = the->sites[i].name;
        name(&p->of, site_names[the->sites[i].of]);
        name(&p->gateway, gateway_names[i == the->lane]);
        p->lane = i == the->lane;
        p->address = link_addresses[i];
    }
}

/* Short times: what takes a gateway 10 s takes the world 2. */
static void config_init(struct tb_config *c, uint32_t index)
{
    memset(c, 0, sizeof *c);
    const uint32_t of = the->sites[index].of;
    name(&c->site, site_names[of]);
    name(&c->gateway, gateway_names[index == the->lane]);
    c->label = the->sites[index].name;
    c->lane = index == the->lane;
    c->lanes = the->lane != NONE && the->sites[the->lane].of == of ? 2 : 1;
    c->control_socket = "/control";
    c->session_socket = unix_paths[index];
    c->session_listen = tls_addresses[index];
    c->session_lease_ms = 2000;
    c->session_max = 24;
    c->handshakes_open = c->handshakes_failed = 1000; /* strangers are not what this world is about */
    c->garbled_frames = c->cancelled_requests = 1000000;
    c->store_path = "/store";
    c->store_slow_ms = 1000;
    if (world_random(3) == 0) c->anchor_dir = "/anchors";
    c->anchor_every = 1 + (uint32_t)world_random(2);
    c->anchor_rate = UINT64_C(1) << 40; /* how long a writing takes is the thread's affair */
    c->arena_path = "/arena";
    c->arena_bytes = (uint64_t)(the->keep + 2) * the->shard_count * SHARD_BYTES * the->model_count;
    c->tls_ca = c->tls_cert = c->tls_key = "/pem";
    c->link_listen = link_addresses[index];
    c->link_streams = 1 + (uint32_t)world_random(3);
    c->link_threads = 1;
    c->link_heartbeat_ms = 250;
    c->link_down_ms = 1500;
    c->link_stream_idle_ms = 1500;
    c->link_retry_min_ms = 50;
    c->link_retry_max_ms = 800;
    c->link_codec = the->codec;
    c->link_encoded_percent = 20;
    c->link_protocol_max =
        world_random(4) == 0 ? TB_LINK_PROTOCOL_MIN : TB_LINK_PROTOCOL; /* P9: some lag a release behind */
    c->link_congestion = "auto";
    c->link_own_records = true;
    c->fabric_host = the->sites[index].name;
    c->fabric_fan_out = (uint32_t)world_random(3);
    c->fabric_nic = world_random(4) * 20000; /* with fan_out 0: how wide follows from what arrives */
    c->fabric_threads = 1;
    c->fabric_encoded = world_random(4) != 0;
    c->drain_ms = 1000;
    c->pin_max_s = 600;
    config_peers(c, index);
    for (uint32_t m = 0; m < the->model_count; m++)
        config_model(c, index, m);
}

static void site_name(uint32_t index)
{
    struct site *s = &the->sites[index];
    char text[16];
    s->of = index == the->lane ? (uint32_t)world_random(index) : index;
    (void)snprintf(text, sizeof text, "%s%s", site_names[s->of], s->of == index ? "" : ".1");
    name(&s->name, text);
}

static void site_init(uint32_t index)
{
    struct site *s = &the->sites[index];
    config_init(&s->config, index);
    s->gateway = world_process_new(PROCESS_GATEWAY, index, s->name.text);
    world_arena_new(&s->arena);
    if (index == the->lane) return;
    s->worker_count = 1 + (uint32_t)world_random(WORKERS_MAX);
    s->group_count = 1 + (uint32_t)world_random(s->worker_count);
    for (uint32_t i = 0; i < s->worker_count; i++) {
        struct worker *k = &s->workers[i];
        char text[16];
        (void)snprintf(text, sizeof text, "%s-w%u", site_names[index], (unsigned)i);
        k->site = index;
        k->index = i;
        k->here = true;
        k->solo = i >= s->group_count;
        k->model = k->solo ? (uint32_t)world_random(the->model_count) : 0;
        k->staging = k->active = k->next = NONE;
        k->c.process = world_process_new(PROCESS_WORKER, index, text);
        k->c.tls = world_random(2) == 1;
        k->encoded = world_random(4) != 0;
    }
}

/* Where a gateway is a release behind, it passes no signature on. */
static void peers_may_be_unsigned(void)
{
    bool behind = false;
    if (the->hostile != NONE || the->twin != NONE) { /* what is unsigned, anybody may forge */
        for (uint32_t i = 0; i < the->site_count; i++)
            the->sites[i].config.link_protocol_max = TB_LINK_PROTOCOL;
    }
    for (uint32_t i = 0; i < the->site_count; i++)
        behind |= the->sites[i].config.link_protocol_max < TB_LINK_PROTOCOL_SIGNED;
    for (uint32_t i = 0; i < the->site_count; i++)
        for (uint32_t p = 0; p < the->sites[i].config.peer_count; p++)
            the->sites[i].config.peers[p].is_unsigned = behind;
}

void world_sites_init(void)
{
    for (uint32_t i = 0; i < the->site_count; i++)
        site_name(i);
    world_hostile_choose();
    for (uint32_t i = 0; i < the->site_count; i++)
        site_init(i);
    world_twin_init();
    peers_may_be_unsigned();
    if (the->twin != NONE) the->sites[the->twin].config.link_protocol_max = TB_LINK_PROTOCOL;
}

void world_gateway_open(struct site *s)
{
    world_process_start(s->gateway);
    the->current = s->gateway;
    struct tb_daemon *d = tb_calloc(1, sizeof *d);
    const enum tb_status status = tb_daemon_open(d, &s->config);
    if (status == TB_SITE_STORE)
        world_say("does not start: its store cannot be written");
    else if (status != TB_OK)
        world_fail("%s does not start: %s", s->name.text, tb_status_name(status));
    the->current = NULL;
    if (status != TB_OK) { /* tombolod exits; systemd starts it again */
        world_process_end(s->gateway, false);
        s->gateway->back_at = tb_time_add(the->now, TB_MS(200));
        return;
    }
    s->daemon = d;
    s->up_since = the->now;
}

void world_gateway_end(struct site *s, bool machine)
{
    s->daemon = NULL;
    world_process_end(s->gateway, machine);
}
