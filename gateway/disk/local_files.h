/* local_files.h - given files as the packed bytes of a version's shard: what `tombolo adopt` hands
 * to the gateway.
 *
 * Files are a stranger's and may change, shrink or go at any time: headers are parsed once, bytes
 * are read (never mapped) when they are asked for, and what is read is only bytes: their taker
 * digests them first (P1). Tensors of safetensors files answer to name, dtype and full shape, in
 * whatever file of the folder they stand; blobs to the names that bundle.h of the command line
 * gives files. A file whose header is bad is passed over.
 *
 * Memory through base/fault.h, a small multiple of the headers; the descriptors that were given.
 * Threads: one at a time. */
#ifndef TB_GATEWAY_DISK_LOCAL_FILES_H
#define TB_GATEWAY_DISK_LOCAL_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/layout/manifest.h"
#include "gateway/disk/given_files.h"

#define TB_LOCAL_ERROR_BYTES 512
/* In front of a blob's name: the header of the safetensors file FILE, as the command line publishes
 * it. */
#define TB_LOCAL_HEADER_PREFIX ".tombolo/header/"

struct tb_local_files;

/* Takes the files out of the list, also on failure. TB_NOT_FOUND: no file was given; TB_BAD_FILE:
 * files, but each of them is bad; TB_CONFLICT: one tensor name in two files; TB_CANCELLED: `stop`
 * (NULL: none), which is looked at before each of them; TB_SITE_NOMEM.
 * error_out gets a sentence. */
TB_MUST_USE enum tb_status tb_local_open(struct tb_given_files *given, const _Atomic bool *stop,
                                         struct tb_local_files **files_out,
                                         char error_out[TB_LOCAL_ERROR_BYTES]);
void tb_local_close(struct tb_local_files *l); /* NULL is fine */

struct tb_local_told {
    uint32_t files, passed_over; /* of them safetensors that were not readable */
    uint32_t tensors;
    uint64_t bytes; /* of tensors */
};
void tb_local_told(const struct tb_local_files *l, struct tb_local_told *told_out);

/* Reads what packed chunk k of that shard would be. False: some byte of it is in no file, or could
 * not be read; then `out` (manifest->chunks[k].bytes of it) may have been written. */
bool tb_local_read(struct tb_local_files *l, const struct tb_manifest *manifest, uint32_t k, uint8_t *out);

#endif
