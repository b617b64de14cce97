/* markup.c - see markup.h. */
#include "gateway/web/markup.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include "base/assert.h"

/* ---- texts ---- */

static const char *entity(char c)
{
    switch (c) {
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '&':
        return "&amp;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

/* U+202A..U+202E, U+2066..U+2069, U+200E and U+200F: a name with one of them could make the text
 * behind it read backwards. All have three bytes. */
static bool turns_text(const unsigned char *c)
{
    if (c[0] != 0xe2 || c[1] == 0) return false;
    if (c[1] == 0x80) return (c[2] >= 0xaa && c[2] <= 0xae) || c[2] == 0x8e || c[2] == 0x8f;
    return c[1] == 0x81 && c[2] >= 0xa6 && c[2] <= 0xa9;
}

void tb_markup_text(FILE *out, const char *text)
{
    TB_ASSERT(text != NULL);
    for (; *text != '\0'; text++) {
        const bool turns = turns_text((const unsigned char *)text);
        const char *as = entity(*text);
        if (turns || (unsigned char)*text < ' ' || *text == 0x7f)
            (void)fputs(*text == '\n' || *text == '\t' ? " " : "\xef\xbf\xbd", out);
        else if (as != NULL)
            (void)fputs(as, out);
        else
            (void)fputc(*text, out);
        if (turns) text += 2;
    }
}

void tb_markup_name(FILE *out, const char *text)
{
    (void)fputs("<b>", out);
    tb_markup_text(out, text);
    (void)fputs("</b>", out);
}

/* ---- numbers ---- */

static void scaled(FILE *out, double value, const char *const *units, size_t unit_count)
{
    size_t unit = 0;
    for (; value >= 999.5 && unit + 1 < unit_count; unit++)
        value /= 1000;
    (void)fprintf(out, unit == 0 || value >= 99.95 ? "%.0f %s" : "%.1f %s", value, units[unit]);
}

void tb_markup_bytes(FILE *out, double bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    scaled(out, bytes, units, sizeof units / sizeof units[0]);
}

void tb_markup_bit_rate(FILE *out, double bytes_per_s)
{
    static const char *const units[] = {"bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"};
    scaled(out, bytes_per_s * 8, units, sizeof units / sizeof units[0]);
}

void tb_markup_seconds(FILE *out, double seconds)
{
    const uint64_t whole = seconds > 0 && seconds < 1e15 ? (uint64_t)seconds : 0;
    if (seconds < 0.9995)
        (void)fprintf(out, "%.0f ms", seconds > 0 ? seconds * 1e3 : 0.0);
    else if (seconds < 60)
        (void)fprintf(out, seconds < 9.95 ? "%.1f s" : "%.0f s", seconds);
    else if (whole < 3600)
        (void)fprintf(out, "%" PRIu64 " min %02" PRIu64 " s", whole / 60, whole % 60);
    else if (whole < 2 * 86400)
        (void)fprintf(out, "%" PRIu64 " h %02" PRIu64 " min", whole / 3600, whole / 60 % 60);
    else
        (void)fprintf(out, "%" PRIu64 " days", whole / 86400);
}

void tb_markup_age(FILE *out, double age_s)
{
    (void)fprintf(out, "<small class=\"age\">as of <time data-age=\"%.1f\">", age_s);
    if (age_s < 1) /* it would flicker with each update */
        (void)fputs("under 1 s", out);
    else
        tb_markup_seconds(out, age_s);
    (void)fputs("</time> ago</small>", out);
}

/* ---- cells ---- */

void tb_markup_cell(FILE *out, const char *class, const char *text)
{
    (void)fprintf(out, class != NULL ? "<td class=\"%s\">" : "<td>", class);
    tb_markup_text(out, *text != '\0' ? text : "\xe2\x80\x93");
    (void)fputs("</td>", out);
}

void tb_markup_number_cell(FILE *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)fputs("<td class=\"n\">", out);
    (void)vfprintf(out, format, arguments);
    (void)fputs("</td>", out);
    va_end(arguments);
}

static void field_cell(FILE *out, const json_t *row, const char *key, void (*write)(FILE *out, double value))
{
    const json_t *value = json_object_get(row, key);
    (void)fputs(json_is_number(value) ? "<td class=\"n\">" : "<td class=\"n unknown\">", out);
    if (json_is_number(value))
        write(out, json_number_value(value));
    else
        (void)fputs("unknown", out);
    (void)fputs("</td>", out);
}

static void count_text(FILE *out, double value)
{
    (void)fprintf(out, "%.0f", value);
}

void tb_markup_bytes_cell(FILE *out, const json_t *row, const char *key)
{
    field_cell(out, row, key, tb_markup_bytes);
}

void tb_markup_bit_rate_cell(FILE *out, const json_t *row, const char *key)
{
    field_cell(out, row, key, tb_markup_bit_rate);
}

void tb_markup_seconds_cell(FILE *out, const json_t *row, const char *key)
{
    field_cell(out, row, key, tb_markup_seconds);
}

void tb_markup_count_cell(FILE *out, const json_t *row, const char *key)
{
    field_cell(out, row, key, count_text);
}

/* ---- tables ---- */

void tb_markup_table_begin(FILE *out, const char *name, const char *const *heads)
{
    (void)fprintf(out,
                  "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"%s\"><table><thead><tr>",
                  name);
    for (; *heads != NULL; heads++)
        (void)fprintf(out,
                      **heads == '#' ? "<th class=\"n\" scope=\"col\">%s</th>" : "<th scope=\"col\">%s</th>",
                      *heads + (**heads == '#'));
    (void)fputs("</tr></thead><tbody>\n", out);
}

void tb_markup_table_end(FILE *out)
{
    (void)fputs("</tbody></table></div>\n", out);
}
