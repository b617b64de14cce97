/* doctor_run.c - each check has a process of its own: one that hangs is a cross, one that falls is
 * not known, and neither holds up another (P6, P10).
 *
 * Covers: gateway/cli/doctor/doctor_run.c gateway/cli/doctor/doctor_tell.c
 * Covers: gateway/cli/doctor/doctor_checks.c */
#include "gateway/cli/doctor/doctor_run.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/unit/check.h"

struct seen {
    char all[65536]; /* "group/peer name mark text\n" */
    uint32_t last_ended, last_all;
};

static void result(void *user, const struct tb_result *r)
{
    struct seen *s = user;
    const size_t used = strlen(s->all);
    (void)snprintf(s->all + used, sizeof s->all - used, "%s/%s %s %s %s|%s\n", r->check->group, r->site,
                   r->name, tb_mark_name(r->finding.mark), r->finding.text, r->finding.advice);
}

static void progress(void *user, uint32_t ended, uint32_t all)
{
    struct seen *s = user;
    s->last_ended = ended;
    s->last_all = all;
}

static void well(const struct tb_doctor *d)
{
    tb_doctor_tell(d, "one", tb_find(TB_MARK_FINE, "is well"));
    tb_doctor_tell(d, "two", tb_find(TB_MARK_WRONG, "is not"));
}

static void hangs(const struct tb_doctor *d)
{
    tb_doctor_tell(d, "one", tb_find(TB_MARK_FINE, "is well"));
    for (;;)
        (void)pause();
}

static void falls(const struct tb_doctor *d)
{
    tb_doctor_tell(d, "one", tb_find(TB_MARK_FINE, "is well"));
    (void)raise(SIGKILL);
}

static void of_a_peer(const struct tb_doctor *d)
{
    tb_doctor_tell(d, "peer", tb_find(TB_MARK_FINE, "%s", d->config->peers[d->peer].site.text));
}

static void silent(const struct tb_doctor *d)
{
    (void)d;
}

static struct seen run(const struct tb_check *checks, const struct tb_doctor *d, uint32_t only)
{
    struct seen s = {.last_all = 0};
    const struct tb_doctor_watch watch = {result, progress, &s};
    CHECK_OK(tb_doctor_run(checks, d, only, &watch));
    return s;
}

static void findings_come_in_the_order_of_the_table(void **state)
{
    (void)state;
    const struct tb_check checks[] = {{"a", "one two", well, "do this", 60000, 0},
                                      {"b", "nothing", silent, "", 60000, 0},
                                      {"c", "one two", well, "do that", 60000, 0},
                                      {NULL, NULL, NULL, NULL, 0, 0}};
    const struct tb_doctor d = {.file = "f"};
    const struct seen s = run(checks, &d, UINT32_MAX);
    assert_string_equal(s.all, "a/ one fine is well|\na/ two wrong is not|do this\n"
                               "c/ one fine is well|\nc/ two wrong is not|do that\n");
    assert_int_equal(s.last_all, 3);
}

static void hangs_at_once(const struct tb_doctor *d)
{
    (void)d;
    for (;;)
        (void)pause();
}

/* It tells nothing: how soon its process begins is no matter. */
static void one_that_hangs_is_a_cross(void **state)
{
    (void)state;
    const struct tb_check checks[] = {{"a", "one two", hangs_at_once, "look there", 1000, 0},
                                      {"b", "one two", falls, "look there", 60000, 0},
                                      {"c", "one two", well, "do that", 60000, 0},
                                      {NULL, NULL, NULL, NULL, 0, 0}};
    const struct tb_doctor d = {.file = "f"};
    const struct seen s = run(checks, &d, UINT32_MAX);
    assert_string_equal(s.all, "a/ one wrong no answer within 1 s|look there\n"
                               "a/ two wrong no answer within 1 s|look there\n"
                               "b/ one fine is well|\nb/ two unknown the check ended without an answer|\n"
                               "c/ one fine is well|\nc/ two wrong is not|do that\n");
}

/* A name may be told of several things: the check may have ended before the last one. */
static void one_that_told_each_name_and_did_not_end_is_no_tick(void **state)
{
    (void)state;
    const struct tb_check fell[] = {{"b", "one", falls, "look there", 60000, 0},
                                    {NULL, NULL, NULL, NULL, 0, 0}};
    const struct tb_check hung[] = {{"a", "one", hangs, "look there", 1000, 0},
                                    {NULL, NULL, NULL, NULL, 0, 0}};
    const struct tb_doctor d = {.file = "f"};
    struct seen s = run(fell, &d, UINT32_MAX);
    assert_string_equal(s.all, "b/ one fine is well|\nb/ one unknown the check ended without an answer|\n");
    s = run(hung, &d, UINT32_MAX);
    assert_non_null(strstr(s.all, "a/ one wrong no answer within 1 s|look there\n"));
}

static void hangs_after_its_last_row(const struct tb_doctor *d)
{
    tb_doctor_tell(d, "one", tb_find(TB_MARK_FINE, "is well"));
    tb_doctor_tell(d, "", tb_find(TB_MARK_FINE, "%s", ""));
    for (;;)
        (void)pause();
}

/* As a driver may hold a process that ends. */
static void one_that_does_not_end_after_its_last_row_holds_up_nothing(void **state)
{
    (void)state;
    const struct tb_check checks[] = {{"a", "one", hangs_after_its_last_row, "", 600000, 0},
                                      {NULL, NULL, NULL, NULL, 0, 0}};
    const struct tb_doctor d = {.file = "f"};
    const struct seen s = run(checks, &d, UINT32_MAX);
    assert_string_equal(s.all, "a/ one fine is well|\n");
}

/* A bundle of authorities, one of them expired, and a verdict. */
static void bundle(const struct tb_doctor *d)
{
    for (int i = 0; i < 300; i++)
        tb_doctor_tell(d, "files", tb_find(i == 250 ? TB_MARK_WRONG : TB_MARK_FINE, "row %d", i));
    tb_doctor_tell(d, "tls", tb_find(TB_MARK_FINE, "the verdict"));
}

static void bad_bundle(const struct tb_doctor *d)
{
    for (int i = 0; i < 300; i++)
        tb_doctor_tell(d, "files", tb_find(TB_MARK_WRONG, "row %d", i));
    tb_doctor_tell(d, "tls", tb_find(TB_MARK_FINE, "the verdict"));
}

static void rows_that_find_no_place_are_told(void **state)
{
    (void)state;
    struct tb_check checks[] = {{"a", "files tls", bundle, "do", 60000, 0}, {NULL, NULL, NULL, NULL, 0, 0}};
    const struct tb_doctor d = {.file = "f"};
    struct seen s = run(checks, &d, UINT32_MAX);
    assert_non_null(strstr(s.all, "a/ files fine row 0|\n"));
    assert_non_null(strstr(s.all, "a/ files wrong row 250|do\n"));
    assert_non_null(strstr(s.all, "a/ tls fine the verdict|\n"));
    assert_non_null(strstr(s.all, "a/ files fine 109 more rows have no place here: 109 fine|\n"));
    checks[0].look = bad_bundle;
    s = run(checks, &d, UINT32_MAX);
    assert_non_null(strstr(s.all, "a/ files wrong row 0|do\n"));
    assert_non_null(strstr(s.all, "a/ tls fine the verdict|\n"));
    assert_non_null(strstr(s.all, "a/ files wrong 109 more rows have no place here: 109 wrong|do\n"));
}

/* More than run at once, and each hangs: they wait beside each other. */
static void all_that_hang_take_the_time_of_few(void **state)
{
    (void)state;
    struct tb_check checks[17] = {{NULL, NULL, NULL, NULL, 0, 0}};
    for (int i = 0; i < 16; i++)
        checks[i] = (struct tb_check){"a", "two", hangs, "", 500, 0};
    const struct tb_doctor d = {.file = "f"};
    const struct seen s = run(checks, &d, UINT32_MAX);
    int crosses = 0;
    for (const char *at = s.all; (at = strstr(at, "no answer")) != NULL; at++)
        crosses++;
    assert_int_equal(crosses, 16);
}

static void each_peer_is_a_block(void **state)
{
    (void)state;
    static const char text[] = "site: east\narena: {bytes: 64MiB}\n"
                               "tls: {ca: /e/ca, cert: /e/c, key: /e/k}\nlink: {listen: \"127.0.0.1:7400\"}\n"
                               "peers: {west: {gateway: gw, ca: /e/w}, north: {gateway: gw, ca: /e/n}}\n"
                               "models: {}\nsubscribe: []\n";
    const struct tb_check checks[] = {
        {"peer", "peer", of_a_peer, "", 60000, TB_EACH_PEER | TB_NEEDS_CONFIG},
        {"peer", "again", of_a_peer, "", 60000, TB_EACH_PEER | TB_NEEDS_GATEWAY},
        {"z", "one two", well, "do", 60000, TB_NEEDS_FILES},
        {NULL, NULL, NULL, NULL, 0, 0}};
    struct tb_doctor d = {.file = "f", .before_start = true, .no_files = "not yours"};
    struct tb_config *config = NULL;
    CHECK_OK(tb_config_parse("f", text, strlen(text), NULL, NULL, &config));
    d.config = config;
    struct seen s = run(checks, &d, UINT32_MAX);
    assert_string_equal(
        s.all, "peer/west peer fine west|\npeer/west again not-checked --pre: no gateway is asked|\n"
               "peer/north peer fine north|\npeer/north again not-checked --pre: no gateway is asked|\n"
               "z/ one not-checked not yours|\nz/ two not-checked not yours|\n");
    s = run(checks, &d, 1);
    assert_null(strstr(s.all, "west"));
    assert_non_null(strstr(s.all, "peer/north peer fine north"));
    tb_config_free(config);
}

static void tell_here(void *user, const char *name, const struct tb_finding *f)
{
    struct seen *s = user;
    const size_t used = strlen(s->all);
    (void)snprintf(s->all + used, sizeof s->all - used, "%s %s %s\n", name, tb_mark_name(f->mark), f->text);
}

static const char *gateway_says(struct seen *s, const char *status)
{
    json_t *object = json_loads(status, 0, NULL);
    assert_non_null(object);
    const struct tb_doctor d = {.file = "f", .status = object, .tell = tell_here, .user = s};
    s->all[0] = '\0';
    tb_check_gateway(&d);
    json_decref(object);
    return s->all;
}

/* An older or a damaged gateway leaves fields out, or gives them another type. */
static void unsaid_fields_of_the_gateway_are_unknown(void **state)
{
    (void)state;
    static const char *const lacking[] = {"{}", "{\"sandbox\": null}", "{\"sandbox\": {}}",
                                          "{\"sandbox\": {\"lacks\": 0}, \"store_ok\": 1, \"pid\": \"1\"}"};
    struct seen s;
    for (size_t i = 0; i < sizeof lacking / sizeof lacking[0]; i++) {
        assert_non_null(
            strstr(gateway_says(&s, lacking[i]), "sandbox unknown the gateway does not say it\n"));
        assert_null(strstr(s.all, " fine "));
    }
    assert_non_null(strstr(gateway_says(&s, "{\"sandbox\": {\"lacks\": \"\"}}"), "sandbox fine "));
    assert_non_null(strstr(gateway_says(&s, "{\"sandbox\": {\"lacks\": \"old\"}}"), "sandbox warning "));
}

/* The owner of the store's folder is the gateway's user. */
static void rights_of_a_user_that_is_not_known_are_not_judged(void **state)
{
    (void)state;
    static const char text[] = "site: east\narena: {bytes: 64MiB}\nstore: {path: /no/such/store.sqlite}\n"
                               "models: {}\nsubscribe: []\n";
    const struct tb_check checks[] = {{"a", "one two", well, "do", 60000, TB_NEEDS_CONFIG | TB_NEEDS_USER},
                                      {"b", "one", well, "do", 60000, TB_NEEDS_CONFIG},
                                      {NULL, NULL, NULL, NULL, 0, 0}};
    struct tb_config *config = NULL;
    CHECK_OK(tb_config_parse("f", text, strlen(text), NULL, NULL, &config));
    const struct tb_doctor d = {.file = "f", .config = config};
    const struct seen s = run(checks, &d, UINT32_MAX);
    assert_string_equal(s.all,
                        "a/ one unknown the gateway's user is not known: the folder of store.path is not "
                        "there|\n"
                        "a/ two unknown the gateway's user is not known: the folder of store.path is not "
                        "there|\n"
                        "b/ one fine is well|\nb/ two wrong is not|do\n");
    tb_config_free(config);
}

/* Tests on a machine that is loaded, or under a sanitizer, give each check more time. */
static void limits_can_be_longer(void **state)
{
    (void)state;
    const struct tb_check checks[] = {{"a", "one", hangs_at_once, "look there", 500, 0},
                                      {NULL, NULL, NULL, NULL, 0, 0}};
    const struct tb_doctor d = {.file = "f", .limit_times = 2};
    const struct seen s = run(checks, &d, UINT32_MAX);
    assert_string_equal(s.all, "a/ one wrong no answer within 1 s|look there\n");
}

/* A row that needs a configuration says why it is not looked at where there is none. */
static void rows_of_the_table_name_what_they_tell(void **state)
{
    (void)state;
    const struct tb_doctor d = {.file = "f", .before_start = true};
    for (const struct tb_check *c = tb_doctor_checks(); c->group != NULL; c++) {
        assert_true(c->names[0] != '\0' && c->advice[0] != '\0' && c->look != NULL);
        assert_in_range(c->limit_ms, 1000, 15000);
        if ((c->needs & TB_NEEDS_CONFIG) != 0) assert_non_null(tb_check_why_not(c, &d));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(findings_come_in_the_order_of_the_table),
        cmocka_unit_test(one_that_hangs_is_a_cross),
        cmocka_unit_test(one_that_told_each_name_and_did_not_end_is_no_tick),
        cmocka_unit_test(rows_that_find_no_place_are_told),
        cmocka_unit_test(all_that_hang_take_the_time_of_few),
        cmocka_unit_test(each_peer_is_a_block),
        cmocka_unit_test(unsaid_fields_of_the_gateway_are_unknown),
        cmocka_unit_test(rights_of_a_user_that_is_not_known_are_not_judged),
        cmocka_unit_test(limits_can_be_longer),
        cmocka_unit_test(rows_of_the_table_name_what_they_tell),
        cmocka_unit_test(one_that_does_not_end_after_its_last_row_holds_up_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
