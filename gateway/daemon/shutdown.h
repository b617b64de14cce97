/* shutdown.h - the end waits for disks until drain_ms are over, and two seconds at least from
 * the last grant: at its begin, and for each thing that the store has to write. */
#ifndef TB_DAEMON_SHUTDOWN_H
#define TB_DAEMON_SHUTDOWN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct tb_daemon;

/* The end waits for disks until drain_ms are over, and two seconds at least from the last grant:
 * at its begin, and for each thing that the store has to write. */
void tb_closing_grant(struct tb_daemon *d);
uint32_t tb_closing_ms(const struct tb_daemon *d); /* that are left of that */
/* False: there are none left, and it is not done. */
bool tb_closing_awaits(const struct tb_daemon *d, const _Atomic bool *done);
/* A thread that waits for this disk is left behind: nothing that it may touch is given back, and
 * the exit code is 1. */
void tb_closing_left(struct tb_daemon *d, const char *what, const char *path);

#endif
