/* prover.c - see prover.h. */
#include "intra/client/live/prover.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/thread.h"
#include "intra/client/live/live_proof.h"
#include "intra/client/session/session.h"

/* Not SCHED_IDLE: it holds the buffers for a stride, and a switch waits for that. */
#define NICE 10

static void rest_for(struct tb_session *s, tb_time_ns ns)
{
    TB_ASSERT_LOCKED(s);
    const struct timespec pause = {.tv_sec = (time_t)(ns / TB_SECONDS(1)),
                                   .tv_nsec = (long)(ns % TB_SECONDS(1))};
    tb_session_unlock(s);
    (void)nanosleep(&pause, NULL);
    tb_session_lock(s);
}

static void *prover_main(void *user)
{
    struct tb_session *s = user;
    pthread_setname_np(pthread_self(), "tombolo-prover");
    /* Refused, it only runs as any other thread. */
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    tb_session_lock(s);
    while (!s->prover.stop) {
        tb_time_ns rest = 0;
        if (!tb_live_step(s, &rest))
            tb_session_wait_unbounded(s);
        else if (rest > 0)
            rest_for(s, rest < TB_MS(20) ? rest : TB_MS(20));
    }
    tb_session_unlock(s);
    return NULL;
}

void tb_prover_wake(struct tb_session *s)
{
    TB_ASSERT_LOCKED(s);
    if (s->prover.started) {
        tb_session_changed(s, false);
        return;
    }
    if (s->prover.stop || s->closing) return;
    s->prover.started = tb_thread_start(&s->prover.thread, prover_main, s) == 0;
    if (!s->prover.started) tb_log(TB_LOG_WARN, "live.no_thread", "action=not_proven");
}

void tb_prover_end(struct tb_session *s)
{
    tb_session_lock(s);
    s->prover.stop = true;
    const bool started = s->prover.started;
    tb_session_changed(s, false);
    tb_session_unlock(s);
    if (started) (void)pthread_join(s->prover.thread, NULL);
}
