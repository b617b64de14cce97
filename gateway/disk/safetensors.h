/* safetensors.h - the header of a safetensors file, read as data from a stranger.
 *
 * The file: u64 little-endian length n, n bytes of JSON, the tensors' bytes. Nothing of it is
 * believed before it is checked: the header's length against 100 MB and the file, UTF-8, each
 * field's type, shape x dtype against data_offsets without overflow, every byte of the data claimed
 * by exactly one tensor, no name twice. Errors name the file, the byte and the tensor.
 *
 * A dtype that this release does not know makes the tensor opaque: so many bytes as data_offsets
 * say, whatever its shape. A dtype with fractions of a byte takes the bits of all elements, in
 * whole bytes rounded up.
 *
 * Touches no file: the caller reads, this looks. Memory through base/fault.h, bounded by a small
 * multiple of the header. Threads: none shared. */
#ifndef TB_GATEWAY_DISK_SAFETENSORS_H
#define TB_GATEWAY_DISK_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/layout/tensor.h"
#include "tombolo/status.h"

#define TB_SAFETENSORS_PREFIX_BYTES 8
/* Of JSON, as the format's own library has it. */
#define TB_SAFETENSORS_HEADER_BYTES_MAX ((uint64_t)100000000)
#define TB_SAFETENSORS_ERROR_BYTES      512
#define TB_SAFETENSORS_METADATA_MAX     65536 /* entries */
/* For a header without its file: as long as its tensors say. */
#define TB_SAFETENSORS_BYTES_UNKNOWN UINT64_MAX

struct tb_safetensors_tensor {
    const char *name; /* 1 to TB_TENSOR_NAME_MAX bytes of clean UTF-8 */
    enum tb_dtype dtype;
    struct tb_dtype_other other; /* as in layout.h */
    const char *dtype_text;      /* as tb_register takes it: "BF16", "F4"; of an opaque tensor "NAME:8" */
    uint8_t rank;
    uint64_t shape[TB_RANK_MAX]; /* of an opaque tensor: one dimension, its bytes */
    uint64_t begin;              /* in the data section, which starts at header_bytes of the file */
    uint64_t end;
};

struct tb_safetensors {
    uint64_t header_bytes; /* prefix and JSON */
    uint64_t data_bytes;   /* of all tensors; header_bytes + data_bytes is the file */
    uint32_t tensor_count;
    /* ordered by begin, without gap; empty ones first at their place */
    struct tb_safetensors_tensor *tensors;
    void *names; /* owns the tensors' names */
};

/* The mistake, its place and its tensor, as one sentence. */
struct tb_safetensors_error {
    char text[TB_SAFETENSORS_ERROR_BYTES];
};

/* How many bytes prefix and JSON take together, from the first TB_SAFETENSORS_PREFIX_BYTES bytes of
 * a file of `file_bytes` (which may be fewer: then TB_BAD_FILE). TB_BAD_FILE, TB_TOO_LARGE. `file`
 * is only for the error. */
TB_MUST_USE enum tb_status tb_safetensors_header_bytes(const char *file, const uint8_t *prefix,
                                                       uint64_t file_bytes, uint64_t *header_bytes_out,
                                                       struct tb_safetensors_error *error_out);

/* Parses prefix and JSON. On success tb_safetensors_fini frees what it holds; on failure
 * nothing is left to free.
 *   TB_BAD_FILE    not what the format asks for
 *   TB_TOO_LARGE   more tensors, dimensions, name bytes or bytes than layout.h allows
 *   TB_SITE_NOMEM  no memory */
TB_MUST_USE enum tb_status tb_safetensors_parse(const char *file, const uint8_t *header,
                                                uint64_t header_bytes, uint64_t file_bytes,
                                                struct tb_safetensors *parsed_out,
                                                struct tb_safetensors_error *error_out);
void tb_safetensors_fini(struct tb_safetensors *parsed);

#endif
