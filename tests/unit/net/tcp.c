/* tcp.c - what the kernel of this machine says and takes.
 * Covers: base/net/tcp.c */
#include "base/net/tcp.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net_world.h"

struct ends {
    int listener, from, to;
};

static struct ends ends_open(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof at;
    struct ends e;
    e.listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(e.listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(e.listener, 1), 0);
    assert_int_equal(getsockname(e.listener, (struct sockaddr *)&at, &bytes), 0);
    e.from = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(e.from, (struct sockaddr *)&at, sizeof at), 0);
    e.to = accept(e.listener, NULL, NULL);
    assert_true(e.to >= 0);
    return e;
}

static void ends_close(const struct ends *e)
{
    close(e->listener);
    close(e->from);
    close(e->to);
}

static void a_connection_is_seen(void **state)
{
    (void)state;
    struct ends e = ends_open();
    struct tb_tcp_seen seen;
    char bytes[1000] = {0};
    assert_int_equal(send(e.from, bytes, sizeof bytes, 0), sizeof bytes);
    assert_int_equal(recv(e.to, bytes, sizeof bytes, MSG_WAITALL), sizeof bytes);
    assert_true(tb_tcp_look(e.to, &seen));
    assert_int_equal(seen.bytes_received, sizeof bytes);
    assert_true(tb_tcp_look(e.from, &seen));
    assert_true(seen.window_bytes > 0);
    assert_true(seen.rtt > 0);
    ends_close(&e);
}

static void sockets_other_than_tcp_are_left_alone(void **state)
{
    (void)state;
    int fds[2];
    struct tb_tcp_seen seen;
    char name[TB_TCP_CONGESTION_BYTES];
    assert_int_equal(pipe(fds), 0);
    assert_false(tb_tcp_look(fds[0], &seen));
    assert_false(tb_tcp_congestion_set(fds[0], "reno"));
    tb_tcp_congestion(fds[0], name);
    assert_string_equal(name, "");
    tb_tcp_unsent_max(fds[0], 1);
    tb_tcp_keep_alive(fds[0]);
    close(fds[0]);
    close(fds[1]);
}

/* reno is in every kernel. */
static void a_congestion_control_is_had_or_refused_by_name(void **state)
{
    (void)state;
    char error[256], name[TB_TCP_CONGESTION_BYTES];
    assert_int_equal(tb_tcp_congestion_check("reno", error), TB_OK);
    assert_int_equal(tb_tcp_congestion_check("no_such", error), TB_SITE_CONFIG);
    assert_non_null(strstr(error, "\"no_such\""));
    assert_non_null(strstr(error, "reno"));
    struct ends e = ends_open();
    assert_true(tb_tcp_congestion_set(e.from, "reno"));
    tb_tcp_congestion(e.from, name);
    assert_string_equal(name, "reno");
    ends_close(&e);
}

static void unsent_bytes_are_bounded(void **state)
{
    (void)state;
    struct ends e = ends_open();
    int value = 0;
    socklen_t bytes = sizeof value;
    tb_tcp_unsent_max(e.from, 300000);
    assert_int_equal(getsockopt(e.from, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &value, &bytes), 0);
    assert_int_equal(value, 300000);
    /* Nobody reads: the kernel takes what the other end's buffer holds, and 300 kB more, not
     * all of its own buffer. */
    char *more = calloc(1, 64 << 10);
    assert_int_equal(fcntl(e.from, F_SETFL, O_NONBLOCK), 0);
    while (send(e.from, more, 64 << 10, MSG_NOSIGNAL) > 0)
        continue;
    struct tb_tcp_seen seen;
    assert_true(tb_tcp_look(e.from, &seen));
    assert_in_range(seen.unsent_bytes, 1, 300000 + (64 << 10));
    free(more);
    ends_close(&e);
}

static void ceilings_are_read(void **state)
{
    (void)state;
    const struct tb_tcp_ceilings c = tb_tcp_ceilings();
    assert_in_range(c.send_bytes, 4096, (uint64_t)1 << 32);
    assert_in_range(c.receive_bytes, 4096, (uint64_t)1 << 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_is_seen),
        cmocka_unit_test(sockets_other_than_tcp_are_left_alone),
        cmocka_unit_test(a_congestion_control_is_had_or_refused_by_name),
        cmocka_unit_test(unsent_bytes_are_bounded),
        cmocka_unit_test(ceilings_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
