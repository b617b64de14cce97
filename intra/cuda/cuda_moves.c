/* cuda_moves.c - ranges moved into and out of tensors: those that are small all at once, by a
 * kernel.
 *
 * The driver takes microseconds for a copy of any length, in which a GPU's memory moves megabytes;
 * a model of a hundred thousand small tensors would cost a hundred thousand of them. So what is
 * small and inside the device is listed, and one launch moves what a lane's list has; what comes
 * from host memory comes first in as few copies as it stands there, to the lane's scratch. */
#include "intra/cuda/cuda_moves.h"

#include "base/assert.h"
#include "intra/cuda/cuda_lanes.h"

/* So many small ones, or they are copied one by one: it costs the device
 * TB_CUDA_BATCH_BYTES for each lane. */
#define MANY 64u

/* A large one is listed in pieces where the kernel moves it in its widest words. A copy would wait,
 * in the engine that copies, for the lane beside it that goes over the bus. */
static bool has_place(const struct tb_cuda_lane *l, const struct tb_gpu_move *move)
{
    const uint64_t pieces = (move->bytes + TB_CUDA_MOVE_BYTES_MAX - 1) / TB_CUDA_MOVE_BYTES_MAX;
    const uint64_t apart = (uint64_t)(uintptr_t)move->from ^ (uint64_t)(uintptr_t)move->to;
    return pieces <= TB_CUDA_MOVES_MAX - l->moves_listed && (pieces == 1 || apart % 8 == 0);
}

enum tb_status tb_cuda_move_inside(struct tb_gpu_memory *m, uint32_t lane, struct tb_gpu_move move)
{
    TB_ASSERT(m->in_job && lane < TB_CUDA_LANES);
    struct tb_cuda_lane *l = &m->lanes[lane];
    if (move.bytes == 0) return TB_OK;
    if (l->host == NULL || !has_place(l, &move)) return tb_cuda_copy(m, lane, move);
    const uint8_t *from = move.from;
    uint8_t *to = move.to;
    for (uint64_t left = move.bytes; left > 0;) {
        const uint64_t count = left < TB_CUDA_MOVE_BYTES_MAX ? left : TB_CUDA_MOVE_BYTES_MAX;
        l->host->moves[l->moves_listed++] = (struct tb_move_job){.from = from, .to = to, .count = count};
        from += count;
        to += count;
        left -= count;
    }
    return TB_OK;
}

enum tb_status tb_cuda_moves_run(struct tb_gpu_memory *m, uint32_t lane)
{
    TB_ASSERT(m->lanes[lane].moves_run <= m->lanes[lane].moves_listed);
    TB_ASSERT(m->lanes[lane].moves_listed <= TB_CUDA_MOVES_MAX);
    struct tb_cuda_lane *l = &m->lanes[lane];
    const uint32_t first = l->moves_run, count = l->moves_listed - first;
    if (count == 0) return TB_OK;
    struct tb_cuda_slate *slate = (struct tb_cuda_slate *)(uintptr_t)l->slate;
    struct tb_move_job *jobs = &slate->moves[first];
    const enum tb_status status =
        tb_cuda_copy(m, lane, (struct tb_gpu_move){jobs, &l->host->moves[first], count * sizeof *jobs});
    l->moves_run = l->moves_listed;
    return status == TB_OK ? tb_cuda_run_kernel(m, lane, TB_CUDA_MOVE, jobs, count) : status;
}

enum tb_status tb_cuda_exchange(struct tb_gpu_memory *m, uint32_t lane, enum tb_cuda_way way,
                                const struct tb_gpu_piece *pieces, uint32_t count, uint8_t *whole)
{
    TB_ASSERT(m->in_job && lane < TB_CUDA_LANES && count > 0);
    TB_ASSERT(way == TB_CUDA_TO_TENSORS || way == TB_CUDA_FROM_TENSORS);
    enum tb_status status = TB_OK;
    for (uint32_t i = 0; i < count && status == TB_OK; i++) {
        const struct tb_gpu_piece *p = &pieces[i];
        status =
            tb_cuda_move_inside(m, lane,
                                way == TB_CUDA_TO_TENSORS ? (struct tb_gpu_move){p->at, whole, p->bytes}
                                                          : (struct tb_gpu_move){whole, p->at, p->bytes});
        whole += p->bytes;
    }
    return status;
}

/* ---- a list of moves ---- */

struct run {
    struct tb_gpu_memory *m;
    const struct tb_gpu_rows *moves;
    uint32_t count, next;
};

static bool is_small(const struct tb_gpu_memory *m, const struct tb_gpu_rows *r)
{
    return r->rows <= 1 && r->row.bytes <= TB_CUDA_MOVE_BYTES_MAX && tb_cuda_is_tensors(m, r->row.to);
}

static bool has_many(const struct tb_gpu_memory *m, const struct tb_gpu_rows *moves, uint32_t count)
{
    uint32_t small = 0;
    for (uint32_t i = 0; i < count && small < MANY; i++)
        small += is_small(m, &moves[i]);
    return small == MANY;
}

/* Counts the moves whose sources follow the first one's without a gap. */
static uint32_t follow(const struct run *run, uint32_t first, uint32_t end, uint64_t *bytes_out)
{
    TB_ASSERT(first < end && end <= run->count);
    uint32_t count = 0;
    for (*bytes_out = 0; first + count < end; count++) {
        const struct tb_gpu_rows *r = &run->moves[first + count];
        const uint8_t *next = (const uint8_t *)run->moves[first].row.from + *bytes_out;
        if (!is_small(run->m, r) || r->row.from != next) break;
        *bytes_out += r->row.bytes;
        TB_ASSERT(*bytes_out <= TB_CUDA_BATCH_BYTES);
    }
    return count;
}

static struct tb_cuda_batch batch_next(void *user)
{
    struct run *run = user;
    struct tb_cuda_batch b = {.first = run->next};
    uint64_t bytes = 0;
    for (; run->next < run->count && b.count < TB_CUDA_MOVES_MAX; run->next++, b.count++) {
        const struct tb_gpu_rows *r = &run->moves[run->next];
        const uint64_t more = is_small(run->m, r) ? tb_cuda_aligned(r->row.bytes) : 0;
        if (bytes + more > TB_CUDA_BATCH_BYTES) break;
        bytes += more;
    }
    TB_ASSERT(b.count > 0 || run->next == run->count); /* else the rest would not be moved */
    return b;
}

/* Small ones that stand side by side: from host memory they go up as one. */
static enum tb_status move_side_by_side(struct run *run, uint32_t lane, const struct tb_gpu_rows *first,
                                        uint32_t count, uint8_t *scratch, uint64_t bytes)
{
    TB_ASSERT(count > 0 && bytes <= TB_CUDA_BATCH_BYTES);
    const uint8_t *from = first->row.from;
    enum tb_status status = TB_OK;
    if (!tb_cuda_is_on_device(run->m, from)) {
        status = tb_cuda_copy(run->m, lane, (struct tb_gpu_move){scratch, from, bytes});
        from = scratch;
    }
    for (uint32_t i = 0; i < count && status == TB_OK; from += first[i++].row.bytes)
        status = tb_cuda_move_inside(run->m, lane,
                                     (struct tb_gpu_move){first[i].row.to, from, first[i].row.bytes});
    return status;
}

static enum tb_status batch_begin(void *user, const struct tb_cuda_batch *b, uint32_t lane)
{
    struct run *run = user;
    uint8_t *scratch = (uint8_t *)(uintptr_t)run->m->lanes[lane].chunks;
    const uint32_t end = b->first + b->count;
    TB_ASSERT(b->count > 0 && end <= run->count);
    enum tb_status status = TB_OK;
    for (uint32_t i = b->first; i < end && status == TB_OK;) {
        uint64_t bytes;
        const uint32_t count = follow(run, i, end, &bytes);
        if (count == 0) {
            status = tb_cuda_copy_rows(run->m, lane, &run->moves[i++]);
            continue;
        }
        status = move_side_by_side(run, lane, &run->moves[i], count, scratch, bytes);
        scratch += tb_cuda_aligned(bytes);
        i += count;
    }
    return status == TB_OK ? tb_cuda_moves_run(run->m, lane) : status;
}

static void batch_end(void *user, const struct tb_cuda_batch *b, uint32_t lane)
{
    (void)user, (void)b, (void)lane;
}

static enum tb_status move_one_by_one(struct tb_gpu_memory *m, const struct tb_gpu_rows *moves,
                                      uint32_t count)
{
    enum tb_status status = TB_OK;
    for (uint32_t i = 0; i < count && status == TB_OK; i++)
        status = tb_cuda_copy_rows(m, i % TB_CUDA_LANES, &moves[i]);
    for (uint32_t i = 0; i < TB_CUDA_LANES && status == TB_OK; i++)
        status = tb_cuda_mark(m, i);
    for (uint32_t i = 0; i < TB_CUDA_LANES && status == TB_OK; i++)
        status = tb_cuda_wait(m, i);
    return status;
}

enum tb_status tb_gpu_move(struct tb_gpu_memory *m, const struct tb_gpu_rows *moves, uint32_t count)
{
    static const struct tb_cuda_turns turns = {batch_next, batch_begin, batch_end};
    struct run run = {.m = m, .moves = moves, .count = count};
    enum tb_status status = tb_cuda_job_begin(m);
    if (status != TB_OK) return status;
    if (has_many(m, moves, count) && tb_cuda_may_digest(m))
        status = tb_cuda_by_turns(m, &turns, &run);
    else
        status = move_one_by_one(m, moves, count);
    TB_ASSERT(run.next == 0 || status != TB_OK || run.next == count); /* all by turns, or none */
    return tb_cuda_job_end(m, status);
}
