/* file_names.h - how a version says which file its tensors and blobs came from: names that `tombolo publish` makes, and that
 * subscribe, adopt and the gateway read.
 *
 *   .tombolo/header/FILE       a blob: prefix and JSON of a safetensors file
 *   .tombolo/file/DIGEST/FILE  an empty blob: all bytes of FILE have that digest (32 hex digits). Of versions in several shards
 *   FILE:TENSOR                a tensor whose name stands in other files, too
 *
 * Pure. */
#ifndef TB_GATEWAY_DISK_FILE_NAMES_H
#define TB_GATEWAY_DISK_FILE_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/layout/manifest.h"

#define TB_FILE_MARK_PREFIX ".tombolo/file/"
#define TB_FILE_MARK_CHARS  (sizeof TB_FILE_MARK_PREFIX - 1 + 2 * TB_DIGEST_BYTES + 1) /* in front of FILE */

/* FILE:TENSOR. False: it is longer than a tensor's name may be. */
bool tb_file_tensor_name(const char *file, const char *tensor, char name_out[TB_TENSOR_NAME_MAX + 1]);
/* The mark of a file. False: it is longer than a blob's name may be. */
bool tb_file_mark(const struct tb_digest *digest, const char *file, char name_out[TB_BLOB_NAME_MAX + 1]);
/* FILE of a mark; NULL: it is none. */
const char *tb_file_of_mark(const char *blob);
/* A file that both shards have, with other bytes by their marks; NULL: there is none. Borrowed from `mine`. */
const char *tb_file_differs(const struct tb_manifest *mine, const struct tb_manifest *other);

#endif
