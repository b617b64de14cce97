/* digest_kernels.h - XXH3-128 by one set of vector instructions. All give the same
 * digest, and a state that one of them began is nobody else's to go on with. Internal to
 * digest.c and its test. Pure. */
#ifndef TB_BASE_DIGEST_KERNELS_H
#define TB_BASE_DIGEST_KERNELS_H

#include "base/digest.h"
#include "base/vector.h"

struct tb_digest_kernels {
    struct tb_digest (*of)(const void *bytes, size_t count);
    void (*begin)(struct tb_digest_state *s);
    void (*update)(struct tb_digest_state *s, const void *bytes, size_t count);
    struct tb_digest (*end)(struct tb_digest_state *s);
};

extern const struct tb_digest_kernels tb_digest_portable;
extern const struct tb_digest_kernels tb_digest_avx2; /* where tb_vector_here says so */

/* Where there is AVX-512 it is AVX2's: wider registers gave no more, 56 GB/s from the cache (20
 * portable) and less from memory. */
const struct tb_digest_kernels *tb_digest_kernels(enum tb_vector vector);

#endif
