/* disk_io.c - a read or write is whole, or it fails: also where the kernel takes a part, or a
 * signal comes.
 * Covers: gateway/disk/disk_io.c */
#include "gateway/disk/disk_io.h"

#include <errno.h>
#include <fcntl.h>

#include "disk_world.h"
#include "tests/unit/check.h"

/* Of the program: at most three bytes a call, and every other call is interrupted. */
static int calls;

static bool interrupted(void)
{
    if (calls++ % 2 != 0) return false;
    errno = EINTR;
    return true;
}

ssize_t __wrap_tb_sys_pread(int fd, void *out, size_t count, off_t at);
ssize_t __wrap_tb_sys_pwrite(int fd, const void *bytes, size_t count, off_t at);

ssize_t __wrap_tb_sys_pread(int fd, void *out, size_t count, off_t at)
{
    if (interrupted()) return -1;
    return pread(fd, out, count < 3 ? count : 3, at);
}

ssize_t __wrap_tb_sys_pwrite(int fd, const void *bytes, size_t count, off_t at)
{
    if (interrupted()) return -1;
    return pwrite(fd, bytes, count < 3 ? count : 3, at);
}

static void parts_and_signals_leave_nothing_undone(void **state)
{
    struct disk_world *w = *state;
    char back[11] = "";
    const int fd = open(disk_path(w, "f"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_true(tb_disk_write(fd, 5, "0123456789", 10));
    assert_true(tb_disk_read(fd, 5, 10, back));
    assert_string_equal(back, "0123456789");
    assert_true(calls >= 16);
    close(fd);
}

/* errno tells the two apart: 0 where the file ends before. */
static void missing_bytes_are_an_error(void **state)
{
    struct disk_world *w = *state;
    char back[16];
    disk_put(w, "f", "0123456789", 10);
    const int fd = open(disk_path(w, "f"), O_RDONLY | O_CLOEXEC);
    errno = EIO;
    assert_false(tb_disk_read(fd, 5, 10, back));
    assert_int_equal(errno, 0);
    assert_false(tb_disk_write(fd, 0, "x", 1));
    assert_int_equal(errno, EBADF);
    close(fd);
    assert_false(tb_disk_read(fd, 0, 1, back));
    assert_int_equal(errno, EBADF);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, disk_setup, disk_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(parts_and_signals_leave_nothing_undone),
        TEST(missing_bytes_are_an_error),
    };
    return cmocka_run_group_tests_name("unit.disk.disk_io", tests, NULL, NULL);
}
