/* control_client.h - one question to a gateway's control socket (docs/control.md), and its answer.
 * Blocking; bounded in time and bytes. */
#ifndef TB_GATEWAY_CLI_CONTROL_CLIENT_H
#define TB_GATEWAY_CLI_CONTROL_CLIENT_H

#include <jansson.h>
#include <stdint.h>

#include "gateway/cli/cli.h"
#include "tombolo/status.h"

#define TB_CONTROL_PATH_DEFAULT    "/run/tombolo/control.sock"
#define TB_CONTROL_REPLY_BYTES_MAX ((size_t)16 << 20)

/* --control, else TOMBOLO_CONTROL, else the default. Borrowed. */
const char *tb_control_client_path(const struct tb_cli_call *call);

/* Sends `request` (borrowed; "schema" is added) and waits for the answer. On TB_OK *reply_out is an
 * object with "ok": true, the caller's. Otherwise `error` says what is wrong: the gateway's own
 * sentence where it refused.
 *   TB_GATEWAY_AWAY  nobody listens there, or the connection broke
 *   TB_PEER_DENIED   the socket's mode does not let us in
 *   TB_TIMEOUT
 *   TB_PEER_GARBLED  not an answer of this schema
 *   any other status is the gateway's */
TB_MUST_USE enum tb_status tb_control_client_ask(const char *path, json_t *request, uint32_t timeout_ms,
                                                 json_t **reply_out, char error[512]);

/* The same with descriptors beside the request (NULL: none), borrowed for the call. */
struct tb_control_send {
    const int *fds;
    uint32_t count;
};
TB_MUST_USE enum tb_status tb_control_client_ask_with(const char *path, json_t *request,
                                                      const struct tb_control_send *files,
                                                      uint32_t timeout_ms, json_t **reply_out,
                                                      char error[512]);

/* The same for an answer with a descriptor, which is the caller's. TB_PEER_GARBLED: none came. */
TB_MUST_USE enum tb_status tb_control_client_ask_file(const char *path, json_t *request, uint32_t timeout_ms,
                                                      json_t **reply_out, int *file_out, char error[512]);

/* A descriptor that poll() calls readable once the process that listens there is gone; the
 * caller's. -1: nobody listens, or the kernel has none (before 5.3), or the process is in another
 * namespace of pids. */
TB_MUST_USE int tb_control_client_process(const char *path);

/* The status of a name such as "not_found"; TB_PEER_GARBLED for another text. */
enum tb_status tb_control_client_status(const char *name);

/* The same of an answer that is here already. */
TB_MUST_USE enum tb_status tb_control_client_reply(const char *text, size_t count, json_t **reply_out,
                                                   char error[512]);

#endif
