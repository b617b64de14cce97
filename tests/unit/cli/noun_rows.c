/* noun_rows.c - rows of sites, peers, models and the others say what the gateway's answers say. A
 * number that is not known there is not known here, and any answer of a stranger is borne (P10).
 *
 * Covers: gateway/cli/operator/noun_rows.c gateway/cli/operator/noun_sites.c
 * Covers: gateway/cli/operator/noun_versions.c
 * Covers: gateway/cli/operator/noun_workers.c gateway/cli/operator/noun_chains.c */
#include "tests/unit/cli/noun_views.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit/check.h"

static json_t *answer(const char *text)
{
    json_error_t where;
    json_t *object = json_loads(text, JSON_DECODE_ANY, &where);
    if (object == NULL) fail_msg("%s: %s", where.text, text);
    return object;
}

static void free_answers(struct tb_answers *a)
{
    json_decref(a->status);
    json_decref(a->lag);
    json_decref(a->versions);
    json_decref(a->streams);
    json_decref(a->chains);
}

/* Takes the list: its rows, but for fields that a table does not show, are these. */
static void expect_rows(struct tb_rows rows, const char *expected)
{
    assert_false(rows.lacking);
    char *found = json_dumps(rows.list, JSON_COMPACT | JSON_SORT_KEYS);
    json_t *wanted = answer(expected);
    char *text = json_dumps(wanted, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(found, text);
    free(found);
    free(text);
    json_decref(wanted);
    json_decref(rows.list);
}

#define LAG(model, site, via, rest)                                                                          \
    "{\"model\":\"" model "\",\"site\":\"" site "\",\"home\":\"east\",\"via\":\"" via "\"," rest "}"
#define KNOWN(versions, seconds, reason)                                                                     \
    "\"known\":true,\"heard_s\":1.0,\"head\":\"1:9\",\"latest\":\"1:8\",\"active\":null,"                    \
    "\"versions\":" versions ",\"bytes\":5,\"seconds\":" seconds ",\"eta_s\":null,\"reason\":\"" reason "\""
#define SILENT                                                                                               \
    "\"known\":false,\"heard_s\":null,\"head\":\"1:9\",\"latest\":null,\"active\":null,\"versions\":null,"   \
    "\"bytes\":null,\"seconds\":null,\"eta_s\":null,\"reason\":\"link-down\""

static struct tb_answers three_sites(void)
{
    return (struct tb_answers){
        .status =
            answer("{\"site\":\"east\",\"gateway\":\"gw\",\"links\":[{\"site\":\"west\",\"state\":\"up\","
                   "\"since_s\":5.0,\"rtt_ms\":80.5,\"gateway\":\"gw1\",\"reason\":\"\"},"
                   "{\"site\":\"mars\",\"state\":\"dialling\",\"since_s\":1.0,\"rtt_ms\":0,"
                   "\"gateway\":\"\",\"reason\":\"dns-failed\"}]}"),
        .lag = answer("{\"lag\":[" LAG("a", "east", "east", KNOWN("0", "0.0", "up-to-date")) "," LAG(
            "a", "west", "west",
            KNOWN("0", "0.0", "up-to-date")) "," LAG("b", "west", "west",
                                                     KNOWN("2", "7.5", "crossing")) "," LAG("a", "north",
                                                                                            "west",
                                                                                            SILENT) "]}")};
}

static void a_site_is_shown_by_its_worst_model(void **state)
{
    (void)state;
    struct tb_answers a = three_sites();
    expect_rows(tb_rows_of_sites(&a),
                "[{\"site\":\"east\",\"name\":\"east\",\"link\":\"here\",\"gateway\":\"gw\",\"models\":1,"
                "\"behind\":0,\"reason\":\"up-to-date\",\"model\":\"a\",\"seconds\":0.0,\"heard_s\":1.0},"
                "{\"site\":\"west\",\"name\":\"west\",\"link\":\"up\",\"gateway\":\"gw1\",\"since_s\":5.0,"
                "\"rtt_ms\":80.5,\"models\":2,\"behind\":1,\"reason\":\"crossing\",\"model\":\"b\","
                "\"seconds\":7.5,\"heard_s\":1.0},"
                "{\"site\":\"mars\",\"name\":\"mars\",\"link\":\"dialling\",\"gateway\":\"\",\"since_s\":1.0,"
                "\"reason\":\"dns-failed\",\"behind\":null,\"seconds\":null},"
                "{\"site\":\"north\",\"name\":\"north\",\"link\":\"relayed\",\"via\":\"west\",\"models\":1,"
                "\"unknown\":1,\"reason\":\"link-down\",\"model\":\"a\",\"seconds\":null,\"heard_s\":null,"
                "\"behind\":null}]");
    free_answers(&a);
}

static void a_row_of_lag_tells_none_from_not_known(void **state)
{
    (void)state;
    struct tb_answers a = {
        .lag = answer("{\"lag\":[" LAG("b", "west", "west", KNOWN("2", "7.5", "crossing")) "," LAG(
            "a", "north", "west", SILENT) "," LAG("a", "east", "east",
                                                  KNOWN("0", "0.0", "up-to-date")) "]}")};
    expect_rows(tb_rows_of_lag(&a),
                "[{\"model\":\"b\",\"site\":\"west\",\"home\":\"east\",\"head\":\"1:9\",\"latest\":\"1:8\","
                "\"versions\":2,\"bytes\":5,\"seconds\":7.5,\"eta_s\":null,\"reason\":\"crossing\"},"
                "{\"model\":\"a\",\"site\":\"north\",\"home\":\"east\",\"head\":\"1:9\",\"versions\":null,"
                "\"bytes\":null,\"seconds\":null,\"eta_s\":null,\"reason\":\"link-down\",\"relay\":\"west\","
                "\"silent_s\":null},"
                "{\"model\":\"a\",\"site\":\"east\",\"home\":\"east\",\"head\":\"1:9\",\"latest\":\"1:8\","
                "\"versions\":0,\"bytes\":5,\"seconds\":0.0,\"reason\":\"up-to-date\"}]");
    free_answers(&a);
}

static void a_model_counts_its_followers(void **state)
{
    (void)state;
    struct tb_answers a = three_sites();
    json_object_set_new(
        a.status, "models",
        answer("[{\"model\":\"a\",\"home\":\"east\",\"from\":[],\"runs\":[{},{}],\"head\":\"1:9\","
               "\"latest\":\"1:9\",\"pin\":{\"version\":\"1:8\",\"who\":\"ann\"},\"known\":true,"
               "\"reason\":\"pinned\",\"lag_versions\":1,\"lag_bytes\":7,\"lag_s\":2.0}]"));
    expect_rows(tb_rows_of_models(&a),
                "[{\"model\":\"a\",\"name\":\"a\",\"home\":\"east\",\"head\":\"1:9\",\"latest\":\"1:9\","
                "\"pinned\":\"1:8\",\"pinned_by\":\"ann\",\"versions\":1,\"bytes\":7,\"seconds\":2.0,"
                "\"reason\":\"pinned\",\"runs\":2,\"sites\":2,\"sites_behind\":0,\"sites_unknown\":1}]");
    free_answers(&a);
}

static void a_version_counts_its_holders(void **state)
{
    (void)state;
    struct tb_answers a = {
        .versions =
            answer("{\"versions\":[{\"model\":\"a\",\"run\":1,\"number\":9,\"uid\":\"u\",\"state\":\"kept\","
                   "\"bytes\":200,\"held_bytes\":199,\"eta_s\":[1,2],\"error\":\"\",\"pinned\":false,"
                   "\"pinned_by\":\"\",\"withdrawn_here\":false,\"stages\":{\"queued_s\":1.5,"
                   "\"landing_s\":null},\"sent\":{\"raw_bytes\":8,\"bytes\":4,\"resent_bytes\":0,"
                   "\"chunks\":{\"raw\":0,\"gaps\":3}},\"workers\":[{\"whole\":true},{\"whole\":false}],"
                   "\"sites\":[{\"site\":\"west\",\"via\":\"west\",\"known\":true,\"whole\":true,"
                   "\"activated\":false,\"held_bytes\":200},{\"site\":\"north\",\"via\":\"west\","
                   "\"known\":false,\"whole\":null,\"activated\":null,\"held_bytes\":null}]}]}")};
    expect_rows(tb_rows_of_versions(&a),
                "[{\"model\":\"a\",\"version\":\"1:9\",\"name\":\"a/1:9\",\"uid\":\"u\",\"state\":\"kept\","
                "\"bytes\":200,\"held_percent\":99,\"eta_s\":[1,2],\"error\":\"\",\"pinned_by\":\"\","
                "\"queued_s\":1.5,\"sent_raw_bytes\":8,\"sent_bytes\":4,\"resent_bytes\":0,"
                "\"encodings\":\"gaps 3\",\"workers\":2,\"workers_whole\":1,\"sites\":2,\"sites_whole\":1,"
                "\"sites_unknown\":1}]");
    expect_rows(tb_rows_of_holders(&a),
                "[{\"model\":\"a\",\"version\":\"1:9\",\"name\":\"a/1:9\",\"site\":\"west\",\"whole\":true,"
                "\"activated\":false,\"held_percent\":100},"
                "{\"model\":\"a\",\"version\":\"1:9\",\"name\":\"a/1:9\",\"site\":\"north\",\"whole\":null,"
                "\"activated\":null,\"held_percent\":null,\"relay\":\"west\"}]");
    a.status = answer("{\"site\":\"east\"}"); /* this site's own copy is the first */
    struct tb_rows own = tb_rows_of_holders(&a);
    assert_int_equal(json_array_size(own.list), 3);
    json_array_remove(own.list, 2);
    json_array_remove(own.list, 1);
    expect_rows(own, "[{\"model\":\"a\",\"version\":\"1:9\",\"name\":\"a/1:9\",\"site\":\"east\","
                     "\"whole\":false,\"held_percent\":99}]");
    free_answers(&a);
}

/* A host that has no name but its boot id is not shown as a name. */
static void workers_and_groups_are_shown(void **state)
{
    (void)state;
    struct tb_answers a = {
        .status =
            answer("{\"sessions\":[{\"name\":\"w0\",\"host\":\"1b4e28ba-2fa1-11d2-883f-0016d3cca427\","
                   "\"connected\":true,\"subscribes\":[\"a\",\"b\"],\"publishes\":[],\"updates\":[],"
                   "\"serving\":[{\"model\":\"a\",\"group\":\"g\",\"rank\":0,\"run\":1,\"number\":9,"
                   "\"proof\":{\"verdict\":\"proven\",\"why\":\"\",\"age_s\":2.5,\"bad\":0}},"
                   "{\"model\":\"b\",\"group\":\"g\",\"rank\":0,\"run\":null,\"number\":null,"
                   "\"proof\":{\"verdict\":\"differs\",\"why\":\"\",\"age_s\":3.5,\"bad\":1,"
                   "\"tensor\":\"t\"}}]},"
                   "{\"name\":\"w1\",\"host\":\"reef\",\"connected\":false,\"serving\":[{\"model\":\"a\","
                   "\"group\":\"g\",\"rank\":1,\"run\":1,\"number\":9,\"proof\":null}]}],"
                   "\"groups\":[{\"model\":\"a\",\"group\":\"g\",\"members\":2,\"present\":1,"
                   "\"active\":\"1:9\",\"activated\":1,\"staging\":null,\"staged_whole\":0}]}")};
    expect_rows(
        tb_rows_of_workers(&a),
        "[{\"worker\":\"w0\",\"name\":\"w0\",\"host\":\"boot:1b4e28ba\",\"state\":\"connected\","
        "\"subscribes\":\"a, b\",\"serving\":\"a 1:9, b ?\",\"proof\":\"differs\",\"proof_age_s\":3.5,"
        "\"bad\":1,\"tensor\":\"t\"},"
        "{\"worker\":\"w1\",\"name\":\"w1\",\"host\":\"reef\",\"state\":\"away\",\"serving\":\"a 1:9\","
        "\"proof\":\"not proven yet\"}]");
    expect_rows(tb_rows_of_groups(&a),
                "[{\"name\":\"a/g\",\"model\":\"a\",\"group\":\"g\",\"members\":2,\"present\":1,"
                "\"active\":\"1:9\",\"activated\":1}]");
    free_answers(&a);
}

/* A worker stands below the one that it reads from, and a cycle hangs nobody. */
static void a_chain_is_a_tree(void **state)
{
    (void)state;
    struct tb_answers a = {
        .chains =
            answer("{\"chains\":[{\"model\":\"a\",\"run\":1,\"number\":9,\"chunks\":4,\"fan_out\":1,"
                   "\"arrival_bytes_per_s\":0,\"feeds\":[{\"source\":\"r0\",\"transport\":\"shm\"}],"
                   "\"left_out\":0,\"members\":[{\"name\":\"gw\",\"host\":\"h\",\"source\":null,"
                   "\"held_chunks\":4,\"whole\":true},{\"name\":\"w1\",\"source\":2,\"held_chunks\":1,"
                   "\"whole\":false,\"transport\":\"tcp\",\"bytes_per_s\":9},{\"name\":\"w0\",\"source\":0,"
                   "\"held_chunks\":2,\"whole\":false,\"slow\":true,\"transport\":\"tcp\"},"
                   "{\"name\":\"x\",\"source\":4,\"transport\":\"tcp\"},{\"name\":\"y\",\"source\":3}]}]}")};
    struct tb_rows rows = tb_rows_of_chains(&a);
    static const char *const members[] = {"gw", "  w0", "    w1"};
    assert_int_equal(json_array_size(rows.list), 3); /* x and y read from each other */
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(json_string_value(json_object_get(json_array_get(rows.list, i), "member")),
                            members[i]);
    const json_t *w0 = json_array_get(rows.list, 1);
    assert_string_equal(json_string_value(json_object_get(w0, "marks")), "slow");
    assert_string_equal(json_string_value(json_object_get(w0, "source")), "gw");
    assert_int_equal(json_integer_value(json_object_get(w0, "held_percent")), 50);
    json_decref(rows.list);
    expect_rows(
        tb_rows_of_chain_totals(&a),
        "[{\"model\":\"a\",\"version\":\"1:9\",\"name\":\"a/1:9\",\"chunks\":4,\"members\":5,\"whole\":1,"
        "\"active\":0,\"slow\":1,\"fan_out\":1,\"feeds\":\"r0 by shm\"}]");
    free_answers(&a);
}

/* Each name of a list is whole, and all of them are there. */
static void a_long_list_is_whole(void **state)
{
    (void)state;
    json_t *names = json_pack("[s]", "");
    for (int i = 0; i < 100; i++)
        assert_int_equal(json_array_append_new(names, json_sprintf("policy-%d", i)), 0);
    struct tb_answers a = {.status = json_pack("{s:[{s:s, s:o}]}", "links", "site", "west", "denied", names)};
    struct tb_rows rows = tb_rows_of_peers(&a);
    const json_t *row = json_array_get(rows.list, 0);
    const char *text = json_string_value(json_object_get(row, "denied"));
    assert_non_null(text);
    assert_memory_equal(text, "policy-0, policy-1, ", 20);
    assert_string_equal(text + strlen(text) - 22, ", policy-98, policy-99");
    char *printed = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&printed, &bytes);
    tb_columns_print(to, tb_columns_of_peers, rows.list, &(struct tb_table_style){.form = TB_TABLE_TSV});
    assert_int_equal(fclose(to), 0);
    assert_non_null(strstr(printed, ", policy-22, ..."));
    assert_null(strstr(printed, "policy-23"));
    free(printed);
    json_decref(rows.list);
    free_answers(&a);
}

static void streams_and_peers_are_shown(void **state)
{
    (void)state;
    struct tb_answers a = {
        .status = answer("{\"links\":[{\"site\":\"west\",\"state\":\"up\",\"rtt_ms\":0,\"streams\":1,"
                         "\"limit\":{\"bit_per_s\":0,\"day_bytes\":10,\"day_used_bytes\":4},"
                         "\"denied\":[\"a\"],\"certificate_days_left\":null}]}"),
        .streams =
            answer("{\"links\":[{\"site\":\"west\",\"limited_by\":\"idle\",\"window\":{\"sysctl\":\"s\","
                   "\"has_bytes\":1,\"needs_bytes\":2},\"streams\":[{\"stream\":3,\"open\":true,"
                   "\"rtt_ms\":1.5,\"limited_by\":\"network\"}]}]}")};
    expect_rows(tb_rows_of_peers(&a),
                "[{\"peer\":\"west\",\"name\":\"west\",\"state\":\"up\",\"streams\":1,\"day_bytes\":10,"
                "\"day_used_bytes\":4,\"denied\":\"a\",\"limited_by\":\"idle\"}]");
    expect_rows(tb_rows_of_streams(&a),
                "[{\"name\":\"west/3\",\"peer\":\"west\",\"stream\":3,\"state\":\"open\",\"rtt_ms\":1.5,"
                "\"limited_by\":\"network\",\"sysctl\":\"s\",\"has_bytes\":1,\"needs_bytes\":2}]");
    free_answers(&a);
}

/* Answers that are not as docs/control.md says make rows, or none, and a table that is printed. */
static void a_strangers_answer_is_borne(void **state)
{
    (void)state;
    static const char *const lists[] = {
        "null",
        "7",
        "\"x\"",
        "{}",
        "[1,null,\"x\",[],{}]",
        "[{\"site\":7,\"name\":[],\"model\":{},\"sites\":[1],\"workers\":[null],"
        "\"streams\":[3],\"members\":[5,{\"source\":99},{\"source\":-1}],"
        "\"serving\":[{\"proof\":{}}],\"chunks\":\"many\",\"window\":[],"
        "\"limit\":0,\"run\":{},\"number\":[],\"feeds\":[0]}]"};
    static const char *const names[] = {"links", "models", "sessions", "groups", "lag", "versions", "chains"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        json_t *any = json_object();
        FILE *to = fopen("/dev/null", "w");
        assert_non_null(to);
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            assert_int_equal(json_object_set_new(any, names[k], answer(lists[i])), 0);
        const struct tb_answers a = {any, any, any, any, any};
        for (size_t k = 0; k < NOUN_VIEWS; k++) {
            const struct noun_view *view = &noun_views[k];
            struct tb_rows rows = view->rows(&a);
            assert_false(rows.lacking);
            tb_columns_print(to, view->columns, rows.list, &(struct tb_table_style){TB_TABLE_FIT, true, 40});
            json_decref(rows.list);
        }
        json_decref(any);
        assert_int_equal(fclose(to), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_site_is_shown_by_its_worst_model),
        cmocka_unit_test(a_row_of_lag_tells_none_from_not_known),
        cmocka_unit_test(a_model_counts_its_followers),
        cmocka_unit_test(a_version_counts_its_holders),
        cmocka_unit_test(workers_and_groups_are_shown),
        cmocka_unit_test(a_chain_is_a_tree),
        cmocka_unit_test(a_long_list_is_whole),
        cmocka_unit_test(streams_and_peers_are_shown),
        cmocka_unit_test(a_strangers_answer_is_borne),
    };
    return cmocka_run_group_tests_name("unit.cli.noun_rows", tests, NULL, NULL);
}
