/* rails.c - by which NICs a hop goes: near ones first, load spread, what fails rests twice as long
 * each time. Virtual time.
 *
 * Covers: intra/verbs/rails.c */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "intra/verbs/rails.h"

#define GBIT_100 UINT64_C(12500000000)

static struct tb_rail rail(uint8_t subnet, uint8_t host)
{
    struct tb_rail r = {.prefix_bits = 120, .bytes_per_s = GBIT_100};
    const uint8_t address[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, subnet, host};
    memcpy(r.address.bytes, address, sizeof address);
    return r;
}

/* Two of ours and two of theirs, pairwise in one subnet. */
struct world {
    struct tb_rails ours;
    struct tb_rail theirs[2];
    tb_time_ns now;
};

static void world_init(struct world *w)
{
    memset(w, 0, sizeof *w);
    w->ours.count = 2;
    for (uint8_t i = 0; i < 2; i++) {
        w->ours.rails[i] = rail(i, 1);
        w->theirs[i] = rail(i, 2);
    }
    w->now = TB_SECONDS(1000);
}

static struct tb_rail_path chosen(const struct world *w)
{
    struct tb_rail_path path = {9, 9};
    tb_time_ns again;
    assert_int_equal(tb_rails_choose(&w->ours, w->theirs, 2, w->now, &path, &again), TB_OK);
    return path;
}

static tb_time_ns none_until(const struct world *w)
{
    struct tb_rail_path path;
    tb_time_ns again = 0;
    assert_int_equal(tb_rails_choose(&w->ours, w->theirs, 2, w->now, &path, &again), TB_NOT_FOUND);
    return again;
}

static tb_time_ns fails(struct world *w, uint32_t ours, uint32_t theirs)
{
    return tb_rails_failed(&w->ours, &w->ours.rails[ours].address, &w->theirs[theirs].address, w->now);
}

static void load_is_spread(void **state)
{
    (void)state;
    struct world w;
    uint32_t hops[2] = {0, 0};
    world_init(&w);
    for (int i = 0; i < 10; i++) {
        const struct tb_rail_path path = chosen(&w);
        assert_int_equal(path.ours, path.theirs); /* inside one subnet */
        w.ours.rails[path.ours].load++;
        hops[path.ours]++;
    }
    assert_int_equal(hops[0], 5);
    assert_int_equal(hops[1], 5);
}

static void a_far_nic_takes_a_third(void **state)
{
    (void)state;
    struct world w;
    uint32_t hops[2] = {0, 0};
    world_init(&w);
    w.ours.rails[0].far = true;
    assert_int_equal(chosen(&w).ours, 1);
    for (int i = 0; i < 12; i++) {
        const uint32_t ours = chosen(&w).ours;
        w.ours.rails[ours].load++;
        hops[ours]++;
    }
    assert_int_equal(hops[0], 4);
    assert_int_equal(hops[1], 8);
}

/* Two NICs behind the switch of port A of node 0, one elsewhere at node 0, one at node 1: "f"
 * is far, "n" is near. */
static const char *seen_from(const struct tb_rail_spot *memory, bool first_two_down)
{
    static char text[5];
    struct tb_rail rails[4];
    for (uint8_t i = 0; i < 4; i++) {
        rails[i] = rail(i, 1);
        rails[i].spot = (struct tb_rail_spot){i == 3, "A"};
        rails[i].spot.root_port[0] = "AABC"[i];
        rails[i].far = i % 2 == 0; /* as the memory of before had it */
        rails[i].down = i < 2 && first_two_down;
    }
    tb_rails_look_from(rails, 4, memory);
    for (uint32_t i = 0; i < 4; i++)
        text[i] = rails[i].far ? 'f' : 'n';
    return text;
}

static void a_gpu_is_near_what_is_behind_its_switch(void **state)
{
    (void)state;
    assert_string_equal(seen_from(&(struct tb_rail_spot){0, "A"}, false), "nnff");
    assert_string_equal(seen_from(&(struct tb_rail_spot){0, "B"}, false), "ffnf");
    assert_string_equal(seen_from(&(struct tb_rail_spot){-1, "C"}, false), "fffn"); /* whatever node */
}

/* A switch without a NIC, or whose NICs are down, and memory of the host. */
static void else_its_node_is_near(void **state)
{
    (void)state;
    assert_string_equal(seen_from(&(struct tb_rail_spot){0, "A"}, true), "nnnf");
    assert_string_equal(seen_from(&(struct tb_rail_spot){1, "D"}, false), "fffn");
    assert_string_equal(seen_from(&(struct tb_rail_spot){0, ""}, false), "nnnf");
    assert_string_equal(seen_from(&(struct tb_rail_spot){1, ""}, false), "fffn");
    struct tb_rail on_the_bus = rail(0, 1); /* nor is it behind a port: that is none in common */
    tb_rails_look_from(&on_the_bus, 1, &(struct tb_rail_spot){1, ""});
    assert_true(on_the_bus.far);
}

/* No NUMA, no memory, a NIC in software. */
static void of_what_is_not_known_none_is_far(void **state)
{
    (void)state;
    assert_string_equal(seen_from(&(struct tb_rail_spot){-1, ""}, false), "nnnn");
    struct tb_rail soft = rail(0, 1);
    soft.spot = (struct tb_rail_spot){-1, ""};
    soft.far = true;
    tb_rails_look_from(&soft, 1, &(struct tb_rail_spot){1, ""});
    assert_false(soft.far);
}

/* Processes of a host know each other's load not: what each begins with is drawn. Four rails,
 * of which two are near. */
static void draw_rails(struct tb_rails *r, uint32_t near)
{
    memset(r, 0, sizeof *r);
    r->count = 4;
    for (uint8_t i = 0; i < 4; i++) {
        r->rails[i] = rail(0, (uint8_t)(1 + i));
        r->rails[i].far = i >= near;
    }
}

static void those_that_draw_spread(void **state)
{
    (void)state;
    struct tb_rails r;
    struct tb_rail theirs[4];
    struct tb_rail_path path;
    tb_time_ns again;
    for (uint32_t near = 2; near <= 4; near += 2) {
        uint32_t ours[4] = {0}, to[4] = {0};
        draw_rails(&r, near);
        memcpy(theirs, r.rails, sizeof theirs);
        for (r.draw = 0; r.draw < 4 * 4 * 10; r.draw++) {
            assert_int_equal(tb_rails_choose(&r, theirs, 4, 0, &path, &again), TB_OK);
            ours[path.ours]++;
            to[path.theirs]++;
        }
        for (uint32_t i = 0; i < 4; i++) {
            assert_int_equal(ours[i], i < near ? 160 / near : 0);
            assert_int_equal(to[i], ours[i]);
        }
    }
}

/* The twin: the draw decides between equals alone. */
static void load_and_place_win_over_the_draw(void **state)
{
    (void)state;
    struct world w;
    for (uint32_t draw = 0; draw < 7; draw++) {
        world_init(&w);
        w.ours.draw = draw;
        w.ours.rails[1].far = true;
        assert_int_equal(chosen(&w).ours, 0);
        world_init(&w);
        w.ours.draw = draw;
        w.theirs[0].load = 1;
        assert_int_equal(chosen(&w).ours, 1);
    }
}

static void a_slow_link_takes_its_share(void **state)
{
    (void)state;
    struct world w;
    uint32_t hops[2] = {0, 0};
    world_init(&w);
    w.ours.rails[0].bytes_per_s = w.theirs[0].bytes_per_s = GBIT_100 / 4;
    for (int i = 0; i < 20; i++) {
        const uint32_t ours = chosen(&w).ours;
        w.ours.rails[ours].load++;
        hops[ours]++;
    }
    assert_int_equal(hops[0], 4);
    assert_int_equal(hops[1], 16);
}

/* Both ends count: our idle NIC is not chosen for the sake of its source's full one. */
static void the_sources_load_counts(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    w.ours.rails[1].load = 1;
    w.theirs[0].load = 3;
    assert_int_equal(chosen(&w).ours, 1);
}

static void another_subnet_is_the_last_resort(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    w.ours.rails[0].load = w.ours.rails[1].load = 50;
    w.theirs[1].down = true;
    assert_int_equal(chosen(&w).ours, 0);
    w.ours.rails[0].down = true;
    const struct tb_rail_path path = chosen(&w); /* nothing else is left */
    assert_int_equal(path.ours, 1);
    assert_int_equal(path.theirs, 0);
}

static void a_port_that_is_down_is_not_chosen(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    w.ours.rails[0].down = true;
    assert_int_equal(chosen(&w).ours, 1);
    w.ours.rails[1].down = true;
    assert_int_equal(none_until(&w), TB_TIME_NEVER);
    w.ours.rails[1].down = false;
    assert_int_equal(chosen(&w).ours, 1);
}

/* Each failure doubles the rest, to 256 s, and after each the path is tried again. */
static void a_failing_path_rests_twice_as_long(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    w.ours.count = 1;
    w.theirs[1].down = true;
    tb_time_ns rest = TB_SECONDS(1);
    for (int i = 0; i < 12; i++) {
        assert_int_equal(chosen(&w).ours, 0);
        const tb_time_ns until = fails(&w, 0, 0);
        assert_int_equal(until - w.now, rest);
        w.now = until - 1;
        assert_int_equal(none_until(&w), until);
        w.now = until;
        rest = rest < TB_SECONDS(256) ? 2 * rest : rest;
    }
}

/* Eight hops on one path break with it: it rests as for one, from the first on. */
static void hops_that_fail_together_are_one_failure(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    const tb_time_ns until = fails(&w, 0, 0);
    for (int i = 0; i < 7; i++) {
        w.now += TB_MS(100);
        assert_int_equal(fails(&w, 0, 0), until);
    }
    w.now = until;
    assert_int_equal(fails(&w, 0, 0) - w.now, TB_SECONDS(2)); /* it was tried again */
}

/* A hop without a path looks again once for each rest, as soon as it is over and not before. */
static void a_hop_has_a_turn_after_each_rest(void **state)
{
    (void)state;
    struct world w;
    struct tb_rail_turn turn = {.at = TB_TIME_NEVER};
    world_init(&w);
    assert_false(tb_rails_turn(&w.ours, &turn, w.now)); /* it has a path */
    w.ours.rails[1].down = w.theirs[1].down = true;
    for (tb_time_ns rest = TB_SECONDS(1); rest <= TB_SECONDS(4); rest *= 2) {
        (void)fails(&w, 0, 0);
        tb_rails_wait(&w.ours, &turn, none_until(&w), w.now);
        w.now += rest - 1;
        assert_false(tb_rails_turn(&w.ours, &turn, w.now));
        w.now++;
        assert_true(tb_rails_turn(&w.ours, &turn, w.now));
        assert_false(tb_rails_turn(&w.ours, &turn, w.now + TB_SECONDS(1000))); /* it was taken */
        assert_int_equal(chosen(&w).ours, 0);
    }
}

/* Where no path could rest a port has to come up: ours says so, the source's is looked
 * for, seldom in the end. */
static void a_hop_has_a_turn_when_a_port_comes_up(void **state)
{
    (void)state;
    struct world w;
    struct tb_rail_turn turn = {.at = TB_TIME_NEVER};
    world_init(&w);
    w.theirs[0].down = w.theirs[1].down = true;
    tb_time_ns rest = TB_SECONDS(1);
    for (int i = 0; i < 12; i++) {
        tb_rails_wait(&w.ours, &turn, none_until(&w), w.now);
        assert_false(tb_rails_turn(&w.ours, &turn, w.now + rest - 1));
        w.now += rest;
        assert_true(tb_rails_turn(&w.ours, &turn, w.now));
        rest = rest < TB_SECONDS(256) ? 2 * rest : rest;
    }
    tb_rails_wait(&w.ours, &turn, none_until(&w), w.now);
    w.ours.ups++;
    assert_true(tb_rails_turn(&w.ours, &turn, w.now));
    tb_rails_wait(&w.ours, &turn, TB_TIME_NEVER, w.now);
    assert_false(tb_rails_turn(&w.ours, &turn, w.now)); /* that it came up was heard */
    tb_rails_wait(&w.ours, &turn, w.now + 1, w.now);    /* it is up, and has to rest */
    tb_rails_wait(&w.ours, &turn, TB_TIME_NEVER, w.now);
    assert_true(tb_rails_turn(&w.ours, &turn, w.now + TB_SECONDS(1))); /* counted from the beginning again */
}

/* P7: a source that names addresses without end is tried as often as there can be rails, and
 * again at the next turn. */
static void tries_of_a_turn_are_bounded(void **state)
{
    (void)state;
    struct world w;
    struct tb_rail_turn turn = {.at = TB_TIME_NEVER};
    world_init(&w);
    for (int turns = 0; turns < 3; turns++) {
        for (uint32_t i = 1; i < TB_RAILS_MAX; i++)
            assert_true(tb_rails_more(&turn));
        assert_false(tb_rails_more(&turn));
        tb_rails_wait(&w.ours, &turn, TB_TIME_NEVER, w.now);
    }
}

static void others_go_on_while_one_rests(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    (void)fails(&w, 0, 0);
    assert_int_equal(chosen(&w).ours, 1);
    w.now += TB_SECONDS(1);
    w.ours.rails[1].load = 1;
    assert_int_equal(chosen(&w).ours, 0);
}

/* A path is as good as new after it carried a hop; the twin: after one too short it is not. */
static void a_rail_that_carried_a_hop_is_forgiven(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    const struct tb_rail_address *ours = &w.ours.rails[0].address, *theirs = &w.theirs[0].address;
    for (int i = 0; i < 3; i++)
        w.now = fails(&w, 0, 0);
    tb_rails_carried(&w.ours, ours, theirs, w.now, w.now + TB_RAIL_PROVEN - 1);
    assert_int_equal(fails(&w, 0, 0) - w.now, TB_SECONDS(8));
    w.now += TB_SECONDS(8);
    tb_rails_carried(&w.ours, ours, theirs, w.now, w.now + TB_RAIL_PROVEN);
    assert_int_equal(fails(&w, 0, 0) - w.now, TB_SECONDS(1));
}

/* P7: failures of more paths than are remembered forget the oldest, and nothing else. */
static void memory_of_failures_is_bounded(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    (void)fails(&w, 0, 0);
    for (uint32_t i = 1; i < TB_RAIL_PATHS_MAX; i++) {
        struct tb_rail_address stranger = {{0xfd, (uint8_t)i}};
        w.now += TB_MS(1);
        (void)tb_rails_failed(&w.ours, &w.ours.rails[0].address, &stranger, w.now);
    }
    w.ours.rails[1].load = 1;
    assert_int_equal(chosen(&w).ours, 1); /* remembered still */
    struct tb_rail_address one_more = {{0xfd, 0xff}};
    (void)tb_rails_failed(&w.ours, &w.ours.rails[0].address, &one_more, w.now);
    assert_int_equal(chosen(&w).ours, 0);
}

static void rates_that_are_not_known_are_equal(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    for (int i = 0; i < 2; i++)
        w.ours.rails[i].bytes_per_s = w.theirs[i].bytes_per_s = 0;
    w.ours.rails[0].load = 1;
    assert_int_equal(chosen(&w).ours, 1);
    w.ours.rails[0].load = UINT32_MAX; /* as large as a source can say */
    w.theirs[1].load = UINT32_MAX;
    w.theirs[1].bytes_per_s = 1;
    assert_int_equal(chosen(&w).ours, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(load_is_spread),
        cmocka_unit_test(a_far_nic_takes_a_third),
        cmocka_unit_test(a_gpu_is_near_what_is_behind_its_switch),
        cmocka_unit_test(else_its_node_is_near),
        cmocka_unit_test(of_what_is_not_known_none_is_far),
        cmocka_unit_test(those_that_draw_spread),
        cmocka_unit_test(load_and_place_win_over_the_draw),
        cmocka_unit_test(a_slow_link_takes_its_share),
        cmocka_unit_test(the_sources_load_counts),
        cmocka_unit_test(another_subnet_is_the_last_resort),
        cmocka_unit_test(a_port_that_is_down_is_not_chosen),
        cmocka_unit_test(a_failing_path_rests_twice_as_long),
        cmocka_unit_test(hops_that_fail_together_are_one_failure),
        cmocka_unit_test(a_hop_has_a_turn_after_each_rest),
        cmocka_unit_test(a_hop_has_a_turn_when_a_port_comes_up),
        cmocka_unit_test(tries_of_a_turn_are_bounded),
        cmocka_unit_test(others_go_on_while_one_rests),
        cmocka_unit_test(a_rail_that_carried_a_hop_is_forgiven),
        cmocka_unit_test(memory_of_failures_is_bounded),
        cmocka_unit_test(rates_that_are_not_known_are_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
