/* link_path.c - what other parts of a link ask of its path. */
#include "wan/link/path/link_path.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/networks.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/path/link_why.h"

void tb_link_path_lead(struct tb_link *l, const char *address)
{
    TB_ASSERT(l->path.resolving == NULL && !l->path.race.on);
    l->path.has_address = address != NULL && tb_endpoint_parse(address, &l->path.endpoint) == TB_OK;
    l->path.address_count = l->path.address_at = 0;
    l->path.good = (struct tb_address){.bytes = 0};
    l->path.asked_at = l->path.fresh_until = 0;
    l->path.elsewhere = 0;
}

void tb_link_path_init(struct tb_link *l, const struct tb_links_peer_options *p)
{
    tb_link_path_lead(l, p->address);
    l->path.tcp = l->links->tcp;
    l->path.tcp.dscp = p->dscp;
    if (p->source != NULL && !tb_link_source_parse(p->source, &l->path.source)) l->path.source.bytes = 0;
    tb_link_said_init(l);
    if (p->congestion == NULL) return;
    snprintf(l->path.congestion, sizeof l->path.congestion, "%s", p->congestion);
    l->path.tcp.congestion = l->path.congestion;
}

bool tb_link_source_parse(const char *text, struct tb_address *source_out)
{
    struct tb_endpoint endpoint = {.port = 0};
    if (strlen(text) >= sizeof endpoint.host) return false;
    (void)snprintf(endpoint.host, sizeof endpoint.host, "%s", text);
    return tb_endpoint_address(&endpoint, source_out) == TB_OK;
}

const struct tb_address *tb_link_source(const struct tb_link *l)
{
    return l->path.source.bytes != 0 ? &l->path.source : NULL;
}

bool tb_link_can_dial(const struct tb_link *l)
{
    return l->path.has_address;
}

bool tb_link_path_leads_to(const struct tb_link *l, const struct sockaddr *host)
{
    for (uint32_t i = 0; i < l->path.address_count; i++)
        if (tb_network_same_host(&l->path.addresses[i].any, host)) return true;
    struct tb_address number;
    return l->path.has_address && tb_endpoint_address(&l->path.endpoint, &number) == TB_OK &&
           tb_network_same_host(&number.any, host);
}

void tb_link_path_up(struct tb_link *l)
{
    l->path.elsewhere = 0;
    l->path.control_at = 0;
}

const struct tb_tcp_path_options *tb_link_tcp_options(const struct tb_link *l)
{
    return &l->path.tcp;
}

void tb_link_path_ceiling(struct tb_link *l, uint64_t send_bytes)
{
    atomic_store_explicit(&l->path.tcp.send_ceiling_bytes, send_bytes, memory_order_relaxed);
}

uint32_t tb_link_segment_bytes(const struct tb_link *l)
{
    return l->path.segment.bytes_max;
}

tb_time_ns tb_link_renewed_at(const struct tb_link *l)
{
    return l->path.renewed_at;
}
