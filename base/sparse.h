/* sparse.h - a step as the elements that changed: how many unchanged ones of the same class lie between two of them, and
 * by how much they differ as integers modulo their width. Pure: memory is the caller's.
 *
 * The class of an element follows from the base alone, which both sides hold: the smaller a weight, the likelier a step
 * of the optimizer moves its bits. One class is the fastest, 16 write the fewest bytes. Always exact, whatever the bits
 * mean. A chunk is decoded by itself, given the same bytes of its base; that they are the same is for the digest of the
 * result to say. docs/protocol.md has the form. */
#ifndef TB_BASE_SPARSE_H
#define TB_BASE_SPARSE_H

#include <stddef.h>
#include <stdint.h>

#include "base/layout.h"
#include "tombolo/status.h"

#define TB_SPARSE_CLASSES_MAX   16u
#define TB_SPARSE_SCRATCH_BYTES (512u << 10)
#define TB_SPARSE_BYTES_MAX     (64u << 20) /* of a chunk */

struct tb_sparse_input {
    const uint8_t *base, *bytes; /* `count` bytes each */
    size_t count;
    enum tb_dtype dtype;
    unsigned classes_max; /* 1 to TB_SPARSE_CLASSES_MAX */
};

/* Where the form goes, and TB_SPARSE_SCRATCH_BYTES aligned to 8 whose content means nothing before or after. */
struct tb_sparse_room {
    uint8_t *out;
    size_t cap;
    void *scratch;
};

/* The bytes written to room->out, or 0: it does not pay (it would take more than `cap`, or than 0.97 of the chunk). */
TB_MUST_USE size_t tb_sparse_encode(const struct tb_sparse_input *in, const struct tb_sparse_room *room);

/* Patches `elements`, a copy of the base, into the version. TB_CHUNK_CODEC: damaged; `elements` are then neither. */
TB_MUST_USE enum tb_status tb_sparse_decode(const uint8_t *in, size_t in_count, uint8_t *elements,
                                            size_t count);

#endif
