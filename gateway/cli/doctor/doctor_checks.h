/* doctor_checks.h - the table of checks of `tombolo doctor`: what each is called, what it looks at,
 * and what to do where it gives no advice of its own. */
#ifndef TB_GATEWAY_CLI_DOCTOR_CHECKS_H
#define TB_GATEWAY_CLI_DOCTOR_CHECKS_H

#include <stdint.h>

#include "gateway/cli/doctor/doctor_tell.h"

enum tb_check_need {
    TB_NEEDS_CONFIG = 1,
    TB_NEEDS_FILES = 2,   /* the rights of the gateway's user */
    TB_NEEDS_GATEWAY = 4, /* that runs */
    TB_EACH_PEER = 8,     /* once for each, and not once */
    TB_NEEDS_USER = 16    /* the gateway's user is known: another one sees otherwise */
};

struct tb_check {
    const char *group; /* of peers it is "peer SITE" */
    const char *names; /* of what it tells, with blanks between */
    void (*look)(const struct tb_doctor *d);
    const char *advice;
    uint32_t limit_ms; /* a check that takes longer is a cross */
    unsigned needs;    /* enum tb_check_need */
};

/* In the order in which they are shown; ends with a row without a group. */
const struct tb_check *tb_doctor_checks(void);
/* Why the check is not made; NULL: it is. */
const char *tb_check_why_not(const struct tb_check *check, const struct tb_doctor *d);

/* doctor_site_checks.c and doctor_peer_checks.c: rows of the table. */
void tb_check_file(const struct tb_doctor *d);
void tb_check_start(const struct tb_doctor *d);
void tb_check_gateway(const struct tb_doctor *d);
void tb_check_certificates(const struct tb_doctor *d);
void tb_check_disks(const struct tb_doctor *d);
void tb_check_arena(const struct tb_doctor *d);
void tb_check_way(const struct tb_doctor *d);
void tb_check_link(const struct tb_doctor *d);
void tb_check_rights(const struct tb_doctor *d);

#endif
