/* thread.h - threads of a library in somebody else's process. A shell.
 *
 * Signals belong to the process: a thread that is started here takes none, but for its own
 * faults (SIGBUS, SIGSEGV, SIGFPE, SIGILL). A fault whose signal is blocked ends the process,
 * whatever handler it has.
 *
 * Threads: any. */
#ifndef TB_BASE_THREAD_H
#define TB_BASE_THREAD_H

#include <pthread.h>

/* As pthread_create. */
int tb_thread_start(pthread_t *thread_out, void *(*fn)(void *user), void *user);

#endif
