/* page.c - see page.h. Views are rows of a table, and so are their sections. */
#include "gateway/web/page.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "gateway/web/markup.h"
#include "gateway/web/page_parts.h"

#define VERSIONS_AT_ONCE 4u  /* in the overview */
#define VERSIONS_MOST    24u /* in their view */
#define EVENTS_AT_ONCE   6u
#define EVENTS_MOST      100u

#define NEEDS(answer)    TB_ANSWER_BIT(TB_ANSWER_##answer)

static const struct {
    const char *path, *name;
    unsigned needs;
} views[TB_PAGE_VIEWS] = {
    {"/", "Overview", NEEDS(LAG) | NEEDS(VERSIONS) | NEEDS(STREAMS) | NEEDS(EVENTS)},
    {"/sites", "Sites", NEEDS(LAG)},
    {"/versions", "Versions", NEEDS(LAG) | NEEDS(VERSIONS)},
    {"/links", "Links", NEEDS(LAG) | NEEDS(STREAMS)},
    {"/readers", "Readers", NEEDS(LAG) | NEEDS(CHAINS)},
    {"/health", "Health", NEEDS(LAG) | NEEDS(EVENTS)},
};

/* ---- sections ---- */

struct scene {
    const struct tb_web_facts *facts;
    struct tb_page_place place;
};

static void topology(FILE *out, const struct scene *s)
{
    tb_page_topology(out, s->facts);
}

static void throughput(FILE *out, const struct scene *s)
{
    tb_page_throughput(out, s->facts);
}

static void matrix(FILE *out, const struct scene *s)
{
    tb_page_matrix(out, s->facts, s->place.part);
}

static void lag(FILE *out, const struct scene *s)
{
    tb_page_lag(out, s->facts, s->place.part);
}

static void sites(FILE *out, const struct scene *s)
{
    tb_page_matrix(out, s->facts, 0);
    tb_page_lag(out, s->facts, 0);
}

static void timeline(FILE *out, const struct scene *s)
{
    tb_page_timeline(out, s->facts, s->place.view == TB_PAGE_OVERVIEW ? VERSIONS_AT_ONCE : VERSIONS_MOST);
}

static void version_table(FILE *out, const struct scene *s)
{
    tb_page_version_table(out, s->facts);
}

static void link_table(FILE *out, const struct scene *s)
{
    tb_page_link_table(out, s->facts);
}

static void streams(FILE *out, const struct scene *s)
{
    tb_page_streams(out, s->facts);
}

static void groups(FILE *out, const struct scene *s)
{
    tb_page_groups(out, s->facts);
}

static void chains(FILE *out, const struct scene *s)
{
    tb_page_chains(out, s->facts);
}

static void checks(FILE *out, const struct scene *s)
{
    tb_page_checks(out, s->facts);
}

static void tables(FILE *out, const struct scene *s)
{
    tb_page_tables(out, s->facts);
}

static void events(FILE *out, const struct scene *s)
{
    tb_page_events(out, s->facts, s->place.view == TB_PAGE_OVERVIEW ? EVENTS_AT_ONCE : EVENTS_MOST);
}

#define IN(view) (1u << TB_PAGE_##view)

/* In their order on the page. */
static const struct {
    const char *id, *title;
    unsigned views;
    bool half;      /* two of these stand side by side where there is room */
    unsigned shows; /* answers: its age is that of the oldest of them */
    void (*write)(FILE *out, const struct scene *s);
} sections[] = {
    {"topology", "Links", IN(OVERVIEW) | IN(LINKS), true, NEEDS(STATUS) | NEEDS(LAG), topology},
    {"throughput", "Throughput, 15 minutes", IN(OVERVIEW) | IN(LINKS), true, NEEDS(STATUS), throughput},
    {"sites", "Sites and models", IN(OVERVIEW), false, NEEDS(LAG), sites},
    {"matrix", "Sites by models", IN(SITES), false, NEEDS(LAG), matrix},
    {"lag", "Why each stands as it does", IN(SITES), false, NEEDS(LAG), lag},
    {"timeline", "The way of each version", IN(OVERVIEW) | IN(VERSIONS), false, NEEDS(VERSIONS), timeline},
    {"versions", "Versions here", IN(VERSIONS), false, NEEDS(VERSIONS), version_table},
    {"links", "Each link", IN(LINKS), false, NEEDS(STATUS), link_table},
    {"streams", "Streams", IN(LINKS), false, NEEDS(STREAMS), streams},
    {"groups", "Reader groups, and what they compute from", IN(OVERVIEW) | IN(READERS), false, NEEDS(STATUS),
     groups},
    {"chains", "Chains: from whom each worker reads", IN(READERS), false, NEEDS(CHAINS), chains},
    {"health", "Health of this gateway", IN(HEALTH), false, NEEDS(STATUS), checks},
    {"tables", "Tables and memory", IN(HEALTH), false, NEEDS(STATUS), tables},
    {"events", "Events", IN(OVERVIEW) | IN(HEALTH), false, NEEDS(EVENTS), events},
};

static double age_of(const struct tb_web_facts *facts, unsigned answers)
{
    double oldest_s = 0;
    for (int i = 0; i < TB_ANSWERS; i++)
        if ((answers & TB_ANSWER_BIT(i)) != 0 && facts->ages_s[i] > oldest_s) oldest_s = facts->ages_s[i];
    return oldest_s;
}

static void write_section(FILE *out, size_t at, const struct scene *s)
{
    (void)fprintf(out, "<section id=\"%s\"%s><h2>%s ", sections[at].id,
                  sections[at].half ? " class=\"half\"" : "", sections[at].title);
    tb_markup_age(out, age_of(s->facts, sections[at].shows));
    (void)fputs("</h2>\n", out);
    sections[at].write(out, s);
    (void)fputs("</section>\n", out);
}

/* ---- frame ---- */

static void write_navigation(FILE *out, enum tb_page_view view)
{
    (void)fputs("<nav aria-label=\"Views\">", out);
    for (int v = 0; v < TB_PAGE_VIEWS; v++)
        (void)fprintf(out, "<a href=\"%s\"%s>%s</a>", views[v].path,
                      v == (int)view ? " aria-current=\"page\"" : "", views[v].name);
    (void)fputs("</nav>", out);
}

static const char *site_of(const struct tb_web_facts *facts)
{
    const char *site = tb_facts_text(facts->status, "site");
    return *site != '\0' ? site : "Tombolo";
}

static void write_footer(FILE *out, const struct tb_web_facts *facts)
{
    (void)fputs("<footer>", out);
    if (facts->status != NULL) {
        (void)fputs("Gateway ", out);
        tb_markup_text(out, tb_facts_text(facts->status, "gateway"));
        (void)fputs(", tombolod ", out);
        tb_markup_text(out, tb_facts_text(facts->status, "version"));
        (void)fputs(", up for ", out);
        tb_markup_seconds(out, tb_facts_number(facts->status, "uptime_s"));
        (void)fputs(". ", out);
    }
    (void)fputs("<a href=\"/metrics\">/metrics</a> has every number for Prometheus.</footer>\n", out);
}

void tb_page_body_write(FILE *out, const struct tb_web_facts *facts, struct tb_page_place place)
{
    const struct scene scene = {facts, place};
    TB_ASSERT(out != NULL && place.view < TB_PAGE_VIEWS && place.part >= 1);
    (void)fprintf(out, "<div id=\"page\" class=\"%s%s\" data-pace=\"%.1f\" data-site=\"",
                  tb_page_verdict_class(facts), facts->silent ? " stale" : "", facts->pace_s);
    tb_markup_text(out, site_of(facts));
    (void)fputs("\">\n<header><h1>", out);
    tb_markup_text(out, site_of(facts));
    (void)fputs("</h1>", out);
    write_navigation(out, place.view);
    (void)fputs("</header>\n", out);
    tb_page_verdict(out, facts);
    (void)fputs("<main id=\"main\">\n", out);
    for (size_t i = 0; facts->status != NULL && i < sizeof sections / sizeof sections[0]; i++)
        if ((sections[i].views & (1u << place.view)) != 0) write_section(out, i, &scene);
    (void)fputs("</main>\n", out);
    write_footer(out, facts);
    (void)fputs("</div>\n", out);
}

/* Without a script the page comes anew every 5 s; with one, what changes comes by /updates. */
void tb_page_write(FILE *out, const struct tb_web_facts *facts, struct tb_page_place place)
{
    (void)fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
                "<noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>"
                "<link rel=\"stylesheet\" href=\"/style.css\"><link rel=\"icon\" href=\"/icon.svg\">"
                "<script src=\"/page.js\" defer></script><title>",
                out);
    tb_markup_text(out, site_of(facts));
    (void)fprintf(out, " - Tombolo</title></head><body data-updates=\"/updates%s", views[place.view].path);
    if (place.part > 1) (void)fprintf(out, "/%u", (unsigned)place.part);
    (void)fputs("\"><a class=\"skip\" href=\"#main\">To the content</a>\n", out);
    tb_page_body_write(out, facts, place);
    (void)fputs("<p id=\"live\" role=\"status\"></p></body></html>\n", out);
}

/* ---- places ---- */

static bool part_of(const char *text, uint32_t *part_out)
{
    char *end = NULL;
    if (*text < '1' || *text > '9') return false;
    const unsigned long part = strtoul(text, &end, 10);
    if (*end != '\0' || part > TB_PAGE_PARTS_MAX) return false;
    *part_out = (uint32_t)part;
    return true;
}

bool tb_page_find(const char *path, struct tb_page_place *place_out)
{
    for (int v = 0; v < TB_PAGE_VIEWS; v++) {
        const size_t count = strlen(views[v].path);
        *place_out = (struct tb_page_place){(enum tb_page_view)v, 1};
        if (strcmp(path, views[v].path) == 0) return true;
        if (v == TB_PAGE_SITES && strncmp(path, views[v].path, count) == 0 && path[count] == '/')
            return part_of(path + count + 1, &place_out->part);
    }
    return false;
}

unsigned tb_page_needs(enum tb_page_view view)
{
    TB_ASSERT(view < TB_PAGE_VIEWS);
    return views[view].needs;
}
