/* signals_wait.c - large memory for a process that is sent signals: an allocation that a signal
 * may end never would.
 *
 * Linked with a fallocate that does at any signal that may come what tmpfs of many kernels does.
 *
 * Covers: intra/fabric/shared_memory.c */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/system_calls.h"
#include "intra/fabric/shared_memory.h"

static unsigned calls, stops;
static off_t longest;

int __real_fallocate(int fd, int mode, off_t offset, off_t bytes);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t bytes);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    sigset_t now;
    calls++;
    if (bytes > longest) longest = bytes;
    if (stops > 0) {
        stops--;
        errno = EINTR;
        return -1;
    }
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &now), 0);
    if (sigismember(&now, SIGCHLD) == 1 && sigismember(&now, SIGPROF) == 1)
        return __real_fallocate(fd, mode, offset,
                                bytes < 1 << 20 ? bytes : 1 << 20); /* not all: it is large */
    errno = EINTR;
    return -1;
}

static void P6_signals_do_not_keep_it_from_its_memory(void **state)
{
    (void)state;
    struct tb_shared_memory m;
    sigset_t before, after;
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &before), 0);
    assert_int_equal(tb_shared_memory_new("test", (uint64_t)5 << 29, &m), TB_OK);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &after), 0);
    assert_int_equal(sigismember(&after, SIGCHLD), sigismember(&before, SIGCHLD));
    tb_shared_memory_free(&m);
}

/* The twin: they wait for a piece of it, not for all. */
static void they_come_between_two_pieces(void **state)
{
    (void)state;
    struct tb_shared_memory m;
    calls = 0;
    longest = 0;
    assert_int_equal(tb_shared_memory_new("test", (uint64_t)5 << 29, &m), TB_OK);
    assert_int_equal(calls, 160); /* of 16 MiB */
    assert_int_equal(longest, (uint64_t)16 << 20);
    tb_shared_memory_free(&m);
}

/* Nothing keeps SIGSTOP off: a call that it ended is made again. Another failure is told. */
static void P6_nor_does_one_that_stops_the_process(void **state)
{
    (void)state;
    struct tb_shared_memory m;
    stops = 3;
    assert_int_equal(tb_shared_memory_new("test", 1 << 20, &m), TB_OK);
    assert_int_equal(stops, 0);
    tb_shared_memory_free(&m);
    assert_int_equal(tb_sys_fallocate(-1, 0, 0, 1 << 20), -1);
    assert_int_equal(errno, EBADF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(P6_signals_do_not_keep_it_from_its_memory),
        cmocka_unit_test(P6_nor_does_one_that_stops_the_process),
        cmocka_unit_test(they_come_between_two_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
