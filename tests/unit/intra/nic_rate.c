/* nic_rate.c - what sysfs says of interfaces, from a folder that stands in for it: hardware is
 * believed, and nothing else.
 *
 * Covers: intra/fabric/nic_rate.c */
#include "intra/fabric/nic_rate.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/check.h"
#include "tests/unit/scratch.h"

#define GBIT UINT64_C(125000000)

static char root[SCRATCH_BYTES];

static void put(const char *path, const char *text)
{
    assert_true(scratch_put(root, path, text));
}

static int make(void **state)
{
    (void)state;
    return scratch_folder(root, sizeof root, "net") ? 0 : -1;
}

static int sweep(void **state)
{
    (void)state;
    return scratch_remove(root) ? 0 : -1;
}

static void is(const char *name, uint64_t gbits)
{
    assert_int_equal(tb_nic_rate_of_interface(root, name), gbits * GBIT);
}

static void hardware_says_what_it_carries(void **state)
{
    (void)state;
    put("eth0/device/vendor", "");
    put("eth0/speed", "25000\n");
    is("eth0", 25);
    put("eth0/speed", "-1\n"); /* down, or virtio that was not told */
    is("eth0", 0);
    put("eth0/speed", "4294967295\n");
    is("eth0", 0);
    put("eth0/speed", "\n");
    is("eth0", 0);
    is("eth9", 0);
}

/* The twins: a veth's 10 Gbit/s are made up, and loopback has none. */
static void a_rate_without_hardware_is_not_believed(void **state)
{
    (void)state;
    put("veth0/speed", "10000\n");
    is("veth0", 0);
    put("docker0/speed", "10000\n");
    put("docker0/lower_veth0/speed", "10000\n");
    is("docker0", 0);
    put("lo/flags", "0x9\n");
    is("lo", 0);
}

static void an_interface_on_hardware_is_as_fast(void **state)
{
    (void)state;
    put("eth1/device/vendor", "");
    put("eth1/speed", "100000\n");
    put("bond0/bonding/mode", "802.3ad 4\n");
    put("bond0/speed", "200000\n");
    put("bond0/lower_eth1/speed", "");
    is("bond0", 200);
    put("bond0.7/lower_bond0/speed", "");
    is("bond0.7", 200);
    put("br0/lower_veth0/speed", "");
    put("br0/lower_eth1/speed", "");
    put("br0/speed", "999000\n"); /* the most of its ports, made up or not */
    is("br0", 100);
    put("loop/lower_loop/speed", "");
    is("loop", 0);
}

/* Loopback's address is found, whatever it is said to carry; one that nobody has is not. */
static void an_address_is_its_interfaces(void **state)
{
    (void)state;
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = 7, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 mapped = {.sin6_family = AF_INET6};
    assert_int_equal(inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr), 1);
    assert_int_equal(tb_nic_rate_of(root, (struct sockaddr *)&v4), 0);
    put("lo/device/vendor", "");
    put("lo/speed", "40000\n");
    assert_int_equal(tb_nic_rate_of(root, (struct sockaddr *)&v4), 40 * GBIT);
    assert_int_equal(tb_nic_rate_of(root, (struct sockaddr *)&mapped), 40 * GBIT);
    v4.sin_addr.s_addr = htonl(UINT32_C(0xc0000207)); /* 192.0.2.7 */
    assert_int_equal(tb_nic_rate_of(root, (struct sockaddr *)&v4), 0);
    v4.sin_family = AF_UNIX;
    assert_int_equal(tb_nic_rate_of(root, (struct sockaddr *)&v4), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hardware_says_what_it_carries),
        cmocka_unit_test(a_rate_without_hardware_is_not_believed),
        cmocka_unit_test(an_interface_on_hardware_is_as_fast),
        cmocka_unit_test(an_address_is_its_interfaces),
    };
    return cmocka_run_group_tests(tests, make, sweep);
}
