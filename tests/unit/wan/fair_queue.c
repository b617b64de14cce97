/* Models that share a link: by weight while they want it, all of it when they are alone, nothing
 * for what they let pass.
 *
 * Covers: wan/send/fair_queue.c */
#include "wan/send/fair_queue.h"

#include "base/time.h"
#include "tests/unit/check.h"

struct flow {
    uint32_t weight, parcel_bytes;
    uint32_t slot;
    uint64_t bytes;
};

/* `parcels` parcels by those of the flows that have something to send. */
static void serve(struct tb_fair *f, struct flow *flows, uint32_t count, uint32_t has, uint32_t parcels)
{
    uint32_t silent = 0;
    for (uint32_t i = 0; i < count; i++)
        if ((has >> i & 1) == 0) silent |= 1u << flows[i].slot;
    for (uint32_t n = 0; n < parcels; n++) {
        const uint32_t slot = tb_fair_next(f, silent);
        for (uint32_t i = 0; i < count; i++) {
            if (flows[i].slot != slot) continue;
            flows[i].bytes += flows[i].parcel_bytes;
            tb_fair_spend(f, slot, flows[i].parcel_bytes);
        }
    }
}

static void join(struct tb_fair *f, struct flow *flows, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        flows[i].slot = tb_fair_join(f, flows[i].weight);
        assert_true(flows[i].slot != TB_FAIR_NONE);
    }
}

/* Shares are of bytes: parcels of 9 KB and of 1 MiB make no difference. */
static void bytes_are_shared_by_weight(void **state)
{
    (void)state;
    struct tb_fair f = {0};
    struct flow flows[] = {{10, 1 << 20, 0, 0}, {30, 9000, 0, 0}, {60, 300000, 0, 0}};
    join(&f, flows, 3);
    serve(&f, flows, 3, 7, 200000);
    const double all = (double)(flows[0].bytes + flows[1].bytes + flows[2].bytes);
    const double want[] = {0.1, 0.3, 0.6};
    for (uint32_t i = 0; i < 3; i++) {
        const double share = (double)flows[i].bytes / all;
        if (share < want[i] - 0.01 || share > want[i] + 0.01) fail_msg("flow %u got %f", i, share);
    }
}

static void a_lone_crossing_has_all(void **state)
{
    (void)state;
    struct tb_fair f = {0};
    struct flow flows[] = {{1, 1000, 0, 0}, {1000, 1000, 0, 0}};
    join(&f, flows, 2);
    serve(&f, flows, 2, 1, 500);
    assert_int_equal(flows[0].bytes, 500000);
    assert_int_equal(tb_fair_next(&f, 3), TB_FAIR_NONE);
}

/* P6: one that was silent for long does not shut the other out when it speaks again, nor is it shut
 * out. */
static void silence_gives_no_claim(void **state)
{
    (void)state;
    struct tb_fair f = {0};
    struct flow flows[] = {{10, 1000, 0, 0}, {10, 1000, 0, 0}};
    join(&f, flows, 2);
    serve(&f, flows, 2, 1, 100000);
    flows[0].bytes = flows[1].bytes = 0;
    serve(&f, flows, 2, 3, 100);
    assert_in_range(flows[0].bytes, 49000, 51000);
    assert_in_range(flows[1].bytes, 49000, 51000);
    tb_fair_leave(&f, flows[0].slot);
    serve(&f, flows + 1, 1, 1, 100000);
    flows[0].slot = tb_fair_join(&f, 10); /* its next version */
    flows[0].bytes = flows[1].bytes = 0;
    serve(&f, flows, 2, 3, 100);
    assert_in_range(flows[0].bytes, 49000, 51000);
}

static void there_is_room_for_as_many_as_said(void **state)
{
    (void)state;
    struct tb_fair f = {0};
    for (uint32_t i = 0; i < TB_FAIR_FLOWS_MAX; i++)
        assert_true(tb_fair_join(&f, 1 + i) != TB_FAIR_NONE);
    assert_int_equal(tb_fair_join(&f, 1), TB_FAIR_NONE);
    tb_fair_leave(&f, 3);
    assert_int_equal(tb_fair_join(&f, 1), 3);
}

/* P6: parcels are handed out before anybody knows what they come to. A model whose chunks
 * cross as a fiftieth gets, of the wire, what its weight says, also when its first parcels
 * were reckoned whole. */
static void wire_bytes_are_shared_not_logical_ones(void **state)
{
    (void)state;
    struct tb_fair f = {0};
    const uint32_t step = tb_fair_join(&f, 10), full = tb_fair_join(&f, 10);
    struct tb_fair_bill bills[2] = {{0}};
    uint64_t raw[2] = {0}, wire[2] = {0};
    for (uint32_t i = 0; i < 10000; i++) {
        const uint32_t flow = tb_fair_next(&f, 0), at = flow == step ? 0 : 1;
        const uint64_t late = 16u << 20; /* so much was handed out and has not gone yet */
        const uint64_t gone = raw[at] > late ? raw[at] - late : 0;
        tb_fair_spend(&f, flow, tb_fair_owes(&bills[at], 1 << 20, gone, at == 0 ? gone / 50 : gone));
        raw[at] += 1 << 20;
        wire[at] += at == 0 ? (1 << 20) / 50 : 1 << 20;
    }
    assert_in_range(wire[0] * 100 / wire[1], 80, 125);
    (void)full;
}

static void an_unknown_chunk_is_reckoned_whole(void **state)
{
    (void)state;
    struct tb_fair_bill bill = {0};
    assert_int_equal(tb_fair_owes(&bill, 1000, 0, 0), 1000);
    assert_int_equal(tb_fair_owes(&bill, 1000, 1000, 100), 0); /* 200 in all: paid already */
    assert_int_equal(tb_fair_owes(&bill, 18000, 2000, 200), 1000);
    assert_int_equal(tb_fair_handed(&bill, 2000, 200), 2000);
    assert_int_equal(tb_fair_handed(&bill, 0, 0), 20000); /* none of it went */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_shared_by_weight),
        cmocka_unit_test(a_lone_crossing_has_all),
        cmocka_unit_test(silence_gives_no_claim),
        cmocka_unit_test(there_is_room_for_as_many_as_said),
        cmocka_unit_test(wire_bytes_are_shared_not_logical_ones),
        cmocka_unit_test(an_unknown_chunk_is_reckoned_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
