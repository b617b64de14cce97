/* upstream_reads.c - READs in flight over a queue pair: where each lands, how many are posted at
 * once, when one is told.
 *
 * A READ is told when every work request of it has completed (P1). Bytes that go elsewhere than
 * into the places (bitmap words, encoded chunks) land in `bounce` and are copied. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "intra/verbs/upstream_inside.h"

#define CHAIN_MAX 16u /* rung in with one bell */
#define NO_BOUNCE UINT8_MAX

static int by_buffer(const void *a, const void *b)
{
    const uint32_t x = ((const struct tb_verbs_remote *)a)->buffer,
                   y = ((const struct tb_verbs_remote *)b)->buffer;
    return x < y ? -1 : x > y;
}

static const struct tb_verbs_remote *remote_of(const struct tb_verbs_upstream *u, uint32_t buffer)
{
    const struct tb_verbs_remote key = {.buffer = buffer};
    return bsearch(&key, u->remotes, u->remote_count, sizeof *u->remotes, by_buffer);
}

static bool run_reached(const struct tb_verbs_upstream *u, const struct tb_source_run *run)
{
    const struct tb_verbs_remote *r = remote_of(u, run->buffer);
    return r != NULL && r->reachable && run->offset <= r->count && run->bytes <= r->count - run->offset;
}

bool tb_verbs_reached(const struct tb_verbs_upstream *u, const struct tb_read *read)
{
    if (u->state != TB_VERBS_OPEN) return false;
    for (uint32_t done = 0; done < read->bytes;) {
        const struct tb_source_run run = tb_transport_read_run(read, done);
        if (!run_reached(u, &run)) return false;
        done += (uint32_t)run.bytes;
    }
    return true;
}

static const struct tb_verbs_target *target_of(const struct tb_verbs_upstream *u, const uint8_t *to)
{
    for (uint32_t i = 0; i < u->target_count; i++) {
        const struct tb_place *p = u->targets[i].place;
        if (u->targets[i].region == NULL) continue; /* its pages come and go, or the NIC reaches none */
        const uint64_t bytes = p->far != NULL ? p->far->bytes : p->manifest->bytes;
        if (to >= p->bytes && to < p->bytes + bytes) return &u->targets[i];
    }
    return NULL;
}

bool tb_verbs_writes_far(const struct tb_upstream *upstream, const struct tb_read *read)
{
    const struct tb_verbs_upstream *u = (const struct tb_verbs_upstream *)upstream;
    return tb_verbs_reached(u, read) && target_of(u, read->to) != NULL;
}

/* Where the next work request's bytes land. False: it has to wait for a bounce. */
static bool aim(struct tb_verbs_upstream *u, struct tb_verbs_posted_read *post, struct ibv_sge *sge)
{
    const struct tb_verbs_target *target = target_of(u, post->to);
    post->bounce = NO_BOUNCE;
    if (target != NULL) {
        sge->addr = target->region->region.address + (uint64_t)(post->to - target->place->bytes);
        sge->lkey = target->region->region.mr->lkey;
        return true;
    }
    const uint32_t idle = ~u->bounce_busy & ((1u << TB_VERBS_BOUNCES) - 1);
    if (idle == 0) return false;
    TB_ASSERT(u->bounce_region != NULL);
    post->bounce = (uint8_t)__builtin_ctz(idle);
    u->bounce_busy |= 1u << post->bounce;
    if (sge->length > TB_VERBS_BOUNCE_BYTES) sge->length = TB_VERBS_BOUNCE_BYTES;
    sge->addr = (uint64_t)(uintptr_t)(u->bounce + (size_t)post->bounce * TB_VERBS_BOUNCE_BYTES);
    sge->lkey = u->bounce_region->region.mr->lkey;
    return true;
}

struct chain {
    struct ibv_send_wr wrs[CHAIN_MAX];
    struct ibv_sge sges[CHAIN_MAX];
    uint32_t count;
};

/* Adds the next stretch of the list's first READ. False: nothing may be posted now. */
static bool chain_add(struct tb_verbs_upstream *u, struct chain *c, struct tb_verbs_read_list *list,
                      bool words)
{
    struct tb_read *read = list->first;
    const uint32_t out = u->queue.posted + c->count;
    if (read == NULL || c->count == CHAIN_MAX || out >= TB_VERBS_READS_MAX) return false;
    const struct tb_source_run run = tb_transport_read_run(read, read->asked);
    const uint32_t want = words ? (uint32_t)run.bytes
                                : tb_read_window_next(&u->window, u->posted_bytes, out, (uint32_t)run.bytes);
    struct tb_verbs_posted_read *post = &u->posted[u->post_at];
    struct ibv_sge *sge = &c->sges[c->count];
    *post = (struct tb_verbs_posted_read){.read = read, .to = read->to + read->asked};
    sge->length = want;
    if (want == 0 || !aim(u, post, sge)) return false;
    const struct tb_verbs_remote *r = remote_of(u, run.buffer);
    TB_ASSERT(r != NULL && r->reachable); /* tb_verbs_reached said so */
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
    u->post_at = (u->post_at + 1) % TB_VERBS_READS_MAX;
    u->posted_bytes += sge->length;
    read->asked += sge->length;
    TB_ASSERT(read->asked <= read->bytes && u->posted_bytes >= sge->length);
    if (read->asked == read->bytes) list->first = read->next;
    return true;
}

/* Bitmap words first: they are few, and what they show is what comes next. */
static void pump(struct tb_verbs_upstream *u)
{
    struct ibv_send_wr *bad = NULL;
    if (u->queue.failed) tb_verbs_break_off(u, "the queue pair is in error");
    while (u->state == TB_VERBS_OPEN && !u->broken && !u->closing) {
        struct chain c = {.count = 0};
        while (chain_add(u, &c, &u->words, true) || chain_add(u, &c, &u->data, false))
            continue;
        if (c.count == 0) return;
        const int error = ibv_post_send(u->queue.id->qp, c.wrs, &bad);
        const uint32_t taken = error == 0 ? c.count : (uint32_t)(bad - c.wrs);
        tb_verbs_queue_posted(&u->queue, taken);
        if (error != 0) tb_verbs_break_off(u, "work requests were refused");
    }
}

void tb_verbs_take_read(struct tb_verbs_upstream *u, struct tb_read *read)
{
    TB_ASSERT(read->bytes > 0 && u->state == TB_VERBS_OPEN);
    struct tb_verbs_read_list *list = read->words ? &u->words : &u->data;
    read->next = NULL;
    read->asked = read->got = 0;
    if (list->first == NULL)
        list->first = read;
    else
        list->last->next = read;
    list->last = read;
    pump(u);
}

static void completed(struct tb_verbs_upstream *u, struct tb_verbs_posted_read *post)
{
    struct tb_read *read = post->read;
    const uint32_t bytes = post->sample.bytes;
    if (post->bounce != NO_BOUNCE) {
        memcpy(post->to, u->bounce + (size_t)post->bounce * TB_VERBS_BOUNCE_BYTES, bytes);
        u->bounce_busy &= ~(1u << post->bounce);
    }
    TB_ASSERT(bytes <= u->posted_bytes && bytes <= read->asked - read->got);
    u->posted_bytes -= bytes;
    tb_read_window_completed(&u->window, &post->sample, tb_clock_now());
    read->got += bytes;
    if (read->got == read->bytes) u->stream.events->on_read(u->stream.events_user, read);
}

void tb_verbs_on_completion(struct tb_verbs_queue *q, const struct ibv_wc *wc)
{
    struct tb_verbs_upstream *u = tb_verbs_with_queue(q);
    if (wc->status != IBV_WC_SUCCESS) {
        tb_verbs_break_off(u, ibv_wc_status_str(wc->status));
        return;
    }
    TB_ASSERT(wc->wr_id < TB_VERBS_READS_MAX);
    completed(u, &u->posted[wc->wr_id]);
    pump(u);
}
