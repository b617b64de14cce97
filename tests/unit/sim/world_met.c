/* world_met.c - tests of sim/world/world_met.c: a fault or a way that no seed met is told,
 * and nothing else is.
 *
 * Covers: sim/world/world_met.c */
#include "sim/world/world_met.h"
#include "sim/world/world_run.h"
#include "tests/unit/check.h"

#include <string.h>

#define SEEDS_MAX 30000u
#define ALL       ((UINT64_C(1) << MET) - 1)

struct run {
    uint32_t most[FAULTS], counts[(SEEDS_MAX / 10000 + 1) * MET];
    struct world_met met;
};

/* Each seed met everything, but `lacks` of those in [first, end). */
static void run_init(struct run *r, uint64_t seeds, uint64_t lacks, uint64_t first, uint64_t end)
{
    memset(r, 0, sizeof *r);
    for (uint32_t f = 0; f < FAULTS; f++)
        r->most[f] = STRENGTH_MAX;
    r->met = (struct world_met){.seeds = seeds, .most = r->most, .counts = r->counts};
    assert_true(world_met_counts(seeds) <= sizeof r->counts / sizeof r->counts[0]);
    for (uint64_t s = 0; s < seeds; s++)
        world_met_add(&r->met, s, s >= first && s < end ? ALL & ~lacks : ALL);
}

static void misses(const struct run *r, uint32_t count, uint32_t which, uint64_t first)
{
    struct world_missed missed = {0};
    uint64_t at = 0;
    for (uint32_t i = 0; i < count; i++)
        assert_true(world_met_missed(&r->met, &at, &missed));
    if (count > 0) assert_int_equal(missed.which, which);
    if (count > 0) assert_int_equal(missed.first, first);
    assert_false(world_met_missed(&r->met, &at, &missed));
}

static void the_events_of_each_window_are_not_told(void **state)
{
    (void)state;
    struct run r;
    run_init(&r, 10000, UINT64_C(1) << FAULT_ROT, 1, 10000); /* the first seed met it */
    misses(&r, 0, 0, 0);
    assert_int_equal(world_met_by(&r.met, FAULT_ROT), 1);
    assert_int_equal(world_met_by(&r.met, FAULT_CUT), 10000);
}

/* A window of its own, however often the one before met it. */
static void a_fault_that_ten_thousand_seeds_did_not_meet_is_told(void **state)
{
    (void)state;
    struct run r;
    run_init(&r, 30000, UINT64_C(1) << FAULT_CLOCK, 10000, 20000);
    misses(&r, 1, FAULT_CLOCK, 10000);
    assert_int_equal(world_met_by(&r.met, FAULT_CLOCK), 20000);
    run_init(&r, 21000, UINT64_C(1) << FAULT_CLOCK, 1, 21000);
    misses(&r, 2, FAULT_CLOCK, 20000);
}

static void so_is_a_way_and_the_last_of_them(void **state)
{
    (void)state;
    struct run r;
    run_init(&r, 1000, UINT64_C(1) << (MET - 1), 0, 1000);
    misses(&r, 1, MET - 1, 0);
    run_init(&r, 1000, ALL, 0, 1000);
    misses(&r, MET, MET - 1, 0);
}

/* Of 999 seeds, or of the 999 behind a window, nothing is asked. */
static void of_few_seeds_nothing_is_asked(void **state)
{
    (void)state;
    struct run r;
    run_init(&r, 999, ALL, 0, 999);
    misses(&r, 0, 0, 0);
    run_init(&r, 10999, ALL, 10000, 10999);
    misses(&r, 0, 0, 0);
    run_init(&r, 11000, UINT64_C(1) << FAULT_KILL, 10000, 11000);
    misses(&r, 1, FAULT_KILL, 10000);
}

static void a_fault_that_is_off_is_not_asked_for(void **state)
{
    (void)state;
    struct run r;
    run_init(&r, 1000, UINT64_C(3) << FAULT_KILL, 0, 1000);
    r.most[FAULT_KILL] = 0;
    misses(&r, 1, FAULT_KILL + 1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_events_of_each_window_are_not_told),
        cmocka_unit_test(a_fault_that_ten_thousand_seeds_did_not_meet_is_told),
        cmocka_unit_test(so_is_a_way_and_the_last_of_them),
        cmocka_unit_test(of_few_seeds_nothing_is_asked),
        cmocka_unit_test(a_fault_that_is_off_is_not_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
