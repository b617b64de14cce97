/* joining.c - 10,000 workers join within a lease: what the catalog does for them, counted. The
 * bench measures the time (fleet.joins); this test sees a cost that grows faster than the
 * workers.
 *
 * Covers: sim/fleet/joining.c gateway/catalog/rules/plans.c */
#include "sim/fleet/joining.h"

#include "intra/planner.h"
#include "tests/unit/check.h"

#define WORKERS 10000u

/* The planner's, with what they are asked about counted. */
static uint64_t asked, judged, members;

enum tb_status __real_tb_planner_upstream(const struct tb_planner_question *q, uint32_t *upstream_out);
enum tb_status __wrap_tb_planner_upstream(const struct tb_planner_question *q, uint32_t *upstream_out);
bool __real_tb_planner_slow(const struct tb_planner_question *q, struct tb_planner_pace *pace);
bool __wrap_tb_planner_slow(const struct tb_planner_question *q, struct tb_planner_pace *pace);
bool __real_tb_planner_alone(const struct tb_planner_question *q);
bool __wrap_tb_planner_alone(const struct tb_planner_question *q);

enum tb_status __wrap_tb_planner_upstream(const struct tb_planner_question *q, uint32_t *upstream_out)
{
    asked++;
    members += q->count;
    return __real_tb_planner_upstream(q, upstream_out);
}

bool __wrap_tb_planner_slow(const struct tb_planner_question *q, struct tb_planner_pace *pace)
{
    judged++;
    members += q->count;
    return __real_tb_planner_slow(q, pace);
}

bool __wrap_tb_planner_alone(const struct tb_planner_question *q)
{
    judged++;
    members += q->count;
    return __real_tb_planner_alone(q);
}

/* P7: each is a question, over those who came before it: half of 10^8 members in all, which is half
 * a second of a core's ten (planner.h). Nobody is moved for those who come. A judgement looks at
 * all as well: a worker as fast as any gets none. */
static void ten_thousand_join_within_a_lease(void **state)
{
    (void)state;
    struct tb_joining_result r;
    CHECK_OK(tb_joining_run(WORKERS, NULL, &r));
    print_message("%llu plans, %llu questions, %llu judgements, %llu members\n", (unsigned long long)r.plans,
                  (unsigned long long)asked, (unsigned long long)judged, (unsigned long long)members);
    assert_int_equal(r.plans, WORKERS);
    assert_int_equal(asked, WORKERS);
    assert_int_equal(judged, 0);
    assert_true(members <= (uint64_t)WORKERS * WORKERS / 2 * 102 / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ten_thousand_join_within_a_lease)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
