/* doctor_peer_checks.c - checks of one peer: the way there step by step, and what the gateway that
 * runs says of the link. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "gateway/cli/doctor/doctor_checks.h"
#include "gateway/cli/doctor/doctor_dial.h"
#include "gateway/cli/doctor/doctor_peer.h"
#include "gateway/config/gateway_tls.h"

#define DIALS_MAX 4u /* of addresses at once: each is a handshake there */

static void skip(const struct tb_doctor *d, const char *const *names, uint32_t count, const char *why)
{
    for (uint32_t i = 0; i < count; i++)
        tb_doctor_tell(d, names[i], tb_find(TB_MARK_SKIPPED, "%s", why));
}

/* ---- the way to a peer ---- */

struct peer_way {
    const struct tb_doctor *d;
    struct tb_peer_words words;
    struct tb_dial_options options;
    struct tb_address source;
    char own_fault[512]; /* why this gateway's files make no TLS; empty: they do */
};

/* NULL: they do not serve, and own_fault says why. */
static struct tb_tls *tls_of(struct peer_way *w, uint32_t padding)
{
    struct tb_tls *tls = NULL;
    if (w->d->no_files != NULL || w->d->config->tls_cert == NULL) {
        (void)snprintf(w->own_fault, sizeof w->own_fault, "%s",
                       w->d->no_files != NULL ? w->d->no_files : "tls.cert is not set");
        return NULL;
    }
    if (tb_gateway_tls(w->d->config, &tls, w->own_fault) != TB_OK) return NULL;
    if (padding == 0 || tb_tls_set_padding(tls, padding) == TB_OK) return tls;
    tb_tls_free(tls);
    (void)snprintf(w->own_fault, sizeof w->own_fault, "no memory");
    return NULL;
}

static void take_source(struct peer_way *w)
{
    struct tb_endpoint endpoint = {.port = 0};
    const char *source = w->words.peer->source;
    if (source == NULL) return;
    (void)snprintf(endpoint.host, sizeof endpoint.host, "%s", source);
    if (tb_endpoint_address(&endpoint, &w->source) == TB_OK) w->options.source = &w->source;
}

/* A message that fills two packets of that payload, and the begin of a third;
 * less where packets are larger than TLS lets it be, as those of loopback. */
static uint32_t padding_for(uint32_t packet_bytes)
{
    const uint32_t bytes = packet_bytes > 0 ? 2 * packet_bytes + packet_bytes / 2 : 4000;
    return bytes > TB_TLS_PADDING_MAX ? TB_TLS_PADDING_MAX : bytes;
}

/* Smaller segments, the largest first; `plain` is a connection whose first message was short. */
static void check_mtu(struct peer_way *w, const struct tb_address *address, const struct tb_dial_facts *plain)
{
    static const uint32_t segments[] = {1360, 1200, 1000, 536};
    enum { TRIES = sizeof segments / sizeof segments[0] };
    struct tb_dial_wish wishes[TRIES] = {{.address = *address}};
    struct tb_dial_facts full = *plain, smaller[TRIES];
    const uint32_t padding = padding_for(plain->packet_bytes);
    uint32_t tried = 0;
    w->options.tls = tls_of(w, padding);
    const bool dialled =
        w->options.tls != NULL && (!plain->opened || tb_doctor_dial(&w->options, wishes, &full, 1) == TB_OK);
    if (!dialled) {
        tb_doctor_tell(w->d, "mtu", tb_find(TB_MARK_SKIPPED, "no TLS of ours: %.400s", w->own_fault));
        tb_tls_free(w->options.tls);
        return;
    }
    if (plain->opened) full.padding_bytes = padding;
    for (uint32_t i = 0; full.silent && !full.opened && i < TRIES; i++)
        if (plain->packet_bytes == 0 || segments[i] < plain->packet_bytes)
            wishes[tried++] = (struct tb_dial_wish){.address = *address, .segment_bytes = segments[i]};
    if (tried > 0 && tb_doctor_dial(&w->options, wishes, smaller, tried) != TB_OK) tried = 0;
    tb_doctor_tell(w->d, "mtu", tb_judge_mtu(&w->words, &full, smaller, tried));
    tb_tls_free(w->options.tls);
}

static void check_connections(struct peer_way *w, const struct tb_name_facts *names)
{
    static const char *const behind_tls[] = {"tls", "identity", "mtu"};
    struct tb_dial_wish wishes[DIALS_MAX] = {{.segment_bytes = 0}};
    struct tb_dial_facts dials[DIALS_MAX];
    const uint32_t count = names->count < DIALS_MAX ? names->count : DIALS_MAX;
    for (uint32_t i = 0; i < count; i++)
        wishes[i].address = names->addresses[i];
    w->options.tls = tls_of(w, 0);
    const bool has_tls = w->options.tls != NULL;
    if (tb_doctor_dial(&w->options, wishes, dials, count) != TB_OK) {
        tb_tls_free(w->options.tls);
        tb_doctor_tell(w->d, "tcp", tb_find(TB_MARK_UNKNOWN, "no memory to connect"));
        return;
    }
    tb_tls_free(w->options.tls);
    tb_doctor_tell(w->d, "tcp", tb_judge_tcp(&w->words, dials, count));
    if (!has_tls) {
        char why[sizeof w->own_fault + 16];
        (void)snprintf(why, sizeof why, "no TLS of ours: %s", w->own_fault);
        skip(w->d, behind_tls, 3, why);
        return;
    }
    const struct tb_dial_facts *best = tb_dial_furthest(dials, count);
    TB_ASSERT(best != NULL); /* a name that resolved has an address */
    tb_doctor_tell(w->d, "tls", tb_judge_tls(&w->words, best, (int64_t)(tb_clock_wall_ms() / 1000)));
    tb_doctor_tell(w->d, "identity", tb_judge_identity(&w->words, best));
    if (best->opened || (best->connected && best->silent))
        check_mtu(w, &wishes[best - dials].address, best);
    else
        skip(w->d, behind_tls + 2, 1, "TLS did not come so far");
}

void tb_check_way(const struct tb_doctor *d)
{
    static const char *const all[] = {"dns", "tcp", "tls", "identity", "mtu"};
    const struct tb_config_peer *peer = &d->config->peers[d->peer];
    struct peer_way w = {.d = d, .words = tb_doctor_peer_words_of(d->config, peer)};
    const struct tb_identity it = {.kind = TB_IDENTITY_GATEWAY, .site = peer->of, .name = peer->gateway};
    struct tb_endpoint endpoint;
    struct tb_name_facts names = {.status = TB_OK, .count = 1};
    char why[192];
    if (peer->address == NULL || tb_endpoint_parse(peer->address, &endpoint) != TB_OK) {
        (void)snprintf(why, sizeof why, "peers.%s.address is not set: the peer dials, and looks from there",
                       peer->site.text);
        skip(d, all, 5, why);
        return;
    }
    w.options.expect = it;
    w.options.dscp = peer->dscp;
    take_source(&w);
    if (tb_endpoint_address(&endpoint, &names.addresses[0]) == TB_OK) {
        tb_doctor_tell(
            d, "dns",
            tb_find(TB_MARK_SKIPPED, "peers.%s.address is an address, and no name", peer->site.text));
    } else {
        tb_doctor_resolve(&endpoint, d->config->dns_servers, &names);
        tb_doctor_tell(d, "dns", tb_judge_name(&w.words, &endpoint, &names));
    }
    if (names.count > 0)
        check_connections(&w, &names);
    else
        skip(d, all + 1, 4, "the peer's name has no address");
}

/* ---- what the gateway says ---- */

void tb_check_link(const struct tb_doctor *d)
{
    const struct tb_peer_words words = tb_doctor_peer_words_of(d->config, &d->config->peers[d->peer]);
    const json_t *row = tb_doctor_link(d);
    if (json_is_array(json_object_get(d->status, "links")))
        tb_doctor_tell(d, "link", tb_judge_link(&words, row));
    else
        tb_doctor_tell(d, "link", tb_find(TB_MARK_UNKNOWN, "the gateway does not say its links"));
    tb_doctor_tell(d, "clock", tb_judge_peer_clock(&words, row));
    tb_doctor_tell(d, "throughput", tb_judge_throughput(row));
}

void tb_check_rights(const struct tb_doctor *d)
{
    const struct tb_peer_words words = tb_doctor_peer_words_of(d->config, &d->config->peers[d->peer]);
    tb_doctor_tell(d, "rights", tb_judge_rights(&words, tb_doctor_link(d)));
}
