/* control.h - the local control socket: one JSON object a line each way, "schema": 1
 * (docs/control.md). A shell.
 *
 * Mode 0660: a user that may open it is an operator of this site. Requests are bounded (64 KiB),
 * connections too; a line that is no request is answered with why, one that is too long ends its
 * connection. Thread: the main loop. */
#ifndef TB_DAEMON_CONTROL_H
#define TB_DAEMON_CONTROL_H

#include <jansson.h>
#include <stdbool.h>
#include <uv.h>

#include "base/ident.h"
#include "tombolo/status.h"

struct tb_control;

/* Fills `reply` (an object that has "schema" and "ok": true already). On failure `error` gets a
 * sentence (256 bytes). TB_AGAIN: the reply is filled and goes out with tb_control_release. */
typedef enum tb_status (*tb_control_fn)(void *user, const json_t *request, json_t *reply, char *error);

struct tb_control_command {
    const char *cmd;
    tb_control_fn fn;
};

/* The answer to one line: a new object, or NULL when there is no memory for one. The line is a
 * stranger's. *later_out: it goes out with tb_control_release. */
json_t *tb_control_answer(const struct tb_control_command *commands, void *user, const char *line,
                          size_t bytes, bool *later_out);

/* `commands` ends with a row of NULLs and is borrowed for life. TB_SITE_IO with errno,
 * TB_SITE_LOCKED, TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_control_open(uv_loop_t *loop, const char *path,
                                           const struct tb_control_command *commands, void *user,
                                           struct tb_control **control_out);
/* In a command: the operator that asks, as the kernel says of the socket's other end. "ann (uid
 * 1000)", or "uid 1000" where /etc/passwd has no name for it. Empty: outside of a command, or
 * `control` is NULL. */
#define TB_OPERATOR_BYTES 96
void tb_control_operator(const struct tb_control *control, char who_out[TB_OPERATOR_BYTES]);
/* In a command that will answer TB_AGAIN: the ticket of its reply. */
uint64_t tb_control_ticket(struct tb_control *control);
/* Sends that reply, or with another status than TB_OK a refusal. A client that is gone is fine. */
void tb_control_release(struct tb_control *control, uint64_t ticket, enum tb_status status);
/* The same with a descriptor, which stays the caller's: it goes with one byte, 'F', ahead of the
 * reply's line. */
void tb_control_release_file(struct tb_control *control, uint64_t ticket, int fd);
/* In a command: the descriptors that came with its request, the caller's from here on. 0 outside
 * of a command, or where `control` is NULL. */
#define TB_CONTROL_FILES_MAX   512u
#define TB_CONTROL_CLIENTS_MAX 64u
uint32_t tb_control_files(struct tb_control *control, int fds_out[TB_CONTROL_FILES_MAX]);
void tb_control_close(struct tb_control *control);

/* Its clients: now, at once so far, at most; and those for which there was no place. */
struct tb_control_usage {
    uint32_t clients, most, max;
    uint64_t refused, spent; /* spent: of them, as their user had its share */
};
void tb_control_usage(const struct tb_control *control, struct tb_control_usage *usage_out);
void tb_control_check(const struct tb_control *control); /* asserts that clients and files are counted */
/* The identity of each client, by turns; NULL: that was the last. */
const struct tb_identity *tb_control_asker_at(const struct tb_control *control, uint32_t *cursor);

#endif
