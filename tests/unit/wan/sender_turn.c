/* Peers that send a version by turns, in virtual time (P6). A peer that brings something goes on.
 * A peer that brings nothing is followed by the one that waits longest. Sites that draw from each
 * other come to the one that has it.
 *
 * Covers: wan/send/sender_turn.c */
#include "wan/send/sender_turn.h"

#include <string.h>

#include "tests/unit/check.h"

#define PEERS 3u
#define STEP  TB_MS(5)
#define NONE  UINT32_MAX

/* One receiver and its peers. A peer brings so many bytes a step when it sends, until it
 * has brought all it has. */
struct run {
    tb_time_ns now;
    struct tb_turn turns[PEERS];
    uint64_t left[PEERS], per_step[PEERS], came[PEERS];
    uint32_t sends; /* NONE: nobody yet */
    uint32_t turn_count;
};

static void begin(struct run *r)
{
    memset(r, 0, sizeof *r);
    r->now = TB_SECONDS(100);
    r->sends = NONE;
}

/* As wan/link/traffic/link_share.c asks for each peer that waits, one after another. */
static bool has_turn(const struct run *r, uint32_t peer)
{
    if (r->sends != NONE && !tb_turn_over(&r->turns[r->sends], TB_MS(40), r->now)) return false;
    for (uint32_t i = 0; i < PEERS; i++)
        if (i != peer && i != r->sends && tb_turn_before(&r->turns[i], &r->turns[peer])) return false;
    return true;
}

static void step(struct run *r)
{
    r->now += STEP;
    for (uint32_t i = 0; i < PEERS; i++) {
        if (i == r->sends || !has_turn(r, i)) continue;
        r->sends = i;
        r->turn_count++;
        tb_turn_begin(&r->turns[i], r->now);
    }
    if (r->sends == NONE) return;
    const uint32_t s = r->sends;
    const uint64_t bytes = r->left[s] < r->per_step[s] ? r->left[s] : r->per_step[s];
    r->left[s] -= bytes;
    r->came[s] += bytes;
    tb_turn_came(&r->turns[s], r->came[s], r->now);
}

static void run_until(struct run *r, tb_time_ns passed)
{
    for (const tb_time_ns end = TB_SECONDS(100) + passed; r->now < end;)
        step(r);
}

/* 16 MiB at a byte each 5 ms is no silence: a turn counts bytes, not chunks. */
static void one_that_brings_little_goes_on(void **state)
{
    struct run r;
    (void)state;
    begin(&r);
    r.per_step[0] = 1;
    r.left[0] = 16u << 20;
    run_until(&r, TB_SECONDS(60));
    assert_int_equal(r.sends, 0);
    assert_int_equal(r.turn_count, 1);
}

/* P6: neither the first nor the second has anything; the third is not passed over
 * for the first again. */
static void those_without_anything_hold_up_nobody(void **state)
{
    struct run r;
    (void)state;
    begin(&r);
    r.per_step[2] = 1000;
    r.left[2] = 5000;
    run_until(&r, 2 * (TB_TURN_PATIENCE + TB_MS(80)) + TB_MS(100));
    assert_int_equal(r.left[2], 0);
    assert_int_equal(r.turn_count, 3);
}

/* It brought what it had, and what it lacked comes to it later: it has its turn again. */
static void each_has_its_turn_again(void **state)
{
    struct run r;
    (void)state;
    begin(&r);
    for (uint32_t i = 0; i < PEERS; i++) {
        r.per_step[i] = 10;
        r.left[i] = 100;
    }
    run_until(&r, TB_SECONDS(8));
    assert_int_equal(r.left[0] + r.left[1] + r.left[2], 0);
    r.left[0] = 100;
    run_until(&r, TB_SECONDS(16));
    assert_int_equal(r.left[0], 0);
}

/* The patience grows by two round trips: what was asked for over a far link has not been silent
 * when it could not answer yet. */
static void a_far_peer_has_time_to_answer(void **state)
{
    struct tb_turn t = {0};
    (void)state;
    tb_turn_begin(&t, TB_SECONDS(100));
    tb_turn_came(&t, 0, TB_SECONDS(101)); /* nothing */
    assert_true(tb_turn_over(&t, 0, TB_SECONDS(100) + TB_TURN_PATIENCE));
    assert_false(tb_turn_over(&t, TB_MS(300), TB_SECONDS(100) + TB_TURN_PATIENCE + TB_MS(599)));
    assert_true(tb_turn_over(&t, TB_MS(300), TB_SECONDS(100) + TB_TURN_PATIENCE + TB_MS(600)));
    tb_turn_came(&t, 1, TB_SECONDS(102));
    assert_false(tb_turn_over(&t, 0, TB_SECONDS(103)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_brings_little_goes_on),
        cmocka_unit_test(those_without_anything_hold_up_nobody),
        cmocka_unit_test(each_has_its_turn_again),
        cmocka_unit_test(a_far_peer_has_time_to_answer),
    };
    return cmocka_run_group_tests_name("wan.turn", tests, NULL, NULL);
}
