/* doctor_run.h - runs checks, each in a process of its own: one that hangs or falls is a finding,
 * and holds up none of the others. A shell. */
#ifndef TB_GATEWAY_CLI_DOCTOR_RUN_H
#define TB_GATEWAY_CLI_DOCTOR_RUN_H

#include "gateway/cli/doctor/doctor_checks.h"

struct tb_result {
    const struct tb_check *check;
    const char *site; /* of the peer; empty: it is of none */
    char name[TB_CHECK_NAME_BYTES];
    struct tb_finding finding;
};

struct tb_doctor_watch {
    /* In the order of the table, peer by peer where rows of peers stand beside each other. */
    void (*result)(void *user, const struct tb_result *result);
    /* Before each wait: how many checks of how many have ended. */
    void (*progress)(void *user, uint32_t ended, uint32_t all);
    void *user;
};

/* `checks` ends with a row without a group. `only` a peer's index, or UINT32_MAX: all of them. Each
 * process becomes the gateway's user where this one is root (gateway_user.h). TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_doctor_run(const struct tb_check *checks, const struct tb_doctor *d,
                                         uint32_t only, const struct tb_doctor_watch *watch);

#endif
