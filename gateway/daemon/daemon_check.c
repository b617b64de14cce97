/* daemon_check.c - see daemon_check.h. */
#include "gateway/daemon/daemon_check.h"

#include "gateway/daemon/copies/copies_check.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/sessions/sessions_check.h"

#define TURN_ROWS 64u /* that a turn pays for */

void tb_daemon_check(const struct tb_daemon *d)
{
    tb_copies_check(d);
    tb_sessions_check(d);
}

void tb_daemon_check_turn(struct tb_daemon *d)
{
    if (!TB_CHECK_TURNS) return;
    const uint64_t rows = d->copies_used.used + d->connections.used + d->worker_exports.used;
    d->check_paid += TURN_ROWS;
    if (d->check_paid < rows) return;
    d->check_paid = 0;
    tb_daemon_check(d);
}
