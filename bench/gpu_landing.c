#include "bench/gpu_landing.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/codec/sparse.h"
#include "bench/measured.h"
#include "intra/cuda_part_deltas.h"
#include "intra/cuda_part_stage.h"

#define CLASSES 8u

/* A chunk that the device has. */
struct landing_chunk {
    union {
        struct tb_gpu_landing whole;
        struct tb_gpu_proof delta;
    } asked; /* the first member */
    struct gpu_landing *landing;
    uint32_t i;
};

struct gpu_landing {
    struct real_device *real;
    struct tb_gpu_memory *memory;
    struct tb_gpu_stage *stage;   /* NULL until a version is staged */
    struct tb_gpu_proofs *proofs; /* of this round */
    struct landing_chunk *asked;
    atomic_uint answered;
    uint8_t *tensor;
    uint64_t bytes;
    uint32_t chunks;
    uint8_t *version, *forms; /* of the host; a form has the place of its chunk */
    struct tb_gpu_piece *bases;
    struct tb_gpu_new_delta *deltas;
    struct tb_digest *truth;
    void (*land)(struct gpu_landing *l, uint32_t i); /* of this round */
    atomic_uint next;
    pthread_barrier_t barrier;
};

static uint64_t place_of(uint32_t i)
{
    return i * GPU_LANDING_CHUNK_BYTES;
}

static void check(const struct gpu_landing *l, uint32_t i, const struct tb_digest *got)
{
    if (!tb_digest_equal(got, &l->truth[i])) measured_end("a chunk that landed has the wrong digest");
}

/* ---- one chunk, by one of the threads; as a hop's ---- */

static void on_staged(struct tb_gpu_ask *ask, enum tb_status status)
{
    const struct landing_chunk *c = (const struct landing_chunk *)ask;
    struct gpu_landing *l = c->landing;
    if (status != TB_OK) measured_end("a chunk was not staged");
    check(l, c->i, &c->asked.whole.digest);
    tb_gpu_stage_give(l->stage, (uint8_t *)(uintptr_t)c->asked.whole.from);
    atomic_fetch_add(&l->answered, 1);
}

static void stage_chunk(struct gpu_landing *l, uint32_t i)
{
    struct landing_chunk *c = &l->asked[i];
    uint8_t *lent;
    while ((lent = tb_gpu_stage_lend(l->stage, (uint32_t)GPU_LANDING_CHUNK_BYTES)) == NULL)
        sched_yield(); /* a hop asks for no more than the ring takes */
    memcpy(lent, l->version + place_of(i), GPU_LANDING_CHUNK_BYTES);
    *c = (struct landing_chunk){.landing = l, .i = i};
    c->asked.whole = (struct tb_gpu_landing){.asked.answer = on_staged,
                                             .at = tb_gpu_stage_base(l->stage) + place_of(i),
                                             .bytes = (uint32_t)GPU_LANDING_CHUNK_BYTES,
                                             .from = lent};
    tb_gpu_stage_take(l->stage, &c->asked.whole);
}

static void on_proven(struct tb_gpu_ask *ask, enum tb_status status)
{
    const struct landing_chunk *c = (const struct landing_chunk *)ask;
    if (status != TB_OK) measured_end("a delta was not proven");
    if (!c->asked.delta.delta.patched) measured_end("a delta was refused");
    check(c->landing, c->i, &c->asked.delta.delta.digest);
    atomic_fetch_add(&c->landing->answered, 1);
}

static void prove_chunk(struct gpu_landing *l, uint32_t i)
{
    struct landing_chunk *c = &l->asked[i];
    *c = (struct landing_chunk){.landing = l, .i = i};
    c->asked.delta = (struct tb_gpu_proof){.asked.answer = on_proven,
                                           .delta = {.pieces = &l->bases[i],
                                                     .piece_count = 1,
                                                     .bytes = (uint32_t)GPU_LANDING_CHUNK_BYTES,
                                                     .form_bytes = l->deltas[i].form_bytes,
                                                     .form = l->deltas[i].form}};
    tb_gpu_proofs_ask(l->proofs, &c->asked.delta);
}

/* ---- a round: all chunks, by all threads ---- */

static void *take_chunks(void *user)
{
    struct gpu_landing *l = user;
    (void)pthread_barrier_wait(&l->barrier);
    for (uint32_t i = atomic_fetch_add(&l->next, 1); i < l->chunks; i = atomic_fetch_add(&l->next, 1))
        l->land(l, i);
    (void)pthread_barrier_wait(&l->barrier);
    return NULL;
}

static double land_all(struct gpu_landing *l, void (*land)(struct gpu_landing *l, uint32_t i))
{
    pthread_t threads[GPU_LANDING_THREADS];
    l->land = land;
    atomic_store(&l->next, 0);
    atomic_store(&l->answered, 0);
    for (uint32_t t = 0; t < GPU_LANDING_THREADS; t++)
        if (pthread_create(&threads[t], NULL, take_chunks, l) != 0) measured_end("no thread");
    (void)pthread_barrier_wait(&l->barrier);
    const double began = measured_now_s();
    (void)pthread_barrier_wait(&l->barrier);
    while (atomic_load(&l->answered) < l->chunks)
        sched_yield();
    const double took = measured_now_s() - began;
    for (uint32_t t = 0; t < GPU_LANDING_THREADS; t++)
        (void)pthread_join(threads[t], NULL);
    return took;
}

double gpu_landing_stage(struct gpu_landing *l)
{
    char why[TB_GPU_WHY_BYTES];
    const struct tb_gpu_stage_size size = {l->bytes, (uint32_t)GPU_LANDING_CHUNK_BYTES};
    if (l->stage == NULL && tb_gpu_stage_open(l->memory, &size, &l->stage, why) != TB_OK) measured_end(why);
    return land_all(l, stage_chunk);
}

static bool holds(void *user)
{
    (void)user;
    return true;
}

static void over(void *user)
{
    (void)user;
}

double gpu_landing_prove(struct gpu_landing *l)
{
    const struct tb_gpu_proofs_user user = {holds, over, NULL};
    if (tb_gpu_proofs_open(l->memory, &user, l->bytes / 16, &l->proofs) != TB_OK) measured_end("no proofs");
    const double took = land_all(l, prove_chunk);
    tb_gpu_proofs_close(l->proofs);
    return took;
}

/* ---- what lands ---- */

void gpu_landing_fill(struct gpu_landing *l, const uint8_t *version)
{
    memcpy(l->version, version, l->bytes);
    for (uint32_t i = 0; i < l->chunks; i++)
        l->truth[i] = tb_digest_of(l->version + place_of(i), GPU_LANDING_CHUNK_BYTES);
}

void gpu_landing_encode(struct gpu_landing *l, const void *base)
{
    real_device_copy(l->real, l->tensor, base, l->bytes);
    for (uint32_t i = 0; i < l->chunks; i++) {
        l->bases[i] = (struct tb_gpu_piece){l->tensor + place_of(i), GPU_LANDING_CHUNK_BYTES};
        l->deltas[i] = (struct tb_gpu_new_delta){.pieces = &l->bases[i],
                                                 .piece_count = 1,
                                                 .bytes = GPU_LANDING_CHUNK_BYTES,
                                                 .chunk = l->version + place_of(i),
                                                 .kind = tb_sparse_kind_of(TB_DTYPE_BF16),
                                                 .classes = CLASSES,
                                                 .form = l->forms + place_of(i)};
    }
    if (tb_gpu_encode(l->memory, l->deltas, l->chunks) != TB_OK) measured_end("a version was not encoded");
    for (uint32_t i = 0; i < l->chunks; i++)
        if (l->deltas[i].form_bytes == 0) measured_end("a chunk has no delta");
}

struct gpu_landing *gpu_landing_new(struct real_device *real, struct tb_gpu_memory *memory, uint8_t *tensor,
                                    uint64_t bytes)
{
    struct gpu_landing *l = measured_given(calloc(1, sizeof *l));
    l->real = real;
    l->memory = memory;
    l->tensor = tensor;
    l->bytes = bytes;
    l->chunks = (uint32_t)(bytes / GPU_LANDING_CHUNK_BYTES);
    l->version = measured_shared_memory(2 * bytes, 1);
    l->forms = l->version + bytes;
    l->bases = measured_given(calloc(l->chunks, sizeof *l->bases));
    l->deltas = measured_given(calloc(l->chunks, sizeof *l->deltas));
    l->truth = measured_given(calloc(l->chunks, sizeof *l->truth));
    l->asked = measured_given(calloc(l->chunks, sizeof *l->asked));
    if (pthread_barrier_init(&l->barrier, NULL, GPU_LANDING_THREADS + 1) != 0) measured_end("no barrier");
    return l;
}

void gpu_landing_free(struct gpu_landing *l)
{
    if (l == NULL) return;
    tb_gpu_stage_close(l->stage);
    (void)pthread_barrier_destroy(&l->barrier);
    (void)munmap(l->version, 2 * l->bytes);
    free(l->asked);
    free(l->bases);
    free(l->deltas);
    free(l->truth);
    free(l);
}
