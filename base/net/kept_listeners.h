/* kept_listeners.h - listening sockets that a service manager keeps while this process is replaced
 * by its successor: connections wait in their queues meanwhile, and none is refused. A shell.
 *
 * tb_listen asks for them (listen.h). Until begin is called nothing is kept. Threads: any. */
#ifndef TB_BASE_NET_KEPT_LISTENERS_H
#define TB_BASE_NET_KEPT_LISTENERS_H

#include "base/net/endpoint.h"

#define TB_KEPT_LISTENERS_MAX 16u

/* From now on sockets are kept; those that the process before left are taken over, and stay ours.
 * Descriptors that do not listen, and those beyond the bound, are closed. */
void tb_kept_listeners_begin(const int *left, uint32_t count);
void tb_kept_listeners_end(void);

/* The socket that listens at that address already, as a duplicate; -1: there is none. A unix socket
 * whose path is gone reaches nobody: it counts as none. */
int tb_kept_listener_take(const struct tb_address *at);
/* A socket that listens by now. False: it is not kept, as nothing is, the port was chosen by the
 * kernel, or there is no room. */
bool tb_kept_listener_add(int fd, const struct tb_address *asked);
/* The sockets that tb_listen asked for or added: the manager keeps them. The others are closed. */
uint32_t tb_kept_listeners(int fds_out[TB_KEPT_LISTENERS_MAX]);

#endif
