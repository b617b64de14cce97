/* cuda_absent.c - stands in for intra/cuda where CUDA's headers were not found. */
#include <stdio.h>

#include "base/assert.h"
#include "intra/cuda_part_deltas.h"
#include "intra/cuda_part_looks.h"
#include "intra/cuda_part_stage.h"
#include "intra/cuda_part_trays.h"

enum tb_status tb_gpu_open(struct tb_gpu **gpu_out, char *why)
{
    *gpu_out = NULL;
    snprintf(why, TB_GPU_WHY_BYTES, "built without CUDA");
    return TB_NOT_FOUND;
}

void tb_gpu_close(struct tb_gpu *gpu)
{
    TB_ASSERT(gpu == NULL);
}

enum tb_status tb_gpu_memory_open(struct tb_gpu *gpu, const struct tb_gpu_tensors *tensors,
                                  struct tb_gpu_memory **memory_out, char *why)
{
    (void)tensors, (void)why;
    TB_ASSERT(gpu == NULL);
    *memory_out = NULL;
    return TB_OK;
}

void tb_gpu_memory_close(struct tb_gpu_memory *m)
{
    TB_ASSERT(m == NULL);
}

bool tb_gpu_memory_has(const struct tb_gpu_memory *m, uint32_t tensor)
{
    (void)m, (void)tensor;
    return false;
}

void tb_gpu_memory_facts(const struct tb_gpu_memory *m, struct tb_gpu_facts *facts_out)
{
    (void)m;
    *facts_out = (struct tb_gpu_facts){.device = -1, .digests = "built without CUDA"};
}

bool tb_gpu_memory_device(struct tb_gpu_memory *m, const void *at, uint64_t bytes,
                          struct tb_export_device *device_out)
{
    (void)m, (void)at, (void)bytes, (void)device_out;
    return false;
}

void tb_gpu_pin(struct tb_gpu *gpu, struct tb_shared_memory *memory)
{
    (void)gpu, (void)memory;
}

enum tb_status tb_gpu_move(struct tb_gpu_memory *m, const struct tb_gpu_rows *moves, uint32_t count)
{
    (void)m, (void)moves, (void)count;
    return TB_BAD_STATE;
}

enum tb_status tb_gpu_pass(struct tb_gpu_memory *m, const struct tb_gpu_pass *pass)
{
    (void)m, (void)pass;
    return TB_BAD_STATE;
}

enum tb_status tb_gpu_look(struct tb_gpu_memory *m, struct tb_gpu_look *look)
{
    (void)m, (void)look;
    return TB_BAD_STATE;
}

enum tb_status tb_gpu_tray_open(struct tb_gpu_memory *m, uint64_t bytes, struct tb_gpu_tray **tray_out,
                                struct tb_gpu_offer *offer_out)
{
    (void)m, (void)bytes, (void)tray_out, (void)offer_out;
    return TB_SITE_IO;
}

enum tb_status tb_gpu_tray_fill(struct tb_gpu_tray *tray, const struct tb_gpu_origin *origin,
                                const struct tb_gpu_fill *fills, uint32_t count)
{
    (void)tray, (void)origin, (void)fills, (void)count;
    return TB_BAD_STATE;
}

void tb_gpu_tray_close(struct tb_gpu_tray *tray, bool reader_closed)
{
    (void)reader_closed;
    TB_ASSERT(tray == NULL);
}

enum tb_status tb_gpu_reach_open(struct tb_gpu *gpu, const struct tb_gpu_offer *offer,
                                 struct tb_gpu_reach **reach_out)
{
    (void)gpu, (void)offer, (void)reach_out;
    return TB_NOT_FOUND;
}

enum tb_status tb_gpu_reach_copy(struct tb_gpu_reach *reach, uint32_t part, uint64_t at, void *to,
                                 uint64_t bytes)
{
    (void)reach, (void)part, (void)at, (void)to, (void)bytes;
    return TB_BAD_STATE;
}

void tb_gpu_reach_close(struct tb_gpu_reach *reach)
{
    TB_ASSERT(reach == NULL);
}

enum tb_status tb_gpu_stage_open(struct tb_gpu_memory *beside, const struct tb_gpu_stage_size *size,
                                 struct tb_gpu_stage **stage_out, char *why)
{
    (void)beside, (void)size, (void)stage_out;
    snprintf(why, TB_GPU_WHY_BYTES, "built without CUDA");
    return TB_NOT_FOUND;
}

void tb_gpu_stage_close(struct tb_gpu_stage *stage)
{
    TB_ASSERT(stage == NULL);
}

uint8_t *tb_gpu_stage_base(const struct tb_gpu_stage *stage)
{
    (void)stage;
    return NULL;
}

bool tb_gpu_stage_device(struct tb_gpu_stage *stage, const void *at, uint64_t bytes,
                         struct tb_export_device *device_out)
{
    (void)stage, (void)at, (void)bytes, (void)device_out;
    return false;
}

void tb_gpu_stage_take(struct tb_gpu_stage *stage, struct tb_gpu_landing *landing)
{
    (void)landing;
    TB_ASSERT(stage == NULL); /* none was opened */
}

uint8_t *tb_gpu_stage_lend(struct tb_gpu_stage *stage, uint32_t bytes)
{
    (void)stage, (void)bytes;
    return NULL;
}

void tb_gpu_stage_give(struct tb_gpu_stage *stage, uint8_t *lent)
{
    (void)stage;
    TB_ASSERT(lent == NULL);
}

void tb_gpu_stage_facts(struct tb_gpu_stage *stage, struct tb_gpu_stage_facts *facts_out)
{
    (void)stage;
    *facts_out = (struct tb_gpu_stage_facts){.ring_bytes = 0};
}

bool tb_gpu_stage_failed(const struct tb_gpu_stage *stage)
{
    (void)stage;
    return false;
}

bool tb_gpu_may_patch(const struct tb_gpu_memory *m)
{
    (void)m;
    return false;
}

enum tb_status tb_gpu_patch(struct tb_gpu_memory *m, struct tb_gpu_delta *deltas, uint32_t count)
{
    (void)m, (void)deltas, (void)count;
    return TB_BAD_STATE;
}

enum tb_status tb_gpu_proofs_open(struct tb_gpu_memory *m, const struct tb_gpu_proofs_user *user,
                                  uint64_t keep_bytes, struct tb_gpu_proofs **proofs_out)
{
    (void)m, (void)user, (void)keep_bytes, (void)proofs_out;
    return TB_BAD_STATE;
}

void tb_gpu_proofs_close(struct tb_gpu_proofs *proofs)
{
    TB_ASSERT(proofs == NULL);
}

void tb_gpu_proofs_ask(struct tb_gpu_proofs *proofs, struct tb_gpu_proof *proof)
{
    (void)proof;
    TB_ASSERT(proofs == NULL); /* none was opened */
}

void tb_gpu_proofs_facts(struct tb_gpu_proofs *proofs, struct tb_gpu_proofs_facts *facts_out)
{
    (void)proofs;
    *facts_out = (struct tb_gpu_proofs_facts){.device_bytes = 0};
}

enum tb_status tb_gpu_encode(struct tb_gpu_memory *m, struct tb_gpu_new_delta *deltas, uint32_t count)
{
    (void)m, (void)deltas, (void)count;
    return TB_BAD_STATE;
}
