/* fleet_model.c - the model against what can be worked out by hand: one host, a chain, a star,
 * pulls; and what must hold of any fleet.
 *
 * Covers: sim/fleet/fleet_model.c */
#include "sim/fleet/fleet_model.h"

#include "intra/planner.h"
#include "tests/unit/check.h"

#define CLOSE(a, b) assert_float_equal((float)((a) / (b)), 1.0F, 1e-5F)

/* 100 chunks of 1 byte; a link and a NIC of 1 byte a second: a chain. */
static struct tb_fleet small(uint32_t hosts)
{
    return (struct tb_fleet){.sites = 1,
                             .hosts = hosts,
                             .workers = 1,
                             .chunks = 100,
                             .bytes = 100,
                             .link_rate = 1,
                             .link_delay = 3,
                             .nic_rate = 1};
}

static struct tb_fleet_result run(const struct tb_fleet *f)
{
    struct tb_fleet_result r = {0};
    CHECK_OK(tb_fleet_run(f, &r));
    return r;
}

static void one_host_is_one_chunk_behind_its_gateway(void **state)
{
    (void)state;
    const struct tb_fleet f = small(1);
    const struct tb_fleet_result r = run(&f);
    CLOSE(r.gateways.last, 103);
    CLOSE(r.workers.last, 104);
    CLOSE(r.floor, 103);
}

static void each_host_of_a_chain_is_one_chunk_behind(void **state)
{
    (void)state;
    const struct tb_fleet f = small(50);
    const struct tb_fleet_result r = run(&f);
    assert_int_equal(r.fan_out, 1);
    assert_int_equal(r.depth, 50);
    CLOSE(r.workers.last, 153);
    CLOSE(r.workers.median, 103 + 25);
    CLOSE(r.nic_in_bytes, 100);
    CLOSE(r.nic_out_bytes, 100);
}

static void a_star_is_as_slow_as_its_gateway(void **state)
{
    (void)state;
    struct tb_fleet f = small(50);
    f.shape = TB_FLEET_STAR;
    const struct tb_fleet_result r = run(&f);
    CLOSE(r.workers.last, 1 + 3 + 100 * 50); /* the first chunk comes, then the NIC never rests */
    CLOSE(r.gateway_out_bytes, 50 * 100);
    assert_int_equal(r.depth, 1);
}

static void pulls_share_the_link(void **state)
{
    (void)state;
    struct tb_fleet f = small(50);
    f.workers = 4;
    f.shape = TB_FLEET_PULLS;
    const struct tb_fleet_result r = run(&f);
    CLOSE(r.workers.last, 3 + 100 * 200);
    CLOSE(r.link_bytes, 200 * 100);
    CLOSE(r.nic_in_bytes, 4 * 100);
}

/* Behind a link of a tenth of the NIC's rate the tree is wide, and the workers have
 * it a few chunks later. */
static void behind_a_slow_link_the_tree_is_shallow(void **state)
{
    (void)state;
    struct tb_fleet f = small(500);
    f.nic_rate = 10;
    const struct tb_fleet_result r = run(&f);
    assert_int_equal(r.fan_out, 10);
    assert_true(r.depth <= 5);
    CLOSE(r.nic_in_bytes, 100);
    assert_true(r.nic_out_bytes <= 10 * 100);
    assert_true(r.workers.last <= r.gateways.last + r.depth * 1.0 + 1e-9);
}

static void every_byte_reaches_a_host_once(void **state)
{
    (void)state;
    for (uint32_t workers = 1; workers <= 8; workers *= 2)
        for (uint32_t racks = 0; racks <= 6; racks += 3) {
            struct tb_fleet f = small(24);
            f.workers = workers;
            f.racks = racks;
            f.nic_rate = 1 + workers;
            CLOSE(run(&f).nic_in_bytes, 100);
        }
}

static void a_chain_of_1000_is_within_a_fifth_of_one(void **state)
{
    (void)state;
    struct tb_fleet f = small(1);
    f.chunks = 8192;
    f.bytes = 8192;
    const double one = run(&f).workers.last;
    f.hosts = 1000;
    const struct tb_fleet_result r = run(&f);
    assert_int_equal(r.depth, 1000);
    assert_true(r.workers.last <= 1.2 * one);
}

static void numbers_out_of_range_are_refused(void **state)
{
    (void)state;
    struct tb_fleet_result r;
    struct tb_fleet f;
#define REFUSED(change) (f = small(4), change, CHECK_STATUS(tb_fleet_run(&f, &r), TB_BAD_ARGUMENT))
    REFUSED(f.sites = 0);
    REFUSED(f.sites = TB_FLEET_SITES_MAX + 1);
    REFUSED(f.hosts = 0);
    REFUSED(f.hosts = TB_FLEET_HOSTS_MAX + 1);
    REFUSED(f.workers = 0);
    REFUSED(f.workers = TB_FLEET_WORKERS_MAX + 1);
    REFUSED((f.hosts = TB_FLEET_HOSTS_MAX, f.workers = 2));
    REFUSED(f.racks = 5);
    REFUSED(f.fan_out = TB_PLANNER_FAN_OUT_MAX + 1);
    REFUSED(f.chunks = 0);
    REFUSED(f.chunks = TB_FLEET_CHUNKS_MAX + 1);
    REFUSED(f.bytes = 99); /* a chunk has a byte */
    REFUSED(f.link_rate = 0);
    REFUSED(f.nic_rate = 1.0 / 0.0);
    REFUSED(f.link_delay = -1);
    REFUSED(f.link_delay = 0.0 / 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_host_is_one_chunk_behind_its_gateway),
        cmocka_unit_test(each_host_of_a_chain_is_one_chunk_behind),
        cmocka_unit_test(a_star_is_as_slow_as_its_gateway),
        cmocka_unit_test(pulls_share_the_link),
        cmocka_unit_test(behind_a_slow_link_the_tree_is_shallow),
        cmocka_unit_test(every_byte_reaches_a_host_once),
        cmocka_unit_test(a_chain_of_1000_is_within_a_fifth_of_one),
        cmocka_unit_test(numbers_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
