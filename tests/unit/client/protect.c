/* protect.c - who writes to protected pages is noted and lives; faults elsewhere go where
 * they went before. P10
 *
 * Covers: intra/client/memory/seal_protection.c intra/client/publish/publication_watch.c */
#include "intra/client/memory/seal_protection.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit/check.h"

#define PAGE 4096u

static sigjmp_buf elsewhere;
static volatile sig_atomic_t woken;

static void wake(void *user)
{
    (void)user;
    woken++;
    errno = EBADF;
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
    /* Two tensors that share a page, in the order in which nobody sorted them; the edges
     * are in pages of others. */
    struct tb_protect_stretch list[] = {{at + 2 * PAGE + 100, 2 * PAGE}, {at + 100, 2 * PAGE}};
    struct tb_protection *p = tb_protect(list, 2, wake, NULL);
    assert_non_null(p);
    woken = 0;
    poke(at + 50);
    poke(at + 4 * PAGE + 200);
    assert_null(tb_protection_written(p));
    errno = EXDEV;
    poke(at + 2 * PAGE + 5); /* half is the one's and half the other's, and it is sealed all the same */
    assert_int_equal(errno, EXDEV);
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

/* A version was written to; the next one in the same pages is sealed all the same. */
static void each_version_in_the_pages_is_noted(void)
{
    uint8_t *at = pages(2);
    struct tb_protect_stretch both = {at, 2 * PAGE}, one = {at, PAGE};
    struct tb_protection *older = tb_protect(&both, 1, wake, NULL);
    poke(at + 3);
    struct tb_protection *newer = tb_protect(&one, 1, wake, NULL);
    assert_null(tb_protection_written(newer));
    poke(at + 9);
    assert_ptr_equal(tb_protection_written(older), at + 3);
    assert_ptr_equal(tb_protection_written(newer), at + 9);
    tb_protection_end(older);
    tb_protection_end(newer);
    munmap(at, 2 * PAGE);
}

static void what_cannot_be_protected_is_said(void)
{
    uint8_t *at = pages(3);
    struct tb_protect_stretch list[] = {{at, PAGE}, {at + 2 * PAGE, PAGE}};
    munmap(at + 2 * PAGE, PAGE);
    assert_null(tb_protect(list, 2, wake, NULL));
    poke(at); /* nor is the other one */
    /* Pages that cannot all be made writable again do not fault for ever: the write goes on, or the
     * fault goes to the handler before. */
    struct tb_protect_stretch both = {at, 2 * PAGE};
    struct tb_protection *p = tb_protect(&both, 1, wake, NULL);
    assert_non_null(p);
    munmap(at + PAGE, PAGE);
    if (sigsetjmp(elsewhere, 1) == 0) poke(at);
    assert_ptr_equal(tb_protection_written(p), at);
    tb_protection_end(p);
    munmap(at, PAGE);
}

static void hand_over(uint8_t *at, int code)
{
    struct sigaction ours;
    assert_int_equal(sigaction(SIGSEGV, NULL, &ours), 0);
    siginfo_t info = {.si_signo = SIGSEGV, .si_code = code};
    info.si_addr = at;
    ours.sa_sigaction(SIGSEGV, &info, NULL);
}

/* The handler comes to a fault whose protection has ended meanwhile: it is tried again, once. */
static void a_fault_that_is_over_is_tried_again(void)
{
    uint8_t *at = pages(1);
    struct tb_protect_stretch list = {at, PAGE};
    tb_protection_end(tb_protect(&list, 1, wake, NULL));
    volatile int came = 0;
    if (sigsetjmp(elsewhere, 1) == 0)
        hand_over(at, SEGV_ACCERR);
    else
        came = 1;
    assert_int_equal(came, 0);
    if (sigsetjmp(elsewhere, 1) == 0)
        hand_over(at, SEGV_ACCERR);
    else
        came = 1;
    assert_int_equal(came, 1);
    munmap(at, PAGE);
}

/* Where nobody was before us the default is put back; a table of protection after that protects. In
 * a process of its own, before any other protection. */
static void a_handler_that_went_comes_back(void)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct sigaction none = {.sa_handler = SIG_DFL};
        uint8_t *at = pages(1);
        struct tb_protect_stretch list = {at, PAGE};
        if (sigaction(SIGSEGV, &none, NULL) != 0) _exit(1);
        tb_protection_end(tb_protect(&list, 1, wake, NULL));
        hand_over(at, SEGV_MAPERR);
        struct tb_protection *p = tb_protect(&list, 1, wake, NULL);
        poke(at);
        _exit(p != NULL && tb_protection_written(p) == at ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
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
    a_handler_that_went_comes_back();
    const struct sigaction action = {.sa_handler = on_other_fault, .sa_flags = SA_NODEFER};
    assert_int_equal(sigaction(SIGSEGV, &action, NULL), 0); /* what was there before the first protection */
    a_write_is_noted_and_goes_on();
    what_another_protects_stays_protected();
    other_faults_go_where_they_went();
    each_version_in_the_pages_is_noted();
    what_cannot_be_protected_is_said();
    a_fault_that_is_over_is_tried_again();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(protected_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
