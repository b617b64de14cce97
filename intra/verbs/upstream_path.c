/* upstream_path.c - from our NIC to the source's: chosen, resolved, our memory registered,
 * connected; and what is done when one fails or breaks.
 *
 * A path that does not connect rests, and the next is tried; when there is none, everything goes
 * over the connection until one has rested. */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "intra/fabric/fabric_queue.h"
#include "intra/transport/transport_words.h"
#include "intra/verbs/nic_facts.h"
#include "intra/verbs/upstream_inside.h"

#define RESOLVE_MS  2000
#define RETRIES     7
#define ACK_TIMEOUT 16 /* 4.096 us << 16 = 0.27 s; a path that is silent for eight of them has failed */

/* ---- what was not reached ---- */

void tb_verbs_path_leave(struct tb_verbs_upstream *u)
{
    TB_ASSERT(!u->on_path || u->v->rails.rails[u->path.ours].load > 0);
    if (u->on_path) u->v->rails.rails[u->path.ours].load--;
    u->on_path = false;
}

struct path_text {
    char ours[INET6_ADDRSTRLEN], theirs[INET6_ADDRSTRLEN];
};

static struct path_text path_text(const struct tb_verbs_upstream *u)
{
    struct path_text t = {"", ""};
    (void)inet_ntop(AF_INET6, tb_verbs_our_rail(u)->address.bytes, t.ours, sizeof t.ours);
    (void)inet_ntop(AF_INET6, u->theirs[u->path.theirs].address.bytes, t.theirs, sizeof t.theirs);
    return t;
}

static void path_rests(struct tb_verbs_upstream *u)
{
    (void)tb_rails_failed(&u->v->rails, &tb_verbs_our_rail(u)->address, &u->theirs[u->path.theirs].address,
                          tb_clock_now());
}

void tb_verbs_targets_free(struct tb_verbs_upstream *u)
{
    for (uint32_t i = 0; i < u->target_count; i++) {
        tb_pinned_release(&u->v->pinned, u->targets[i].region);
        u->targets[i].region = NULL;
    }
    tb_pinned_release(&u->v->pinned, u->bounce_region);
    u->bounce_region = NULL;
}

void tb_verbs_become_stream(struct tb_verbs_upstream *u, enum tb_transport_why why)
{
    TB_ASSERT(!u->on_path && u->id == NULL);
    u->state = TB_VERBS_STREAMING;
    u->base.transport = TB_TRANSPORT_TCP;
    u->base.why = why;
    if (u->asked_for) {
        tb_pipe_lose(&u->stream, TB_PEER_UNREACHABLE);
        return;
    }
    if (u->told) return; /* it did so before */
    u->told = true;
    u->stream.events->on_open(u->stream.events_user);
}

static void go_without(struct tb_verbs_upstream *u, tb_time_ns again)
{
    if (u->may_ask_again) tb_rails_wait(&u->v->rails, &u->turn, again, tb_clock_now());
    tb_fabric_wake_at(u->v->fabric, u->turn.at);
    tb_verbs_become_stream(u, TB_WHY_RDMA_FAILED);
}

/* The door is asked, as the secret may be spent. P7: it may name other addresses without end. */
static void path_next(struct tb_verbs_upstream *u)
{
    if (!u->may_ask_again)
        tb_verbs_path_try(u);
    else if (tb_rails_more(&u->turn))
        tb_verbs_path_ask(u);
    else
        go_without(u, TB_TIME_NEVER);
}

void tb_verbs_path_failed(struct tb_verbs_upstream *u, const char *what)
{
    TB_ASSERT(u->on_path && !u->job_out); /* the pool has none of its memory */
    const struct path_text t = path_text(u);
    tb_log(TB_LOG_WARN, "verbs.path_failed", "from=%s to=%s reason=\"%s\" action=rests", t.ours, t.theirs,
           what);
    path_rests(u);
    tb_verbs_path_leave(u);
    tb_verbs_queue_abandon(&u->queue);
    if (u->id != NULL) (void)rdma_destroy_id(u->id);
    u->id = NULL;
    tb_verbs_targets_free(u);
    u->stale += u->asked - u->answered;
    TB_ASSERT(u->queue.nic == NULL && !u->on_path);
    path_next(u);
}

void tb_verbs_break_off(struct tb_verbs_upstream *u, const char *what)
{
    if (u->broken || u->closing) return;
    u->broken = true;
    u->broken_at = tb_clock_now();
    u->broken_why = what;
    tb_verbs_queue_fail(&u->queue);
    tb_fabric_wake_at(u->v->fabric, tb_time_add(u->broken_at, TB_VERBS_LAST_WORD));
}

void tb_verbs_path_blame(struct tb_verbs_upstream *u)
{
    TB_ASSERT(u->broken && u->broken_why != NULL);
    const struct path_text t = path_text(u);
    tb_log(TB_LOG_WARN, "verbs.broken", "from=%s to=%s reason=\"%s\" action=hop_ends", t.ours, t.theirs,
           u->broken_why);
    path_rests(u);
    tb_pipe_lose(&u->stream, TB_STREAM_IO);
}

/* ---- our memory ---- */

static enum tb_status take(struct tb_verbs_upstream *u, struct tb_region_options options,
                           struct tb_pinned_region **region_out)
{
    TB_ASSERT(u->domain != NULL && *region_out == NULL);
    struct tb_pinned_region *region;
    options.domain = u->domain;
    options.target = true;
    const enum tb_status status = tb_pinned_take(&u->v->pinned, &options, &region);
    if (status == TB_OK) *region_out = region;
    return status;
}

/* Of a device's memory, by its dma-buf. Where that is refused READs land in memory of the host, as
 * of a place that has none. */
static void take_far(struct tb_verbs_upstream *u, struct tb_verbs_target *target)
{
    const struct tb_place_far *far = target->place->far;
    const struct tb_region_options options = {
        .count = far->bytes, .dmabuf = far->dmabuf, .dmabuf_offset = far->dmabuf_offset};
    if (far->bytes == 0 || far->dmabuf < 0 || take(u, options, &target->region) == TB_OK) return;
    tb_log(TB_LOG_WARN, "verbs.bounced", "nic=%s bytes=%llu error=\"%s\" action=lands_in_host_memory",
           ibv_get_device_name(u->queue.nic->context->device), (unsigned long long)far->bytes,
           strerror(errno));
}

static enum tb_status take_target(struct tb_verbs_upstream *u, struct tb_verbs_target *target)
{
    const struct tb_place *p = target->place;
    /* Pages that its owner gives back would stay pinned, and be written to; those of chunks that
     * never come would be made. */
    const bool keeps = p->owner != NULL && (p->owner->keep != NULL || p->owner->wanted != NULL);
    if (keeps || p->manifest->bytes == 0) return TB_OK;
    if (p->far != NULL) {
        take_far(u, target);
        return TB_OK;
    }
    const struct tb_region_options options = {.bytes = p->bytes, .count = p->manifest->bytes, .dmabuf = -1};
    return take(u, options, &target->region);
}

/* On the pool: pinning takes a second for some 10 GB. Memory that stays was pinned by the first
 * hop, or for an earlier path that failed. */
static void register_run(struct tb_pool_job *job, uint32_t thread)
{
    (void)thread;
    struct tb_verbs_upstream *u =
        (struct tb_verbs_upstream *)((char *)job - offsetof(struct tb_verbs_upstream, registering));
    const struct tb_region_options bounce = {
        .bytes = u->bounce, .count = TB_VERBS_BOUNCES * TB_VERBS_BOUNCE_BYTES, .dmabuf = -1};
    u->job_status = take(u, bounce, &u->bounce_region);
    for (uint32_t i = 0; i < u->target_count && u->job_status == TB_OK; i++)
        u->job_status = take_target(u, &u->targets[i]);
    u->job_error = errno;
    tb_fabric_post(u->v->fabric, &u->registered);
}

static void connect_now(struct tb_verbs_upstream *u)
{
    TB_ASSERT(u->state == TB_VERBS_REGISTERING && u->bounce_region != NULL);
    uint8_t hello[TB_VERBS_HELLO];
    const uint64_t magic = TB_VERBS_MAGIC;
    const struct ibv_device_attr *attr = &u->queue.nic->attr;
    const uint32_t most = (uint32_t)attr->max_qp_init_rd_atom;
    memcpy(hello, &magic, sizeof magic);
    memcpy(hello + sizeof magic, u->secret.bytes, sizeof u->secret.bytes);
    struct rdma_conn_param param = {.private_data = hello,
                                    .private_data_len = sizeof hello,
                                    .initiator_depth =
                                        (uint8_t)(most < TB_VERBS_RD_ATOMIC ? most : TB_VERBS_RD_ATOMIC),
                                    .retry_count = RETRIES,
                                    .rnr_retry_count = RETRIES};
    u->state = TB_VERBS_CONNECTING;
    u->connect_until = tb_time_add(tb_clock_now(), TB_MS(u->open_ms));
    tb_fabric_wake_at(u->v->fabric, u->connect_until);
    if (rdma_connect(u->queue.id, &param) != 0) tb_verbs_path_failed(u, strerror(errno));
}

static void on_registered(struct tb_fabric_job *job)
{
    struct tb_verbs_upstream *u =
        (struct tb_verbs_upstream *)((char *)job - offsetof(struct tb_verbs_upstream, registered));
    TB_ASSERT(u->job_out);
    u->job_out = false;
    if (u->closing) {
        tb_verbs_go_on_closing(u);
    } else if (u->stream.lost) {
        return; /* the hop closes us */
    } else if (u->job_status == TB_OK) {
        connect_now(u);
    } else {
        tb_log(TB_LOG_WARN, "verbs.unregistered", "nic=%s error=\"%s\" action=read_by_tcp",
               ibv_get_device_name(u->queue.nic->context->device), strerror(u->job_error));
        tb_verbs_path_leave(u);
        tb_verbs_queue_abandon(&u->queue);
        tb_verbs_targets_free(u);
        tb_verbs_become_stream(u, TB_WHY_UNREGISTERED_HERE);
    }
}

/* ---- connecting ---- */

static bool begin_resolving(struct tb_verbs_upstream *u)
{
    struct sockaddr_storage from, to;
    uint8_t timeout = ACK_TIMEOUT;
    if (rdma_create_id(u->v->channel, &u->id, &u->cm, RDMA_PS_TCP) != 0) return false;
    (void)rdma_set_option(u->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout);
    return tb_verbs_address_to(&tb_verbs_our_rail(u)->address, 0, &from) &&
           tb_verbs_address_to(&u->theirs[u->path.theirs].address, u->their_port, &to) &&
           rdma_resolve_addr(u->id, (struct sockaddr *)&from, (struct sockaddr *)&to, RESOLVE_MS) == 0;
}

static void look_where_memory_is(struct tb_verbs_upstream *u)
{
    const struct tb_place *first = u->target_count > 0 ? u->targets[0].place : NULL;
    struct tb_rail_spot spot;
    if (first != NULL && first->far != NULL)
        tb_nic_facts_of_pci(TB_PCI_SYSFS, first->far->pci, &spot);
    else
        tb_nic_facts_of_memory(first != NULL ? first->bytes : NULL, &spot);
    tb_rails_look_from(u->v->rails.rails, u->v->rails.count, &spot);
}

void tb_verbs_path_ask(struct tb_verbs_upstream *u)
{
    TB_ASSERT(!u->on_path && u->id == NULL && u->queue.nic == NULL);
    u->state = TB_VERBS_ASKING;
    u->their_count = u->asked = u->answered = 0;
    tb_pipe_ask_verbs(&u->stream);
}

void tb_verbs_path_try(struct tb_verbs_upstream *u)
{
    TB_ASSERT(!u->on_path && u->queue.nic == NULL);
    tb_time_ns again;
    look_where_memory_is(u);
    if (tb_rails_choose(&u->v->rails, u->theirs, u->their_count, tb_clock_now(), &u->path, &again) != TB_OK) {
        go_without(u, again);
        return;
    }
    u->v->rails.rails[u->path.ours].load++;
    u->on_path = true;
    u->state = TB_VERBS_RESOLVING;
    if (!begin_resolving(u)) tb_verbs_path_failed(u, strerror(errno));
}

static void on_routed(struct tb_verbs_upstream *u)
{
    TB_ASSERT(u->on_path && !u->job_out);
    struct tb_verbs_nic *nic = tb_verbs_nic_of(u->v, u->id->verbs);
    if (nic == NULL || tb_verbs_queue_open(&u->queue, nic, u->id, nic->pd, TB_VERBS_READS_MAX) != TB_OK) {
        tb_verbs_path_failed(u, "no queue pair");
        return;
    }
    u->id = NULL;
    u->post_at = 0;
    tb_read_window_init(&u->window, tb_verbs_our_rail(u)->bytes_per_s, TB_VERBS_READS_MAX);
    u->domain = nic->pd;
    u->state = TB_VERBS_REGISTERING;
    u->job_out = true;
    tb_pool_submit(u->v->fabric->pool, &u->registering);
}

static void on_event(struct tb_verbs_cm *cm, enum rdma_cm_event_type event, int status)
{
    struct tb_verbs_upstream *u =
        (struct tb_verbs_upstream *)((char *)cm - offsetof(struct tb_verbs_upstream, cm));
    (void)status;
    if (u->closing || u->stream.lost || u->state == TB_VERBS_STREAMING) return;
    if (event == RDMA_CM_EVENT_TIMEWAIT_EXIT) return;
    if (u->state == TB_VERBS_RESOLVING && event == RDMA_CM_EVENT_ADDR_RESOLVED) {
        u->state = TB_VERBS_ROUTING;
        if (rdma_resolve_route(u->id, RESOLVE_MS) != 0) tb_verbs_path_failed(u, strerror(errno));
    } else if (u->state == TB_VERBS_ROUTING && event == RDMA_CM_EVENT_ROUTE_RESOLVED) {
        on_routed(u);
    } else if (u->state == TB_VERBS_CONNECTING && event == RDMA_CM_EVENT_ESTABLISHED) {
        u->state = TB_VERBS_ATTACHING;
        tb_verbs_ask_remotes(u);
    } else if (u->state == TB_VERBS_OPEN || (u->state == TB_VERBS_ATTACHING && !u->told)) {
        tb_verbs_break_off(u, rdma_event_str(event));
    } else if (u->state != TB_VERBS_REGISTERING) { /* then connecting will tell */
        tb_verbs_path_failed(u, rdma_event_str(event));
    }
}

void tb_verbs_on_dead(struct tb_verbs_queue *q)
{
    struct tb_verbs_upstream *u = tb_verbs_with_queue(q);
    if (u->state == TB_VERBS_ATTACHING || u->state == TB_VERBS_OPEN)
        tb_verbs_break_off(u, "the device failed");
}

void tb_verbs_path_init(struct tb_verbs_upstream *u)
{
    u->cm.on_event = on_event;
    u->registering.run = register_run;
    u->registered.run = on_registered;
}
