/* folder_walk.h - the files below a folder, each opened beneath it.
 *
 * The kernel resolves each name beneath the root (openat2 with RESOLVE_BENEATH), or
 * base/open_beneath.h where it cannot: a link that leads out is refused by name, and so is a folder
 * that another user puts in place of one that was looked at. Links inside the root work. `links`
 * names a second root that links may lead into: the cache of Hugging Face keeps files in `blobs`,
 * beside the folder of a snapshot. Hidden entries are passed over. Threads: one at a time. */
#ifndef TB_GATEWAY_DISK_FOLDER_WALK_H
#define TB_GATEWAY_DISK_FOLDER_WALK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "tombolo/status.h"

#define TB_WALK_FOLDERS_MAX 4096 /* links inside a root may lead around in circles */
#define TB_WALK_ERROR_BYTES 512

struct tb_walk {
    const char *path;  /* of a folder, or of one file: its root is the folder that it stands in */
    const char *links; /* NULL: links stay inside the root */
    int depth_max;     /* folders below the root */
    /* True: the entry is passed over, unopened. NULL: none is. */
    bool (*leaves_out)(void *user, const char *name, const char *entry);
    /* A file, or what is neither file nor folder. `name` is its way inside the root. The descriptor
     * becomes the callee's. Anything but TB_OK ends the walk with it. */
    enum tb_status (*on_file)(void *user, const char *name, int fd, const struct stat *st);
    void *user;
};

/* TB_NOT_FOUND, TB_BAD_ARGUMENT (not readable for this user), TB_BAD_FILE (a link that leads out),
 * TB_TOO_LARGE, TB_SITE_IO, TB_SITE_NOMEM: error_out names the entry.
 * Else the status of on_file. */
TB_MUST_USE enum tb_status tb_folder_walk(const struct tb_walk *walk, char error_out[TB_WALK_ERROR_BYTES]);

#endif
