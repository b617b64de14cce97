/* nic_facts.c - what sysfs says of NICs, from a folder that stands in for it. */
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

static char root[64];

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

static void what_is_there_is_read(void **state)
{
    (void)state;
    struct tb_nic_facts facts;
    assert_false(tb_nic_facts_any(root));
    put("mlx5_0/device/numa_node", "1\n");
    put("mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n");
    put("rxe0/ports/1/rate", "2.5 Gb/sec (1X SDR)\n");
    assert_true(tb_nic_facts_any(root));
    tb_nic_facts_read(root, "mlx5_0", 1, &facts);
    assert_int_equal(facts.node, 1);
    assert_int_equal(facts.bytes_per_s, UINT64_C(50000000000));
    tb_nic_facts_read(root, "rxe0", 1, &facts);
    assert_int_equal(facts.node, -1);
    assert_int_equal(facts.bytes_per_s, 312500000);
}

static void what_is_not_is_not_known(void **state)
{
    (void)state;
    struct tb_nic_facts facts;
    const char *const rates[] = {"", "\n", "garbage", "-5 Gb/sec", "1e99 Gb/sec", "nan"};
    tb_nic_facts_read(root, "none", 1, &facts);
    assert_int_equal(facts.node, -1);
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
    int here = 0;
    assert_in_range(tb_nic_facts_node_of(&here) + 1, 0, 1024); /* -1 where the kernel does not say */
    assert_int_equal(tb_nic_facts_node_of(NULL), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_there_is_read, make, sweep),
        cmocka_unit_test_setup_teardown(what_is_not_is_not_known, make, sweep),
        cmocka_unit_test(memory_has_a_node_or_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
