/* protect.c - who writes to protected pages is noted and lives; faults elsewhere go where they went before. P10 */
#include "intra/client/protect.h"

#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "unit/check.h"

#define PAGE 4096u

static sigjmp_buf elsewhere;
static volatile sig_atomic_t woken;

static void wake(void *user)
{
    (void)user;
    woken++;
}

static void on_other_fault(int number)
{
    (void)number;
    siglongjmp(elsewhere, 1);
}

static uint8_t *pages(uint32_t count)
{
    uint8_t *at =
        mmap(NULL, (size_t)count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    return at;
}

static void poke(uint8_t *at)
{
    *(volatile uint8_t *)at = 7;
}

static void a_write_is_noted_and_goes_on(void)
{
    uint8_t *at = pages(6);
    /* Two tensors that share a page, in the order in which nobody sorted them; the edges are in pages of others. */
    struct tb_protect_stretch list[] = {{at + 2 * PAGE + 100, 2 * PAGE}, {at + 100, 2 * PAGE}};
    struct tb_protection *p = tb_protect(list, 2, wake, NULL);
    assert_non_null(p);
    woken = 0;
    poke(at + 50);
    poke(at + 4 * PAGE + 200);
    assert_null(tb_protection_written(p));
    poke(at + 2 * PAGE + 5); /* half is the one's and half the other's, and it is sealed all the same */
    assert_ptr_equal(tb_protection_written(p), at + 2 * PAGE + 5);
    poke(at + PAGE);
    assert_ptr_equal(tb_protection_written(p), at + 2 * PAGE + 5);
    assert_int_equal(at[2 * PAGE + 5] + at[PAGE], 14);
    assert_int_equal(woken, 1);
    tb_protection_end(p);
    munmap(at, 6 * PAGE);
}

static void what_another_protects_stays_protected(void)
{
    uint8_t *at = pages(2);
    struct tb_protect_stretch both = {at, 2 * PAGE}, one = {at, PAGE};
    struct tb_protection *older = tb_protect(&both, 1, wake, NULL), *newer = tb_protect(&one, 1, wake, NULL);
    tb_protection_end(newer);
    poke(at + 1);
    assert_ptr_equal(tb_protection_written(older), at + 1);
    tb_protection_end(older);
    poke(at + PAGE);
    tb_protection_end(NULL);
    munmap(at, 2 * PAGE);
}

static void other_faults_go_where_they_went(void)
{
    uint8_t *ours = pages(1), *not_ours = pages(1);
    struct tb_protect_stretch list = {ours, PAGE};
    struct tb_protection *p = tb_protect(&list, 1, wake, NULL);
    assert_int_equal(mprotect(not_ours, PAGE, PROT_READ), 0);
    volatile int came = 0;
    if (sigsetjmp(elsewhere, 1) == 0)
        poke(not_ours);
    else
        came = 1;
    assert_int_equal(came, 1);
    assert_null(tb_protection_written(p));
    tb_protection_end(p);
    munmap(ours, PAGE);
    munmap(not_ours, PAGE);
}

/* One test of all: cmocka puts a handler of its own in place before each. */
static void protected_pages(void **state)
{
    (void)state;
    const struct sigaction action = {.sa_handler = on_other_fault, .sa_flags = SA_NODEFER};
    assert_int_equal(sigaction(SIGSEGV, &action, NULL), 0); /* what was there before the first protection */
    a_write_is_noted_and_goes_on();
    what_another_protects_stays_protected();
    other_faults_go_where_they_went();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(protected_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
