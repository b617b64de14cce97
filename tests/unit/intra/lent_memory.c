/* lent_memory.c - memory that two processes write keeps its size and its pages; a descriptor that
 * is made otherwise is not mapped.
 *
 * Covers: intra/fabric/lent_memory.c */
#include "intra/fabric/lent_memory.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"

enum { PAGE = 4096, BYTES = 3 * PAGE };

static void both_ends_see_the_same_bytes(void **state)
{
    (void)state;
    struct tb_lent_memory reader, source;
    assert_int_equal(tb_lent_memory_make(BYTES, &reader), TB_OK);
    assert_int_equal(tb_lent_memory_take(reader.fd, BYTES, &source), TB_OK);
    assert_int_equal(tb_lent_memory_hold(&reader), TB_OK);
    assert_int_equal(reader.fd, -1);
    source.bytes[BYTES - 1] = 7;
    assert_int_equal(reader.bytes[BYTES - 1], 7);
    tb_lent_memory_close(&source);
    reader.bytes[0] = 8;
    tb_lent_memory_close(&reader);
    assert_null(reader.bytes);
    tb_lent_memory_close(&reader);
}

/* P7: once it is held no size changes, no page goes, and no new mapping writes. */
static void P7_pages_stay_once_it_is_held(void **state)
{
    (void)state;
    struct tb_lent_memory reader, source;
    assert_int_equal(tb_lent_memory_make(BYTES, &reader), TB_OK);
    const int fd = fcntl(reader.fd, F_DUPFD_CLOEXEC, 0);
    assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE), 0); /* not yet */
    assert_int_equal(tb_lent_memory_take(fd, BYTES, &source), TB_OK);
    assert_int_not_equal(ftruncate(fd, PAGE), 0);
    assert_int_not_equal(ftruncate(fd, 2 * BYTES), 0);
    assert_int_not_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE), 0);
    assert_int_not_equal(madvise(reader.bytes, PAGE, MADV_REMOVE), 0);
    assert_ptr_equal(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    assert_int_not_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
    close(fd);
    tb_lent_memory_close(&source);
    tb_lent_memory_close(&reader);
}

static int file(unsigned flags, off_t bytes, int seals)
{
    const int fd = memfd_create("test", flags);
    if (fd < 0) return fd;
    assert_int_equal(ftruncate(fd, bytes), 0);
    if (seals != 0) assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

/* P7: frames that a hostile reader may send instead. */
static void P7_other_descriptors_are_not_mapped(void **state)
{
    (void)state;
    enum { SIZE = F_SEAL_SHRINK | F_SEAL_GROW, FUTURE = 0x0010 };
    const unsigned sealing = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int pipes[2];
    struct tb_lent_memory m;
    assert_int_equal(pipe(pipes), 0);
    FILE *plain = tmpfile();
    assert_non_null(plain);
    assert_int_equal(ftruncate(fileno(plain), BYTES), 0);
    const int wrong[] = {
        pipes[1],
        fileno(plain),
        file(MFD_CLOEXEC, BYTES, 0),                       /* cannot be sealed */
        file(sealing, BYTES, 0),                           /* not sealed */
        file(sealing, BYTES, F_SEAL_SHRINK),               /* may grow */
        file(sealing, BYTES, F_SEAL_GROW),                 /* may shrink */
        file(sealing, BYTES, SIZE | F_SEAL_SEAL),          /* pages could not be held */
        file(sealing, BYTES, SIZE | F_SEAL_WRITE),         /* nothing could be put there */
        file(sealing, BYTES, SIZE | FUTURE),               /* likewise */
        file(sealing, PAGE, SIZE),                         /* shorter than was said */
        file(sealing, 2 * BYTES, SIZE),                    /* longer */
        file(sealing | MFD_HUGETLB, (off_t)2 << 20, SIZE), /* -1 where there are none */
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const uint64_t count = i + 1 < sizeof wrong / sizeof wrong[0] ? BYTES : (uint64_t)2 << 20;
        assert_int_equal(tb_lent_memory_take(wrong[i], count, &m), TB_PEER_GARBLED);
        if (wrong[i] >= 0 && wrong[i] != fileno(plain)) close(wrong[i]);
    }
    close(pipes[0]);
    fclose(plain);
    const int huge = file(sealing, (off_t)(TB_LENT_BYTES_MAX + PAGE), SIZE);
    assert_int_equal(tb_lent_memory_take(huge, TB_LENT_BYTES_MAX + PAGE, &m), TB_PEER_GARBLED);
    close(huge);
    assert_int_equal(tb_lent_memory_make(0, &m), TB_BAD_ARGUMENT);
    assert_int_equal(tb_lent_memory_make(TB_LENT_BYTES_MAX + 1, &m), TB_BAD_ARGUMENT);
}

/* A source that seals it so that nobody else can is found out. */
static void P7_a_reader_does_not_hold_what_its_source_spoiled(void **state)
{
    (void)state;
    struct tb_lent_memory reader;
    assert_int_equal(tb_lent_memory_make(BYTES, &reader), TB_OK);
    assert_int_equal(fcntl(reader.fd, F_ADD_SEALS, F_SEAL_SEAL), 0);
    assert_int_equal(tb_lent_memory_hold(&reader), TB_PEER_GARBLED);
    tb_lent_memory_close(&reader);
}

static void a_machine_without_room_is_an_answer(void **state)
{
    (void)state;
    static const enum tb_fault_point points[] = {TB_FAULT_memfd, TB_FAULT_ftruncate, TB_FAULT_mmap,
                                                 TB_FAULT_fallocate};
    struct tb_lent_memory reader, source;
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        tb_fault_arm(points[i], 1, false);
        assert_int_equal(tb_lent_memory_make(BYTES, &reader), TB_SITE_NOMEM);
        tb_fault_arm(points[i], 0, false);
    }
    for (size_t i = 2; i < sizeof points / sizeof points[0]; i++) {
        assert_int_equal(tb_lent_memory_make(BYTES, &reader), TB_OK);
        tb_fault_arm(points[i], 1, false);
        assert_int_equal(tb_lent_memory_take(reader.fd, BYTES, &source), TB_SITE_NOMEM);
        tb_fault_arm(points[i], 0, false);
        tb_lent_memory_close(&reader);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ends_see_the_same_bytes),
        cmocka_unit_test(P7_pages_stay_once_it_is_held),
        cmocka_unit_test(P7_other_descriptors_are_not_mapped),
        cmocka_unit_test(P7_a_reader_does_not_hold_what_its_source_spoiled),
        cmocka_unit_test(a_machine_without_room_is_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
