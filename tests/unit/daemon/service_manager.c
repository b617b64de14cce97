/* P9: the service manager hears what it has to know of a gateway, and nothing that it did not ask.
 * Covers: gateway/daemon/service_manager.c base/net/kept_listeners.c */
#include "gateway/daemon/service_manager.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/net/kept_listeners.h"
#include "tests/unit/caught_log.h"

/* A socket in the abstract namespace, which NOTIFY_SOCKET then names. */
static int manager_here(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    socklen_t bytes = sizeof at;
    char name[sizeof at.sun_path + 1] = "";
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at.sun_family), 0); /* any free name */
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    memcpy(name, at.sun_path, bytes - sizeof at.sun_family);
    name[0] = '@';
    assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
    (void)unsetenv("WATCHDOG_USEC");
    (void)unsetenv("WATCHDOG_PID");
    return fd;
}

static void watchdog(const char *usec, long long pid)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", pid);
    assert_int_equal(setenv("WATCHDOG_USEC", usec, 1), 0);
    assert_int_equal(setenv("WATCHDOG_PID", text, 1), 0);
}

static void heard(int fd, const char *begins)
{
    char words[256] = "";
    assert_true(recv(fd, words, sizeof words - 1, 0) > 0);
    if (strncmp(words, begins, strlen(begins)) != 0) fail_msg("heard \"%s\", not \"%s\"", words, begins);
}

static void heard_nothing(int fd)
{
    char words[256] = "";
    if (recv(fd, words, sizeof words - 1, 0) >= 0) fail_msg("heard \"%s\"", words);
}

static void a_life_is_told(void **state)
{
    (void)state;
    struct tb_service_manager m = {0};
    const int fd = manager_here();
    tb_service_manager_open(&m);
    heard_nothing(fd); /* before it serves */
    tb_service_manager_ready(&m);
    heard(fd, "FDSTOREREMOVE=1\nFDNAME=listeners");
    heard(fd, "READY=1\n");
    tb_service_manager_reloading(&m);
    heard(fd, "RELOADING=1\n");
    tb_service_manager_ready(&m);
    heard(fd, "FDSTOREREMOVE=1\nFDNAME=listeners");
    heard(fd, "READY=1\n");
    tb_service_manager_stopping(&m);
    heard(fd, "STOPPING=1\n");
    tb_service_manager_alive(&m, TB_SECONDS(1)); /* nobody asked for it */
    heard_nothing(fd);
    assert_null(getenv("NOTIFY_SOCKET"));
    tb_service_manager_close(&m);
    close(fd);
}

/* P9: a socket that listens while the process ends is taken by the next one, with those that wait
 * there. */
static void a_listening_socket_outlives_its_process(void **state)
{
    (void)state;
    struct tb_service_manager m = {0};
    struct tb_address at = {.v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
    const int fd = manager_here(), listener = socket(AF_INET, SOCK_STREAM, 0);
    int none[TB_KEPT_LISTENERS_MAX];
    at.bytes = sizeof at.v4;
    assert_int_equal(bind(listener, &at.any, at.bytes), 0);
    assert_int_equal(listen(listener, 1), 0);
    tb_service_manager_open(&m);
    assert_false(
        tb_kept_listener_add(listener, &at)); /* the kernel chose its port: nobody asks for that again */
    assert_int_equal(getsockname(listener, &at.any, &at.bytes), 0);
    assert_int_equal(tb_kept_listener_take(&at), -1);
    assert_true(tb_kept_listener_add(listener, &at));
    tb_service_manager_ready(&m);
    heard(fd, "FDSTOREREMOVE=1\n");
    heard(fd, "FDSTORE=1\nFDNAME=listeners");
    heard(fd, "READY=1\n");
    const int left = dup(listener), file = dup(fd);
    tb_service_manager_close(&m);
    close(listener);

    const int both[] = {left, file};
    tb_kept_listeners_begin(both, 2);
    assert_int_equal(fcntl(file, F_GETFD), -1); /* it listens nowhere */
    const int taken = tb_kept_listener_take(&at);
    assert_true(taken >= 0);
    assert_int_equal(tb_kept_listeners(none), 1);
    tb_kept_listeners_end();
    tb_kept_listeners_begin(&taken, 1);
    assert_int_equal(tb_kept_listeners(none), 0); /* nobody asked for it: it is closed */
    assert_int_equal(fcntl(taken, F_GETFD), -1);
    tb_kept_listeners_end();
    close(fd);
}

static void the_watchdog_is_fed_in_half_of_its_time(void **state)
{
    (void)state;
    struct tb_service_manager m = {0};
    const int fd = manager_here();
    watchdog("2000000", getpid());
    tb_service_manager_open(&m);
    tb_service_manager_alive(&m, TB_SECONDS(100));
    heard(fd, "WATCHDOG=1");
    tb_service_manager_alive(&m, TB_SECONDS(101) - 1);
    heard_nothing(fd);
    tb_service_manager_alive(&m, TB_SECONDS(101));
    heard(fd, "WATCHDOG=1");
    assert_null(getenv("WATCHDOG_USEC"));
    tb_service_manager_close(&m);
    close(fd);
}

static void a_watchdog_of_another_process_is_not_ours(void **state)
{
    (void)state;
    static const char *const wrong[] = {"0", "", "-", "7x", "99999999999999999999"};
    for (size_t i = 0; i <= sizeof wrong / sizeof wrong[0]; i++) {
        struct tb_service_manager m = {0};
        const int fd = manager_here();
        if (i == 0)
            watchdog("2000000", (long long)getpid() + 1);
        else
            watchdog(wrong[i - 1], getpid());
        tb_service_manager_open(&m);
        tb_service_manager_alive(&m, TB_SECONDS(100));
        heard_nothing(fd);
        tb_service_manager_close(&m);
        close(fd);
    }
}

static void without_a_manager_nothing_happens(void **state)
{
    (void)state;
    struct tb_service_manager m = {0};
    (void)unsetenv("NOTIFY_SOCKET");
    tb_service_manager_open(&m);
    tb_service_manager_ready(&m);
    tb_service_manager_alive(&m, TB_SECONDS(1));
    tb_service_manager_close(&m);
    assert_false(m.open);
}

/* P10: it is a warning, and the gateway goes on. */
static void a_manager_out_of_reach_is_told(void **state)
{
    (void)state;
    static const char *const away[] = {"/nowhere/at/all", "relative", "@", ""};
    for (size_t i = 0; i < sizeof away / sizeof away[0]; i++) {
        struct tb_service_manager m = {0};
        char line[512] = "";
        const int log = caught_log_new();
        tb_log_set(TB_LOG_INFO, log);
        assert_int_equal(setenv("NOTIFY_SOCKET", away[i], 1), 0);
        tb_service_manager_open(&m);
        tb_service_manager_ready(&m);
        tb_log_set(TB_LOG_INFO, STDERR_FILENO);
        assert_false(m.open);
        assert_true(pread(log, line, sizeof line - 1, 0) > 0);
        assert_non_null(strstr(line, "manager.unreached"));
        close(log);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_life_is_told),
        cmocka_unit_test(a_listening_socket_outlives_its_process),
        cmocka_unit_test(the_watchdog_is_fed_in_half_of_its_time),
        cmocka_unit_test(a_watchdog_of_another_process_is_not_ours),
        cmocka_unit_test(without_a_manager_nothing_happens),
        cmocka_unit_test(a_manager_out_of_reach_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
