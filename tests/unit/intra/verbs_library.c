/* libibverbs and librdmacm opened at run time: each function is found, calls reach it, and a
 * machine without the libraries is told so.
 *
 * Covers: intra/verbs/verbs_library.c */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static bool away;   /* the machine has neither library */
static int missing; /* functions that a library has not */
static int looked_up;

void *__real_dlopen(const char *file, int mode);
void *__real_dlsym(void *library, const char *name);
void *__wrap_dlopen(const char *file, int mode);
void *__wrap_dlsym(void *library, const char *name);

void *__wrap_dlopen(const char *file, int mode)
{
    return away ? NULL : __real_dlopen(file, mode);
}

void *__wrap_dlsym(void *library, const char *name)
{
    void *const function = __real_dlsym(library, name);
    looked_up++;
    if (function == NULL) missing++;
    return function;
}

/* In a child, as the libraries are looked for once in a process. */
static int in_child(int (*body)(void))
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(body());
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int call_what_is_there(void)
{
    if (strcmp(rdma_event_str(RDMA_CM_EVENT_ESTABLISHED), "RDMA_CM_EVENT_ESTABLISHED") != 0) return 1;
    if (strcmp(ibv_wc_status_str(IBV_WC_SUCCESS), "success") != 0) return 2;
    if (missing != 0) return 3;
    return looked_up > 30 ? 0 : 4;
}

static void calls_reach_the_libraries(void **state)
{
    (void)state;
    assert_int_equal(in_child(call_what_is_there), 0);
}

static int call_what_is_away(void)
{
    away = true;
    errno = 0;
    if (rdma_create_event_channel() != NULL || errno != ENOSYS) return 1;
    if (ibv_fork_init() != ENOSYS) return 2;
    if (ibv_open_device(NULL) != NULL) return 3;
    rdma_destroy_event_channel(NULL);
    return strcmp(ibv_wc_status_str(IBV_WC_SUCCESS), "unknown") == 0 ? 0 : 4;
}

static void a_machine_without_them_is_told(void **state)
{
    (void)state;
    assert_int_equal(in_child(call_what_is_away), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_reach_the_libraries),
        cmocka_unit_test(a_machine_without_them_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
