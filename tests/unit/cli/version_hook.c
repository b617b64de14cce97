/* version_hook.c - the command of `subscribe --on-version`: its environment, its output, and each
 * way in which it may end.
 * Covers: gateway/cli/versions/version_hook.c */
#include "gateway/cli/versions/version_hook.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct tb_version_hook hook_of(const char *command)
{
    return (struct tb_version_hook){.command = command,
                                    .model = "policy",
                                    .run = 3,
                                    .number = UINT64_MAX,
                                    .uid = "0123456789abcdef0123456789abcdef",
                                    .dir = "/models/policy/a b"};
}

static enum tb_status run(const char *command, char why[128])
{
    const struct tb_version_hook hook = hook_of(command);
    return tb_version_hook_run(&hook, why);
}

/* The hook's own values stand there, whatever the variables were before; all others stay. */
static void the_version_is_in_its_environment(void **state)
{
    (void)state;
    char why[128];
    assert_int_equal(setenv("TOMBOLO_MODEL", "another", 1), 0);
    assert_int_equal(setenv("HOOK_TEST", "kept", 1), 0);
    assert_int_equal(run("[ \"$TOMBOLO_MODEL\" = policy ] && [ \"$TOMBOLO_RUN\" = 3 ] && "
                         "[ \"$TOMBOLO_NUMBER\" = 18446744073709551615 ] && "
                         "[ \"$TOMBOLO_UID\" = 0123456789abcdef0123456789abcdef ] && "
                         "[ \"$TOMBOLO_DIR\" = '/models/policy/a b' ] && [ \"$HOOK_TEST\" = kept ]",
                         why),
                     TB_OK);
    assert_string_equal(why, "");
}

/* So that nothing comes between the results of --json; and it waits for no input. */
static void its_output_goes_to_standard_error(void **state)
{
    (void)state;
    char why[128];
    assert_int_equal(run("[ /proc/self/fd/1 -ef /proc/self/fd/2 ] && ! read line", why), TB_OK);
}

static void each_end_is_told(void **state)
{
    (void)state;
    char why[128];
    assert_int_equal(run("exit 3", why), TB_SITE_IO);
    assert_string_equal(why, "exit code 3");
    assert_int_equal(run("kill -KILL $$", why), TB_SITE_IO);
    assert_string_equal(why, "ended by signal 9");
    assert_int_equal(run("no-such-command-of-ours 2>/dev/null", why), TB_SITE_IO);
    assert_string_equal(why, "exit code 127");
}

static bool at_once(void *user)
{
    ++*(int *)user;
    return true;
}

/* The command and all that it started: its process group. */
static void a_command_that_is_over_is_ended(void **state)
{
    (void)state;
    char why[128];
    int asked = 0;
    struct tb_version_hook hook = hook_of("sleep 1000 & sleep 1000");
    hook.over = at_once;
    hook.user = &asked;
    assert_int_equal(tb_version_hook_run(&hook, why), TB_CANCELLED);
    assert_true(asked > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_version_is_in_its_environment),
        cmocka_unit_test(its_output_goes_to_standard_error),
        cmocka_unit_test(each_end_is_told),
        cmocka_unit_test(a_command_that_is_over_is_ended),
    };
    return cmocka_run_group_tests_name("unit.cli.version_hook", tests, NULL, NULL);
}
