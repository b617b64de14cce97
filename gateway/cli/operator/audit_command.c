/* audit_command.c - tombolo audit: pages of the gateway's record, the newest rows, oldest first. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "gateway/cli/operator/control_fields.h"
#include "gateway/cli/operator/operator_commands.h"
#include "gateway/cli/options.h"
#include "gateway/cli/output.h"

#define ROWS_DEFAULT 1000u
#define ROWS_MAX     100000u
#define PAGE         256u

static bool filter_put(const struct tb_cli_call *call, const char *name, json_t *request)
{
    if (!tb_cli_given(call, name)) return true;
    return json_object_set_new(request, name, json_string(tb_cli_text(call, name))) == 0;
}

/* The next older page. NULL: no memory. */
static json_t *request_of(const struct tb_cli_call *call, uint64_t before, uint64_t most)
{
    json_t *r = json_pack("{s:s, s:I}", "cmd", "audit", "limit", (json_int_t)(most < PAGE ? most : PAGE));
    const uint64_t ago_ms = 1000 * tb_cli_number(call, "since", 0), now_ms = tb_clock_wall_ms();
    bool good = r != NULL && filter_put(call, "action", r) && filter_put(call, "identity", r);
    if (good && before != 0) good = json_object_set_new(r, "before", json_integer((json_int_t)before)) == 0;
    if (good && ago_ms != 0 && ago_ms < now_ms)
        good = json_object_set_new(r, "since_ms", json_integer((json_int_t)(now_ms - ago_ms))) == 0;
    if (good) return r;
    json_decref(r);
    return NULL;
}

/* Newest first, of all pages. */
static enum tb_cli_exit rows_ask(const struct tb_cli_call *call, json_t *all)
{
    const uint64_t most = tb_cli_number(call, "limit", ROWS_DEFAULT);
    uint64_t before = 0;
    while (json_array_size(all) < most) {
        json_t *reply = NULL;
        const uint64_t left = most - json_array_size(all);
        const enum tb_cli_exit asked = tb_cli_ask(call, request_of(call, before, left), &reply);
        if (asked != TB_CLI_DONE) return asked;
        json_t *page = json_object_get(reply, "audit");
        const size_t count = json_array_size(page);
        if (count > 0) before = tb_count_of(json_array_get(page, count - 1), "id");
        const bool good = count == 0 || json_array_extend(all, page) == 0;
        json_decref(reply);
        if (!good) return tb_say_failure(call, TB_SITE_NOMEM, "no memory for so many rows");
        if (count < PAGE) break;
    }
    return TB_CLI_DONE;
}

static void row_print(const json_t *row)
{
    const time_t at = (time_t)(tb_count_of(row, "time_ms") / 1000);
    char when[32] = "?";
    struct tm tm;
    if (gmtime_r(&at, &tm) != NULL) (void)strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &tm);
    const uint64_t count = tb_count_of(row, "count");
    (void)printf("%s %-18s %-28s %-24s %-12s %s", when, tb_text_of(row, "action").text,
                 tb_text_of(row, "identity").text, tb_text_of(row, "object").text,
                 tb_text_of(row, "origin").text, tb_text_of(row, "result").text);
    if (count > 1) (void)printf("  x %" PRIu64, count);
    (void)putchar('\n');
}

enum tb_cli_exit tb_cli_audit(const struct tb_cli_call *call)
{
    TB_ASSERT(call->argument_count == 0);
    const uint64_t most = tb_cli_number(call, "limit", ROWS_DEFAULT);
    if (most < 1 || most > ROWS_MAX)
        return tb_say_failure(call, TB_BAD_ARGUMENT, "--limit is between 1 and %u", ROWS_MAX);
    json_t *all = json_array();
    enum tb_cli_exit code = rows_ask(call, all);
    for (size_t i = json_array_size(all); code == TB_CLI_DONE && i-- > 0;) {
        json_t *row = json_array_get(all, i);
        if (tb_cli_given(call, "json"))
            code = tb_say_object(json_incref(row));
        else
            row_print(row);
    }
    json_decref(all);
    return code;
}
