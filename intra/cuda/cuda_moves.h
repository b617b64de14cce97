/* cuda_moves.h - ranges moved inside the device's memory: a lane's list of moves, which one launch
 * makes. Inside intra/cuda only. */
#ifndef TB_INTRA_CUDA_MOVES_H
#define TB_INTRA_CUDA_MOVES_H

#include "intra/cuda/cuda_memory.h"

/* In a batch: a range of the device's memory to another, at the latest when its moves run; those
 * that ran before are behind it, others may not be. */
TB_MUST_USE enum tb_status tb_cuda_move_inside(struct tb_gpu_memory *m, uint32_t lane,
                                               struct tb_gpu_move move);
TB_MUST_USE enum tb_status tb_cuda_moves_run(struct tb_gpu_memory *m, uint32_t lane);

/* Between a chunk as it stands in its tensors, piece by piece, and one range of the device's
 * memory: moves that are yet to run. */
enum tb_cuda_way { TB_CUDA_FROM_TENSORS, TB_CUDA_TO_TENSORS };
TB_MUST_USE enum tb_status tb_cuda_exchange(struct tb_gpu_memory *m, uint32_t lane, enum tb_cuda_way way,
                                            const struct tb_gpu_piece *pieces, uint32_t count,
                                            uint8_t *whole);

#endif
