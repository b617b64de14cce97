/* heartbeat.c - tests of intra/hop/heartbeat.c, in virtual time. P6: a silent source holds nobody
 * up for long, a quiet one is kept.
 *
 * Covers: intra/hop/heartbeat.c */
#include "intra/hop/heartbeat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define BEGIN TB_SECONDS(7)

static struct tb_heartbeat greeted(void)
{
    struct tb_heartbeat h;
    tb_heartbeat_init(&h, TB_HEARTBEAT_MS * TB_HEARTBEAT_MISSED, TB_HEARTBEAT_OPEN_MS, BEGIN);
    h.greeted = true;
    return h;
}

static void expect(struct tb_heartbeat *h, uint64_t at_ms, enum tb_heartbeat_do what, uint64_t next_ms)
{
    tb_time_ns next = 0;
    assert_int_equal(tb_heartbeat_look(h, BEGIN + TB_MS(at_ms), &next), what);
    assert_int_equal(next, next_ms == 0 ? 0 : BEGIN + TB_MS(next_ms));
}

/* Asked after one beat, once, and lost after the third. */
static void P6_three_missed_beats_are_the_end(void **state)
{
    (void)state;
    struct tb_heartbeat h = greeted();
    expect(&h, 0, TB_HEARTBEAT_WAIT, 500);
    expect(&h, 499, TB_HEARTBEAT_WAIT, 500);
    expect(&h, 500, TB_HEARTBEAT_ASK, 1500);
    expect(&h, 1000, TB_HEARTBEAT_WAIT, 1500);
    expect(&h, 1499, TB_HEARTBEAT_WAIT, 1500);
    expect(&h, 1500, TB_HEARTBEAT_LOST, 0);
}

/* The twin: a late answerer is kept for as long as it answers. */
static void a_source_that_answers_is_kept(void **state)
{
    (void)state;
    struct tb_heartbeat h = greeted();
    for (uint64_t beat = 0; beat < 100; beat++) {
        const uint64_t from = beat * 1900;
        expect(&h, from + 500, TB_HEARTBEAT_ASK, from + 1500);
        expect(&h, from + 1499, TB_HEARTBEAT_WAIT, from + 1500);
        tb_heartbeat_heard(&h, BEGIN + TB_MS(from + 1499)); /* bytes of a chunk, say */
        expect(&h, from + 1500, TB_HEARTBEAT_WAIT, from + 2999);
        h.asked = false; /* its answer */
        tb_heartbeat_heard(&h, BEGIN + TB_MS(from + 1900));
    }
}

/* Bytes that flow are a sign of life: nothing is asked. */
static void a_hop_that_moves_bytes_costs_no_beat(void **state)
{
    (void)state;
    struct tb_heartbeat h = greeted();
    for (uint64_t at = 400; at < 100000; at += 400) {
        expect(&h, at, TB_HEARTBEAT_WAIT, at + 100);
        tb_heartbeat_heard(&h, BEGIN + TB_MS(at));
    }
}

/* A handshake on a busy host takes longer than three beats, and nothing can be asked before it is
 * done. */
static void a_connection_has_longer_to_open(void **state)
{
    (void)state;
    struct tb_heartbeat h;
    tb_heartbeat_init(&h, TB_HEARTBEAT_MS * TB_HEARTBEAT_MISSED, TB_HEARTBEAT_OPEN_MS, BEGIN);
    expect(&h, 100, TB_HEARTBEAT_WAIT, 5000);
    expect(&h, 2000, TB_HEARTBEAT_WAIT, 5000);
    expect(&h, 4999, TB_HEARTBEAT_WAIT, 5000);
    expect(&h, 5000, TB_HEARTBEAT_LOST, 0);
}

/* A reader that stood still itself (stopped, or starved of its core) blames nobody: what came
 * meanwhile is not read yet. */
static void a_reader_that_stood_still_blames_nobody(void **state)
{
    (void)state;
    struct tb_heartbeat h = greeted();
    expect(&h, 0, TB_HEARTBEAT_WAIT, 500);
    expect(&h, 500, TB_HEARTBEAT_ASK, 1500);
    expect(&h, 9000, TB_HEARTBEAT_WAIT, 10500);
    expect(&h, 10500, TB_HEARTBEAT_LOST, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(P6_three_missed_beats_are_the_end),
        cmocka_unit_test(a_source_that_answers_is_kept),
        cmocka_unit_test(a_hop_that_moves_bytes_costs_no_beat),
        cmocka_unit_test(a_reader_that_stood_still_blames_nobody),
        cmocka_unit_test(a_connection_has_longer_to_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
