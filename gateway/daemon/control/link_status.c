/* link_status.c - what the operator's socket answers to "streams" (docs/control.md), and how fast
 * links and copies move. */
#include "gateway/daemon/links/site_lag.h"

#include <jansson.h>

#include "base/assert.h"
#include "gateway/daemon/control/link_status.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/daemon.h"
#include "wan/link/links_stats.h"

/* An object or array that is NULL, for want of memory, is not appended: the answer as a
 * whole fails then (P10). */
static bool append(json_t *list, json_t *row)
{
    return json_array_append_new(list, row) == 0;
}

static json_int_t integer(uint64_t value)
{
    return (json_int_t)value;
}

static double ms(tb_time_ns ns)
{
    return (double)ns / 1e6;
}

/* ---- streams ---- */

static const char *encryption(const struct tb_links_stream_stats *s)
{
    if (!s->open) return "";
    if (s->kernel_sends) return "kernel";
    return s->own_records ? "tombolo" : "openssl";
}

static json_t *stream_row(const struct tb_links_stream_stats *s)
{
    return json_pack("{s:I, s:b, s:s, s:s, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "stream",
                     integer(s->stream), "open", s->open, "congestion", s->congestion, "encryption",
                     encryption(s), "rtt_ms", ms(s->rtt), "sent_bytes", integer(s->bytes_sent),
                     "received_bytes", integer(s->bytes_received), "sent_bytes_per_s", integer(s->sent_per_s),
                     "received_bytes_per_s", integer(s->received_per_s), "retransmitted_bytes",
                     integer(s->retransmitted_bytes), "queued_bytes", integer(s->unsent_bytes),
                     "window_bytes", integer(s->window_bytes), "records", integer(s->records), "limited_by",
                     tb_bottleneck_name(s->limit));
}

static json_t *stream_rows(const struct tb_links_stats *stats)
{
    TB_ASSERT(stats->stream_count <= sizeof stats->streams / sizeof stats->streams[0]);
    json_t *list = json_array();
    for (uint32_t i = 0; i < stats->stream_count; i++) {
        if (append(list, stream_row(&stats->streams[i]))) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

/* The sysctl that holds the link, or null. */
json_t *tb_status_window(const struct tb_links_stats *stats)
{
    const bool sends = stats->send_wanted_bytes != 0;
    const uint64_t bytes = sends ? stats->send_wanted_bytes : stats->receive_wanted_bytes;
    if (bytes == 0) return json_null();
    return json_pack("{s:s, s:I, s:I}", "sysctl", sends ? "net.ipv4.tcp_wmem" : "net.ipv4.tcp_rmem",
                     "has_bytes", integer(sends ? stats->send_ceiling_bytes : stats->receive_ceiling_bytes),
                     "needs_bytes", integer(bytes));
}

static json_t *link_row(struct tb_daemon *d, uint32_t peer)
{
    const struct tb_links_stats *stats = tb_site_lag_link(d, peer);
    return json_pack(
        "{s:s, s:b, s:f, s:I, s:I, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:o, s:o}", "site",
        d->config->peers[peer].site.text, "up", stats->up, "rtt_ms", ms(stats->rtt), "used",
        integer(stats->streams_used), "wanted", integer(stats->streams_wanted), "searching", stats->searching,
        "goodput_bytes_per_s", integer(d->goodput[peer].bytes_per_s), "queued_parcels",
        integer(stats->queued_parcels), "hedged_bytes", integer(stats->bytes_hedged), "lost",
        integer(stats->streams_lost), "rotated", integer(stats->streams_rotated), "retransmitted_bytes",
        integer(stats->bytes_retransmitted), "limited_by", tb_bottleneck_name(tb_links_most_limit(stats)),
        "window", tb_status_window(stats), "streams", stream_rows(stats));
}

enum tb_status tb_status_streams(void *user, const json_t *request, json_t *reply, char *error)
{
    (void)request, (void)error;
    struct tb_daemon *d = user;
    json_t *list = json_array();
    bool all = true;
    for (uint32_t i = 0; i < d->config->peer_count; i++)
        if (!d->config->peers[i].gone) all &= append(list, link_row(d, i));
    all &= json_object_set_new(reply, "links", list) == 0;
    return all ? TB_OK : TB_SITE_NOMEM;
}

/* ---- once a second ---- */

void tb_status_pace(struct tb_daemon *d)
{
    for (uint32_t i = 0; i < d->config->peer_count; i++)
        tb_lag_look(&d->goodput[i].pace, d->goodput[i].bytes);
    for (struct tb_copy *c = d->copies; c != NULL; c = c->next) {
        if (tb_copy_is_whole(c)) tb_crossing_told_end(&c->told);
        if (tb_copy_is_whole(c) || c->region == NULL) continue;
        const uint64_t held = tb_copy_held_bytes(c), came = tb_copy_wire_bytes(c);
        if (held > c->moves.held.bytes && !c->failed_lately) {
            c->failed = TB_OK;
            tb_crossing_told_end(&c->told);
        }
        c->failed_lately = false;
        tb_lag_look(&c->moves.held, held);
        tb_lag_look(&c->moves.came, came);
        tb_lag_landing_look(&c->moves.landing, held, came);
    }
}
