#include "gateway/daemon/copies/arena_prover.h"

#include <time.h>

#include "base/clock.h"
#include "base/machine.h"
#include "base/thread.h"
#include "gateway/arena/arena_proofs.h"
#include "gateway/arena/arena_verify.h"
#include "gateway/daemon/daemon.h"

#define STEP_BYTES ((uint64_t)16 << 20) /* some 4 ms */

uint32_t tb_arena_prover_threads(const struct tb_config *config)
{
    return tb_fabric_threads(config->fabric_threads, tb_cores_allowed() / 2);
}

/* P6: the main loop waits for the arena's mutex, and for a chunk in hand where its region is freed.
 * A thread of low priority would be preempted with them in its hands. So this one has the priority
 * of those who wait for it, and pauses for an eighth of each step, so that others get in. */
static void rest(tb_time_ns step_ns)
{
    const struct timespec pause = {.tv_sec = (time_t)(step_ns / TB_SECONDS(1)),
                                   .tv_nsec = (long)(step_ns % TB_SECONDS(1))};
    (void)nanosleep(&pause, NULL);
}

static void prove_all(struct tb_daemon *d)
{
    struct tb_arena_prover *p = &d->prover;
    enum tb_status status = TB_AGAIN;
    while (status == TB_AGAIN && !atomic_load(&p->stop)) {
        struct tb_arena_verified done = {0};
        const tb_time_ns began = tb_clock_now();
        /* P6: chunks of an earlier process are proven here where nobody verifies them. */
        status = tb_arena_prove_step(d->arena, STEP_BYTES, !d->verifier_digests, &done);
        if (status == TB_AGAIN) rest(tb_time_since(began, tb_clock_now()) / 8);
        atomic_fetch_add(&d->verify_bad, done.bad);
        if (done.proven > 0) atomic_store(&p->proved, true);
        if (done.proven > 0 || done.bad > 0) uv_async_send(&d->verify_wake);
    }
}

static void *prover_main(void *user)
{
    struct tb_daemon *d = user;
    while (!atomic_load(&d->prover.stop)) {
        if (sem_wait(&d->prover.due) != 0) continue; /* a signal */
        atomic_store(&d->prover.asked, false);
        prove_all(d);
    }
    return NULL;
}

void tb_arena_prover_due(struct tb_daemon *d)
{
    struct tb_arena_prover *p = &d->prover;
    if (p->runs && !atomic_exchange(&p->asked, true)) (void)sem_post(&p->due);
}

/* The last chunk may land behind the last tick that saw one move: one more tick asks. */
void tb_arena_prover_ask(struct tb_daemon *d, bool moves)
{
    struct tb_arena_prover *p = &d->prover;
    const bool due = moves || p->moved;
    p->moved = moves;
    if (due) tb_arena_prover_due(d);
}

void tb_arena_prover_start(struct tb_daemon *d)
{
    struct tb_arena_prover *p = &d->prover;
    if (tb_arena_prover_threads(d->config) > 1 || sem_init(&p->due, 0, 0) != 0) return;
    p->runs = tb_arena_prove_later(d->arena, true) && tb_thread_start(&p->thread, prover_main, d) == 0;
    p->moved = p->runs; /* an anchor lands ahead of the first tick, which sees nothing move */
    if (p->runs) return;
    (void)tb_arena_prove_later(d->arena, false);
    (void)sem_destroy(&p->due);
}

void tb_arena_prover_end(struct tb_daemon *d)
{
    struct tb_arena_prover *p = &d->prover;
    if (!p->runs) return;
    atomic_store(&p->stop, true);
    (void)sem_post(&p->due);
    pthread_join(p->thread, NULL);
    (void)sem_destroy(&p->due);
    p->runs = false;
}
