/* fleet_chain.c - the longest chain that is promised, hop by hop: the shipped hops look when they look, which the closed form of
 * fleet_model.h leaves out. */
#include <stdio.h>

#include "sim/fleet/fleet_world.h"
#include "tests/unit/check.h"

#define HOSTS  1000u
#define CHUNKS 8192u
#define RATE   12.5e9 /* 100 Gbit/s */

static double seconds(unsigned hosts)
{
    struct tb_fleet_scenario s = {.version = tb_fleet_version_default(), .site_count = 2, .link_count = 1};
    s.version.bytes = 240e9;
    s.version.chunks = CHUNKS;
    s.sites[0] = s.sites[1] = tb_fleet_site_default();
    (void)snprintf(s.sites[0].name, sizeof s.sites[0].name, "east");
    (void)snprintf(s.sites[1].name, sizeof s.sites[1].name, "west");
    s.sites[1].hosts = hosts;
    s.sites[1].nic = RATE;
    s.sites[1].fan_out = 1;
    s.links[0] = tb_fleet_link_default();
    s.links[0].b = 1;
    s.links[0].rate = RATE * 1500 / 1448; /* with its headers: so that nobody behind it catches up */
    struct tb_fleet_outcome o;
    CHECK_OK(tb_fleet_world_run(&s, NULL, NULL, &o));
    assert_int_equal(o.workers.count, hosts);
    assert_int_equal(o.sites[1].depth, hosts);
    const double last = o.workers.last;
    tb_fleet_outcome_fini(&o);
    return last;
}

/* P6: fleet.chain.n1000. At most a fifth more than one host takes; at least what the chunks' way down the chain is. */
static void a_chain_of_1000_is_within_a_fifth_of_one(void **state)
{
    (void)state;
    const double ratio = seconds(HOSTS) / seconds(1);
    print_message("%u hosts take %.3f times as long as one\n", HOSTS, ratio);
    assert_true(ratio <= 1.2);
    assert_true(ratio >= 1 + (HOSTS - 1.0) / CHUNKS * 0.9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_chain_of_1000_is_within_a_fifth_of_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
