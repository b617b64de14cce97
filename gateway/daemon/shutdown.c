/* shutdown.c - how long the end of a gateway waits for disks, and what it leaves as it is where
 * one does not answer.
 *
 * P9: a request for an end gets one. A thread in a call that never returns is left behind, and with
 * it all that it may touch: memory, the arena, the store. Nothing is lost by that which a kill
 * would not lose (P3).
 *
 * A disk that hangs takes no time from one that answers (P10: nor its name): threads are told
 * to end before anybody is waited for, the store goes first, and each of its answers earns it
 * time for what is next. */
#include <time.h>

#include "gateway/daemon/daemon.h"

#include "gateway/daemon/shutdown.h"

#define CLOSE_NS TB_SECONDS(2) /* also where drain_ms are over: a disk that answers does so in less */
#define LOOK_NS  TB_MS(2)

void tb_closing_grant(struct tb_daemon *d)
{
    const tb_time_ns now = tb_clock_now(), least = tb_time_add(now, CLOSE_NS);
    const tb_time_ns drained = d->drain_at != 0 ? tb_time_add(d->drain_at, TB_MS(d->config->drain_ms)) : now;
    d->close_until = drained > least ? drained : least;
}

uint32_t tb_closing_ms(const struct tb_daemon *d)
{
    const tb_time_ns now = tb_clock_now();
    return now < d->close_until ? (uint32_t)((d->close_until - now) / TB_MS(1)) : 0;
}

bool tb_closing_awaits(const struct tb_daemon *d, const _Atomic bool *done)
{
    while (!atomic_load(done)) {
        if (tb_clock_now() >= d->close_until) return false;
        (void)nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
    return true;
}

void tb_closing_left(struct tb_daemon *d, const char *what, const char *path)
{
    struct tb_log_line l;
    d->left = true;
    tb_log_begin(&l, TB_LOG_ERROR, "stop.disk_hangs");
    tb_log_str(&l, "what", what);
    tb_log_str(&l, "path", path);
    tb_log_str(&l, "action", "look at its disk; the end does not wait for it");
    tb_log_end(&l);
}
