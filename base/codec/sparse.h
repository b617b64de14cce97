/* sparse.h - a delta as the elements that changed: how many unchanged ones of the same class lie
 * between two of them, and by how much they differ as integers modulo their width. Pure: memory is
 * the caller's.
 *
 * The class of an element follows from the base alone, which both sides hold: the smaller a
 * weight, the likelier the optimizer moves its bits. One class is the fastest, 16 write the
 * fewest bytes. Always exact, whatever the bits mean. A chunk is decoded by itself, given the
 * same bytes of its base; the digest of the result says whether they were the same.
 * docs/protocol.md has the form; no variant writes another. */
#ifndef TB_BASE_SPARSE_H
#define TB_BASE_SPARSE_H

#include <stddef.h>
#include <stdint.h>

#include "base/layout/dtype.h"
#include "base/vector.h"
#include "tombolo/status.h"

#define TB_SPARSE_CLASSES_MAX   16u
#define TB_SPARSE_SCRATCH_BYTES (1024u << 10)
#define TB_SPARSE_BYTES_MAX     (64u << 20) /* of a chunk */

struct tb_sparse_input {
    const uint8_t *base, *bytes; /* `count` bytes each */
    size_t count;
    enum tb_dtype dtype;
    unsigned classes_max; /* 1 to TB_SPARSE_CLASSES_MAX */
};

/* TB_SPARSE_SCRATCH_BYTES aligned to 8 whose content means nothing before or after, and
 * instructions that are here. */
struct tb_sparse_means {
    void *scratch;
    enum tb_vector vector;
};

/* Writes into out[0..cap); the bytes written, or 0: it does not pay (it would take more than `cap`,
 * or than 0.97 of the chunk). */
TB_MUST_USE size_t tb_sparse_encode(const struct tb_sparse_input *in, const struct tb_sparse_means *means,
                                    uint8_t *out, size_t cap);

struct tb_sparse_form {
    const uint8_t *bytes;
    size_t count;
};

/* The kind of element that a chunk is coded as. A form begins with its number, and kernels of a
 * GPU are given it. */
unsigned tb_sparse_kind_of(enum tb_dtype dtype);

/* In how many classes it says that it is; 0 where it ends before that. */
unsigned tb_sparse_classes(struct tb_sparse_form form);

struct tb_sparse_output {
    /* `count` bytes apart from `bytes`; NULL: `bytes` is a copy of them, and is patched in place */
    const uint8_t *base;
    uint8_t *bytes;
    size_t count;
};

/* TB_CHUNK_CODEC: damaged; what was written is then neither the base nor the version. */
TB_MUST_USE enum tb_status tb_sparse_decode(struct tb_sparse_form form, const struct tb_sparse_means *means,
                                            const struct tb_sparse_output *out);

#endif
