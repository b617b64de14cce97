/* web_server.h - the paths of tombolo-web over HTTP: GET and HEAD alone. A shell, on a thread of
 * libmicrohttpd's. */
#ifndef TB_GATEWAY_WEB_SERVER_H
#define TB_GATEWAY_WEB_SERVER_H

#include <stdint.h>
#include <sys/socket.h>

#include "tombolo/status.h"

struct tb_web_server;

/* `control` is the gateway's control socket, and outlives the server. However many ask here, the
 * gateway is asked as web_answers.h says. TB_BAD_ARGUMENT: it cannot listen there; errno is why. */
TB_MUST_USE enum tb_status tb_web_server_open(const char *control, const struct sockaddr *at,
                                              struct tb_web_server **server_out);
uint16_t tb_web_server_port(const struct tb_web_server *server);
void tb_web_server_close(struct tb_web_server *server); /* NULL is fine */

#endif
