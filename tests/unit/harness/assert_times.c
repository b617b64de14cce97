/* The file that bench/asserts reads: of a process whose asserts take their time. This program is
 * that process as well: with a way to end as its argument.
 *
 * Covers: bench/assert_times.c */
#include "bench/assert_times.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/check.h"
#include "tests/unit/scratch.h"

#define PASSES  1000
#define WALK_NS 2000000
#define BUSY_NS 100000 /* twice TB_ASSERT_LONG_NS */

static uint64_t ns_now(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- the process that is measured ---- */

static bool takes(clockid_t clock, uint64_t ns)
{
    const uint64_t began = ns_now(clock);
    while (ns_now(clock) - began < ns) {
    }
    return true;
}

static void walk(void)
{
    for (int i = 0; i < PASSES; i++)
        TB_ASSERT(i < PASSES && "in a walk");
    TB_ASSERT(takes(CLOCK_THREAD_CPUTIME_ID, WALK_NS));
}

static int measured(const char *way)
{
    for (int i = 0; i < PASSES; i++)
        TB_ASSERT(i < PASSES && "often");
    TB_ASSERT(takes(CLOCK_MONOTONIC, BUSY_NS));
    TB_CHECK(walk());
    if (strcmp(way, "kill") == 0) (void)raise(SIGKILL);
    if (strcmp(way, "fail") == 0) TB_ASSERT(PASSES == 0);
    return 0;
}

/* ---- what it left ---- */

static const struct tb_assert_times *run(const char *way, int *status_out)
{
    char folder[SCRATCH_BYTES], path[SCRATCH_BYTES + 32];
    assert_true(scratch_folder(folder, sizeof folder, "times"));
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const int nowhere = open("/dev/null", O_WRONLY);
        if (nowhere < 0 || dup2(nowhere, STDERR_FILENO) < 0) _exit(90);
        if (setenv("TB_ASSERTS_DIR", folder, 1) != 0) _exit(91);
        (void)execl("/proc/self/exe", "assert_times", way, (char *)NULL);
        _exit(92);
    }
    assert_int_equal(waitpid(pid, status_out, 0), pid);
    (void)snprintf(path, sizeof path, "%s/%d", folder, (int)pid);
    const int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    const struct tb_assert_times *times = mmap(NULL, sizeof *times, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(times, MAP_FAILED);
    assert_int_equal(close(fd), 0);
    return times;
}

static const struct tb_assert_row *row_of(const struct tb_assert_times *times, const char *words)
{
    const struct tb_assert_row *found = NULL;
    for (uint64_t i = 0; i < times->used; i++)
        if (strstr(times->rows[i].expression, words) != NULL) found = &times->rows[i];
    return found;
}

static void gone(const struct tb_assert_times *times)
{
    assert_int_equal(munmap((void *)times, sizeof *times), 0);
}

/* Each pass is in its row, the one that took long apart, and a walk's asserts are in the walk's. */
static void each_place_has_its_sums(void **state)
{
    (void)state;
    int status;
    const struct tb_assert_times *times = run("exit", &status);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    const struct tb_assert_row *often = row_of(times, "often"), *busy = row_of(times, "MONOTONIC");
    const struct tb_assert_row *walked = row_of(times, "walk()");
    assert_true(often != NULL && busy != NULL && walked != NULL);
    assert_non_null(strstr(often->place, "tests/unit/harness/assert_times.c:"));
    assert_int_equal(often->count + often->long_count, PASSES);
    assert_true(often->ticks >= often->count * times->inside_ticks && often->is_walk == 0);
    assert_int_equal(busy->count, 0);
    assert_int_equal(busy->long_count, 1);
    assert_true(busy->long_ticks >= times->ticks_per_s / 1000000 * (BUSY_NS / 1000) * 9 / 10);
    assert_int_equal(walked->count, 1);
    assert_int_equal(walked->is_walk, 1);
    assert_true(walked->ticks >= WALK_NS);
    assert_null(row_of(times, "in a walk"));
    assert_null(row_of(times, "THREAD_CPUTIME"));
    gone(times);
}

static void says_what_a_reading_takes_and_the_process_took(void **state)
{
    (void)state;
    int status;
    const struct tb_assert_times *times = run("exit", &status);
    assert_string_equal(times->program, "assert_times");
    assert_true(times->ticks_per_s > 1000000);
    assert_true(times->whole_ps > 0);
    assert_true(times->inside_ticks * 1000 <= times->whole_ps / 1000 * (times->ticks_per_s / 1000000));
    assert_true(times->cpu_ns >= WALK_NS && times->user_ns <= times->cpu_ns + 20000000);
    gone(times);
}

static void rows_stay_however_the_process_ends(void **state)
{
    (void)state;
    int status;
    const struct tb_assert_times *times = run("kill", &status);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(row_of(times, "often")->count + row_of(times, "often")->long_count, PASSES);
    gone(times);
    times = run("fail", &status);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_int_equal(row_of(times, "walk()")->count, 1);
    gone(times);
}

int main(int argc, char **argv)
{
    if (argc == 2) return measured(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_place_has_its_sums),
        cmocka_unit_test(says_what_a_reading_takes_and_the_process_took),
        cmocka_unit_test(rows_stay_however_the_process_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
