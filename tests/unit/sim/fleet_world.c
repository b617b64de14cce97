/* fleet_world.c - the fleet event by event: against times worked out by hand, and against
 * losses.
 *
 * Covers: sim/fleet/fleet_world.c sim/fleet/fleet_sites.c sim/fleet/fleet_links.c
 * Covers: sim/fleet/fleet_hops.c sim/fleet/fleet_scenario.c */
#include "sim/fleet/fleet_world.h"

#include <stdio.h>
#include <string.h>

#include "sim/fleet/fleet_model.h"
#include "tests/unit/check.h"

#define NEAR(a, b, share) assert_true((a) >= (b) * (1 - (share)) && (a) <= (b) * (1 + (share)))

/* East is home and has no workers; west has `hosts` of one worker each behind 1 Gbit/s; a
 * chunk is 4 ms of it. */
static struct tb_fleet_scenario chain(unsigned hosts)
{
    struct tb_fleet_scenario s = {.version = tb_fleet_version_default(), .site_count = 2, .link_count = 1};
    s.version.bytes = 512e6;
    s.version.chunks = 1024;
    s.sites[0] = s.sites[1] = tb_fleet_site_default();
    (void)snprintf(s.sites[0].name, sizeof s.sites[0].name, "east");
    (void)snprintf(s.sites[1].name, sizeof s.sites[1].name, "west");
    s.sites[1].hosts = hosts;
    s.sites[1].nic = 125e6;
    s.sites[1].fan_out = 1;
    s.links[0] = tb_fleet_link_default();
    s.links[0].b = 1;
    s.links[0].rate = 125e6;
    s.links[0].delay_s = 0.001;
    return s;
}

static struct tb_fleet_outcome run(const struct tb_fleet_scenario *s, const struct tb_fleet_loss *loss)
{
    struct tb_fleet_outcome o;
    CHECK_OK(tb_fleet_world_run(s, loss, NULL, &o));
    return o;
}

/* One copy over the link: its bytes over what headers leave of its rate, and the
 * streams' first round trips. */
static void a_link_takes_its_bytes_over_its_rate(void **state)
{
    (void)state;
    const struct tb_fleet_scenario s = chain(1);
    struct tb_fleet_outcome o = run(&s, NULL);
    NEAR(o.gateways.last, 512e6 / (125e6 * 1448 / 1500), 0.02);
    NEAR(o.links[0].goodput_there, 512e6, 1e-9);
    NEAR(o.workers.last, o.gateways.last + 0.004, 0.01);
    tb_fleet_outcome_fini(&o);
}

/* A chain: each host is behind the one before it by its chunk's time and by how late it
 * looks (a quarter of that, or the millisecond of a first look). Every NIC carries the
 * version once each way. */
static void each_host_of_a_chain_is_a_little_behind(void **state)
{
    (void)state;
    const struct tb_fleet_scenario s = chain(20);
    struct tb_fleet_outcome o = run(&s, NULL);
    assert_int_equal(o.sites[1].depth, 20);
    assert_int_equal(o.workers.count, 20);
    assert_true(o.workers.last >= o.gateways.last + 20 * 0.004);
    assert_true(o.workers.last <= o.gateways.last + 20 * (0.004 + 0.001 + 0.001));
    for (unsigned host = 1; host <= 20; host++) {
        NEAR(o.sites[1].nics[host].in, 512e6, 1e-9);
        NEAR(o.sites[1].nics[host].out + 1, (host < 20 ? 512e6 : 0) + 1, 1e-9);
    }
    tb_fleet_outcome_fini(&o);
}

/* P6: 200 hosts behind a link as fast as their NICs, where nobody catches up: 1,647 chunks of
 * 1,448, and what looking adds. */
static void a_long_chain_costs_little_more_than_its_chunks(void **state)
{
    (void)state;
    struct tb_fleet_scenario s = chain(1);
    s.version.chunks = 1448;
    struct tb_fleet_outcome one = run(&s, NULL);
    s.sites[1].hosts = 200;
    struct tb_fleet_outcome many = run(&s, NULL);
    assert_int_equal(many.sites[1].depth, 200);
    assert_true(many.workers.last / one.workers.last >= 1 + 199.0 / 1448 - 0.02);
    assert_true(many.workers.last / one.workers.last <= 1 + 199.0 / 1448 * 1.5);
    tb_fleet_outcome_fini(&one);
    tb_fleet_outcome_fini(&many);
}

/* A hundred workers more, worked out by hand. In the version's first second each stages (4
 * messages), has its GRANT, the answer to that and its PLAN (3), and tells of its progress at most
 * once or twice. Behind that it tells each second, renews its lease each third, and says that it is
 * whole: 12 to 18 in the five seconds. */
static void control_messages_are_counted(void **state)
{
    (void)state;
    struct tb_fleet_scenario s = chain(10);
    struct tb_fleet_outcome ten = run(&s, NULL);
    s.sites[1].hosts = 110;
    struct tb_fleet_outcome all = run(&s, NULL);
    const double said = all.sites[1].control * all.workers.last - ten.sites[1].control * ten.workers.last;
    assert_true(said >= 100 * 12 && said <= 100 * 18);
    const double most = all.sites[1].control_max - ten.sites[1].control_max;
    assert_true(most >= 100 * 7 && most <= 100 * 9);
    tb_fleet_outcome_fini(&ten);
    tb_fleet_outcome_fini(&all);
}

/* The closed form of fleet_model.h, which leaves out looking and TCP, is what this comes to
 * where those are small. */
static void it_agrees_with_the_closed_form(void **state)
{
    (void)state;
    struct tb_fleet_scenario s = chain(40);
    s.sites[1].nic = 1.25e9;
    s.sites[1].workers = 2;
    s.sites[1].fan_out = 8;
    struct tb_fleet_outcome o = run(&s, NULL);
    struct tb_fleet f = {.sites = 1,
                         .hosts = 40,
                         .workers = 2,
                         .fan_out = 8,
                         .chunks = 1024,
                         .bytes = 512e6,
                         .link_rate = 125e6 * 1448 / 1500,
                         .link_delay = 0.001,
                         .nic_rate = 1.25e9};
    struct tb_fleet_result r;
    CHECK_OK(tb_fleet_run(&f, &r));
    NEAR(o.workers.last, r.workers.last, 0.04);
    assert_int_equal(o.sites[1].depth, r.depth);
    f.shape = TB_FLEET_STAR;
    CHECK_OK(tb_fleet_run(&f, &r));
    NEAR(o.star.last, r.workers.last, 0.04);
    f.shape = TB_FLEET_PULLS;
    CHECK_OK(tb_fleet_run(&f, &r));
    NEAR(o.pulls.last, r.workers.last, 0.05);
    tb_fleet_outcome_fini(&o);
}

/* Seven of a host's eight workers copy what the first one read, at 0.5 GB/s: 7.2 s of the host's
 * memory, by whatever way it came there. */
static void a_host_has_its_memory_also_in_a_star(void **state)
{
    (void)state;
    struct tb_fleet_scenario s = chain(2);
    s.sites[1].workers = 8;
    s.sites[1].nic = 12.5e9;
    s.sites[1].shm = 0.5e9;
    struct tb_fleet_outcome o = run(&s, NULL);
    NEAR(o.workers.last, 7 * 512e6 / 0.5e9, 0.02);
    NEAR(o.star.last, o.workers.last, 0.02);
    tb_fleet_outcome_fini(&o);
}

/* A link as fast as the NICs: now and then the catalog has another of a host's workers read, as
 * the first of a chain looks slow. The followers copy all the while, 2 GB/s for 1.5 GB beside
 * four seconds, whichever worker reads. */
static void a_follower_copies_while_its_host_reads(void **state)
{
    (void)state;
    struct tb_fleet_scenario s = chain(2);
    s.sites[1].workers = 4;
    s.sites[1].shm = 2e9;
    struct tb_fleet_outcome o = run(&s, NULL);
    NEAR(o.workers.last, o.gateways.last, 0.02);
    tb_fleet_outcome_fini(&o);
}

/* P6: one host has a NIC of an eighth. Wherever it stands in the chain, also first, where all
 * depend on it, the others are held up by less than 1.3 times. */
static void a_slow_host_holds_up_nobody_for_long(void **state)
{
    (void)state;
    struct tb_fleet_scenario s = chain(0);
    s.version.bytes = 1.25e9; /* ten seconds of a NIC */
    s.sites[0].hosts = 100;   /* so that the 99th of their times is the last of the others */
    s.sites[0].nic = 125e6;
    s.sites[0].fan_out = 1;
    struct tb_fleet_outcome equal = run(&s, NULL);
    s.sites[0].slow_nic = s.sites[0].nic / 8;
    static const unsigned hosts[] = {1, 2, 3, 50, 100};
    for (unsigned i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        s.sites[0].slow_host = hosts[i];
        struct tb_fleet_outcome o = run(&s, NULL);
        print_message("slow host %u: %.2f s, %.2f s where all are equal\n", hosts[i], o.sites[0].workers.p99,
                      equal.sites[0].workers.last);
        assert_int_equal(o.sites[0].workers.count, 100);
        assert_true(o.sites[0].workers.p99 <= 1.3 * equal.sites[0].workers.last);
        tb_fleet_outcome_fini(&o);
    }
    tb_fleet_outcome_fini(&equal);
}

struct joins {
    unsigned hosts, chunks;
    double chunk_s; /* on a NIC */
    double join_s;
};

/* Hosts of home, the first alone where there is one. */
static struct tb_fleet_outcome joining(const struct joins *j)
{
    struct tb_fleet_scenario s = chain(0);
    s.version.bytes = j->chunks * 1048576.0;
    s.version.chunks = j->chunks;
    s.sites[0].hosts = j->hosts;
    s.sites[0].nic = 1048576.0 / j->chunk_s;
    s.sites[0].fan_out = 1;
    s.sites[0].join_s = j->join_s;
    return run(&s, NULL);
}

static double alone_s(struct joins j)
{
    j.hosts = 1;
    struct tb_fleet_outcome o = joining(&j);
    const double took = o.sites[0].took_s[0];
    tb_fleet_outcome_fini(&o);
    return took;
}

/* P6: chain.joins, chain.joined_before. Hosts come one after another while the first still reads:
 * none of them takes a tenth longer than a host alone, with any host behind it, and every NIC
 * carries the version once each way. The first as the bench has it. Of the others the later ones
 * soon lack little of what the first has: to try it behind them all the same, as is done where all
 * begin together, cost each of the last two chains twice to twelve times its time. */
static void a_joining_worker_slows_nobody_before_it(void **state)
{
    (void)state;
    static const struct joins all[] = {
        {20, 128, 0.2, 1}, {20, 2000, 0.2, 1}, {8, 1000, 0.06, 0.75}, {20, 2000, 0.03, 0.6}};
    for (unsigned k = 0; k < sizeof all / sizeof all[0]; k++) {
        const double alone = alone_s(all[k]), bytes = all[k].chunks * 1048576.0;
        struct tb_fleet_outcome o = joining(&all[k]);
        double most = 0, carried = 0;
        for (unsigned i = 0; i < all[k].hosts; i++) {
            assert_true(o.sites[0].took_s[i] >= 0);
            if (o.sites[0].took_s[i] > most) most = o.sites[0].took_s[i];
            if (o.sites[0].nics[i].out > carried) carried = o.sites[0].nics[i].out;
        }
        print_message("%u hosts, %u chunks: at most %.2f s, %.2f s alone; %.3f of the version\n",
                      all[k].hosts, all[k].chunks, most, alone, carried / bytes);
        assert_true(most <= 1.1 * alone);
        assert_true(carried <= 1.1 * bytes);
        tb_fleet_outcome_fini(&o);
    }
}

/* P6: chain.cut_through. Behind a link of an eighth of the NICs' rate all workers have the version
 * as their gateway has: 3 % of the crossing later, and a chunk's time on the link for each hop. As
 * a tree, as the rates say, and as a chain. */
static void workers_have_it_with_their_gateway(void **state)
{
    (void)state;
    for (unsigned fan_out = 0; fan_out <= 1; fan_out++) {
        struct tb_fleet_scenario s = chain(fan_out == 0 ? 100 : 8);
        s.sites[1].nic = 8 * s.links[0].rate;
        s.sites[1].fan_out = fan_out;
        s.version.chunks = 4096;
        struct tb_fleet_outcome o = run(&s, NULL);
        const double crossing = o.gateways.last, behind = o.workers.last - crossing;
        print_message("%u hops: %.4f s behind a crossing of %.3f s\n", o.sites[1].depth, behind, crossing);
        assert_int_equal(o.workers.count, s.sites[1].hosts);
        assert_in_range(o.sites[1].depth, fan_out == 0 ? 2 : 8, fan_out == 0 ? 4 : 8);
        assert_true(behind <= 0.03 * crossing + o.sites[1].depth * crossing / s.version.chunks);
        tb_fleet_outcome_fini(&o);
    }
}

/* The link feeds faster than the NICs take, so the first of the chain is tried elsewhere. Chunks
 * that it and its readers had asked for, and that were not sent yet, keep no NIC busy. Real
 * gateways and workers: 8.4 s (sim/fleet/check_wan.py); 9.5 s when it did. */
static void a_chunk_that_is_not_sent_any_more_keeps_no_nic_busy(void **state)
{
    (void)state;
    struct tb_fleet_scenario s = chain(4);
    s.version.bytes = 32 * 1048576.0;
    s.version.chunks = 32;
    s.sites[1].nic = 5e6;
    s.links[0].rate = 10e6;
    s.links[0].delay_s = 0.02;
    struct tb_fleet_outcome o = run(&s, NULL);
    assert_true(o.workers.last <= 1.25 * s.version.bytes / s.sites[1].nic);
    for (unsigned host = 1; host <= 4; host++)
        assert_true(o.sites[1].nics[host].in <= s.version.bytes * 36 / 32);
    tb_fleet_outcome_fini(&o);
}

/* A delta crosses in its share of the time, and readers that hold the base read as little; a reader
 * of the whole reads all of it. */
static void a_delta_crosses_in_its_share(void **state)
{
    (void)state;
    struct tb_fleet_scenario s = chain(2);
    s.version.delta = 0.1;
    s.sites[1].nic = 12.5e9;
    struct tb_fleet_outcome o = run(&s, NULL);
    NEAR(o.gateways.last, 0.1 * 512e6 / (125e6 * 1448 / 1500), 0.15);
    NEAR(o.sites[1].nics[1].in, 0.1 * 512e6, 1e-9);
    s.sites[1].nic = 12.5e6; /* what limits it now */
    struct tb_fleet_outcome encoded = run(&s, NULL);
    s.version.inside = 1;
    struct tb_fleet_outcome whole = run(&s, NULL);
    NEAR(whole.sites[1].nics[1].in, 512e6,
         0.03); /* who is found slow is left, and what was in flight comes again */
    NEAR(whole.workers.last, 10 * encoded.workers.last, 0.2);
    tb_fleet_outcome_fini(&whole);
    tb_fleet_outcome_fini(&encoded);
    tb_fleet_outcome_fini(&o);
}

/* Two links of one name have one rate. */
static void links_that_share_take_twice_as_long(void **state)
{
    (void)state;
    struct tb_fleet_scenario s = chain(1);
    s.site_count = 3;
    s.sites[2] = s.sites[1];
    (void)snprintf(s.sites[2].name, sizeof s.sites[2].name, "north");
    s.link_count = 2;
    s.links[1] = s.links[0];
    s.links[1].b = 2;
    struct tb_fleet_outcome apart = run(&s, NULL);
    (void)snprintf(s.links[0].shared, sizeof s.links[0].shared, "pipe");
    (void)snprintf(s.links[1].shared, sizeof s.links[1].shared, "pipe");
    struct tb_fleet_outcome together = run(&s, NULL);
    NEAR(together.gateways.last, 2 * apart.gateways.last, 0.03);
    tb_fleet_outcome_fini(&apart);
    tb_fleet_outcome_fini(&together);
}

/* P6: whatever is lost, all others come to hold it: a rack, a gateway that comes back,
 * the site that relays. */
static void the_others_come_to_hold_it(void **state)
{
    (void)state;
    struct tb_fleet_scenario s = chain(8);
    s.version.bytes = 128e6;
    s.version.chunks = 256;
    s.sites[1].racks = 4;
    struct tb_fleet_outcome base = run(&s, NULL);
    struct tb_fleet_loss loss = {.kind = TB_FLEET_LOSE_RACK, .site = 1, .rack = 2, .at_s = 0.5};
    struct tb_fleet_outcome o = run(&s, &loss);
    assert_int_equal(o.workers.count, 6);
    assert_int_equal(o.workers.never, 0);
    assert_true(o.workers.last > base.workers.last);
    tb_fleet_outcome_fini(&o);
    loss = (struct tb_fleet_loss){.kind = TB_FLEET_LOSE_GATEWAY, .site = 1, .at_s = 0.5};
    o = run(&s, &loss);
    assert_int_equal(o.workers.count, 8);
    assert_true(o.workers.last >= base.workers.last + s.sites[1].restart_s - 0.5);
    tb_fleet_outcome_fini(&o);
    s.sites[1].restart_s = 0; /* the twin: it does not come back, and nobody else has it */
    o = run(&s, &loss);
    assert_int_equal(o.workers.never, 8);
    tb_fleet_outcome_fini(&o);
    tb_fleet_outcome_fini(&base);
}

/* P6: until its lease ends a lost rack's worker may be planned as a source: a dialler notices that
 * as fast as its readers. */
static void a_reader_sent_to_the_dead_notices_it(void **state)
{
    (void)state;
    struct tb_fleet_scenario s =
        chain(4); /* hosts 1 and 3 are of rack 1: 4 is sent from one worker of 3 to the other */
    s.sites[1].workers = 2;
    s.sites[1].racks = 2;
    struct tb_fleet_outcome base = run(&s, NULL);
    const struct tb_fleet_loss loss = {.kind = TB_FLEET_LOSE_RACK, .site = 1, .rack = 1, .at_s = 2};
    struct tb_fleet_outcome o = run(&s, &loss);
    print_message("%.2f s, %.2f s with a rack lost at 2 s\n", base.workers.last, o.workers.last);
    assert_int_equal(o.workers.count, 4);
    assert_true(o.workers.last <= base.workers.last + 2 * s.sites[1].notice_s + 0.5);
    tb_fleet_outcome_fini(&base);
    tb_fleet_outcome_fini(&o);
}

/* P6: the first to notice that a worker of a lost rack is silent spares the others that; each
 * noticed each for itself (14.7 s). Those who notice first may be sent to one that nobody has
 * noticed yet. */
static void the_dead_are_found_once(void **state)
{
    (void)state;
    struct tb_fleet_scenario s = chain(32);
    s.sites[1].racks = 2;
    struct tb_fleet_outcome base = run(&s, NULL);
    const struct tb_fleet_loss loss = {.kind = TB_FLEET_LOSE_RACK, .site = 1, .rack = 1, .at_s = 2};
    struct tb_fleet_outcome o = run(&s, &loss);
    print_message("%.2f s, %.2f s with a rack lost at 2 s\n", base.workers.last, o.workers.last);
    assert_int_equal(o.workers.count, 16);
    assert_true(o.workers.last <= base.workers.last + 2 * s.sites[1].notice_s + 1);
    tb_fleet_outcome_fini(&base);
    tb_fleet_outcome_fini(&o);
}

/* Home is lost in mid-crossing: north, which is ahead, completes west. */
static void sites_complete_each_other_when_home_is_lost(void **state)
{
    (void)state;
    struct tb_fleet_scenario s = chain(2);
    s.site_count = 3;
    s.sites[2] = s.sites[1];
    (void)snprintf(s.sites[2].name, sizeof s.sites[2].name, "north");
    s.link_count = 3;
    s.links[1] = s.links[2] = s.links[0];
    s.links[1].b = 2;
    s.links[1].rate = 1.25e9;
    s.links[2] = (struct tb_fleet_link){
        .a = 1, .b = 2, .rate = 125e6, .delay_s = 0.001, .mtu = 1500, .streams = 8, .efficiency = 1};
    const struct tb_fleet_loss loss = {.kind = TB_FLEET_LOSE_SITE, .site = 0, .at_s = 2};
    struct tb_fleet_outcome o = run(&s, &loss);
    assert_int_equal(o.workers.count, 4);
    assert_int_equal(o.workers.never, 0);
    assert_true(o.links[2].back > 0.2 * 512e6);
    tb_fleet_outcome_fini(&o);
}

static void a_file_is_read_and_refused_by_line(void **state)
{
    (void)state;
    struct tb_fleet_scenario s;
    char why[TB_FLEET_COMPLAINT_MAX];
#define READ(text) tb_fleet_parse("f", text, strlen(text), &s, why)
    CHECK_OK(READ("version: {bytes: 16GB, delta: 2%}\nhome: a\nsites: {a: , b: {hosts: 2, nic: 25Gbit}}\n"
                  "links:\n  - {between: [a, b], rate: 1Gbit, delay: 40ms}\n"));
    assert_float_equal(s.version.bytes, 16e9, 1);
    assert_float_equal(s.sites[1].nic, 3.125e9, 1);
    assert_float_equal(s.links[0].delay_s, 0.04, 1e-9);
#define REFUSED(text, complaint)                                                                             \
    (CHECK_STATUS(READ(text), TB_SITE_CONFIG), assert_string_equal(why, complaint))
    REFUSED("version: {bytes: 1GB}\nhome: a\nsites:\n  a: {host: 3}\n", "f:4: unknown key host");
    REFUSED("version: {bytes: 1GB}\nhome: b\nsites: {a: }\n", "f:2: b is not one of the sites");
    REFUSED("version: {bytes: 1 parsec}\nhome: a\nsites: {a: }\n",
            "f:1: bytes is bytes such as 240GB or 16GiB");
    REFUSED("version: {}\nhome: a\nsites: {a: }\n", "f:1: bytes: is missing");
    REFUSED("home: a\nsites: {a: }\n", "f:1: version: is missing");
    REFUSED("version: {bytes: 1GB}\nhome: a\nsites:\n  a: {hosts: 20000, workers: 2}\n",
            "f:4: with a there are over 20000 workers");
    REFUSED("version: {bytes: 1GB}\nhome: a\nsites: {a: , b: }\nlinks:\n  - {between: [a, b]}\n",
            "f:5: rate: is missing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_link_takes_its_bytes_over_its_rate),
        cmocka_unit_test(each_host_of_a_chain_is_a_little_behind),
        cmocka_unit_test(a_long_chain_costs_little_more_than_its_chunks),
        cmocka_unit_test(control_messages_are_counted),
        cmocka_unit_test(it_agrees_with_the_closed_form),
        cmocka_unit_test(a_host_has_its_memory_also_in_a_star),
        cmocka_unit_test(a_follower_copies_while_its_host_reads),
        cmocka_unit_test(a_slow_host_holds_up_nobody_for_long),
        cmocka_unit_test(a_joining_worker_slows_nobody_before_it),
        cmocka_unit_test(workers_have_it_with_their_gateway),
        cmocka_unit_test(a_chunk_that_is_not_sent_any_more_keeps_no_nic_busy),
        cmocka_unit_test(a_delta_crosses_in_its_share),
        cmocka_unit_test(links_that_share_take_twice_as_long),
        cmocka_unit_test(the_others_come_to_hold_it),
        cmocka_unit_test(a_reader_sent_to_the_dead_notices_it),
        cmocka_unit_test(the_dead_are_found_once),
        cmocka_unit_test(sites_complete_each_other_when_home_is_lost),
        cmocka_unit_test(a_file_is_read_and_refused_by_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
