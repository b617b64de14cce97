/* Listening sockets: base/net/listen.c.
 * Covers: base/net/listen.c */
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/fault.h"
#include "base/log.h"
#include "net_world.h"

struct guest {
    struct world *world;
    struct tb_address at;
    struct tb_listener *listener;
    int fds[8];
    int count;
};

static void on_accept(void *user, int fd, const struct tb_address *from)
{
    (void)from;
    struct guest *g = user;
    TB_ASSERT(g->count < 8);
    g->fds[g->count++] = fd;
}

static void guest_fini(struct guest *g)
{
    tb_listener_close(g->listener);
    for (int i = 0; i < g->count; i++)
        close(g->fds[i]);
}

static struct tb_address unix_at(const struct world *w, const char *name)
{
    struct tb_endpoint e = {.is_unix = true};
    struct tb_address at;
    if (name[0] == '@')
        snprintf(e.host, sizeof e.host, "@%s", w->dir);
    else
        snprintf(e.host, sizeof e.host, "%s/%s", w->dir, name);
    assert_int_equal(tb_endpoint_address(&e, &at), TB_OK);
    return at;
}

static enum tb_status begin(struct guest *g, struct world *w, struct tb_address at, unsigned mode)
{
    *g = (struct guest){.world = w};
    const enum tb_status status = tb_listen(&w->loop, &at, mode, on_accept, g, &g->listener);
    if (status == TB_OK) g->at = tb_listener_address(g->listener);
    return status;
}

static void an_accepted_socket_is_ready_for_use(void **state)
{
    struct world *w = *state;
    struct guest g;
    assert_int_equal(begin(&g, w, loopback(0), 0), TB_OK);
    assert_true(ntohs(g.at.v4.sin_port) != 0);
    const int a = raw_connect(&g.at), b = raw_connect(&g.at);
    WORLD_UNTIL(w, g.count == 2);
    int one = 0;
    socklen_t bytes = sizeof one;
    assert_true((fcntl(g.fds[0], F_GETFL) & O_NONBLOCK) != 0);
    assert_true((fcntl(g.fds[0], F_GETFD) & FD_CLOEXEC) != 0);
    assert_int_equal(getsockopt(g.fds[0], IPPROTO_TCP, TCP_NODELAY, &one, &bytes), 0);
    assert_int_equal(one, 1);
    close(a);
    close(b);
    guest_fini(&g);
}

static void a_port_in_use_is_locked(void **state)
{
    struct world *w = *state;
    struct guest g, h;
    assert_int_equal(begin(&g, w, loopback(0), 0), TB_OK);
    assert_int_equal(begin(&h, w, g.at, 0), TB_SITE_LOCKED);
    guest_fini(&g);
}

static void a_path_has_its_mode_and_goes_with_its_listener(void **state)
{
    struct world *w = *state;
    struct guest g;
    const struct tb_address at = unix_at(w, "s");
    struct stat st;
    const mode_t old = umask(0);
    assert_int_equal(begin(&g, w, at, 0660), TB_OK);
    umask(old);
    assert_int_equal(stat(at.local.sun_path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0660);
    guest_fini(&g);
    assert_int_equal(access(at.local.sun_path, F_OK), -1);
}

static void a_living_owner_keeps_its_path(void **state)
{
    struct world *w = *state;
    struct guest g, h;
    const struct tb_address at = unix_at(w, "s");
    assert_int_equal(begin(&g, w, at, 0600), TB_OK);
    assert_int_equal(begin(&h, w, at, 0600), TB_SITE_LOCKED);
    assert_int_equal(access(at.local.sun_path, F_OK), 0);
    guest_fini(&g);
    world_turns(w, 2);
}

/* P9: a daemon that was killed leaves its socket; the next one takes the place. */
static void a_dead_owners_path_is_taken_over(void **state)
{
    struct world *w = *state;
    struct guest g;
    const struct tb_address at = unix_at(w, "s");
    const int dead = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(dead, &at.any, at.bytes), 0);
    assert_int_equal(listen(dead, 1), 0);
    close(dead);
    assert_int_equal(access(at.local.sun_path, F_OK), 0);
    assert_int_equal(begin(&g, w, at, 0600), TB_OK);
    const int fd = raw_connect(&at);
    WORLD_UNTIL(w, g.count == 1);
    close(fd);
    guest_fini(&g);
}

static void a_path_that_is_no_socket_is_left_alone(void **state)
{
    struct world *w = *state;
    struct guest g;
    const struct tb_address at = unix_at(w, "precious");
    FILE *f = fopen(at.local.sun_path, "w");
    fclose(f);
    assert_int_equal(begin(&g, w, at, 0600), TB_SITE_IO);
    assert_int_equal(errno, ENOTSOCK); /* nobody listens there, and the sentence does not say so */
    assert_int_equal(access(at.local.sun_path, F_OK), 0);
}

static void a_successors_path_is_left_alone(void **state)
{
    struct world *w = *state;
    struct guest g, h;
    const struct tb_address at = unix_at(w, "s");
    assert_int_equal(begin(&g, w, at, 0600), TB_OK);
    assert_int_equal(unlink(at.local.sun_path), 0);
    assert_int_equal(begin(&h, w, at, 0600), TB_OK);
    guest_fini(&g);
    assert_int_equal(access(at.local.sun_path, F_OK), 0);
    guest_fini(&h);
}

static void abstract_names_work(void **state)
{
    struct world *w = *state;
    struct guest g, h;
    const struct tb_address at = unix_at(w, "@");
    assert_int_equal(begin(&g, w, at, 0600), TB_OK);
    assert_int_equal(begin(&h, w, at, 0600), TB_SITE_LOCKED);
    const int fd = raw_connect(&at);
    WORLD_UNTIL(w, g.count == 1);
    close(fd);
    guest_fini(&g);
}

/* P7: without a free descriptor the loop rests instead of spinning, and goes on when there is
 * one. */
static void a_full_descriptor_table_does_not_spin(void **state)
{
    struct world *w = *state;
    struct guest g;
    tb_log_set(TB_LOG_ERROR, STDERR_FILENO);
    assert_int_equal(begin(&g, w, loopback(0), 0), TB_OK);
    tb_fault_arm(TB_FAULT_accept, 1, true);
    const int fd = raw_connect(&g.at);
    const tb_time_ns from = tb_clock_now();
    WORLD_UNTIL(w, tb_clock_now() > from + TB_MS(250));
    const uint64_t tries = tb_fault_calls(TB_FAULT_accept);
    assert_in_range(tries, 1, 4);
    assert_int_equal(g.count, 0);
    tb_fault_arm(TB_FAULT_accept, 0, false);
    WORLD_UNTIL(w, g.count == 1);
    close(fd);
    guest_fini(&g);
    tb_log_set(TB_LOG_INFO, STDERR_FILENO);
}

static void failures_have_a_status_and_leave_nothing(void **state)
{
    struct world *w = *state;
    struct guest g;
    const int before = open_fds();
    tb_fault_arm(TB_FAULT_socket, 1, false);
    assert_int_equal(begin(&g, w, loopback(0), 0), TB_SITE_IO);
    tb_fault_arm(TB_FAULT_socket, 0, false);
    assert_int_equal(begin(&g, w, unix_at(w, "no/such/folder"), 0600), TB_SITE_IO);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(open_fds(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(an_accepted_socket_is_ready_for_use),
        WORLD_TEST(a_port_in_use_is_locked),
        WORLD_TEST(a_path_has_its_mode_and_goes_with_its_listener),
        WORLD_TEST(a_living_owner_keeps_its_path),
        WORLD_TEST(a_dead_owners_path_is_taken_over),
        WORLD_TEST(a_path_that_is_no_socket_is_left_alone),
        WORLD_TEST(a_successors_path_is_left_alone),
        WORLD_TEST(abstract_names_work),
        WORLD_TEST(a_full_descriptor_table_does_not_spin),
        WORLD_TEST(failures_have_a_status_and_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
