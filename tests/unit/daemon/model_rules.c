/* model_rules.c - which row of `models` counts for a name: its own, or the first pattern that
 * matches it, in the order of the file, also after reloads.
 *
 * Covers: gateway/config/model_rules.c gateway/config/config_merge.c
 * Covers: gateway/config/config_write.c */
#include "gateway/config/model_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gateway/config/config_difference.h"
#include "tests/unit/check.h"

#define LEAST "site: west\narena: {bytes: 16MiB}\n"

struct said {
    char first[512];
    uint32_t count;
};

static void complain(void *user, const char *line)
{
    struct said *s = user;
    if (s->count++ == 0) (void)snprintf(s->first, sizeof s->first, "%s", line);
}

static struct tb_config *parse(const char *lines, struct said *s)
{
    char text[4096];
    struct tb_config *config = NULL;
    memset(s, 0, sizeof *s);
    assert_true(snprintf(text, sizeof text, LEAST "%s", lines) < (int)sizeof text);
    const enum tb_status status = tb_config_parse("w.yaml", text, strlen(text), complain, s, &config);
    assert_int_equal(status, s->count == 0 ? TB_OK : TB_SITE_CONFIG);
    return config;
}

static struct tb_config *good(const char *lines)
{
    struct said s;
    struct tb_config *c = parse(lines, &s);
    assert_string_equal(s.first, "");
    return c;
}

static void bad(const char *lines, const char *words)
{
    struct said s;
    assert_null(parse(lines, &s));
    if (strstr(s.first, words) == NULL) fail_msg("\"%s\" does not say \"%s\"", s.first, words);
}

/* The key of the row that counts; "": none. */
static const char *row_for(const struct tb_config *c, const char *model)
{
    struct tb_name name;
    CHECK_OK(tb_name_set(&name, model));
    const struct tb_config_model *m = tb_config_model_for(c, &name);
    return m != NULL ? m->name.text : "";
}

static void a_star_is_any_number_of_characters(void **state)
{
    static const struct {
        const char *pattern, *name;
        bool matches;
    } rows[] = {
        {"policy-*", "policy-7", true},
        {"policy-*", "policy-", true},
        {"policy-*", "policy", false},
        {"*", "x", true},
        {"*-7", "a-b-7", true},
        {"*-7", "a-7-b", false},
        {"a*b*c", "abc", true},
        {"a*b*c", "axxbyyc", true},
        {"a*b*c", "axxbyy", false},
        {"a*b*c", "abcbc", true},
        {"lora-*-eu", "lora-eu", false},
        {"lora-*-eu", "lora--eu", true},
        {"**", "anything", true},
        {"a*", "b", false},
        {"*a", "aab", false},
        {"policy-*", "policy-eu-*", true},
        {"policy-*", "poli*", false},
        {"a*b", "a*c*b", true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (tb_model_pattern_matches(rows[i].pattern, rows[i].name) != rows[i].matches)
            fail_msg("%s and %s", rows[i].pattern, rows[i].name);
    assert_true(tb_model_pattern_valid("a*") && tb_model_pattern_valid("*"));
    assert_false(tb_model_pattern_valid("a") || tb_model_pattern_valid("") || tb_model_pattern_valid("a/*"));
    char text[TB_NAME_BYTES_MAX + 2];
    memset(text, '*', sizeof text);
    text[TB_NAME_BYTES_MAX + 1] = '\0';
    assert_false(tb_model_pattern_valid(text));
    text[TB_NAME_BYTES_MAX] = '\0';
    assert_true(tb_model_pattern_valid(text));
}

static void the_first_match_of_the_file_counts(void **state)
{
    (void)state;
    struct tb_config *c =
        good("models: {lora-best: {home: west}, lora-eu-*: {home: west, keep: 3}, \"lora-*\": "
             "{home: west, quota: {versions: 8, bytes: 1GiB}}, \"*-tmp\": {home: west}}\n");
    assert_string_equal(row_for(c, "lora-best"), "lora-best");
    assert_string_equal(row_for(c, "lora-eu-1"), "lora-eu-*");
    assert_string_equal(row_for(c, "lora-1"), "lora-*");
    assert_string_equal(row_for(c, "lora-tmp"), "lora-*");
    assert_string_equal(row_for(c, "x-tmp"), "*-tmp");
    assert_string_equal(row_for(c, "other"), "");
    assert_int_equal(c->models[2].quota_versions, 8);
    assert_int_equal(c->models[2].quota_bytes, 1u << 30);
    assert_int_equal(c->models[0].quota_versions + c->models[0].quota_bytes, 0);
    tb_config_free(c);
}

static void a_row_that_never_counts_is_refused(void **state)
{
    (void)state;
    bad("models: {\"lora-*\": {home: west}, lora-1: {home: west}}\n",
        "w.yaml:3:34: models.lora-1: never counts");
    bad("models: {\"lora-*\": {home: west}, \"lora-eu-*\": {home: west}}\n",
        "models.lora-eu-*: never counts");
    bad("models: {\"*\": {home: west}, x: {home: west}}\n", "models.* before it matches it");
    bad("models: {\"lo/*\": {home: west}}\n", "one with * in it is a pattern");
    bad("peers: {\"ea*\": {}}\n", "a name is 1 to 64");
}

static void a_subscription_may_be_a_pattern(void **state)
{
    static const char peers[] = "tls: {ca: a, cert: b, key: c}\npeers: {east: {address: \"gw.east:7400\"}}\n";
    char text[1024];
    struct tb_name name;
    (void)state;
    (void)snprintf(text, sizeof text,
                   "%smodels: {\"lora-*\": {home: east}}\nsubscribe: [{model: lora-7, from: [east]}, {model: "
                   "\"lora-eu-*\", from: [east]}]\n",
                   peers);
    struct tb_config *c = good(text);
    CHECK_OK(tb_name_set(&name, "lora-7"));
    assert_ptr_equal(tb_config_subscribe_for(c, &name), &c->subscribe[0]);
    CHECK_OK(tb_name_set(&name, "lora-eu-1"));
    assert_ptr_equal(tb_config_subscribe_for(c, &name), &c->subscribe[1]);
    CHECK_OK(tb_name_set(&name, "lora-us-1"));
    assert_null(tb_config_subscribe_for(c, &name));
    tb_config_free(c);
    (void)snprintf(text, sizeof text,
                   "%smodels: {\"lora-*\": {home: east}}\nsubscribe: [{model: \"lo*\", from: [east]}]\n",
                   peers);
    bad(text, "subscribe: model \"lo*\": is not one of models");
}

static struct tb_config *merged(const struct tb_config *was, const struct tb_config *is, uint32_t live)
{
    struct tb_config_difference d;
    struct tb_config *m = NULL;
    CHECK_OK(tb_config_differ(was, is, NULL, &d));
    assert_int_equal(d.live, live);
    assert_int_equal(d.restart, 0);
    CHECK_OK(tb_config_merge(was, is, &d, &m));
    tb_config_difference_free(&d);
    return m;
}

/* Rows stay where they are; the order in which patterns match is the new file's. */
static void a_reload_keeps_the_order_of_the_file(void **state)
{
    (void)state;
    struct tb_config *a = good("models: {\"a*\": {home: west}, \"*z\": {home: west}}\n");
    struct tb_config *b = good("models: {\"*z\": {home: west}, \"a*\": {home: west}}\n");
    struct tb_config *c = good("models: {az: {home: west}, \"*z\": {home: west}, \"a*\": {home: west}}\n");
    assert_string_equal(row_for(a, "abcz"), "a*");
    struct tb_config *ab = merged(a, b, 2);
    assert_string_equal(ab->models[0].name.text, "a*"); /* its row */
    assert_string_equal(row_for(ab, "abcz"), "*z");
    struct tb_config *abc = merged(ab, c, 1); /* one name came; the order of the patterns is the same */
    assert_string_equal(row_for(abc, "abcz"), "*z");
    assert_string_equal(row_for(abc, "az"), "az");
    struct tb_config *back = merged(abc, a, 3);
    assert_string_equal(row_for(back, "abcz"), "a*");
    assert_string_equal(row_for(back, "az"), "az"); /* it left: nobody has a right until the next start */
    assert_true(back->models[2].left);
    struct tb_config *const all[] = {a, b, c, ab, abc, back};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tb_config_free(all[i]);
}

/* `config show` prints of a gateway a file in which the same row counts. */
static void a_written_file_says_the_same(void **state)
{
    struct said s = {.count = 0};
    char *text = NULL;
    size_t bytes = 0;
    (void)state;
    struct tb_config *a =
        good("models: {\"a*\": {home: west}, \"*z\": {home: west, quota: {versions: 3}}}\n");
    struct tb_config *b =
        good("models: {\"*z\": {home: west, quota: {versions: 3}}, \"a*\": {home: west}}\n");
    struct tb_config *ab = merged(a, b, 2), *again = NULL;
    FILE *to = open_memstream(&text, &bytes);
    assert_non_null(to);
    tb_config_write(ab, NULL, true, to);
    assert_int_equal(fclose(to), 0);
    CHECK_OK(tb_config_parse_running(text, bytes, complain, &s, &again));
    assert_string_equal(row_for(again, "abcz"), "*z");
    assert_int_equal(again->models[0].quota_versions, 3);
    free(text);
    struct tb_config *const all[] = {a, b, ab, again};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tb_config_free(all[i]);
}

static void ignore(void *user, const char *line)
{
    (void)user, (void)line;
}

/* Errors are passed over: the certificates are not there. */
static bool warns(const char *model, const char *home, const char *words)
{
    char path[64] = "/tmp/tombolo-config-XXXXXX";
    struct tb_config *config = NULL;
    struct said s = {.count = 0};
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_true(dprintf(fd,
                        LEAST "tls: {ca: a, cert: b, key: c}\npeers: {east: {address: \"gw.east:7400\"}, "
                              "north: {address: \"gw.north:7400\"}}\nmodels: {\"%s\": {home: %s}}\n"
                              "subscribe: [{model: \"%s\", from: [east]}]\n",
                        model, home, model) > 0);
    assert_int_equal(close(fd), 0);
    const enum tb_status status = tb_config_load_warned(path, ignore, complain, &s, &config);
    assert_int_equal(unlink(path), 0);
    assert_true(status == TB_OK || config == NULL);
    tb_config_free(config);
    return s.count > 0 && strstr(s.first, words) != NULL;
}

/* A home alone wakes the models of its patterns. */
static void a_pattern_that_relays_alone_bring_is_warned_of(void **state)
{
    (void)state;
    const char *words = "subscribe: model \"lora-*\": a model of a pattern is followed from its home";
    assert_true(warns("lora-*", "north", words));
    assert_false(warns("lora-*", "east", "followed"));
    assert_false(warns("lora-7", "north", "followed"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_star_is_any_number_of_characters),
        cmocka_unit_test(the_first_match_of_the_file_counts),
        cmocka_unit_test(a_row_that_never_counts_is_refused),
        cmocka_unit_test(a_subscription_may_be_a_pattern),
        cmocka_unit_test(a_pattern_that_relays_alone_bring_is_warned_of),
        cmocka_unit_test(a_reload_keeps_the_order_of_the_file),
        cmocka_unit_test(a_written_file_says_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
