/* page_links.c - each link with what it carried, and the streams of those that are up. */
#include <string.h>

#include "gateway/web/markup.h"
#include "gateway/web/page_parts.h"

#define LINKS_MOST   60u
#define STREAMS_MOST 160u /* of all links */

static bool is_up(const json_t *link)
{
    return tb_facts_equals(link, "state", "up");
}

static void state_cells(FILE *out, const json_t *link)
{
    tb_markup_cell(out, NULL, tb_facts_text(link, "site"));
    (void)fprintf(out, "<td><span class=\"tag %s\">", is_up(link) ? "good" : "bad");
    tb_markup_text(out, tb_facts_text(link, "state"));
    (void)fputs("</span></td>", out);
    tb_markup_seconds_cell(out, link, "since_s");
    if (is_up(link) && tb_facts_number(link, "rtt_ms") > 0)
        tb_markup_number_cell(out, "%.3g ms", tb_facts_number(link, "rtt_ms"));
    else
        tb_markup_cell(out, "n unknown", "unknown");
}

static void resent_cell(FILE *out, const json_t *link)
{
    (void)fputs("<td class=\"n\">", out);
    tb_markup_bytes(out, tb_facts_number(link, "hedged_bytes") + tb_facts_number(link, "again_bytes"));
    (void)fputs("</td>", out);
}

static void link_row(FILE *out, const json_t *link)
{
    (void)fputs("<tr>", out);
    state_cells(out, link);
    tb_markup_bit_rate_cell(out, link, "goodput_bytes_per_s");
    tb_markup_count_cell(out, link, "streams");
    tb_markup_bytes_cell(out, link, "sent_raw_bytes");
    tb_markup_bytes_cell(out, link, "sent_bytes");
    resent_cell(out, link);
    tb_markup_bytes_cell(out, link, "received_bytes");
    tb_markup_cell(out, is_up(link) ? "text" : "text bad",
                   *tb_facts_text(link, "error") != '\0' ? tb_facts_text(link, "error")
                                                         : tb_facts_text(link, "reason"));
    (void)fputs("</tr>\n", out);
}

static void link_rows(FILE *out, const json_t *links, bool up, size_t *left)
{
    for (size_t i = 0; i < json_array_size(links) && *left > 0; i++) {
        if (is_up(json_array_get(links, i)) != up) continue;
        link_row(out, json_array_get(links, i));
        (*left)--;
    }
}

/* Those that are down come first. */
void tb_page_link_table(FILE *out, const struct tb_web_facts *facts)
{
    static const char *const heads[] = {
        "peer",     "state",        "#for",      "#rtt",         "#goodput", "#streams", "#sent, as weights",
        "#encoded", "#of it again", "#received", "what ails it", NULL};
    const json_t *links = json_object_get(facts->status, "links");
    size_t left = LINKS_MOST;
    tb_markup_table_begin(out, "Links", heads);
    link_rows(out, links, false, &left);
    link_rows(out, links, true, &left);
    tb_markup_table_end(out);
    if (json_array_size(links) > LINKS_MOST)
        (void)fprintf(out, "<p class=\"soft\">And %zu more: tombolo status</p>\n",
                      json_array_size(links) - LINKS_MOST);
}

/* ---- streams ---- */

static void stream_row(FILE *out, const json_t *link, const json_t *stream)
{
    (void)fputs("<tr>", out);
    tb_markup_cell(out, NULL, tb_facts_text(link, "site"));
    tb_markup_count_cell(out, stream, "stream");
    if (tb_facts_number(stream, "rtt_ms") > 0)
        tb_markup_number_cell(out, "%.3g ms", tb_facts_number(stream, "rtt_ms"));
    else
        tb_markup_cell(out, "n unknown", "unknown");
    tb_markup_bit_rate_cell(out, stream, "sent_bytes_per_s");
    tb_markup_bit_rate_cell(out, stream, "received_bytes_per_s");
    tb_markup_bytes_cell(out, stream, "retransmitted_bytes");
    tb_markup_bytes_cell(out, stream, "queued_bytes");
    tb_markup_bytes_cell(out, stream, "window_bytes");
    tb_markup_cell(out, NULL, tb_facts_text(stream, "limited_by"));
    tb_markup_cell(out, NULL, tb_facts_text(stream, "congestion"));
    tb_markup_cell(out, NULL, tb_facts_text(stream, "encryption"));
    (void)fputs("</tr>\n", out);
}

void tb_page_streams(FILE *out, const struct tb_web_facts *facts)
{
    static const char *const heads[] = {"peer",       "#stream",    "#rtt",         "#sends",
                                        "#receives",  "#TCP again", "#queued",      "#window",
                                        "held up by", "congestion", "encrypted by", NULL};
    const json_t *links = json_object_get(facts->streams, "links");
    size_t left = STREAMS_MOST;
    if (links == NULL) {
        (void)fputs("<p class=\"unknown\">Unknown: the gateway did not say it.</p>\n", out);
        return;
    }
    tb_markup_table_begin(out, "Streams", heads);
    for (size_t i = 0; i < json_array_size(links); i++) {
        const json_t *streams = json_object_get(json_array_get(links, i), "streams");
        for (size_t k = 0; k < json_array_size(streams) && left > 0; k++, left--)
            stream_row(out, json_array_get(links, i), json_array_get(streams, k));
    }
    tb_markup_table_end(out);
    if (left == 0) (void)fputs("<p class=\"soft\">There may be more: tombolo streams</p>\n", out);
}
