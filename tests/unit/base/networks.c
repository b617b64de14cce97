/* P7 P8: networks as an operator writes them, and the key by which an address is counted.
 * Covers: base/networks.c */
#include "base/networks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "tests/unit/check.h"

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static union address at(const char *text)
{
    union address a = {.v6 = {.sin6_family = AF_INET6}};
    if (inet_pton(AF_INET6, text, &a.v6.sin6_addr) == 1) return a;
    a = (union address){.v4 = {.sin_family = AF_INET}};
    assert_int_equal(inet_pton(AF_INET, text, &a.v4.sin_addr), 1);
    return a;
}

static bool has(const char *network, const char *address)
{
    struct tb_network n;
    const union address a = at(address);
    assert_true(tb_network_parse(network, &n));
    return tb_network_has(&n, &a.any);
}

static void a_network_has_its_addresses(void **state)
{
    (void)state;
    assert_true(has("10.0.0.0/8", "10.255.1.2"));
    assert_false(has("10.0.0.0/8", "11.0.0.1"));
    assert_true(has("10.128.0.0/9", "10.200.0.1"));
    assert_false(has("10.128.0.0/9", "10.127.0.1"));
    assert_true(has("192.0.2.7", "192.0.2.7"));
    assert_false(has("192.0.2.7", "192.0.2.8"));
    assert_true(has("0.0.0.0/0", "1.2.3.4"));
    assert_false(has("0.0.0.0/0", "2001:db8::1"));
    assert_true(has("2001:db8::/33", "2001:db8:7fff::1"));
    assert_false(has("2001:db8::/33", "2001:db8:8000::1"));
    assert_true(has("10.0.0.0/8", "::ffff:10.1.1.1"));
    const union address unix_one = {.any = {.sa_family = AF_UNIX}};
    struct tb_network n;
    assert_true(tb_network_parse("::/0", &n));
    assert_false(tb_network_has(&n, &unix_one.any));
}

static void text_that_is_no_network_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",
                                        "/8",
                                        "10.0.0.0/33",
                                        "10.0.0.0/",
                                        "10.0.0.0/8x",
                                        "10.0.0.1/8",
                                        "10.0.0/8",
                                        "2001:db8::/129",
                                        "host/8",
                                        "10.0.0.0/-1",
                                        "10.0.0.0/+8",
                                        "2001:db8::1/64"};
    struct tb_network n;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(tb_network_parse(wrong[i], &n));
}

static void one_host_has_one_key(void **state)
{
    (void)state;
    const union address a = at("192.0.2.7"), b = at("192.0.2.8"), mapped = at("::ffff:192.0.2.7");
    assert_int_not_equal(tb_network_key(&a.any), tb_network_key(&b.any));
    assert_int_equal(tb_network_key(&a.any), tb_network_key(&mapped.any));
    const union address c = at("2001:db8::1"), d = at("2001:db8::ffff:1"), e = at("2001:db8:0:1::1");
    assert_int_equal(tb_network_key(&c.any), tb_network_key(&d.any));
    assert_int_not_equal(tb_network_key(&c.any), tb_network_key(&e.any));
    assert_int_equal(tb_network_key(&a.any), UINT64_C(0xffffc0000207)); /* as handshake_limits.c reads it */
    assert_int_equal(tb_network_key(&e.any), UINT64_C(0x20010db800000001));
    assert_true(tb_network_same_host(&a.any, &mapped.any));
    assert_false(tb_network_same_host(&c.any, &d.any));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_network_has_its_addresses),
        cmocka_unit_test(text_that_is_no_network_is_refused),
        cmocka_unit_test(one_host_has_one_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
