#include "unit/cuda/kernels_on_cores.h"

#include <stdlib.h>

#include "intra/cuda/kernel_words_c.h"

#include "intra/cuda/kernel_blake3.h"
#include "intra/cuda/kernel_digest.h"
#include "intra/cuda/kernel_encode.h"
#include "intra/cuda/kernel_move.h"
#include "intra/cuda/kernel_patch.h"

_Static_assert(sizeof(struct tb_sparse_scratch) == TB_KERNEL_SCRATCH_BYTES, "what hosts allocate a block");

enum kernel { DIGEST, BLAKE3, ENCODE, PATCH, MOVE };

struct block {
    enum kernel kernel;
    void *jobs;
    uint32_t count;
    union {
        struct tb_digest_shared digest;
        struct tb_blake3_shared blake3;
        struct tb_encode_shared encode;
        struct tb_patch_shared patch;
    } shared;
    struct tb_sparse_scratch *scratch;
};

struct thread {
    struct block *block;
    struct tb_block b;
    pthread_t thread;
};

static void *run_thread(void *user)
{
    struct thread *t = user;
    struct block *k = t->block;
    for (uint32_t i = 0; i < k->count; i++) {
        if (k->kernel == DIGEST)
            tb_kernel_digest(&t->b, &k->shared.digest, (struct tb_digest_job *)k->jobs + i);
        else if (k->kernel == BLAKE3)
            tb_kernel_blake3(&t->b, &k->shared.blake3, (struct tb_blake3_job *)k->jobs + i);
        else if (k->kernel == ENCODE)
            tb_kernel_encode(&t->b, &k->shared.encode, k->scratch, (struct tb_encode_job *)k->jobs + i);
        else if (k->kernel == MOVE)
            tb_kernel_move(&t->b, (const struct tb_move_job *)k->jobs + i);
        else
            tb_kernel_patch(&t->b, &k->shared.patch, k->scratch, (struct tb_patch_job *)k->jobs + i);
    }
    return NULL;
}

/* Of a warp: a block of 4 x n threads has n warps of 4, one of 32 x n has whole ones, and any other
 * is a warp. */
static uint32_t lanes_of(uint32_t threads)
{
    if (threads % 32 == 0) return 32;
    return threads % 4 == 0 ? 4 : threads;
}

static struct tb_c_warp *warps_new(uint32_t count, uint32_t lanes)
{
    struct tb_c_warp *warps = calloc(count, sizeof *warps);
    for (uint32_t i = 0; warps != NULL && i < count; i++)
        if (pthread_barrier_init(&warps[i].barrier, NULL, lanes) != 0) abort();
    return warps;
}

/* One block has all jobs, one behind the other: what one leaves in shared memory and scratch is
 * what the next finds. */
static void run(enum kernel kernel, void *jobs, uint32_t count, uint32_t threads)
{
    struct block *k = calloc(1, sizeof *k);
    struct thread *t = calloc(threads, sizeof *t);
    const uint32_t lanes = lanes_of(threads);
    struct tb_c_warp *warps = warps_new(threads / lanes, lanes);
    pthread_barrier_t barrier;
    if (k == NULL || warps == NULL || t == NULL || pthread_barrier_init(&barrier, NULL, threads) != 0)
        abort();
    *k = (struct block){.kernel = kernel, .jobs = jobs, .count = count};
    k->scratch = malloc(sizeof *k->scratch);
    if (k->scratch == NULL) abort();
    for (uint32_t i = 0; i < threads; i++) {
        t[i].block = k;
        t[i].b = (struct tb_block){i, threads, threads > 1 ? &barrier : NULL, lanes,
                                   lanes > 1 ? &warps[i / lanes] : NULL};
        if (i > 0 && pthread_create(&t[i].thread, NULL, run_thread, &t[i]) != 0) abort();
    }
    run_thread(&t[0]);
    for (uint32_t i = 1; i < threads; i++)
        (void)pthread_join(t[i].thread, NULL);
    pthread_barrier_destroy(&barrier);
    for (uint32_t i = 0; i < threads / lanes; i++)
        pthread_barrier_destroy(&warps[i].barrier);
    free(warps);
    free(k->scratch);
    free(t);
    free(k);
}

void cores_digest(struct tb_digest_job *jobs, uint32_t count, uint32_t threads)
{
    run(DIGEST, jobs, count, threads);
}

void cores_blake3(struct tb_blake3_job *jobs, uint32_t count, uint32_t threads)
{
    run(BLAKE3, jobs, count, threads);
}

void cores_encode(struct tb_encode_job *jobs, uint32_t count, uint32_t threads)
{
    run(ENCODE, jobs, count, threads);
}

void cores_patch(struct tb_patch_job *jobs, uint32_t count, uint32_t threads)
{
    run(PATCH, jobs, count, threads);
}

void cores_move(struct tb_move_job *jobs, uint32_t count, uint32_t threads)
{
    run(MOVE, jobs, count, threads);
}
