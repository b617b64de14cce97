/* descriptors.c - the limit of open files is raised to what the config can ask for, or the
 * start says why not (P7).
 * Covers: gateway/config/descriptors.c */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/config/config.h"
#include "tests/unit/scratch.h"

#define NOBODY 65534

/* A child that is not root tries these limits; its exit code is the answer. */
static int raise_with(rlim_t soft, rlim_t hard, uint32_t sessions, rlim_t *soft_out)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = scratch_fork();
    if (child == 0) {
        const struct rlimit limit = {soft, hard};
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(90);
        if (geteuid() == 0 && setuid(NOBODY) != 0) _exit(91);
        const struct tb_config config = {.session_max = sessions, .link_streams = 8, .peer_count = 2};
        char error[TB_DESCRIPTORS_TEXT_MAX] = "";
        const enum tb_status status = tb_descriptors_raise(&config, error);
        struct rlimit now;
        if (getrlimit(RLIMIT_NOFILE, &now) != 0) _exit(92);
        if (write(ends[1], &now.rlim_cur, sizeof now.rlim_cur) != (ssize_t)sizeof now.rlim_cur) _exit(93);
        if (status == TB_OK) _exit(0);
        _exit(status == TB_SITE_CONFIG &&
                      strstr(error, "session.max 100 needs 1920 open files, 1700 are allowed") != NULL
                  ? 1
                  : 94);
    }
    close(ends[1]);
    int how = 0;
    assert_int_equal(read(ends[0], soft_out, sizeof *soft_out), sizeof *soft_out);
    assert_int_equal(waitpid(child, &how, 0), child);
    close(ends[0]);
    return WEXITSTATUS(how);
}

static void the_limit_is_raised_as_far_as_needed(void **state)
{
    (void)state;
    rlim_t soft = 0;
    assert_int_equal(raise_with(64, 4096, 100, &soft), 0);
    assert_int_equal(soft, 2 * 100 + 164 / 8 + 2 * 2 * 9 + 640 + 1024);
    assert_int_equal(raise_with(2000, 4096, 100, &soft), 0); /* and never lowered */
    assert_int_equal(soft, 2000);
}

static void a_limit_that_is_too_low_is_told_with_the_numbers(void **state)
{
    (void)state;
    rlim_t soft = 0;
    assert_int_equal(raise_with(64, 1700, 100, &soft), 1);
    assert_int_equal(soft, 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_limit_is_raised_as_far_as_needed),
        cmocka_unit_test(a_limit_that_is_too_low_is_told_with_the_numbers),
    };
    return cmocka_run_group_tests_name("descriptors", tests, NULL, NULL);
}
