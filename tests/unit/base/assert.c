/* A failed TB_ASSERT names its place and expression on stderr and aborts; one that holds does
 * nothing.
 * Covers: base/assert.c */
#include "base/assert.h"

#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/check.h"

/* Runs a failing assert in a child; its stderr goes to `out`. Returns the wait status. */
static int child_fails(const char *expression, char *out, size_t cap)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct rlimit no_core = {0, 0};
        signal(SIGABRT, SIG_DFL);
        setrlimit(RLIMIT_CORE, &no_core);
        dup2(fds[1], STDERR_FILENO);
        tb_assert_failed("base/layout/place.c", 1234567890, expression);
    }
    close(fds[1]);
    size_t used = 0;
    for (ssize_t got = 1; got > 0 && used < cap - 1; used += (size_t)(got > 0 ? got : 0))
        got = read(fds[0], out + used, cap - 1 - used);
    out[used] = '\0';
    close(fds[0]);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void failure_says_where_and_aborts(void **state)
{
    (void)state;
    char out[1024];
    const int status = child_fails("k < count", out, sizeof out);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_string_equal(out,
                        "error assert.failed place=base/layout/place.c:1234567890 expression: k < count\n");
}

static void long_expression_is_cut_and_ends_its_line(void **state)
{
    (void)state;
    char expression[2000];
    char out[4096];
    memset(expression, 'x', sizeof expression - 1);
    expression[sizeof expression - 1] = '\0';
    child_fails(expression, out, sizeof out);
    assert_int_equal(strlen(out), 512);
    assert_int_equal(out[511], '\n');
}

static void an_expression_that_holds_is_evaluated_once(void **state)
{
    (void)state;
    int calls = 0;
    TB_ASSERT(++calls == 1);
    assert_int_equal(calls, 1);
}

static int evaluated;

static bool holds(void)
{
    return ++evaluated == 1;
}

/* This program is of no build that checks each turn. */
static void an_assert_for_dev_builds_is_not_evaluated(void **state)
{
    (void)state;
    TB_ASSERT_DEV(holds());
    assert_int_equal(evaluated, 0);
    TB_ASSERT(holds());
    assert_int_equal(evaluated, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failure_says_where_and_aborts),
        cmocka_unit_test(long_expression_is_cut_and_ends_its_line),
        cmocka_unit_test(an_expression_that_holds_is_evaluated_once),
        cmocka_unit_test(an_assert_for_dev_builds_is_not_evaluated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
