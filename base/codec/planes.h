/* planes.h - a chunk of floats as planes: what a code can shorten apart from what is noise. Pure:
 * memory is the caller's.
 *
 * Of each element the key is coded. Without a base the key is its exponent. In a delta it is the
 * element's difference, folded so that small differences of either sign are small numbers. Keys
 * go through a cascade of palettes: at each level one or two bits an element say which of one or
 * three frequent keys it has, or that the next level says it. Everything else is sent as it is.
 * docs/protocol.md has the form; no variant writes another. */
#ifndef TB_BASE_PLANES_H
#define TB_BASE_PLANES_H

#include <stddef.h>
#include <stdint.h>

#include "base/layout/dtype.h"
#include "base/vector.h"
#include "tombolo/status.h"

#define TB_PLANES_SCRATCH_BYTES (448u << 10)
#define TB_PLANES_BYTES_MAX     (64u << 20) /* of a chunk */

struct tb_planes_input {
    const uint8_t *base; /* NULL: none */
    const uint8_t *bytes;
    size_t count; /* of each */
    enum tb_dtype dtype;
};

/* TB_PLANES_SCRATCH_BYTES aligned to 8 whose content means nothing before or after, and
 * instructions that are here. */
struct tb_planes_means {
    void *scratch;
    enum tb_vector vector;
};

/* Writes into out[0..cap); the bytes written, or 0: it does not pay (it would take more than `cap`,
 * or than 0.97 of the chunk). */
TB_MUST_USE size_t tb_planes_encode(const struct tb_planes_input *in, const struct tb_planes_means *means,
                                    uint8_t *out, size_t cap);

struct tb_planes_form {
    const uint8_t *bytes;
    size_t count;
};

struct tb_planes_output {
    const uint8_t *base; /* `count` bytes apart from `bytes`; NULL: none */
    uint8_t *bytes;
    size_t count;
};

/* TB_CHUNK_CODEC: damaged; what was written is then of any content. */
TB_MUST_USE enum tb_status tb_planes_decode(struct tb_planes_form form, const struct tb_planes_means *means,
                                            const struct tb_planes_output *out);

#endif
