/* scratch_goes.c - a test program that fails leaves no file behind (tests/unit/scratch.h). This
 * program is the failing one as well: with a way to end as its argument.
 *
 * Covers: tests/unit/scratch.c */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "tests/unit/check.h"
#include "tests/unit/net/net_world.h"
#include "tests/unit/scratch.h"

static const char *end_by;

static bool ends_by(const char *way)
{
    return strcmp(end_by, way) == 0;
}

/* The world has certificates and a loop that nobody ends. */
static void a_test_that_fails(void **state)
{
    (void)state;
    static struct world w;
    char file[128], one_more[SCRATCH_BYTES];
    for (int i = 0; i < 1000; i++)
        assert_true(scratch_folder(one_more, sizeof one_more, "twelve-chars"));
    world_init(&w);
    world_issue(&w, "east", "gw", "tombolo://east/gw");
    (void)snprintf(file, sizeof file, "%s/arena", scratch_memory());
    world_file_write(file, "w", "x", 1);
    if (scratch_fork() == 0) (void)pause(); /* which is not ended */
    if (ends_by("assertion")) fail_msg("as it should");
    if (ends_by("own assertion")) TB_ASSERT(w.dir[0] == '\0');
    if (ends_by("exit")) _exit(1);
    if (ends_by("kill")) (void)raise(SIGKILL);
    if (ends_by("fault")) (void)raise(SIGSEGV);
}

static int fail_here(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_test_that_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

static uint32_t entries(const char *folder)
{
    uint32_t count = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    while (readdir(d) != NULL)
        count++;
    assert_int_equal(closedir(d), 0);
    return count - 2; /* "." and ".." */
}

/* Becomes the failing program, whose stderr is that pipe. */
static _Noreturn void become(const char *way, const char *files, const char *memory, int to)
{
    if (setenv("TMPDIR", files, 1) != 0 || setenv("TB_TEST_SHM", memory, 1) != 0) _exit(90);
    if (dup2(to, STDERR_FILENO) < 0 || dup2(to, STDOUT_FILENO) < 0) _exit(91);
    (void)execl("/proc/self/exe", "scratch", way, (char *)NULL);
    _exit(92);
}

/* Until nobody has the other end: the program, and the keepers of its folders. */
static void read_to_the_end(int from)
{
    char said[4096];
    struct pollfd in = {.fd = from, .events = POLLIN};
    do
        assert_int_equal(poll(&in, 1, 60000), 1);
    while (read(from, said, sizeof said) > 0);
}

/* A folder in that one, of the longest path that there may be. */
static void nested(char path[SCRATCH_BYTES], const char *outer)
{
    const int used = snprintf(path, SCRATCH_BYTES, "%s/", outer);
    assert_in_range(used, 1, SCRATCH_OUTER - 1);
    memset(path + used, 'x', SCRATCH_OUTER - (size_t)used);
    path[SCRATCH_OUTER] = '\0';
    assert_int_equal(mkdir(path, 0700), 0);
}

static void leaves_nothing(const char *way)
{
    char files[SCRATCH_BYTES], memory[SCRATCH_BYTES];
    int ends[2], code = 0;
    nested(files, scratch_files());
    nested(memory, scratch_memory());
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    const pid_t child = fork();
    if (child == 0) become(way, files, memory, ends[1]);
    assert_int_equal(close(ends[1]), 0);
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_false(WIFEXITED(code) && (WEXITSTATUS(code) == 0 || WEXITSTATUS(code) >= 90));
    read_to_the_end(ends[0]);
    assert_int_equal(close(ends[0]), 0);
    assert_int_equal(entries(files), 0);
    assert_int_equal(entries(memory), 0);
    assert_true(scratch_remove(files));
    assert_true(scratch_remove(memory));
}

static void a_failing_program_leaves_nothing(void **state)
{
    (void)state;
    static const char *const ways[] = {"assertion", "own assertion", "exit", "kill", "fault"};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        leaves_nothing(ways[i]);
}

int main(int count, char **words)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failing_program_leaves_nothing),
    };
    if (count > 1) {
        end_by = words[1];
        return fail_here();
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
