#include "unit/cuda/gpu_asks.h"

#include <stdlib.h>

#include "unit/check.h"

void gpu_asks_init(struct gpu_asks *a)
{
    *a = (struct gpu_asks){.status = TB_OK};
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->answered, NULL);
}

static void answered(struct gpu_asks *a, enum tb_status status)
{
    pthread_mutex_lock(&a->lock);
    a->count++;
    if (a->status == TB_OK) a->status = status;
    pthread_cond_broadcast(&a->answered);
    pthread_mutex_unlock(&a->lock);
}

enum tb_status gpu_asks_wait(struct gpu_asks *a)
{
    pthread_mutex_lock(&a->lock);
    while (a->count < a->asked)
        pthread_cond_wait(&a->answered, &a->lock);
    pthread_mutex_unlock(&a->lock);
    pthread_cond_destroy(&a->answered);
    pthread_mutex_destroy(&a->lock);
    return a->status;
}

uint32_t gpu_asks_answered(struct gpu_asks *a)
{
    pthread_mutex_lock(&a->lock);
    const uint32_t count = a->count;
    pthread_mutex_unlock(&a->lock);
    return count;
}

static void on_landed(struct tb_gpu_ask *ask, enum tb_status status)
{
    answered(((struct gpu_asked_landing *)ask)->asks, status);
}

void gpu_asks_land(struct gpu_asks *a, struct tb_gpu_stage *stage, struct gpu_asked_landing *landing)
{
    landing->asks = a;
    landing->landing.asked.answer = on_landed;
    a->asked++;
    tb_gpu_stage_take(stage, &landing->landing);
}

enum tb_status gpu_land(struct tb_gpu_stage *stage, struct tb_gpu_landing *landing)
{
    struct gpu_asks a;
    struct gpu_asked_landing asked = {.landing = *landing};
    gpu_asks_init(&a);
    gpu_asks_land(&a, stage, &asked);
    const enum tb_status status = gpu_asks_wait(&a);
    *landing = asked.landing;
    return status;
}

struct asked_proof {
    struct tb_gpu_proof proof;
    struct gpu_asks *asks;
};

static void on_proven(struct tb_gpu_ask *ask, enum tb_status status)
{
    answered(((struct asked_proof *)ask)->asks, status);
}

enum tb_status gpu_prove_with(struct tb_gpu_proofs *proofs, struct tb_gpu_delta *deltas, uint32_t count)
{
    struct gpu_asks a;
    struct asked_proof *asked = calloc(count, sizeof *asked);
    gpu_asks_init(&a);
    a.asked = count;
    for (uint32_t i = 0; i < count; i++) {
        asked[i] = (struct asked_proof){.proof = {.asked.answer = on_proven, .delta = deltas[i]}, .asks = &a};
        tb_gpu_proofs_ask(proofs, &asked[i].proof);
    }
    const enum tb_status status = gpu_asks_wait(&a);
    for (uint32_t i = 0; i < count; i++)
        deltas[i] = asked[i].proof.delta;
    free(asked);
    return status;
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

struct tb_gpu_proofs *gpu_proofs(struct tb_gpu_memory *m, uint64_t keep_bytes)
{
    static const struct tb_gpu_proofs_user user = {holds, over, NULL};
    struct tb_gpu_proofs *proofs = NULL;
    CHECK_OK(tb_gpu_proofs_open(m, &user, keep_bytes, &proofs));
    return proofs;
}

enum tb_status gpu_prove(struct tb_gpu_memory *m, struct tb_gpu_delta *deltas, uint32_t count)
{
    struct tb_gpu_proofs *proofs = gpu_proofs(m, 0);
    const enum tb_status status = gpu_prove_with(proofs, deltas, count);
    tb_gpu_proofs_close(proofs);
    for (uint32_t i = 0; i < count; i++)
        deltas[i].kept = NULL;
    return status;
}
