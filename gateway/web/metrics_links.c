/* metrics_links.c - series of links: state, rates, bytes, the codecs' mix, and TCP's streams. */
#include <stdbool.h>
#include <string.h>

#include "gateway/web/metrics_parts.h"
#include "gateway/web/series.h"

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static const struct tb_series_field of_link[] = {
    {"tombolo_link_since_seconds", "since_s", NULL, "gauge", "How long the link is up, or down.", 1},
    {"tombolo_link_rtt_seconds", "rtt_ms", NULL, "gauge", "Of heartbeats; 0: not known.", 1e-3},
    {"tombolo_link_streams", "streams", NULL, "gauge", "Data streams that are open.", 1},
    {"tombolo_link_goodput_bytes_per_second", "goodput_bytes_per_s", NULL, "gauge",
     "Both ways, over the last second.", 1},
    {"tombolo_link_sent_bytes_total", "sent_bytes", NULL, "counter", "Of chunks, as encoded.", 1},
    {"tombolo_link_received_bytes_total", "received_bytes", NULL, "counter", "Of chunks, as encoded.", 1},
    {"tombolo_link_sent_raw_bytes_total", "sent_raw_bytes", NULL, "counter", "Of chunks, when decoded.", 1},
    {"tombolo_link_chunks_sent_total", "chunks_sent", NULL, "counter", "Chunks.", 1},
    {"tombolo_link_delta_chunks_total", "delta_chunks", NULL, "counter", "Of them, deltas to a base.", 1},
    {"tombolo_link_chunks_no_base_total", "chunks_no_base", NULL, "counter",
     "Chunks that crossed whole because a base had gone.", 1},
    {"tombolo_link_hedged_bytes_total", "hedged_bytes", NULL, "counter",
     "Of chunks that went again because they were late.", 1},
    {"tombolo_link_again_bytes_total", "again_bytes", NULL, "counter",
     "Of chunks that may come by another way too.", 1},
    {"tombolo_link_streams_lost_total", "streams_lost", NULL, "counter", "Streams that broke.", 1},
    {"tombolo_link_chunks_bad_total", "chunks_bad", NULL, "counter", "Chunks with a wrong digest.", 1},
    {"tombolo_link_chunks_duplicate_total", "chunks_duplicate", NULL, "counter",
     "Chunks that were here already.", 1},
    {"tombolo_link_sessions_total", "sessions", NULL, "counter", "Sessions that came up.", 1},
    {"tombolo_link_certificate_left_seconds", "certificate_days_left", NULL, "gauge",
     "Until the peer's certificate ends, in whole days.", 86400},
    {"tombolo_link_limit_bytes_per_second", "bit_per_s", "limit", "gauge",
     "The rate that an operator allows now; 0: no limit.", 0.125},
    {"tombolo_link_day_used_bytes", "day_used_bytes", "limit", "gauge", "Of the day's bytes (UTC).", 1},
    {"tombolo_link_day_bytes", "day_bytes", "limit", "gauge", "A day's bytes; 0: no limit.", 1},
};

static void link_labels(const json_t *link, struct tb_series_label *labels_out)
{
    labels_out[0] = (struct tb_series_label){"peer", tb_facts_text(link, "site")};
    labels_out[1] = (struct tb_series_label){NULL, NULL};
}

static void write_link_states(FILE *out, const json_t *links)
{
    struct tb_series_label labels[TB_SERIES_LABELS_MAX];
    if (json_array_size(links) == 0) return;
    tb_series_head(out, "tombolo_link_up", "gauge", "1 while the link to that peer is up.");
    for (size_t i = 0; i < json_array_size(links); i++) {
        const json_t *link = json_array_get(links, i);
        link_labels(link, labels);
        tb_series_write(out, "tombolo_link_up", labels, strcmp(tb_facts_text(link, "state"), "up") == 0);
    }
    tb_series_head(out, "tombolo_link_reason", "gauge", "1 for the reason why the link is down, or ails.");
    for (size_t i = 0; i < json_array_size(links); i++) {
        const json_t *link = json_array_get(links, i);
        if (*tb_facts_text(link, "reason") == '\0') continue;
        labels[0] = (struct tb_series_label){"peer", tb_facts_text(link, "site")};
        labels[1] = (struct tb_series_label){"reason", tb_facts_text(link, "reason")};
        labels[2] = (struct tb_series_label){NULL, NULL};
        tb_series_write(out, "tombolo_link_reason", labels, 1);
    }
}

/* ---- what becomes of the bytes ---- */

static double resent_of(const json_t *link)
{
    return tb_facts_number(link, "hedged_bytes") + tb_facts_number(link, "again_bytes");
}

static double saved_of(const json_t *link)
{
    return tb_facts_number(link, "sent_raw_bytes") - tb_facts_number(link, "sent_bytes");
}

static void write_sums(FILE *out, const json_t *links, const struct tb_series_field *family,
                       double (*sum_of)(const json_t *link))
{
    struct tb_series_label labels[TB_SERIES_LABELS_MAX];
    if (json_array_size(links) == 0) return;
    tb_series_head(out, family->name, family->type, family->help);
    for (size_t i = 0; i < json_array_size(links); i++) {
        link_labels(json_array_get(links, i), labels);
        tb_series_write(out, family->name, labels, sum_of(json_array_get(links, i)));
    }
}

static const struct tb_series_field resent = {
    "tombolo_link_resent_bytes_total",
    NULL,
    NULL,
    "counter",
    "Of chunks that went again: hedged ones, and those that come by another way too.",
    1};
/* No counter: it falls while a chunk of which the decoded bytes are counted already goes out. */
static const struct tb_series_field saved = {"tombolo_link_saved_bytes",
                                             NULL,
                                             NULL,
                                             "gauge",
                                             "Bytes that codecs and deltas kept off the wire until now.",
                                             1};

/* One series for each way that a chunk went in. */
static void write_codec_mix(FILE *out, const json_t *links)
{
    static const char name[] = "tombolo_link_codec_chunks_total";
    bool begun = false;
    for (size_t i = 0; i < json_array_size(links); i++) {
        const json_t *link = json_array_get(links, i);
        json_t *ways = json_object_get(json_object_get(link, "codec"), "chunks");
        const char *way;
        json_t *count;
        json_object_foreach(ways, way, count)
        {
            struct tb_series_label labels[TB_SERIES_LABELS_MAX];
            if (!json_is_number(count)) continue;
            if (!begun) tb_series_head(out, name, "counter", "Chunks by the way in which they went.");
            begun = true;
            link_labels(link, labels);
            labels[1] = (struct tb_series_label){"way", way};
            labels[2] = (struct tb_series_label){NULL, NULL};
            tb_series_write(out, name, labels, json_number_value(count));
        }
    }
}

/* ---- streams ---- */

static const struct tb_series_field of_streams[] = {
    {"tombolo_link_streams_used", "used", NULL, "gauge", "Streams that take what this gateway sends.", 1},
    {"tombolo_link_streams_wanted", "wanted", NULL, "gauge", "Streams that are to be open.", 1},
    {"tombolo_link_queued_parcels", "queued_parcels", NULL, "gauge", "Parcels that no stream has taken yet.",
     1},
    {"tombolo_link_retransmitted_bytes_total", "retransmitted_bytes", NULL, "counter",
     "Bytes that TCP sent again, on all streams.", 1},
    {"tombolo_link_streams_rotated_total", "rotated", NULL, "counter",
     "Streams that were replaced before their keys wore out.", 1},
};

/* Encoded bytes and those that TCP sent again: TLS records and heads of packets are above this. */
static void write_wire(FILE *out, const json_t *links, const json_t *streams)
{
    static const char name[] = "tombolo_link_wire_bytes_total";
    bool begun = false;
    for (size_t i = 0; i < json_array_size(links); i++) {
        const json_t *link = json_array_get(links, i), *same = json_array_get(streams, i);
        struct tb_series_label labels[TB_SERIES_LABELS_MAX];
        if (strcmp(tb_facts_text(link, "site"), tb_facts_text(same, "site")) != 0 || same == NULL) continue;
        if (!begun)
            tb_series_head(out, name, "counter", "Encoded bytes that were sent, with what TCP sent again.");
        begun = true;
        link_labels(link, labels);
        tb_series_write(out, name, labels,
                        tb_facts_number(link, "sent_bytes") + tb_facts_number(same, "retransmitted_bytes"));
    }
}

static void write_limits(FILE *out, const json_t *streams)
{
    static const char name[] = "tombolo_link_limited_by";
    bool begun = false;
    for (size_t i = 0; i < json_array_size(streams); i++) {
        struct tb_series_label labels[TB_SERIES_LABELS_MAX];
        const json_t *link = json_array_get(streams, i);
        if (*tb_facts_text(link, "limited_by") == '\0') continue;
        if (!begun) tb_series_head(out, name, "gauge", "1 for what holds most of the streams that send.");
        begun = true;
        link_labels(link, labels);
        labels[1] = (struct tb_series_label){"limit", tb_facts_text(link, "limited_by")};
        labels[2] = (struct tb_series_label){NULL, NULL};
        tb_series_write(out, name, labels, 1);
    }
}

void tb_metrics_links(FILE *out, const json_t *links, const json_t *streams)
{
    write_link_states(out, links);
    tb_series_fields(out, of_link, COUNT(of_link), links, link_labels);
    write_sums(out, links, &resent, resent_of);
    write_sums(out, links, &saved, saved_of);
    write_codec_mix(out, links);
    tb_series_fields(out, of_streams, COUNT(of_streams), streams, link_labels);
    write_wire(out, links, streams);
    write_limits(out, streams);
}
