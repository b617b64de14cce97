/* weights.h - made weights with the statistics of real ones, and the steps of an
 * optimizer over them.
 *
 * A decoder-only transformer in bf16 whose linear weights are normal with a scale of 0.55 /
 * sqrt(fan_in), whose norms stand near 1, and whose versions are casts of fp32 master weights after
 * AdamW steps over noisy gradients. As in real runs, 1 to 4 % of the elements change a step, nine
 * in ten by one unit in the last place, and the chance doubles with each exponent step down (a step
 * of about lr against a unit of 2^(exponent - 7)).
 *
 * Deterministic: a block depends on the seed, its tensor and its place alone, whatever thread makes
 * it. Pure but for the heap in tb_weights_new. */
#ifndef TB_SIM_WEIGHTS_H
#define TB_SIM_WEIGHTS_H

#include <stdint.h>

#include "tombolo/status.h"

#define TB_WEIGHTS_BLOCK        32768u /* elements made at a time: master and moments stay in the L2 cache */
#define TB_WEIGHTS_BYTES_MIN    ((uint64_t)1 << 17)
#define TB_WEIGHTS_BYTES_MAX    ((uint64_t)1 << 42)
#define TB_WEIGHTS_VERSIONS_MAX 64u
#define TB_WEIGHTS_NAME_MAX     96

enum tb_weights_kind { TB_WEIGHTS_EMBEDDING, TB_WEIGHTS_LINEAR, TB_WEIGHTS_NORM };

struct tb_weights_tensor {
    char name[TB_WEIGHTS_NAME_MAX];
    enum tb_weights_kind kind;
    uint32_t rank; /* 1 or 2 */
    uint64_t shape[2];
    uint64_t elements;
    uint64_t begin; /* bytes, in the data section of the file */
};

struct tb_weights_options {
    uint64_t bytes;    /* of a version's tensors, about; TB_WEIGHTS_BYTES_MIN to _MAX */
    uint32_t versions; /* 1 to TB_WEIGHTS_VERSIONS_MAX */
    uint64_t seed;
    double lr; /* of the optimizer: 0 to 1 */
};

struct tb_weights {
    struct tb_weights_options options;
    uint32_t tensor_count;
    struct tb_weights_tensor *tensors; /* in the order of the file */
    uint64_t data_bytes;
};

/* Lays out a model of about `bytes`. TB_BAD_ARGUMENT: an option outside its range;
 * TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_weights_new(const struct tb_weights_options *options,
                                          struct tb_weights *weights_out);
void tb_weights_free(struct tb_weights *weights);

uint64_t tb_weights_blocks(const struct tb_weights_tensor *tensor);

/* Elements [block x TB_WEIGHTS_BLOCK, + count) of a tensor in every version: out[v] gets them as
 * bf16 bit patterns, each with room for TB_WEIGHTS_BLOCK. Returns count. */
uint32_t tb_weights_block(const struct tb_weights *weights, uint32_t tensor, uint64_t block,
                          uint16_t *const *out);

#endif
