/* version_hook.h - the command of `subscribe --on-version`: run once for each version
 * that becomes the newest.
 *
 * The command runs by /bin/sh, in a process group of its own. Its standard output is our standard
 * error, so that nothing comes between the results of --json. Threads: one. */
#ifndef TB_GATEWAY_CLI_VERSION_HOOK_H
#define TB_GATEWAY_CLI_VERSION_HOOK_H

#include <stdbool.h>
#include <stdint.h>

#include "tombolo/status.h"

struct tb_version_hook {
    const char *command;
    const char *model; /* TOMBOLO_MODEL */
    uint64_t run;      /* TOMBOLO_RUN */
    uint64_t number;   /* TOMBOLO_NUMBER */
    const char *uid;   /* TOMBOLO_UID */
    const char *dir;   /* TOMBOLO_DIR: the version's folder, an absolute path */
    /* Asked a few times a second while the command runs: true ends it, by SIGTERM, and after
     * ten seconds by SIGKILL. */
    bool (*over)(void *user);
    void *user;
};

/* Runs the command until it ends.
 *   TB_OK         it ended with exit code 0
 *   TB_CANCELLED  `over` said so
 *   TB_SITE_IO    any other end; why_out says which */
TB_MUST_USE enum tb_status tb_version_hook_run(const struct tb_version_hook *hook, char why_out[128]);

#endif
