/* machine.c - the first line of a small file, and the cores that this process may use.
 * Covers: base/machine.c */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/machine.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/check.h"
#include "tests/unit/scratch.h"

static const char *file_of(const char *text)
{
    static char path[SCRATCH_BYTES + 16];
    assert_true(scratch_put(scratch_files(), "line", text));
    (void)snprintf(path, sizeof path, "%s/line", scratch_files());
    return path;
}

static void the_first_line_is_read_without_its_newline(void **state)
{
    (void)state;
    char line[16] = "before";
    assert_true(tb_machine_line(file_of("cubic\nreno\n"), line, sizeof line));
    assert_string_equal(line, "cubic");
    assert_true(tb_machine_line(file_of("no newline"), line, sizeof line));
    assert_string_equal(line, "no newline");
}

/* P7: a longer line is cut, and the text has its end inside the caller's memory. */
static void a_long_line_is_cut(void **state)
{
    (void)state;
    char line[9];
    memset(line, 'x', sizeof line);
    assert_true(tb_machine_line(file_of("0123456789"), line, 6));
    assert_string_equal(line, "01234");
    assert_memory_equal(line + 6, "xxx", 3);
}

static void a_file_without_a_line_gives_an_empty_text(void **state)
{
    (void)state;
    char line[16] = "before";
    assert_false(tb_machine_line("/no/such/file", line, sizeof line));
    assert_string_equal(line, "");
    memcpy(line, "before", sizeof "before");
    assert_false(tb_machine_line(file_of(""), line, sizeof line));
    assert_string_equal(line, "");
    assert_false(tb_machine_line(file_of("\nsecond\n"), line, sizeof line));
    assert_string_equal(line, "");
}

/* Not those of the machine: a container or taskset gives a process fewer. */
static void only_allowed_cores_count(void **state)
{
    (void)state;
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(tb_cores_allowed(), CPU_COUNT(&before));
    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; core++)
        if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(tb_cores_allowed(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_line_is_read_without_its_newline),
        cmocka_unit_test(a_long_line_is_cut),
        cmocka_unit_test(a_file_without_a_line_gives_an_empty_text),
        cmocka_unit_test(only_allowed_cores_count),
    };
    return cmocka_run_group_tests_name("unit.base.machine", tests, NULL, NULL);
}
