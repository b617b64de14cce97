/* lag_command.c - tombolo lag: who is behind, why, and until when, as a table or for a monitoring
 * system. */
#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "gateway/cli/control_fields.h"
#include "gateway/cli/lag_verdict.h"
#include "gateway/cli/operator_commands.h"
#include "gateway/cli/options.h"

#define WARN_S 30 /* of --check */
#define CRIT_S 120

/* A value that is not known now is not guessed. */
static const char *or_unknown(const json_t *row, const char *text)
{
    return json_is_true(json_object_get(row, "known")) ? text : "?";
}

/* "known through north, heard 12 s ago": where the row is no first-hand knowledge of now. */
static void print_source(const json_t *row)
{
    const bool known = json_is_true(json_object_get(row, "known"));
    const bool relayed = strcmp(tb_text_of(row, "via").text, tb_text_of(row, "site").text) != 0;
    const json_t *heard = json_object_get(row, "heard_s");
    if (known && !relayed) return;
    (void)printf("  %s", known ? "known" : "not known now");
    if (relayed) (void)printf(" through %s", tb_text_of(row, "via").text);
    if (json_is_null(heard))
        (void)printf("; nothing was heard since the start\n");
    else
        (void)printf("; heard %s ago, it had %s\n", tb_show_seconds(json_number_value(heard)).text,
                     tb_text_of(row, "latest").text);
}

static void print_lag_row(const json_t *row)
{
    const bool on_purpose = strcmp(tb_text_of(row, "reason").text, "pinned") == 0;
    const bool behind = tb_count_of(row, "versions") > 0 && !on_purpose;
    char versions[24];
    (void)snprintf(versions, sizeof versions, "%" PRIu64, tb_count_of(row, "versions"));
    (void)printf("%-20s %-12s %-10s %8s %9s %9s  %-21s %s\n", tb_text_of(row, "model").text,
                 tb_text_of(row, "site").text, tb_text_of(row, "head").text, or_unknown(row, versions),
                 or_unknown(row, tb_bytes_of(row, "bytes").text),
                 or_unknown(row, tb_show_seconds(tb_number_of(row, "seconds")).text),
                 tb_text_of(row, "reason").text, behind ? tb_eta_of(row).text : "");
    if (strcmp(tb_text_of(row, "reason").text, "up-to-date") != 0)
        (void)printf("  %s%s%s\n", tb_text_of(row, "why").text,
                     *tb_text_of(row, "evidence").text != '-' ? ": " : "",
                     *tb_text_of(row, "evidence").text != '-' ? tb_text_of(row, "evidence").text : "");
    print_source(row);
}

static void print_lag(const struct tb_cli_call *call, const json_t *reply)
{
    const json_t *rows = json_object_get(reply, "lag");
    if (!tb_cli_given(call, "quiet"))
        (void)printf("%-20s %-12s %-10s %8s %9s %9s  %-21s until\n", "model", "site", "head", "versions",
                     "bytes", "behind", "reason");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *advice = tb_lag_advice(tb_text_of(row, "reason").text);
        print_lag_row(row);
        if (tb_cli_given(call, "why") && advice != NULL) (void)printf("  next: %s\n", advice);
    }
}

/* ---- for a monitoring system ---- */

static const char *const severities[] = {"OK", "WARNING", "CRITICAL", "UNKNOWN"};

static void print_trouble(const json_t *row, bool first)
{
    const struct tb_field model = tb_text_of(row, "model"), site = tb_text_of(row, "site");
    (void)printf("%s%s at %s ", first ? ": " : "; ", model.text, site.text);
    if (!json_is_true(json_object_get(row, "known")))
        (void)printf("is not known");
    else
        (void)printf("is %" PRIu64 " version%s, %s behind", tb_count_of(row, "versions"),
                     tb_count_of(row, "versions") == 1 ? "" : "s",
                     tb_show_seconds(tb_number_of(row, "seconds")).text);
    (void)printf(" (%s)", tb_text_of(row, "reason").text);
}

/* "| policy.west=42s;30;120": what is behind and what is not. A space would end a label. */
static void print_measured(const json_t *row, double warn_s, double crit_s)
{
    if (!json_is_true(json_object_get(row, "known"))) return;
    const bool behind = tb_count_of(row, "versions") > 0;
    (void)printf(" '%s.%s'=%.1fs;%.0f;%.0f;0", tb_text_of(row, "model").text, tb_text_of(row, "site").text,
                 behind ? tb_number_of(row, "seconds") : 0.0, warn_s, crit_s);
}

/* One line, and the exit code of a monitoring plug-in. */
static enum tb_cli_exit check(const struct tb_cli_call *call, const json_t *reply)
{
    const double warn_s = (double)tb_cli_number(call, "warn", WARN_S);
    const double crit_s = (double)tb_cli_number(call, "crit", CRIT_S);
    const json_t *rows = json_object_get(reply, "lag");
    const size_t count = json_array_size(rows);
    enum tb_lag_severity worst = count > 0 ? TB_LAG_FINE : TB_LAG_NOT_KNOWN;
    for (size_t i = 0; i < count; i++)
        worst = tb_lag_worse(worst, tb_lag_severity_of(json_array_get(rows, i), warn_s, crit_s));
    (void)printf("TOMBOLO %s", severities[worst]);
    if (count == 0) (void)printf(": this gateway knows no such model");
    bool first = true;
    for (size_t i = 0; i < count; i++) {
        const json_t *row = json_array_get(rows, i);
        if (tb_lag_severity_of(row, warn_s, crit_s) == TB_LAG_FINE) continue;
        print_trouble(row, first);
        first = false;
    }
    if (count > 0 && first) (void)printf(": %zu rows, none is behind for %.0f s", count, warn_s);
    if (count > 0) (void)printf(" |");
    for (size_t i = 0; i < count; i++)
        print_measured(json_array_get(rows, i), warn_s, crit_s);
    (void)printf("\n");
    return (enum tb_cli_exit)worst; /* 0 to 3, as README says */
}

static enum tb_cli_exit ask(const struct tb_cli_call *call, json_t **reply_out)
{
    json_t *request = json_pack("{s:s}", "cmd", "lag");
    if (request != NULL && call->argument_count > 0 &&
        json_object_set_new(request, "model", json_string(call->arguments[0])) != 0) {
        json_decref(request);
        return tb_say_failure(call, TB_BAD_ARGUMENT, "the model's name is not UTF-8");
    }
    const enum tb_cli_exit asked = tb_cli_ask(call, request, reply_out);
    if (asked == TB_CLI_DONE) tb_lag_sort(json_object_get(*reply_out, "lag"));
    return asked;
}

enum tb_cli_exit tb_cli_lag(const struct tb_cli_call *call)
{
    TB_ASSERT(call->argument_count <= 1); /* the table of commands says so */
    json_t *reply = NULL;
    const bool checks = tb_cli_given(call, "check");
    const enum tb_cli_exit asked = ask(call, &reply);
    if (asked != TB_CLI_DONE) return checks ? (enum tb_cli_exit)TB_LAG_NOT_KNOWN : asked;
    if (!checks) return tb_cli_show(call, reply, print_lag);
    const enum tb_cli_exit code = check(call, reply);
    json_decref(reply);
    return code;
}
