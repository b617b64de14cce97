/* Each wrapper fails exactly when it was asked to, with an errno, and is the plain call
 * otherwise.
 * Covers: base/fault.c
 * Covers: base/allocate.c base/system_calls.c */
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/system_calls.h"
#include "tests/unit/check.h"

static int disarm(void **state)
{
    (void)state;
    for (int i = 0; i < TB_FAULT_COUNT; i++)
        tb_fault_arm((enum tb_fault_point)i, 0, false);
    return 0;
}

static bool malloc_works(void)
{
    void *memory = tb_malloc(10);
    tb_free(memory);
    return memory != NULL;
}

static void the_nth_call_fails_once(void **state)
{
    (void)state;
    tb_fault_arm(TB_FAULT_malloc, 3, false);
    assert_true(malloc_works() && malloc_works());
    errno = 0;
    assert_false(malloc_works());
    assert_int_equal(errno, ENOMEM);
    assert_true(malloc_works());
    assert_int_equal(tb_fault_calls(TB_FAULT_malloc), 4);
}

static void sticky_fails_from_then_on(void **state)
{
    (void)state;
    tb_fault_arm(TB_FAULT_malloc, 2, true);
    assert_true(malloc_works());
    assert_false(malloc_works());
    assert_false(malloc_works());
    assert_null(tb_calloc(2, 2));
    assert_null(tb_strdup("x"));
    assert_null(tb_realloc(NULL, 3));
    tb_fault_arm(TB_FAULT_malloc, 0, false);
    assert_true(malloc_works());
}

static void points_are_independent(void **state)
{
    (void)state;
    tb_fault_arm(TB_FAULT_open, 1, true);
    assert_true(malloc_works());
    assert_int_equal(tb_sys_open("/dev/null", O_RDONLY | O_CLOEXEC, 0), -1);
    assert_int_equal(errno, EMFILE);
}

/* One row a wrapper: armed it fails with an errno that the call itself would not give here, and the
 * number of rows is checked against the list. */
static void every_wrapper_fails(void **state)
{
    (void)state;
    struct msghdr m;
    memset(&m, 0, sizeof m);
#define FAILS(point, call, bad, error)                                                                       \
    tb_fault_arm(TB_FAULT_##point, 1, false);                                                                \
    errno = 0;                                                                                               \
    assert_true((call) == (bad));                                                                            \
    assert_int_equal(errno, error);                                                                          \
    rows++;
    int rows = 0;
    FAILS(malloc, tb_malloc(1), NULL, ENOMEM)
    FAILS(open, tb_sys_open("/dev/null", O_RDONLY | O_CLOEXEC, 0), -1, EMFILE)
    FAILS(mmap, tb_sys_mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), MAP_FAILED, ENOMEM)
    FAILS(ftruncate, tb_sys_ftruncate(-1, 0), -1, EIO)
    FAILS(fallocate, tb_sys_fallocate(-1, 0, 0, 1), -1, ENOSPC)
    FAILS(pread, tb_sys_pread(-1, &m, 1, 0), -1, EIO)
    FAILS(pwrite, tb_sys_pwrite(-1, &m, 1, 0), -1, ENOSPC)
    FAILS(fsync, tb_sys_fsync(-1), -1, EIO)
    FAILS(rename, tb_sys_rename("/nonexistent/a", "/nonexistent/b"), -1, EIO)
    FAILS(socket, tb_sys_socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), -1, EMFILE)
    FAILS(connect, tb_sys_connect(-1, NULL, 0), -1, ECONNREFUSED)
    FAILS(accept, tb_sys_accept(-1, NULL, NULL), -1, EMFILE)
    FAILS(recvmsg, tb_sys_recvmsg(-1, &m, 0), -1, ECONNRESET)
    FAILS(sendmsg, tb_sys_sendmsg(-1, &m, MSG_NOSIGNAL), -1, EPIPE)
    FAILS(memfd, tb_sys_memfd("x", MFD_CLOEXEC), -1, EMFILE)
    FAILS(library, tb_library_malloc(1), NULL, ENOMEM)
    FAILS(library, tb_library_calloc(1, 1), NULL, ENOMEM)
    FAILS(library, tb_library_realloc(NULL, 1), NULL, ENOMEM)
    assert_int_equal(rows - 2,            /* `library` has three */
                     TB_FAULT_COUNT - 1); /* `thread` has no wrapper: a maker of one asks tb_fault_hit */
    assert_false(tb_fault_hit(TB_FAULT_thread, EAGAIN));
}

static void unarmed_wrappers_are_the_calls(void **state)
{
    (void)state;
    char text[4] = "";
    const int fd = tb_sys_memfd("tombolo-test", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(tb_sys_ftruncate(fd, 8192), 0);
    assert_int_equal(tb_sys_fallocate(fd, 0, 0, 8192), 0);
    assert_int_equal(tb_sys_pwrite(fd, "abc", 3, 5), 3);
    assert_int_equal(tb_sys_pread(fd, text, 3, 5), 3);
    assert_string_equal(text, "abc");
    assert_int_equal(tb_sys_fsync(fd), 0);
    const char *bytes = tb_sys_mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(bytes != MAP_FAILED);
    assert_memory_equal(bytes + 5, "abc", 3);
    assert_int_equal(munmap((void *)(uintptr_t)bytes, 8192), 0);
    close(fd);
    char *copy = tb_strdup("copy");
    assert_string_equal(copy, "copy");
    copy = tb_realloc(copy, 100);
    assert_string_equal(copy, "copy");
    tb_free(copy);
    assert_null(tb_calloc(SIZE_MAX / 2, 3));
}

static void the_environment_arms(void **state)
{
    (void)state;
    assert_false(tb_fault_from_env());
    setenv("TB_FAULT", "open:1,malloc:2+", 1);
    assert_true(tb_fault_from_env());
    unsetenv("TB_FAULT");
    assert_int_equal(tb_sys_open("/dev/null", O_RDONLY | O_CLOEXEC, 0), -1);
    assert_true(malloc_works());
    assert_false(malloc_works());
    assert_false(malloc_works());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_nth_call_fails_once, disarm, disarm),
        cmocka_unit_test_setup_teardown(sticky_fails_from_then_on, disarm, disarm),
        cmocka_unit_test_setup_teardown(points_are_independent, disarm, disarm),
        cmocka_unit_test_setup_teardown(every_wrapper_fails, disarm, disarm),
        cmocka_unit_test_setup_teardown(unarmed_wrappers_are_the_calls, disarm, disarm),
        cmocka_unit_test_setup_teardown(the_environment_arms, disarm, disarm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
