/* digest.h - XXH3-128, the digest against accidents. Pure.
 *
 * Source of the function: XXH3_128bits of xxHash 0.8, canonical (big-endian) byte order, seed 0. */
#ifndef TB_BASE_DIGEST_H
#define TB_BASE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TB_DIGEST_BYTES 16

struct tb_digest {
    uint8_t bytes[TB_DIGEST_BYTES];
};

struct tb_digest tb_digest_of(const void *bytes, size_t count);
bool tb_digest_equal(const struct tb_digest *a, const struct tb_digest *b);

/* A digest over pieces: update as often as needed, then finish. 64-byte aligned state in
 * the caller's memory. */
struct tb_digest_state {
    _Alignas(64) uint8_t opaque[576];
};
void tb_digest_begin(struct tb_digest_state *s);
void tb_digest_update(struct tb_digest_state *s, const void *bytes, size_t count);
struct tb_digest tb_digest_end(struct tb_digest_state *s);

#endif
