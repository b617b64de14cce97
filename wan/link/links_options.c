/* links_options.c - what the links are asked for: judged, and filled with what is usual. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_limits.h"

/* A core encrypts and digests 1 GB/s and more, so 32 fill any NIC of today. Each takes
 * 1.6 MB: 50 MB for all. */
#define THREADS_MOST 32u
/* half of what one key may encrypt: the other half is for the change */
#define RECORDS_MAX (UINT64_C(1) << 22)

/* The ceilings and congestion controls of the kernel. */
void tb_links_path_options(const struct tb_links_options *o, const struct tb_tcp_ceilings *ceilings,
                           struct tb_tcp_path_options *p)
{
    char why[256];
    *p = (struct tb_tcp_path_options){.send_ceiling_bytes = ceilings->send_bytes};
    p->tuning = (struct tb_tuner_options){.streams = o->streams,
                                          .cores = o->threads,
                                          .bbr = tb_tcp_congestion_check("bbr", why) == TB_OK,
                                          .cubic = tb_tcp_congestion_check("cubic", why) == TB_OK};
}

/* "auto" is what there is; a name must be had. */
static enum tb_status check_congestion(const struct tb_links_peer_options *p, char error_out[256])
{
    if (p->congestion == NULL || strcmp(p->congestion, "auto") == 0) return TB_OK;
    return tb_tcp_congestion_check(p->congestion, error_out);
}

static uint32_t or_default(uint32_t value, uint32_t usual)
{
    return value != 0 ? value : usual;
}

uint32_t tb_links_threads(uint32_t cores)
{
    return cores < THREADS_MOST ? cores : THREADS_MOST;
}

void tb_links_options_fill(struct tb_links_options *o)
{
    const uint32_t cores = uv_available_parallelism();
    o->threads = or_default(o->threads, tb_links_threads(cores));
    o->heartbeat_ms = or_default(o->heartbeat_ms, 1000);
    o->down_ms = or_default(o->down_ms, 3000);
    o->silent_ms = or_default(o->silent_ms, 1000);
    /* Four times a second, and not quite in step with it: TCP repeats the SYN of each
     * earlier dial every second, and twelve of them then ask a silent path every 80 ms or so
     * instead of all at once. */
    o->fresh_dial_ms = or_default(o->fresh_dial_ms, 232);
    o->stream_idle_ms = or_default(o->stream_idle_ms, 5000);
    o->retry_min_ms = or_default(o->retry_min_ms, 100);
    o->retry_max_ms = or_default(o->retry_max_ms, 5000);
    o->push_ms = or_default(o->push_ms, 250);
    o->push_most_ms = or_default(o->push_most_ms, 1000);
    o->push_rest_ms = or_default(o->push_rest_ms, 60000);
    o->push_manifest_bytes = or_default(o->push_manifest_bytes, 64 << 10);
    o->hedge_permille = or_default(o->hedge_permille, TB_HEDGE_PERMILLE);
    o->lane_count = or_default(o->lane_count, 1);
    o->protocol_max = or_default(o->protocol_max, TB_LINK_PROTOCOL);
    if (o->records_max == 0) o->records_max = RECORDS_MAX;
    if (o->manifest_bytes_max == 0) o->manifest_bytes_max = TB_MANIFESTS_BYTES_MAX;
    TB_ASSERT(o->threads > 0 && o->lane < o->lane_count);
    o->handshakes_open = or_default(o->handshakes_open, 32);
    o->handshakes_failed = or_default(o->handshakes_failed, 10);
    o->garbled_frames = or_default(o->garbled_frames, 20);
}

enum tb_status tb_links_refuse(char error_out[256], const char *what, const char *which)
{
    snprintf(error_out, 256, "%s: %s", what, which);
    return TB_BAD_ARGUMENT;
}

enum tb_status tb_links_peer_check(const struct tb_links_options *o, const struct tb_links_peer_options *p,
                                   char error_out[256])
{
    if (p->gone) return TB_OK; /* a row of no peer */
    struct tb_endpoint endpoint;
    struct tb_address address;
    if (!tb_name_valid(p->site.text) || !tb_name_valid(p->gateway.text))
        return tb_links_refuse(error_out, "a peer's site or gateway is no name", p->site.text);
    if (p->model_count > TB_LINKS_MODELS_MAX)
        return tb_links_refuse(error_out, "too many models are wanted from", p->site.text);
    if (strlen(p->congestion != NULL ? p->congestion : "") >= TB_TCP_CONGESTION_BYTES)
        return tb_links_refuse(error_out, "not a congestion control", p->congestion);
    if (check_congestion(p, error_out) != TB_OK) return TB_SITE_CONFIG;
    if (p->dscp > 63) return tb_links_refuse(error_out, "no DSCP value is over 63, of", p->site.text);
    if (p->source != NULL && !tb_link_source_parse(p->source, &address))
        return tb_links_refuse(error_out, "not a numeric address to dial from", p->source);
    if (p->address == NULL) return TB_OK;
    if (tb_endpoint_parse(p->address, &endpoint) != TB_OK || endpoint.is_unix)
        return tb_links_refuse(error_out, "not an address like host:port", p->address);
    if (o->resolver == NULL && tb_endpoint_address(&endpoint, &address) != TB_OK)
        return tb_links_refuse(error_out, "a name needs a resolver", p->address);
    return TB_OK;
}

enum tb_status tb_links_options_check(const struct tb_links_options *o, char error_out[256])
{
    const struct tb_identity *own = tb_tls_identity(o->tls);
    if (own->kind != TB_IDENTITY_GATEWAY || !tb_name_equal(&own->site, &o->site) ||
        !tb_name_equal(&own->name, &o->gateway))
        return tb_links_refuse(error_out, "the certificate is not of this gateway", o->gateway.text);
    if (o->peer_count > TB_LINKS_PEERS_MAX || o->streams > TB_LINKS_STREAMS_MAX ||
        o->threads > TB_LINKS_THREADS_MAX)
        return tb_links_refuse(error_out, "too many peers, streams or threads", o->site.text);
    if (o->lane > 0 && o->lane >= o->lane_count)
        return tb_links_refuse(error_out, "the lane is not one of its site's", o->site.text);
    if (o->protocol_max > TB_LINK_PROTOCOL)
        return tb_links_refuse(error_out, "protocol_max is over what this release speaks", o->site.text);
    if (o->retry_min_ms > o->retry_max_ms)
        return tb_links_refuse(error_out, "retry_min_ms is over retry_max_ms", o->site.text);
    for (uint32_t i = 0; i < o->peer_count; i++) {
        const enum tb_status status = tb_links_peer_check(o, &o->peers[i], error_out);
        if (status != TB_OK) return status;
    }
    return TB_OK;
}
