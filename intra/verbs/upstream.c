/* upstream.c - `verbs`: one-sided READs over a queue pair of its own, beside the connection to the door.
 *
 * The connection is the lease, and the way for what no NIC reaches: a buffer that could not be registered, or everything where
 * the two ends' NICs do not find each other; then this is `tcp`. Its life:
 *
 *   greeting -> asking (the door's rails) -> resolving -> routing -> registering (our memory) -> connecting -> attaching -> open
 *
 * with a step back to resolving for the next path when one does not connect, and to streaming when there is none.
 *
 * What the door says keeps the hop open, not what the NIC reads: a source whose process stands still is idle, though its memory
 * can be read.
 *
 * Order at the reader: a READ is told when every work request of it has completed. After close everything that is posted is
 * flushed and the queue pair destroyed before on_closed, so nothing writes then (P1). What goes elsewhere than into the places
 * (bitmap words, encoded chunks) lands in `bounce` and is copied. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "intra/pipe.h"
#include "intra/verbs/nic.h"
#include "intra/verbs/nic_facts.h"
#include "intra/verbs/window.h"

#define READS_MAX    64u /* posted */
#define CHAIN_MAX    16u /* rung in with one bell */
#define BOUNCE_BYTES TB_HOP_WORDS_BYTES_MAX
#define BOUNCES      16u
#define NO_BOUNCE    UINT8_MAX
#define RESOLVE_MS   2000
#define RETRIES      7
#define ACK_TIMEOUT  16 /* 4.096 us << 16 = 0.27 s; a path that is silent for eight of them has failed */
#define LAST_WORD    TB_SECONDS(1) /* a queue pair breaks; the door has so long to say that it was it who did */

enum verbs_state {
    GREETING,
    ASKING,
    RESOLVING,
    ROUTING,
    REGISTERING,
    CONNECTING,
    ATTACHING,
    OPEN,
    STREAMING
};

struct remote {
    uint32_t buffer;
    bool reachable;
    uint32_t key;
    uint64_t count, address;
};

struct target {
    const struct tb_place *place;
    struct tb_region region;
};

struct posted_read {
    struct tb_read *read;
    uint8_t *to;
    uint8_t bounce;
    struct tb_window_sample sample;
};

struct read_list {
    struct tb_read *first, *last; /* not asked for to their ends */
};

struct verbs_upstream {
    struct tb_upstream base;
    struct tb_pipe stream;
    struct tb_verbs *v;
    enum verbs_state state;
    bool asked_for; /* by the hop's owner: nothing else will do */
    struct tb_rail theirs[TB_RAILS_MAX];
    uint32_t their_count;
    uint16_t their_port;
    struct tb_id secret;

    struct tb_rail_path path;
    bool on_path;          /* its load is counted */
    struct rdma_cm_id *id; /* until the queue has it */
    struct tb_verbs_cm cm;
    struct tb_verbs_queue queue;
    tb_time_ns open_at;
    tb_time_ns connect_until; /* CONNECTING: rdma_cm alone would try for over a minute */
    uint32_t open_ms;

    struct target *targets;
    uint32_t target_count;
    uint8_t *bounce;
    struct tb_region bounce_region;
    uint32_t bounce_busy;
    struct tb_pool_job registering;
    struct tb_fabric_job registered;
    struct ibv_pd *domain; /* of the NIC that the path goes by */
    bool job_out;
    enum tb_status job_status;
    int job_error;

    struct remote *remotes;
    uint32_t remote_count, asked, answered;

    struct read_list words, data;
    struct posted_read posted[READS_MAX]; /* a ring: RC completes in order */
    uint32_t post_at;
    uint64_t posted_bytes;
    struct tb_window window;
    bool broken;
    tb_time_ns broken_at;
    const char *broken_why;
    bool closing, ended; /* ended: the queue is */
};

static struct verbs_upstream *with_queue(struct tb_verbs_queue *q)
{
    return (struct verbs_upstream *)((char *)q - offsetof(struct verbs_upstream, queue));
}

static const struct tb_rail *our_rail(const struct verbs_upstream *u)
{
    return &u->v->rails.rails[u->path.ours];
}

/* ---- what was not reached ---- */

static void leave_path(struct verbs_upstream *u)
{
    if (u->on_path) u->v->rails.rails[u->path.ours].load--;
    u->on_path = false;
}

struct path_text {
    char ours[INET6_ADDRSTRLEN], theirs[INET6_ADDRSTRLEN];
};

static struct path_text path_text(const struct verbs_upstream *u)
{
    struct path_text t = {"", ""};
    (void)inet_ntop(AF_INET6, our_rail(u)->address.bytes, t.ours, sizeof t.ours);
    (void)inet_ntop(AF_INET6, u->theirs[u->path.theirs].address.bytes, t.theirs, sizeof t.theirs);
    return t;
}

static void path_rests(struct verbs_upstream *u)
{
    (void)tb_rails_failed(&u->v->rails, &our_rail(u)->address, &u->theirs[u->path.theirs].address,
                          tb_clock_now());
}

static void targets_free(struct verbs_upstream *u)
{
    for (uint32_t i = 0; i < u->target_count; i++)
        tb_region_free(&u->targets[i].region);
    tb_region_free(&u->bounce_region);
}

/* Everything goes over the connection from here on. */
static void become_stream(struct verbs_upstream *u, enum tb_transport_why why)
{
    u->state = STREAMING;
    u->base.transport = TB_TRANSPORT_TCP;
    u->base.why = why;
    if (u->asked_for)
        tb_pipe_lose(&u->stream, TB_PEER_UNREACHABLE);
    else
        u->stream.events->on_open(u->stream.events_user);
}

static void try_path(struct verbs_upstream *u);

static void path_failed(struct verbs_upstream *u, const char *what)
{
    const struct path_text t = path_text(u);
    tb_log(TB_LOG_WARN, "verbs.path_failed", "from=%s to=%s reason=\"%s\" action=rests", t.ours, t.theirs,
           what);
    path_rests(u);
    leave_path(u);
    tb_verbs_queue_abandon(&u->queue);
    if (u->id != NULL) (void)rdma_destroy_id(u->id);
    u->id = NULL;
    targets_free(u);
    try_path(u);
}

/* The queue pair broke while the hop was open: the door is given time to say why, or to be gone. what: static storage. */
static void break_off(struct verbs_upstream *u, const char *what)
{
    if (u->broken || u->closing) return;
    u->broken = true;
    u->broken_at = tb_clock_now();
    u->broken_why = what;
    tb_verbs_queue_fail(&u->queue);
    tb_fabric_wake_at(u->v->fabric, tb_time_add(u->broken_at, LAST_WORD));
}

/* The door is there and said nothing: it was the path. */
static void blame_path(struct verbs_upstream *u)
{
    const struct path_text t = path_text(u);
    tb_log(TB_LOG_WARN, "verbs.broken", "from=%s to=%s reason=\"%s\" action=hop_ends", t.ours, t.theirs,
           u->broken_why);
    path_rests(u);
    tb_pipe_lose(&u->stream, TB_STREAM_IO);
}

/* ---- READs ---- */

static int by_buffer(const void *a, const void *b)
{
    const uint32_t x = ((const struct remote *)a)->buffer, y = ((const struct remote *)b)->buffer;
    return x < y ? -1 : x > y;
}

static const struct remote *remote_of(const struct verbs_upstream *u, uint32_t buffer)
{
    const struct remote key = {.buffer = buffer};
    return bsearch(&key, u->remotes, u->remote_count, sizeof *u->remotes, by_buffer);
}

static bool run_reached(const struct verbs_upstream *u, const struct tb_source_run *run)
{
    const struct remote *r = remote_of(u, run->buffer);
    return r != NULL && r->reachable && run->offset <= r->count && run->bytes <= r->count - run->offset;
}

/* All of it, or it goes over the connection, whose door says what is wrong with it. */
static bool reached(const struct verbs_upstream *u, const struct tb_read *read)
{
    if (u->state != OPEN) return false;
    for (uint32_t done = 0; done < read->bytes;) {
        const struct tb_source_run run = tb_read_run(read, done);
        if (!run_reached(u, &run)) return false;
        done += (uint32_t)run.bytes;
    }
    return true;
}

static const struct target *target_of(const struct verbs_upstream *u, const uint8_t *to)
{
    for (uint32_t i = 0; i < u->target_count; i++) {
        const struct tb_place *p = u->targets[i].place;
        if (u->targets[i].region.mr == NULL) continue; /* its pages come and go */
        if (to >= p->bytes && to < p->bytes + p->manifest->bytes) return &u->targets[i];
    }
    return NULL;
}

/* Where the next work request's bytes land. False: it has to wait for a bounce. */
static bool aim(struct verbs_upstream *u, struct posted_read *post, struct ibv_sge *sge)
{
    const struct target *target = target_of(u, post->to);
    post->bounce = NO_BOUNCE;
    if (target != NULL) {
        sge->addr = (uint64_t)(uintptr_t)post->to;
        sge->lkey = target->region.mr->lkey;
        return true;
    }
    const uint32_t idle = ~u->bounce_busy & ((1u << BOUNCES) - 1);
    if (idle == 0) return false;
    post->bounce = (uint8_t)__builtin_ctz(idle);
    u->bounce_busy |= 1u << post->bounce;
    if (sge->length > BOUNCE_BYTES) sge->length = BOUNCE_BYTES;
    sge->addr = (uint64_t)(uintptr_t)(u->bounce + (size_t)post->bounce * BOUNCE_BYTES);
    sge->lkey = u->bounce_region.mr->lkey;
    return true;
}

struct chain {
    struct ibv_send_wr wrs[CHAIN_MAX];
    struct ibv_sge sges[CHAIN_MAX];
    uint32_t count;
};

/* Adds the next stretch of the list's first READ. False: nothing may be posted now. */
static bool chain_add(struct verbs_upstream *u, struct chain *c, struct read_list *list, bool words)
{
    struct tb_read *read = list->first;
    const uint32_t out = u->queue.posted + c->count;
    if (read == NULL || c->count == CHAIN_MAX || out >= READS_MAX) return false;
    const struct tb_source_run run = tb_read_run(read, read->asked);
    const uint32_t want =
        words ? (uint32_t)run.bytes : tb_window_next(&u->window, u->posted_bytes, out, (uint32_t)run.bytes);
    struct posted_read *post = &u->posted[u->post_at];
    struct ibv_sge *sge = &c->sges[c->count];
    *post = (struct posted_read){.read = read, .to = read->to + read->asked};
    sge->length = want;
    if (want == 0 || !aim(u, post, sge)) return false;
    const struct remote *r = remote_of(u, run.buffer);
    c->wrs[c->count] =
        (struct ibv_send_wr){.wr_id = u->post_at,
                             .sg_list = sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_READ,
                             .wr.rdma = {.remote_addr = r->address + run.offset, .rkey = r->key}};
    if (c->count > 0) c->wrs[c->count - 1].next = &c->wrs[c->count];
    c->count++;
    post->sample = (struct tb_window_sample){
        .bytes = sge->length, .posted_at = tb_clock_now(), .done_before = u->window.done_bytes};
    u->post_at = (u->post_at + 1) % READS_MAX;
    u->posted_bytes += sge->length;
    read->asked += sge->length;
    if (read->asked == read->bytes) list->first = read->next;
    return true;
}

/* Bitmap words first: they are few, and what they show is what comes next. */
static void pump(struct verbs_upstream *u)
{
    struct ibv_send_wr *bad = NULL;
    if (u->queue.failed) break_off(u, "the queue pair is in error");
    while (u->state == OPEN && !u->broken && !u->closing) {
        struct chain c = {.count = 0};
        while (chain_add(u, &c, &u->words, true) || chain_add(u, &c, &u->data, false))
            continue;
        if (c.count == 0) return;
        const int error = ibv_post_send(u->queue.id->qp, c.wrs, &bad);
        const uint32_t taken = error == 0 ? c.count : (uint32_t)(bad - c.wrs);
        tb_verbs_queue_posted(&u->queue, taken);
        if (error != 0) break_off(u, "work requests were refused");
    }
}

static void queue_read(struct verbs_upstream *u, struct tb_read *read)
{
    struct read_list *list = read->words ? &u->words : &u->data;
    read->next = NULL;
    read->asked = read->got = 0;
    if (list->first == NULL)
        list->first = read;
    else
        list->last->next = read;
    list->last = read;
    pump(u);
}

static void completed(struct verbs_upstream *u, struct posted_read *post)
{
    struct tb_read *read = post->read;
    const uint32_t bytes = post->sample.bytes;
    if (post->bounce != NO_BOUNCE) {
        memcpy(post->to, u->bounce + (size_t)post->bounce * BOUNCE_BYTES, bytes);
        u->bounce_busy &= ~(1u << post->bounce);
    }
    u->posted_bytes -= bytes;
    tb_window_completed(&u->window, &post->sample, tb_clock_now());
    read->got += bytes;
    if (read->got == read->bytes) u->stream.events->on_read(u->stream.events_user, read);
}

static void on_completion(struct tb_verbs_queue *q, const struct ibv_wc *wc)
{
    struct verbs_upstream *u = with_queue(q);
    if (wc->status != IBV_WC_SUCCESS) {
        break_off(u, ibv_wc_status_str(wc->status));
        return;
    }
    completed(u, &u->posted[wc->wr_id]);
    pump(u);
}

/* ---- our memory ---- */

/* On the pool: pinning takes a second for some 10 GB. */
static void register_run(struct tb_pool_job *job, uint32_t thread)
{
    (void)thread;
    struct verbs_upstream *u =
        (struct verbs_upstream *)((char *)job - offsetof(struct verbs_upstream, registering));
    struct ibv_pd *pd = u->domain;
    const struct tb_region_options bounce = {
        .domain = pd, .bytes = u->bounce, .count = BOUNCES * BOUNCE_BYTES, .dmabuf = -1, .target = true};
    u->job_status = tb_region_register(&bounce, &u->bounce_region);
    for (uint32_t i = 0; i < u->target_count && u->job_status == TB_OK; i++) {
        const struct tb_place *p = u->targets[i].place;
        /* Pages that its owner gives back would stay pinned, and be written to; those of chunks that never come would be made. */
        if (p->landed != NULL || p->wanted != NULL) continue;
        const struct tb_region_options place = {
            .domain = pd, .bytes = p->bytes, .count = p->manifest->bytes, .dmabuf = -1, .target = true};
        if (p->manifest->bytes > 0) u->job_status = tb_region_register(&place, &u->targets[i].region);
    }
    u->job_error = errno;
    tb_fabric_post(u->v->fabric, &u->registered);
}

static void connect_now(struct verbs_upstream *u)
{
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
    u->state = CONNECTING;
    u->connect_until = tb_time_add(tb_clock_now(), TB_MS(u->open_ms));
    tb_fabric_wake_at(u->v->fabric, u->connect_until);
    if (rdma_connect(u->queue.id, &param) != 0) path_failed(u, strerror(errno));
}

static void go_on_closing(struct verbs_upstream *u);

static void on_registered(struct tb_fabric_job *job)
{
    struct verbs_upstream *u =
        (struct verbs_upstream *)((char *)job - offsetof(struct verbs_upstream, registered));
    u->job_out = false;
    if (u->closing) {
        go_on_closing(u);
    } else if (u->stream.lost) {
        return; /* the hop closes us */
    } else if (u->job_status == TB_OK) {
        connect_now(u);
    } else {
        tb_log(TB_LOG_WARN, "verbs.unregistered", "nic=%s error=\"%s\" action=read_by_tcp",
               ibv_get_device_name(u->queue.nic->context->device), strerror(u->job_error));
        leave_path(u);
        tb_verbs_queue_abandon(&u->queue);
        targets_free(u);
        become_stream(u, TB_WHY_RDMA_FAILED);
    }
}

/* ---- connecting ---- */

static bool begin_resolving(struct verbs_upstream *u)
{
    struct sockaddr_storage from, to;
    uint8_t timeout = ACK_TIMEOUT;
    if (rdma_create_id(u->v->channel, &u->id, &u->cm, RDMA_PS_TCP) != 0) return false;
    (void)rdma_set_option(u->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout);
    return tb_verbs_address_to(&our_rail(u)->address, 0, &from) &&
           tb_verbs_address_to(&u->theirs[u->path.theirs].address, u->their_port, &to) &&
           rdma_resolve_addr(u->id, (struct sockaddr *)&from, (struct sockaddr *)&to, RESOLVE_MS) == 0;
}

static void look_where_memory_is(struct verbs_upstream *u)
{
    const int node = u->target_count > 0 ? tb_nic_facts_node_of(u->targets[0].place->bytes) : -1;
    for (uint32_t i = 0; i < u->v->rails.count; i++) {
        struct tb_rail *rail = &u->v->rails.rails[i];
        const int at = u->v->nics[rail->nic].node;
        rail->far = node >= 0 && at >= 0 && at != node;
    }
}

static void try_path(struct verbs_upstream *u)
{
    tb_time_ns again;
    look_where_memory_is(u);
    if (tb_rails_choose(&u->v->rails, u->theirs, u->their_count, tb_clock_now(), &u->path, &again) != TB_OK) {
        become_stream(u, TB_WHY_RDMA_FAILED);
        return;
    }
    u->v->rails.rails[u->path.ours].load++;
    u->on_path = true;
    u->state = RESOLVING;
    if (!begin_resolving(u)) path_failed(u, strerror(errno));
}

static void on_routed(struct verbs_upstream *u)
{
    struct tb_verbs_nic *nic = tb_verbs_nic_of(u->v, u->id->verbs);
    if (nic == NULL || tb_verbs_queue_open(&u->queue, nic, u->id, nic->pd, READS_MAX) != TB_OK) {
        path_failed(u, "no queue pair");
        return;
    }
    u->id = NULL;
    u->post_at = 0;
    tb_window_init(&u->window, our_rail(u)->bytes_per_s, READS_MAX);
    u->domain = nic->pd;
    u->state = REGISTERING;
    u->job_out = true;
    tb_pool_submit(u->v->fabric->pool, &u->registering);
}

static uint32_t reachable(const struct verbs_upstream *u)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < u->remote_count; i++)
        count += u->remotes[i].reachable;
    return count;
}

static void ask_remotes(struct verbs_upstream *u)
{
    while (u->asked < u->remote_count && tb_pipe_attach(&u->stream, u->remotes[u->asked].buffer))
        u->asked++;
    if (u->answered < u->remote_count) return;
    if (reachable(u) == 0) { /* the source could not register them: its log says why */
        leave_path(u);
        become_stream(u, TB_WHY_RDMA_FAILED);
        return;
    }
    u->state = OPEN;
    u->open_at = tb_clock_now();
    u->base.transport = TB_TRANSPORT_VERBS;
    u->base.why = TB_WHY_RDMA;
    u->stream.events->on_open(u->stream.events_user);
}

static void on_event(struct tb_verbs_cm *cm, enum rdma_cm_event_type event, int status)
{
    struct verbs_upstream *u = (struct verbs_upstream *)((char *)cm - offsetof(struct verbs_upstream, cm));
    (void)status;
    if (u->closing || u->stream.lost || u->state == STREAMING) return;
    if (event == RDMA_CM_EVENT_TIMEWAIT_EXIT) return;
    if (u->state == RESOLVING && event == RDMA_CM_EVENT_ADDR_RESOLVED) {
        u->state = ROUTING;
        if (rdma_resolve_route(u->id, RESOLVE_MS) != 0) path_failed(u, strerror(errno));
    } else if (u->state == ROUTING && event == RDMA_CM_EVENT_ROUTE_RESOLVED) {
        on_routed(u);
    } else if (u->state == CONNECTING && event == RDMA_CM_EVENT_ESTABLISHED) {
        u->state = ATTACHING;
        ask_remotes(u);
    } else if (u->state == ATTACHING || u->state == OPEN) {
        break_off(u, rdma_event_str(event));
    } else if (u->state != REGISTERING) { /* then connecting will tell */
        path_failed(u, rdma_event_str(event));
    }
}

static void on_dead(struct tb_verbs_queue *q)
{
    struct verbs_upstream *u = with_queue(q);
    if (u->state == ATTACHING || u->state == OPEN) break_off(u, "the device failed");
}

/* ---- what the door says ---- */

static void on_welcome(void *user, const struct tb_hop_answer *answer)
{
    struct verbs_upstream *u = user;
    u->state = ASKING;
    if (answer->kind == 1)
        tb_pipe_ask_verbs(&u->stream);
    else
        become_stream(u, TB_WHY_NO_RDMA_THERE);
}

static void add_rail(struct verbs_upstream *u, const struct tb_hop_answer *answer)
{
    struct tb_rail *rail = &u->theirs[u->their_count];
    if (u->their_count == TB_RAILS_MAX) return; /* more than are looked at */
    *rail = (struct tb_rail){.bytes_per_s = answer->a,
                             .load = answer->buffer < UINT32_MAX / 2 ? answer->buffer : UINT32_MAX / 2,
                             .far = (answer->kind & TB_HOP_RAIL_FAR) != 0,
                             .down = (answer->kind & TB_HOP_RAIL_DOWN) != 0};
    memcpy(rail->address.bytes, answer->id.bytes, sizeof rail->address.bytes);
    u->their_port = (uint16_t)answer->bytes;
    u->their_count++;
}

static void on_verbs(void *user, const struct tb_hop_answer *answer)
{
    struct verbs_upstream *u = user;
    if (answer->type == TB_HOP_ANSWER_RAIL) {
        add_rail(u, answer);
    } else {
        u->secret = answer->id;
        try_path(u);
    }
}

static void on_buffer(void *user, const struct tb_hop_answer *answer, int fd)
{
    struct verbs_upstream *u = user;
    TB_ASSERT(fd < 0); /* the connection is no unix socket */
    struct remote *next =
        u->answered < u->asked ? &u->remotes[u->answered] : NULL; /* answers come in order */
    if (next == NULL || answer->buffer != next->buffer) {
        tb_pipe_lose(&u->stream, TB_PEER_GARBLED);
        return;
    }
    next->reachable = answer->kind == TB_HOP_BUFFER_VERBS;
    next->count = answer->a;
    next->address = answer->b;
    next->key = answer->bytes;
    u->answered++;
    ask_remotes(u);
}

/* ---- beginning and end ---- */

static void upstream_free(struct verbs_upstream *u)
{
    tb_free(u->remotes);
    tb_free(u->targets);
    tb_free(u->bounce);
    tb_free(u);
}

static void on_finished(void *user)
{
    upstream_free(user);
}

static const struct tb_pipe_ops stream_ops = {
    .on_welcome = on_welcome, .on_buffer = on_buffer, .on_verbs = on_verbs, .on_finished = on_finished};

static void go_on_closing(struct verbs_upstream *u)
{
    if (!u->ended || u->job_out) return;
    targets_free(u);
    tb_pipe_close(&u->stream);
}

static void on_ended(struct tb_verbs_queue *q)
{
    struct verbs_upstream *u = with_queue(q);
    u->ended = true;
    go_on_closing(u);
}

static const struct tb_verbs_queue_ops queue_ops = {
    .on_completion = on_completion, .on_dead = on_dead, .on_ended = on_ended};

static void verbs_close(struct tb_upstream *upstream)
{
    struct verbs_upstream *u = (struct verbs_upstream *)upstream;
    u->closing = true;
    if (u->open_at != 0 && !u->broken)
        tb_rails_carried(&u->v->rails, &our_rail(u)->address, &u->theirs[u->path.theirs].address, u->open_at,
                         tb_clock_now());
    leave_path(u);
    if (u->id != NULL) (void)rdma_destroy_id(u->id);
    u->id = NULL;
    if (u->state >= CONNECTING && u->queue.id != NULL)
        (void)rdma_disconnect(u->queue.id); /* the door hears of it */
    tb_verbs_queue_end(&u->queue);
}

static enum tb_status list_remotes(struct verbs_upstream *u, const struct tb_upstream_options *options)
{
    uint32_t *list = NULL;
    const enum tb_status status =
        tb_source_buffers(options->sources, options->source_count, &list, &u->remote_count);
    if (status != TB_OK) return status;
    u->remotes = tb_calloc(u->remote_count, sizeof *u->remotes);
    for (uint32_t i = 0; u->remotes != NULL && i < u->remote_count; i++)
        u->remotes[i].buffer = list[i];
    tb_free(list);
    return u->remotes != NULL ? TB_OK : TB_SITE_NOMEM;
}

static enum tb_status list_targets(struct verbs_upstream *u, const struct tb_upstream_options *options)
{
    u->targets = tb_calloc(options->source_count, sizeof *u->targets);
    u->bounce = tb_malloc(BOUNCES * BOUNCE_BYTES);
    if (u->targets == NULL || u->bounce == NULL) return TB_SITE_NOMEM;
    u->target_count = options->source_count;
    for (uint32_t i = 0; i < u->target_count; i++)
        u->targets[i].place = options->places[i];
    return TB_OK;
}

static enum tb_status verbs_open(const struct tb_upstream_options *options, struct tb_upstream **upstream_out)
{
    const struct tb_fabric_endpoint *from = &options->hop->from;
    struct tb_address to;
    if (options->fabric->verbs == NULL) return TB_PEER_UNREACHABLE;
    if (tb_pipe_tcp_address(from->tcp, &to) != TB_OK) return TB_BAD_ARGUMENT;
    struct verbs_upstream *u = tb_calloc(1, sizeof *u);
    if (u == NULL) return TB_SITE_NOMEM;
    u->base = (struct tb_upstream){&tb_transport_verbs, TB_TRANSPORT_VERBS, TB_WHY_UNKNOWN};
    u->v = options->fabric->verbs;
    u->open_ms = options->open_ms;
    u->asked_for = options->hop->transport == TB_TRANSPORT_VERBS;
    u->cm.on_event = on_event;
    u->registering.run = register_run;
    u->registered.run = on_registered;
    const struct tb_pipe_options stream = {.upstream = options,
                                           .ops = &stream_ops,
                                           .user = u,
                                           .to = to,
                                           .tls = from->tls ? options->fabric->tls : NULL,
                                           .paced = true};
    enum tb_status status = list_remotes(u, options);
    if (status == TB_OK) status = list_targets(u, options);
    if (status == TB_OK) status = tb_pipe_open(&u->stream, &stream);
    if (status != TB_OK) {
        upstream_free(u);
        return status;
    }
    tb_verbs_queue_init(&u->queue, u->v, &queue_ops);
    *upstream_out = &u->base;
    return TB_OK;
}

static void verbs_read(struct tb_upstream *upstream, struct tb_read *read)
{
    struct verbs_upstream *u = (struct verbs_upstream *)upstream;
    if (u->closing || u->broken) return; /* dropped with the others at on_closed */
    if (reached(u, read))
        queue_read(u, read);
    else
        tb_pipe_read(&u->stream, read);
}

static void verbs_confirm(struct tb_upstream *upstream)
{
    tb_pipe_confirm(&((struct verbs_upstream *)upstream)->stream);
}

static tb_time_ns verbs_poll(struct tb_upstream *upstream, tb_time_ns now)
{
    struct verbs_upstream *u = (struct verbs_upstream *)upstream;
    tb_time_ns next = tb_pipe_poll(&u->stream, now);
    if (u->state == CONNECTING && !u->closing && !u->stream.lost) {
        if (now >= u->connect_until) path_failed(u, "it does not connect");
        if (u->state == CONNECTING) next = tb_time_min(next, u->connect_until);
    }
    if (!u->broken || u->stream.lost || u->closing) return next;
    const tb_time_ns until = tb_time_add(u->broken_at, LAST_WORD);
    if (now < until) return tb_time_min(next, until);
    blame_path(u);
    return TB_TIME_NEVER;
}

const struct tb_transport_ops tb_transport_verbs = {.transport = TB_TRANSPORT_VERBS,
                                                    .open = verbs_open,
                                                    .read = verbs_read,
                                                    .reaches = tb_pipe_reaches,
                                                    .copy = tb_pipe_copy,
                                                    .confirm = verbs_confirm,
                                                    .poll = verbs_poll,
                                                    .close = verbs_close};
