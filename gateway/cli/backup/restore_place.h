/* restore_place.h - where files of a backup go: each path is a stranger's word until it was walked.
 *
 * A path has to be below one of the folders that the operator allows. Below it no folder is a link,
 * and nobody else may write in one. The file is written under a name of its own, synced, and takes
 * its place by renaming once all of the backup was right. A file that stood there is kept as
 * NAME.before-restore, or .before-restore.2 and so on: no earlier one is replaced. */
#ifndef TB_CLI_RESTORE_PLACE_H
#define TB_CLI_RESTORE_PLACE_H

#include <sys/types.h>

#include "gateway/cli/backup/backup_entry.h"

#define TB_RESTORE_UNDER_MAX 2u
#define TB_RESTORE_WHY_BYTES 512u
#define TB_RESTORE_KEPT_MAX  99u /* files that --overwrite keeps of one name */

struct tb_restore_places {
    const char *under[TB_RESTORE_UNDER_MAX]; /* absolute; borrowed */
    uint32_t under_count;
    bool overwrites;
    bool looks;        /* nothing will be written: what stands there is told alone */
    bool gives;        /* files to these; else all are of this process's user */
    uid_t gateway;     /* owns its keys, the store, and new folders above the store */
    gid_t group;       /* reads the rest */
    const char *store; /* its path in the backup; NULL: it has none */
};

struct tb_restore_file {
    int folder; /* -1: none is open */
    int fd;     /* of what is written; -1 */
    int lock;   /* of a store that stands there: no gateway has it; -1 */
    char name[256], temporary[272];
    enum tb_backup_role role;
    bool replaces, placed;
};

/* Whether it may stand there; nothing is made. Without --overwrite a file that is there is
 * TB_CONFLICT. TB_BAD_FILE: the path leads elsewhere; TB_PEER_DENIED: others may write in its
 * folder; TB_SITE_LOCKED: a gateway has the store; TB_SITE_IO. why_out gets a sentence. */
TB_MUST_USE enum tb_status tb_restore_look(const struct tb_restore_places *places,
                                           const struct tb_backup_entry *entry, bool *replaces_out,
                                           char why_out[TB_RESTORE_WHY_BYTES]);
/* The same, and makes folders and the file to write into. tb_restore_close follows either way. */
TB_MUST_USE enum tb_status tb_restore_begin(const struct tb_restore_places *places,
                                            const struct tb_backup_entry *entry,
                                            struct tb_restore_file *file_out,
                                            char why_out[TB_RESTORE_WHY_BYTES]);
/* Owner and mode, synced. A key of an authority is root's alone. */
TB_MUST_USE enum tb_status tb_restore_written(const struct tb_restore_places *places,
                                              struct tb_restore_file *file,
                                              char why_out[TB_RESTORE_WHY_BYTES]);
/* TB_CONFLICT: a file came into its place meanwhile, or TB_RESTORE_KEPT_MAX stand beside it. */
TB_MUST_USE enum tb_status tb_restore_rename(struct tb_restore_file *file,
                                             char why_out[TB_RESTORE_WHY_BYTES]);
/* Takes away what was not placed. */
void tb_restore_close(struct tb_restore_file *file);

#endif
