/* unbundle.h - a staged version as files again: the way back from bundle.h.
 *
 * A version comes from a stranger: names are checked again, headers parsed again, and no link
 * inside the folder is followed. A tensor that no header mentions (published by a trainer, not
 * from a file) goes to tensors-SHARD.safetensors under a header made here. Files of one name and
 * one content in several shards are one file. Threads: one. */
#ifndef TB_GATEWAY_CLI_UNBUNDLE_H
#define TB_GATEWAY_CLI_UNBUNDLE_H

#include <stdbool.h>
#include <stdint.h>

#include "gateway/cli/versions/bundle.h"
#include "tombolo/tombolo.h"

#define TB_UNBUNDLE_PART ".tombolo-part" /* the file that is being written, in the version's folder */

struct tb_unbundle_span {
    const void *bytes; /* borrowed from the items, or from a header of the plan */
    uint64_t count;
};

struct tb_unbundle_file {
    const char *name; /* borrowed, or made */
    char *made_name;
    char *made_header;
    bool of_header; /* a header and its tensors; else the blob of that name */
    uint64_t bytes;
    uint32_t first_span;
    uint32_t span_count;
};

struct tb_unbundle {
    struct tb_unbundle_file *files;
    uint32_t file_count;
    uint32_t file_cap;
    struct tb_unbundle_span *spans;
    uint32_t span_count;
    uint32_t span_cap;
    uint64_t bytes; /* of all files */
};

/* Which files these items make. Items and their bytes are borrowed until tb_unbundle_fini.
 *   TB_BAD_FILE  a name or header that no publisher of ours would send, or a header with a tensor
 *                that is not there
 *   TB_CONFLICT  two shards have a file of one name with different bytes
 *   TB_SITE_NOMEM */
TB_MUST_USE enum tb_status tb_unbundle_plan(const struct tb_item *items, uint32_t count,
                                            struct tb_unbundle *plan_out, struct tb_bundle_error *error_out);
void tb_unbundle_fini(struct tb_unbundle *plan);

/* Told of bytes written; false ends the writing with TB_CANCELLED. */
typedef bool (*tb_unbundle_moved)(void *user, uint64_t bytes);

/* Writes every file below `folder` (made when absent): under TB_UNBUNDLE_PART, synced, renamed;
 * then the marker, whose text is `marker`. The caller has an empty folder of its own, and puts
 * it in place after that (version_folder.h). TB_SITE_IO, with error_out->os_error; TB_CANCELLED.
 * Files that were renamed before a failure stay, without marker. */
TB_MUST_USE enum tb_status tb_unbundle_write(const struct tb_unbundle *plan, const char *folder,
                                             const char *marker, tb_unbundle_moved moved, void *user,
                                             struct tb_bundle_error *error_out);

#endif
