/* page_verdict.c - one sentence on how the site stands: what is behind and why, what is not known,
 * and what this gateway cannot do now. */
#include <inttypes.h>
#include <string.h>

#include "gateway/cli/operator/lag_verdict.h"
#include "gateway/web/markup.h"
#include "gateway/web/page_parts.h"

static bool is_unknown(const json_t *row)
{
    return !tb_facts_is_true(row, "known");
}

static bool is_behind(const json_t *row)
{
    return tb_facts_is_true(row, "known") && tb_lag_verdict_is_behind(row);
}

static bool is_down(const json_t *link)
{
    return *tb_facts_text(link, "state") != '\0' && !tb_facts_equals(link, "state", "up");
}

static size_t count_of(const json_t *rows, bool (*counts)(const json_t *row))
{
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(rows); i++)
        count += counts(json_array_get(rows, i));
    return count;
}

/* The first row that counts; there is one. */
static const json_t *first_of(const json_t *rows, bool (*counts)(const json_t *row))
{
    size_t i = 0;
    while (i + 1 < json_array_size(rows) && !counts(json_array_get(rows, i)))
        i++;
    return json_array_get(rows, i);
}

static void model_at_site(FILE *out, const json_t *row)
{
    tb_markup_name(out, tb_facts_text(row, "model"));
    (void)fputs(" at ", out);
    tb_markup_name(out, tb_facts_text(row, "site"));
}

/* Rows are sorted: of those behind the worst is the first. */
static void say_behind(FILE *out, const json_t *rows, size_t behind)
{
    const json_t *row = first_of(rows, is_behind);
    const json_int_t versions = json_integer_value(json_object_get(row, "versions"));
    model_at_site(out, row);
    (void)fprintf(out, " is %" PRId64 " version%s and ", (int64_t)versions, versions == 1 ? "" : "s");
    tb_markup_seconds(out, tb_facts_number(row, "seconds"));
    (void)fputs(" behind: ", out);
    tb_markup_text(out, tb_facts_text(row, "reason"));
    (void)fputs(".", out);
    if (behind > 1)
        (void)fprintf(out, " %zu more %s behind.", behind - 1, behind == 2 ? "row is" : "rows are");
}

static void say_unknown(FILE *out, const json_t *rows, size_t unknown)
{
    const json_t *row = first_of(rows, is_unknown);
    (void)fputs(" Nothing is known now of ", out);
    model_at_site(out, row);
    (void)fputs(" (", out);
    tb_markup_text(out, tb_facts_text(row, "reason"));
    (void)fputs(")", out);
    if (unknown > 1) (void)fprintf(out, " and of %zu more", unknown - 1);
    (void)fputs(".", out);
}

static void say_links(FILE *out, const json_t *links)
{
    const size_t down = count_of(links, is_down);
    if (down == 0) return;
    (void)fputs(" The link to ", out);
    tb_markup_name(out, tb_facts_text(first_of(links, is_down), "site"));
    (void)fputs(" is down", out);
    if (down > 1) (void)fprintf(out, ", and %zu more of %zu", down - 1, json_array_size(links));
    (void)fputs(".", out);
}

static void say_rows(FILE *out, const json_t *rows)
{
    const size_t behind = count_of(rows, is_behind), unknown = count_of(rows, is_unknown);
    if (!json_is_array(rows))
        (void)fputs("How the sites stand is not known: the gateway did not say it.", out);
    else if (json_array_size(rows) == 0)
        (void)fputs("No model is published or followed here.", out);
    else if (behind == 0 && unknown == 0)
        (void)fputs("All sites have what they should have.", out);
    if (behind > 0) say_behind(out, rows, behind);
    if (unknown > 0) say_unknown(out, rows, unknown);
}

const char *tb_page_verdict_class(const struct tb_web_facts *facts)
{
    static const char *const classes[] = {"good", "warn", "bad", "unknown"};
    const json_t *rows = json_object_get(facts->lag, "lag"), *links = json_object_get(facts->status, "links");
    const json_t *store_ok = json_object_get(facts->status, "store_ok");
    const bool known = json_is_array(rows) && json_is_boolean(store_ok);
    enum tb_lag_severity worst = known ? TB_LAG_FINE : TB_LAG_NOT_KNOWN;
    if (facts->status == NULL || facts->silent || json_is_false(store_ok)) return "bad";
    for (size_t i = 0; i < json_array_size(rows); i++)
        worst = tb_lag_verdict_worse(
            worst, tb_lag_verdict_severity(json_array_get(rows, i), TB_PAGE_WARN_S, TB_PAGE_CRIT_S));
    if (worst == TB_LAG_FINE && (count_of(links, is_down) > 0 || tb_facts_is_true(facts->status, "draining")))
        worst = TB_LAG_WARNING;
    return classes[worst];
}

static void say_silence(FILE *out, const struct tb_web_facts *facts)
{
    (void)fputs("The gateway does not answer on its control socket.", out);
    if (facts->status == NULL) return;
    (void)fputs(" What follows is how it stood <time data-age=\"", out);
    (void)fprintf(out, "%.1f\">", facts->age_s);
    tb_markup_seconds(out, facts->age_s);
    (void)fputs("</time> ago.", out);
}

static void say_store(FILE *out, const json_t *store_ok)
{
    if (json_is_false(store_ok)) (void)fputs(" Its store cannot be written: publishing is refused.", out);
    if (!json_is_boolean(store_ok)) (void)fputs(" Whether its store can be written is not known.", out);
}

void tb_page_verdict(FILE *out, const struct tb_web_facts *facts)
{
    const bool silent = facts->status == NULL || facts->silent;
    (void)fprintf(out, "<p class=\"verdict %s\">", tb_page_verdict_class(facts));
    if (silent) {
        say_silence(out, facts);
    } else {
        say_rows(out, json_object_get(facts->lag, "lag"));
        say_links(out, json_object_get(facts->status, "links"));
        if (tb_facts_is_true(facts->status, "draining")) (void)fputs(" This gateway drains.", out);
        say_store(out, json_object_get(facts->status, "store_ok"));
    }
    (void)fputs("</p>\n", out);
}
