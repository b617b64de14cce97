/* huge_pages.c - bytes that stood in small pages are kept, the rest is zeroes, and the file
 * is mapped by huge pages where there are any.
 * Covers: base/huge_pages.c */
#include "base/huge_pages.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "tests/unit/check.h"
#include "tests/unit/huge_given.h"

#define BYTES (8 * TB_HUGE_BYTES)
#define ODD   (BYTES + 12345)

static int file_of(uint64_t bytes)
{
    const int fd = memfd_create("huge", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    return fd;
}

static uint64_t allocated(int fd)
{
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    return (uint64_t)st.st_blocks * 512u;
}

static long faults(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_minflt;
}

static long faults_of_writing(uint8_t *bytes, uint64_t count)
{
    const long before = faults();
    for (uint64_t i = 0; i < count; i += 4096)
        *(volatile uint8_t *)(bytes + i) = 1;
    return faults() - before;
}

/* The kernel has no more than advice; what it did is seen by what there is then, and by what
 * the first touch costs. */
static void a_file_stands_in_huge_pages(void **state)
{
    (void)state;
    if (!huge_given(BYTES)) skip();
    const int fd = file_of(ODD);
    tb_huge_fill(fd, 0, ODD);
    assert_int_equal(allocated(fd), BYTES); /* whole ones: the rest is fallocate's */
    uint8_t *bytes = tb_huge_map(fd, ODD);
    assert_ptr_not_equal(bytes, MAP_FAILED);
    assert_in_range(faults_of_writing(bytes, BYTES), 0,
                    BYTES / TB_HUGE_BYTES + BYTES / 4096 / 8 + 64); /* an eighth: ASan's own */
    assert_int_equal(munmap(bytes, ODD), 0);
    close(fd);
}

/* Through the mapping of a file that allows no other; the range is taken a part at a time. */
static void a_mapped_file_is_filled_in_parts(void **state)
{
    (void)state;
    if (!huge_given(BYTES)) skip();
    const int fd = file_of(ODD);
    uint8_t *bytes = tb_huge_map(fd, ODD);
    assert_ptr_not_equal(bytes, MAP_FAILED);
    bytes[3 * TB_HUGE_BYTES + 77777] = 'x';
    tb_huge_fill_mapped(bytes, 0, BYTES / 2);
    tb_huge_fill_mapped(bytes, BYTES / 2, ODD - BYTES / 2);
    tb_huge_touch(bytes, 0, ODD);
    assert_in_range(allocated(fd), ODD, BYTES + TB_HUGE_BYTES);
    assert_in_range(faults_of_writing(bytes, BYTES), 0, BYTES / 4096 / 8 + 64);
    assert_int_equal(bytes[3 * TB_HUGE_BYTES + 77777], 'x');
    assert_int_equal(munmap(bytes, ODD), 0);
    close(fd);
}

static void only_the_asked_range_is_filled(void **state)
{
    (void)state;
    if (!huge_given(BYTES)) skip();
    const int fd = file_of(BYTES);
    tb_huge_fill(fd, TB_HUGE_BYTES + 1, 2 * TB_HUGE_BYTES); /* one whole huge page lies in there */
    assert_int_equal(allocated(fd), TB_HUGE_BYTES);
    tb_huge_fill(fd, TB_HUGE_BYTES + 1, TB_HUGE_BYTES);
    tb_huge_fill(fd, 0, 4096);
    assert_int_equal(allocated(fd), TB_HUGE_BYTES);
    assert_int_equal(lseek(fd, 0, SEEK_DATA), 2 * TB_HUGE_BYTES);
    close(fd);
}

/* P1: whatever the kernel did, what stood there stands there, and the rest is zeroes. */
static void P1_no_byte_changes(void **state)
{
    (void)state;
    const int fd = file_of(BYTES);
    const uint64_t at[] = {0, 4095, TB_HUGE_BYTES - 1, 3 * TB_HUGE_BYTES + 77777, BYTES - 1};
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++)
        assert_int_equal(pwrite(fd, "x", 1, (off_t)at[i]), 1);
    tb_huge_fill(fd, 0, BYTES);
    tb_huge_fill(fd, 0, BYTES); /* a second time as well */
    const uint8_t *bytes = tb_huge_map(fd, BYTES);
    assert_ptr_not_equal(bytes, MAP_FAILED);
    uint64_t sum = 0;
    for (uint64_t i = 0; i < BYTES; i++)
        sum += bytes[i];
    assert_int_equal(sum, 'x' * sizeof at / sizeof at[0]);
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++)
        assert_int_equal(bytes[at[i]], 'x');
    assert_int_equal(munmap((void *)(uintptr_t)bytes, BYTES), 0);
    close(fd);
}

static void a_range_without_a_whole_page_is_left(void **state)
{
    (void)state;
    const int fd = file_of(4096);
    tb_huge_fill(-1, 0, BYTES);
    tb_huge_fill(fd, 0, BYTES); /* behind the file's end */
    tb_huge_fill(fd, 0, 0);
    assert_true(allocated(fd) <= 4096);
    uint8_t *bytes = tb_huge_map(fd, 4096);
    assert_ptr_not_equal(bytes, MAP_FAILED);
    bytes[4095] = 1;
    assert_int_equal(munmap(bytes, 4096), 0);
    assert_ptr_equal(tb_huge_map(-1, BYTES), MAP_FAILED);
    tb_fault_arm(TB_FAULT_mmap, 1, false);
    assert_ptr_equal(tb_huge_map(fd, BYTES), MAP_FAILED);
    tb_fault_arm(TB_FAULT_mmap, 0, false);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mapped_file_is_filled_in_parts), cmocka_unit_test(a_file_stands_in_huge_pages),
        cmocka_unit_test(only_the_asked_range_is_filled), cmocka_unit_test(P1_no_byte_changes),
        cmocka_unit_test(a_range_without_a_whole_page_is_left)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
