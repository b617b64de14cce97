/* page_sites.c - sites by models, and the rows of "lag" in full with what each rests on. */
#include <inttypes.h>
#include <string.h>

#include "gateway/cli/operator/lag_verdict.h"
#include "gateway/web/markup.h"
#include "gateway/web/page.h"
#include "gateway/web/page_parts.h"
#include "gateway/web/site_matrix.h"

#define ROWS_FEW   24u /* so many fit the overview in full */
#define ROWS_WORST 8u
#define ROWS_MOST  20u /* of a part */
#define SITES_FEW  20u
#define SITES_PART 25u /* of a part */

static const char *const classes[] = {"good", "warn", "bad", "unknown"};

static const char *class_of(const json_t *row)
{
    return classes[tb_lag_verdict_severity(row, TB_PAGE_WARN_S, TB_PAGE_CRIT_S)];
}

static json_int_t versions_of(const json_t *row)
{
    return json_integer_value(json_object_get(row, "versions"));
}

/* ---- sites by models ---- */

/* A pair that is as it should be has no title: that keeps a page of 10,000 pairs small. */
static void matrix_cell(FILE *out, const json_t *row)
{
    if (row == NULL) {
        (void)fputs("<td class=\"none\"></td>", out);
        return;
    }
    if (tb_facts_equals(row, "reason", "up-to-date")) {
        (void)fputs("<td class=\"ok\">\xe2\x9c\x93</td>", out); /* a tick */
        return;
    }
    const bool known = tb_facts_is_true(row, "known");
    (void)fprintf(out, "<td class=\"%s\" title=\"",
                  tb_lag_verdict_is_behind(row) || !known ? class_of(row) : "soft");
    tb_markup_text(out, tb_facts_text(row, "model"));
    (void)fputs(": ", out);
    tb_markup_text(out, tb_facts_text(row, "reason"));
    (void)fputs("\">", out);
    if (!known)
        (void)fputs("?", out);
    else
        (void)fprintf(out, "%" PRId64, (int64_t)versions_of(row));
    (void)fputs("</td>", out);
}

static void matrix_head(FILE *out, const struct tb_site_matrix *m)
{
    (void)fputs("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Sites by models\">"
                "<table class=\"matrix\"><thead><tr><th scope=\"col\">site</th>",
                out);
    for (size_t i = 0; i < m->model_count; i++) {
        (void)fputs("<th scope=\"col\"><span>", out);
        tb_markup_text(out, m->models[i]);
        (void)fputs("</span></th>", out);
    }
    (void)fputs("</tr></thead><tbody>\n", out);
}

static void matrix_row(FILE *out, const struct tb_site_matrix *m, const struct tb_matrix_site *site)
{
    (void)fprintf(out, "<tr><th scope=\"row\" class=\"%s\">", classes[site->worst]);
    tb_markup_text(out, site->name);
    (void)fputs("</th>", out);
    for (size_t i = 0; i < m->model_count; i++)
        matrix_cell(out, site->cells[i]);
    (void)fputs("</tr>\n", out);
}

static size_t parts_of(size_t count, size_t of_part)
{
    return (count + of_part - 1) / of_part;
}

/* Links to the first part, to those beside this one and to the last one. */
static void pager(FILE *out, size_t part, size_t parts)
{
    const size_t last = parts < TB_PAGE_PARTS_MAX ? parts : TB_PAGE_PARTS_MAX;
    size_t before = 0;
    if (parts < 2) return;
    (void)fputs("<p class=\"pager\">Part ", out);
    for (size_t i = 1; i <= last; i++) {
        if (i != 1 && i != last && (i + 2 < part || i > part + 2)) continue;
        (void)fprintf(out, "%s<a href=\"/sites/%zu\"%s>%zu</a> ", i > before + 1 ? "to " : "", i,
                      i == part ? " aria-current=\"page\"" : "", i);
        before = i;
    }
    (void)fputs("</p>\n", out);
    if (parts > last)
        (void)fputs("<p>These are not all: <code>tombolo lag</code> has the others.</p>\n", out);
}

static void matrix_rest(FILE *out, const struct tb_site_matrix *m, size_t shown)
{
    size_t fine = 0;
    if (shown >= m->site_count) return;
    for (size_t i = shown; i < m->site_count; i++)
        fine += m->sites[i].worst == TB_LAG_FINE;
    (void)fprintf(
        out, "<p>%zu more sites; %zu of them have what they should have. <a href=\"/sites\">All</a></p>\n",
        m->site_count - shown, fine);
}

static void legend(FILE *out)
{
    (void)fputs("<p class=\"soft\">A tick: it has the newest version. A number: versions that it lacks. "
                "?: nothing is known of it now. Blank: it does not follow the model.</p>\n",
                out);
}

/* Part 0: the worst sites alone. */
static void matrix_part(FILE *out, const struct tb_site_matrix *m, uint32_t part)
{
    const size_t of_part = part == 0 ? SITES_FEW : SITES_PART;
    const size_t first = part == 0 ? 0 : (part - 1) * of_part;
    const size_t end = first + of_part < m->site_count ? first + of_part : m->site_count;
    matrix_head(out, m);
    for (size_t i = first; i < end; i++)
        matrix_row(out, m, &m->sites[i]);
    tb_markup_table_end(out);
    legend(out);
    if (part == 0) matrix_rest(out, m, end);
}

/* A part has 25 sites of the matrix and 20 rows in full: there are as many parts as the longer list
 * needs. */
void tb_page_matrix(FILE *out, const struct tb_web_facts *facts, uint32_t part)
{
    const json_t *rows = json_object_get(facts->lag, "lag");
    struct tb_site_matrix m;
    if (!json_is_array(rows))
        (void)fputs("<p class=\"unknown\">Unknown: the gateway did not say it.</p>\n", out);
    else if (json_array_size(rows) == 0)
        (void)fputs("<p>No model is published or followed here.</p>\n", out);
    if (json_array_size(rows) == 0 || (part == 0 && json_array_size(rows) <= ROWS_FEW)) return;
    if (!tb_site_matrix_open(&m, rows, TB_PAGE_WARN_S, TB_PAGE_CRIT_S)) {
        (void)fputs("<p>There is no memory to show it.</p>\n", out);
        return;
    }
    const size_t parts = parts_of(m.site_count, SITES_PART),
                 row_parts = parts_of(json_array_size(rows), ROWS_MOST);
    if (part > 0) pager(out, part, parts > row_parts ? parts : row_parts);
    if (part > parts)
        (void)fputs("<p class=\"soft\">Each site is in a part before this one.</p>\n", out);
    else
        matrix_part(out, &m, part);
    tb_site_matrix_close(&m);
}

/* ---- rows in full ---- */

static bool is_fine(const json_t *row)
{
    return tb_facts_equals(row, "reason", "up-to-date");
}

/* Under the row: what the reason rests on, and what is next. */
static void why_row(FILE *out, const json_t *row)
{
    const char *advice = tb_lag_verdict_advice(tb_facts_text(row, "reason"));
    if (is_fine(row)) return;
    (void)fputs("<tr class=\"more\"><td colspan=\"11\">", out);
    tb_markup_text(out, tb_facts_text(row, "why"));
    if (*tb_facts_text(row, "evidence") != '\0') (void)fputs(": ", out);
    tb_markup_text(out, tb_facts_text(row, "evidence"));
    (void)fputs(advice != NULL ? ". Next: " : "", out);
    tb_markup_text(out, advice != NULL ? advice : "");
    (void)fputs("</td></tr>\n", out);
}

static void until_cell(FILE *out, const json_t *row)
{
    const json_t *eta = json_object_get(row, "eta_s");
    (void)fputs("<td class=\"n\">", out);
    if (json_array_size(eta) == 2) {
        tb_markup_seconds(out, json_number_value(json_array_get(eta, 0)));
        (void)fputs(" to ", out);
        tb_markup_seconds(out, json_number_value(json_array_get(eta, 1)));
    } else if (tb_facts_is_true(row, "known") && versions_of(row) > 0)
        (void)fputs("no estimate", out);
    (void)fputs("</td>", out);
}

static void heard_cell(FILE *out, const json_t *row)
{
    (void)fputs("<td class=\"n\">", out);
    if (tb_facts_is_number(row, "heard_s")) {
        tb_markup_seconds(out, tb_facts_number(row, "heard_s"));
        (void)fputs(" ago", out);
    } else
        (void)fputs("never", out);
    (void)fputs("</td>", out);
}

static void behind_cells(FILE *out, const json_t *row)
{
    const bool fine = tb_facts_is_true(row, "known") && versions_of(row) == 0;
    tb_markup_count_cell(out, row, "versions");
    if (fine) {
        tb_markup_cell(out, "n", "");
        tb_markup_cell(out, "n", "");
        return;
    }
    tb_markup_bytes_cell(out, row, "bytes");
    tb_markup_seconds_cell(out, row, "seconds");
}

static void lag_row(FILE *out, const json_t *row)
{
    (void)fprintf(out, "<tr class=\"%s%s\">", tb_facts_is_true(row, "known") ? "" : "gone",
                  is_fine(row) ? "" : " told");
    tb_markup_cell(out, NULL, tb_facts_text(row, "model"));
    tb_markup_cell(out, NULL, tb_facts_text(row, "site"));
    (void)fputs("<td>", out);
    (void)fprintf(out, "<span class=\"tag %s\">", is_fine(row) ? "good" : class_of(row));
    tb_markup_text(out, tb_facts_text(row, "reason"));
    (void)fputs("</span></td>", out);
    behind_cells(out, row);
    until_cell(out, row);
    tb_markup_cell(out, "n", tb_facts_text(row, "head"));
    tb_markup_cell(out, "n", tb_facts_text(row, "latest"));
    tb_markup_cell(out, "n", tb_facts_text(row, "active"));
    heard_cell(out, row);
    (void)fputs("</tr>\n", out);
    why_row(out, row);
}

static void lag_range(FILE *out, const json_t *rows, size_t first, size_t end)
{
    static const char *const heads[] = {"model",  "site",  "state",        "#behind", "#lacks", "#for",
                                        "#until", "#head", "#whole there", "#active", "#heard", NULL};
    tb_markup_table_begin(out, "Sites and models", heads);
    for (size_t i = first; i < end; i++)
        lag_row(out, json_array_get(rows, i));
    tb_markup_table_end(out);
}

/* Rows are sorted, the worst first. */
void tb_page_lag(FILE *out, const struct tb_web_facts *facts, uint32_t part)
{
    const json_t *rows = json_object_get(facts->lag, "lag");
    const size_t count = json_array_size(rows);
    const size_t most = part > 0 ? ROWS_MOST : count <= ROWS_FEW ? ROWS_FEW : ROWS_WORST;
    const size_t first = part > 1 ? (size_t)(part - 1) * ROWS_MOST : 0;
    const size_t end = first + most < count ? first + most : count;
    if (first >= end) return;
    if (end - first < count)
        (void)fprintf(out, "<p class=\"soft\">Rows %zu to %zu of %zu, the worst first.</p>\n", first + 1, end,
                      count);
    lag_range(out, rows, first, end);
}
