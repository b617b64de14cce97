/* world_chan.c - base/net/chan.h over the world's paths: dialling, listening, callbacks, ends. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/net/chan_bytes.h"
#include "base/net/chan_facts.h"
#include "base/net/listen.h"
#include "world_faults.h"
#include "world_machine.h"
#include "world_pipe.h"
#include "world_process.h"

#define FD_FIRST (1 << 28) /* no descriptor of this process: what the kernel is asked about it fails */

struct tb_listener {
    struct tb_listener *next;
    struct process *process;
    uint32_t life;
    struct tb_address at;
    tb_accept_fn fn;
    void *user;
};

enum chan_state { CHAN_NONE, CHAN_WAITING, CHAN_OPEN, CHAN_ENDED };
struct tb_chan {
    struct connection *c;
    struct process *process;
    uint32_t life;
    enum chan_state state;
    const struct tb_chan_ops *ops;
    void *user;
    struct tb_chan_peer peer;
    bool want_read, want_write;
    bool closing; /* on_closed comes with the next turn */
    bool dead;    /* its process is gone, or it was given up */
    enum tb_status why;
    tb_time_ns deadline;
    enum tb_status deadline_why;
    tb_chan_detached_fn detached;
    void *detached_user;
    struct pipe in; /* what comes to this end */
};

struct connection {
    struct connection *next;
    int fd;
    struct tb_address to;
    tb_time_ns at;                /* of the next step of the greeting */
    bool asked, accepted, silent; /* silent: a machine went without a word */
    struct tb_chan ends[2];       /* who dialled, who accepted */
};

static struct tb_chan *other(const struct tb_chan *c)
{
    return &c->c->ends[c == &c->c->ends[0] ? 1 : 0];
}

/* ---- who is at an end ---- */

static struct tb_identity identity_of(const struct process *p, bool tls)
{
    struct tb_identity id = {.kind = TB_IDENTITY_UNIX, .uid = 1000};
    if (!tls) return id;
    id.kind = p->kind == PROCESS_GATEWAY ? TB_IDENTITY_GATEWAY : TB_IDENTITY_WORKER;
    const struct tb_config *config = &the->sites[p->site].config;
    id.site = config->site;
    const enum tb_status status =
        tb_name_set(&id.name, p->kind == PROCESS_GATEWAY ? config->gateway.text : p->name);
    TB_ASSERT(status == TB_OK);
    return id;
}

static void end_init(struct tb_chan *e, struct process *p, const struct tb_chan_options *o)
{
    e->process = p;
    e->life = p->life;
    e->ops = o->ops;
    e->user = o->user;
    e->state = CHAN_WAITING;
    e->want_read = true;
    e->deadline = tb_time_add(the->now, TB_MS(o->open_ms != 0 ? o->open_ms : 10000));
    e->deadline_why = TB_STREAM_IDLE;
}

/* ---- dialling ---- */

enum tb_status tb_chan_dial(const struct tb_chan_options *options, const struct tb_address *to,
                            struct tb_chan **chan_out)
{
    struct connection *c = calloc(1, sizeof *c);
    TB_ASSERT(c != NULL);
    struct connection **last = &the->connections; /* in the order in which they were made */
    while (*last != NULL)
        last = &(*last)->next;
    *last = c;
    c->fd = FD_FIRST + the->next_fd++;
    c->to = *to;
    c->ends[0].c = c->ends[1].c = c;
    end_init(&c->ends[0], the->current, options);
    *chan_out = &c->ends[0];
    return TB_OK;
}

static bool address_equal(const struct tb_address *a, const struct tb_address *b)
{
    if (a->any.sa_family != b->any.sa_family) return false;
    if (a->any.sa_family == AF_INET) return a->v4.sin_port == b->v4.sin_port;
    return strcmp(a->local.sun_path, b->local.sun_path) == 0;
}

static struct tb_listener *listener_at(const struct tb_address *at)
{
    struct tb_listener *l = the->listeners;
    while (l != NULL && !(address_equal(&l->at, at) && l->process->alive && l->process->life == l->life))
        l = l->next;
    return l;
}

/* Sites are numbered in ports and paths: 7400 + site for links, 7500 + site for workers,
 * /site/N by unix socket. */
static uint32_t site_of(const struct tb_address *at)
{
    if (at->any.sa_family == AF_INET) return (uint32_t)(ntohs(at->v4.sin_port) % 100);
    return (uint32_t)(at->local.sun_path[6] - '0');
}

static void pipes_init(struct connection *c, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct pipe *p = &c->ends[i].in;
        p->from = i == 0 ? to : from;
        p->to = i == 0 ? from : to;
        p->link = from != to;
        p->receiver_life = c->ends[i].life;
    }
}

static void fail(struct tb_chan *e, enum tb_status why)
{
    if (e->closing || e->state == CHAN_NONE) return;
    e->closing = true;
    e->why = why;
}

static void arrive(struct connection *c)
{
    struct tb_chan *dialler = &c->ends[0], *acceptor = &c->ends[1];
    struct tb_listener *l = listener_at(&c->to);
    if (l == NULL) {
        fail(dialler, TB_PEER_UNREACHABLE);
        return;
    }
    if (!world_process_runs(l->process)) return; /* the kernel has it; nobody takes it yet */
    c->accepted = true;
    acceptor->process = l->process;
    acceptor->life = l->process->life;
    pipes_init(c, dialler->process->site, l->process->site);
    the->current = l->process;
    l->fn(l->user, c->fd, &c->to);
    the->current = NULL;
    if (acceptor->state == CHAN_NONE) fail(dialler, TB_STREAM_CLOSED); /* it was not taken */
    c->at = tb_time_add(the->now, world_path_delay(l->process->site, dialler->process->site));
}

enum tb_status tb_chan_accept(const struct tb_chan_options *options, int fd, struct tb_chan **chan_out)
{
    struct connection *c = the->connections;
    while (c != NULL && c->fd != fd)
        c = c->next;
    TB_ASSERT(c != NULL);
    end_init(&c->ends[1], the->current, options);
    *chan_out = &c->ends[1];
    return TB_OK;
}

static void open_end(struct tb_chan *e, bool tls)
{
    e->state = CHAN_OPEN;
    e->deadline = TB_TIME_NEVER;
    e->peer.identity = identity_of(other(e)->process, tls);
    e->peer.expires_wall_s = UINT64_C(1790000000) + 30u * 86400u;
    (void)snprintf(e->peer.address, sizeof e->peer.address, "%s", other(e)->process->name);
    the->current = e->process;
    e->ops->on_open(e, e->user, &e->peer);
    the->current = NULL;
}

/* There and back: the acceptor is open when it has answered, the dialler when the answer is
 * here. */
static bool greet(struct connection *c)
{
    struct tb_chan *dialler = &c->ends[0], *acceptor = &c->ends[1];
    const bool tls = c->to.any.sa_family == AF_INET;
    if (dialler->dead || dialler->closing || dialler->state != CHAN_WAITING) return false;
    const uint32_t from = dialler->process->site, to = site_of(&c->to);
    if (!c->asked) {
        if (!world_path_open(from, to)) return false;
        c->asked = true;
        c->at = tb_time_add(the->now, world_path_delay(from, to));
    }
    if (the->now < c->at) return false;
    if (!c->accepted) {
        if (!world_path_open(from, to)) return false;
        arrive(c);
        return c->accepted;
    }
    if (acceptor->dead || acceptor->closing) {
        fail(dialler, TB_STREAM_CLOSED);
        return true;
    }
    if (acceptor->state == CHAN_WAITING && world_process_runs(acceptor->process)) open_end(acceptor, tls);
    if (acceptor->state != CHAN_OPEN || !world_path_open(to, from) || !world_process_runs(dialler->process))
        return false;
    open_end(dialler, tls);
    return true;
}

/* ---- reading and writing ---- */

enum tb_status tb_chan_read(struct tb_chan *c, void *out, size_t cap, size_t *count_out)
{
    if (c->closing) return c->why;
    *count_out = world_pipe_ready(&c->in) ? world_pipe_read(&c->in, out, cap) : 0;
    if (*count_out > 0) return TB_OK;
    if (!world_pipe_over(&c->in)) return TB_AGAIN;
    fail(c, TB_STREAM_CLOSED);
    return TB_STREAM_CLOSED;
}

enum tb_status tb_chan_write(struct tb_chan *c, const void *bytes, size_t count, size_t *count_out)
{
    if (c->closing) return c->why;
    if (c->state != CHAN_OPEN) return TB_AGAIN;
    *count_out = count;
    if (other(c)->in.ended)
        return TB_OK; /* a broken connection: it goes nowhere, and that is heard of later */
    *count_out = world_pipe_write(&other(c)->in, bytes, count);
    return *count_out > 0 ? TB_OK : TB_AGAIN;
}

void tb_chan_want_read(struct tb_chan *c, bool wanted)
{
    c->want_read = wanted;
}

void tb_chan_want_write(struct tb_chan *c, bool wanted)
{
    c->want_write = wanted;
}

void tb_chan_close(struct tb_chan *c, enum tb_status why)
{
    if (!c->closing) other(c)->in.ended = true;
    fail(c, why);
}

void tb_chan_end(struct tb_chan *c)
{
    other(c)->in.ended = true;
}

void tb_chan_deadline(struct tb_chan *c, enum tb_status why, uint32_t ms)
{
    const tb_time_ns at = tb_time_add(the->now, TB_MS(ms));
    if (at >= c->deadline && c->deadline != 0) return;
    c->deadline = at;
    c->deadline_why = why;
}

const char *tb_chan_reason(const struct tb_chan *c)
{
    (void)c;
    return "";
}

struct tb_tls_refusal tb_chan_refusal(const struct tb_chan *c)
{
    (void)c;
    return (struct tb_tls_refusal){.fault = TB_TLS_FAULT_NONE};
}

const struct tb_chan_peer *tb_chan_peer(const struct tb_chan *c)
{
    return &c->peer;
}

int tb_chan_fd(const struct tb_chan *c)
{
    return c->c->fd;
}

bool tb_chan_connected(const struct tb_chan *c)
{
    return c->state == CHAN_OPEN;
}

/* A dial that nobody hears in this world ends by its deadline. */
enum tb_chan_reach tb_chan_reach(const struct tb_chan *c)
{
    (void)c;
    return TB_CHAN_HEARD;
}

bool tb_chan_kernel_sends(const struct tb_chan *c)
{
    (void)c;
    return false;
}

bool tb_chan_is_trusted(const struct tb_chan *c, const struct tb_tls *tls)
{
    (void)c, (void)tls;
    return true;
}

bool tb_chan_is_revoked(const struct tb_chan *c, const struct tb_tls *tls)
{
    (void)c, (void)tls;
    return false;
}

bool tb_chan_own_records(const struct tb_chan *c)
{
    (void)c;
    return false;
}

uint64_t tb_chan_records(const struct tb_chan *c)
{
    (void)c;
    return 0;
}

void tb_chan_detach(struct tb_chan *c, tb_chan_detached_fn then, void *user)
{
    c->detached = then;
    c->detached_user = user;
}

enum tb_status tb_chan_attach(struct tb_chan *c, uv_loop_t *loop, const struct tb_chan_ops *ops, void *user)
{
    (void)loop;
    c->ops = ops;
    c->user = user;
    c->detached = NULL;
    c->want_read = true;
    c->want_write = false;
    c->deadline = TB_TIME_NEVER;
    return TB_OK;
}

void tb_chan_discard(struct tb_chan *c)
{
    other(c)->in.ended = true;
    c->dead = true;
    c->state = CHAN_ENDED;
}

/* ---- listening ---- */

enum tb_status tb_listen(uv_loop_t *loop, const struct tb_address *at, unsigned unix_mode, tb_accept_fn fn,
                         void *user, struct tb_listener **listener_out)
{
    (void)loop, (void)unix_mode;
    struct tb_listener *l = calloc(1, sizeof *l);
    TB_ASSERT(l != NULL);
    *l = (struct tb_listener){the->listeners, the->current, the->current->life, *at, fn, user};
    the->listeners = l;
    *listener_out = l;
    return TB_OK;
}

struct tb_address tb_listener_address(const struct tb_listener *l)
{
    return l->at;
}

void tb_listener_close(struct tb_listener *l)
{
    struct tb_listener **at = &the->listeners;
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    free(l);
}

/* ---- callbacks ---- */

static void tell_closed(struct tb_chan *e)
{
    e->state = CHAN_ENDED;
    e->dead = true;
    other(e)->in.ended = true;
    world_pipe_drop(&e->in, true);
    e->ops->on_closed(e, e->user, e->why);
}

static bool end_run(struct tb_chan *e)
{
    bool did = false;
    if (e->detached != NULL && !e->closing) {
        const tb_chan_detached_fn then = e->detached;
        e->detached = NULL;
        e->ops = NULL; /* until it is attached */
        then(e, e->detached_user);
        return true;
    }
    if (e->ops == NULL) return false;
    if (!e->closing && the->now >= e->deadline) fail(e, e->deadline_why);
    if (e->closing) {
        tell_closed(e);
        return true;
    }
    if (e->state != CHAN_OPEN) return false;
    if (e->want_read && (world_pipe_ready(&e->in) || world_pipe_over(&e->in))) {
        e->ops->on_readable(e, e->user);
        did = true;
    }
    if (!e->closing && e->ops != NULL && e->detached == NULL && e->want_write &&
        world_pipe_room(&other(e)->in) > 0) {
        e->ops->on_writable(e, e->user);
        did = true;
    }
    return did;
}

/* Bytes for an end that is gone are answered by a reset. */
static void bounce(struct tb_chan *e)
{
    struct tb_chan *gone = other(e);
    if (!gone->dead || e->closing || e->state == CHAN_NONE || !world_pipe_ready(&gone->in)) return;
    world_pipe_drop(&gone->in, true);
    if (world_path_open(e->in.from, e->in.to)) fail(e, TB_STREAM_IO);
}

static bool connection_run(struct connection *c)
{
    bool did = false;
    struct tb_chan *dialler = &c->ends[0];
    if (!dialler->dead && dialler->state == CHAN_WAITING && world_process_runs(dialler->process))
        did |= greet(c);
    for (uint32_t i = 0; i < 2; i++) {
        struct tb_chan *e = &c->ends[i];
        if (e->dead || e->state == CHAN_NONE || !world_process_runs(e->process)) continue;
        the->current = e->process;
        bounce(e);
        did |= end_run(e);
        the->current = NULL;
    }
    return did;
}

/* Once round, from another one each time, so that none is always the first. */
bool world_chan_run(void)
{
    uint32_t count = 0, at = 0;
    bool did = false;
    for (const struct connection *c = the->connections; c != NULL; c = c->next)
        count++;
    if (count == 0) return false;
    const uint32_t first = (uint32_t)world_random(count);
    for (struct connection *c = the->connections; c != NULL; c = c->next)
        if (at++ >= first) did |= connection_run(c);
    at = 0;
    for (struct connection *c = the->connections; c != NULL && at < first; c = c->next, at++)
        did |= connection_run(c);
    return did;
}

/* ---- ends that nobody asked for ---- */

void world_chan_process_ended(struct process *p, uint32_t life, bool machine)
{
    for (struct connection *c = the->connections; c != NULL; c = c->next) {
        for (uint32_t i = 0; i < 2; i++) {
            struct tb_chan *e = &c->ends[i];
            if (e->process != p || e->life != life || e->dead) continue;
            e->dead = true;
            e->state = CHAN_ENDED;
            e->ops = NULL;
            c->silent |= machine && other(e)->process != NULL && other(e)->process->site != p->site;
            if (!c->silent) other(e)->in.ended = true;
        }
    }
    for (struct tb_listener **at = &the->listeners; *at != NULL;) {
        struct tb_listener *l = *at;
        if (l->process != p) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        free(l);
    }
}

static bool joins(const struct connection *c, uint32_t a, uint32_t b)
{
    if (c->ends[0].dead || c->ends[1].dead || c->ends[0].state != CHAN_OPEN || c->ends[1].state != CHAN_OPEN)
        return false;
    const uint32_t x = c->ends[0].process->site, y = c->ends[1].process->site;
    return x != y && ((x == a && y == b) || (x == b && y == a));
}

/* A connection breaks: what had not arrived is lost, at either end what had arrived may be. */
static void break_one(struct connection *c)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct tb_chan *e = &c->ends[i];
        const bool arrived_too = world_draw(FAULT_LOSS, 2) == 1;
        world_pipe_drop(&e->in, arrived_too);
        e->in.ended = true;
        e->in.last_at = the->now;
    }
}

void world_connections_break(uint32_t a, uint32_t b, bool all)
{
    uint32_t count = 0;
    for (const struct connection *c = the->connections; c != NULL; c = c->next)
        count += joins(c, a, b);
    if (count == 0) return;
    uint64_t left = world_draw(FAULT_LOSS, count);
    for (struct connection *c = the->connections; c != NULL; c = c->next) {
        if (!joins(c, a, b)) continue;
        if (all || left-- == 0) break_one(c);
    }
}

uint32_t world_chan_count(const struct process *p)
{
    uint32_t count = 0;
    for (const struct connection *c = the->connections; c != NULL; c = c->next) {
        for (int i = 0; i < 2; i++) {
            const struct tb_chan *e = &c->ends[i];
            count += e->process == p && e->life == p->life && e->state != CHAN_NONE && !e->dead;
        }
    }
    return count;
}

static void connection_free(struct connection *c)
{
    world_pipe_drop(&c->ends[0].in, true);
    world_pipe_drop(&c->ends[1].in, true);
    free(c);
}

void world_connections_sweep(void)
{
    for (struct connection **at = &the->connections; *at != NULL;) {
        struct connection *c = *at;
        const bool over = c->ends[0].dead && (c->ends[1].dead || c->ends[1].state == CHAN_NONE);
        if (!over) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        connection_free(c);
    }
}

void world_connections_free(void)
{
    while (the->connections != NULL) {
        struct connection *c = the->connections;
        the->connections = c->next;
        connection_free(c);
    }
    while (the->listeners != NULL)
        tb_listener_close(the->listeners);
}
