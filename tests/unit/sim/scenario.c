/* Scenario files: units, both directions, shared queues, and each mistake with its line.
 *
 * Covers: sim/wan/scenario.c sim/yaml_text.c */
#include "sim/wan/scenario.h"

#include <string.h>

#include "tests/unit/check.h"

static enum tb_status parse(const char *text, struct tb_scenario *out, char complaint[256])
{
    return tb_scenario_parse("f", text, strlen(text), out, complaint, 256);
}

static void a_scenario_is_read_in_its_units(void **state)
{
    (void)state;
    static struct tb_scenario s;
    char complaint[256];
    CHECK_OK(
        parse("sites: {a: {rmem: 1 2 3}, b: {}}\nmtu: 9000\ntcp: {rmem: 4 5 6, congestion: bbr}\npaths:\n"
              "  - {between: [a, b], rate: 2.5Gbit, delay: 1.5ms, loss: 0.01%, queue: 4MiB, shared: x}\n"
              "schedule:\n  - {at: 1s, every: 2s, from: b, to: a, cut: yes}\n",
              &s, complaint));
    assert_true(s.site_count == 2 && s.path_count == 2 && s.mtu == 9000 && s.queue_count == 2);
    const struct tb_scenario_path *p = &s.paths[1];
    assert_true(p->from == 1 && p->to == 0 && p->change_count == 1 && p->changes[0].every == 2000000000);
    assert_int_equal(p->settings.value[TB_PATH_RATE], 2500000000);
    assert_int_equal(p->settings.value[TB_PATH_DELAY], 1500000);
    assert_int_equal(p->settings.value[TB_PATH_LOSS], 100000);
    assert_int_equal(p->settings.value[TB_PATH_QUEUE], 4 << 20);
    assert_string_equal(s.sites[0].rmem, "1 2 3");
    assert_string_equal(s.sites[1].rmem, "4 5 6");
    assert_string_equal(s.sites[1].congestion, "bbr");
}

static void paths_of_one_name_share_a_queue_each_way(void **state)
{
    (void)state;
    static struct tb_scenario s;
    char complaint[256];
    CHECK_OK(parse("sites: [a, b, c]\npaths:\n  - {between: [a, b], shared: x}\n  - {between: [a, c], "
                   "shared: x}\n  - {between: [b, c]}\n",
                   &s, complaint));
    assert_int_equal(s.queue_count, 4);
    assert_true(s.paths[0].queue == s.paths[2].queue && s.paths[1].queue == s.paths[3].queue);
    assert_true(s.paths[0].queue != s.paths[1].queue && s.paths[4].queue != s.paths[5].queue);
}

/* Of 1 Gbit/s and 40 ms 5 MB are under way. A path without a rate, or a short one, has room for 64
 * packets; none has more than a file may ask for. */
static void a_queue_that_is_not_given_is_twice_what_is_under_way(void **state)
{
    (void)state;
    static struct tb_scenario s;
    char complaint[256];
    CHECK_OK(parse(
        "sites: [a, b, c]\npaths:\n  - {from: a, to: b, rate: 1Gbit, delay: 40ms}\n  - {from: b, to: a}\n"
        "  - {from: a, to: c, rate: 1Mbit, delay: 1ms}\n  - {from: c, to: a, rate: 1Gbit, delay: 40ms, "
        "queue: 1MiB}\n"
        "  - {from: b, to: c, rate: 100Gbit, delay: 10s}\nmtu: 9000\n",
        &s, complaint));
    static const uint64_t wanted[] = {10000000, 64 * 9000, 64 * 9000, 1 << 20, UINT64_C(1) << 32};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        assert_int_equal(s.paths[i].settings.value[TB_PATH_QUEUE], wanted[i]);
}

static void mistakes_are_refused_with_their_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *complaint;
    } cases[] = {
        {"", "f:1: a scenario has"},
        {"sites: [a, b]\n", "f:1: a scenario has"},
        {"sites: [a, b]\npaths: []\nspeed: 1\n", "f:3: unknown key speed"},
        {"sites: [a, b]\nsites: [a, b]\npaths: []\n", "f:2: sites: is there twice"},
        {"sites: [a]\npaths: []\n", "f:1: sites: names two"},
        {"sites: [a, a]\npaths: []\n", "f:1: site a is there twice"},
        {"sites: [a, b, c, d, e, f, g, h, i]\npaths: []\n", "f:1: at most 8 sites"},
        {"sites: [a, ../b]\npaths: []\n", "f:1: a name has"},
        {"sites: [a, b]\npaths:\n- {between: [a, c]}\n", "f:3: c is not one of the sites"},
        {"sites: [a, b]\npaths:\n- {between: [a, a]}\n", "f:3: a path joins two sites"},
        {"sites: [a, b]\npaths:\n- {from: a}\n", "f:3: which way?"},
        {"sites: [a, b]\npaths:\n- {between: [a, b]}\n- {from: b, to: a}\n",
         "f:4: the path from b to a is there twice"},
        {"sites: [a, b]\npaths:\n- {between: [a, b], dely: 1ms}\n", "f:3: unknown key dely"},
        {"sites: [a, b]\npaths:\n- {between: [a, b], delay: 1}\n", "f:3: delay is a time"},
        {"sites: [a, b]\npaths:\n- {between: [a, b], delay: 11s}\n", "f:3: delay is out of its range"},
        {"sites: [a, b]\npaths:\n- {between: [a, b], loss: 101%}\n", "f:3: loss is out of its range"},
        {"sites: [a, b]\npaths:\n- {between: [a, b], rate: 1Mb}\n", "f:3: rate is a rate"},
        {"sites: [a, b]\npaths:\n- {between: [a, b], rate: 1bit}\n", "f:3: rate is out of its range"},
        {"sites: [a, b]\npaths:\n- {between: [a, b], rate: 0bit}\n", "f:3: rate is out of its range"},
        {"sites: [a, b, c]\npaths:\n- {between: [a, b], rate: 1Mbit, shared: x}\n- {between: [a, c], shared: "
         "x}\n",
         "f:4: paths that share x have one rate"},
        {"sites: [a, b]\npaths:\n- {between: [a, b], cut: 1}\n", "f:3: cut is yes or no"},
        {"sites: [a, b]\npaths:\n- {between: [a, b], at: 1s}\n", "f:3: unknown key at"},
        {"sites: [a, b]\npaths: []\nschedule:\n- {at: 1s, between: [a, b], cut: yes}\n",
         "f:4: no path from a to b"},
        {"sites: [a, b]\npaths:\n- {between: [a, b]}\nschedule:\n- {between: [a, b], cut: yes}\n",
         "f:5: at: is missing"},
        {"sites: [a, b]\npaths:\n- {between: [a, b]}\nschedule:\n- {between: [a, b], at: 1s}\n",
         "f:5: nothing is changed"},
        {"sites: [a, b]\nmtu: 9001\npaths: []\n", "f:2: mtu is out of its range"},
        {"sites: [a, b]\ntcp: {rmem: 3 2 1}\npaths: []\n", "f:2: tcp memory"},
        {"sites: [a, b\n", "f:"},
    };
    static struct tb_scenario s;
    char complaint[256];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_STATUS(parse(cases[i].text, &s, complaint), TB_SITE_CONFIG);
        if (strncmp(complaint, cases[i].complaint, strlen(cases[i].complaint)) != 0)
            fail_msg("%s, not %s", complaint, cases[i].complaint);
    }
}

static void a_change_meanwhile_is_a_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *complaint; /* NULL: taken */
    } cases[] = {
        {"{between: [a, b], cut: yes, loss: 3%}\n", NULL},
        {"{from: b, to: a, rate: 1Mbit}", NULL},
        {"", "turn:1: nothing is changed"},
        {"{between: [a, b]}", "turn:1: nothing is changed"},
        {"{between: [a, b], shared: x, cut: yes}", "turn:1: nothing is changed"},
        {"{between: [a, c], cut: yes}", "turn:1: no path between a and c"},
        {"{from: a, to: z, cut: yes}", "turn:1: z is not one"},
        {"{between: [a, b], at: 1s, cut: yes}", "turn:1: unknown key at"},
        {"cut", "turn:1: each line"},
    };
    static struct tb_scenario s;
    char complaint[256];
    CHECK_OK(parse("sites: [a, b, c]\npaths:\n- {between: [a, b], rate: 5Mbit}\n", &s, complaint));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const enum tb_status status =
            tb_scenario_turn(&s, cases[i].text, strlen(cases[i].text), complaint, sizeof complaint);
        CHECK_STATUS(status, cases[i].complaint == NULL ? TB_OK : TB_SITE_CONFIG);
        if (cases[i].complaint != NULL)
            assert_memory_equal(complaint, cases[i].complaint, strlen(cases[i].complaint));
    }
    assert_true(s.turn.from == 1 && s.turn.to == 0 && !s.turn.both && s.turn.mask == 1u << TB_PATH_RATE);
    assert_int_equal(s.turn.settings.value[TB_PATH_RATE], 1000000);
    assert_int_equal(s.paths[0].settings.value[TB_PATH_RATE],
                     5000000); /* the owner of the paths turns them */
}

static void a_file_over_the_bound_is_refused(void **state)
{
    (void)state;
    static struct tb_scenario s;
    static char text[TB_SCENARIO_BYTES_MAX + 1];
    char complaint[256];
    memset(text, '\n', sizeof text);
    CHECK_STATUS(tb_scenario_parse("f", text, sizeof text, &s, complaint, sizeof complaint), TB_SITE_CONFIG);
    assert_string_equal(complaint, "f:1: over 65536 bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_scenario_is_read_in_its_units),
        cmocka_unit_test(paths_of_one_name_share_a_queue_each_way),
        cmocka_unit_test(a_queue_that_is_not_given_is_twice_what_is_under_way),
        cmocka_unit_test(mistakes_are_refused_with_their_line),
        cmocka_unit_test(a_change_meanwhile_is_a_line),
        cmocka_unit_test(a_file_over_the_bound_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
