/* page.c - see page.h. */
#include "gateway/web/page.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include "base/assert.h"
#include "gateway/cli/operator/lag_verdict.h"

#define WARN_S 30.0 /* as `tombolo lag --check` */
#define CRIT_S 120.0

/* ---- text ---- */

static void escaped(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '<':
            (void)fputs("&lt;", out);
            break;
        case '>':
            (void)fputs("&gt;", out);
            break;
        case '&':
            (void)fputs("&amp;", out);
            break;
        case '"':
            (void)fputs("&quot;", out);
            break;
        default:
            (void)fputc(*text, out);
        }
    }
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static bool is_true(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

/* A cell with a text of somebody else. `class` NULL: none. */
static void cell(FILE *out, const char *class, const char *text)
{
    (void)fprintf(out, class != NULL ? "<td class=\"%s\">" : "<td>", class);
    escaped(out, *text != '\0' ? text : "\xe2\x80\x93");
    (void)fputs("</td>", out);
}

__attribute__((format(printf, 2, 3))) static void number_cell(FILE *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)fputs("<td class=\"n\">", out);
    (void)vfprintf(out, format, arguments);
    (void)fputs("</td>", out);
    va_end(arguments);
}

static void bytes_cell(FILE *out, double bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    size_t unit = 0;
    for (; bytes >= 999.5 && unit + 1 < sizeof units / sizeof units[0]; unit++)
        bytes /= 1000;
    number_cell(out, unit == 0 || bytes >= 100 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
}

static void seconds_text(FILE *out, double seconds)
{
    const uint64_t whole = seconds > 0 && seconds < 1e15 ? (uint64_t)seconds : 0;
    if (seconds < 60)
        (void)fprintf(out, seconds < 10 ? "%.1f s" : "%.0f s", seconds > 0 ? seconds : 0.0);
    else if (whole < 86400)
        (void)fprintf(out, "%" PRIu64 ":%02u:%02u", whole / 3600, (unsigned)(whole / 60 % 60),
                      (unsigned)(whole % 60));
    else
        (void)fprintf(out, "%" PRIu64 " days", whole / 86400);
}

static void seconds_cell(FILE *out, const json_t *row, const char *key)
{
    const json_t *value = json_object_get(row, key);
    (void)fputs("<td class=\"n\">", out);
    if (json_is_number(value))
        seconds_text(out, json_number_value(value));
    else
        (void)fputs("unknown", out);
    (void)fputs("</td>", out);
}

static void table_begin(FILE *out, const char *title, const char *const *heads)
{
    (void)fprintf(out, "<h2>%s</h2><div class=\"scroll\"><table><thead><tr>", title);
    for (; *heads != NULL; heads++) /* a number's begins with # */
        (void)fprintf(out, **heads == '#' ? "<th class=\"n\">%s</th>" : "<th>%s</th>",
                      *heads + (**heads == '#'));
    (void)fputs("</tr></thead><tbody>\n", out);
}

static void table_end(FILE *out)
{
    (void)fputs("</tbody></table></div>\n", out);
}

/* ---- the verdict ---- */

static enum tb_lag_severity worst_of(const json_t *rows)
{
    enum tb_lag_severity worst = TB_LAG_FINE;
    for (size_t i = 0; i < json_array_size(rows); i++)
        worst = tb_lag_verdict_worse(worst, tb_lag_verdict_severity(json_array_get(rows, i), WARN_S, CRIT_S));
    return worst;
}

static size_t count_of(const json_t *rows, bool (*counts)(const json_t *row))
{
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(rows); i++)
        count += counts(json_array_get(rows, i));
    return count;
}

static bool is_behind(const json_t *row)
{
    return is_true(row, "known") && json_integer_value(json_object_get(row, "versions")) > 0;
}

static bool is_unknown(const json_t *row)
{
    return !is_true(row, "known");
}

/* Rows are sorted: the worst is the first. */
static void worst_row(FILE *out, const json_t *row)
{
    const json_int_t versions = json_integer_value(json_object_get(row, "versions"));
    escaped(out, text_of(row, "model"));
    (void)fputs(" at ", out);
    escaped(out, text_of(row, "site"));
    (void)fprintf(out, " is %" PRId64 " version%s and ", (int64_t)versions, versions == 1 ? "" : "s");
    seconds_text(out, number_of(row, "seconds"));
    (void)fputs(" behind: ", out);
    escaped(out, text_of(row, "reason"));
    (void)fputs(".", out);
}

static void unknown_rows(FILE *out, const json_t *rows, size_t unknown)
{
    size_t i = 0;
    while (!is_unknown(json_array_get(rows, i)))
        i++;
    const json_t *first = json_array_get(rows, i);
    (void)fputs(" Nothing is known now of ", out);
    escaped(out, text_of(first, "model"));
    (void)fputs(" at ", out);
    escaped(out, text_of(first, "site"));
    (void)fputs(" (", out);
    escaped(out, text_of(first, "reason"));
    (void)fputs(")", out);
    if (unknown > 1) (void)fprintf(out, " and of %zu more", unknown - 1);
    (void)fputs(".", out);
}

static void verdict(FILE *out, const struct tb_web_facts *facts)
{
    static const char *const classes[] = {"good", "warn", "bad", "unknown"};
    const json_t *rows = json_object_get(facts->lag, "lag");
    const size_t behind = count_of(rows, is_behind), unknown = count_of(rows, is_unknown);
    if (facts->status == NULL) {
        (void)fputs("<p class=\"verdict bad\">The gateway does not answer on its control socket.</p>\n", out);
        return;
    }
    (void)fprintf(out, "<p class=\"verdict %s\">", classes[worst_of(rows)]);
    if (json_array_size(rows) == 0)
        (void)fputs("No model is published or followed here.", out);
    else if (behind == 0 && unknown == 0)
        (void)fputs("All sites have what they should have.", out);
    if (behind > 0) worst_row(out, json_array_get(rows, 0));
    if (behind > 1)
        (void)fprintf(out, " %zu more %s behind.", behind - 1, behind == 2 ? "row is" : "rows are");
    if (unknown > 0) unknown_rows(out, rows, unknown);
    if (is_true(facts->status, "draining")) (void)fputs(" This gateway drains.", out);
    if (!is_true(facts->status, "store_ok"))
        (void)fputs(" Its store cannot be written: publishing is refused.", out);
    (void)fputs("</p>\n", out);
}

/* ---- sites and models ---- */

static void reason_cell(FILE *out, const json_t *row)
{
    static const char *const classes[] = {"good", "warn", "bad", "unknown"};
    cell(out, classes[tb_lag_verdict_severity(row, WARN_S, CRIT_S)], text_of(row, "reason"));
}

/* Under the row: what the reason rests on, and what is next. */
static void why_row(FILE *out, const json_t *row)
{
    const char *advice = tb_lag_verdict_advice(text_of(row, "reason"));
    if (strcmp(text_of(row, "reason"), "up-to-date") == 0) return;
    (void)fputs("<tr class=\"more\"><td colspan=\"10\">", out);
    escaped(out, text_of(row, "why"));
    if (*text_of(row, "evidence") != '\0') (void)fputs(": ", out);
    escaped(out, text_of(row, "evidence"));
    (void)fputs(advice != NULL ? ". Next: " : "", out);
    escaped(out, advice != NULL ? advice : "");
    (void)fputs("</td></tr>\n", out);
}

static void until_cell(FILE *out, const json_t *row)
{
    const json_t *eta = json_object_get(row, "eta_s");
    (void)fputs("<td class=\"n\">", out);
    if (json_array_size(eta) == 2) {
        seconds_text(out, json_number_value(json_array_get(eta, 0)));
        (void)fputs(" to ", out);
        seconds_text(out, json_number_value(json_array_get(eta, 1)));
    } else if (is_behind(row))
        (void)fputs("no estimate", out);
    (void)fputs("</td>", out);
}

static void heard_cell(FILE *out, const json_t *row)
{
    (void)fputs("<td class=\"n\">", out);
    if (json_is_number(json_object_get(row, "heard_s"))) {
        seconds_text(out, number_of(row, "heard_s"));
        (void)fputs(" ago", out);
    } else
        (void)fputs("never", out);
    (void)fputs("</td>", out);
}

static void lag_row(FILE *out, const json_t *row)
{
    const bool known = is_true(row, "known");
    (void)fputs(known ? "<tr>" : "<tr class=\"stale\">", out);
    cell(out, NULL, text_of(row, "model"));
    cell(out, NULL, text_of(row, "site"));
    reason_cell(out, row);
    if (known)
        number_cell(out, "%" PRId64, (int64_t)json_integer_value(json_object_get(row, "versions")));
    else
        number_cell(out, "unknown");
    if (known && !is_behind(row))
        cell(out, "n", "");
    else
        seconds_cell(out, row, "seconds");
    until_cell(out, row);
    cell(out, NULL, text_of(row, "head"));
    cell(out, NULL, text_of(row, "latest"));
    cell(out, NULL, text_of(row, "active"));
    heard_cell(out, row);
    (void)fputs("</tr>\n", out);
    why_row(out, row);
}

static void lag_table(FILE *out, const json_t *rows)
{
    static const char *const heads[] = {"model", "site",        "state",  "#behind", "#for", "#until",
                                        "head",  "whole there", "active", "#heard",  NULL};
    table_begin(out, "Sites", heads);
    for (size_t i = 0; i < json_array_size(rows); i++)
        lag_row(out, json_array_get(rows, i));
    table_end(out);
}

/* ---- links ---- */

static void link_row(FILE *out, const json_t *link)
{
    const bool up = strcmp(text_of(link, "state"), "up") == 0;
    (void)fputs("<tr>", out);
    cell(out, NULL, text_of(link, "site"));
    cell(out, up ? "good" : "bad", text_of(link, "state"));
    seconds_cell(out, link, "since_s");
    number_cell(out, up ? "%.1f ms" : "\xe2\x80\x93", number_of(link, "rtt_ms"));
    number_cell(out, "%.1f", number_of(link, "goodput_bytes_per_s") * 8 / 1e6);
    number_cell(out, "%.0f", number_of(link, "streams"));
    bytes_cell(out, number_of(link, "sent_raw_bytes"));
    bytes_cell(out, number_of(link, "sent_bytes"));
    bytes_cell(out, number_of(link, "received_bytes"));
    cell(out, up ? NULL : "bad",
         *text_of(link, "error") != '\0' ? text_of(link, "error") : text_of(link, "reason"));
    (void)fputs("</tr>\n", out);
}

static void link_table(FILE *out, const json_t *links)
{
    static const char *const heads[] = {
        "peer",         "state",       "#for",      "#rtt",         "#Mbit/s", "#streams",
        "#sent, whole", "#as encoded", "#received", "what ails it", NULL};
    if (json_array_size(links) == 0) return;
    table_begin(out, "Links", heads);
    for (size_t i = 0; i < json_array_size(links); i++)
        link_row(out, json_array_get(links, i));
    table_end(out);
}

/* ---- versions ---- */

/* Queued, manifests, landing side by side, in parts of the longest. */
static void timeline(FILE *out, const json_t *stages, double longest_s)
{
    static const struct {
        const char *key, *class;
    } parts[] = {{"queued_s", "queued"}, {"manifests_s", "manifests"}, {"landing_s", "landing"}};
    double at = 0;
    (void)fputs("<td><svg viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" role=\"img\">", out);
    for (size_t i = 0; longest_s > 0 && i < sizeof parts / sizeof parts[0]; i++) {
        const double width = number_of(stages, parts[i].key) / longest_s * 1000;
        if (width <= 0) continue;
        (void)fprintf(out,
                      "<rect class=\"%s\" x=\"%.1f\" y=\"1\" width=\"%.1f\" height=\"8\"><title>%s %.2f "
                      "s</title></rect>",
                      parts[i].class, at, width, parts[i].class, number_of(stages, parts[i].key));
        at += width;
    }
    (void)fputs("</svg></td>", out);
}

static double way_s(const json_t *version)
{
    const json_t *stages = json_object_get(version, "stages");
    return number_of(stages, "queued_s") + number_of(stages, "manifests_s") + number_of(stages, "landing_s");
}

static void version_row(FILE *out, const json_t *version, double longest_s)
{
    const double bytes = number_of(version, "bytes");
    (void)fputs("<tr>", out);
    cell(out, NULL, text_of(version, "model"));
    number_cell(out, "%" PRId64 ":%" PRId64, (int64_t)json_integer_value(json_object_get(version, "run")),
                (int64_t)json_integer_value(json_object_get(version, "number")));
    cell(out, NULL, text_of(version, "state"));
    bytes_cell(out, bytes);
    number_cell(out, "%.0f %%", bytes > 0 ? number_of(version, "held_bytes") / bytes * 100 : 0.0);
    bytes_cell(out, number_of(version, "wire_bytes"));
    seconds_cell(out, version, "whole_s");
    timeline(out, json_object_get(version, "stages"), longest_s);
    (void)fputs("</tr>\n", out);
}

/* The newest first. */
static void version_table(FILE *out, const json_t *versions)
{
    static const char *const heads[] = {
        "model",      "#version", "state",     "#bytes",
        "#held here", "#came",    "#whole in", "its way here: queued, manifests, landing",
        NULL};
    const size_t count = json_array_size(versions), shown = count < 50 ? count : 50;
    double longest_s = 0;
    if (count == 0) return;
    for (size_t i = count - shown; i < count; i++)
        if (way_s(json_array_get(versions, i)) > longest_s) longest_s = way_s(json_array_get(versions, i));
    table_begin(out, "Versions here", heads);
    for (size_t i = 0; i < shown; i++)
        version_row(out, json_array_get(versions, count - 1 - i), longest_s);
    table_end(out);
}

/* ---- health ---- */

static void fill_table(FILE *out, const json_t *status)
{
    static const char *const heads[] = {"table", "#used", "#bound", "", "#refused", NULL};
    const json_t *tables = json_object_get(status, "tables"), *arena = json_object_get(status, "arena");
    table_begin(out, "How full it is", heads);
    (void)fputs("<tr><td>arena</td>", out);
    bytes_cell(out, number_of(arena, "used"));
    bytes_cell(out, number_of(arena, "bytes"));
    (void)fprintf(out, "<td><meter max=\"%.0f\" value=\"%.0f\"></meter></td><td></td></tr>\n",
                  number_of(arena, "bytes"), number_of(arena, "used"));
    for (size_t i = 0; i < json_array_size(tables); i++) {
        const json_t *t = json_array_get(tables, i);
        if (number_of(t, "most") * 4 < number_of(t, "bound") && number_of(t, "refused") <= 0) continue;
        (void)fputs("<tr>", out);
        cell(out, NULL, text_of(t, "table"));
        number_cell(out, "%.0f", number_of(t, "used"));
        number_cell(out, "%.0f", number_of(t, "bound"));
        (void)fprintf(out, "<td><meter max=\"%.0f\" value=\"%.0f\"></meter></td>", number_of(t, "bound"),
                      number_of(t, "used"));
        number_cell(out, "%.0f", number_of(t, "refused"));
        (void)fputs("</tr>\n", out);
    }
    table_end(out);
    (void)fputs(
        "<p class=\"soft\">Tables that were never a quarter full are left out; /metrics has all.</p>\n", out);
}

void tb_page_write(FILE *out, const struct tb_web_facts *facts)
{
    TB_ASSERT(out != NULL);
    (void)fputs("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">"
                "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
                "<meta http-equiv=\"refresh\" content=\"5\"><link rel=\"stylesheet\" "
                "href=\"/style.css\"><title>Tombolo ",
                out);
    escaped(out, text_of(facts->status, "site"));
    (void)fputs("</title></head><body><main><h1>", out);
    escaped(out, facts->status != NULL ? text_of(facts->status, "site") : "Tombolo");
    (void)fputs("</h1>\n", out);
    verdict(out, facts);
    if (facts->lag != NULL) lag_table(out, json_object_get(facts->lag, "lag"));
    if (facts->status != NULL) link_table(out, json_object_get(facts->status, "links"));
    if (facts->versions != NULL) version_table(out, json_object_get(facts->versions, "versions"));
    if (facts->status != NULL) fill_table(out, facts->status);
    (void)fputs("</main><footer>As the gateway said within the last second; the page comes anew every five. ",
                out);
    if (facts->status != NULL) {
        (void)fputs("tombolod ", out);
        escaped(out, text_of(facts->status, "version"));
        (void)fputs(", up for ", out);
        seconds_text(out, number_of(facts->status, "uptime_s"));
        (void)fputs(".", out);
    }
    (void)fputs("</footer></body></html>\n", out);
}
