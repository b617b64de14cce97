/* A link's cap in virtual time: streams that wake late, a rate that changes, and no
 * second above it by 2 %.
 *
 * Covers: wan/send/rate_cap.c */
#include "wan/send/rate_cap.h"

#include <string.h>

#include "tests/unit/check.h"

#define SECONDS 5u
#define BINS    (SECONDS * 1000u) /* of a millisecond */

struct run {
    struct tb_cap cap;
    struct tb_cap_price price;
    uint64_t sent[BINS]; /* wire bytes in each millisecond */
    uint64_t seed;
    uint32_t late_ms; /* a stream wakes up to so much after its time */
};

struct stream {
    tb_time_ns at;
    uint32_t bytes; /* reserved; 0: none */
};

/* `count` streams that always have something to send, until the end of second `until_s`. */
static void flood(struct run *r, struct stream *streams, uint32_t count, uint32_t from_ms, uint32_t until_ms)
{
    for (uint32_t tenth = from_ms * 10; tenth < until_ms * 10; tenth++) {
        const tb_time_ns now = TB_SECONDS(100) + TB_US(100) * tenth;
        for (uint32_t i = 0; i < count; i++) {
            struct stream *s = &streams[i];
            if (s->bytes != 0 && now >= s->at) {
                r->sent[tenth / 10] += tb_cap_wire_bytes(&r->price, s->bytes);
                s->bytes = 0;
            }
            if (s->bytes != 0) continue;
            s->bytes = tb_cap_piece(&r->cap);
            s->at = tb_cap_reserve(&r->cap, tb_cap_wire_bytes(&r->price, s->bytes), now);
            if (s->at > now && r->late_ms > 0) s->at += TB_US(check_random(&r->seed) % (r->late_ms * 1000));
        }
    }
}

static void begin(struct run *r, uint64_t bytes_per_s, uint32_t late_ms)
{
    memset(r, 0, sizeof *r);
    r->seed = 5;
    r->late_ms = late_ms;
    r->price = (struct tb_cap_price){1448, 52};
    tb_cap_set(&r->cap, bytes_per_s, TB_SECONDS(100));
}

static uint64_t window(const struct run *r, uint32_t from_ms)
{
    uint64_t sum = 0;
    for (uint32_t ms = from_ms; ms < from_ms + 1000; ms++)
        sum += r->sent[ms];
    return sum;
}

/* Every window of a second, wherever it begins. */
static void within_2_percent(const struct run *r, uint64_t bytes_per_s, uint32_t from_ms, uint32_t until_ms)
{
    for (uint32_t ms = from_ms; ms + 1000 <= until_ms; ms++) {
        const uint64_t bytes = window(r, ms);
        if (bytes > bytes_per_s + bytes_per_s / 50 || bytes < bytes_per_s - bytes_per_s / 50)
            fail_msg("%llu bytes in the second from %u ms on, not %llu", (unsigned long long)bytes, ms,
                     (unsigned long long)bytes_per_s);
    }
}

static void every_second_is_within_2_percent(void **state)
{
    (void)state;
    static const uint64_t rates[] = {125000, 1250000, 25000000, 125000000};
    static struct run r;
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        for (uint32_t count = 1; count <= 16; count *= 4) {
            struct stream streams[16] = {0};
            begin(&r, rates[i], 0);
            flood(&r, streams, count, 0, BINS);
            within_2_percent(&r, rates[i], 0, BINS);
        }
    }
}

/* Timers are late by some milliseconds: what was not sent then is sent a little later. */
static void late_timers_cost_nothing(void **state)
{
    (void)state;
    static struct run r;
    for (uint32_t count = 1; count <= 8; count *= 8) {
        struct stream streams[8] = {0};
        begin(&r, 25000000, 3);
        flood(&r, streams, count, 0, BINS);
        within_2_percent(&r, 25000000, 0, BINS);
    }
}

/* Live: it is what it says from the next second on, also from very little to a lot and back. */
static void a_rate_may_change(void **state)
{
    (void)state;
    static struct run r;
    struct stream streams[4] = {0};
    begin(&r, 125000, 0);
    flood(&r, streams, 4, 0, 1500);
    tb_cap_set(&r.cap, 25000000, TB_SECONDS(100) + TB_MS(1500));
    flood(&r, streams, 4, 1500, 3000);
    tb_cap_set(&r.cap, 125000, TB_SECONDS(100) + TB_MS(3000));
    flood(&r, streams, 4, 3000, BINS);
    within_2_percent(&r, 25000000, 1550, 3000);
    for (uint32_t ms = 3020; ms + 1000 <= BINS;
         ms++) /* pieces of the higher rate that were granted are paid for */
        assert_true(window(&r, ms) <= 125000 + 125000 / 50);
    tb_cap_set(&r.cap, 0, TB_SECONDS(200));
    assert_int_equal(tb_cap_piece(&r.cap), UINT32_MAX);
    assert_int_equal(tb_cap_reserve(&r.cap, 1 << 30, TB_SECONDS(200)), TB_SECONDS(200));
}

/* An hour of silence saves up no more than the burst. */
static void silence_saves_nothing_up(void **state)
{
    (void)state;
    struct tb_cap c = {0};
    tb_cap_set(&c, 1000000, TB_SECONDS(100));
    (void)tb_cap_reserve(&c, 1000, TB_SECONDS(100));
    uint64_t at_once = 0;
    while (tb_cap_reserve(&c, 1000, TB_SECONDS(3700)) <= TB_SECONDS(3700))
        at_once += 1000;
    assert_in_range(at_once, 10000, 12000);
    tb_cap_charge(&c, 500000, TB_SECONDS(3700)); /* TCP sent half a second's worth again */
    assert_true(tb_cap_reserve(&c, 1000, TB_SECONDS(3700)) >= TB_SECONDS(3700) + TB_MS(499));
}

static void packets_are_what_is_counted(void **state)
{
    (void)state;
    const struct tb_cap_price p = {1448, 52};
    assert_int_equal(tb_cap_wire_bytes(&p, 1), 1 + 22 + 52);
    assert_int_equal(tb_cap_wire_bytes(&p, 1426), 1448 + 52);
    assert_int_equal(tb_cap_wire_bytes(&p, 1427), 1449 + 104);
    assert_int_equal(tb_cap_wire_bytes(&p, 16384 * 4), 65536 + 88 + 46 * 52);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_second_is_within_2_percent),
        cmocka_unit_test(late_timers_cost_nothing),
        cmocka_unit_test(a_rate_may_change),
        cmocka_unit_test(silence_saves_nothing_up),
        cmocka_unit_test(packets_are_what_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
