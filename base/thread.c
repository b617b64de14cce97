/* thread.c - see thread.h. */
#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>

#include "base/fault.h"

static void all_but_faults(sigset_t *set)
{
    static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL};
    sigfillset(set);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        sigdelset(set, faults[i]);
}

int tb_thread_start(pthread_t *thread_out, void *(*fn)(void *user), void *user)
{
    if (tb_fault_hit(TB_FAULT_thread, EAGAIN)) return EAGAIN;
    sigset_t blocked, before;
    all_but_faults(&blocked);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    const int error = pthread_create(thread_out, NULL, fn, user);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
