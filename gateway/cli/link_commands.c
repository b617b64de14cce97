/* link_commands.c - tombolo streams and lag: the links of this site's gateway, and who
 * is behind, as tables. */
#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "gateway/cli/commands.h"
#include "gateway/cli/control_fields.h"
#include "gateway/cli/options.h"

/* ---- streams ---- */

static struct tb_field rate_of(const json_t *object, const char *key)
{
    struct tb_field f;
    (void)snprintf(f.text, sizeof f.text, "%.1f", tb_number_of(object, key) * 8 / 1e6);
    return f;
}

static void print_stream(const json_t *s)
{
    (void)printf("  %6" PRIu64 "  %-8s  %-8s %9.1f %9s %9s %9s %9s  %s\n", tb_count_of(s, "stream"),
                 tb_text_of(s, "congestion").text, tb_text_of(s, "encryption").text,
                 tb_number_of(s, "rtt_ms"), rate_of(s, "sent_bytes_per_s").text,
                 rate_of(s, "received_bytes_per_s").text, tb_bytes_of(s, "retransmitted_bytes").text,
                 tb_bytes_of(s, "queued_bytes").text,
                 json_is_true(json_object_get(s, "open")) ? tb_text_of(s, "limited_by").text : "opening");
}

static void print_link(const json_t *l)
{
    (void)printf(
        "%s  %s  rtt %.1f ms  %s Mbit/s  limited by %s  %" PRIu64 " of %zu streams used%s  %" PRIu64
        " parcels queued  hedged %s  resent by TCP %s  lost %" PRIu64 "  rotated %" PRIu64 "\n",
        tb_text_of(l, "site").text, json_is_true(json_object_get(l, "up")) ? "up" : "down",
        tb_number_of(l, "rtt_ms"), rate_of(l, "goodput_bytes_per_s").text, tb_text_of(l, "limited_by").text,
        tb_count_of(l, "used"), json_array_size(json_object_get(l, "streams")),
        json_is_true(json_object_get(l, "searching")) ? " (searching)" : "", tb_count_of(l, "queued_parcels"),
        tb_bytes_of(l, "hedged_bytes").text, tb_bytes_of(l, "retransmitted_bytes").text,
        tb_count_of(l, "lost"), tb_count_of(l, "rotated"));
    tb_show_window(json_object_get(l, "window"));
}

static void print_streams(const struct tb_cli_call *call, const json_t *reply)
{
    const json_t *links = json_object_get(reply, "links");
    for (size_t i = 0; i < json_array_size(links); i++) {
        const json_t *l = json_array_get(links, i), *streams = json_object_get(l, "streams");
        print_link(l);
        if (json_array_size(streams) > 0 && !tb_cli_given(call, "quiet"))
            (void)printf("  stream  congest.  encrypts    rtt ms  Mbit/s >  Mbit/s <   resent    queued  "
                         "limited by\n");
        for (size_t k = 0; k < json_array_size(streams); k++)
            print_stream(json_array_get(streams, k));
    }
}

enum tb_cli_exit tb_cli_streams(const struct tb_cli_call *call)
{
    TB_ASSERT(call->argument_count == 0);
    json_t *reply = NULL;
    const enum tb_cli_exit asked = tb_cli_ask(call, json_pack("{s:s}", "cmd", "streams"), &reply);
    return asked != TB_CLI_DONE ? asked : tb_cli_show(call, reply, print_streams);
}

/* ---- lag ---- */

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
    for (size_t i = 0; i < json_array_size(rows); i++)
        print_lag_row(json_array_get(rows, i));
}

enum tb_cli_exit tb_cli_lag(const struct tb_cli_call *call)
{
    TB_ASSERT(call->argument_count <= 1); /* the table of commands says so */
    json_t *reply = NULL;
    json_t *request = json_pack("{s:s}", "cmd", "lag");
    if (request != NULL && call->argument_count > 0 &&
        json_object_set_new(request, "model", json_string(call->arguments[0])) != 0)
        return tb_say_failure(call, TB_BAD_ARGUMENT, "the model's name is not UTF-8");
    const enum tb_cli_exit asked = tb_cli_ask(call, request, &reply);
    return asked != TB_CLI_DONE ? asked : tb_cli_show(call, reply, print_lag);
}
