/* lag_command.c - tombolo lag: who is behind, why, and until when, as a table or for a monitoring
 * system. */
#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "gateway/cli/operator/control_fields.h"
#include "gateway/cli/operator/lag_verdict.h"
#include "gateway/cli/operator/noun_rows.h"
#include "gateway/cli/operator/operator_commands.h"
#include "gateway/cli/operator/show_table.h"
#include "gateway/cli/options.h"

#define WARN_S 30 /* of --check */
#define CRIT_S 120

/* "known through north, heard 12 s ago": where the row is no first-hand knowledge of now. */
static void note_source(struct tb_rows *rows, json_t *notes, const json_t *row)
{
    char text[3 * sizeof(struct tb_field)];
    const bool known = json_is_true(json_object_get(row, "known"));
    const struct tb_field via = tb_text_of(row, "via"), latest = tb_text_of(row, "latest");
    const bool relayed = strcmp(via.text, tb_text_of(row, "site").text) != 0;
    const json_t *heard = json_object_get(row, "heard_s");
    if (known && !relayed) return;
    int used = snprintf(text, sizeof text, "%s%s%s", known ? "known" : "not known now",
                        relayed ? " through " : "", relayed ? via.text : "");
    TB_ASSERT(used > 0 && (size_t)used < sizeof text);
    if (!json_is_number(heard))
        (void)snprintf(text + used, sizeof text - (size_t)used, "; nothing was heard since the start");
    else
        (void)snprintf(text + used, sizeof text - (size_t)used, "; heard %s ago, it had %s",
                       tb_show_seconds(json_number_value(heard)).text, latest.text);
    if (json_array_append_new(notes, json_string(text)) != 0) rows->lacking = true;
}

static void note_reason(struct tb_rows *rows, json_t *notes, const json_t *row)
{
    char text[3 * sizeof(struct tb_field)];
    const struct tb_field why = tb_text_of(row, "why"), evidence = tb_text_of(row, "evidence");
    const bool has_evidence = strcmp(evidence.text, "-") != 0;
    if (strcmp(tb_text_of(row, "reason").text, "up-to-date") == 0) return;
    (void)snprintf(text, sizeof text, "%s%s%s", why.text, has_evidence ? ": " : "",
                   has_evidence ? evidence.text : "");
    if (json_array_append_new(notes, json_string(text)) != 0) rows->lacking = true;
}

/* Below a row: the reason in words, its evidence, the next command, and how old the word is. */
static void note_why(struct tb_rows *rows, json_t *row, const json_t *said)
{
    char next[sizeof(struct tb_field)];
    json_t *notes = json_array();
    const char *advice = tb_lag_verdict_advice(tb_text_of(said, "reason").text);
    note_reason(rows, notes, said);
    note_source(rows, notes, said);
    if (advice != NULL) {
        (void)snprintf(next, sizeof next, "next: %s", advice);
        if (json_array_append_new(notes, json_string(next)) != 0) rows->lacking = true;
    }
    tb_row_put(rows, row, "notes", notes);
}

static enum tb_cli_exit show_rows(const struct tb_cli_call *call, json_t *reply)
{
    const struct tb_answers answers = {.lag = reply};
    const json_t *lag = json_object_get(reply, "lag");
    struct tb_rows rows = tb_rows_of_lag(&answers);
    for (size_t i = 0; tb_cli_given(call, "why") && !rows.lacking && i < json_array_size(lag); i++)
        note_why(&rows, json_array_get(rows.list, i), json_array_get(lag, i));
    return tb_cli_table_show(call, rows, tb_columns_of_lag);
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
        worst = tb_lag_verdict_worse(worst, tb_lag_verdict_severity(json_array_get(rows, i), warn_s, crit_s));
    (void)printf("TOMBOLO %s", severities[worst]);
    if (count == 0) (void)printf(": this gateway knows no such model");
    bool first = true;
    for (size_t i = 0; i < count; i++) {
        const json_t *row = json_array_get(rows, i);
        if (tb_lag_verdict_severity(row, warn_s, crit_s) == TB_LAG_FINE) continue;
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
    if (asked == TB_CLI_DONE) tb_lag_verdict_sort(json_object_get(*reply_out, "lag"));
    return asked;
}

static enum tb_cli_exit lag_once(const struct tb_cli_call *call)
{
    json_t *reply = NULL;
    const bool json = tb_cli_given(call, "json"), sorts = tb_cli_given(call, "sort");
    if (json && sorts)
        return tb_say_usage("lag", true, "--sort is of tables: --json has the worst row first");
    enum tb_cli_exit code = ask(call, &reply);
    if (code != TB_CLI_DONE) return code;
    if (json) return tb_say_object(reply);
    code = show_rows(call, reply);
    json_decref(reply);
    return code;
}

enum tb_cli_exit tb_cli_lag(const struct tb_cli_call *call)
{
    TB_ASSERT(call->argument_count <= 1); /* the table of commands says so */
    json_t *reply = NULL;
    if (!tb_cli_given(call, "check")) return tb_cli_watch(call, lag_once);
    if (ask(call, &reply) != TB_CLI_DONE) return (enum tb_cli_exit)TB_LAG_NOT_KNOWN;
    const enum tb_cli_exit code = check(call, reply);
    json_decref(reply);
    return code;
}
