/* thread.c - a thread of the library takes no signal of the process, but for its own faults.
 * Covers: base/thread.c */
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "tests/unit/check.h"

static void *mask_of_thread(void *user)
{
    pthread_sigmask(SIG_SETMASK, NULL, user);
    return user;
}

static void a_thread_blocks_all_signals_but_its_faults(void **state)
{
    (void)state;
    static const int blocked[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD, SIGPIPE, SIGALRM};
    static const int open[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL};
    sigset_t mask;
    pthread_t thread;
    void *result = NULL;
    assert_int_equal(tb_thread_start(&thread, mask_of_thread, &mask), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, &mask);
    for (size_t i = 0; i < sizeof blocked / sizeof blocked[0]; i++)
        assert_int_equal(sigismember(&mask, blocked[i]), 1);
    for (size_t i = 0; i < sizeof open / sizeof open[0]; i++)
        assert_int_equal(sigismember(&mask, open[i]), 0);
}

/* The application's own thread goes on with the mask that it had. */
static void the_starter_keeps_its_mask(void **state)
{
    (void)state;
    sigset_t mine, after, mask;
    pthread_t thread;
    sigemptyset(&mine);
    sigaddset(&mine, SIGUSR2);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &mine, NULL), 0);
    assert_int_equal(tb_thread_start(&thread, mask_of_thread, &mask), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_int_equal(sigismember(&after, SIGUSR2), 1);
    assert_int_equal(sigismember(&after, SIGTERM), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_blocks_all_signals_but_its_faults),
        cmocka_unit_test(the_starter_keeps_its_mask),
    };
    return cmocka_run_group_tests_name("unit.base.thread", tests, NULL, NULL);
}
