/* landlock.h - Linux Landlock: this thread, and all that it starts later, reach only named paths.
 *
 * The constants are our own: headers of Debian 12 lack the newer ones. The kernel is asked for its
 * ABI, and only rights that it knows are named. Threads: call before any other thread is there. */
#ifndef TB_GATEWAY_SANDBOX_LANDLOCK_H
#define TB_GATEWAY_SANDBOX_LANDLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "tombolo/status.h"

enum tb_sandbox_access {
    TB_SANDBOX_READ,    /* files and folders are read */
    TB_SANDBOX_WRITE,   /* a file is read, written and cut; devices likewise, with their controls */
    TB_SANDBOX_FOLDER,  /* files inside are made, read, written and removed */
    TB_SANDBOX_SOCKETS, /* sockets inside are made and removed */
};

struct tb_sandbox_path {
    char path[4096];
    enum tb_sandbox_access access;
};

/* The kernel's ABI, 0: it has no Landlock, or it is off. */
int tb_landlock_abi(void);
/* TB_NOT_FOUND: this kernel has none. TB_SITE_IO: errno says why. A path that is not there is
 * passed over: nothing can be reached by it. */
TB_MUST_USE enum tb_status tb_landlock_enter(const struct tb_sandbox_path *paths, uint32_t count);

#endif
