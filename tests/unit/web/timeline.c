/* timeline.c - times of other sites are those that were seen, and unknown where nobody looked;
 * bytes are spread over the time in which they were counted; a page of 200 sites by 50 models is
 * small.
 *
 * Covers: gateway/web/sightings.c gateway/web/throughput.c gateway/web/page_timeline.c
 * Covers: gateway/web/page_throughput.c gateway/web/site_matrix.c */
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "gateway/web/sightings.h"
#include "gateway/web/throughput.h"
#include "tests/unit/check.h"
#include "tests/unit/web/pages.h"

static json_t *parsed(const char *text)
{
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    return json;
}

/* ---- sightings ---- */

static void see(struct tb_sightings *s, double wall_s, const char *text)
{
    json_t *versions = parsed(text);
    tb_sightings_see(s, wall_s, versions);
    json_decref(versions);
}

static bool about(float value, double wanted)
{
    return (double)value > wanted - 0.01 && (double)value < wanted + 0.01;
}

#define VERSION(held, whole, activated)                                                                      \
    "[{\"uid\": \"a\", \"opened_ms\": 1000000, \"sites\": [{\"site\": \"west\", \"known\": true,"            \
    " \"held_bytes\": " held ", \"whole\": " whole ", \"activated\": " activated "}]}]"
#define UNKNOWN_VERSION                                                                                      \
    "[{\"uid\": \"a\", \"opened_ms\": 1000000, \"sites\": [{\"site\": \"west\", \"known\": false,"           \
    " \"held_bytes\": 0, \"whole\": false, \"activated\": false}]}]"

static void a_time_is_that_of_the_first_answer_that_says_it(void **state)
{
    (void)state;
    struct tb_sightings *s = tb_calloc(1, sizeof *s);
    assert_non_null(s);
    see(s, 999, "[]");
    see(s, 1001, VERSION("5", "false", "false"));
    see(s, 1002, VERSION("9", "true", "false"));
    see(s, 1003, VERSION("9", "true", "false"));
    assert_true(about(tb_sightings_at(s, "a", "west", TB_SIGHTING_SOME), 1));
    assert_true(about(tb_sightings_at(s, "a", "west", TB_SIGHTING_WHOLE), 2));
    assert_true(about(tb_sightings_at(s, "a", "west", TB_SIGHTING_ACTIVE), 0));
    assert_true(about(tb_sightings_at(s, "a", "north", TB_SIGHTING_SOME), 0));
    tb_free(s);
}

static void an_event_that_nobody_saw_has_no_time(void **state)
{
    (void)state;
    struct tb_sightings *s = tb_calloc(1, sizeof *s);
    assert_non_null(s);
    see(s, 1001, VERSION("5", "false", "false")); /* the first answer */
    see(s, 1002, VERSION("9", "true", "false"));
    see(s, 1002 + TB_SIGHTING_GAP_S + 1, VERSION("9", "true", "true"));
    assert_true(tb_sightings_at(s, "a", "west", TB_SIGHTING_SOME) < 0);
    assert_true(about(tb_sightings_at(s, "a", "west", TB_SIGHTING_WHOLE), 2));
    assert_true(tb_sightings_at(s, "a", "west", TB_SIGHTING_ACTIVE) < 0);
    tb_free(s);
}

/* During an outage nothing is known of a site; its end is no time of arrival. */
static void an_event_during_an_outage_has_no_time(void **state)
{
    (void)state;
    struct tb_sightings *s = tb_calloc(1, sizeof *s);
    assert_non_null(s);
    see(s, 1001, VERSION("5", "false", "false"));
    see(s, 1002, UNKNOWN_VERSION);
    see(s, 1030, VERSION("9", "true", "false"));
    assert_true(tb_sightings_at(s, "a", "west", TB_SIGHTING_WHOLE) < 0);
    see(s, 1031, VERSION("9", "true", "true")); /* this was seen */
    assert_true(about(tb_sightings_at(s, "a", "west", TB_SIGHTING_ACTIVE), 31));
    tb_free(s);
}

/* A site or a version that the answer before did not name may have stood so for long. */
static void an_old_version_that_is_new_to_an_answer_has_no_time(void **state)
{
    (void)state;
    struct tb_sightings *s = tb_calloc(1, sizeof *s);
    assert_non_null(s);
    see(s, 5000, "[]");
    see(s, 5001, VERSION("9", "true", "false")); /* opened at 1000 */
    assert_true(tb_sightings_at(s, "a", "west", TB_SIGHTING_WHOLE) < 0);
    see(s, 5002, VERSION("9", "true", "true"));
    assert_true(about(tb_sightings_at(s, "a", "west", TB_SIGHTING_ACTIVE), 4002));
    see(s, 5003, "[]");
    see(s, 5004,
        "[{\"uid\": \"a\", \"opened_ms\": 1000000, \"sites\": [{\"site\": \"south\", \"known\": true,"
        " \"held_bytes\": 3}]}]");
    assert_true(tb_sightings_at(s, "a", "south", TB_SIGHTING_SOME) < 0);
    tb_free(s);
}

static json_t *a_version(const char *uid, double opened_s, int whole)
{
    return json_pack("{s:s, s:f, s:[{s:s, s:b, s:b}]}", "uid", uid, "opened_ms", opened_s * 1e3, "sites",
                     "site", "west", "known", 1, "whole", whole);
}

/* An old version stays in each answer while others come and go: its row is not taken. */
static void a_version_that_stays_keeps_its_row(void **state)
{
    (void)state;
    struct tb_sightings *s = tb_calloc(1, sizeof *s);
    assert_non_null(s);
    for (int v = 0; v < 600; v++) {
        char uid[16];
        (void)snprintf(uid, sizeof uid, "u%d", v);
        json_t *versions = json_array();
        assert_int_equal(json_array_append_new(versions, a_version("old", 1000, v >= 1)), 0);
        assert_int_equal(json_array_append_new(versions, a_version(uid, 1000 + v, 1)), 0);
        tb_sightings_see(s, 1001 + v, versions);
        json_decref(versions);
    }
    assert_true(about(tb_sightings_at(s, "old", "west", TB_SIGHTING_WHOLE), 2));
    assert_true(about(tb_sightings_at(s, "u599", "west", TB_SIGHTING_WHOLE), 1));
    tb_free(s);
}

static void rows_and_sites_are_bounded(void **state)
{
    (void)state;
    struct tb_sightings *s = tb_calloc(1, sizeof *s);
    json_t *versions = json_array();
    assert_true(s != NULL && versions != NULL);
    for (int v = 0; v < 300; v++) {
        char uid[16], site[16];
        (void)snprintf(uid, sizeof uid, "u%d", v);
        (void)snprintf(site, sizeof site, "s%d", v);
        assert_int_equal(
            json_array_append_new(versions, json_pack("{s:s, s:I, s:[{s:s, s:b}]}", "uid", uid, "opened_ms",
                                                      (json_int_t)1000, "sites", "site", site, "whole", 1)),
            0);
    }
    tb_sightings_see(s, 0.5, versions);
    tb_sightings_see(s, 3, versions);
    assert_true(tb_sightings_at(s, "u299", "s299", TB_SIGHTING_WHOLE) <= 0);
    assert_int_equal(s->site_count, TB_SIGHTING_SITES_MAX);
    json_decref(versions);
    tb_free(s);
}

static void the_page_tells_seen_times_from_unknown_ones(void **state)
{
    (void)state;
    struct tb_sightings *s = tb_calloc(1, sizeof *s);
    assert_non_null(s);
    see(s, 999, "[]");
    see(s, 1002, VERSION("9", "true", "false"));
    static const char text[] =
        "{\"versions\": [{\"uid\": \"a\", \"model\": \"p\", \"run\": 1, \"number\": 7, \"bytes\": 10, "
        "\"whole_s\": 0.5,"
        " \"opened_ms\": 1000000, \"stages\": {\"queued_s\": null, \"landing_s\": 0.5}, \"sites\": "
        "[{\"site\":"
        " \"west\", \"known\": true, \"whole\": true, \"held_bytes\": 10, \"activated\": true}, {\"site\": "
        "\"south\","
        " \"known\": true, \"held_bytes\": 5}, {\"site\": \"north\", \"known\": false}]}]}";
    char *page = page_of(&(struct answers_text){.status = "{\"site\": \"east\", \"store_ok\": true}",
                                                .lag = "{\"lag\": []}",
                                                .versions = text,
                                                .sightings = s,
                                                .wall_ms = 1010000},
                         "/versions");
    expect_words(page, "<h3>p 1:7 <small>");
    expect_words(page, "opened 10 s ago");
    expect_words(page, "whole in 500 ms <small>landing 500 ms</small>");
    expect_words(page, "<td>whole after 2.0 s, in use (when: unknown)</td>");
    expect_words(page, "<td>50 %</td>");
    expect_words(page, "unknown: nothing is heard of it now");
    free(page);
    tb_free(s);
}

/* ---- throughput ---- */

static void count(struct tb_throughput *t, double now_s, const char *status, const char *streams)
{
    json_t *s = parsed(status), *r = parsed(streams);
    tb_throughput_see(t, now_s, s);
    tb_throughput_see_streams(t, now_s, r);
    json_decref(s);
    json_decref(r);
}

static const char zero[] = "{\"links\": [{\"sent_raw_bytes\": 0, \"sent_bytes\": 0, \"received_bytes\": 0}]}";
static const char some[] =
    "{\"links\": [{\"sent_raw_bytes\": 1000, \"sent_bytes\": 100, \"received_bytes\": 10},"
    " {\"sent_raw_bytes\": 1000, \"sent_bytes\": 100, \"received_bytes\": 10}]}";
static const char again[] = "{\"links\": [{\"retransmitted_bytes\": 50}]}";

static void bytes_are_spread_over_their_time(void **state)
{
    (void)state;
    struct tb_throughput *t = tb_calloc(1, sizeof *t);
    double rates[TB_FLOWS];
    assert_non_null(t);
    count(t, 1000, zero, "{\"links\": []}");
    assert_false(tb_throughput_at(t, 1000, 0, rates));
    count(t, 1010, some, again);
    for (uint32_t back = 1; back <= 2; back++) {
        assert_true(tb_throughput_at(t, 1010, back, rates));
        assert_true(rates[TB_FLOW_LOGICAL] > 199 && rates[TB_FLOW_LOGICAL] < 201);
        assert_true(rates[TB_FLOW_ENCODED] > 19.9 && rates[TB_FLOW_ENCODED] < 20.1);
        assert_true(rates[TB_FLOW_WIRE] > 24.9 && rates[TB_FLOW_WIRE] < 25.1);
        assert_true(rates[TB_FLOW_RECEIVED] > 1.9 && rates[TB_FLOW_RECEIVED] < 2.1);
    }
    assert_false(tb_throughput_at(t, 1010, 3, rates));
    assert_false(tb_throughput_at(t, 1010 + 900, 1, rates)); /* a ring: that slot is another one now */
    tb_free(t);
}

/* The streams' answer begins to come later than status, and less often. */
static void bytes_from_before_the_first_look_are_none_of_now(void **state)
{
    (void)state;
    struct tb_throughput *t = tb_calloc(1, sizeof *t);
    static const char hours[] = "{\"links\": [{\"retransmitted_bytes\": 1000000}]}";
    static const char more[] = "{\"links\": [{\"retransmitted_bytes\": 1000050}]}";
    double rates[TB_FLOWS];
    assert_non_null(t);
    json_t *status = parsed(zero);
    tb_throughput_see(t, 1000, status); /* nobody asked for streams */
    json_decref(status);
    count(t, 1005, zero, hours);
    assert_true(tb_throughput_at(t, 1005, 1, rates));
    assert_true(rates[TB_FLOW_WIRE] < 1);
    count(t, 1010, zero, more);
    assert_true(tb_throughput_at(t, 1010, 1, rates));
    assert_true(rates[TB_FLOW_WIRE] > 9.9 && rates[TB_FLOW_WIRE] < 10.1);
    count(t, 1015, zero, "{}"); /* an answer without links knows nothing */
    count(t, 1020, zero, hours);
    assert_true(tb_throughput_at(t, 1020, 1, rates));
    assert_true(rates[TB_FLOW_WIRE] < 1);
    tb_free(t);
}

static void a_gateway_that_begins_anew_carries_nothing_back(void **state)
{
    (void)state;
    struct tb_throughput *t = tb_calloc(1, sizeof *t);
    double rates[TB_FLOWS];
    assert_non_null(t);
    count(t, 1000, some, "{}");
    count(t, 1005, zero, "{}");
    assert_false(tb_throughput_at(t, 1005, 1, rates));
    count(t, 1010, some, "{}");
    assert_true(tb_throughput_at(t, 1010, 1, rates));
    count(t, 5000, some, "{}"); /* an hour in which nobody looked */
    assert_false(tb_throughput_at(t, 5000, 1, rates));
    tb_free(t);
}

/* ---- a large fleet ---- */

#define SITES  200
#define MODELS 50

static char *fleet(void)
{
    json_t *rows = json_array();
    assert_non_null(rows);
    for (int site = 0; site < SITES; site++)
        for (int model = 0; model < MODELS; model++) {
            char name[32], of[32];
            (void)snprintf(name, sizeof name, "site-%03d", site);
            (void)snprintf(of, sizeof of, "model-%02d", model);
            const int behind = (site * MODELS + model) % 7 == 0 ? 2 : 0;
            assert_int_equal(
                json_array_append_new(
                    rows,
                    json_pack("{s:s, s:s, s:b, s:i, s:i, s:i, s:s, s:s, s:s, s:f}", "model", of, "site", name,
                              "known", 1, "versions", behind, "seconds", behind * 20, "bytes", behind * 1000,
                              "reason", behind > 0 ? "crossing" : "up-to-date", "why", "it is on its way",
                              "evidence", "the link carries 80 Mbit/s, its rtt is 81 ms, no limit", "heard_s",
                              1.0)),
                0);
        }
    json_t *answer = json_pack("{s:o}", "lag", rows);
    char *text = json_dumps(answer, JSON_COMPACT);
    json_decref(answer);
    assert_non_null(text);
    return text;
}

static void a_page_of_200_sites_by_50_models_is_below_100_kb(void **state)
{
    (void)state;
    static const char *const paths[] = {"/", "/sites", "/sites/8"};
    char *lag = fleet();
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        char *page = page_of(
            &(struct answers_text){.status = "{\"site\": \"site-000\", \"store_ok\": true}", .lag = lag},
            paths[i]);
        if (strlen(page) >= 100000) fail_msg("%s has %zu bytes", paths[i], strlen(page));
        expect_words(page, "model-49");
        free(page);
    }
    char *page =
        page_of(&(struct answers_text){.status = "{\"site\": \"site-000\", \"store_ok\": true}", .lag = lag},
                "/sites/8");
    expect_words(page, "site-199</th>");
    expect_words(page, "<a href=\"/sites/8\" aria-current=\"page\">8</a>");
    free(page);
    free(lag);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_time_is_that_of_the_first_answer_that_says_it),
        cmocka_unit_test(an_event_that_nobody_saw_has_no_time),
        cmocka_unit_test(an_event_during_an_outage_has_no_time),
        cmocka_unit_test(an_old_version_that_is_new_to_an_answer_has_no_time),
        cmocka_unit_test(a_version_that_stays_keeps_its_row),
        cmocka_unit_test(rows_and_sites_are_bounded),
        cmocka_unit_test(the_page_tells_seen_times_from_unknown_ones),
        cmocka_unit_test(bytes_are_spread_over_their_time),
        cmocka_unit_test(bytes_from_before_the_first_look_are_none_of_now),
        cmocka_unit_test(a_gateway_that_begins_anew_carries_nothing_back),
        cmocka_unit_test(a_page_of_200_sites_by_50_models_is_below_100_kb),
    };
    return cmocka_run_group_tests_name("timeline", tests, NULL, NULL);
}
