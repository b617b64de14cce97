/* page_readers.c - reader groups with what they compute from, proven or not; and chains: from whom
 * each worker reads. */
#include <inttypes.h>

#include "gateway/web/group_facts.h"
#include "gateway/web/markup.h"
#include "gateway/web/page_parts.h"

#define CHAINS_MOST  6u
#define MEMBERS_MOST 40u /* of a chain */

/* ---- groups ---- */

static void of_cell(FILE *out, const json_t *group, const char *part, const char *whole)
{
    const bool all = tb_facts_number(group, part) >= tb_facts_number(group, whole);
    (void)fprintf(out, "<td class=\"n%s\">%.0f of %.0f</td>", all ? "" : " warn",
                  tb_facts_number(group, part), tb_facts_number(group, whole));
}

static void proof_cell(FILE *out, const json_t *group)
{
    const double proven = tb_facts_number(group, "proven"), differs = tb_facts_number(group, "differs");
    const double unproven = tb_facts_number(group, "unproven");
    (void)fprintf(out, "<td class=\"%s\">", differs > 0 ? "bad" : "");
    if (!(proven + differs + unproven > 0)) (void)fputs("none computes from a version", out);
    if (proven > 0) (void)fprintf(out, "%.0f proven", proven);
    if (differs > 0) (void)fprintf(out, "%s%.0f from OTHER bytes", proven > 0 ? ", " : "", differs);
    if (unproven > 0) (void)fprintf(out, "%s%.0f not proven", proven + differs > 0 ? ", " : "", unproven);
    (void)fputs("</td>", out);
}

static void group_row(FILE *out, const json_t *group)
{
    const bool stages = *tb_facts_text(group, "staging") != '\0';
    (void)fputs("<tr>", out);
    tb_markup_cell(out, NULL, tb_facts_text(group, "model"));
    tb_markup_cell(out, NULL, tb_facts_text(group, "group"));
    of_cell(out, group, "present", "members");
    tb_markup_cell(out, "n", tb_facts_text(group, "active"));
    of_cell(out, group, "activated", "members");
    tb_markup_cell(out, "n", tb_facts_text(group, "staging"));
    if (stages)
        of_cell(out, group, "staged_whole", "members");
    else
        tb_markup_cell(out, "n", "");
    if (tb_facts_is_number(json_object_get(group, "worst"), "stall_ms"))
        tb_markup_number_cell(out, "%.1f ms", tb_facts_number(json_object_get(group, "worst"), "stall_ms"));
    else
        tb_markup_cell(out, "n unknown", "unknown");
    proof_cell(out, group);
    (void)fputs("</tr>\n", out);
}

void tb_page_groups(FILE *out, const struct tb_web_facts *facts)
{
    static const char *const heads[] = {
        "model",    "group",          "#present",          "#uses", "#members on it", "#staging",
        "#have it", "#longest stall", "from sealed bytes", NULL};
    json_t *groups = tb_group_facts(facts->status);
    const size_t count = json_array_size(json_object_get(facts->status, "groups"));
    if (count == 0) {
        (void)fputs("<p>No worker reads here.</p>\n", out);
    } else {
        tb_markup_table_begin(out, "Reader groups", heads);
        for (size_t i = 0; i < json_array_size(groups); i++)
            group_row(out, json_array_get(groups, i));
        tb_markup_table_end(out);
    }
    if (count > json_array_size(groups))
        (void)fprintf(out, "<p class=\"soft\">And %zu more: tombolo groups</p>\n",
                      count - json_array_size(groups));
    json_decref(groups);
}

/* ---- chains ---- */

static void source_cell(FILE *out, const json_t *members, const json_t *member)
{
    const json_t *source = json_object_get(member, "source");
    if (json_is_integer(source) && json_integer_value(source) >= 0)
        tb_markup_cell(out, NULL,
                       tb_facts_text(json_array_get(members, (size_t)json_integer_value(source)), "name"));
    else
        tb_markup_cell(out, NULL, "");
}

static void member_row(FILE *out, const json_t *members, const json_t *member, double chunks)
{
    const double held = tb_facts_number(member, "held_chunks");
    (void)fputs("<tr>", out);
    tb_markup_cell(out, NULL, tb_facts_text(member, "name"));
    tb_markup_cell(out, NULL, tb_facts_text(member, "kind"));
    source_cell(out, members, member);
    tb_markup_cell(out, NULL, tb_facts_text(member, "transport"));
    if (chunks > 0)
        tb_markup_number_cell(out, "%.0f %%", held / chunks * 100);
    else
        tb_markup_cell(out, "n unknown", "unknown");
    tb_markup_bit_rate_cell(out, member, "bytes_per_s");
    tb_markup_count_cell(out, member, "readers");
    tb_markup_cell(out, NULL,
                   tb_facts_is_true(member, "silent")   ? "silent"
                   : tb_facts_is_true(member, "slow")   ? "slow"
                   : tb_facts_is_true(member, "active") ? "uses it"
                   : tb_facts_is_true(member, "whole")  ? "has it"
                                                        : "reads");
    (void)fputs("</tr>\n", out);
}

static void chain(FILE *out, const json_t *row)
{
    static const char *const heads[] = {"member", "kind",     "reads from", "by", "#has",
                                        "#at",    "#readers", "state",      NULL};
    const json_t *members = json_object_get(row, "members");
    const size_t count = json_array_size(members), shown = count < MEMBERS_MOST ? count : MEMBERS_MOST;
    (void)fputs("<h3>", out);
    tb_markup_text(out, tb_facts_text(row, "model"));
    (void)fprintf(out, " %" PRId64 ":%" PRId64 "</h3>\n",
                  (int64_t)json_integer_value(json_object_get(row, "run")),
                  (int64_t)json_integer_value(json_object_get(row, "number")));
    tb_markup_table_begin(out, "Chain", heads);
    for (size_t i = 0; i < shown; i++)
        member_row(out, members, json_array_get(members, i), tb_facts_number(row, "chunks"));
    tb_markup_table_end(out);
    if (count > shown)
        (void)fprintf(out, "<p class=\"soft\">And %zu more: tombolo chains</p>\n", count - shown);
}

/* The newest versions first. */
void tb_page_chains(FILE *out, const struct tb_web_facts *facts)
{
    const json_t *chains = json_object_get(facts->chains, "chains");
    const size_t count = json_array_size(chains), shown = count < CHAINS_MOST ? count : CHAINS_MOST;
    if (chains == NULL) {
        (void)fputs("<p class=\"unknown\">Unknown: the gateway did not say it.</p>\n", out);
        return;
    }
    if (count == 0) (void)fputs("<p>No worker has or fetches a version.</p>\n", out);
    for (size_t i = 0; i < shown; i++)
        chain(out, json_array_get(chains, count - 1 - i));
    if (count > shown)
        (void)fprintf(out, "<p class=\"soft\">And %zu more: tombolo chains</p>\n", count - shown);
}
