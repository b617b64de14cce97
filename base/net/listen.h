/* listen.h - listening sockets of a libuv loop, unix or TCP. A connection that one accepts is
 * made a chan by its owner (chan.h). A shell.
 *
 * Threads: a listener lives on the thread of its loop, where its callback runs. */
#ifndef TB_BASE_NET_LISTEN_H
#define TB_BASE_NET_LISTEN_H

#include <uv.h>

#include "base/net/endpoint.h"

/* A listening socket: on_accept gets each fd (CLOEXEC, non-blocking), with TCP_NODELAY. A full
 * descriptor table does not spin: accepting rests 100 ms. */
struct tb_listener;
typedef void (*tb_accept_fn)(void *user, int fd, const struct tb_address *from);
/* A unix path that nobody listens on any more is replaced; mode is applied before listen.
 * TB_SITE_IO with errno, TB_SITE_LOCKED: in use. */
TB_MUST_USE enum tb_status tb_listen(uv_loop_t *loop, const struct tb_address *at, unsigned unix_mode,
                                     tb_accept_fn fn, void *user, struct tb_listener **listener_out);
/* Could it? The same statuses and errno; nothing is made. A port of that address is bound for a
 * moment. */
TB_MUST_USE enum tb_status tb_listen_check(const struct tb_address *at);
struct tb_address tb_listener_address(const struct tb_listener *l); /* the port that was given */
void tb_listener_close(struct tb_listener *l);

#endif
