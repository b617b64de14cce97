/* cuda_proofs.c - deltas are proven as they land: the device decodes each beside the tensors that
 * it is against, and digests the result, which goes. The delta stays near the device until the
 * switch: in device memory up to a budget, then in pinned memory, which the device reads over the
 * bus.
 *
 * Bytes touched per byte of a chunk, on the device: gathered (read and written once), patched and
 * digested there. */
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "intra/cuda/cuda_deltas.h"
#include "intra/cuda/cuda_queue.h"

#define SHELF_BYTES ((uint64_t)32 << 20) /* at least, of one */
#define SHELVES_MAX 64u
/* Batches of a burst: a switch waits for one, 10 ms at most. */
#define BURST_MAX 8u

/* Memory that kept deltas fill from its beginning. */
struct shelf {
    CUdeviceptr device; /* 0: it is pinned */
    uint8_t *pinned;
    uint64_t bytes, used;
};

struct tb_gpu_proofs {
    struct tb_gpu_memory *m;
    struct tb_gpu_proofs_user user;
    struct tb_cuda_queue *queue;
    struct tb_cuda_load load; /* of the batch that is gathered */
    struct tb_cuda_deltas on[TB_CUDA_LANES];
    struct shelf shelves[SHELVES_MAX]; /* the queue's thread's */
    uint32_t shelf_count;
    uint64_t keep_bytes; /* that the device may still give */
    bool no_pinned;      /* the driver gives no more */
    _Atomic uint64_t device_bytes, pinned_bytes;
};

/* ---- where deltas stay ---- */

static struct shelf *last_shelf(struct tb_gpu_proofs *p, bool is_device)
{
    for (uint32_t i = p->shelf_count; i-- > 0;)
        if ((p->shelves[i].device != 0) == is_device) return &p->shelves[i];
    return NULL;
}

/* In a job. NULL: not there. That there is no room is no fault: the next place is taken. */
static struct shelf *new_shelf(struct tb_gpu_proofs *p, uint64_t bytes, bool is_device)
{
    const struct tb_cuda_driver *cu = &p->m->gpu->driver;
    struct shelf s = {.bytes = bytes > SHELF_BYTES ? bytes : SHELF_BYTES};
    void *pinned = NULL;
    if (p->shelf_count == SHELVES_MAX) return NULL;
    if (is_device && s.bytes > p->keep_bytes) return NULL;
    if (is_device && cu->mem_alloc(&s.device, (size_t)s.bytes) != CUDA_SUCCESS) {
        p->keep_bytes = 0;
        return NULL;
    }
    if (!is_device && (p->no_pinned || cu->host_alloc(&pinned, (size_t)s.bytes, 0) != CUDA_SUCCESS)) {
        p->no_pinned = true;
        return NULL;
    }
    s.pinned = pinned;
    if (is_device) p->keep_bytes -= s.bytes;
    atomic_fetch_add(is_device ? &p->device_bytes : &p->pinned_bytes, s.bytes);
    p->shelves[p->shelf_count] = s;
    return &p->shelves[p->shelf_count++];
}

static struct shelf *shelf_for(struct tb_gpu_proofs *p, uint64_t bytes, bool is_device)
{
    struct shelf *s = last_shelf(p, is_device);
    if (s == NULL || s->bytes - s->used < bytes) s = new_shelf(p, bytes, is_device);
    if (s == NULL) return NULL;
    s->used += bytes;
    TB_ASSERT(s->used <= s->bytes);
    return s;
}

/* In pinned memory the device reads them where they are. */
static void keep_pinned(struct tb_cuda_deltas *b, struct shelf *s, uint64_t bytes)
{
    uint8_t *at = s->pinned + s->used - bytes;
    for (uint32_t i = 0; i < b->count; i++) {
        memcpy(at, b->list[i]->form, b->list[i]->form_bytes);
        b->list[i]->kept = at;
        at += tb_cuda_aligned(b->list[i]->form_bytes);
    }
}

/* Without room for it a delta stays where it came: its owner keeps a copy. */
static void find_keep(struct tb_gpu_proofs *p, struct tb_cuda_deltas *b)
{
    const uint64_t bytes = tb_cuda_forms_bytes(b);
    struct shelf *s = shelf_for(p, bytes, true);
    if (s != NULL) {
        b->keep = (uint8_t *)(uintptr_t)s->device + s->used - bytes;
        return;
    }
    s = shelf_for(p, bytes, false);
    if (s != NULL) keep_pinned(b, s, bytes);
}

static void free_shelves(struct tb_gpu_proofs *p)
{
    const struct tb_cuda_driver *cu = &p->m->gpu->driver;
    if (p->shelf_count == 0 || tb_cuda_enter(p->m->gpu, p->m->device) != TB_OK) return;
    for (uint32_t i = 0; i < p->shelf_count; i++) {
        const struct shelf *s = &p->shelves[i];
        const CUresult result = s->device != 0 ? cu->mem_free(s->device) : cu->host_free(s->pinned);
        if (result != CUDA_SUCCESS)
            (void)tb_cuda_failed(p->m->gpu, p->m->device, s->device != 0 ? "cuMemFree" : "cuMemFreeHost",
                                 result);
    }
    tb_cuda_leave(p->m->gpu);
}

/* ---- batches ---- */

static enum tb_status open_burst(void *user)
{
    struct tb_gpu_proofs *p = user;
    return p->user.open(p->user.user) ? TB_OK : TB_BAD_STATE;
}

static void close_burst(void *user, enum tb_status status)
{
    struct tb_gpu_proofs *p = user;
    (void)status;
    p->user.close(p->user.user);
}

static bool fits(void *user, const struct tb_gpu_ask *ask, bool first)
{
    struct tb_gpu_proofs *p = user;
    if (first) p->load = (struct tb_cuda_load){.count = 0};
    return tb_cuda_load_add(p->m, &p->load, &((const struct tb_gpu_proof *)ask)->delta, false);
}

static enum tb_status begin_batch(void *user, struct tb_gpu_ask *first, uint32_t count, uint32_t lane)
{
    struct tb_gpu_proofs *p = user;
    struct tb_cuda_deltas *on = &p->on[lane];
    *on = (struct tb_cuda_deltas){.count = 0};
    for (struct tb_gpu_ask *a = first; a != NULL; a = a->next)
        on->list[on->count++] = &((struct tb_gpu_proof *)a)->delta;
    TB_ASSERT(on->count == count);
    find_keep(p, on);
    return tb_cuda_deltas_begin(p->m, lane, on);
}

static void end_batch(void *user, struct tb_gpu_ask *first, uint32_t count, uint32_t lane)
{
    struct tb_gpu_proofs *p = user;
    (void)first;
    TB_ASSERT(p->on[lane].count == count);
    tb_cuda_deltas_end(p->m, lane, &p->on[lane]);
}

void tb_gpu_proofs_ask(struct tb_gpu_proofs *p, struct tb_gpu_proof *proof)
{
    TB_ASSERT(proof->delta.kept == NULL && proof->delta.form_bytes < proof->delta.bytes);
    tb_cuda_queue_ask(p->queue, &proof->asked);
}

void tb_gpu_proofs_facts(struct tb_gpu_proofs *p, struct tb_gpu_proofs_facts *facts_out)
{
    *facts_out = (struct tb_gpu_proofs_facts){.device_bytes = atomic_load(&p->device_bytes),
                                              .pinned_bytes = atomic_load(&p->pinned_bytes),
                                              .queue = tb_cuda_queue_counts(p->queue)};
}

/* ---- beginning and end ---- */

enum tb_status tb_gpu_proofs_open(struct tb_gpu_memory *m, const struct tb_gpu_proofs_user *user,
                                  uint64_t keep_bytes, struct tb_gpu_proofs **proofs_out)
{
    TB_ASSERT(user->open != NULL && user->close != NULL && m->device->module != NULL);
    struct tb_gpu_proofs *p = tb_calloc(1, sizeof *p);
    if (p == NULL) return TB_SITE_NOMEM;
    p->m = m;
    p->user = *user;
    p->keep_bytes = keep_bytes;
    const struct tb_cuda_queue_user of_queue = {.open = open_burst,
                                                .close = close_burst,
                                                .fits = fits,
                                                .begin = begin_batch,
                                                .end = end_batch,
                                                .patches = true,
                                                .burst_max = BURST_MAX,
                                                .user = p};
    const enum tb_status status = tb_cuda_queue_new(m, &of_queue, &p->queue);
    if (status != TB_OK) {
        tb_free(p);
        return status;
    }
    *proofs_out = p;
    return TB_OK;
}

void tb_gpu_proofs_close(struct tb_gpu_proofs *p)
{
    if (p == NULL) return;
    tb_cuda_queue_free(p->queue);
    free_shelves(p);
    tb_free(p);
}
