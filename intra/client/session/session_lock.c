/* session_lock.c - the lock of a session, its waits, the first and last step of a call. */
#include "intra/client/session/session_lock.h"

#include <errno.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "intra/client/session/session.h"

#define DRAIN_MS_UNKNOWN 10000u /* until a gateway said what its site drains for */

/* The session whose lock this thread holds. */
static _Thread_local const struct tb_session *held;

void tb_session_lock_init(struct tb_session *s)
{
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &attr);
    pthread_condattr_destroy(&attr);
}

void tb_session_lock_fini(struct tb_session *s)
{
    TB_ASSERT_UNLOCKED(s);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
}

void tb_session_lock(struct tb_session *s)
{
    TB_ASSERT(held == NULL);
    pthread_mutex_lock(&s->lock);
    held = s;
}

void tb_session_unlock(struct tb_session *s)
{
    TB_ASSERT_LOCKED(s);
    held = NULL;
    pthread_mutex_unlock(&s->lock);
}

bool tb_session_is_held(const struct tb_session *s)
{
    return held == s;
}

/* ---- calls ---- */

int tb_session_enter(struct tb_session *s)
{
    if (s == NULL) return tb_fail(TB_BAD_ARGUMENT, "no session given");
    if (s->pid != getpid())
        return tb_fail(TB_FORKED, "the session was opened by process %ld, this is %ld: open one of its own",
                       (long)s->pid, (long)getpid());
    tb_session_lock(s);
    const bool closing = s->closing;
    if (!closing) s->calls++;
    tb_session_unlock(s);
    return closing ? tb_fail(TB_CANCELLED, "the session is being closed") : TB_OK;
}

void tb_session_leave(struct tb_session *s)
{
    tb_session_lock(s);
    TB_ASSERT(s->calls > 0);
    s->calls--;
    if (s->closing) pthread_cond_broadcast(&s->changed);
    tb_session_unlock(s);
}

void tb_session_wait_for_calls(struct tb_session *s)
{
    tb_session_lock(s);
    s->closing = true;
    tb_session_changed(s, true);
    while (s->calls > 0)
        tb_session_wait_unbounded(s);
    tb_session_unlock(s);
}

struct tb_call tb_call_begin(struct tb_session *s, uint32_t timeout_ms)
{
    struct tb_call call = {.began = tb_clock_now()};
    call.deadline =
        timeout_ms == TB_WAIT_FOREVER ? TB_TIME_NEVER : tb_time_add(call.began, TB_MS(timeout_ms));
    tb_session_lock(s);
    call.cancels = s->cancels;
    tb_session_unlock(s);
    return call;
}

uint32_t tb_session_drain_ms(const struct tb_session *s)
{
    TB_ASSERT_LOCKED(s);
    return s->was_up ? s->welcome.drain_ms : DRAIN_MS_UNKNOWN;
}

/* ---- changes ---- */

void tb_session_changed(struct tb_session *s, bool tell)
{
    TB_ASSERT_LOCKED(s);
    pthread_cond_broadcast(&s->changed);
    if (!tell || s->eventfd < 0) return;
    const uint64_t one = 1;
    /* EAGAIN means that it is readable already, which is all we want. */
    const ssize_t written = write(s->eventfd, &one, sizeof one);
    TB_ASSERT(written == (ssize_t)sizeof one || errno == EAGAIN);
}

enum tb_status tb_session_wait_change(struct tb_session *s, const struct tb_call *call)
{
    TB_ASSERT_LOCKED(s);
    if (s->closing || s->cancels != call->cancels) return TB_CANCELLED;
    if (call->deadline == TB_TIME_NEVER) {
        pthread_cond_wait(&s->changed, &s->lock);
    } else {
        if (tb_clock_now() >= call->deadline) return TB_TIMEOUT;
        const struct timespec until = {.tv_sec = (time_t)(call->deadline / 1000000000u),
                                       .tv_nsec = (long)(call->deadline % 1000000000u)};
        pthread_cond_timedwait(&s->changed, &s->lock, &until);
    }
    return s->closing || s->cancels != call->cancels ? TB_CANCELLED : TB_OK;
}

void tb_session_wait_unbounded(struct tb_session *s)
{
    TB_ASSERT_LOCKED(s);
    pthread_cond_wait(&s->changed, &s->lock);
}

void tb_session_wake(struct tb_session *s)
{
    if (s->wake != NULL) uv_async_send(s->wake);
}
