/* bottleneck.c - the limit that holds a stream, and the ceiling that holds a link.
 *
 * Covers: wan/stream/bottleneck.c */
#include "wan/stream/bottleneck.h"

#include "tests/unit/check.h"

static void a_stream_has_one_limit(void **state)
{
    (void)state;
    const struct {
        struct tb_limit_seen seen;
        enum tb_limit limit;
    } rows[] = {
        {{.time = 250, .busy = 0}, TB_LIMIT_IDLE},
        {{.time = 250, .busy = 20}, TB_LIMIT_IDLE},
        {{.time = 250, .busy = 20, .wanted = 20}, TB_LIMIT_IDLE},
        {{.time = 250, .busy = 20, .wanted = 250}, TB_LIMIT_SENDER},
        {{.time = 250, .busy = 20, .wanted = 250, .peer = 20},
         TB_LIMIT_SENDER}, /* it fills the window at once */
        {{.time = 250, .busy = 250, .wanted = 250}, TB_LIMIT_NETWORK},
        {{.time = 250, .busy = 60, .wanted = 60}, TB_LIMIT_NETWORK}, /* it began, or is at its end */
        {{.time = 250, .busy = 60, .wanted = 60, .peer = 50}, TB_LIMIT_PEER_WINDOW},
        {{.time = 250, .busy = 250, .wanted = 100, .peer = 200},
         TB_LIMIT_PEER_WINDOW}, /* the kernel has the rest */
        {{.time = 250, .busy = 250, .peer = 100}, TB_LIMIT_PEER_WINDOW},
        {{.time = 250, .busy = 250, .buffer = 100, .window_bytes = 4 << 20, .send_ceiling_bytes = 4 << 20},
         TB_LIMIT_SEND_BUFFER},
        {{.time = 250, .busy = 250, .buffer = 100, .window_bytes = 1 << 20, .send_ceiling_bytes = 4 << 20},
         TB_LIMIT_SENDER},
        {{.time = 250, .busy = 250, .buffer = 100}, TB_LIMIT_SENDER},
        {{.time = 250, .busy = 100, .wanted = 230}, TB_LIMIT_SENDER},
        {{.time = 250, .busy = 0, .capped = 250, .wanted = 250}, TB_LIMIT_CAP},
        {{.time = 250, .busy = 250, .capped = 100, .wanted = 250},
         TB_LIMIT_CAP}, /* paced, and never quite idle */
        {{.time = 250, .busy = 250, .capped = 80, .wanted = 250}, TB_LIMIT_NETWORK},
        {{.time = 250, .busy = 10, .capped = 200}, TB_LIMIT_CAP},
        {{.time = 250, .busy = 10, .capped = 20}, TB_LIMIT_IDLE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (tb_bottleneck_of(&rows[i].seen) != rows[i].limit)
            fail_msg("row %zu: %s", i, tb_bottleneck_name(tb_bottleneck_of(&rows[i].seen)));
    assert_string_equal(tb_bottleneck_name(TB_LIMIT_PEER_WINDOW), "peer_window");
    assert_string_equal(tb_bottleneck_name((enum tb_limit)99), "unknown");
}

/* tcp_wmem's 4 MiB holds one stream to 400 Mbit/s at 80 ms. */
static void a_ceiling_that_holds_is_named(void **state)
{
    (void)state;
    const struct {
        struct tb_window_seen seen;
        uint64_t wanted;
    } rows[] = {
        {{.bytes_per_s = 50000000, .rtt = TB_MS(80), .streams = 1, .ceiling_bytes = 4 << 20}, 8 << 20},
        {{.bytes_per_s = 50000000, .rtt = TB_MS(80), .streams = 2, .ceiling_bytes = 4 << 20}, 0},
        {{.bytes_per_s = 50000000,
          .rtt = TB_MS(80),
          .streams = 2,
          .ceiling_bytes = 4 << 20,
          .receives = true},
         8 << 20},
        {{.bytes_per_s = 50000000, .rtt = TB_MS(1), .streams = 1, .ceiling_bytes = 4 << 20}, 0},
        {{.bytes_per_s = 50000000, .rtt = TB_MS(80), .streams = 0, .ceiling_bytes = 4 << 20}, 0},
        {{.bytes_per_s = 50000000, .rtt = TB_MS(80), .streams = 1}, 0},
        {{.bytes_per_s = 50000000, .streams = 1, .ceiling_bytes = 4 << 20}, 0},
        {{.bytes_per_s = UINT64_MAX, .rtt = TB_SECONDS(100), .streams = 1, .ceiling_bytes = 4 << 20},
         (uint64_t)1 << 40},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (tb_window_wanted(&rows[i].seen) != rows[i].wanted)
            fail_msg("row %zu: %llu", i, (unsigned long long)tb_window_wanted(&rows[i].seen));
}

/* Held by the kernel's word and by rate x RTT: 26,214,400 bytes/s for 80 ms are half of 4 MiB. */
static void a_buffer_that_is_full_need_not_look_full(void **state)
{
    (void)state;
    const struct {
        uint64_t bytes_per_s;
        uint32_t streams, held;
        uint64_t wanted;
    } rows[] = {
        {26300000, 1, 1, 8 << 20},  {26100000, 1, 1, 0},       {26300000, 1, 0, 0},
        {41000000, 1, 0, 0},        {42000000, 1, 0, 8 << 20}, {4 * 26300000, 4, 3, 8 << 20},
        {4 * 26300000, 4, 2, 0},    {4 * 26100000, 4, 4, 0},   {50000000, 1, 1, 8 << 20},
        {60000000, 1, 1, 16 << 20},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct tb_window_seen seen = {.bytes_per_s = rows[i].bytes_per_s,
                                            .rtt = TB_MS(80),
                                            .streams = rows[i].streams,
                                            .held = rows[i].held,
                                            .ceiling_bytes = 4 << 20};
        if (tb_window_wanted(&seen) != rows[i].wanted)
            fail_msg("row %zu: %llu", i, (unsigned long long)tb_window_wanted(&seen));
    }
}

/* The ceiling that is needed is named until it is that high, and again when it is too low once
 * more. */
static void a_ceiling_that_was_raised_is_named_no_more(void **state)
{
    (void)state;
    struct tb_window_seen busy = {
        .bytes_per_s = 50000000, .rtt = TB_MS(80), .streams = 1, .ceiling_bytes = 4 << 20};
    struct tb_window_seen idle = {.rtt = TB_MS(80), .ceiling_bytes = 4 << 20};
    uint64_t wanted = 0;
    assert_true(tb_window_look(&wanted, &busy));
    assert_int_equal(wanted, 8 << 20);
    assert_false(tb_window_look(&wanted, &busy)); /* once */
    assert_false(tb_window_look(&wanted, &idle));
    assert_int_equal(wanted, 8 << 20); /* what holds it does so when something crosses again */
    idle.ceiling_bytes = 6 << 20;
    assert_false(tb_window_look(&wanted, &idle));
    assert_int_equal(wanted, 8 << 20); /* not enough */
    idle.ceiling_bytes = busy.ceiling_bytes = 8 << 20;
    assert_false(tb_window_look(&wanted, &idle));
    assert_int_equal(wanted, 0);
    busy.bytes_per_s *= 2;
    assert_true(tb_window_look(&wanted, &busy));
    assert_int_equal(wanted, 16 << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_has_one_limit),
        cmocka_unit_test(a_ceiling_that_holds_is_named),
        cmocka_unit_test(a_buffer_that_is_full_need_not_look_full),
        cmocka_unit_test(a_ceiling_that_was_raised_is_named_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
