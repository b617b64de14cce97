/* shared_memory.c - sealed memory: nobody can shrink it, nobody else can write it, unsealed
 * memory is not mapped.
 *
 * Covers: intra/fabric/shared_memory.c */
#include "intra/fabric/shared_memory.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"

static void readers_see_what_the_owner_writes(void **state)
{
    (void)state;
    struct tb_shared_memory m;
    struct tb_shared_view v;
    assert_int_equal(tb_shared_memory_new("test", 100000, &m), TB_OK);
    uint8_t *bytes = m.bytes;
    assert_int_equal(bytes[99999], 0);
    assert_int_equal(tb_shared_view_open(m.memfd, 5001, 90000, &v), TB_OK);
    bytes[5001] = 17;
    bytes[5001 + 89999] = 18;
    assert_int_equal(v.bytes[0], 17);
    assert_int_equal(v.bytes[89999], 18);
    tb_shared_view_close(&v);
    tb_shared_memory_free(&m);
    tb_shared_memory_free(&m);
}

static void P7_it_can_neither_shrink_nor_be_written_by_others(void **state)
{
    (void)state;
    struct tb_shared_memory m;
    assert_int_equal(tb_shared_memory_new("test", 8192, &m), TB_OK);
    assert_int_not_equal(ftruncate(m.memfd, 4096), 0);
    assert_int_not_equal(ftruncate(m.memfd, 16384), 0);
    assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, m.memfd, 0), MAP_FAILED);
    assert_int_not_equal(pwrite(m.memfd, "x", 1, 0), 1);
    tb_shared_memory_free(&m);
}

/* Reading a file that its owner may shrink could kill us. */
static void P7_unsealed_or_short_files_are_not_mapped(void **state)
{
    (void)state;
    struct tb_shared_view v;
    const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(tb_shared_view_open(fd, 0, 4096, &v), TB_PEER_GARBLED);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    assert_int_equal(tb_shared_view_open(fd, 0, 4097, &v), TB_PEER_GARBLED);
    assert_int_equal(tb_shared_view_open(fd, 4096, 1, &v), TB_PEER_GARBLED);
    assert_int_equal(tb_shared_view_open(fd, UINT64_MAX, 2, &v), TB_PEER_GARBLED);
    assert_int_equal(tb_shared_view_open(fd, 0, 0, &v), TB_PEER_GARBLED);
    assert_int_equal(tb_shared_view_open(fd, 4095, 1, &v), TB_OK);
    tb_shared_view_close(&v);
    close(fd);
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(tb_shared_view_open(pipes[0], 0, 1, &v), TB_PEER_GARBLED);
    close(pipes[0]);
    close(pipes[1]);
}

static uint64_t allocated(const struct tb_shared_memory *m)
{
    struct stat st;
    assert_int_equal(fstat(m->memfd, &st), 0);
    return (uint64_t)st.st_blocks * 512u;
}

static void pages_come_piece_by_piece(void **state)
{
    (void)state;
    struct tb_shared_memory m;
    const uint64_t count = 2 * TB_SHARED_PIECE_BYTES + 5000;
    assert_int_equal(TB_SHARED_PIECES(count), 3);
    assert_int_equal(tb_shared_memory_open("test", count, &m), TB_OK);
    assert_int_equal(allocated(&m), 0);
    assert_int_equal(tb_shared_memory_fill(&m, 1), TB_OK);
    assert_int_equal(allocated(&m), TB_SHARED_PIECE_BYTES);
    tb_fault_arm(TB_FAULT_fallocate, 1, false);
    assert_int_equal(tb_shared_memory_fill(&m, 0), TB_SITE_NOMEM);
    tb_fault_arm(TB_FAULT_fallocate, 0, false);
    assert_int_equal(tb_shared_memory_fill(&m, 0), TB_OK);
    assert_int_equal(tb_shared_memory_fill(&m, 2), TB_OK);
    assert_true(allocated(&m) >= count);
    assert_int_equal(((uint8_t *)m.bytes)[count - 1], 0);
    tb_shared_memory_free(&m);
}

static void each_failure_is_an_answer(void **state)
{
    (void)state;
    struct tb_shared_memory m;
    const enum tb_fault_point points[] = {TB_FAULT_memfd, TB_FAULT_ftruncate, TB_FAULT_fallocate,
                                          TB_FAULT_mmap};
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        tb_fault_arm(points[i], 1, false);
        assert_int_equal(tb_shared_memory_new("test", 4096, &m), TB_SITE_NOMEM);
        tb_fault_arm(points[i], 0, false);
    }
    assert_int_equal(tb_shared_memory_new("test", 0, &m), TB_BAD_ARGUMENT);
    assert_int_equal(tb_shared_memory_new("test", UINT64_MAX, &m), TB_BAD_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_see_what_the_owner_writes),
        cmocka_unit_test(P7_it_can_neither_shrink_nor_be_written_by_others),
        cmocka_unit_test(P7_unsealed_or_short_files_are_not_mapped),
        cmocka_unit_test(pages_come_piece_by_piece),
        cmocka_unit_test(each_failure_is_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
