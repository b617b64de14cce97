/* audit_commands.h - commands that change something, each with its row in the audit record; and
 * `audit`, which lists it. */
#ifndef TB_DAEMON_AUDIT_COMMANDS_H
#define TB_DAEMON_AUDIT_COMMANDS_H

#include "gateway/daemon/control/control.h"

struct tb_daemon;

/* The command `fn`, with its row: for files of commands of their own. */
enum tb_status tb_audited(const char *action, tb_control_fn fn, struct tb_daemon *d, const json_t *request,
                          json_t *reply, char *error);
enum tb_status tb_audited_withdraw(void *user, const json_t *request, json_t *reply, char *error);
enum tb_status tb_audited_pin(void *user, const json_t *request, json_t *reply, char *error);
enum tb_status tb_audited_unpin(void *user, const json_t *request, json_t *reply, char *error);
enum tb_status tb_audited_rollback(void *user, const json_t *request, json_t *reply, char *error);
enum tb_status tb_audited_pause(void *user, const json_t *request, json_t *reply, char *error);
enum tb_status tb_audited_resume(void *user, const json_t *request, json_t *reply, char *error);
enum tb_status tb_audited_gc(void *user, const json_t *request, json_t *reply, char *error);
enum tb_status tb_audited_limit(void *user, const json_t *request, json_t *reply, char *error);
enum tb_status tb_audited_adopt(void *user, const json_t *request, json_t *reply, char *error);
enum tb_status tb_audited_drain(void *user, const json_t *request, json_t *reply, char *error);
/* Of each of these at control.read, which only reads: TB_PEER_DENIED. */
enum tb_status tb_audited_refusal(void *user, const json_t *request, json_t *reply, char *error);
enum tb_status tb_audit_command(void *user, const json_t *request, json_t *reply, char *error);

#endif
