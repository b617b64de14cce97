/* Keys stand in memory that is locked and not dumped. Where it is full, or was never opened, a
 * request gets plain memory. P8, P7.
 * Covers: base/net/secret_memory.c */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/net/secret_memory.h"

/* VmFlags of the mapping that has it, as the kernel tells them; "" where it tells nothing. */
static void flags_of(const void *at, char out[256])
{
    FILE *f = fopen("/proc/self/smaps", "re");
    char line[512];
    bool here = false;
    out[0] = '\0';
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        unsigned long long first, end;
        if (sscanf(line, "%llx-%llx ", &first, &end) == 2)
            here = (uintptr_t)at >= first && (uintptr_t)at < end;
        if (here && strncmp(line, "VmFlags:", 8) == 0) (void)snprintf(out, 256, "%.250s ", line + 8);
        for (char *c = out; *c != '\0'; c++)
            if (*c == '\n') *c = ' ';
    }
    if (f != NULL) (void)fclose(f);
}

/* An emulator makes smaps up: what was said of a page is not in it. */
static bool flags_are_told(void)
{
    char flags[256];
    void *page = mmap(NULL, TB_SECRET_ROW_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(page != MAP_FAILED);
    assert_int_equal(madvise(page, TB_SECRET_ROW_BYTES, MADV_DONTDUMP), 0);
    flags_of(page, flags);
    assert_int_equal(munmap(page, TB_SECRET_ROW_BYTES), 0);
    return strstr(flags, " dd ") != NULL;
}

static void before_it_is_opened_memory_is_plain(void **state)
{
    (void)state;
    assert_int_equal(tb_secret_memory_state(), TB_SECRET_PLAIN);
    char *key = tb_secret_new(32);
    assert_non_null(key);
    tb_secret_free(key, 32);
    tb_secret_free(NULL, 0);
}

static void a_key_is_neither_dumped_nor_swapped(void **state)
{
    (void)state;
    char flags[256];
    const enum tb_secret_memory got = tb_secret_memory_open();
    assert_int_equal(tb_secret_memory_state(), got);
    char *key = tb_secret_new(32);
    flags_of(key, flags);
    print_message("state %d, flags%s\n", (int)got, flags);
    const bool are_told = flags_are_told();
    if (are_told && got != TB_SECRET_PLAIN) assert_non_null(strstr(flags, " dd "));
    if (are_told && got >= TB_SECRET_LOCKED) assert_non_null(strstr(flags, " lo "));
    memset(key, 7, 32);
    tb_secret_free(key, 32);
    char *again = tb_secret_new(32);
    for (int i = 0; i < 32; i++)
        assert_int_equal(again[i], 0);
    tb_secret_free(again, 32);
}

static void a_full_region_gives_plain_memory(void **state)
{
    (void)state;
    static void *rows[TB_SECRET_ROWS + 2];
    for (size_t i = 0; i < TB_SECRET_ROWS + 2; i++) {
        rows[i] = tb_secret_new(64);
        assert_non_null(rows[i]);
        memset(rows[i], 1, 64);
    }
    void *large = tb_secret_new(TB_SECRET_ROW_BYTES + 1);
    assert_non_null(large);
    tb_secret_free(large, TB_SECRET_ROW_BYTES + 1);
    for (size_t i = 0; i < TB_SECRET_ROWS + 2; i++)
        tb_secret_free(rows[i], 64);
}

/* Strangers at a door began so many that keys of links went to memory that is swapped. */
static void parties_of_many_leave_half_of_the_rows(void **state)
{
    (void)state;
    static uint8_t *rows[TB_SECRET_ROWS];
    uint8_t *first = tb_secret_new(64);
    for (size_t i = 0; i < TB_SECRET_ROWS; i++) {
        rows[i] = tb_secret_new_of_many(64);
        assert_non_null(rows[i]);
    }
    uint8_t *next = tb_secret_new(64);
    assert_ptr_equal(next, first + TB_SECRET_ROW_BYTES); /* the second row of all */
    tb_secret_free(next, 64);
    for (size_t i = 0; i < TB_SECRET_ROWS; i++)
        tb_secret_free(rows[i], 64);
    tb_secret_free(first, 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(before_it_is_opened_memory_is_plain),
                                       cmocka_unit_test(a_key_is_neither_dumped_nor_swapped),
                                       cmocka_unit_test(a_full_region_gives_plain_memory),
                                       cmocka_unit_test(parties_of_many_leave_half_of_the_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
