/* bundle.h - files on disk as what a version carries: tensors, and blobs for all that
 * is not tensor bytes.
 *
 * A safetensors file FILE becomes its tensors, under the names that its header gives them, and a
 * blob TB_BUNDLE_HEADER_PREFIX FILE with prefix and JSON as they stand in the file; any other file
 * becomes a blob FILE. A tensor whose name stands in several files may be named FILE:TENSOR
 * (bundle_names.h). So a subscriber can write every file again, byte for byte. Names under
 * ".tombolo/" are ours and refused from users.
 *
 * Tensors' bytes and other files are mapped: they should not change while the bundle is in use.
 * A load from a file that was cut short gets SIGBUS, so only the library loads from them
 * (tb_register and tb_publish are safe of that). Headers and indexes are read. Threads: one. */
#ifndef TB_GATEWAY_CLI_BUNDLE_H
#define TB_GATEWAY_CLI_BUNDLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/layout/blob_name.h"
#include "gateway/disk/safetensors.h"
#include "tombolo/tombolo.h"

#define TB_BUNDLE_PRIVATE       ".tombolo"
#define TB_BUNDLE_HEADER_PREFIX ".tombolo/header/"
#define TB_BUNDLE_MARKER        "STABLE" /* a subscriber's own files: refused as names */
#define TB_BUNDLE_WITHDRAWN     "WITHDRAWN"
#define TB_BUNDLE_INDEX         ".safetensors.index.json"
#define TB_BUNDLE_DEPTH_MAX     TB_FILE_DEPTH_MAX /* folders below a path */

struct tb_bundle_file {
    char *name;           /* relative, as a subscriber will write it */
    char *path;           /* as it was opened */
    const uint8_t *bytes; /* mapped */
    uint64_t count;
    uint8_t *head;      /* of safetensors prefix and JSON, of an index all of it; else NULL */
    int64_t changed_ns; /* when it was written last */
    uint64_t device, inode;
    bool is_safetensors;
    struct tb_safetensors parsed;
};

struct tb_bundle {
    struct tb_bundle_file *files;
    uint32_t file_count;
    uint32_t file_cap;
    struct tb_tensor_desc *tensors; /* in the order of the files and of their bytes */
    uint32_t tensor_count;
    char **tensor_names; /* those that were made; as many as tensors, else NULL */
    struct tb_blob_desc *blobs;
    uint32_t blob_count;
    char **blob_names; /* those that were made; as many as blobs, NULL where the file's own name serves */
    uint64_t bytes;    /* of all files */
};

struct tb_bundle_error {
    char text[TB_SAFETENSORS_ERROR_BYTES];
    int os_error; /* of unbundle.c: errno of the call that failed; 0: none did */
};

struct tb_bundle_paths {
    char *const *paths;
    uint32_t count;
    const char *exclude; /* NULL: none */
    const char *links;   /* a second folder that links may lead into; NULL: none */
};

/* `paths`: files, which are named by their last part, and folders, whose files are named by
 * their way inside. `exclude` is a glob over names inside folders. A link that leads out of its
 * folder is refused by name, unless it leads into `links` (folder_walk.h). In a folder
 * with a *.safetensors.index.json every tensor of the index must be in the file it says,
 * and that file's counts.
 *   TB_NOT_FOUND   a path that is not there
 *   TB_BAD_FILE    not a file or folder, a bad safetensors file or index, a bad name
 *   TB_CONFLICT    a file name twice; a tensor name twice in a folder without an index that decides
 *   TB_TOO_LARGE   another file over 100 MB, more blobs than a shard may have, folders too deep
 *   TB_SITE_IO, TB_SITE_NOMEM */
TB_MUST_USE enum tb_status tb_bundle_open(const struct tb_bundle_paths *paths, struct tb_bundle *bundle_out,
                                          struct tb_bundle_error *error_out);
void tb_bundle_close(struct tb_bundle *bundle);

/* For one of several shards: the digest of each file, as an empty blob (file_names.h), so that the
 * gateway can tell whether files of one name are one file. TB_SITE_IO, TB_TOO_LARGE, TB_BAD_FILE (a
 * name that is too long), TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_bundle_mark(struct tb_bundle *bundle, struct tb_bundle_error *error_out);

/* Whether a file is another one than was opened; *why_out names the first. */
bool tb_bundle_changed(const struct tb_bundle *bundle, struct tb_bundle_error *why_out);

/* For bundle.c and unbundle.c: says why, and returns the status. */
enum tb_status tb_bundle_refuse(struct tb_bundle_error *error, enum tb_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
enum tb_status tb_bundle_no_memory(struct tb_bundle_error *error);

/* Whether a user's file may have this name: a clean relative path that is not ours. */
bool tb_bundle_name_valid(const char *name);

#endif
