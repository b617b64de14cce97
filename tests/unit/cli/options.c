/* The command line is a table: every command parses, refuses and documents itself
 * from its own row.
 * Covers: gateway/cli/options.c */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/cli/cli.h"
#include "gateway/cli/options.h"

static enum tb_cli_exit nothing(const struct tb_cli_call *call)
{
    (void)call;
    return TB_CLI_DONE;
}

static const struct tb_cli_option options[] = {
    {"number", TB_CLI_COUNT, "N", "a number"}, {"time", TB_CLI_SECONDS, "TIME", "a time"},
    {"text", TB_CLI_TEXT, "TEXT", "a text"},   {"signed", TB_CLI_SIGNED, "N", "a number"},
    {"flag", TB_CLI_FLAG, NULL, "a flag"},     {"output", TB_CLI_CHOICE, "wide|json|tsv", "a form"},
    {"json", TB_CLI_FLAG, NULL, "JSON"},       {NULL, TB_CLI_FLAG, NULL, NULL},
};
static const struct tb_cli_command commands[] = {
    {"one", "A [B]", "first", "The first.", "tombolo one a", options, 1, 2, nothing},
    {"two words", "", "second", "The second.", "tombolo two words", options, 0, 0, nothing},
    {NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL},
};

/* Splits a line at spaces into argv. */
struct line {
    char text[256];
    char *argv[16];
    int argc;
};

static void split(struct line *l, const char *text)
{
    memset(l, 0, sizeof *l);
    (void)strcpy(l->text, text);
    for (char *at = strtok(l->text, " "); at != NULL; at = strtok(NULL, " "))
        l->argv[l->argc++] = at;
}

static bool parse(struct line *l, const char *text, struct tb_cli_call *call, char error[256])
{
    bool help = false;
    split(l, text);
    return tb_cli_parse(&commands[0], l->argc, l->argv, call, &help, error);
}

static void a_word_with_a_slip_is_known(void **state)
{
    (void)state;
    static const struct tb_cli_command some[] = {
        {.name = "publish"},   {.name = "subscribe"},    {.name = "status"},
        {.name = "streams"},   {.name = "lag"},          {.name = "pki init"},
        {.name = "pki issue"}, {.name = "config check"}, {.name = "config explain"},
        {.name = NULL}};
    static const struct {
        const char *word, *meant;
    } rows[] = {
        {"publsh", "publish"},  {"ublish", "publish"},
        {"pubilsh", "publish"}, {"publishh", "publish"},
        {"sub", "subscribe"},   {"confg", "config check"},
        {"pk", "pki init"},     {"lga", "lag"},
        {"st", NULL},           {"s", NULL},
        {"serve", NULL},        {"", NULL},
        {"la", "lag"},          {"lagg", "lag"},
        {"vresoins", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *meant = tb_cli_meant(some, rows[i].word);
        if ((meant == NULL) != (rows[i].meant == NULL) ||
            (meant != NULL && strcmp(meant, rows[i].meant) != 0))
            fail_msg("%s: %s", rows[i].word, meant != NULL ? meant : "nothing");
    }
}

static void options_and_arguments_are_read(void **state)
{
    (void)state;
    struct line l;
    struct tb_cli_call call;
    char error[256];
    assert_true(parse(&l, "one a --number 12 --time=5m b --flag", &call, error));
    assert_int_equal(tb_cli_number(&call, "number", 1), 12);
    assert_int_equal(tb_cli_number(&call, "time", 1), 300);
    assert_true(tb_cli_given(&call, "flag"));
    assert_null(tb_cli_text(&call, "text"));
    assert_int_equal(call.argument_count, 2);
    assert_string_equal(call.arguments[1], "b");
    assert_true(parse(&l, "one --text x -- --flag", &call, error));
    assert_string_equal(call.arguments[0], "--flag");
    assert_false(tb_cli_given(&call, "flag"));
    assert_int_equal(tb_cli_number(&call, "number", 77), 77);
    assert_false(tb_cli_has(&call, "nothing"));
    assert_true(parse(&l, "one a --signed -3", &call, error));
    assert_int_equal(tb_cli_signed(&call, "signed", 0), -3);
}

static void a_word_that_is_not_understood_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        const char *error;
    } rows[] = {
        {"one", "one takes A [B]"},
        {"one a b c", "\"c\" is too much"},
        {"one a --nothing", "unknown option --nothing"},
        {"one a -x", "unknown option -x"},
        {"one a --number", "--number needs a value"},
        {"one a --number x", "--number takes a whole number, not \"x\""},
        {"one a --number -1", "a whole number"},
        {"one a --number 9223372036854775808", "a whole number"},
        {"one a --number 1 --number 2", "--number stands there twice"},
        {"one a --signed --3", "a whole number"},
        {"one a --signed 2147483648", "a whole number"},
        {"one a --time 5y", "a time like"},
        {"one a --time s", "a time like"},
        {"one a --time 99999999999", "a time like"},
        {"one a --flag=1", "--flag=1"},
        {"one a -o yaml", "--output takes wide|json|tsv, not \"yaml\""},
        {"one a -o wid", "--output takes wide|json|tsv"},
        {"one a -o wide|json", "--output takes wide|json|tsv"},
        {"one a --output tsvx", "--output takes wide|json|tsv"},
        {"one a -o wide -o tsv", "--output stands there twice"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct line l;
        struct tb_cli_call call;
        char error[256] = "";
        const bool good = parse(&l, rows[i].line, &call, error);
        if (good || strstr(error, rows[i].error) == NULL) fail_msg("%s: %s", rows[i].line, error);
    }
}

static void o_json_is_json(void **state)
{
    (void)state;
    struct line l;
    struct tb_cli_call call;
    char error[256];
    assert_true(parse(&l, "one a -o json", &call, error));
    assert_true(tb_cli_given(&call, "json"));
    assert_true(parse(&l, "one a -owide", &call, error));
    assert_string_equal(tb_cli_text(&call, "output"), "wide");
    assert_false(tb_cli_given(&call, "json"));
    static const struct {
        const char *line;
        bool wants;
    } rows[] = {{"t one --json", true},    {"t -o json one", true},  {"t --output=json", true},
                {"t -ojson", true},        {"t one -o", false},      {"t one json", false},
                {"t -o wide json", false}, {"t --output json", true}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        split(&l, rows[i].line);
        if (tb_cli_wants_json(l.argc, l.argv) != rows[i].wants) fail_msg("%s", rows[i].line);
    }
}

static void options_stand_before_the_command_too(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        int lead;
        const char *moved; /* NULL: there is no command behind them */
    } rows[] = {
        {"t one a", 0, "t one a "},
        {"t --flag one a", 1, "t one --flag a "},
        {"t --text x --number=3 -o tsv -owide two words --flag", 6,
         "t two words --text x --number=3 -o tsv -owide --flag "},
        {"t --signed -3 one", 2, "t one --signed -3 "},
        {"t --flag --help", 1, NULL},
        {"t --flag -h one", 1, NULL},
        {"t --text", 1, NULL},
        {"t --text x", 2, NULL},
        {"t --nothing one", -1, NULL},
        {"t --flag -x one", -2, NULL},
        {"t -- one", -1, NULL},
        {"t - one", -1, NULL},
        {"t --fla one", -1, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct line l;
        char found[256] = "";
        int words = 0;
        split(&l, rows[i].line);
        const int lead = tb_cli_lead(commands, l.argc, l.argv);
        if (lead != rows[i].lead) fail_msg("%s: %d", rows[i].line, lead);
        if (rows[i].moved == NULL) continue;
        assert_non_null(tb_cli_find(commands, l.argc - lead, l.argv + lead, &words));
        tb_cli_lead_move(l.argv, lead, words);
        for (int k = 0; k < l.argc; k++)
            (void)strcat(strcat(found, l.argv[k]), " ");
        assert_string_equal(found, rows[i].moved);
    }
}

static void commands_of_one_and_two_words_are_found(void **state)
{
    (void)state;
    struct line l;
    int words = 0;
    split(&l, "tombolo two words --flag");
    assert_ptr_equal(tb_cli_find(commands, l.argc, l.argv, &words), &commands[1]);
    assert_int_equal(words, 2);
    split(&l, "tombolo one words");
    assert_ptr_equal(tb_cli_find(commands, l.argc, l.argv, &words), &commands[0]);
    assert_int_equal(words, 1);
    static const char *const none[] = {"tombolo two", "tombolo on", "tombolo ones", "tombolo two wordsx"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        split(&l, none[i]);
        assert_null(tb_cli_find(commands, l.argc, l.argv, &words));
    }
}

static void a_version_is_a_number_or_a_run_and_a_number(void **state)
{
    (void)state;
    uint64_t run = 9;
    uint64_t number = 9;
    assert_true(tb_cli_version_of("0", &run, &number));
    assert_int_equal(run, 0);
    assert_int_equal(number, 0);
    assert_true(tb_cli_version_of("3:12", &run, &number));
    assert_int_equal(run, 3);
    assert_int_equal(number, 12);
    static const char *const bad[] = {"",      ":",  "1:", ":1", "0:1",
                                      "1:2:3", "-1", "1 ", "x",  "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(tb_cli_version_of(bad[i], &run, &number));
}

/* Every status has a code that a script can act on; none but success is 0. */
static void every_status_has_an_exit_code(void **state)
{
    (void)state;
#define ROW(name, number, text)                                                                              \
    if ((name) != TB_OK && (name) != TB_DONE_BEFORE) assert_int_not_equal(tb_cli_exit_of(name), 0);
    TB_STATUS_LIST(ROW)
#undef ROW
    assert_int_equal(tb_cli_exit_of(TB_OK), 0);
    assert_int_equal(tb_cli_exit_of(TB_DONE_BEFORE), 0);
    assert_int_equal(tb_cli_exit_of(TB_BAD_FILE), 1);
    assert_int_equal(tb_cli_exit_of(TB_SITE_CONFIG), 1);
    assert_int_equal(tb_cli_exit_of(TB_GATEWAY_AWAY), 3);
    assert_int_equal(tb_cli_exit_of(TB_STREAM_CLOSED), 3);
    assert_int_equal(tb_cli_exit_of(TB_TIMEOUT), 4);
    assert_int_equal(tb_cli_exit_of(TB_PEER_DENIED), 5);
    assert_int_equal(tb_cli_exit_of(TB_VERSION_LOST), 6);
    assert_int_equal(tb_cli_exit_of(TB_VERSION_WITHDRAWN), 6);
    assert_int_equal(tb_cli_exit_of(TB_SITE_IO), 7);
    assert_int_equal(tb_cli_exit_of(TB_CANCELLED), 130);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_word_with_a_slip_is_known),
        cmocka_unit_test(options_and_arguments_are_read),
        cmocka_unit_test(a_word_that_is_not_understood_is_named),
        cmocka_unit_test(o_json_is_json),
        cmocka_unit_test(options_stand_before_the_command_too),
        cmocka_unit_test(commands_of_one_and_two_words_are_found),
        cmocka_unit_test(a_version_is_a_number_or_a_run_and_a_number),
        cmocka_unit_test(every_status_has_an_exit_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
