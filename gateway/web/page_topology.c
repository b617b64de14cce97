/* page_topology.c - this site, its peers and the sites behind them, as a drawing: each link with
 * its state, rate and round trip. Its texts are read out by curl and screen readers as they are. */
#include <string.h>

#include "base/assert.h"
#include "gateway/cli/operator/lag_verdict.h"
#include "gateway/web/markup.h"
#include "gateway/web/page_parts.h"

#define LINKS_SHOWN 8u
#define BEHIND_ONE  3u /* sites behind one peer */
#define ROW_HEIGHT  58
#define BOX_HEIGHT  40
#define BOX_WIDTH   120
#define WIDTH       520
#define NAME_SHOWN  15u /* characters of a name that fit a box */

/* ---- which links ---- */

struct drawn {
    const json_t *links[LINKS_SHOWN];
    size_t count;
};

static bool is_up(const json_t *link)
{
    return tb_facts_equals(link, "state", "up");
}

/* Those that are down are more worth a look, and then those that carry most. */
static bool is_before(const json_t *a, const json_t *b)
{
    if (is_up(a) != is_up(b)) return !is_up(a);
    return tb_facts_number(a, "goodput_bytes_per_s") > tb_facts_number(b, "goodput_bytes_per_s");
}

/* As many as are shown keep the order of the configuration, so that nothing jumps about. */
static void choose(struct drawn *d, const json_t *links)
{
    const bool all = json_array_size(links) <= LINKS_SHOWN;
    d->count = 0;
    for (size_t i = 0; i < json_array_size(links); i++) {
        const json_t *link = json_array_get(links, i);
        size_t at = d->count < LINKS_SHOWN ? d->count : LINKS_SHOWN;
        while (!all && at > 0 && is_before(link, d->links[at - 1]))
            at--;
        if (at == LINKS_SHOWN) continue;
        if (d->count < LINKS_SHOWN) d->count++;
        memmove(&d->links[at + 1], &d->links[at], (d->count - 1 - at) * sizeof d->links[0]);
        d->links[at] = link;
    }
}

/* ---- parts of the drawing ---- */

static const char *class_of_site(const struct tb_web_facts *facts, const char *site)
{
    static const char *const classes[] = {"good", "warn", "bad", "unknown"};
    const json_t *rows = json_object_get(facts->lag, "lag");
    enum tb_lag_severity worst = TB_LAG_FINE;
    bool any = false;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (!tb_facts_equals(row, "site", site)) continue;
        worst = tb_lag_verdict_worse(worst, tb_lag_verdict_severity(row, TB_PAGE_WARN_S, TB_PAGE_CRIT_S));
        any = true;
    }
    return any ? classes[worst] : "soft";
}

/* A name that is too long for its box ends with dots; its title has all of it. */
static void write_name(FILE *out, const char *name)
{
    char shown[NAME_SHOWN * 4 + 4];
    size_t bytes = 0, characters = 0;
    while (name[bytes] != '\0' && characters < NAME_SHOWN && bytes < NAME_SHOWN * 4) {
        bytes++;
        if (((unsigned char)name[bytes] & 0xc0) != 0x80) characters++;
    }
    memcpy(shown, name, bytes);
    memcpy(shown + bytes, name[bytes] != '\0' ? "\xe2\x80\xa6" : "", name[bytes] != '\0' ? 4 : 1);
    tb_markup_text(out, shown);
}

static void box(FILE *out, int x, int y, const char *name, const char *class)
{
    (void)fprintf(out, "<g class=\"box %s\"><title>", class);
    tb_markup_text(out, name);
    (void)fprintf(out, "</title><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\"/>", x,
                  y - BOX_HEIGHT / 2, BOX_WIDTH, BOX_HEIGHT);
    (void)fprintf(out, "<text x=\"%d\" y=\"%d\">", x + BOX_WIDTH / 2, y + 5);
    write_name(out, name);
    (void)fputs("</text></g>\n", out);
}

/* Wider where it carries more: 1.5 for nothing, 6 at 10 Gbit/s. */
static double width_of(double bytes_per_s)
{
    double width = 1.5, left = bytes_per_s;
    while (left >= 1e4 && width < 8) {
        width += 0.74;
        left /= 10;
    }
    return width;
}

static void link_words(FILE *out, const json_t *link, int x, int y)
{
    (void)fprintf(out, "<text class=\"edge\" x=\"%d\" y=\"%d\">", x, y - 6);
    if (is_up(link))
        tb_markup_bit_rate(out, tb_facts_number(link, "goodput_bytes_per_s"));
    else
        tb_markup_text(out, tb_facts_text(link, "state"));
    (void)fprintf(out, "</text><text class=\"edge soft\" x=\"%d\" y=\"%d\">", x, y + 16);
    if (!is_up(link))
        tb_markup_text(out, tb_facts_text(link, "reason"));
    else if (tb_facts_number(link, "rtt_ms") > 0)
        (void)fprintf(out, "%.3g ms rtt", tb_facts_number(link, "rtt_ms"));
    else
        (void)fputs("rtt unknown", out);
    (void)fputs("</text>\n", out);
}

static void draw_link(FILE *out, const struct tb_web_facts *facts, const json_t *link, int own_y, int y)
{
    const char *site = tb_facts_text(link, "site");
    (void)fprintf(out, "<line class=\"%s\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke-width=\"%.1f\"/>",
                  is_up(link) ? "up" : "down", BOX_WIDTH, own_y, WIDTH / 2 - 50, y,
                  width_of(tb_facts_number(link, "goodput_bytes_per_s")));
    (void)fprintf(out, "<line class=\"%s\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke-width=\"%.1f\"/>",
                  is_up(link) ? "up" : "down", WIDTH / 2 - 50, y, WIDTH - BOX_WIDTH - 2, y,
                  width_of(tb_facts_number(link, "goodput_bytes_per_s")));
    link_words(out, link, (WIDTH / 2 - 50 + WIDTH - BOX_WIDTH) / 2, y);
    box(out, WIDTH - BOX_WIDTH - 2, y, site, is_up(link) ? class_of_site(facts, site) : "unknown");
}

/* ---- sites behind a peer ---- */

static void say_site_behind(FILE *out, const json_t *row, size_t before)
{
    (void)fputs(before == 0 ? "<p class=\"soft\">By way of a peer: " : ", ", out);
    tb_markup_name(out, tb_facts_text(row, "site"));
    (void)fputs(" (", out);
    tb_markup_text(out, tb_facts_text(row, "via"));
    (void)fputs(")", out);
}

static bool was_before(const json_t *rows, size_t end)
{
    for (size_t i = 0; i < end; i++)
        if (tb_facts_equals(json_array_get(rows, i), "site",
                            tb_facts_text(json_array_get(rows, end), "site")))
            return true;
    return false;
}

static void sites_behind(FILE *out, const struct tb_web_facts *facts)
{
    const json_t *rows = json_object_get(facts->lag, "lag");
    size_t said = 0;
    for (size_t i = 0; i < json_array_size(rows) && said < LINKS_SHOWN * BEHIND_ONE; i++) {
        const json_t *row = json_array_get(rows, i);
        const char *via = tb_facts_text(row, "via"), *site = tb_facts_text(row, "site");
        const bool own = tb_facts_equals(facts->status, "site", site);
        if (own || *via == '\0' || strcmp(via, site) == 0 || was_before(rows, i)) continue;
        say_site_behind(out, row, said++);
    }
    if (said > 0) (void)fputs("</p>\n", out);
}

/* ---- the whole ---- */

static void say_rest(FILE *out, const json_t *links)
{
    size_t up = 0;
    const size_t count = json_array_size(links);
    for (size_t i = 0; i < count; i++)
        up += is_up(json_array_get(links, i));
    (void)fprintf(out, "<p class=\"soft\">%zu of %zu links are up.", up, count);
    if (count > LINKS_SHOWN)
        (void)fprintf(out, " Drawn are %u: those that are down, and those that carry most.", LINKS_SHOWN);
    (void)fputs("</p>\n", out);
}

void tb_page_topology(FILE *out, const struct tb_web_facts *facts)
{
    const json_t *links = json_object_get(facts->status, "links");
    const char *own = tb_facts_text(facts->status, "site");
    struct drawn drawn;
    choose(&drawn, links);
    if (drawn.count == 0) {
        (void)fputs("<p>This gateway has no peers.</p>\n", out);
        return;
    }
    const int height = (int)drawn.count * ROW_HEIGHT, own_y = height / 2;
    (void)fprintf(
        out,
        "<svg class=\"topology\" viewBox=\"0 0 %d %d\" role=\"group\" aria-label=\"Links of this site\">\n",
        WIDTH, height);
    for (size_t i = 0; i < drawn.count; i++)
        draw_link(out, facts, drawn.links[i], own_y, (int)i * ROW_HEIGHT + ROW_HEIGHT / 2);
    box(out, 2, own_y, own, class_of_site(facts, own));
    (void)fputs("</svg>\n", out);
    say_rest(out, links);
    sites_behind(out, facts);
}
