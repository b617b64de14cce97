/* fleet_chain.c - the longest chain that is promised, hop by hop: the shipped hops look when they
 * look, which the closed form of fleet_model.h leaves out.
 *
 * Covers: sim/fleet/fleet_hops.c */
#include <stdio.h>

#include "sim/fleet/fleet_world.h"
#include "tests/unit/check.h"

#define HOSTS 1000u

struct row {
    double bytes;
    unsigned chunks;
    double rate; /* of the link and of each NIC, bytes a second */
};

static double seconds(const struct row *row, unsigned hosts)
{
    struct tb_fleet_scenario s = {.version = tb_fleet_version_default(), .site_count = 2, .link_count = 1};
    s.version.bytes = row->bytes;
    s.version.chunks = row->chunks;
    s.sites[0] = s.sites[1] = tb_fleet_site_default();
    (void)snprintf(s.sites[0].name, sizeof s.sites[0].name, "east");
    (void)snprintf(s.sites[1].name, sizeof s.sites[1].name, "west");
    s.sites[1].hosts = hosts;
    s.sites[1].nic = row->rate;
    s.sites[1].fan_out = 1;
    s.links[0] = tb_fleet_link_default();
    s.links[0].b = 1;
    s.links[0].rate = row->rate * 1500 / 1448; /* with its headers: so that nobody behind it catches up */
    struct tb_fleet_outcome o;
    CHECK_OK(tb_fleet_world_run(&s, NULL, NULL, &o));
    assert_int_equal(o.workers.count, hosts);
    assert_int_equal(o.sites[1].depth, hosts);
    const double last = o.workers.last;
    tb_fleet_outcome_fini(&o);
    return last;
}

/* P6: fleet.chain.n1000. At most a fifth more than one host takes; at least what the chunks' way
 * down the chain is. Fast NICs (the bench's), and slow ones: a pause far up the chain must neither
 * grow on its way nor have those behind it moved. */
static void a_chain_of_1000_is_within_a_fifth_of_one(void **state)
{
    (void)state;
    static const struct row rows[] = {{240e9, 8192, 12.5e9}, {0x1p33, 8192, 125e6}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const double ratio = seconds(&rows[i], HOSTS) / seconds(&rows[i], 1);
        print_message("%.0f GB in %u chunks at %.3g Gbit/s: %u hosts take %.3f times as long as one\n",
                      rows[i].bytes / 1e9, rows[i].chunks, rows[i].rate / 125e6, HOSTS, ratio);
        assert_true(ratio <= 1.2);
        assert_true(ratio >= 1 + (HOSTS - 1.0) / rows[i].chunks * 0.9);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_chain_of_1000_is_within_a_fifth_of_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
