/* doctor_tell.h - what a check of `tombolo doctor` may ask, and how it tells what it found. */
#ifndef TB_GATEWAY_CLI_DOCTOR_TELL_H
#define TB_GATEWAY_CLI_DOCTOR_TELL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "gateway/cli/doctor/doctor_finding.h"
#include "gateway/config/config.h"

#define TB_CHECK_NAME_BYTES 16

/* Facts that a check may ask for. Borrowed. A check changes its process alone (doctor_run.h). */
struct tb_doctor {
    const char *file;               /* of the configuration, for people; never NULL */
    const struct tb_config *config; /* NULL: there is none that could be read */
    const json_t *complaints;       /* lines: why not, or warnings */
    const json_t *status;           /* of the gateway that runs; NULL: none was asked, or none answered */
    const char *no_gateway;         /* why status is NULL; NULL with before_start */
    const char *no_files;           /* why this user cannot look as the gateway does; NULL: it can */
    const char *no_user;            /* why this process may not be the gateway's user; NULL: it is */
    uint32_t limit_times;           /* each check has so many times its time; 0: once */
    bool gateway_denied;            /* status is NULL as this user may not ask */
    bool before_start;              /* --pre */
    uint32_t peer;                  /* of a check of each peer: its index */
    void (*tell)(void *user, const char *name, const struct tb_finding *finding);
    void *user;
};

/* `name` is one of the check's. */
void tb_doctor_tell(const struct tb_doctor *d, const char *name, struct tb_finding finding);
/* The row of `links` of this check's peer; NULL: there is none. */
const json_t *tb_doctor_link(const struct tb_doctor *d);

#endif
