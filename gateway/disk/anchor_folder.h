/* anchor_folder.h - the folder in which a gateway's anchors stand: "policy@3-12.anchor" is version
 * 12 of run 3 (no model has '@' in its name). One gateway at a time has it, by a lock that goes
 * with the process. Files that are none of its own are left alone.
 *
 * Threads: one at a time for each call; the path and the descriptor do not change. */
#ifndef TB_GATEWAY_DISK_ANCHOR_FOLDER_H
#define TB_GATEWAY_DISK_ANCHOR_FOLDER_H

#include "base/layout/version_key.h"

#define TB_ANCHOR_PATH_BYTES 4096

struct tb_anchor_folder {
    const char *path; /* borrowed */
    int fd;           /* -1: not open */
};

/* A sentence for TB_SITE_CONFIG. */
#define TB_ANCHOR_FOLDER_OTHERS "another user owns it, or others may write in it (chmod go-w)"
/* Makes it if it is not there. TB_SITE_CONFIG: it is not ours alone. TB_SITE_LOCKED: another
 * gateway has it; TB_SITE_IO: errno says why. */
TB_MUST_USE enum tb_status tb_anchor_folder_open(const char *path, struct tb_anchor_folder *folder_out);
/* Would it open? The same looks; nothing is made or locked. */
TB_MUST_USE enum tb_status tb_anchor_folder_check(const char *path);
void tb_anchor_folder_close(struct tb_anchor_folder *folder);

/* The name of a version's anchor. False: it is too long. */
bool tb_anchor_folder_name(const struct tb_anchor_folder *folder, const struct tb_version_key *key,
                           char out[TB_ANCHOR_PATH_BYTES]);

/* The version that a file's name speaks of. */
struct tb_anchor_which {
    bool any;
    uint64_t run_order, number;
};
bool tb_anchor_newer(const struct tb_anchor_which *a, const struct tb_anchor_which *b);
/* The newest of the model's anchors that is older than *at (any, where at->any is false), which it
 * becomes. False: there is none. */
bool tb_anchor_folder_older(const struct tb_anchor_folder *folder, const struct tb_name *model,
                            struct tb_anchor_which *at, char path_out[TB_ANCHOR_PATH_BYTES]);
/* Removes the model's anchors that are older than `than`. */
void tb_anchor_folder_remove_older(const struct tb_anchor_folder *folder, const struct tb_name *model,
                                   const struct tb_anchor_which *than);
/* Removes that one; TB_OK also where it is not there. TB_SITE_IO: it stays, and errno says why. */
TB_MUST_USE enum tb_status tb_anchor_folder_remove(const struct tb_anchor_folder *folder,
                                                   const struct tb_name *model,
                                                   const struct tb_anchor_which *which);
/* Removes what a killed gateway was writing. */
void tb_anchor_folder_remove_parts(const struct tb_anchor_folder *folder);
/* How much may still be written there; UINT64_MAX: it could not be asked. */
uint64_t tb_anchor_folder_free_bytes(const struct tb_anchor_folder *folder);

#endif
