/* file_names.h - how a version says which file its tensors and blobs came from: names that `tombolo
 * publish` makes, and that subscribe, adopt and the gateway read.
 *
 *   .tombolo/header/FILE       a blob: prefix and JSON of a safetensors file
 *   .tombolo/file/DIGEST/FILE  an empty blob: all bytes of FILE have that digest (32 hex digits);
 *                              of versions in several shards
 *   FILE:TENSOR                a tensor whose name stands in other files, too
 *
 * Pure. */
#ifndef TB_GATEWAY_DISK_FILE_NAMES_H
#define TB_GATEWAY_DISK_FILE_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/layout/blob_name.h"
#include "base/layout/manifest.h"
#include "base/layout/tensor.h"

#define TB_FILE_MARK_PREFIX   ".tombolo/file/"
#define TB_FILE_HEADER_PREFIX ".tombolo/header/"
/* In front of FILE. */
#define TB_FILE_MARK_CHARS (sizeof TB_FILE_MARK_PREFIX - 1 + 2 * TB_DIGEST_BYTES + 1)

/* FILE:TENSOR. False: it is longer than a tensor's name may be. */
bool tb_file_tensor_name(const char *file, const char *tensor, char name_out[TB_TENSOR_NAME_MAX + 1]);
/* The mark of a file. False: it is longer than a blob's name may be. */
bool tb_file_mark(const struct tb_digest *digest, const char *file, char name_out[TB_BLOB_NAME_MAX + 1]);
/* FILE of a mark; NULL: it is none. */
const char *tb_file_of_mark(const char *blob);
/* The file names of one shard. */
struct tb_file_list {
    const struct tb_manifest *manifest;
    const struct tb_digest *digests; /* of each blob, in the manifest's order; NULL: not known */
};
/* A mark, a header and a plain blob of one file's name may stand beside each other. */
struct tb_file_entry {
    const char *name; /* borrowed from the manifest, as `blob` and `digest` are from the list */
    const char *blob;
    uint64_t bytes;
    const struct tb_digest *digest; /* NULL: not known */
    bool is_mark;                   /* says the digest of all of its file */
    bool is_header;
};
struct tb_file_index {
    uint32_t count;
    struct tb_file_entry entries[TB_BLOBS_MAX]; /* by name */
};
void tb_file_index_fill(struct tb_file_index *index, const struct tb_file_list *list);
/* A file that both shards have, with other bytes: by its marks, by its size, or by the digests of
 * its blob. NULL: there is none. Borrowed from the index. */
const char *tb_file_differs(const struct tb_file_index *mine, const struct tb_file_list *other);
/* A file of one list whose name is a folder in the other, so nobody can write both. NULL: there is
 * none. Borrowed from either. */
const char *tb_file_clashes(const struct tb_file_index *mine, const struct tb_file_list *other);

#endif
