/* cuda_pass.c - the pass over a shard whose tensors stand on a device: batches of whole chunks go by turns over the two
 * lanes; while one is copied, the one before is digested.
 *
 * Bytes touched per byte of the shard: read once on the device, written once over PCIe. */

#include "intra/cuda/cuda_memory.h"

struct batch {
    uint32_t first, count;  /* chunks; 0: none */
    uint64_t offset, bytes; /* packed */
    uint8_t *host;          /* where they land */
};

struct run {
    struct tb_gpu_memory *m;
    const struct tb_gpu_pass *pass;
    uint32_t tensor;                /* that has the packed byte that is copied next, or one before it */
    uint32_t next;                  /* chunk */
    uint8_t *bounce[TB_CUDA_LANES]; /* where chunks are digested that go nowhere */
};

/* As many whole chunks as a lane carries. */
static struct batch batch_next(struct run *run, uint32_t lane)
{
    const struct tb_manifest *m = run->pass->manifest;
    struct batch b = {.first = run->next};
    for (; run->next < m->chunk_count; run->next++, b.count++) {
        const struct tb_chunk *c = &m->chunks[run->next];
        if (b.bytes + c->bytes > TB_CUDA_BATCH_BYTES) break;
        if (b.count == 0) b.offset = c->offset;
        b.bytes += c->bytes;
    }
    b.host = run->pass->to != NULL ? run->pass->to + b.offset : run->bounce[lane];
    return b;
}

/* The longest stretch of packed bytes from `offset` on that stands in one piece. */
static struct tb_gpu_move stretch_at(struct run *run, uint64_t offset, uint64_t most)
{
    const struct tb_layout *layout = &run->pass->manifest->layout;
    if (offset >= layout->bytes)
        return (struct tb_gpu_move){.from = run->pass->blobs + (offset - layout->bytes), .bytes = most};
    while (layout->tensors[run->tensor].offset + layout->tensors[run->tensor].bytes <= offset)
        run->tensor++;
    const struct tb_tensor *t = &layout->tensors[run->tensor];
    const uint64_t left = t->offset + t->bytes - offset;
    return (struct tb_gpu_move){.from = run->pass->tensors[run->tensor] + (offset - t->offset),
                                .bytes = left < most ? left : most};
}

static enum tb_status gather(struct run *run, const struct batch *b, uint32_t lane, uint8_t *to)
{
    enum tb_status status = TB_OK;
    for (uint64_t done = 0; done < b->bytes && status == TB_OK;) {
        struct tb_gpu_move move = stretch_at(run, b->offset + done, b->bytes - done);
        move.to = to + done;
        /* Blobs stand already where the shard lands. */
        if (move.to != move.from) status = tb_cuda_copy(run->m, lane, move);
        done += move.bytes;
    }
    return status;
}

static enum tb_status batch_begin(struct run *run, const struct batch *b, uint32_t lane)
{
    const enum tb_status status = gather(run, b, lane, b->host);
    return status == TB_OK ? tb_cuda_mark(run->m, lane) : status;
}

static enum tb_status batch_end(struct run *run, const struct batch *b, uint32_t lane)
{
    const enum tb_status status = tb_cuda_wait(run->m, lane);
    if (status == TB_OK) run->pass->landed(run->pass->user, b->first, b->count, b->host);
    return status;
}

static enum tb_status all_batches(struct run *run)
{
    enum tb_status status = TB_OK;
    struct batch before = {.count = 0};
    for (uint32_t lane = 0; status == TB_OK; lane = (lane + 1) % TB_CUDA_LANES) {
        const struct batch now = batch_next(run, lane);
        if (now.count > 0) status = batch_begin(run, &now, lane);
        if (before.count > 0 && status == TB_OK)
            status = batch_end(run, &before, (lane + TB_CUDA_LANES - 1) % TB_CUDA_LANES);
        if (now.count == 0) break;
        before = now;
    }
    return status;
}

static void free_bounce(struct run *run)
{
    for (uint32_t i = 0; i < TB_CUDA_LANES; i++) {
        const CUresult result =
            run->bounce[i] != NULL ? run->m->gpu->driver.host_free(run->bounce[i]) : CUDA_SUCCESS;
        if (result != CUDA_SUCCESS)
            (void)tb_cuda_failed(run->m->gpu, run->m->device, "cuMemFreeHost", result);
    }
}

static enum tb_status new_bounce(struct run *run)
{
    for (uint32_t i = 0; i < TB_CUDA_LANES; i++) {
        void *bytes = NULL;
        const CUresult result = run->m->gpu->driver.host_alloc(&bytes, TB_CUDA_BATCH_BYTES, 0);
        if (result != CUDA_SUCCESS)
            return tb_cuda_failed(run->m->gpu, run->m->device, "cuMemHostAlloc", result);
        run->bounce[i] = bytes;
    }
    return TB_OK;
}

enum tb_status tb_gpu_pass(struct tb_gpu_memory *m, const struct tb_gpu_pass *pass)
{
    struct run run = {.m = m, .pass = pass};
    enum tb_status status = tb_cuda_job_begin(m);
    if (status != TB_OK) return status;
    if (pass->to == NULL) status = new_bounce(&run);
    if (status == TB_OK) status = all_batches(&run);
    /* The lanes are waited for first when it failed: a copy may still write there. */
    for (uint32_t i = 0; status != TB_OK && i < TB_CUDA_LANES; i++)
        (void)m->gpu->driver.stream_synchronize(m->lanes[i].stream);
    free_bounce(&run);
    return tb_cuda_job_end(m, status);
}
