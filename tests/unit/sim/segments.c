/* A batch of TCP cut into packets and joined again is the batch; what does not
 * follow is not joined.
 *
 * Covers: sim/wan/segments.c */
#include "sim/wan/segments.h"

#include <string.h>

#include "tests/unit/check.h"

#define HEADER  52u /* IP 20, TCP 20, timestamps 12 */
#define SEGMENT 1448u
#define COUNT   5u
#define BYTES   (HEADER + COUNT * SEGMENT - 100) /* the last one is shorter */

static void batch_make(uint8_t *batch)
{
    static const uint8_t ip[20] = {0x45, 0, 0,  0,   0xff, 0xfe, 0x40, 0,   64, 6,
                                   0,    0, 10, 201, 0,    1,    10,   201, 0,  2};
    static const uint8_t tcp[20] = {0x14, 0x51, 0x14, 0x52, 0xff, 0xff, 0xf0, 0, 0, 0,
                                    0,    9,    0x80, 0x98, 1,    0,    0,    0, 0, 0};
    memset(batch, 0, HEADER);
    memcpy(batch, ip, 20);
    memcpy(batch + 20, tcp, 20);
    batch[2] = (uint8_t)(BYTES >> 8);
    batch[3] = (uint8_t)BYTES;
    for (uint32_t i = HEADER; i < BYTES; i++)
        batch[i] = (uint8_t)(i * 7);
}

/* Ones' complement sum; a whole checksum over its bytes gives 0xffff. */
static uint32_t folded(const uint8_t *at, uint32_t bytes)
{
    uint32_t all = 0;
    for (uint32_t i = 0; i < bytes; i++)
        all += i % 2 == 0 ? (uint32_t)at[i] << 8 : at[i];
    while (all >> 16 != 0)
        all = (all & 0xffff) + (all >> 16);
    return all;
}

static void cut_and_joined_again_is_the_same(void **state)
{
    (void)state;
    uint8_t batch[BYTES], packets[COUNT][HEADER + SEGMENT], again[BYTES];
    uint32_t lengths[COUNT];
    batch_make(batch);
    assert_int_equal(tb_segments_header(batch, BYTES), HEADER);
    struct tb_segments_run run;
    for (uint32_t i = 0; i < COUNT; i++) {
        lengths[i] = tb_segments_cut(batch, BYTES, HEADER, SEGMENT, i, packets[i]);
        assert_int_equal(lengths[i], i + 1 < COUNT ? HEADER + SEGMENT : HEADER + SEGMENT - 100);
        assert_int_equal(folded(packets[i], 20), 0xffff);
        assert_int_equal(packets[i][33], i == 0          ? 0x90
                                         : i + 1 < COUNT ? 0x10
                                                         : 0x18); /* CWR first, PSH last */
        if (i == 0) packets[0][33] = 0x10;
        assert_true(i == 0 ? tb_segments_open(&run, packets[i], lengths[i])
                           : tb_segments_join(&run, packets[i], lengths[i]));
        memcpy(again + HEADER + (size_t)i * SEGMENT, packets[i] + HEADER, lengths[i] - HEADER);
    }
    assert_int_equal(tb_segments_cut(batch, BYTES, HEADER, SEGMENT, COUNT, packets[0]), 0);
    tb_segments_close(&run);
    assert_true(run.closed && run.count == COUNT && run.segment_bytes == SEGMENT &&
                run.payload_bytes == BYTES - HEADER);
    memcpy(again, run.header, HEADER);
    assert_int_equal(folded(again, 20), 0xffff);
    assert_memory_equal(again + 12, batch + 12, 21);         /* addresses, ports, sequence, acknowledgement */
    assert_int_equal(again[33], 0x18);                       /* PSH is the last one's */
    assert_memory_equal(again + 38, batch + 38, BYTES - 38); /* all behind the checksum */
}

static void a_segment_that_does_not_follow_is_not_joined(void **state)
{
    (void)state;
    /* Changed in the second packet: sequence, port, address, acknowledgement, window, an option,
     * TOS, FIN, fragment. */
    static const uint32_t places[] = {27, 21, 15, 31, 35, 45, 1, 33, 7};
    uint8_t batch[BYTES], first[HEADER + SEGMENT], second[HEADER + SEGMENT];
    batch_make(batch);
    batch[33] = 0x10;
    struct tb_segments_run run;
    (void)tb_segments_cut(batch, BYTES, HEADER, SEGMENT, 0, first);
    for (uint32_t i = 0; i < sizeof places / sizeof *places; i++) {
        (void)tb_segments_cut(batch, BYTES, HEADER, SEGMENT, 1, second);
        assert_true(tb_segments_open(&run, first, sizeof first));
        second[places[i]] ^= 1;
        assert_false(tb_segments_join(&run, second, sizeof second));
        second[places[i]] ^= 1;
        assert_true(tb_segments_join(&run, second, sizeof second));
        assert_false(tb_segments_join(&run, second, sizeof second)); /* nor twice */
    }
}

/* Where packets of several streams are due at once, each finds its own stream's run. */
static void a_stream_is_known_by_its_addresses_and_ports(void **state)
{
    (void)state;
    uint8_t batch[BYTES], packets[2][HEADER + SEGMENT];
    batch_make(batch);
    struct tb_segments_run run;
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(tb_segments_cut(batch, BYTES, HEADER, SEGMENT, i, packets[i]), HEADER + SEGMENT);
    packets[0][33] = 0x10;
    assert_true(tb_segments_open(&run, packets[0], HEADER + SEGMENT));
    assert_true(tb_segments_same_stream(&run, packets[1], HEADER + SEGMENT));
    static const uint32_t tells[] = {12, 15, 16, 19, 20, 21, 22, 23};
    for (uint32_t i = 0; i < sizeof tells / sizeof *tells; i++) {
        packets[1][tells[i]] ^= 1;
        assert_false(tb_segments_same_stream(&run, packets[1], HEADER + SEGMENT));
        packets[1][tells[i]] ^= 1;
    }
    packets[1][24] ^= 1; /* another place in the stream */
    assert_true(tb_segments_same_stream(&run, packets[1], HEADER + SEGMENT));
    packets[1][9] = 17; /* not TCP */
    assert_false(tb_segments_same_stream(&run, packets[1], HEADER + SEGMENT));
}

static void garbage_has_no_header(void **state)
{
    (void)state;
    uint8_t batch[BYTES];
    batch_make(batch);
    for (uint32_t bytes = 0; bytes < HEADER; bytes++)
        assert_int_equal(tb_segments_header(batch, bytes), 0);
    batch[0] = 0x65;
    assert_int_equal(tb_segments_header(batch, BYTES), 0);
    batch[0] = 0x44;
    assert_int_equal(tb_segments_header(batch, BYTES), 0);
}

static void a_partial_checksum_is_made_whole(void **state)
{
    (void)state;
    uint8_t batch[BYTES], packet[HEADER + SEGMENT];
    batch_make(batch);
    const uint32_t bytes = tb_segments_cut(batch, BYTES, HEADER, SEGMENT, 1, packet);
    assert_true(tb_segments_checksum(packet, bytes, 20, 16));
    const uint8_t pseudo[12] = {
        10, 201, 0, 1, 10, 201, 0, 2, 0, 6, (uint8_t)((bytes - 20) >> 8), (uint8_t)(bytes - 20)};
    uint32_t all = folded(packet + 20, bytes - 20) + folded(pseudo, 12);
    all = (all & 0xffff) + (all >> 16);
    assert_int_equal(all, 0xffff);
    assert_false(tb_segments_checksum(packet, bytes, bytes, 0));
    assert_false(tb_segments_checksum(packet, bytes, 20, bytes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_and_joined_again_is_the_same),
        cmocka_unit_test(a_segment_that_does_not_follow_is_not_joined),
        cmocka_unit_test(a_stream_is_known_by_its_addresses_and_ports),
        cmocka_unit_test(garbage_has_no_header),
        cmocka_unit_test(a_partial_checksum_is_made_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
