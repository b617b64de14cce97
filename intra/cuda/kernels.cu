/* kernels.cu - the kernels as a GPU has them: blocks take jobs by turns. Their work is in
 * kernel_*.h, which tests also compile for the host. */
#include "intra/cuda/kernel_words_cuda.h"

#include "intra/cuda/kernel_blake3.h"
#include "intra/cuda/kernel_digest.h"
#include "intra/cuda/kernel_encode.h"
#include "intra/cuda/kernel_move.h"
#include "intra/cuda/kernel_patch.h"

/* Of encode and patch on a multiprocessor: as many as take no registers from each other. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define TB_BLOCKS 3
#else
#define TB_BLOCKS 2
#endif

static_assert(TB_KERNEL_THREADS == 32 * TB_WARPS_MAX, "a block of whole warps");
static_assert(sizeof(struct tb_sparse_scratch) == TB_KERNEL_SCRATCH_BYTES, "what hosts allocate a block");

extern "C" __global__ void __launch_bounds__(TB_KERNEL_THREADS)
    tb_digest(const struct tb_digest_job *jobs, uint32_t count)
{
    __shared__ struct tb_digest_shared shared;
    const struct tb_block b = {threadIdx.x, TB_KERNEL_THREADS};
    for (uint32_t i = blockIdx.x; i < count; i += gridDim.x)
        if (jobs[i].count >= TB_KERNEL_DIGEST_MIN) tb_kernel_digest(&b, &shared, &jobs[i]);
}

extern "C" __global__ void __launch_bounds__(TB_KERNEL_THREADS)
    tb_blake3(const struct tb_blake3_job *jobs, uint32_t count)
{
    __shared__ struct tb_blake3_shared shared;
    const struct tb_block b = {threadIdx.x, TB_KERNEL_THREADS};
    for (uint32_t i = blockIdx.x; i < count; i += gridDim.x)
        tb_kernel_blake3(&b, &shared, &jobs[i]);
}

extern "C" __global__ void __launch_bounds__(TB_KERNEL_THREADS, TB_BLOCKS)
    tb_encode(struct tb_encode_job *jobs, uint32_t count, struct tb_sparse_scratch *scratch)
{
    __shared__ struct tb_encode_shared shared;
    const struct tb_block b = {threadIdx.x, TB_KERNEL_THREADS};
    for (uint32_t i = blockIdx.x; i < count; i += gridDim.x)
        tb_kernel_encode(&b, &shared, &scratch[blockIdx.x], &jobs[i]);
}

extern "C" __global__ void __launch_bounds__(TB_KERNEL_THREADS, TB_BLOCKS)
    tb_patch(struct tb_patch_job *jobs, uint32_t count, struct tb_sparse_scratch *scratch)
{
    __shared__ struct tb_patch_shared shared;
    const struct tb_block b = {threadIdx.x, TB_KERNEL_THREADS};
    for (uint32_t i = blockIdx.x; i < count; i += gridDim.x)
        tb_kernel_patch(&b, &shared, &scratch[blockIdx.x], &jobs[i]);
}

extern "C" __global__ void __launch_bounds__(TB_KERNEL_THREADS)
    tb_move(const struct tb_move_job *jobs, uint32_t count)
{
    const struct tb_block b = {threadIdx.x, TB_KERNEL_THREADS};
    for (uint32_t i = blockIdx.x; i < count; i += gridDim.x) {
        /* what is stored might be the list, as far as the compiler knows */
        const struct tb_move_job job = jobs[i];
        tb_kernel_move(&b, &job);
    }
}
