/* guard.c - memory that maps a file which is cut short: the load goes on, and it is noted; faults
 * elsewhere go where they went before. P10
 *
 * Covers: intra/client/memory/file_guard.c, base/thread.c */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/thread.h"
#include "intra/client/memory/file_guard.h"
#include "unit/check.h"

#define PAGE 4096u

static sigjmp_buf elsewhere;
static volatile sig_atomic_t woken;

static void wake(void *user)
{
    (void)user;
    woken++;
    errno = EBADF;
}

static void on_other_fault(int number)
{
    (void)number;
    siglongjmp(elsewhere, 1);
}

/* A mapping of a file of that many pages, in which every byte is 7. */
static uint8_t *file_of(uint32_t pages, int *fd_out)
{
    char path[] = "/tmp/tombolo-guard-XXXXXX";
    static uint8_t sevens[PAGE];
    memset(sevens, 7, sizeof sevens);
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(unlink(path), 0);
    for (uint32_t i = 0; i < pages; i++)
        assert_int_equal(write(fd, sevens, PAGE), PAGE);
    uint8_t *at = mmap(NULL, (size_t)pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    *fd_out = fd;
    return at;
}

static struct tb_guard *guard(const uint8_t *at, uint64_t bytes)
{
    struct tb_guard_range range = {at, bytes};
    struct tb_guard *g = NULL;
    CHECK_OK(tb_guard_new(&range, 1, wake, NULL, &g));
    return g;
}

static int load(const uint8_t *at)
{
    return *(const volatile uint8_t *)at;
}

static void a_missing_page_is_noted_and_reads_as_zeros(void)
{
    int fd;
    uint8_t *at = file_of(8, &fd);
    struct tb_guard *g = guard(at + PAGE, 7 * PAGE);
    assert_non_null(g);
    woken = 0;
    assert_int_equal(ftruncate(fd, 3 * PAGE + 100), 0);
    errno = EXDEV;
    assert_int_equal(load(at + 3 * PAGE + 99), 7);
    assert_int_equal(load(at + 3 * PAGE + 200), 0); /* in its last page: no fault, and the digest tells */
    assert_null(tb_guard_missing(g));
    assert_int_equal(load(at + 6 * PAGE + 5), 0);
    assert_int_equal(errno, EXDEV);
    assert_ptr_equal(tb_guard_missing(g), at + 6 * PAGE + 5);
    assert_int_equal(load(at + 4 * PAGE), 0);
    assert_ptr_equal(tb_guard_missing(g), at + 6 * PAGE + 5); /* where it was first */
    assert_int_equal(woken, 1);
    assert_int_equal(load(at + 2 * PAGE), 7); /* what is there stays */
    tb_guard_end(g);
    munmap(at, 8 * PAGE);
    close(fd);
}

/* Other processes and the kernel read without a signal: then a look finds it. */
static void a_look_finds_it_without_a_load(void)
{
    int fd;
    uint8_t *at = file_of(4, &fd);
    struct tb_guard *g = guard(at, 4 * PAGE);
    tb_guard_look(g);
    assert_null(tb_guard_missing(g));
    assert_int_equal(ftruncate(fd, PAGE), 0);
    tb_guard_look(g);
    assert_ptr_equal(tb_guard_missing(g), at + 4 * PAGE - 1);
    uint8_t copy[2 * PAGE] = {0};
    assert_true(tb_guard_copy(copy, at, PAGE));
    assert_int_equal(copy[5], 7);
    assert_false(tb_guard_copy(copy, at, 2 * PAGE));
    tb_guard_end(g);
    tb_guard_end(NULL);
    tb_guard_look(NULL);
    assert_null(tb_guard_missing(NULL));
    munmap(at, 4 * PAGE);
    close(fd);
}

static void what_maps_no_file_needs_no_guard(void)
{
    uint8_t *at = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_null(guard(at, 2 * PAGE));
    assert_null(guard(at, 0));
    munmap(at, 2 * PAGE);
}

/* Two registrations of one mapping, out of order and in part the same: both hear of it. */
static void each_guard_of_the_range_is_told(void)
{
    int fd;
    uint8_t *at = file_of(6, &fd);
    struct tb_guard *all = guard(at, 6 * PAGE), *other = guard(at, PAGE), *two = NULL;
    struct tb_guard_range ranges[] = {{at + 4 * PAGE + 1, 10}, {at + PAGE, 5}, {at + 4 * PAGE, 20}};
    CHECK_OK(tb_guard_new(ranges, 3, wake, NULL, &two));
    assert_int_equal(ftruncate(fd, 2 * PAGE), 0);
    assert_int_equal(load(at + 4 * PAGE + 7), 0);
    assert_non_null(tb_guard_missing(all));
    assert_non_null(tb_guard_missing(two));
    assert_null(tb_guard_missing(other));
    tb_guard_end(all);
    tb_guard_end(two);
    tb_guard_end(other);
    munmap(at, 6 * PAGE);
    close(fd);
}

static void faults_elsewhere_go_where_they_went(void)
{
    int fd;
    uint8_t *at = file_of(4, &fd);
    struct tb_guard *g = guard(at, PAGE);
    assert_int_equal(ftruncate(fd, 0), 0);
    if (sigsetjmp(elsewhere, 1) == 0) {
        (void)load(at + 2 * PAGE);
        fail_msg("a load from a page that nobody guards came back");
    }
    assert_null(tb_guard_missing(g));
    assert_int_equal(load(at), 0);
    tb_guard_end(g);
    if (sigsetjmp(elsewhere, 1) == 0) {
        (void)load(at + 3 * PAGE); /* and after its end */
        fail_msg("a load after the guard's end came back");
    }
    munmap(at, 4 * PAGE);
    close(fd);
}

struct work {
    const uint8_t *at; /* NULL: nothing is loaded */
    int seen;
    sigset_t blocked;
};

static void *work(void *user)
{
    struct work *w = user;
    pthread_sigmask(SIG_BLOCK, NULL, &w->blocked);
    if (w->at != NULL) w->seen = load(w->at);
    return NULL;
}

static void in_a_thread(struct work *w)
{
    pthread_t thread;
    assert_int_equal(tb_thread_start(&thread, work, w), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* The kernel ends a process whose thread faults while it blocks the signal: threads
 * of the library do not. */
static void threads_of_ours_take_their_own_faults_alone(void)
{
    int fd;
    uint8_t *at = file_of(2, &fd);
    struct tb_guard *g = guard(at, 2 * PAGE);
    struct work none = {.at = NULL}, w = {.at = at + PAGE, .seen = -1};
    const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL},
              others[] = {SIGTERM, SIGINT, SIGCHLD, SIGUSR1, SIGPROF};
    in_a_thread(&none);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        assert_int_equal(sigismember(&none.blocked, faults[i]), 0);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_int_equal(sigismember(&none.blocked, others[i]), 1);
    assert_int_equal(ftruncate(fd, 0), 0);
    in_a_thread(&w);
    assert_int_equal(w.seen, 0);
    assert_non_null(tb_guard_missing(g));
    tb_guard_end(g);
    munmap(at, 2 * PAGE);
    close(fd);
}

static void P10_a_file_that_is_cut_short_ends_no_process(void **state)
{
    (void)state;
    struct sigaction action = {.sa_handler = on_other_fault};
    assert_int_equal(sigaction(SIGBUS, &action, NULL), 0); /* what was there before the first guard */
    a_missing_page_is_noted_and_reads_as_zeros();
    a_look_finds_it_without_a_load();
    what_maps_no_file_needs_no_guard();
    each_guard_of_the_range_is_told();
    faults_elsewhere_go_where_they_went();
    threads_of_ours_take_their_own_faults_alone();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(P10_a_file_that_is_cut_short_ends_no_process)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
