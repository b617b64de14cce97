/* given_files.h - opened files with their names: what `tombolo adopt` hands to a gateway, which
 * opens none itself. */
#ifndef TB_GATEWAY_DISK_GIVEN_FILES_H
#define TB_GATEWAY_DISK_GIVEN_FILES_H

#include <stdint.h>

#include "tombolo/status.h"

#define TB_GIVEN_FILES_MAX  512 /* each is a descriptor of the gateway while it adopts */
#define TB_GIVEN_DEPTH_MAX  8   /* folders below the one that is given */
#define TB_GIVEN_NAME_BYTES 1024

struct tb_given_file {
    char *name; /* its way inside the folder */
    int fd;     /* -1: taken */
};

struct tb_given_files {
    struct tb_given_file files[TB_GIVEN_FILES_MAX];
    uint32_t count;
};

/* The descriptor is the list's, also on failure. TB_TOO_LARGE: there are too many, or the name is
 * too long; TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_given_add(struct tb_given_files *given, const char *name, int fd);
/* All regular files below the folder; `links` as folder_walk.h has it. TB_NOT_FOUND: no such
 * folder, or no file is in it. On failure error_out (512 bytes) has a sentence, and the list is
 * empty. */
TB_MUST_USE enum tb_status tb_given_open(const char *folder, const char *links,
                                         struct tb_given_files *given_out, char error_out[512]);
/* Closes them. */
void tb_given_close(struct tb_given_files *given);

#endif
