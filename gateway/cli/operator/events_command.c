/* events_command.c - tombolo events: what the gateway logged, by id, and as it comes. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "gateway/cli/operator/control_fields.h"
#include "gateway/cli/operator/operator_commands.h"
#include "gateway/cli/operator/show_table.h"
#include "gateway/cli/options.h"

#define FOLLOW_EVERY_MS 1000u
#define LIMIT_DEFAULT   100u
#define LIMIT_MAX       4096u /* as many as a gateway keeps */

/* ---- a line ---- */

static int rank_of(const char *level)
{
    static const char *const levels[] = {"error", "warn", "info"};
    for (int i = 0; i < 3; i++)
        if (strcmp(levels[i], level) == 0) return i;
    return 0; /* of a later release: shown */
}

/* Whether --level and --event let it through. */
static bool is_asked_for(const struct tb_cli_call *call, const json_t *event)
{
    const char *most = tb_cli_text(call, "level"), *part = tb_cli_text(call, "event");
    const char *name = json_string_value(json_object_get(event, "event"));
    if (most != NULL && rank_of(tb_text_of(event, "level").text) > rank_of(most)) return false;
    return part == NULL || (name != NULL && strstr(name, part) != NULL);
}

static void event_print(const json_t *event)
{
    char when[32] = "?", text[1024];
    struct tm tm;
    const uint64_t ms = tb_count_of(event, "time_ms");
    const time_t at = (time_t)(ms / 1000);
    const char *said = json_string_value(json_object_get(event, "text"));
    if (gmtime_r(&at, &tm) != NULL) (void)strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm);
    tb_show_clean(said != NULL ? said : "", text, sizeof text);
    (void)printf("%" PRIu64 "  %s.%03dZ  %-5s  %s  %s\n", tb_count_of(event, "id"), when, (int)(ms % 1000),
                 tb_text_of(event, "level").text, tb_text_of(event, "event").text, text);
}

/* Each event is a line, under --json an object. */
static enum tb_cli_exit page_print(const struct tb_cli_call *call, const json_t *events)
{
    enum tb_cli_exit code = TB_CLI_DONE;
    for (size_t i = 0; i < json_array_size(events) && code == TB_CLI_DONE; i++) {
        json_t *event = json_array_get(events, i);
        if (tb_cli_given(call, "json"))
            code = tb_say_object(json_incref(event));
        else
            event_print(event);
    }
    return fflush(stdout) == 0 ? code : TB_CLI_SITE;
}

/* ---- pages ---- */

#define A_LIFE 1000000000u /* ids of one start of the gateway, docs/control.md */

/* The reader's place in the gateway's ring. */
struct place {
    uint64_t after; /* the id behind which it goes on */
    uint64_t last;  /* the newest, as said last */
    json_t *kept;   /* the newest so many of those that are asked for, until all were read; NULL:
                     * each is printed as it comes */
};

static enum tb_cli_exit page_take(const struct tb_cli_call *call, struct place *p, const json_t *events)
{
    json_t *page = p->kept != NULL ? json_incref(p->kept) : json_array();
    bool all = page != NULL;
    for (size_t i = 0; i < json_array_size(events) && all; i++) {
        json_t *event = json_array_get(events, i);
        if (!is_asked_for(call, event)) continue;
        all = json_array_append(page, event) == 0;
        if (p->kept != NULL && json_array_size(page) > tb_cli_number(call, "limit", LIMIT_DEFAULT))
            (void)json_array_remove(page, 0);
    }
    const enum tb_cli_exit code = !all              ? tb_say_failure(call, TB_SITE_NOMEM, "no memory")
                                  : p->kept == NULL ? page_print(call, page)
                                                    : TB_CLI_DONE;
    json_decref(page);
    return code;
}

static enum tb_cli_exit ask_for(const struct tb_cli_call *call, const struct place *p, json_t **reply_out)
{
    json_t *request = p == NULL ? json_pack("{s:s, s:i}", "cmd", "events", "limit", 1)
                                : json_pack("{s:s, s:I}", "cmd", "events", "after", (json_int_t)p->after);
    return tb_cli_ask(call, request, reply_out);
}

/* Where the newest so many begin, or --from. How many pass --level and --event is known behind
 * them: all of this life are read. */
static enum tb_cli_exit place_find(const struct tb_cli_call *call, struct place *p)
{
    json_t *reply = NULL;
    const enum tb_cli_exit asked = ask_for(call, NULL, &reply);
    if (asked != TB_CLI_DONE) return asked;
    const uint64_t newest = p->kept != NULL ? A_LIFE : tb_cli_number(call, "limit", LIMIT_DEFAULT);
    p->last = tb_count_of(reply, "last");
    const uint64_t in_life = p->last % A_LIFE;
    p->after = p->last - (newest < in_life ? newest : in_life);
    if (tb_cli_given(call, "from")) {
        const uint64_t from = tb_cli_number(call, "from", 0);
        p->after = from > 0 ? from - 1 : 0;
    }
    json_decref(reply);
    return TB_CLI_DONE;
}

/* Events that gave way before they were read are said: a gap is no silence. */
static void note_gap(const struct tb_cli_call *call, struct place *p, uint64_t first)
{
    const bool asked = p->kept == NULL && (tb_cli_given(call, "from") || tb_cli_given(call, "follow"));
    if (p->after > p->last) {
        tb_say_note(call, "the newest event is %" PRIu64 "; ids begin again where a gateway has a new store",
                    p->last);
        p->after = p->last - p->last % A_LIFE;
    } else if (asked && p->after > 0 && p->after / A_LIFE != first / A_LIFE)
        tb_say_note(call, "the gateway started again; what it said before that is in its log alone");
    else if (asked && p->after > 0 && p->after + 1 < first)
        tb_say_note(call, "events before %" PRIu64 " are not kept any more", first);
}

static enum tb_cli_exit page_show(const struct tb_cli_call *call, struct place *p, bool *more_out)
{
    json_t *reply = NULL;
    *more_out = false;
    const enum tb_cli_exit asked = ask_for(call, p, &reply);
    if (asked != TB_CLI_DONE) return asked;
    const json_t *events = json_object_get(reply, "events");
    const size_t count = json_array_size(events);
    p->last = tb_count_of(reply, "last");
    note_gap(call, p, tb_count_of(reply, "first"));
    const enum tb_cli_exit code = page_take(call, p, events);
    if (count > 0) {
        const uint64_t id = tb_count_of(json_array_get(events, count - 1), "id");
        *more_out = id > p->after && id < p->last;
        p->after = id;
    }
    json_decref(reply);
    return code;
}

static enum tb_cli_exit pages_show(const struct tb_cli_call *call, struct place *p)
{
    enum tb_cli_exit code = TB_CLI_DONE;
    for (bool more = true; more && code == TB_CLI_DONE;)
        code = page_show(call, p, &more);
    return code;
}

/* Events of before this command. */
static enum tb_cli_exit first_show(const struct tb_cli_call *call, struct place *p)
{
    const bool filtered = tb_cli_given(call, "level") || tb_cli_given(call, "event");
    if (filtered && !tb_cli_given(call, "from")) p->kept = json_array();
    enum tb_cli_exit code = place_find(call, p);
    if (code == TB_CLI_DONE) code = pages_show(call, p);
    const enum tb_cli_exit printed = page_print(call, p->kept); /* also where the rest did not come */
    json_decref(p->kept);
    p->kept = NULL;
    return code != TB_CLI_DONE ? code : printed;
}

enum tb_cli_exit tb_cli_events(const struct tb_cli_call *call)
{
    struct place place = {0};
    TB_ASSERT(call->argument_count == 0); /* the table of commands says so */
    const uint64_t limit = tb_cli_number(call, "limit", LIMIT_DEFAULT);
    if (limit < 1 || limit > LIMIT_MAX)
        return tb_say_failure(call, TB_BAD_ARGUMENT, "--limit is between 1 and %u", LIMIT_MAX);
    const bool follow = tb_cli_given(call, "follow");
    if (follow) tb_cli_end_on_signals();
    enum tb_cli_exit code = first_show(call, &place);
    while (follow && (code == TB_CLI_DONE || code == TB_CLI_AWAY || code == TB_CLI_TIMEOUT)) {
        if (!tb_cli_sleep(FOLLOW_EVERY_MS)) return TB_CLI_DONE;
        code = pages_show(call, &place);
    }
    return code;
}
