/* reload.h - the configuration is read again while the gateway runs: all of it is checked, and each
 * change that a reload can make counts, or nothing changes.
 *
 * reload.c reads, checks and says; reload_rooms.c makes the changes. The difference and what comes
 * of it are a core's (gateway/config/config_difference.h). A request makes a plan and sets a mark;
 * the dispatcher takes the plan in this turn, room by room, and then answers. */
#ifndef TB_DAEMON_RELOAD_H
#define TB_DAEMON_RELOAD_H

#include <jansson.h>

#include "gateway/config/config_difference.h"
#include "tombolo/status.h"

struct tb_daemon;
struct tb_tls;

/* All that is to be. */
struct tb_reload {
    struct tb_config_difference difference;
    struct tb_config *next; /* NULL: a refused file, or nothing to change */
    struct tb_tls *tls;     /* of `next`; NULL: there is none */
    json_t *errors;         /* sentences */
    bool bad, dry_run;      /* bad: there was a complaint */
    uint64_t ticket;        /* of the control socket's reply; 0: none */
    char who[96], origin[16], reason[160];
};

/* SIGHUP. Certificates are read again, whatever else is the same. */
void tb_reload_signal(struct tb_daemon *d);
/* {"cmd": "reload", "dry_run": false, "reason": TEXT} (docs/control.md). */
enum tb_status tb_reload_command(void *daemon, const json_t *request, json_t *reply, char *error);
/* {"cmd": "config"}: what counts now, as a file that says it. */
enum tb_status tb_reload_config_command(void *daemon, const json_t *request, json_t *reply, char *error);

/* By the dispatcher: the plan, if there is one. */
void tb_reload_follow(struct tb_daemon *d);
/* At the end: a plan that nobody takes any more. */
void tb_reload_close(struct tb_daemon *d);

/* reload_rooms.c: the rooms, in order. Not TB_OK: nothing changed. The daemon's config is `next`
 * then, and the plan's no more. */
TB_MUST_USE enum tb_status tb_reload_rooms(struct tb_daemon *d, struct tb_reload *plan);

#endif
