/* service_manager.h - what this process tells the service manager that started it (sd_notify(3)):
 * it serves, it reloads, it ends, its main loop lives. Without NOTIFY_SOCKET every call does
 * nothing.
 *
 * Threads: the main thread alone, so a watchdog that is fed means that the main loop turns. */
#ifndef TB_GATEWAY_DAEMON_SERVICE_MANAGER_H
#define TB_GATEWAY_DAEMON_SERVICE_MANAGER_H

#include <stdbool.h>

#include "base/time.h"

/* All zero: nobody listens. */
struct tb_service_manager {
    bool open;
    int fd;
    tb_time_ns watchdog; /* from one sign of life to the next; 0: nobody waits for them */
    tb_time_ns alive_at;
};

/* Before the sandbox and the first thread: takes NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID out
 * of the environment, and with LISTEN_FDS the sockets that the process before left
 * (base/net/kept_listeners.h). A manager that cannot be reached is a warning. */
void tb_service_manager_open(struct tb_service_manager *m);
void tb_service_manager_close(struct tb_service_manager *m);

/* It serves. The manager keeps its listening sockets from now on. */
void tb_service_manager_ready(struct tb_service_manager *m);
void tb_service_manager_reloading(struct tb_service_manager *m); /* ready follows */
void tb_service_manager_stopping(struct tb_service_manager *m);
/* From each turn of the main loop: one sign of life in half of the time that the manager waits. */
void tb_service_manager_alive(struct tb_service_manager *m, tb_time_ns now);

#endif
