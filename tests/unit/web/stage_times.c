/* stage_times.c - each stage of a version is counted once, when it is over, and none that was over
 * before the first answer.
 *
 * Covers: gateway/web/stage_times.c gateway/web/series.c gateway/web/metrics_readers.c */
#include "gateway/web/stage_times.h"

#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "gateway/web/metrics.h"
#include "tests/unit/check.h"

static void see(struct tb_stage_times *times, const char *text)
{
    json_t *versions = json_loads(text, 0, NULL);
    assert_non_null(versions);
    tb_stage_times_see(times, versions);
    json_decref(versions);
}

static uint64_t counted(const struct tb_stage_times *times, enum tb_stage stage)
{
    struct tb_series_histogram h;
    uint64_t count = 0;
    tb_stage_times_histogram(times, stage, &h);
    for (size_t i = 0; i <= h.bound_count; i++)
        count += h.counts[i];
    return count;
}

#define NOT_BEGUN "\"manifests_s\": null, \"landing_s\": null, \"activating_s\": null"

static void a_stage_counts_once_when_it_is_over(void **state)
{
    (void)state;
    struct tb_stage_times *times = tb_calloc(1, sizeof *times);
    assert_non_null(times);
    see(times, "[]");
    see(times, "[{\"uid\": \"a\", \"stages\": {\"queued_s\": 0.2, " NOT_BEGUN "}}]");
    assert_int_equal(counted(times, TB_STAGE_QUEUED), 0);
    for (int again = 0; again < 3; again++)
        see(times, "[{\"uid\": \"a\", \"stages\": {\"queued_s\": 0.3, \"manifests_s\": 0.1, \"landing_s\": 2,"
                   " \"activating_s\": 0.4}}]");
    for (int stage = 0; stage < TB_STAGES; stage++)
        assert_int_equal(counted(times, (enum tb_stage)stage), 1);
    struct tb_series_histogram h;
    tb_stage_times_histogram(times, TB_STAGE_LANDING, &h);
    assert_true(h.sum > 1.99 && h.sum < 2.01);
    tb_free(times);
}

static void nothing_from_before_the_first_answer_counts(void **state)
{
    (void)state;
    static const char old[] =
        "[{\"uid\": \"a\", \"stages\": {\"queued_s\": 0.3, \"manifests_s\": 0.1, \"landing_s\": 2,"
        " \"activating_s\": 0.4}}]";
    struct tb_stage_times *times = tb_calloc(1, sizeof *times);
    assert_non_null(times);
    for (int again = 0; again < 3; again++)
        see(times, old);
    for (int stage = 0; stage < TB_STAGES; stage++)
        assert_int_equal(counted(times, (enum tb_stage)stage), 0);
    tb_free(times);
}

static void a_stage_that_ends_behind_the_first_answer_counts(void **state)
{
    (void)state;
    struct tb_stage_times *times = tb_calloc(1, sizeof *times);
    assert_non_null(times);
    see(times, "[{\"uid\": \"a\", \"stages\": {\"landing_s\": 1}}]");
    see(times, "[{\"uid\": \"a\", \"stages\": {\"landing_s\": 1.5, \"activating_s\": 0.1}}]");
    assert_int_equal(counted(times, TB_STAGE_LANDING), 1);
    tb_free(times);
}

static void another_shape_counts_nothing(void **state)
{
    (void)state;
    struct tb_stage_times *times = tb_calloc(1, sizeof *times);
    assert_non_null(times);
    see(times, "[null, 3, {\"uid\": 5}, {\"uid\": \"0123456789012345678901234567890123456789\"},"
               " {\"uid\": \"b\", \"stages\": []}]");
    see(times, "[{\"uid\": \"b\", \"stages\": {\"landing_s\": \"1\"}}]");
    assert_int_equal(counted(times, TB_STAGE_LANDING), 0);
    tb_free(times);
}

/* Buckets add up, as Prometheus wants it. */
static void a_histogram_is_cumulative(void **state)
{
    (void)state;
    char *text = NULL;
    size_t count = 0;
    struct tb_stage_times *times = tb_calloc(1, sizeof *times);
    assert_non_null(times);
    see(times, "[]");
    see(times, "[{\"uid\": \"a\", \"stages\": {\"queued_s\": 0.3, \"landing_s\": 1}},"
               " {\"uid\": \"b\", \"stages\": {\"queued_s\": 700, \"landing_s\": 1}}]");
    FILE *out = open_memstream(&text, &count);
    assert_non_null(out);
    json_t *status = json_object();
    tb_metrics_write(out, &(struct tb_web_facts){.status = status, .stage_times = times});
    assert_int_equal(fclose(out), 0);
    json_decref(status);
    static const char *const lines[] = {
        "# TYPE tombolo_stage_seconds histogram\n",
        "tombolo_stage_seconds_bucket{stage=\"queued\",le=\"0.25\"} 0\n",
        "tombolo_stage_seconds_bucket{stage=\"queued\",le=\"0.5\"} 1\n",
        "tombolo_stage_seconds_bucket{stage=\"queued\",le=\"+Inf\"} 2\n",
        "tombolo_stage_seconds_count{stage=\"queued\"} 2\n",
        NULL,
    };
    for (size_t i = 0; lines[i] != NULL; i++)
        if (strstr(text, lines[i]) == NULL) fail_msg("no \"%s\" in\n%s", lines[i], text);
    free(text);
    tb_free(times);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stage_counts_once_when_it_is_over),
        cmocka_unit_test(nothing_from_before_the_first_answer_counts),
        cmocka_unit_test(a_stage_that_ends_behind_the_first_answer_counts),
        cmocka_unit_test(another_shape_counts_nothing),
        cmocka_unit_test(a_histogram_is_cumulative),
    };
    return cmocka_run_group_tests_name("stage_times", tests, NULL, NULL);
}
