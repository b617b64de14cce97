/* page_timeline.c - the way of each version over all sites, and the versions that are here.
 *
 * This site's own stages are the gateway's times. Those of other sites are what tombolo-web saw
 * (sightings.h): right to the second or so, and unknown where nobody looked. All begin when the
 * version was opened, by the clock of its home. */
#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "gateway/web/markup.h"
#include "gateway/web/page_parts.h"
#include "gateway/web/sightings.h"

#define SITES_SHOWN    12u
#define VERSIONS_TABLE 50u
#define UNITS          1000.0 /* of a bar's width */

struct part {
    const char *class;
    double from_s, to_s;
};

/* ---- versions, the newest first ---- */

static double opened_ms(const json_t *version)
{
    return tb_facts_number(version, "opened_ms");
}

/* An answer is ordered by model, run and number: the newest of all models are those that were
 * opened last. Of one that was evicted here the way is not known any more. */
static size_t newest_of(const json_t *versions, const json_t **newest, size_t most)
{
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(versions); i++) {
        const json_t *version = json_array_get(versions, i);
        if (tb_facts_equals(version, "state", "retired")) continue;
        if (count == most && opened_ms(newest[most - 1]) > opened_ms(version)) continue;
        size_t at = count < most ? count++ : most - 1;
        for (; at > 0 && opened_ms(newest[at - 1]) <= opened_ms(version); at--)
            newest[at] = newest[at - 1];
        newest[at] = version;
    }
    return count;
}

static double age_of(const struct tb_web_facts *facts, const json_t *version)
{
    const double opened = opened_ms(version);
    return opened > 0 && facts->wall_ms > opened ? (facts->wall_ms - opened) / 1e3 : 0;
}

/* ---- bars ---- */

#define PARTS_MAX 4u

/* The stages of this site, one behind the other. */
static size_t own_parts(const json_t *version, struct part *parts_out)
{
    static const struct {
        const char *key, *class;
    } stages[] = {{"queued_s", "queued"},
                  {"manifests_s", "manifests"},
                  {"landing_s", "landing"},
                  {"activating_s", "activating"}};
    const json_t *said = json_object_get(version, "stages");
    double at_s = 0;
    size_t count = 0;
    for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++) {
        const double seconds = tb_facts_number(said, stages[i].key);
        if (!(seconds > 0)) continue;
        TB_ASSERT(count < PARTS_MAX);
        parts_out[count++] = (struct part){stages[i].class, at_s, at_s + seconds};
        at_s += seconds;
    }
    return count;
}

struct seen {
    double some_s, whole_s, active_s; /* 0: not yet, < 0: nobody saw when */
};

static struct seen seen_of(const struct tb_web_facts *facts, const json_t *version, const char *site)
{
    const char *uid = tb_facts_text(version, "uid");
    const struct tb_sightings *s = facts->sightings;
    if (s == NULL) return (struct seen){-1, -1, -1};
    return (struct seen){(double)tb_sightings_at(s, uid, site, TB_SIGHTING_SOME),
                         (double)tb_sightings_at(s, uid, site, TB_SIGHTING_WHOLE),
                         (double)tb_sightings_at(s, uid, site, TB_SIGHTING_ACTIVE)};
}

/* A crossing goes on until now. Whether anybody is to activate it there is not known here, so
 * that part is drawn once it is over. */
static size_t other_parts(const struct seen *seen, double age_s, struct part *parts_out)
{
    size_t count = 0;
    if (seen->some_s > 0) parts_out[count++] = (struct part){"queued", 0, seen->some_s};
    if (seen->some_s > 0 && !(seen->whole_s < 0))
        parts_out[count++] =
            (struct part){"landing", seen->some_s, seen->whole_s > 0 ? seen->whole_s : age_s};
    if (seen->whole_s > 0 && seen->active_s > 0)
        parts_out[count++] = (struct part){"activating", seen->whole_s, seen->active_s};
    return count;
}

static double end_of(const struct part *parts, size_t count)
{
    return count > 0 ? parts[count - 1].to_s : 0;
}

static void bar(FILE *out, const struct part *parts, size_t count, double longest_s)
{
    (void)fputs(
        "<td class=\"bar\"><svg viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\">",
        out);
    for (size_t i = 0; longest_s > 0 && i < count; i++) {
        const double from = parts[i].from_s / longest_s * UNITS, to = parts[i].to_s / longest_s * UNITS;
        if (from >= UNITS) continue;
        const double shown = (to < UNITS ? to : UNITS) - from;
        (void)fprintf(out, "<rect class=\"%s\" x=\"%.0f\" y=\"0\" width=\"%.0f\" height=\"10\"/>",
                      parts[i].class, from, shown > 3 ? shown : 3.0);
    }
    (void)fputs("</svg></td>", out);
}

/* ---- words ---- */

static void say_percent(FILE *out, double held, double bytes)
{
    (void)fprintf(out, "%.0f %%", bytes > 0 ? held / bytes * 100 : 0.0);
}

static void say_spread(FILE *out, const json_t *version)
{
    const json_t *workers = json_object_get(version, "workers");
    size_t whole = 0, active = 0;
    for (size_t i = 0; i < json_array_size(workers); i++) {
        whole += tb_facts_is_true(json_array_get(workers, i), "whole");
        active += tb_facts_is_true(json_array_get(workers, i), "active");
    }
    if (json_array_size(workers) == 0) return;
    (void)fprintf(out, "; of %zu workers %zu have it, %zu use it", json_array_size(workers), whole, active);
}

static void own_words(FILE *out, const json_t *version)
{
    static const char *const names[] = {"queued", "manifests", "landing", "activating"};
    static const char *const keys[] = {"queued_s", "manifests_s", "landing_s", "activating_s"};
    const json_t *stages = json_object_get(version, "stages");
    const char *before = "";
    (void)fputs("<td>", out);
    if (tb_facts_is_number(version, "whole_s")) {
        (void)fputs("whole in ", out);
        tb_markup_seconds(out, tb_facts_number(version, "whole_s"));
    } else
        say_percent(out, tb_facts_number(version, "held_bytes"), tb_facts_number(version, "bytes"));
    (void)fputs(" <small>", out);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (!tb_facts_is_number(stages, keys[i])) continue;
        (void)fprintf(out, "%s%s ", before, names[i]);
        tb_markup_seconds(out, tb_facts_number(stages, keys[i]));
        before = ", ";
    }
    say_spread(out, version);
    (void)fputs("</small></td>", out);
}

static void say_when(FILE *out, const char *what, double at_s)
{
    (void)fputs(what, out);
    if (at_s > 0) {
        (void)fputs(" after ", out);
        tb_markup_seconds(out, at_s);
    } else
        (void)fputs(" (when: unknown)", out);
}

static void other_words(FILE *out, const json_t *version, const json_t *site, const struct seen *seen)
{
    (void)fputs(tb_facts_is_true(site, "known") ? "<td>" : "<td class=\"unknown\">", out);
    if (!tb_facts_is_true(site, "known")) {
        (void)fputs("unknown: nothing is heard of it now", out);
    } else if (!tb_facts_is_true(site, "whole")) {
        say_percent(out, tb_facts_number(site, "held_bytes"), tb_facts_number(version, "bytes"));
    } else {
        say_when(out, "whole", seen->whole_s);
        if (tb_facts_is_true(site, "activated")) say_when(out, ", in use", seen->active_s);
    }
    (void)fputs("</td>", out);
}

/* ---- one version ---- */

static double longest_of(const struct tb_web_facts *facts, const json_t *version)
{
    struct part parts[PARTS_MAX] = {{NULL, 0, 0}};
    const json_t *sites = json_object_get(version, "sites");
    double longest_s = end_of(parts, own_parts(version, parts));
    for (size_t i = 0; i < json_array_size(sites) && i < SITES_SHOWN; i++) {
        const struct seen seen = seen_of(facts, version, tb_facts_text(json_array_get(sites, i), "site"));
        const double end_s = end_of(parts, other_parts(&seen, age_of(facts, version), parts));
        if (end_s > longest_s) longest_s = end_s;
    }
    return longest_s;
}

static void site_name(FILE *out, const char *name)
{
    (void)fputs("<tr><th scope=\"row\">", out);
    tb_markup_text(out, name);
    (void)fputs("</th>", out);
}

static void version_rows(FILE *out, const struct tb_web_facts *facts, const json_t *version)
{
    const json_t *sites = json_object_get(version, "sites");
    const double longest_s = longest_of(facts, version);
    struct part parts[PARTS_MAX] = {{NULL, 0, 0}};
    size_t count = own_parts(version, parts);
    site_name(out, tb_facts_text(facts->status, "site"));
    bar(out, parts, count, longest_s);
    own_words(out, version);
    (void)fputs("</tr>\n", out);
    for (size_t i = 0; i < json_array_size(sites) && i < SITES_SHOWN; i++) {
        const json_t *site = json_array_get(sites, i);
        const struct seen seen = seen_of(facts, version, tb_facts_text(site, "site"));
        count = other_parts(&seen, age_of(facts, version), parts);
        site_name(out, tb_facts_text(site, "site"));
        bar(out, parts, count, longest_s);
        other_words(out, version, site, &seen);
        (void)fputs("</tr>\n", out);
    }
}

static void version_name(FILE *out, const json_t *version)
{
    tb_markup_text(out, tb_facts_text(version, "model"));
    (void)fprintf(out, " %" PRId64 ":%" PRId64, (int64_t)json_integer_value(json_object_get(version, "run")),
                  (int64_t)json_integer_value(json_object_get(version, "number")));
}

static void one_version(FILE *out, const struct tb_web_facts *facts, const json_t *version)
{
    const size_t sites = json_array_size(json_object_get(version, "sites"));
    (void)fputs("<div class=\"way\"><h3>", out);
    version_name(out, version);
    (void)fputs(" <small>", out);
    tb_markup_text(out, tb_facts_text(version, "state"));
    (void)fputs(", ", out);
    tb_markup_bytes(out, tb_facts_number(version, "bytes"));
    (void)fputs(", opened ", out);
    if (age_of(facts, version) > 0) {
        tb_markup_seconds(out, age_of(facts, version));
        (void)fputs(" ago", out);
    } else
        (void)fputs("at an unknown time", out);
    (void)fputs("</small></h3><table>\n", out);
    version_rows(out, facts, version);
    (void)fputs("</table>", out);
    if (sites > SITES_SHOWN)
        (void)fprintf(out, "<p class=\"soft\">And %zu more sites.</p>", sites - SITES_SHOWN);
    (void)fputs("</div>\n", out);
}

static void legend(FILE *out)
{
    (void)fputs("<p class=\"legend\"><i class=\"queued\"></i>waits <i class=\"manifests\"></i>manifests "
                "<i class=\"landing\"></i>lands <i class=\"activating\"></i>until workers use it</p>\n",
                out);
}

#define TIMELINES_MAX 32u

void tb_page_timeline(FILE *out, const struct tb_web_facts *facts, uint32_t most)
{
    const json_t *newest[TIMELINES_MAX] = {NULL};
    TB_ASSERT(most > 0 && most <= TIMELINES_MAX);
    const size_t count = newest_of(json_object_get(facts->versions, "versions"), newest, most);
    if (count == 0) {
        (void)fputs("<p>No version is here.</p>\n", out);
        return;
    }
    legend(out);
    for (size_t i = 0; i < count; i++)
        one_version(out, facts, newest[i]);
}

/* ---- the table ---- */

static void table_row(FILE *out, const json_t *version)
{
    const json_t *sent = json_object_get(version, "sent");
    (void)fputs("<tr><td>", out);
    version_name(out, version);
    (void)fputs("</td>", out);
    tb_markup_cell(out, NULL, tb_facts_text(version, "state"));
    tb_markup_bytes_cell(out, version, "bytes");
    tb_markup_bytes_cell(out, version, "held_bytes");
    tb_markup_bytes_cell(out, version, "proven_bytes");
    tb_markup_bytes_cell(out, version, "wire_bytes");
    if (json_is_object(sent)) {
        tb_markup_bytes_cell(out, sent, "bytes");
        tb_markup_bytes_cell(out, sent, "resent_bytes");
    } else {
        tb_markup_cell(out, "n", "");
        tb_markup_cell(out, "n", "");
    }
    tb_markup_cell(out, NULL, tb_facts_text(version, "signed_by"));
    (void)fputs("</tr>\n", out);
}

void tb_page_version_table(FILE *out, const struct tb_web_facts *facts)
{
    static const char *const heads[] = {"version", "state", "#bytes",      "#held",     "#proven",
                                        "#came",   "#sent", "#sent again", "signed by", NULL};
    const json_t *versions = json_object_get(facts->versions, "versions");
    const size_t count = json_array_size(versions), shown = count < VERSIONS_TABLE ? count : VERSIONS_TABLE;
    tb_markup_table_begin(out, "Versions here", heads);
    for (size_t i = 0; i < shown; i++)
        table_row(out, json_array_get(versions, count - 1 - i));
    tb_markup_table_end(out);
    if (count > shown)
        (void)fprintf(out, "<p class=\"soft\">And %zu more: tombolo versions</p>\n", count - shown);
}
