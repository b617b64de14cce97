/* cuda_pass.c - the pass over a shard whose tensors stand on a device: batches of whole chunks go
 * by turns over the two lanes; while one is copied, the one before is digested, by the device where
 * it has the kernels, else by cores.
 *
 * Bytes touched per byte of the shard: written once over PCIe; on the device read once, and with
 * kernels written once and read twice more there. */

#include "base/assert.h"
#include "intra/cuda/cuda_lanes.h"
#include "intra/cuda/cuda_moves.h"

struct run {
    struct tb_gpu_memory *m;
    const struct tb_gpu_pass *pass;
    uint32_t tensor;                /* that has the packed byte that is copied next, or one before it */
    uint32_t next;                  /* chunk */
    bool on_device;                 /* the device digests; else: */
    uint8_t *bounce[TB_CUDA_LANES]; /* where chunks are digested that go nowhere */
};

static uint32_t tensors_of(const struct tb_layout *layout, const struct tb_chunk *c)
{
    TB_ASSERT(c->bytes > 0); /* it has a last byte */
    return tb_layout_tensor_at(layout, c->offset + c->bytes - 1) - tb_layout_tensor_at(layout, c->offset) + 1;
}

/* As many whole chunks as a lane carries, and lists. */
static struct tb_cuda_batch batch_next(void *user)
{
    struct run *run = user;
    const struct tb_manifest *m = run->pass->manifest;
    struct tb_cuda_batch b = {.first = run->next};
    uint64_t bytes = 0, tensors = 0;
    for (; run->next < m->chunk_count && b.count < TB_CUDA_BATCH_CHUNKS; run->next++, b.count++) {
        const struct tb_chunk *c = &m->chunks[run->next];
        bytes += c->bytes;
        tensors += run->on_device ? tensors_of(&m->layout, c) : 0;
        if (b.count > 0 && (bytes > TB_CUDA_BATCH_BYTES || tensors > TB_CUDA_MOVES_MAX)) break;
    }
    TB_ASSERT(b.count > 0 || run->next == m->chunk_count); /* else the rest would be passed over */
    return b;
}

static enum tb_status gather_rows(struct run *run, uint32_t lane, const struct tb_gpu_rows *rows)
{
    if (run->on_device && rows->rows == 1 && tb_cuda_is_tensors(run->m, rows->row.from))
        return tb_cuda_move_inside(run->m, lane, rows->row);
    return tb_cuda_copy_rows(run->m, lane, rows);
}

static enum tb_status gather(struct run *run, uint64_t offset, uint64_t bytes, uint32_t lane, uint8_t *to)
{
    TB_ASSERT(offset <= run->pass->manifest->bytes && bytes <= run->pass->manifest->bytes - offset);
    enum tb_status status = TB_OK;
    for (uint64_t done = 0; done < bytes && status == TB_OK;) {
        const struct tb_stretch_rows rows =
            tb_spread_rows_at(&run->pass->from, offset + done, bytes - done, &run->tensor);
        const struct tb_gpu_rows copy = {.row = {to + done, rows.at, rows.bytes},
                                         .rows = rows.rows,
                                         .to_stride = rows.bytes,
                                         .from_stride = rows.stride};
        /* Blobs stand already where the shard lands. */
        if (rows.at != to + done) status = gather_rows(run, lane, &copy);
        TB_ASSERT(rows.bytes * rows.rows > 0 && rows.bytes * rows.rows <= bytes - done);
        done += rows.bytes * rows.rows;
    }
    return status;
}

/* ---- digested by cores, where it lands ---- */

static uint8_t *landing_place(const struct run *run, const struct tb_cuda_batch *b, uint32_t lane)
{
    TB_ASSERT(b->count > 0 && (run->pass->to != NULL || run->bounce[lane] != NULL));
    return run->pass->to != NULL ? run->pass->to + run->pass->manifest->chunks[b->first].offset
                                 : run->bounce[lane];
}

static enum tb_status landing_begin(struct run *run, const struct tb_cuda_batch *b, uint32_t lane)
{
    TB_ASSERT(b->count > 0 && b->first + b->count <= run->pass->manifest->chunk_count);
    const struct tb_chunk *first = &run->pass->manifest->chunks[b->first], *last = first + b->count - 1;
    const uint64_t bytes = last->offset + last->bytes - first->offset;
    TB_ASSERT(run->pass->to != NULL || bytes <= TB_CUDA_BATCH_BYTES); /* as many as `bounce` has */
    return gather(run, first->offset, bytes, lane, landing_place(run, b, lane));
}

static void landing_end(struct run *run, const struct tb_cuda_batch *b, uint32_t lane)
{
    run->pass->landed(run->pass->user, b->first, b->count, landing_place(run, b, lane));
}

/* ---- digested by the device ---- */

/* First to one piece of the device's memory, and from there to both the digest and the host: so
 * both are of the same bytes. */
static enum tb_status gather_all(struct run *run, const struct tb_cuda_batch *b, uint32_t lane)
{
    uint8_t *at = (uint8_t *)(uintptr_t)run->m->lanes[lane].chunks;
    enum tb_status status = TB_OK;
    for (uint32_t i = 0; i < b->count && status == TB_OK; i++) {
        const struct tb_chunk *c = &run->pass->manifest->chunks[b->first + i];
        status = gather(run, c->offset, c->bytes, lane, at);
        at += tb_cuda_aligned(c->bytes);
    }
    return status == TB_OK ? tb_cuda_moves_run(run->m, lane) : status;
}

static enum tb_status chunk_begin(struct run *run, const struct tb_cuda_batch *b, uint32_t i, uint32_t lane,
                                  uint8_t *on_device)
{
    TB_ASSERT(i < TB_CUDA_BATCH_CHUNKS && b->first + i < run->pass->manifest->chunk_count);
    const struct tb_chunk *c = &run->pass->manifest->chunks[b->first + i];
    struct tb_cuda_slate *host = run->m->lanes[lane].host;
    struct tb_cuda_slate *slate = (struct tb_cuda_slate *)(uintptr_t)run->m->lanes[lane].slate;
    enum tb_status status = TB_OK;
    const bool is_small = c->bytes < TB_KERNEL_DIGEST_MIN;
    host->jobs[i] = (struct tb_digest_job){
        .bytes = on_device, .count = is_small ? 0 : c->bytes, .digest = slate->digests[i].bytes};
    if (is_small)
        status = tb_cuda_copy(run->m, lane, (struct tb_gpu_move){host->small[i], on_device, c->bytes});
    return status;
}

/* Chunks that stand side by side, here and there, go to the host as one: each copy costs the bus
 * some microseconds. */
static enum tb_status bring_down(struct run *run, const struct tb_cuda_batch *b, uint32_t lane)
{
    const uint8_t *at = (const uint8_t *)(uintptr_t)run->m->lanes[lane].chunks;
    const struct tb_chunk *chunks = &run->pass->manifest->chunks[b->first];
    enum tb_status status = TB_OK;
    for (uint32_t i = 0; i < b->count && status == TB_OK;) {
        uint8_t *to = run->pass->to + chunks[i].offset;
        uint64_t bytes = chunks[i++].bytes;
        while (i < b->count && bytes % TB_CUDA_CHUNK_ALIGN == 0 &&
               run->pass->to + chunks[i].offset == to + bytes)
            bytes += chunks[i++].bytes;
        status = tb_cuda_copy(run->m, lane, (struct tb_gpu_move){to, at, bytes});
        at += tb_cuda_aligned(bytes);
    }
    return status;
}

static enum tb_status device_begin(struct run *run, const struct tb_cuda_batch *b, uint32_t lane)
{
    uint8_t *at = (uint8_t *)(uintptr_t)run->m->lanes[lane].chunks;
    enum tb_status status = gather_all(run, b, lane);
    for (uint32_t i = 0; i < b->count && status == TB_OK; i++) {
        status = chunk_begin(run, b, i, lane, at);
        at += tb_cuda_aligned(run->pass->manifest->chunks[b->first + i].bytes);
    }
    if (status == TB_OK && run->pass->to != NULL) status = bring_down(run, b, lane);
    return status == TB_OK ? tb_cuda_digest(run->m, lane, b->count) : status;
}

static void device_end(struct run *run, const struct tb_cuda_batch *b, uint32_t lane)
{
    TB_ASSERT(b->first + b->count <= run->pass->manifest->chunk_count);
    const struct tb_cuda_slate *host = run->m->lanes[lane].host;
    for (uint32_t i = 0; i < b->count; i++) {
        if (host->jobs[i].count > 0)
            run->pass->digests[b->first + i] = host->digests[i];
        else
            run->pass->landed(run->pass->user, b->first + i, 1, host->small[i]);
    }
}

/* ---- batches ---- */

static enum tb_status batch_begin(void *user, const struct tb_cuda_batch *b, uint32_t lane)
{
    struct run *run = user;
    return run->on_device ? device_begin(run, b, lane) : landing_begin(run, b, lane);
}

static void batch_end(void *user, const struct tb_cuda_batch *b, uint32_t lane)
{
    struct run *run = user;
    if (run->on_device)
        device_end(run, b, lane);
    else
        landing_end(run, b, lane);
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
    TB_ASSERT(pass->landed != NULL && pass->digests != NULL);
    static const struct tb_cuda_turns turns = {batch_next, batch_begin, batch_end};
    struct run run = {.m = m, .pass = pass};
    enum tb_status status = tb_cuda_job_begin(m);
    if (status != TB_OK) return status;
    run.on_device = tb_cuda_may_digest(m);
    if (pass->to == NULL && !run.on_device) status = new_bounce(&run);
    if (status == TB_OK) status = tb_cuda_by_turns(m, &turns, &run);
    /* The lanes are waited for first when it failed: a copy may still write there. */
    for (uint32_t i = 0; status != TB_OK && i < TB_CUDA_LANES; i++)
        (void)m->gpu->driver.stream_synchronize(m->lanes[i].stream);
    TB_ASSERT(status != TB_OK || run.next == pass->manifest->chunk_count);
    free_bounce(&run);
    return tb_cuda_job_end(m, status);
}
