/* verbs_door.c - the owner's end of a hop by RDMA: one queue pair that a reader READs
 * through, and nothing else.
 *
 * The life of a guest:  offered -> connecting -> in -> ending -> gone.  To end, the queue pair goes
 * to error; the one receive that was posted when it was made comes back flushed, behind everything
 * that the queue pair had begun; then it is destroyed, and only then is the guest gone.
 *
 * An export has one domain and one registration per buffer for each NIC that a guest came by. A
 * key opens nothing from a queue pair of another domain, so a guessed one opens nothing of
 * another export (P8). Of memory that stays both are kept for the next export of the same
 * memory (pinned_regions.h). */
#include <errno.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "intra/fabric/fabric_queue.h"
#include "intra/verbs/nic.h"
#include "intra/verbs/nic_facts.h"

#define CONNECT_WITHIN TB_SECONDS(60) /* a reader registers its memory first: seconds for some 10 GB */

enum window_state { UNKNOWN, REGISTERING, REGISTERED, UNREACHABLE };

struct window {
    struct tb_pool_job job;
    struct tb_fabric_job done;
    struct domain *domain;
    enum window_state state;
    struct tb_pinned_region *region;
    enum tb_status status; /* of the registration, on its way back */
    int error;
};

/* The domain and the registrations of an export on one NIC. */
struct domain {
    struct tb_verbs_export *owner;
    struct tb_verbs_nic *nic; /* NULL: free */
    struct tb_pinned_domain *kept;
    struct window *windows; /* one a buffer */
};

struct tb_verbs_export {
    struct tb_verbs *v;
    struct tb_export *export;
    struct domain domains[TB_VERBS_NICS_MAX];
    uint32_t jobs; /* registrations on the pool; no guest is gone before they are */
};

enum guest_state { OFFERED, CONNECTING, IN, ENDING };

struct tb_verbs_guest {
    LIST_ENTRY(tb_verbs_guest) link;
    struct tb_verbs *v;
    struct tb_export *export;
    const struct tb_verbs_guest_events *events;
    void *user;
    struct tb_id secret;
    enum guest_state state;
    struct tb_verbs_queue queue;
    struct tb_verbs_cm cm;
    struct domain *domain;
    tb_time_ns offered_at;
    uint32_t rail; /* whose load it is; UINT32_MAX: none */
    bool told;     /* on_broken */
    bool ended;    /* its queue is; the guest is gone as soon as the export's registrations are through */
    struct tb_fabric_job gone;
};

/* ---- what an export has on NICs ---- */

static struct domain *domain_find(struct tb_verbs_export *e, struct tb_verbs_nic *nic)
{
    for (uint32_t i = 0; i < TB_VERBS_NICS_MAX; i++)
        if (e->domains[i].nic == nic) return &e->domains[i];
    return NULL;
}

static void domain_close(struct domain *d)
{
    TB_ASSERT(d->nic != NULL && d->kept != NULL);
    for (uint32_t b = 0; b < d->owner->export->buffer_count; b++)
        tb_pinned_release(&d->owner->v->pinned, d->windows[b].region);
    tb_free(d->windows);
    tb_pinned_domain_leave(&d->owner->v->pinned, d->kept);
    d->nic = NULL;
}

static struct domain *domain_open(struct tb_verbs_export *e, struct tb_verbs_nic *nic)
{
    struct domain *d = domain_find(e, nic);
    if (d != NULL) return d;
    d = domain_find(e, NULL);
    if (d == NULL) return NULL;
    const uint32_t count = e->export->buffer_count;
    d->windows = tb_calloc(count > 0 ? count : 1, sizeof *d->windows);
    if (d->windows == NULL) return NULL;
    d->kept = tb_pinned_domain_take(&e->v->pinned, nic->context, e->export->buffers, count);
    if (d->kept == NULL) {
        tb_free(d->windows);
        return NULL;
    }
    d->owner = e;
    d->nic = nic;
    return d;
}

void tb_verbs_export_drop(struct tb_verbs_export *e)
{
    if (e == NULL) return;
    TB_ASSERT(e->jobs == 0);
    for (uint32_t i = 0; i < TB_VERBS_NICS_MAX; i++)
        if (e->domains[i].nic != NULL) domain_close(&e->domains[i]);
    tb_free(e);
}

static enum tb_status export_prepare(struct tb_verbs *v, struct tb_export *export)
{
    if (export->verbs != NULL) return TB_OK;
    struct tb_verbs_export *e = tb_calloc(1, sizeof *e);
    if (e == NULL) return TB_SITE_NOMEM;
    e->v = v;
    e->export = export;
    export->verbs = e;
    return TB_OK;
}

/* ---- registering ---- */

static struct tb_region_options region_of(const struct domain *d, uint32_t buffer)
{
    TB_ASSERT(buffer < d->owner->export->buffer_count);
    const struct tb_export_buffer *b = &d->owner->export->buffers[buffer];
    return (struct tb_region_options){.domain = d->kept->pd,
                                      .bytes = b->bytes,
                                      .count = b->count,
                                      .dmabuf = b->device != NULL ? b->device->dmabuf : -1,
                                      .dmabuf_offset = b->device != NULL ? b->device->offset : 0};
}

/* On the pool. */
static void register_run(struct tb_pool_job *job, uint32_t thread)
{
    (void)thread;
    struct window *w = (struct window *)((char *)job - offsetof(struct window, job));
    struct domain *d = w->domain;
    const struct tb_region_options options = region_of(d, (uint32_t)(w - d->windows));
    struct tb_pinned_region *region = NULL;
    w->status = tb_pinned_take(&d->owner->v->pinned, &options, &region);
    w->error = errno;
    if (w->status == TB_OK) w->region = region;
    tb_fabric_post(d->owner->v->fabric, &w->done);
}

static void say_registered(const struct window *w, const struct tb_export_buffer *b)
{
    const struct domain *d = w->domain;
    const char *nic = ibv_get_device_name(d->nic->context->device);
    if (w->status != TB_OK)
        tb_log(TB_LOG_WARN, "verbs.unregistered",
               "nic=%s export=%llu bytes=%llu error=\"%s\" action=read_by_tcp", nic,
               (unsigned long long)d->owner->export->id, (unsigned long long)b->count, strerror(w->error));
    else if (w->region->region.staged)
        tb_log(TB_LOG_WARN, "verbs.staged",
               "nic=%s export=%llu bytes=%llu reason=no_dmabuf action=host_copy_is_read", nic,
               (unsigned long long)d->owner->export->id, (unsigned long long)b->count);
}

static void registered(struct tb_fabric_job *job)
{
    struct window *w = (struct window *)((char *)job - offsetof(struct window, done));
    struct tb_verbs_export *e = w->domain->owner;
    TB_ASSERT(e->jobs > 0 && w->state == REGISTERING);
    w->state = w->status == TB_OK ? REGISTERED : UNREACHABLE;
    say_registered(w, &e->export->buffers[w - w->domain->windows]);
    e->jobs--;
    struct tb_verbs_guest *g;
    LIST_FOREACH(g, &e->v->guests, link)
    {
        if (g->export != e->export) continue;
        if (g->state == IN || g->state == CONNECTING) g->events->on_attachable(g->user);
        if (g->ended && e->jobs == 0) tb_fabric_post(e->v->fabric, &g->gone);
    }
}

/* At once where it was kept. */
static void register_begin(struct window *w, struct domain *d)
{
    TB_ASSERT(w->state == UNKNOWN && w->region == NULL);
    const struct tb_region_options options = region_of(d, (uint32_t)(w - d->windows));
    w->domain = d;
    w->region = tb_pinned_find(&d->owner->v->pinned, &options);
    w->state = w->region != NULL ? REGISTERED : REGISTERING;
    if (w->region != NULL) return;
    w->job.run = register_run;
    w->done.run = registered;
    d->owner->jobs++;
    tb_pool_submit(d->owner->v->fabric->pool, &w->job);
}

enum tb_status tb_verbs_guest_window(struct tb_verbs_guest *g, uint32_t buffer,
                                     struct tb_verbs_window *window_out)
{
    TB_ASSERT(buffer < g->export->buffer_count);
    /* A reader knows that it is connected before we do, and may attach at once. */
    if (g->state != IN && g->state != CONNECTING) return TB_BAD_STATE;
    TB_ASSERT(g->domain != NULL && g->export->verbs != NULL);
    struct window *w = &g->domain->windows[buffer];
    if (w->state == UNKNOWN) register_begin(w, g->domain);
    if (w->state == REGISTERING) return TB_AGAIN;
    if (w->state == UNREACHABLE) return TB_SITE_IO;
    const struct tb_region *region = &w->region->region;
    *window_out = (struct tb_verbs_window){.address = region->address, .key = region->mr->rkey};
    return TB_OK;
}

/* ---- the rails that a reader is told ---- */

/* Where some of it is a GPU's, there: NICs read the device itself. */
static void look_where_memory_is(const struct tb_export *export, struct tb_rail_spot *spot_out)
{
    for (uint32_t b = 0; b < export->buffer_count; b++) {
        if (export->buffers[b].device == NULL) continue;
        tb_nic_facts_of_pci(TB_PCI_SYSFS, export->buffers[b].device->pci, spot_out);
        return;
    }
    tb_nic_facts_of_memory(export->buffer_count > 0 ? export->buffers[0].bytes : NULL, spot_out);
}

uint32_t tb_verbs_rails(struct tb_verbs *v, const struct tb_export *export, struct tb_rail *rails_out,
                        uint16_t *port_out)
{
    TB_ASSERT(v->rails.count <= TB_RAILS_MAX);
    struct tb_rail_spot spot;
    look_where_memory_is(export, &spot);
    memcpy(rails_out, v->rails.rails, v->rails.count * sizeof *rails_out);
    tb_rails_look_from(rails_out, v->rails.count, &spot);
    *port_out = v->port;
    return v->rails.count;
}

/* ---- the end of a guest ---- */

static void break_off(struct tb_verbs_guest *g)
{
    if (g->told || g->state == ENDING) return;
    g->told = true;
    g->events->on_broken(g->user);
}

static void run_gone(struct tb_fabric_job *job)
{
    struct tb_verbs_guest *g = (struct tb_verbs_guest *)((char *)job - offsetof(struct tb_verbs_guest, gone));
    TB_ASSERT(g->ended && g->queue.nic == NULL); /* nothing reads the memory any more */
    const struct tb_verbs_guest_events *events = g->events;
    void *user = g->user;
    LIST_REMOVE(g, link);
    tb_free(g);
    events->on_gone(user);
}

static struct tb_verbs_guest *guest_with(struct tb_verbs_queue *q)
{
    return (struct tb_verbs_guest *)((char *)q - offsetof(struct tb_verbs_guest, queue));
}

static void on_ended(struct tb_verbs_queue *q)
{
    struct tb_verbs_guest *g = guest_with(q);
    g->ended = true;
    TB_ASSERT(g->state == ENDING);
    TB_ASSERT(g->rail == UINT32_MAX || g->v->rails.rails[g->rail].load > 0);
    if (g->rail != UINT32_MAX) g->v->rails.rails[g->rail].load--;
    if (g->export->verbs->jobs == 0) run_gone(&g->gone);
}

void tb_verbs_guest_end(struct tb_verbs_guest *g)
{
    if (g->state == ENDING) return;
    g->state = ENDING;
    tb_verbs_queue_end(&g->queue);
}

/* The one receive: flushed when the queue pair failed; anything else is a SEND, which no
 * reader of ours does. */
static void on_completion(struct tb_verbs_queue *q, const struct ibv_wc *wc)
{
    (void)wc;
    break_off(guest_with(q));
}

static void on_dead(struct tb_verbs_queue *q)
{
    break_off(guest_with(q));
}

static const struct tb_verbs_queue_ops queue_ops = {
    .on_completion = on_completion, .on_dead = on_dead, .on_ended = on_ended};

static void on_cm(struct tb_verbs_cm *cm, enum rdma_cm_event_type event, int status)
{
    (void)status;
    struct tb_verbs_guest *g = (struct tb_verbs_guest *)((char *)cm - offsetof(struct tb_verbs_guest, cm));
    if (g->state == CONNECTING && event == RDMA_CM_EVENT_ESTABLISHED) {
        g->state = IN;
    } else if (event != RDMA_CM_EVENT_TIMEWAIT_EXIT) {
        break_off(g); /* disconnected, refused, unreachable, the device removed */
    }
}

/* ---- coming in ---- */

enum tb_status tb_verbs_guest_open(struct tb_verbs *v, struct tb_export *export,
                                   const struct tb_verbs_guest_events *events, void *user,
                                   struct tb_verbs_guest **guest_out)
{
    if (export_prepare(v, export) != TB_OK) return TB_SITE_NOMEM;
    struct tb_verbs_guest *g = tb_calloc(1, sizeof *g);
    if (g == NULL) return TB_SITE_NOMEM;
    g->v = v;
    g->export = export;
    g->events = events;
    g->user = user;
    g->rail = UINT32_MAX;
    g->cm.on_event = on_cm;
    g->gone.run = run_gone;
    g->offered_at = tb_clock_now();
    tb_random_bytes(g->secret.bytes, sizeof g->secret.bytes);
    tb_verbs_queue_init(&g->queue, v, &queue_ops);
    LIST_INSERT_HEAD(&v->guests, g, link);
    *guest_out = g;
    return TB_OK;
}

const struct tb_id *tb_verbs_guest_secret(const struct tb_verbs_guest *g)
{
    return &g->secret;
}

/* Compares all bytes whatever they are: how long it takes says nothing about the secret. */
static bool is_secret(const struct tb_verbs_guest *g, const uint8_t *shown)
{
    uint8_t different = 0;
    for (size_t i = 0; i < sizeof g->secret.bytes; i++)
        different |= g->secret.bytes[i] ^ shown[i];
    return different == 0;
}

static struct tb_verbs_guest *guest_of(struct tb_verbs *v, const uint8_t *hello, uint32_t bytes)
{
    const uint64_t magic = TB_VERBS_MAGIC;
    if (bytes != TB_VERBS_HELLO || memcmp(hello, &magic, sizeof magic) != 0) return NULL;
    struct tb_verbs_guest *g;
    LIST_FOREACH(g, &v->guests, link)
    if (g->state == OFFERED && is_secret(g, hello + sizeof magic) &&
        tb_time_since(g->offered_at, tb_clock_now()) < CONNECT_WITHIN)
        return g;
    return NULL;
}

static uint32_t rail_of(const struct tb_verbs *v, struct rdma_cm_id *id)
{
    struct tb_rail_address at;
    if (!tb_verbs_address_from(rdma_get_local_addr(id), &at)) return UINT32_MAX;
    for (uint32_t i = 0; i < v->rails.count; i++)
        if (memcmp(&v->rails.rails[i].address, &at, sizeof at) == 0) return i;
    return UINT32_MAX;
}

/* Posted while the queue pair is new: nothing can fail in the moment when it has to be drained. */
static bool post_marker(struct tb_verbs_queue *q)
{
    TB_ASSERT(q->posted == 0);
    struct ibv_recv_wr marker = {.wr_id = 0}, *bad;
    if (ibv_post_recv(q->id->qp, &marker, &bad) != 0) return false;
    tb_verbs_queue_posted(q, 1);
    return true;
}

/* False: the id is still the caller's to destroy. */
static bool come_in(struct tb_verbs_guest *g, struct rdma_cm_id *id, uint32_t reads)
{
    TB_ASSERT(g->state == OFFERED && g->rail == UINT32_MAX && g->domain == NULL);
    struct tb_verbs_nic *nic = tb_verbs_nic_of(g->v, id->verbs);
    if (nic == NULL) return false;
    g->domain = domain_open(g->export->verbs, nic);
    if (g->domain == NULL) return false;
    if (tb_verbs_queue_open(&g->queue, nic, id, g->domain->kept->pd, 0) != TB_OK) return false;
    id->context = &g->cm;
    g->state = CONNECTING;
    g->rail = rail_of(g->v, id);
    if (g->rail != UINT32_MAX) g->v->rails.rails[g->rail].load++;
    const uint32_t most = (uint32_t)nic->attr.max_qp_rd_atom;
    struct rdma_conn_param param = {.responder_resources = (uint8_t)(reads < most ? reads : most),
                                    .rnr_retry_count = 7};
    if (!post_marker(&g->queue) || rdma_accept(id, &param) != 0) break_off(g); /* and the end takes the id */
    return true;
}

void tb_verbs_guest_knocks(struct tb_verbs *v, struct rdma_cm_id *id, const uint8_t *hello, uint32_t bytes,
                           uint32_t reads)
{
    struct tb_verbs_guest *g = guest_of(v, hello, bytes);
    id->context = NULL;
    if (g != NULL && come_in(g, id, reads)) return;
    const struct tb_log_party before = tb_log_party_set((struct tb_log_party){.stranger = "rdma"});
    tb_log(TB_LOG_WARN, "door.refused", "door=verbs status=%s reason=%s",
           tb_status_name(g == NULL ? TB_PEER_TOKEN : TB_SITE_IO),
           g == NULL ? "\"the secret opens nothing\"" : "\"no queue pair can be made\"");
    (void)tb_log_party_set(before);
    (void)rdma_reject(id, NULL, 0);
    (void)rdma_destroy_id(id);
}
