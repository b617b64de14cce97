/* operator_commands.c - tombolo status, withdraw, drain and limit: questions to the control
 * socket. */
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/rate.h"
#include "gateway/cli/operator/control_client.h"
#include "gateway/cli/operator/control_fields.h"
#include "gateway/cli/operator/operator_commands.h"
#include "gateway/cli/operator/show_table.h"
#include "gateway/cli/options.h"

#define DRAIN_ASK_MS  1000u
#define DRAIN_LOOK_MS 100u

#define ERROR_CHARS   640 /* a sentence that names gateways and an address */

/* ---- status ---- */

/* " delta classes (x 84, link)": the way, its saving, and what bounds it. Of several kinds each:
 * " delta bf16 classes (x 84, link) f32 ...". */
static void print_ways(const char *name, const json_t *kinds)
{
    const size_t count = json_array_size(kinds);
    if (count > 0) (void)printf(" %s", name);
    for (size_t i = 0; i < count; i++) {
        const json_t *way = json_array_get(kinds, i);
        (void)printf("%s%s %s (x %.3g, %s)", count > 1 ? " " : "",
                     count > 1 ? tb_text_of(way, "kind").text : "", tb_text_of(way, "way").text,
                     tb_number_of(way, "saving"), tb_text_of(way, "bound_by").text);
    }
}

static void print_codec(const json_t *codec)
{
    print_ways("full", json_object_get(codec, "full_kinds"));
    print_ways("delta", json_object_get(codec, "delta_kinds"));
}

/* "limit 50Mbit now  day 1.2 of 2.0 TB (warned)": nothing where nothing limits. */
static void print_limit(const json_t *limit)
{
    const uint64_t bit_per_s = tb_count_of(limit, "bit_per_s");
    const char *state = json_string_value(json_object_get(limit, "day_state"));
    char rate[TB_RATE_CHARS];
    tb_rate_format(bit_per_s, rate);
    if (bit_per_s != 0) (void)printf("  limit %s", rate);
    if (state == NULL || strcmp(state, "none") == 0) return;
    (void)printf("  today %s of %s", tb_bytes_of(limit, "day_used_bytes").text,
                 tb_bytes_of(limit, "day_bytes").text);
    if (strcmp(state, "held") == 0)
        (void)printf(", held: nothing crosses for %s",
                     tb_show_seconds(tb_number_of(limit, "day_ends_s")).text);
    else if (strcmp(state, "ok") != 0)
        (void)printf(", %s", tb_text_of(limit, "day_state").text);
}

static void print_names(const char *what, const json_t *names)
{
    for (size_t i = 0; i < json_array_size(names); i++) {
        struct tb_field name;
        const char *text = json_string_value(json_array_get(names, i));
        if (text == NULL) continue;
        tb_show_clean(text, name.text, sizeof name.text);
        (void)printf("         %s %s\n", what, name.text);
    }
}

/* The faults of a link, by name and as a sentence, and which sites may not read which models
 * over it. */
static void print_reason(const json_t *l)
{
    char error[ERROR_CHARS];
    const char *text = json_string_value(json_object_get(l, "error"));
    const struct tb_field reason = tb_text_of(l, "reason");
    tb_show_clean(text != NULL ? text : "", error, sizeof error);
    if (strcmp(reason.text, "-") != 0) (void)printf("  %s", reason.text);
    (void)printf("%s%s\n", error[0] != '\0' ? ": " : "", error);
    print_names("may not read there:", json_object_get(l, "denied"));
    print_names("refused here:", json_object_get(l, "refused_models"));
}

static void print_links(const json_t *links)
{
    for (size_t i = 0; i < json_array_size(links); i++) {
        const json_t *l = json_array_get(links, i);
        (void)printf("link     %-16s %-10s for %-9s", tb_text_of(l, "site").text, tb_text_of(l, "state").text,
                     tb_show_seconds(tb_number_of(l, "since_s")).text);
        if (tb_number_of(l, "rtt_ms") > 0) (void)printf(" rtt %.1f ms", tb_number_of(l, "rtt_ms"));
        (void)printf(" streams %" PRIu64 " sent %s received %s", tb_count_of(l, "streams"),
                     tb_bytes_of(l, "sent_bytes").text, tb_bytes_of(l, "received_bytes").text);
        print_codec(json_object_get(l, "codec"));
        print_limit(json_object_get(l, "limit"));
        print_reason(l);
        tb_show_window(json_object_get(l, "window"));
    }
}

static void print_models(const json_t *models)
{
    for (size_t i = 0; i < json_array_size(models); i++) {
        const json_t *m = json_array_get(models, i);
        const json_t *pin = json_object_get(m, "pin");
        (void)printf("model    %-16s home %s  head %s  latest here %s  behind %" PRIu64 " versions, %s",
                     tb_text_of(m, "model").text, tb_text_of(m, "home").text, tb_text_of(m, "head").text,
                     tb_text_of(m, "latest").text, tb_count_of(m, "lag_versions"),
                     tb_bytes_of(m, "lag_bytes").text);
        if (json_is_object(pin))
            (void)printf("  pinned to %s by %s", tb_text_of(pin, "version").text,
                         tb_text_of(pin, "who").text);
        (void)putchar('\n');
    }
}

/* "paused   model policy by ann (uid 1000), 3:02 ago" */
static void print_pauses(const json_t *pauses)
{
    const double now_s = (double)tb_clock_wall_ms() / 1e3;
    for (size_t i = 0; i < json_array_size(pauses); i++) {
        const json_t *p = json_array_get(pauses, i);
        const bool is_peer = json_object_get(p, "peer") != NULL;
        (void)printf("paused   %s %s by %s, %s ago\n", is_peer ? "peer" : "model",
                     tb_text_of(p, is_peer ? "peer" : "model").text, tb_text_of(p, "who").text,
                     tb_show_seconds(now_s - (double)tb_count_of(p, "time_ms") / 1e3).text);
    }
}

static void print_updates(const json_t *session)
{
    const json_t *updates = json_object_get(session, "updates");
    for (size_t i = 0; i < json_array_size(updates); i++) {
        const json_t *u = json_array_get(updates, i);
        (void)printf("update   %-16s %s %" PRIu64 ":%" PRIu64 "  %s  stall %.1f ms  staged %s",
                     tb_text_of(session, "name").text, tb_text_of(u, "model").text, tb_count_of(u, "run"),
                     tb_count_of(u, "number"), tb_text_of(u, "way").text, tb_number_of(u, "stall_ms"),
                     tb_bytes_of(u, "staged_bytes").text);
        if (tb_count_of(u, "fetched_chunks") > 0)
            (void)printf("  %" PRIu64 " chunks came again", tb_count_of(u, "fetched_chunks"));
        (void)putchar('\n');
    }
}

/* "serving  w0  policy 3:20, proven 0.4 s ago" */
static void print_serving(const json_t *session)
{
    const json_t *serving = json_object_get(session, "serving");
    for (size_t i = 0; i < json_array_size(serving); i++) {
        const json_t *row = json_array_get(serving, i), *proof = json_object_get(row, "proof");
        (void)printf("serving  %-16s %s ", tb_text_of(session, "name").text, tb_text_of(row, "model").text);
        if (json_is_integer(json_object_get(row, "run")))
            (void)printf("%" PRIu64 ":%" PRIu64, tb_count_of(row, "run"), tb_count_of(row, "number"));
        else
            (void)printf("a version not known here");
        if (!json_is_object(proof)) {
            (void)printf(", not proven yet\n");
            continue;
        }
        (void)printf(", %s", tb_text_of(proof, "verdict").text);
        if (tb_count_of(proof, "bad") > 0) (void)printf(" in tensor %s", tb_text_of(proof, "tensor").text);
        (void)printf(" %s ago\n", tb_show_seconds(tb_number_of(proof, "age_s")).text);
    }
}

static void print_sessions(const json_t *sessions)
{
    for (size_t i = 0; i < json_array_size(sessions); i++) {
        const json_t *s = json_array_get(sessions, i);
        (void)printf("worker   %-16s host %s  %s%s\n", tb_text_of(s, "name").text, tb_text_of(s, "host").text,
                     tb_text_of(s, "identity").text,
                     json_is_false(json_object_get(s, "connected")) ? "  away" : "");
        print_updates(s);
        print_serving(s);
    }
}

static void print_hops(const json_t *hops)
{
    for (size_t i = 0; i < json_array_size(hops); i++) {
        const json_t *h = json_array_get(hops, i);
        char version[64];
        (void)snprintf(version, sizeof version, "%" PRIu64 ":%" PRIu64, tb_count_of(h, "run"),
                       tb_count_of(h, "number"));
        (void)printf("hop      %-16s from %-16s %s %s  %s (%s)  %s/s\n", tb_text_of(h, "reader").text,
                     tb_text_of(h, "source").text, tb_text_of(h, "model").text, version,
                     tb_text_of(h, "transport").text, tb_text_of(h, "transport_why").text,
                     tb_bytes_of(h, "bytes_per_s").text);
    }
}

static void print_fabric(const json_t *fabric)
{
    if (json_is_true(json_object_get(fabric, "verbs")))
        (void)printf("fabric   shm, verbs (not encrypted), tcp\n");
    else if (fabric != NULL)
        (void)printf("fabric   shm, tcp  no verbs: %s\n", tb_text_of(fabric, "why_not").text);
}

/* Nothing without TLS. */
static void print_certificates(const json_t *r)
{
    const json_t *c = json_object_get(r, "certificates");
    if (!json_is_object(c)) return;
    const char *expiring = json_is_true(json_object_get(c, "expiring")) ? "  RENEW" : "";
    (void)printf("tls      certificate ends in %.0f d, authorities in %.0f d%s  revoked %" PRIu64 "%s\n",
                 tb_number_of(c, "days_left"), tb_number_of(c, "authority_days_left"), expiring,
                 tb_count_of(c, "revoked"),
                 json_is_true(json_object_get(c, "own_revoked")) ? "  ITS OWN IS AMONG THEM" : "");
}

static void print_rows(const json_t *table, const char *key)
{
    const struct tb_field name = tb_text_of(table, "table");
    const char *end = strrchr(name.text, '_');
    if (end != NULL && strcmp(end, "_bytes") == 0)
        (void)printf("%s", tb_bytes_of(table, key).text);
    else
        (void)printf("%" PRIu64, tb_count_of(table, key));
}

/* A table that was never three quarters full, and refused nothing, stands in --json alone. */
static void print_tables(const json_t *tables)
{
    for (size_t i = 0; i < json_array_size(tables); i++) {
        const json_t *t = json_array_get(tables, i);
        const uint64_t refused = tb_count_of(t, "refused");
        const uint64_t bound = tb_count_of(t, "bound");
        if (tb_count_of(t, "most") < bound - bound / 4 && refused == 0) continue;
        (void)printf("table    %-20s ", tb_text_of(t, "table").text);
        print_rows(t, "used");
        (void)printf(" used, ");
        print_rows(t, "most");
        (void)printf(" at most so far, of ");
        print_rows(t, "bound");
        if (refused > 0) (void)printf(", %" PRIu64 " refused", refused);
        (void)printf("\n");
    }
}

static void print_status(const struct tb_cli_call *call, const json_t *r)
{
    (void)call;
    const json_t *arena = json_object_get(r, "arena");
    (void)printf("gateway  tombolo://%s/%s  up %s  incarnation %" PRIu64 "%s%s\n", tb_text_of(r, "site").text,
                 tb_text_of(r, "gateway").text, tb_show_seconds(tb_number_of(r, "uptime_s")).text,
                 tb_count_of(r, "incarnation"),
                 json_is_true(json_object_get(r, "recovering")) ? "  recovering" : "",
                 json_is_true(json_object_get(r, "draining")) ? "  draining" : "");
    (void)printf("arena    %s of %s used  life %s\n", tb_bytes_of(arena, "used").text,
                 tb_bytes_of(arena, "bytes").text, tb_text_of(r, "life").text);
    print_certificates(r);
    print_links(json_object_get(r, "links"));
    print_models(json_object_get(r, "models"));
    print_pauses(json_object_get(r, "pauses"));
    print_sessions(json_object_get(r, "sessions"));
    print_fabric(json_object_get(r, "fabric"));
    print_hops(json_object_get(r, "hops"));
    print_tables(json_object_get(r, "tables"));
}

enum tb_cli_exit tb_cli_status(const struct tb_cli_call *call)
{
    TB_ASSERT(call->argument_count == 0);
    json_t *reply = NULL;
    const enum tb_cli_exit asked = tb_cli_ask(call, json_pack("{s:s}", "cmd", "status"), &reply);
    if (asked != TB_CLI_DONE) return asked;
    return tb_cli_show(call, reply, print_status);
}

/* ---- withdraw ---- */

static void print_withdrawn(const struct tb_cli_call *call, const json_t *reply)
{
    TB_ASSERT(call->argument_count == 2);
    if (tb_cli_given(call, "quiet")) return;
    (void)printf("%swithdrawn %s: %s %" PRIu64 ":%" PRIu64 " (was %s)\n", tb_cli_dry(reply),
                 tb_text_of(reply, "where").text, call->arguments[0], tb_count_of(reply, "run"),
                 tb_count_of(reply, "number"), tb_text_of(reply, "before").text);
}

enum tb_cli_exit tb_cli_withdraw(const struct tb_cli_call *call)
{
    TB_ASSERT(call->argument_count == 2); /* the table of commands says so */
    uint64_t run = 0;
    uint64_t number = 0;
    json_t *reply = NULL;
    if (!tb_cli_version_of(call->arguments[1], &run, &number))
        return tb_say_failure(call, TB_BAD_ARGUMENT, "a version is N or R:N, not \"%s\"", call->arguments[1]);
    json_t *request = json_pack("{s:s, s:s, s:s}", "cmd", "withdraw", "model", call->arguments[0], "version",
                                call->arguments[1]);
    const enum tb_cli_exit asked = tb_cli_ask(call, tb_cli_act(call, request), &reply);
    if (asked != TB_CLI_DONE) return asked;
    return tb_cli_show(call, reply, print_withdrawn);
}

/* ---- drain ---- */

static void print_drain(const struct tb_cli_call *call, const json_t *reply)
{
    if (tb_cli_given(call, "quiet")) return;
    (void)printf(
        "%sthe gateway takes no more connections, and ends when nobody reads from it any more, after "
        "%.3g s at most; workers connected: %" PRIu64 "\n",
        tb_cli_dry(reply), tb_number_of(reply, "drain_ms") / 1e3, tb_count_of(reply, "workers"));
}

/* No gateway answers, or another process does. */
static bool is_away(const struct tb_cli_call *call, uint64_t pid)
{
    json_t *reply = NULL, *request = json_pack("{s:s}", "cmd", "status");
    char error[512];
    const enum tb_status s =
        tb_control_client_ask(tb_control_client_path(call), request, DRAIN_ASK_MS, &reply, error);
    const bool away = s == TB_GATEWAY_AWAY || (s == TB_OK && tb_count_of(reply, "pid") != pid);
    json_decref(request);
    json_decref(reply);
    return away;
}

/* Until the process is gone: its control socket closes while it still holds its store. Where the
 * process cannot be seen (-1), until the socket answers no more. TB_CLI_TIMEOUT: it is there all
 * the same. */
static enum tb_cli_exit wait_for_end(const struct tb_cli_call *call, int process, uint64_t pid)
{
    const uint64_t seconds = tb_cli_number(call, "wait", 0);
    const tb_time_ns until = tb_time_add(tb_clock_now(), TB_SECONDS(seconds));
    for (;;) {
        struct pollfd ends = {.fd = process, .events = POLLIN};
        if (process >= 0 ? poll(&ends, 1, 0) == 1 : is_away(call, pid)) return TB_CLI_DONE;
        if (tb_clock_now() >= until)
            return tb_say_failure(call, TB_TIMEOUT, "the gateway drains, and did not end within --wait");
        (void)tb_cli_sleep(DRAIN_LOOK_MS);
    }
}

enum tb_cli_exit tb_cli_drain(const struct tb_cli_call *call)
{
    json_t *reply = NULL;
    TB_ASSERT(call->argument_count == 0); /* the table of commands says so */
    const int process =
        tb_cli_given(call, "wait") ? tb_control_client_process(tb_control_client_path(call)) : -1;
    enum tb_cli_exit code = tb_cli_ask(call, tb_cli_act(call, json_pack("{s:s}", "cmd", "drain")), &reply);
    if (code == TB_CLI_DONE) {
        const uint64_t pid = tb_count_of(reply, "pid");
        const bool waits = tb_cli_given(call, "wait") && !json_is_true(json_object_get(reply, "dry_run"));
        code = tb_cli_show(call, reply, print_drain);
        if (code == TB_CLI_DONE && waits) code = wait_for_end(call, process, pid);
    }
    if (process >= 0) (void)close(process);
    return code;
}

/* ---- limit ---- */

static void print_limits(const struct tb_cli_call *call, const json_t *reply)
{
    TB_ASSERT(call->argument_count == 1);
    const json_t *limit = json_object_get(reply, "limit");
    const json_t *hours = json_object_get(limit, "schedule");
    if (tb_cli_given(call, "quiet")) return;
    (void)printf("%s%s: rate %s", tb_cli_dry(reply), call->arguments[0], tb_text_of(limit, "rate").text);
    for (size_t i = 0; i < json_array_size(hours); i++) {
        char clean[TB_RATE_CHARS * 2];
        const char *text = json_string_value(json_array_get(hours, i));
        tb_show_clean(text != NULL ? text : "-", clean, sizeof clean);
        (void)printf(", %s", clean);
    }
    print_limit(limit);
    (void)putchar('\n');
}

/* "500GiB": as in a configuration. */
static bool parse_size(const char *text, uint64_t *out)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
    const size_t digits = strspn(text, "0123456789");
    uint64_t n = 0;
    if (digits == 0 || digits > 15) return false;
    for (size_t i = 0; i < digits; i++)
        n = n * 10 + (uint64_t)(text[i] - '0');
    for (uint32_t unit = 0; unit < sizeof units / sizeof *units; unit++) {
        if (strcmp(text + digits, units[unit]) != 0 || n > UINT64_C(1) << (50 - 10 * unit)) continue;
        *out = n << 10 * unit;
        TB_ASSERT(*out >> 10 * unit == n); /* nothing fell off */
        return true;
    }
    return false;
}

/* "08:00-18:00 50Mbit, 22:00-06:00 none": an array of its hours; NULL: one is none.
 * "none": an empty one. */
static json_t *hours_of(const char *text)
{
    json_t *list = json_array();
    if (strcmp(text, "none") == 0) return list;
    while (list != NULL && *text != '\0') {
        char one[TB_RATE_CHARS];
        struct tb_rate_window unused;
        text += strspn(text, " ");
        const size_t length = strcspn(text, ",");
        const bool fits = length > 0 && length < sizeof one;
        memcpy(one, text, fits ? length : 0);
        one[fits ? length : 0] = '\0';
        text += length + (text[length] == ',');
        if (tb_rate_window_parse(one, &unused) && json_array_append_new(list, json_string(one)) == 0)
            continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

/* The request, or NULL: which option is wrong stands in *wrong_out. */
static json_t *limit_request(const struct tb_cli_call *call, const char **wrong_out)
{
    TB_ASSERT(call->argument_count == 1); /* PEER */
    const char *rate = tb_cli_text(call, "rate"), *schedule = tb_cli_text(call, "schedule");
    const char *day = tb_cli_text(call, "day-bytes");
    uint64_t number = 0;
    json_t *request = json_pack("{s:s, s:s}", "cmd", "limit", "peer", call->arguments[0]);
    *wrong_out = "PEER is not UTF-8";
    bool ok = request != NULL;
    if (ok && rate != NULL) {
        *wrong_out = "--rate is 1Mbit to 10000Gbit, such as 200Mbit, or none";
        ok = tb_rate_parse(rate, &number) && json_object_set_new(request, "rate", json_string(rate)) == 0;
    }
    if (ok && schedule != NULL) {
        *wrong_out = "--schedule is like '08:00-18:00 50Mbit, 22:00-06:00 none', or none";
        ok = json_object_set_new(request, "schedule", hours_of(schedule)) == 0;
    }
    if (ok && day != NULL) {
        *wrong_out = "--day-bytes is a size such as 500GiB or 2TiB, or 0";
        ok = parse_size(day, &number) &&
             json_object_set_new(request, "day_bytes", json_integer((json_int_t)number)) == 0;
    }
    if (ok) return request;
    json_decref(request);
    return NULL;
}

enum tb_cli_exit tb_cli_limit(const struct tb_cli_call *call)
{
    const char *wrong = NULL;
    json_t *reply = NULL;
    json_t *request = tb_cli_act(call, limit_request(call, &wrong));
    TB_ASSERT(request != NULL || wrong != NULL); /* says what is wrong */
    if (request == NULL) return tb_say_failure(call, TB_BAD_ARGUMENT, "%s", wrong);
    const enum tb_cli_exit asked = tb_cli_ask(call, request, &reply);
    if (asked != TB_CLI_DONE) return asked;
    return tb_cli_show(call, reply, print_limits);
}
