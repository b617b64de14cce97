/* kernel_jobs.h - what a launch works on: plain structs that host and device read alike. One
 * block works on one job.
 *
 * `bytes` and `base` of jobs stand on 16-byte borders; `out` on a 4-byte one, with room for its
 * cap rounded up to 4. */
#ifndef TB_INTRA_KERNEL_JOBS_H
#define TB_INTRA_KERNEL_JOBS_H

#include <stdint.h>

#define TB_KERNEL_THREADS     256u /* of a block */
#define TB_KERNEL_DIGEST_MIN  241u /* fewer bytes are digested in another way, by the host */
#define TB_KERNEL_CLASSES_MAX 16u
#define TB_KERNEL_SECTION     65536u /* elements */
#define TB_KERNEL_WORDS       (TB_KERNEL_SECTION / 64u)
/* Scratch of a block: what of one section changed. */
#define TB_KERNEL_SCRATCH_BYTES (TB_KERNEL_SECTION * (4u + 2u + 2u + 2u + 2u + 1u))

struct tb_digest_job {
    const uint8_t *bytes;
    uint64_t count;  /* at least TB_KERNEL_DIGEST_MIN */
    uint8_t *digest; /* 16 bytes, as tb_digest has them */
};

struct tb_blake3_job {
    const uint8_t *bytes;
    uint64_t count;  /* at least 1 */
    uint8_t *digest; /* 32 bytes, as tb_blake3 has them */
};

struct tb_encode_job {
    const uint8_t *base, *bytes; /* `count` bytes each */
    uint64_t count;
    uint32_t kind;        /* enum tb_sparse_kind of base/codec/sparse_kernels.h */
    uint32_t classes_max; /* 1 to TB_KERNEL_CLASSES_MAX */
    uint8_t *out;
    uint64_t cap;
    uint64_t used;    /* out: bytes; 0: it does not pay */
    uint64_t changed; /* out: elements; 0: the chunks are equal, but for a tail */
};

struct tb_patch_job {
    const uint8_t *form;
    uint64_t form_count;
    uint8_t *bytes; /* the base's; patched in place */
    uint64_t count;
    uint32_t ok; /* out: 0: damaged, and the bytes are neither the base's nor the version's */
    uint32_t zero;
};

struct tb_move_job {
    const uint8_t *from;
    uint8_t *to;
    uint64_t count;
};

#endif
