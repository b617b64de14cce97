/* nic_facts.c - what sysfs says of NICs, from a folder that stands in for it.
 *
 * Covers: intra/verbs/nic_facts.c */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "intra/verbs/nic_facts.h"
#include "tests/unit/scratch.h"

static char root[SCRATCH_BYTES];

static void put(const char *path, const char *text)
{
    assert_true(scratch_put(root, path, text));
}

static int make(void **state)
{
    (void)state;
    return scratch_folder(root, sizeof root, "nics") ? 0 : -1;
}

static int sweep(void **state)
{
    (void)state;
    return scratch_remove(root) ? 0 : -1;
}

static void a_fact_that_is_there_is_read(void **state)
{
    (void)state;
    struct tb_nic_facts facts;
    assert_false(tb_nic_facts_any(root));
    put("mlx5_0/device/numa_node", "1\n");
    put("mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n");
    put("rxe0/ports/1/rate", "2.5 Gb/sec (1X SDR)\n");
    assert_true(tb_nic_facts_any(root));
    tb_nic_facts_read(root, "mlx5_0", 1, &facts);
    assert_int_equal(facts.spot.node, 1);
    assert_int_equal(facts.bytes_per_s, UINT64_C(50000000000));
    tb_nic_facts_read(root, "rxe0", 1, &facts);
    assert_int_equal(facts.spot.node, -1);
    assert_string_equal(facts.spot.root_port, "");
    assert_int_equal(facts.bytes_per_s, 312500000);
}

static void a_fact_that_is_not_there_is_not_known(void **state)
{
    (void)state;
    struct tb_nic_facts facts;
    const char *const rates[] = {"", "\n", "garbage", "-5 Gb/sec", "1e99 Gb/sec", "nan"};
    tb_nic_facts_read(root, "none", 1, &facts);
    assert_int_equal(facts.spot.node, -1);
    assert_int_equal(facts.bytes_per_s, 0);
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        put("odd/ports/2/rate", rates[i]);
        tb_nic_facts_read(root, "odd", 2, &facts);
        assert_int_equal(facts.bytes_per_s, 0);
    }
    assert_false(tb_nic_facts_any("/nowhere/at/all"));
}

static void memory_has_a_node_or_not(void **state)
{
    (void)state;
    const int here = 0;
    struct tb_rail_spot spot;
    tb_nic_facts_of_memory(&here, &spot);
    assert_in_range(spot.node + 1, 0, 1024); /* -1 where the kernel does not say */
    assert_string_equal(spot.root_port, "");
    tb_nic_facts_of_memory(NULL, &spot);
    assert_int_equal(spot.node, -1);
}

/* A device as the kernel shows it: a link to where it is plugged in. */
static void plug(const char *link, const char *path)
{
    char at[256], to[256], file[256];
    (void)snprintf(file, sizeof file, "%s/numa_node", path);
    put(file, "1\n");
    (void)snprintf(at, sizeof at, "%s/%s", root, link);
    (void)snprintf(to, sizeof to, "%s/%s", root, path);
    assert_int_equal(symlink(to, at), 0);
}

static const char *root_port_of(const char *gpu)
{
    static struct tb_rail_spot spot;
    tb_nic_facts_of_pci(root, gpu, &spot);
    assert_int_equal(spot.node, 1);
    return spot.root_port;
}

/* A GPU and a NIC of one switch have the root port in common, others do not; one in a slot of the
 * host bridge's has none. */
static void devices_that_share_a_switch_are_behind_one_root_port(void **state)
{
    (void)state;
    struct tb_nic_facts nic;
    struct tb_rail_spot spot;
    put("mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n");
    plug("mlx5_0/device", "devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:02.0/0000:1b:00.0");
    plug("0000:18:00.0", "devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0");
    plug("0000:2a:00.0", "devices/pci0000:15/0000:15:02.0/0000:2a:00.0");
    plug("10000:01:00.0", "devices/platform/x/pci10000:00/10000:00:00.0/10000:01:00.0");
    plug("0000:00:05.0", "devices/pci0000:00/0000:00:05.0");
    plug("longest", "devices/pci0000:00/0000:00:05.0-15/0000:01:00.0");
    plug("longer", "devices/pci0000:00/0000:00:05.0--16/0000:01:00.0");
    tb_nic_facts_read(root, "mlx5_0", 1, &nic);
    assert_string_equal(nic.spot.root_port, "0000:15:01.0");
    assert_string_equal(root_port_of("0000:18:00.0"), "0000:15:01.0");
    assert_string_equal(root_port_of("0000:2a:00.0"), "0000:15:02.0");
    assert_string_equal(root_port_of("10000:01:00.0"), "10000:00:00.0");
    assert_string_equal(root_port_of("0000:00:05.0"), "");
    assert_string_equal(root_port_of("longest"), "0000:00:05.0-15");
    assert_string_equal(root_port_of("longer"), "");
    const char *const unknown[] = {NULL, "0000:ff:00.0"};
    for (size_t i = 0; i < 2; i++) {
        tb_nic_facts_of_pci(root, unknown[i], &spot);
        assert_int_equal(spot.node, -1);
        assert_string_equal(spot.root_port, "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_fact_that_is_there_is_read, make, sweep),
        cmocka_unit_test_setup_teardown(a_fact_that_is_not_there_is_not_known, make, sweep),
        cmocka_unit_test(memory_has_a_node_or_not),
        cmocka_unit_test_setup_teardown(devices_that_share_a_switch_are_behind_one_root_port, make, sweep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
