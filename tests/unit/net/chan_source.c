/* chan_source.c - a dial leaves from the address that it was given, with its DSCP value, or says
 * why not (P10).
 * Covers: base/net/chan.c base/net/tcp.c */
#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>

#include "base/net/tcp.h"
#include "net_world.h"

static struct tb_address address_of(const char *text, uint16_t port)
{
    struct tb_endpoint endpoint = {.port = port};
    struct tb_address address;
    (void)snprintf(endpoint.host, sizeof endpoint.host, "%s", text);
    assert_int_equal(tb_endpoint_address(&endpoint, &address), TB_OK);
    return address;
}

static struct tb_address peer_of(int fd)
{
    struct tb_address at = {.bytes = sizeof at.local};
    assert_int_equal(getpeername(fd, &at.any, &at.bytes), 0);
    return at;
}

static int dscp_of(int fd)
{
    struct tb_address own = {.bytes = sizeof own.local};
    int value = 0;
    socklen_t bytes = sizeof value;
    assert_int_equal(getsockname(fd, &own.any, &own.bytes), 0);
    const bool six = own.any.sa_family == AF_INET6;
    const int level = six ? IPPROTO_IPV6 : IPPROTO_IP, option = six ? IPV6_TCLASS : IP_TOS;
    assert_int_equal(getsockopt(fd, level, option, &value, &bytes), 0);
    return value >> 2;
}

/* The other end sees it. */
static void ipv4_leaves_from_its_source(void **state)
{
    struct pair p;
    const struct tb_address source = address_of("127.0.0.77", 4242);
    pair_init(&p, *state, NULL, NULL, false);
    p.client.source = &source;
    p.client.dscp = 46;
    pair_open(&p);
    const struct tb_address seen = peer_of(tb_chan_fd(p.s.chan));
    assert_int_equal(seen.v4.sin_addr.s_addr, source.v4.sin_addr.s_addr);
    assert_int_not_equal(seen.v4.sin_port, htons(4242)); /* the kernel chooses it */
    assert_int_equal(dscp_of(tb_chan_fd(p.c.chan)), 46);
    assert_int_equal(dscp_of(tb_chan_fd(p.s.chan)), 0); /* its own is its own */
    tb_tcp_dscp_set(tb_chan_fd(p.s.chan), 10);
    assert_int_equal(dscp_of(tb_chan_fd(p.s.chan)), 10);
    pair_fini(&p);
}

static void ipv6_leaves_from_its_source(void **state)
{
    struct world *w = *state;
    struct pair p;
    const struct tb_address source = address_of("::1", 0), any = address_of("::1", 0);
    if (tb_listen_check(&any) != TB_OK) skip(); /* this machine has no IPv6 */
    pair_init(&p, w, NULL, NULL, false);
    tb_listener_close(p.listener);
    p.listener = NULL;
    const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t bytes = sizeof p.at.v6;
    assert_int_equal(bind(fd, &any.any, any.bytes), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, &p.at.any, &bytes), 0);
    p.at.bytes = bytes;
    p.client.source = &source;
    p.client.dscp = 63;
    pair_dial(&p);
    WORLD_UNTIL(w, p.c.opened == 1);
    assert_int_equal(dscp_of(tb_chan_fd(p.c.chan)), 63);
    pair_fini(&p);
    (void)close(fd);
}

static void refused(struct world *w, const char *text, const char *reason)
{
    struct pair p;
    const struct tb_address source = address_of(text, 0);
    pair_init(&p, w, NULL, NULL, false);
    p.client.source = &source;
    pair_dial(&p);
    WORLD_UNTIL(w, p.c.closed + p.c.opened == 1);
    assert_int_equal(p.c.opened, 0);
    assert_int_equal(p.c.why, TB_PEER_UNREACHABLE);
    assert_int_equal(p.c.reach, TB_CHAN_NOWHERE);
    assert_non_null(strstr(p.c.reason, reason));
    pair_fini(&p);
}

/* A path that was configured is not left in silence: another address of the peer may fit. */
static void a_source_that_does_not_fit_is_told(void **state)
{
    refused(*state, "::1", "from [::1]:0: the peer's address is of the other family");
    refused(*state, "192.0.2.7", "from 192.0.2.7:0: Cannot assign requested address");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(ipv4_leaves_from_its_source),
        WORLD_TEST(ipv6_leaves_from_its_source),
        WORLD_TEST(a_source_that_does_not_fit_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
