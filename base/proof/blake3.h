/* blake3.h - BLAKE3-256, the digest against those who want a wrong byte to pass. Pure.
 *
 * XXH3 (base/digest.h) finds accidents; an attacker can make other bytes of the same XXH3. No
 * attack is known that does so for BLAKE3. The function is the paper's unkeyed hash
 * ("BLAKE3: one function, fast everywhere", O'Connor and others, 2020, sections 2.1 to 2.6) with
 * its first 32 bytes of output, so any tool can check a chunk. */
#ifndef TB_BASE_PROOF_BLAKE3_H
#define TB_BASE_PROOF_BLAKE3_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TB_BLAKE3_BYTES      32
#define TB_BLAKE3_LEAF_BYTES 1024 /* what the paper calls a chunk; ours are larger */
#define TB_BLAKE3_DEPTH_MAX  54   /* of a tree over 2^64 bytes */

struct tb_blake3 {
    uint8_t bytes[TB_BLAKE3_BYTES];
};

/* The chaining value of a node. */
struct tb_blake3_node {
    uint32_t words[8];
};

struct tb_blake3 tb_blake3_of(const void *bytes, size_t count);
/* Looks at every byte of both, so that the time says nothing of where they differ. */
bool tb_blake3_equal(const struct tb_blake3 *a, const struct tb_blake3 *b);

/* A digest over pieces: update as often as needed, then end, which leaves the state as it is. One
 * call over the whole is faster: it knows where the tree ends. */
struct tb_blake3_state {
    uint64_t leaves; /* that stand in `stack` */
    uint32_t depth;
    uint32_t filled; /* bytes of `leaf` */
    struct tb_blake3_node stack[TB_BLAKE3_DEPTH_MAX];
    uint8_t leaf[TB_BLAKE3_LEAF_BYTES];
};
void tb_blake3_begin(struct tb_blake3_state *s);
void tb_blake3_update(struct tb_blake3_state *s, const void *bytes, size_t count);
struct tb_blake3 tb_blake3_end(const struct tb_blake3_state *s);

#endif
