/* sandbox.h - tombolod gives up rights: no-new-privileges, a system call filter, Landlock.
 *
 * A layer that this kernel or this build lacks is passed over, and named in `lacks`. Threads: call
 * before any other thread is there; nothing gives a right back. */
#ifndef TB_GATEWAY_SANDBOX_SANDBOX_H
#define TB_GATEWAY_SANDBOX_SANDBOX_H

#include "gateway/sandbox/landlock.h"

struct tb_config;

#define TB_SANDBOX_LACKS_BYTES 256

struct tb_sandbox {
    bool wanted;
    bool no_new_privileges, filter, landlock;
    int landlock_abi;                   /* of the kernel; 0: it has none */
    char lacks[TB_SANDBOX_LACKS_BYTES]; /* why a layer is not on, with "; " between; "": all are */
};

/* Enters all three. */
void tb_sandbox_enter(const struct tb_sandbox_path *paths, uint32_t count, struct tb_sandbox *sandbox_out);

/* The paths that this configuration needs; the caller frees the list. A file or a folder that the
 * start would make is made: no rule can name one that is not there. TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_sandbox_paths(const struct tb_config *config, const char *config_path,
                                            struct tb_sandbox_path **paths_out, uint32_t *count_out);

#endif
