/* version_folder.h - the folder DIR that `tombolo subscribe` fills: one folder a
 * version, whole or not there.
 *
 * A version is written to DIR/.tombolo-new-RUN-NUMBER. Its marker is the last file there. One
 * rename puts the whole folder in place. So a kill or a full disk leaves no folder in which files
 * lack, and no folder ever holds files of two versions. A folder with a marker is never written
 * again: its marker STABLE may become WITHDRAWN, and the folder may be removed. A removal begins
 * with a rename to DIR/.tombolo-old-RUN-NUMBER.
 *
 * One process at a time holds DIR, by a lock on DIR/.tombolo-lock. It removes what earlier
 * ones left. Threads: one. */
#ifndef TB_GATEWAY_CLI_VERSION_FOLDER_H
#define TB_GATEWAY_CLI_VERSION_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/ident.h"
#include "gateway/cli/versions/bundle.h"
#include "tombolo/status.h"

#define TB_FOLDER_NAME_BYTES 48 /* RUN-NUMBER with its NUL */
#define TB_FOLDER_PATH_BYTES 4096
#define TB_FOLDER_LATEST     "latest"

/* DIR, held by this process. */
struct tb_folders {
    char path[TB_FOLDER_PATH_BYTES]; /* absolute */
    int fd;
    int lock;
    struct tb_bundle_error error; /* of the last call that failed */
};

/* Makes DIR where it is missing (not its parents), takes the lock, and removes what killed runs
 * left.
 *   TB_SITE_LOCKED                another process holds DIR
 *   TB_NOT_FOUND, TB_BAD_ARGUMENT  no path to a folder
 *   TB_SITE_IO */
TB_MUST_USE enum tb_status tb_folders_open(struct tb_folders *f, const char *path);
void tb_folders_close(struct tb_folders *f);

/* "000003-0000000000000000012" of run 3, number 12: names sort as versions do. */
void tb_folder_name(uint64_t run, uint64_t number, char name_out[TB_FOLDER_NAME_BYTES]);

enum tb_folder_state {
    TB_FOLDER_ABSENT,
    TB_FOLDER_STABLE,
    TB_FOLDER_WITHDRAWN,
    TB_FOLDER_FOREIGN /* something of that name that has no marker of ours, or one that cannot be read */
};

/* The contents of a marker. */
struct tb_folder_marker {
    char model[TB_NAME_BYTES_MAX + 1];
    uint64_t run;
    uint64_t number;
    char uid[TB_HEX_CHARS];
};
/* marker_out is filled for STABLE and WITHDRAWN. */
enum tb_folder_state tb_folder_look(const struct tb_folders *f, const char *name,
                                    struct tb_folder_marker *marker_out);

/* Makes the temporary folder of a version, empty. path_out: where to write. */
TB_MUST_USE enum tb_status tb_folder_begin(struct tb_folders *f, const char *name,
                                           char path_out[TB_FOLDER_PATH_BYTES]);
/* Everything in it is synced: it becomes DIR/NAME by one rename. TB_CONFLICT: something of that
 * name stands there. On failure the temporary folder is still there. */
TB_MUST_USE enum tb_status tb_folder_place(struct tb_folders *f, const char *name);
/* Removes the temporary folder. Files that cannot be removed now are removed by the next
 * tb_folders_open. */
void tb_folder_discard(struct tb_folders *f, const char *name);

/* The marker STABLE becomes WITHDRAWN, which says `why` besides. The file's content
 * changes by one rename, then its name by another: at every moment the folder has one
 * marker. Again is done before. */
TB_MUST_USE enum tb_status tb_folder_withdraw(struct tb_folders *f, const char *name, const char *why);

/* DIR/latest names that folder from now on, by one rename; name NULL: the link goes. TB_CONFLICT:
 * `latest` is no link, and stays. */
TB_MUST_USE enum tb_status tb_folder_latest(struct tb_folders *f, const char *name);

/* Whether `latest` names that folder. */
bool tb_folder_is_latest(const struct tb_folders *f, const char *name);

struct tb_folder_entry {
    char name[TB_FOLDER_NAME_BYTES];
    struct tb_folder_marker marker;
    bool withdrawn;
};
/* The folders of that model that have our marker, the newest first; *entries_out is freed by
 * tb_free. */
TB_MUST_USE enum tb_status tb_folders_list(struct tb_folders *f, const char *model,
                                           struct tb_folder_entry **entries_out, uint32_t *count_out);
/* Removes folders of that model until the newest `keep` stable ones are left, and no withdrawn
 * one that is older than these. The folder that `latest` names stays, and so does a folder
 * without a marker of ours. */
TB_MUST_USE enum tb_status tb_folders_keep(struct tb_folders *f, const char *model, uint64_t keep);

/* Whether a call failed because the disk is full; another try may find room. */
bool tb_folders_full(const struct tb_folders *f);

#endif
