/* page_health.c - what this gateway says of itself: checks with a tick or a cross, tables and
 * memory, and its newest events. */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "gateway/web/markup.h"
#include "gateway/web/page_parts.h"

/* ---- checks ---- */

enum verdict { WELL, WARNING, BAD, UNKNOWN };

static void check(FILE *out, enum verdict verdict, const char *words)
{
    static const char *const classes[] = {"good", "warn", "bad", "unknown"};
    static const char *const said[] = {"ok", "look", "bad", "unknown"};
    (void)fprintf(out, "<li><span class=\"tag %s\">%s</span> %s", classes[verdict], said[verdict], words);
}

static void check_flag(FILE *out, const json_t *object, const char *key, const char *well, const char *bad)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_boolean(value))
        check(out, UNKNOWN, well);
    else
        check(out, json_is_true(value) ? WELL : BAD, json_is_true(value) ? well : bad);
    (void)fputs("</li>\n", out);
}

static void check_certificate(FILE *out, const json_t *certificates, const char *key, const char *of)
{
    if (!tb_facts_is_number(certificates, key)) return; /* without TLS there is none */
    const double days = tb_facts_number(certificates, key);
    check(out, days < 1 ? BAD : days < 14 ? WARNING : WELL, of);
    (void)fprintf(out, ": %.0f days left</li>\n", days);
}

static void check_arena(FILE *out, const json_t *arena)
{
    const double bytes = tb_facts_number(arena, "bytes"), used = tb_facts_number(arena, "used");
    if (!(bytes > 0) || !tb_facts_is_number(arena, "used")) {
        check(out, UNKNOWN, "The arena</li>\n");
        return;
    }
    check(out, used / bytes > 0.95 ? WARNING : WELL, "The arena: ");
    tb_markup_bytes(out, used);
    (void)fputs(" of ", out);
    tb_markup_bytes(out, bytes);
    (void)fputs(" are used", out);
    if (tb_facts_is_number(arena, "largest_free")) {
        (void)fputs("; a version of ", out);
        tb_markup_bytes(out, tb_facts_number(arena, "largest_free"));
        (void)fputs(" fits", out);
    } else
        (void)fputs("; what still fits is unknown", out);
    (void)fputs("</li>\n", out);
}

static void check_tables(FILE *out, const json_t *tables)
{
    double refused = 0;
    bool known = json_is_array(tables);
    for (size_t i = 0; i < json_array_size(tables); i++) {
        known = known && tb_facts_is_number(json_array_get(tables, i), "refused");
        refused += tb_facts_number(json_array_get(tables, i), "refused");
    }
    if (!known && !(refused > 0)) {
        check(out, UNKNOWN, "Tables</li>\n");
        return;
    }
    check(out, refused > 0 ? WARNING : WELL, "Tables: ");
    (void)fprintf(out, "%.0f requests found no row since the start</li>\n", refused);
}

static void check_sandbox(FILE *out, const json_t *sandbox)
{
    const char *lacks = tb_facts_text(sandbox, "lacks");
    check(out,
          !json_is_string(json_object_get(sandbox, "lacks")) ? UNKNOWN
          : *lacks == '\0'                                   ? WELL
                                                             : WARNING,
          "The sandbox");
    (void)fputs(*lacks != '\0' ? ": " : "", out);
    tb_markup_text(out, lacks);
    (void)fputs("</li>\n", out);
}

/* No fault: an operator asked for it. */
static void check_draining(FILE *out, const json_t *status)
{
    const json_t *draining = json_object_get(status, "draining");
    if (!json_is_boolean(draining))
        check(out, UNKNOWN, "Whether it drains</li>\n");
    else if (json_is_true(draining))
        check(out, WARNING, "It drains: it takes nothing new</li>\n");
    else
        check(out, WELL, "It does not drain</li>\n");
}

void tb_page_checks(FILE *out, const struct tb_web_facts *facts)
{
    const json_t *status = facts->status, *certificates = json_object_get(status, "certificates");
    (void)fputs("<ul class=\"checks\">\n", out);
    check(out, facts->silent ? BAD : WELL, "The gateway answers on its control socket</li>\n");
    check_flag(out, status, "store_ok", "The store can be written",
               "The store cannot be written: publishing is refused");
    check_draining(out, status);
    check_flag(out, json_object_get(status, "arena"), "verified", "Held chunks are verified",
               "Held chunks are being verified after the start");
    check_arena(out, json_object_get(status, "arena"));
    check_tables(out, json_object_get(status, "tables"));
    check_flag(out, json_object_get(status, "audit"), "ok", "The audit record has each act",
               "Rows of the audit record are lost, or wait for the disk");
    check_certificate(out, certificates, "days_left", "The gateway's certificate");
    check_certificate(out, certificates, "authority_days_left", "The CA that ends first");
    if (tb_facts_is_true(certificates, "own_revoked"))
        check(out, BAD, "This gateway's own certificate is revoked</li>\n");
    check_sandbox(out, json_object_get(status, "sandbox"));
    (void)fputs("</ul>\n", out);
}

/* ---- tables ---- */

static void meter_cell(FILE *out, double bound, double used)
{
    (void)fprintf(out, "<td><meter max=\"%.0f\" high=\"%.0f\" value=\"%.0f\">%.0f %%</meter></td>", bound,
                  bound * 0.75, used, bound > 0 ? used / bound * 100 : 0.0);
}

static void table_row(FILE *out, const json_t *table)
{
    (void)fputs("<tr>", out);
    tb_markup_cell(out, NULL, tb_facts_text(table, "table"));
    tb_markup_count_cell(out, table, "used");
    tb_markup_count_cell(out, table, "most");
    tb_markup_count_cell(out, table, "bound");
    meter_cell(out, tb_facts_number(table, "bound"), tb_facts_number(table, "used"));
    tb_markup_count_cell(out, table, "refused");
    tb_markup_count_cell(out, table, "shares_spent");
    (void)fputs("</tr>\n", out);
}

/* The fullest first would jump about: they keep the gateway's order. */
void tb_page_tables(FILE *out, const struct tb_web_facts *facts)
{
    static const char *const heads[] = {"table", "#used",    "#most",         "#bound",
                                        "fill",  "#refused", "#shares spent", NULL};
    const json_t *tables = json_object_get(facts->status, "tables");
    size_t left_out = 0;
    if (!json_is_array(tables)) {
        (void)fputs("<p class=\"unknown\">Unknown: the gateway did not say it.</p>\n", out);
        return;
    }
    tb_markup_table_begin(out, "Tables", heads);
    for (size_t i = 0; i < json_array_size(tables); i++) {
        const json_t *t = json_array_get(tables, i);
        const bool quiet = tb_facts_number(t, "most") * 4 < tb_facts_number(t, "bound") &&
                           !(tb_facts_number(t, "refused") > 0) && !(tb_facts_number(t, "shares_spent") > 0);
        if (quiet)
            left_out++;
        else
            table_row(out, t);
    }
    tb_markup_table_end(out);
    (void)fprintf(
        out,
        "<p class=\"soft\">%zu tables that were never a quarter full are left out; /metrics has all.</p>\n",
        left_out);
}

/* ---- events ---- */

static void time_cell(FILE *out, const struct tb_web_facts *facts, double time_ms)
{
    const bool sane = time_ms > 0 && time_ms < 1e14; /* until the year 5138 */
    const time_t at = sane ? (time_t)(time_ms / 1e3) : 0;
    struct tm utc;
    char text[32] = "unknown";
    if (sane && gmtime_r(&at, &utc) != NULL) (void)strftime(text, sizeof text, "%m-%d %H:%M:%S", &utc);
    (void)fprintf(out, "<td class=\"when\">%s <small>", text);
    tb_markup_seconds(out, facts->wall_ms > time_ms ? (facts->wall_ms - time_ms) / 1e3 : 0);
    (void)fputs(" ago</small></td>", out);
}

static void event_row(FILE *out, const struct tb_web_facts *facts, const json_t *event)
{
    const char *level = tb_facts_text(event, "level");
    const char *class = strcmp(level, "error") == 0 ? "bad" : strcmp(level, "warn") == 0 ? "warn" : "soft";
    (void)fputs("<tr>", out);
    time_cell(out, facts, tb_facts_number(event, "time_ms"));
    (void)fprintf(out, "<td><span class=\"tag %s\">", class);
    tb_markup_text(out, level);
    (void)fputs("</span></td>", out);
    tb_markup_cell(out, NULL, tb_facts_text(event, "event"));
    tb_markup_cell(out, "text", tb_facts_text(event, "text"));
    (void)fputs("</tr>\n", out);
}

/* The newest first; times are UTC. */
void tb_page_events(FILE *out, const struct tb_web_facts *facts, uint32_t most)
{
    static const char *const heads[] = {"when (UTC)", "level", "event", "what", NULL};
    const json_t *events = json_object_get(facts->events, "events");
    const size_t count = json_array_size(events);
    if (!json_is_array(events)) {
        (void)fputs("<p class=\"unknown\">Unknown: the gateway did not say it.</p>\n", out);
        return;
    }
    tb_markup_table_begin(out, "Events", heads);
    for (size_t i = 0; i < count && i < most; i++)
        event_row(out, facts, json_array_get(events, count - 1 - i));
    tb_markup_table_end(out);
}
