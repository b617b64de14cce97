#include "intra/verbs/nic.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "intra/fabric/fabric_queue.h"
#include "intra/verbs/nic_facts.h"

#define BACKLOG      128
#define LOOK_AT_ONCE 16 /* completions of one look */
#define DRAIN_MS     1000

/* ---- addresses ---- */

static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool tb_verbs_address_from(const struct sockaddr *address, struct tb_rail_address *rail_out)
{
    if (address->sa_family == AF_INET) {
        memcpy(rail_out->bytes, mapped, sizeof mapped);
        memcpy(rail_out->bytes + 12, &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
        return true;
    }
    if (address->sa_family != AF_INET6) return false;
    const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    if (IN6_IS_ADDR_LINKLOCAL(six)) return false; /* says nothing to another machine */
    memcpy(rail_out->bytes, six, sizeof rail_out->bytes);
    return true;
}

bool tb_verbs_address_to(const struct tb_rail_address *rail, uint16_t port, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof *out);
    if (memcmp(rail->bytes, mapped, sizeof mapped) == 0) {
        struct sockaddr_in *four = (struct sockaddr_in *)out;
        four->sin_family = AF_INET;
        four->sin_port = htons(port);
        memcpy(&four->sin_addr, rail->bytes + 12, 4);
        return true;
    }
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)out;
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(port);
    memcpy(&six->sin6_addr, rail->bytes, sizeof rail->bytes);
    return true;
}

static uint8_t prefix_of(const struct sockaddr *mask)
{
    const uint8_t *bytes;
    uint32_t count, bits = 0;
    if (mask == NULL) return 0;
    if (mask->sa_family == AF_INET) {
        bytes = (const uint8_t *)&((const struct sockaddr_in *)(const void *)mask)->sin_addr;
        count = 4;
        bits = 96; /* of the mapped address */
    } else {
        bytes = (const uint8_t *)&((const struct sockaddr_in6 *)(const void *)mask)->sin6_addr;
        count = 16;
    }
    for (uint32_t i = 0; i < count; i++)
        bits += (uint32_t)__builtin_popcount(bytes[i]);
    return (uint8_t)bits;
}

/* ---- completions ---- */

static void look_more(struct tb_verbs_queue *q, bool wanted);
static void settle(struct tb_verbs_queue *q);

/* Takes what has completed; how many. */
static uint32_t drain_some(struct tb_verbs_queue *q)
{
    struct ibv_wc wcs[LOOK_AT_ONCE];
    const int got = ibv_poll_cq(q->cq, LOOK_AT_ONCE, wcs);
    for (int i = 0; i < got; i++) {
        TB_ASSERT(q->posted > 0);
        q->posted--;
        if (wcs[i].status != IBV_WC_SUCCESS) q->failed = true;
        if (!q->ending) q->ops->on_completion(q, &wcs[i]);
    }
    if (q->ending && q->posted == 0) settle(q);
    return got > 0 ? (uint32_t)got : 0;
}

/* Looks once; then either goes on looking or asks for an event. One more look after that finds work
 * that completed between the last look and the request. */
static void look(struct tb_verbs_queue *q)
{
    q->v->looks++;
    const uint32_t count = drain_some(q);
    const bool again = count == LOOK_AT_ONCE || tb_spin_again(&q->spin, count, q->posted, tb_clock_now());
    look_more(q, again);
    if (again || ibv_req_notify_cq(q->cq, 0) != 0) return;
    if (drain_some(q) > 0) look_more(q, true);
}

static void on_look(uv_idle_t *idle)
{
    struct tb_verbs *v = idle->data;
    struct tb_verbs_queue *q = LIST_FIRST(&v->queues);
    while (q != NULL) {
        struct tb_verbs_queue *next = LIST_NEXT(q, link); /* none leaves the list in here */
        if (q->looking) look(q);
        q = next;
    }
}

static void look_more(struct tb_verbs_queue *q, bool wanted)
{
    struct tb_verbs *v = q->v;
    if (q->looking == wanted) return;
    q->looking = wanted;
    TB_ASSERT(wanted || v->looking > 0);
    v->looking += wanted ? 1 : UINT32_MAX;
    if (v->looking == 1 && wanted) (void)uv_idle_start(&v->look, on_look);
    if (v->looking == 0) (void)uv_idle_stop(&v->look);
}

static void on_completions(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    struct tb_verbs_nic *nic = poll->data;
    struct ibv_cq *cq;
    void *user;
    while (ibv_get_cq_event(nic->channel, &cq, &user) == 0) {
        ibv_ack_cq_events(cq, 1);
        look_more(user, true); /* looked at by on_look, in this turn of the loop */
    }
}

/* ---- queues ---- */

static void queue_attr(struct ibv_qp_init_attr *attr, struct ibv_cq *cq, uint32_t reads_max)
{
    *attr = (struct ibv_qp_init_attr){.send_cq = cq,
                                      .recv_cq = cq,
                                      .cap = {.max_send_wr = reads_max > 0 ? reads_max : 1,
                                              .max_recv_wr = 1,
                                              .max_send_sge = 1,
                                              .max_recv_sge = 1},
                                      .qp_type = IBV_QPT_RC,
                                      .sq_sig_all = 1};
}

void tb_verbs_queue_init(struct tb_verbs_queue *q, struct tb_verbs *v, const struct tb_verbs_queue_ops *ops)
{
    *q = (struct tb_verbs_queue){.v = v, .ops = ops};
    (void)uv_timer_init(&v->fabric->loop, &q->drain);
    q->drain.data = q;
}

enum tb_status tb_verbs_queue_open(struct tb_verbs_queue *q, struct tb_verbs_nic *nic, struct rdma_cm_id *id,
                                   struct ibv_pd *domain, uint32_t reads_max)
{
    TB_ASSERT(q->nic == NULL && q->cq == NULL && !q->ending);
    TB_ASSERT(!nic->dead && domain != NULL);
    struct ibv_qp_init_attr attr;
    q->posted = 0;
    q->failed = q->looking = false;
    tb_spin_init(&q->spin);
    q->cq = ibv_create_cq(nic->context, (int)reads_max + 2, q, nic->channel, 0);
    if (q->cq == NULL) return TB_SITE_IO;
    queue_attr(&attr, q->cq, reads_max);
    if (rdma_create_qp(id, domain, &attr) != 0) goto undo_cq;
    if (ibv_req_notify_cq(q->cq, 0) != 0) goto undo_qp;
    q->nic = nic;
    q->id = id;
    LIST_INSERT_HEAD(&q->v->queues, q, link);
    return TB_OK;

undo_qp:
    rdma_destroy_qp(id);
undo_cq:
    (void)ibv_destroy_cq(q->cq);
    q->cq = NULL;
    return TB_SITE_IO;
}

void tb_verbs_queue_posted(struct tb_verbs_queue *q, uint32_t count)
{
    TB_ASSERT(q->nic != NULL && !q->settled);
    q->posted += count;
}

void tb_verbs_queue_fail(struct tb_verbs_queue *q)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    q->failed = true;
    if (q->nic == NULL) return;
    (void)ibv_modify_qp(q->id->qp, &attr, IBV_QP_STATE); /* a device that is gone refuses it */
    look_more(q, q->posted > 0);
}

void tb_verbs_queue_abandon(struct tb_verbs_queue *q)
{
    if (q->nic == NULL) return;
    TB_ASSERT(q->posted == 0 || q->settled); /* else a NIC may still write to memory of its owner */
    look_more(q, false);
    LIST_REMOVE(q, link);
    rdma_destroy_qp(q->id);
    const int error = ibv_destroy_cq(q->cq);
    TB_ASSERT(error == 0 || error == EIO);
    (void)rdma_destroy_id(q->id);
    q->cq = NULL;
    q->id = NULL;
    q->nic = NULL;
    q->posted = 0;
}

static void on_drain_closed(uv_handle_t *handle)
{
    struct tb_verbs_queue *q = handle->data;
    TB_ASSERT(q->ending && q->settled);
    tb_verbs_queue_abandon(q);
    q->ops->on_ended(q);
}

static void settle(struct tb_verbs_queue *q)
{
    TB_ASSERT(q->ending);
    if (q->settled) return;
    q->settled = true;
    uv_close((uv_handle_t *)&q->drain, on_drain_closed);
}

static void on_drain_timeout(uv_timer_t *timer)
{
    settle(timer->data);
}

void tb_verbs_queue_end(struct tb_verbs_queue *q)
{
    if (q->ending) return;
    q->ending = true;
    tb_verbs_queue_fail(q);
    if (q->posted > 0 && !q->nic->dead)
        (void)uv_timer_start(&q->drain, on_drain_timeout, DRAIN_MS, 0);
    else
        settle(q);
}

/* ---- what devices tell ---- */

/* port 0: all of the device's. */
static void rails_down(struct tb_verbs_nic *nic, uint32_t port, bool down)
{
    struct tb_rails *r = &nic->v->rails;
    for (uint32_t i = 0; i < r->count; i++) {
        struct tb_rail *rail = &r->rails[i];
        if (rail->nic != (uint32_t)(nic - nic->v->nics) || (port != 0 && rail->port != port)) continue;
        r->ups += rail->down && !down && !nic->dead;
        rail->down = down || nic->dead;
    }
    tb_fabric_wake_at(nic->v->fabric, tb_clock_now()); /* hops without a path look again */
}

static void die(struct tb_verbs_nic *nic)
{
    TB_ASSERT(!nic->dead);
    struct tb_verbs *v = nic->v;
    nic->dead = true;
    tb_pinned_forsake(&v->pinned, nic->context);
    (void)uv_poll_stop(&nic->completions);
    for (struct tb_verbs_queue *q = LIST_FIRST(&v->queues), *next; q != NULL; q = next) {
        next = LIST_NEXT(q, link);
        if (q->nic != nic) continue;
        if (q->ending)
            settle(q);
        else
            q->ops->on_dead(q);
    }
}

void tb_verbs_device_event(struct tb_verbs_nic *nic, enum ibv_event_type event, uint32_t port)
{
    const char *what = ibv_event_type_str(event);
    const bool down = event == IBV_EVENT_PORT_ERR, up = event == IBV_EVENT_PORT_ACTIVE;
    const bool fatal = event == IBV_EVENT_DEVICE_FATAL;
    if (!down && !up && !fatal) return; /* of one queue: its work requests tell */
    tb_log(up ? TB_LOG_INFO : TB_LOG_WARN, "verbs.device", "nic=%s port=%u what=\"%s\" action=%s",
           ibv_get_device_name(nic->context->device), port, what,
           up     ? "used_again"
           : down ? "rests_until_active"
                  : "not_used_until_restart");
    if (fatal && !nic->dead) die(nic);
    rails_down(nic, fatal ? 0 : port, !up);
}

static void on_device(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    struct tb_verbs_nic *nic = poll->data;
    struct ibv_async_event event;
    while (ibv_get_async_event(nic->watch, &event) == 0) {
        const bool of_port =
            event.event_type == IBV_EVENT_PORT_ERR || event.event_type == IBV_EVENT_PORT_ACTIVE;
        const uint32_t port = of_port ? (uint32_t)event.element.port_num : 0;
        ibv_ack_async_event(&event);
        tb_verbs_device_event(nic, event.event_type, port);
    }
}

struct tb_verbs_nic *tb_verbs_nic_of(struct tb_verbs *v, const struct ibv_context *context)
{
    for (uint32_t i = 0; i < v->nic_count; i++)
        if (v->nics[i].context == context) return v->nics[i].dead ? NULL : &v->nics[i];
    return NULL;
}

static bool unblock(int fd)
{
    const int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

static bool follow(struct tb_verbs *v, uv_poll_t *poll, int fd, uv_poll_cb fn)
{
    return unblock(fd) && uv_poll_init(&v->fabric->loop, poll, fd) == 0 &&
           uv_poll_start(poll, UV_READABLE, fn) == 0;
}

/* False: it stays out; iWARP too, whose READs want a target that others may write. */
static bool nic_add(struct tb_verbs *v, struct ibv_context *context)
{
    struct tb_verbs_nic *nic = &v->nics[v->nic_count];
    if (v->nic_count == TB_VERBS_NICS_MAX || context->device->node_type != IBV_NODE_CA) return false;
    *nic = (struct tb_verbs_nic){.v = v, .context = context};
    if (ibv_query_device(context, &nic->attr) != 0) return false;
    nic->pd = ibv_alloc_pd(context);
    if (nic->pd == NULL) return false;
    nic->channel = ibv_create_comp_channel(context);
    if (nic->channel == NULL) goto undo_pd;
    nic->completions.data = nic->events.data = nic;
    if (!follow(v, &nic->completions, nic->channel->fd, on_completions)) goto undo_channel;
    TB_ASSERT(v->nic_count < TB_VERBS_NICS_MAX);
    v->nic_count++;
    /* librdmacm's context is the process's, and what it tells one fabric no other hears: each
     * watches by a context of its own. */
    nic->watch = ibv_open_device(context->device);
    if (nic->watch == NULL || !follow(v, &nic->events, nic->watch->async_fd, on_device))
        nic->dead = true; /* closed with the rest */
    return !nic->dead;

undo_channel:
    (void)ibv_destroy_comp_channel(nic->channel);
undo_pd:
    (void)ibv_dealloc_pd(nic->pd);
    return false;
}

/* ---- rails ---- */

/* librdmacm says which device an address belongs to; most belong to none. */
static void rail_try(struct tb_verbs *v, const struct ifaddrs *at)
{
    struct tb_nic_facts facts;
    struct tb_rail rail = {.prefix_bits = prefix_of(at->ifa_netmask)};
    struct rdma_cm_id *id = NULL;
    if (v->rails.count == TB_RAILS_MAX || !tb_verbs_address_from(at->ifa_addr, &rail.address)) return;
    if (rdma_create_id(v->channel, &id, NULL, RDMA_PS_TCP) != 0) return;
    if (rdma_bind_addr(id, at->ifa_addr) == 0 && id->verbs != NULL) {
        struct tb_verbs_nic *nic = tb_verbs_nic_of(v, id->verbs);
        if (nic != NULL || nic_add(v, id->verbs)) {
            if (nic == NULL) nic = &v->nics[v->nic_count - 1];
            rail.nic = (uint32_t)(nic - v->nics);
            rail.port = id->port_num;
            /* Of its own port: a NIC's ports need not be as fast as each other. */
            tb_nic_facts_read(TB_NIC_SYSFS, ibv_get_device_name(id->verbs->device), rail.port, &facts);
            rail.bytes_per_s = facts.bytes_per_s;
            rail.spot = facts.spot;
            TB_ASSERT(rail.nic < v->nic_count);
            v->rails.rails[v->rails.count++] = rail;
        }
    }
    (void)rdma_destroy_id(id);
}

static void rails_find(struct tb_verbs *v)
{
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0) return;
    for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next)
        if (at->ifa_addr != NULL && (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_LOOPBACK) == 0)
            rail_try(v, at);
    freeifaddrs(all);
}

/* ---- what rdma_cm tells ---- */

struct knock {
    uint8_t hello[TB_VERBS_HELLO];
    uint32_t bytes, reads;
};

/* Copied out of the event: it has to be given back before anything is destroyed. */
static struct knock knock_of(const struct rdma_cm_event *event)
{
    struct knock k = {.bytes = event->param.conn.private_data_len,
                      .reads = event->param.conn.responder_resources};
    if (k.bytes > sizeof k.hello) k.bytes = sizeof k.hello; /* rdma_cm pads what was sent */
    if (event->param.conn.private_data == NULL) k.bytes = 0;
    if (k.bytes > 0) memcpy(k.hello, event->param.conn.private_data, k.bytes);
    return k;
}

static void on_cm(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    struct tb_verbs *v = poll->data;
    struct rdma_cm_event *event;
    while (rdma_get_cm_event(v->channel, &event) == 0) {
        struct rdma_cm_id *id = event->id;
        struct tb_verbs_cm *cm = id->context;
        const enum rdma_cm_event_type type = event->event;
        const int why = event->status;
        const bool knocks = type == RDMA_CM_EVENT_CONNECT_REQUEST;
        const struct knock k = knocks ? knock_of(event) : (struct knock){0};
        (void)rdma_ack_cm_event(event);
        if (knocks)
            tb_verbs_guest_knocks(v, id, k.hello, k.bytes, k.reads);
        else if (cm != NULL)
            cm->on_event(cm, type, why);
    }
}

/* ---- beginning and end ---- */

static bool listen_all(struct tb_verbs *v)
{
    struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    struct sockaddr_in any4 = {.sin_family = AF_INET};
    if (rdma_create_id(v->channel, &v->listener, NULL, RDMA_PS_TCP) != 0) return false;
    if (rdma_bind_addr(v->listener, (struct sockaddr *)&any) != 0 &&
        rdma_bind_addr(v->listener, (struct sockaddr *)&any4) != 0)
        return false;
    if (rdma_listen(v->listener, BACKLOG) != 0) return false;
    v->port = ntohs(rdma_get_src_port(v->listener));
    return true;
}

static void say_open(const struct tb_verbs *v)
{
    for (uint32_t i = 0; i < v->rails.count; i++) {
        char address[INET6_ADDRSTRLEN];
        const struct tb_rail *rail = &v->rails.rails[i];
        const struct tb_verbs_nic *nic = &v->nics[rail->nic];
        (void)inet_ntop(AF_INET6, rail->address.bytes, address, sizeof address);
        tb_log(TB_LOG_INFO, "verbs.rail",
               "nic=%s address=%s bytes_per_s=%llu node=%d root_port=%s encrypted=no",
               ibv_get_device_name(nic->context->device), address, (unsigned long long)rail->bytes_per_s,
               rail->spot.node, rail->spot.root_port[0] != '\0' ? rail->spot.root_port : "none");
    }
}

static void nothing_closed(uv_handle_t *handle)
{
    (void)handle;
}

void tb_verbs_close(struct tb_verbs *v)
{
    if (v == NULL) return;
    TB_ASSERT(LIST_EMPTY(&v->queues) && LIST_EMPTY(&v->guests));
    TB_ASSERT(v->looking == 0);
    for (uint32_t i = 0; i < v->nic_count; i++) {
        uv_close((uv_handle_t *)&v->nics[i].completions, nothing_closed);
        if (v->nics[i].events.loop != NULL) uv_close((uv_handle_t *)&v->nics[i].events, nothing_closed);
    }
    if (v->cm_poll.loop != NULL) uv_close((uv_handle_t *)&v->cm_poll, nothing_closed);
    uv_close((uv_handle_t *)&v->look, nothing_closed);
}

void tb_verbs_free(struct tb_verbs *v)
{
    if (v == NULL) return;
    if (v->listener != NULL) (void)rdma_destroy_id(v->listener);
    tb_pinned_fini(&v->pinned); /* before the domains that it registered in */
    for (uint32_t i = 0; i < v->nic_count; i++) {
        (void)ibv_destroy_comp_channel(v->nics[i].channel);
        (void)ibv_dealloc_pd(v->nics[i].pd);
        if (v->nics[i].watch != NULL) (void)ibv_close_device(v->nics[i].watch);
    }
    if (v->channel != NULL) rdma_destroy_event_channel(v->channel);
    tb_free(v);
}

void tb_verbs_memory_stays(struct tb_verbs *v, const void *bytes, uint64_t count)
{
    if (v != NULL) tb_pinned_stays(&v->pinned, bytes, count);
}

void tb_verbs_memory_goes(struct tb_verbs *v, const void *bytes)
{
    if (v != NULL) tb_pinned_goes(&v->pinned, bytes);
}

tb_time_ns tb_verbs_registering(struct tb_verbs *v)
{
    struct tb_pinned_counts counts;
    tb_pinned_counts(&v->pinned, &counts);
    return counts.making;
}

/* Turns the loop, which does not run yet, so that what was opened is closed. */
static const char *give_up(struct tb_verbs *v, const char *why)
{
    tb_verbs_close(v);
    (void)uv_run(&v->fabric->loop, UV_RUN_NOWAIT);
    tb_verbs_free(v);
    return why;
}

const char *tb_verbs_open(struct tb_fabric *f, struct tb_verbs **verbs_out)
{
    *verbs_out = NULL;
    if (!tb_nic_facts_any(TB_NIC_SYSFS)) return "no RDMA device on this machine";
    struct tb_verbs *v = tb_calloc(1, sizeof *v);
    if (v == NULL) return "no memory";
    v->fabric = f;
    v->look.data = v->cm_poll.data = v;
    LIST_INIT(&v->queues);
    LIST_INIT(&v->guests);
    tb_pinned_init(&v->pinned);
    tb_random_bytes(&v->rails.draw, sizeof v->rails.draw);
    (void)uv_idle_init(&f->loop, &v->look);
    (void)ibv_fork_init(); /* does nothing where the kernel copies pinned pages at fork (5.12) */
    v->channel = rdma_create_event_channel();
    if (v->channel == NULL)
        return give_up(v, "rdma_cm cannot be opened (/dev/infiniband/rdma_cm: module rdma_ucm)");
    if (!follow(v, &v->cm_poll, v->channel->fd, on_cm)) return give_up(v, "rdma_cm cannot be followed");
    rails_find(v);
    if (v->rails.count == 0) return give_up(v, "no address of this machine belongs to an RDMA device");
    if (!listen_all(v)) return give_up(v, "rdma_cm does not listen");
    say_open(v);
    *verbs_out = v;
    return NULL;
}
