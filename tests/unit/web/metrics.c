/* metrics.c - each family is one block of the text format, names and labels are clean, and what is
 * not known has no series (P10).
 *
 * Covers: gateway/web/metrics.c gateway/web/metrics_links.c gateway/web/metrics_readers.c
 * Covers: gateway/web/series.c gateway/web/web_facts.c */
#include "gateway/web/metrics.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/check.h"

static char *written(const char *status, const char *lag, const char *versions)
{
    char *text = NULL;
    size_t count = 0;
    json_t *s = status != NULL ? json_loads(status, 0, NULL) : NULL;
    json_t *l = lag != NULL ? json_loads(lag, 0, NULL) : NULL;
    json_t *v = versions != NULL ? json_loads(versions, 0, NULL) : NULL;
    assert_int_equal(s != NULL, status != NULL);
    assert_int_equal(l != NULL, lag != NULL);
    assert_int_equal(v != NULL, versions != NULL);
    FILE *out = open_memstream(&text, &count);
    assert_non_null(out);
    tb_metrics_write(out, &(struct tb_web_facts){.status = s, .lag = l, .versions = v});
    assert_int_equal(fclose(out), 0);
    json_decref(s);
    json_decref(l);
    json_decref(v);
    return text;
}

static void expect_lines(const char *text, const char *const *lines)
{
    for (; *lines != NULL; lines++)
        if (strstr(text, *lines) == NULL) fail_msg("no line \"%s\" in\n%s", *lines, text);
}

static size_t times(const char *text, const char *part)
{
    size_t count = 0;
    for (; (text = strstr(text, part)) != NULL; text++)
        count++;
    return count;
}

static void a_gateway_that_is_silent_is_not_up(void **state)
{
    (void)state;
    char *text = written(NULL, NULL, NULL);
    assert_string_equal(text, "# HELP tombolo_up 1 while the gateway answers on its control socket.\n"
                              "# TYPE tombolo_up gauge\ntombolo_up 0\n");
    free(text);
}

static void each_field_has_its_series(void **state)
{
    (void)state;
    char *text = written(
        "{\"site\": \"east\", \"gateway\": \"gw\", \"version\": \"0.1.0\", \"store_ok\": true, \"uptime_s\": "
        "1.5,"
        " \"arena\": {\"bytes\": 1000, \"used\": 10},"
        " \"tables\": [{\"table\": \"copies\", \"used\": 1, \"most\": 2, \"bound\": 64, \"refused\": 3}],"
        " \"links\": [{\"site\": \"west\", \"state\": \"up\", \"reason\": \"\", \"rtt_ms\": 80, "
        "\"sent_bytes\": 7,"
        "  \"limit\": {\"bit_per_s\": 1000000}},"
        "  {\"site\": \"north\", \"state\": \"dialling\", \"reason\": \"tls-failed\"}],"
        " \"counters\": {\"chunks_bad\": 4, \"links_refused\": 6, \"Bad name\": 5}}",
        NULL, NULL);
    static const char *const lines[] = {
        "\ntombolo_up 1\n",
        "\ntombolo_info{site=\"east\",gateway=\"gw\",version=\"0.1.0\"} 1\n",
        "\ntombolo_store_ok 1\n",
        "\ntombolo_uptime_seconds 1.5\n",
        "\ntombolo_arena_bytes 1000\n",
        "\ntombolo_table_refused_total{table=\"copies\"} 3\n",
        "\ntombolo_link_up{peer=\"west\"} 1\n",
        "\ntombolo_link_up{peer=\"north\"} 0\n",
        "\ntombolo_link_reason{peer=\"north\",reason=\"tls-failed\"} 1\n",
        "\ntombolo_link_rtt_seconds{peer=\"west\"} 0.080",
        "\ntombolo_link_limit_bytes_per_second{peer=\"west\"} 125000\n",
        "\ntombolo_chunks_bad_total 4\n",
        "\ntombolo_refusals_total{what=\"links_refused\"} 6\n",
        NULL,
    };
    expect_lines(text, lines);
    assert_int_equal(times(text, "tombolo_link_reason{peer=\"west\""), 0);
    assert_null(strstr(text, "Bad name"));
    assert_null(strstr(text, "what=\"chunks_bad\""));
    assert_int_equal(times(text, "# TYPE tombolo_link_up gauge\n"), 1);
    free(text);
}

static char *of_streams(const char *status_text, const char *streams_text)
{
    char *text = NULL;
    size_t count = 0;
    json_t *status = json_loads(status_text, 0, NULL), *streams = json_loads(streams_text, 0, NULL);
    assert_true(status != NULL && streams != NULL);
    FILE *out = open_memstream(&text, &count);
    assert_non_null(out);
    tb_metrics_write(out, &(struct tb_web_facts){.status = status, .streams = streams});
    assert_int_equal(fclose(out), 0);
    json_decref(status);
    json_decref(streams);
    return text;
}

static void the_way_of_bytes_has_its_series(void **state)
{
    (void)state;
    char *text = of_streams(
        "{\"links\": [{\"site\": \"west\", \"state\": \"up\", \"sent_raw_bytes\": 100, \"sent_bytes\": 30,"
        " \"hedged_bytes\": 4, \"again_bytes\": 3, \"certificate_days_left\": 80,"
        " \"codec\": {\"chunks\": {\"raw\": 2, \"gaps\": 9, \"x\": null}}},"
        " {\"site\": \"north\", \"state\": \"dialling\", \"certificate_days_left\": null}]}",
        "{\"links\": [{\"site\": \"west\", \"used\": 4, \"wanted\": 5, \"retransmitted_bytes\": 6,"
        " \"queued_parcels\": 1, \"limited_by\": \"network\"}]}");
    static const char *const lines[] = {
        "\ntombolo_link_resent_bytes_total{peer=\"west\"} 7\n",
        "\n# TYPE tombolo_link_saved_bytes gauge\ntombolo_link_saved_bytes{peer=\"west\"} 70\n",
        "\ntombolo_link_wire_bytes_total{peer=\"west\"} 36\n",
        "\ntombolo_link_codec_chunks_total{peer=\"west\",way=\"gaps\"} 9\n",
        "\ntombolo_link_certificate_left_seconds{peer=\"west\"} 6912000\n",
        "\ntombolo_link_streams_wanted{peer=\"west\"} 5\n",
        "\ntombolo_link_retransmitted_bytes_total{peer=\"west\"} 6\n",
        "\ntombolo_link_limited_by{peer=\"west\",limit=\"network\"} 1\n",
        NULL,
    };
    expect_lines(text, lines);
    assert_int_equal(times(text, "tombolo_link_wire_bytes_total{peer=\"north\""), 0);
    assert_int_equal(times(text, "tombolo_link_certificate_left_seconds{peer=\"north\""), 0);
    assert_int_equal(times(text, "way=\"x\""), 0);
    free(text);
}

/* A chunk counts as decoded bytes at once and as sent ones while it drains, so a difference of them
 * falls. Prometheus takes a counter that falls for one that began anew. */
static void a_value_that_falls_is_no_counter(void **state)
{
    (void)state;
    static const char *const sent[] = {"30", "40", "120"};
    for (size_t i = 0; i < sizeof sent / sizeof sent[0]; i++) {
        char status[256], wanted[128];
        (void)snprintf(status, sizeof status,
                       "{\"links\": [{\"site\": \"west\", \"sent_raw_bytes\": 100, \"sent_bytes\": %s}]}",
                       sent[i]);
        (void)snprintf(wanted, sizeof wanted, "\ntombolo_link_saved_bytes{peer=\"west\"} %d\n",
                       100 - atoi(sent[i]));
        char *text = of_streams(status, "{}");
        expect_lines(text, (const char *const[]){wanted, NULL});
        assert_null(strstr(text, "saved_bytes_total"));
        assert_null(strstr(text, "saved_bytes counter"));
        free(text);
    }
}

/* The stall of a group is that of its slowest member, and a member that said nothing is
 * unproven. */
static void a_group_has_the_worst_of_its_members(void **state)
{
    (void)state;
    char *text = written(
        "{\"groups\": [{\"model\": \"p\", \"group\": \"g\", \"members\": 3, \"present\": 3}, null],"
        " \"sessions\": [{\"updates\": [{\"model\": \"p\", \"group\": \"g\", \"stall_ms\": 5.0},"
        "   {\"model\": \"p\", \"group\": \"other\", \"stall_ms\": 500.0}],"
        "   \"serving\": [{\"model\": \"p\", \"group\": \"g\", \"proof\": {\"verdict\": \"proven by "
        "box\"}}]},"
        "  {\"updates\": [{\"model\": \"p\", \"group\": \"g\", \"stall_ms\": 250.0}],"
        "   \"serving\": [{\"model\": \"p\", \"group\": \"g\", \"proof\": {\"verdict\": \"differs\"}}]},"
        "  {\"serving\": [{\"model\": \"p\", \"group\": \"g\", \"proof\": null}]}]}",
        NULL, NULL);
    static const char *const lines[] = {
        "\ntombolo_group_stall_seconds{model=\"p\",group=\"g\"} 0.25\n",
        "\ntombolo_group_present{model=\"p\",group=\"g\"} 3\n",
        "\ntombolo_group_proven{model=\"p\",group=\"g\"} 1\n",
        "\ntombolo_group_differs{model=\"p\",group=\"g\"} 1\n",
        "\ntombolo_group_unproven{model=\"p\",group=\"g\"} 1\n",
        NULL,
    };
    expect_lines(text, lines);
    assert_int_equal(times(text, "tombolo_group_staged_bytes{"), 0);
    free(text);
}

static void an_unknown_value_has_no_series(void **state)
{
    (void)state;
    char *text =
        written("{}",
                "{\"lag\": [{\"model\": \"p\", \"site\": \"west\", \"known\": false, \"versions\": null,"
                " \"seconds\": null, \"reason\": \"link-down\"},"
                " {\"model\": \"p\", \"site\": \"east\", \"known\": true, \"versions\": 0,"
                " \"seconds\": 0.0, \"reason\": \"up-to-date\"}]}",
                NULL);
    static const char *const lines[] = {
        "\ntombolo_lag_known{model=\"p\",site=\"west\"} 0\n",
        "\ntombolo_lag_known{model=\"p\",site=\"east\"} 1\n",
        "\ntombolo_lag_seconds{model=\"p\",site=\"east\"} 0\n",
        "\ntombolo_lag_reason{model=\"p\",site=\"west\",reason=\"link-down\"} 1\n",
        NULL,
    };
    expect_lines(text, lines);
    assert_int_equal(times(text, "tombolo_lag_versions{"), 1);
    assert_int_equal(times(text, "tombolo_lag_seconds{"), 1);
    free(text);
}

static void a_name_cannot_end_its_label(void **state)
{
    (void)state;
    char *text = written(
        "{}",
        "{\"lag\": [{\"model\": \"a\\\"} 1\\nb\\\\\", \"site\": \"s\", \"known\": true, \"versions\": 1}]}",
        NULL);
    static const char *const lines[] = {"\ntombolo_lag_versions{model=\"a\\\"} 1\\nb\\\\\",site=\"s\"} 1\n",
                                        NULL};
    expect_lines(text, lines);
    free(text);
}

/* A trainer that publishes for weeks makes no new series. */
static void of_a_model_the_newest_version_counts(void **state)
{
    (void)state;
    char *text = written("{}", NULL,
                         "{\"versions\": [{\"model\": \"p\", \"number\": 1, \"bytes\": 5},"
                         " {\"model\": \"p\", \"number\": 2, \"bytes\": 6, \"stages\": {\"landing_s\": 0.5,"
                         " \"manifests_s\": null}}, {\"model\": \"q\", \"number\": 1, \"bytes\": 7}]}");
    static const char *const lines[] = {"\ntombolo_version_bytes{model=\"p\"} 6\n",
                                        "\ntombolo_version_bytes{model=\"q\"} 7\n",
                                        "\ntombolo_version_landing_seconds{model=\"p\"} 0.5\n", NULL};
    expect_lines(text, lines);
    assert_int_equal(times(text, "tombolo_version_bytes{"), 2);
    assert_int_equal(times(text, "tombolo_version_manifests_seconds{"), 0);
    free(text);
}

static void another_shape_is_no_series(void **state)
{
    (void)state;
    char *text =
        written("{\"links\": 3, \"tables\": [1, null], \"counters\": [], \"arena\": \"x\", \"site\": 5}",
                "{\"lag\": {\"model\": 1}}", "{\"versions\": [null, 3, {}]}");
    assert_int_equal(times(text, "tombolo_table"), 0);
    assert_int_equal(times(text, "tombolo_lag"), 0);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gateway_that_is_silent_is_not_up),
        cmocka_unit_test(each_field_has_its_series),
        cmocka_unit_test(the_way_of_bytes_has_its_series),
        cmocka_unit_test(a_value_that_falls_is_no_counter),
        cmocka_unit_test(a_group_has_the_worst_of_its_members),
        cmocka_unit_test(an_unknown_value_has_no_series),
        cmocka_unit_test(a_name_cannot_end_its_label),
        cmocka_unit_test(of_a_model_the_newest_version_counts),
        cmocka_unit_test(another_shape_is_no_series),
    };
    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
