/* world_client.c - a session with the site's gateway, as a worker's library keeps it: dial,
 * HELLO, RENEW, dial again. */
#include <string.h>

#include "base/assert.h"
#include "base/net/chan_facts.h"
#include "intra/session_msg.h"
#include "world.h"
#include "world_clients.h"
#include "world_faults.h"
#include "world_process.h"

static void on_open(struct tb_wire *w, void *user, const struct tb_chan_peer *peer)
{
    (void)w, (void)peer;
    struct client *c = user;
    struct tb_msg_hello m = {.protocol = TB_MSG_PROTOCOL, .session = c->was, .pid = c->process->index};
    enum tb_status status = tb_name_set(&m.name, c->process->name);
    TB_ASSERT(status == TB_OK);
    m.host = c->door.host;
    (void)snprintf(m.shm_door.text, sizeof m.shm_door.text, "%s", c->door.shm_door);
    WORLD_SEND(c, TB_MSG_HELLO, ++c->requests, &m, tb_msg_hello_encode);
}

/* Held bytes are right: the checker looks. */
static enum tb_status take_doubt(struct client *c, struct tb_wire_frame *f)
{
    struct tb_msg_doubt m;
    if (tb_msg_doubt_decode(&f->payload, &m) != TB_OK) return TB_PEER_GARBLED;
    const struct tb_msg_doubted answer = {m.uid, m.shard, m.chunk, TB_MSG_FOUND_GOOD};
    WORLD_SEND(c, TB_MSG_DOUBTED, 0, &answer, tb_msg_doubted_encode);
    return TB_OK;
}

static enum tb_status on_frame(struct tb_wire *w, void *user, struct tb_wire_frame *f)
{
    (void)w;
    struct client *c = user;
    if (f->type == TB_MSG_DOUBT) return take_doubt(c, f);
    if (f->type != TB_MSG_WELCOME) return c->frame(c, f);
    struct tb_msg_welcome m;
    if (tb_msg_welcome_decode(&f->payload, &m) != TB_OK) return TB_PEER_GARBLED;
    const bool same = tb_id_equal(&m.session, &c->was);
    c->session = c->was = m.session;
    c->up = true;
    c->renew_at = tb_time_add(the->now, TB_MS(m.lease_ms / 3));
    c->welcome(c, same);
    return TB_OK;
}

static void on_closed(struct tb_wire *w, void *user, enum tb_status why)
{
    (void)w;
    struct client *c = user;
    if (why == TB_PEER_GARBLED) world_fail("%s was told what it does not understand", c->process->name);
    c->wire = NULL;
    c->up = false;
    if (!c->tls) c->was = (struct tb_id){{0}}; /* a unix session ends with its connection */
    c->dial_at = tb_time_add(the->now, TB_MS(20 + world_random(200)));
}

static const struct tb_wire_ops wire_ops = {.on_open = on_open, .on_frame = on_frame, .on_closed = on_closed};

void world_client_start(struct client *c)
{
    struct process *p = c->process;
    world_process_start(p);
    c->wire = NULL;
    c->up = false;
    c->was = c->session = (struct tb_id){{0}};
    c->dial_at = tb_time_add(the->now, TB_MS(world_random(100)));
    struct tb_fabric_options options = {.pace_bytes_per_s = 0};
    char host[32];
    (void)snprintf(host, sizeof host, "host%u", (unsigned)(p->index / 2));
    enum tb_status status = tb_name_set(&options.host, host);
    if (world_strength(FAULT_SLOW) != 0 && world_strikes(FAULT_SLOW, 20000))
        options.pace_bytes_per_s = UINT64_C(4000000) >> world_draw(FAULT_SLOW, 3);
    the->current = p;
    if (status == TB_OK) status = tb_fabric_open(&options, &c->fabric);
    TB_ASSERT(status == TB_OK);
    tb_fabric_endpoint(c->fabric, &c->door);
    the->current = NULL;
}

static void dial(struct client *c)
{
    struct tb_endpoint endpoint;
    struct tb_address address;
    const struct tb_config *config = &the->sites[c->process->site].config;
    char text[64];
    (void)snprintf(text, sizeof text, "%s%s",
                   c->tls ? "" : "unix:", c->tls ? config->session_listen : config->session_socket);
    enum tb_status status = tb_endpoint_parse(text, &endpoint);
    if (status == TB_OK) status = tb_endpoint_address(&endpoint, &address);
    const struct tb_wire_options options = {
        .chan = {.open_ms = 3000}, .ops = &wire_ops, .user = c, .frame_bytes_max = TB_MSG_FRAME_BYTES_MAX};
    if (status == TB_OK) status = tb_wire_dial(&options, &address, &c->wire);
    TB_ASSERT(status == TB_OK);
}

void world_client_step(struct client *c)
{
    if (c->wire == NULL && the->now >= c->dial_at) dial(c);
    if (!c->up || the->now < c->renew_at) return;
    c->renew_at = tb_time_add(the->now, TB_MS(600));
    struct tb_writer *w = tb_wire_begin(c->wire, TB_MSG_RENEW, 0, 16);
    if (w != NULL) tb_wire_end(c->wire);
}
