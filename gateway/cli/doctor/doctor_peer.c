/* doctor_peer.c - see doctor_peer.h. */
#include "gateway/cli/doctor/doctor_peer.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "gateway/cli/operator/control_fields.h"
#include "gateway/cli/operator/lag_verdict.h"
#include "gateway/daemon/rights.h"

#define CLOCK_FINE_MS 5000  /* a slow path alone is less */
#define CLOCK_BAD_MS  60000 /* certificates, statements and logs are compared by minutes */
#define DAY_S         86400

struct tb_peer_words tb_doctor_peer_words_of(const struct tb_config *config,
                                             const struct tb_config_peer *peer)
{
    struct tb_peer_words w = {.config = config, .peer = peer};
    const struct tb_identity us = {
        .kind = TB_IDENTITY_GATEWAY, .site = config->site, .name = config->gateway};
    const struct tb_identity it = {.kind = TB_IDENTITY_GATEWAY, .site = peer->of, .name = peer->gateway};
    tb_identity_format(&us, w.own_uri);
    tb_identity_format(&it, w.uri);
    return w;
}

/* ---- the way there ---- */

struct tb_finding tb_judge_name(const struct tb_peer_words *w, const struct tb_endpoint *endpoint,
                                const struct tb_name_facts *n)
{
    struct tb_finding f;
    char first[128] = "";
    if (n->status == TB_OK && n->count > 0) {
        tb_address_format(&n->addresses[0], first, sizeof first);
        return tb_find(TB_MARK_FINE, "%.200s has %u address%s, the first is %s", endpoint->host, n->count,
                       n->count == 1 ? "" : "es", first);
    }
    if (n->status == TB_SITE_NOMEM)
        return tb_find(TB_MARK_UNKNOWN, "no memory to ask for %.200s", endpoint->host);
    if (n->status == TB_NOT_FOUND || n->status == TB_OK || n->status == TB_PEER_GARBLED) {
        f = tb_find(TB_MARK_WRONG, "the name %.200s has no address", endpoint->host);
        tb_advise(&f, "peers.%s.address: a name that has one, or ADDRESS:PORT", w->peer->site.text);
        return f;
    }
    f = tb_find(TB_MARK_WRONG, "DNS: no name server answered for %.200s within %u s", endpoint->host,
                TB_DOCTOR_STEP_MS / 1000);
    if (w->config->dns_servers != NULL)
        tb_advise(&f, "dns.servers: %.200s does not answer; name another one, or take the line out",
                  w->config->dns_servers);
    else
        tb_advise(&f,
                  "/etc/resolv.conf: nameserver ADDRESS, of one that answers; or dns.servers: ADDRESS:PORT");
    return f;
}

struct tb_finding tb_judge_tcp(const struct tb_peer_words *w, const struct tb_dial_facts *dials,
                               uint32_t count)
{
    uint32_t connected = 0;
    const struct tb_dial_facts *bad = NULL;
    struct tb_finding f;
    for (uint32_t i = 0; i < count; i++) {
        connected += dials[i].connected;
        if (!dials[i].connected && (bad == NULL || dials[i].closed_port)) bad = &dials[i];
    }
    if (bad == NULL && count > 0)
        return tb_find(TB_MARK_FINE, "%.120s answers%s", dials[0].address,
                       count > 1 ? ", and each other address" : "");
    if (bad == NULL) return tb_find(TB_MARK_UNKNOWN, "there is no address to try");
    f = bad->silent
            ? tb_find(TB_MARK_WRONG, "%.120s: no answer within %u s", bad->address, TB_DOCTOR_STEP_MS / 1000)
            : tb_find(TB_MARK_WRONG, "%.120s: %.200s", bad->address, bad->reason);
    if (connected > 0) f.mark = TB_MARK_WARNING; /* another address serves */
    if (bad->closed_port)
        tb_advise(
            &f,
            "at %s: start its gateway (systemctl start tombolod@%s), with link.listen on that port; here "
            "peers.%s.address",
            w->peer->of.text, w->peer->of.text, w->peer->site.text);
    else
        tb_advise(&f, "a route and a firewall that let TCP to %.120s pass, or another peers.%s.address",
                  bad->address, w->peer->site.text);
    return f;
}

static int furthest(const struct tb_dial_facts *d)
{
    return d->opened ? 3 : d->refusal.fault != TB_TLS_FAULT_NONE ? 2 : d->connected;
}

const struct tb_dial_facts *tb_dial_furthest(const struct tb_dial_facts *dials, uint32_t count)
{
    const struct tb_dial_facts *best = NULL;
    for (uint32_t i = 0; i < count; i++)
        if (best == NULL || furthest(&dials[i]) > furthest(best)) best = &dials[i];
    return best;
}

/* ---- TLS ---- */

static const char *ca_key(const struct tb_peer_words *w, char key_out[128])
{
    if (w->peer->ca == NULL) return "tls.ca";
    (void)snprintf(key_out, 128, "peers.%s.ca", w->peer->site.text);
    return key_out;
}

/* The peer did not take our certificate. */
static struct tb_finding refused_there(const struct tb_peer_words *w, const struct tb_dial_facts *d)
{
    const char *at = w->peer->of.text, *us = w->config->label.text;
    struct tb_finding f = tb_find(TB_MARK_WRONG, "%s does not accept the certificate of %s: %.200s", w->uri,
                                  w->own_uri, d->reason);
    if (d->refusal.fault == TB_TLS_FAULT_DATES)
        tb_advise(&f, "compare the clocks of both ends, and renew %.200s if it has expired",
                  w->config->tls_cert);
    else if (d->refusal.fault == TB_TLS_FAULT_REVOKED)
        tb_advise(&f, "issue another certificate, or take this one off the list tls.revoked at %s", at);
    else if (d->refusal.fault == TB_TLS_FAULT_IDENTITY)
        tb_advise(&f, "at %s: peers.%s.gateway: %s", at, us, w->config->gateway.text);
    else
        tb_advise(&f, "at %s: peers.%s.ca: the CA that signed %.200s, copied from here (%.200s)", at, us,
                  w->config->tls_cert, w->config->tls_ca);
    return f;
}

/* We did not take the peer's. */
static struct tb_finding refused_here(const struct tb_peer_words *w, const struct tb_dial_facts *d)
{
    char key[128];
    struct tb_finding f = tb_find(TB_MARK_WRONG, "the certificate of %.120s is not accepted here: %.300s",
                                  d->address, d->reason);
    if (d->refusal.fault == TB_TLS_FAULT_DATES)
        tb_advise(&f, "at %s: tombolo pki renew gw.crt, or compare the clocks of both ends",
                  w->peer->of.text);
    else if (d->refusal.fault == TB_TLS_FAULT_REVOKED)
        tb_advise(&f, "tls.revoked: lists it; take it off, or have %s issue another one", w->peer->of.text);
    else
        tb_advise(&f, "%s: the CA that signs at %s, copied from there (its tls.ca); here it is %.200s",
                  ca_key(w, key), w->peer->of.text, w->peer->ca != NULL ? w->peer->ca : w->config->tls_ca);
    return f;
}

static bool is_of_identity(const struct tb_dial_facts *d)
{
    return d->refusal.fault == TB_TLS_FAULT_IDENTITY && !d->refusal.by_peer;
}

/* In TLS 1.3 we are open before the peer has judged our certificate: its own
 * end, or bytes of its own, say that it took it. A reset says nothing. */
static bool took_ours(const struct tb_dial_facts *d)
{
    return d->opened && (d->said || d->bye != TB_OK || d->why == TB_STREAM_CLOSED);
}

struct tb_finding tb_judge_tls(const struct tb_peer_words *w, const struct tb_dial_facts *d, int64_t now_s)
{
    struct tb_finding f;
    if (!d->connected) return tb_find(TB_MARK_SKIPPED, "no connection came about");
    if (is_of_identity(d)) return tb_find(TB_MARK_FINE, "a CA that is trusted here signed its certificate");
    if (d->refusal.fault == TB_TLS_FAULT_OTHER || (!d->opened && d->refusal.fault == TB_TLS_FAULT_NONE)) {
        f = tb_find(TB_MARK_WRONG, "%.120s: %s%.300s", d->address,
                    d->silent ? "no answer within 3 s: " : "it speaks no TLS of ours: ", d->reason);
        tb_advise(&f, "peers.%s.address: is that the port of link.listen at %s?", w->peer->site.text,
                  w->peer->of.text);
        return f;
    }
    if (d->refusal.fault != TB_TLS_FAULT_NONE)
        return d->refusal.by_peer ? refused_there(w, d) : refused_here(w, d);
    if (d->silent && !took_ours(d))
        return tb_find(TB_MARK_UNKNOWN, "its certificate is good, and it said nothing of ours within %u s",
                       TB_DOCTOR_STEP_MS / 1000);
    if (!took_ours(d))
        return tb_find(TB_MARK_UNKNOWN,
                       "its certificate is good, and the connection ended before "
                       "it accepted ours: %.300s",
                       d->reason);
    const int64_t left = ((int64_t)d->expires_wall_s - now_s) / DAY_S;
    return tb_find(TB_MARK_FINE, "both certificates are accepted; that of %s has %lld days left",
                   w->peer->of.text, (long long)left);
}

struct tb_finding tb_judge_identity(const struct tb_peer_words *w, const struct tb_dial_facts *d)
{
    struct tb_finding f;
    char claim[TB_URI_BYTES_MAX] = "another one";
    if (d->bye == TB_PEER_DENIED) {
        f = tb_find(TB_MARK_WRONG, "%s has no %s among its peers", w->uri, w->own_uri);
        tb_advise(&f, "at %s: peers.%s.gateway: %s", w->peer->of.text, w->config->label.text,
                  w->config->gateway.text);
        return f;
    }
    if (is_of_identity(d)) {
        const struct tb_identity *it = &d->refusal.claimed;
        if (it->kind != TB_IDENTITY_NONE) tb_identity_format(it, claim);
        f = tb_find(TB_MARK_WRONG, "%.120s is %s, and not %s", d->address, claim, w->uri);
        if (it->kind == TB_IDENTITY_GATEWAY && tb_name_equal(&it->site, &w->peer->of))
            tb_advise(&f, "peers.%s.gateway: %s", w->peer->site.text, it->name.text);
        else
            tb_advise(&f, "peers.%s.address: of a gateway of %s", w->peer->site.text, w->peer->of.text);
        return f;
    }
    if (!d->opened) return tb_find(TB_MARK_SKIPPED, "TLS did not come so far");
    if (d->bye != TB_OK)
        return tb_find(TB_MARK_WARNING, "%s wants no connection now: %s", w->uri, tb_status_text(d->bye));
    if (!took_ours(d))
        return tb_find(TB_MARK_UNKNOWN, "%s ended the connection: %.300s. Its peers may lack %s", w->uri,
                       d->reason, w->own_uri);
    return tb_find(TB_MARK_FINE, "it is %s", w->uri);
}

/* ---- packets ---- */

struct tb_finding tb_judge_mtu(const struct tb_peer_words *w, const struct tb_dial_facts *full,
                               const struct tb_dial_facts *smaller, uint32_t count)
{
    struct tb_finding f;
    if (full->opened && full->packet_bytes == 0)
        return tb_find(TB_MARK_UNKNOWN, "this machine does not say how large its packets are");
    if (full->opened && full->padding_bytes < full->packet_bytes)
        return tb_find(TB_MARK_UNKNOWN,
                       "%u bytes pass, and none of %u, as this route has them (its "
                       "MTU is %u), was sent",
                       full->padding_bytes, full->packet_bytes, full->mtu);
    if (full->opened)
        return tb_find(TB_MARK_FINE,
                       "packets with %u bytes of payload pass from here (the route's MTU is %u)",
                       full->packet_bytes, full->mtu);
    if (!full->silent && full->refusal.fault == TB_TLS_FAULT_NONE)
        return tb_find(TB_MARK_UNKNOWN, "a first message that fills packets was not answered: %.200s",
                       full->reason);
    if (!full->silent) return tb_find(TB_MARK_SKIPPED, "TLS did not come so far");
    for (uint32_t i = 0; i < count; i++) {
        if (!smaller[i].opened) continue;
        f = tb_find(TB_MARK_WRONG,
                    "large packets vanish on the way to %s: those with %u bytes of payload pass",
                    w->peer->of.text, smaller[i].segment_bytes);
        tb_advise(
            &f,
            "let ICMP \"fragmentation needed\" pass on the path, or make the MTU here smaller: ip link set "
            "dev DEVICE mtu %u",
            smaller[i].segment_bytes + 40);
        return f;
    }
    return tb_find(TB_MARK_UNKNOWN,
                   "a first message that fills packets was not answered, in small ones neither");
}

/* ---- of a row of links[] ---- */

/* A number that the gateway does not know, or does not say, is left out. */
static struct tb_finding link_is_up(const json_t *row)
{
    const double rtt_ms = tb_number_of(row, "rtt_ms");
    char since[64] = "", rtt[64] = "";
    if (json_is_number(json_object_get(row, "since_s")))
        (void)snprintf(since, sizeof since, " for %s", tb_show_seconds(tb_number_of(row, "since_s")).text);
    if (rtt_ms > 0) (void)snprintf(rtt, sizeof rtt, ", %.1f ms there and back", rtt_ms);
    return tb_find(TB_MARK_FINE, "up%s%s", since, rtt);
}

struct tb_finding tb_judge_link(const struct tb_peer_words *w, const json_t *row)
{
    const struct tb_field state = tb_text_of(row, "state"), reason = tb_text_of(row, "reason");
    const struct tb_field error = tb_text_of(row, "error");
    const bool up = strcmp(state.text, "up") == 0, ails = strcmp(reason.text, "-") != 0;
    struct tb_finding f;
    if (row == NULL) {
        f = tb_find(TB_MARK_WRONG, "the gateway that runs knows no peer %s", w->peer->site.text);
        tb_advise(&f, "tombolo reload, or restart it: the file is newer than what it runs with");
        return f;
    }
    if (!json_is_string(json_object_get(row, "state")) || !json_is_string(json_object_get(row, "reason")))
        return tb_find(TB_MARK_UNKNOWN, "the gateway does not say how the link is");
    if (up && !ails) return link_is_up(row);
    const char *advice = ails ? tb_lag_verdict_advice(reason.text) : NULL;
    f = tb_find(TB_MARK_WRONG, "%s, %s%s%.400s", state.text, ails ? reason.text : "no reason is known",
                strcmp(error.text, "-") != 0 ? ": " : "", strcmp(error.text, "-") != 0 ? error.text : "");
    if (advice != NULL) tb_advise(&f, "%s", advice);
    return f;
}

struct tb_finding tb_judge_peer_clock(const struct tb_peer_words *w, const json_t *row)
{
    const json_t *value = json_object_get(row, "clock_ahead_ms");
    const json_int_t ahead = json_integer_value(value), off = ahead < 0 ? -ahead : ahead;
    struct tb_finding f;
    if (!json_is_integer(value))
        return tb_find(TB_MARK_UNKNOWN,
                       "%s did not say its clock: the link is not up, or its release is older",
                       w->peer->site.text);
    if (off <= CLOCK_FINE_MS)
        return tb_find(TB_MARK_FINE, "the clocks of both gateways differ by %.1f s", (double)off / 1e3);
    f = tb_find(off > CLOCK_BAD_MS ? TB_MARK_WRONG : TB_MARK_WARNING,
                "the clock of %s is %.0f s %s this machine's", w->peer->site.text, (double)off / 1e3,
                ahead > 0 ? "ahead of" : "behind");
    tb_advise(&f, "timedatectl set-ntp true, at the end whose clock is wrong: compare both with a third one");
    return f;
}

struct tb_finding tb_judge_throughput(const json_t *row)
{
    const json_t *codec = json_object_get(row, "codec");
    const uint64_t rate = tb_count_of(codec, "link_bytes_per_s");
    if (rate == 0)
        return tb_find(TB_MARK_UNKNOWN,
                       "nothing was sent that shows it; this release has no probe of its own");
    return tb_find(TB_MARK_FINE, "%s/s while it is busy, as measured of what was sent",
                   tb_show_bytes(rate).text);
}

/* ---- rights ---- */

/* "a, b" of an array of names, the first of them alone too; how many there are. */
static size_t names_of(const json_t *list, char all_out[256], char first_out[80])
{
    size_t used = 0;
    all_out[0] = first_out[0] = '\0';
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        char clean[80];
        tb_show_clean(name != NULL ? name : "?", clean, sizeof clean);
        if (i == 0) (void)snprintf(first_out, 80, "%s", clean);
        const int wrote = snprintf(all_out + used, 256 - used, "%s%s", i > 0 ? ", " : "", clean);
        if (wrote < 0 || used + (size_t)wrote >= 256) break;
        used += (size_t)wrote;
    }
    return json_array_size(list);
}

static struct tb_finding rights_of_link(const struct tb_peer_words *w, const json_t *row)
{
    const json_t *denied = json_object_get(row, "denied"), *refused = json_object_get(row, "refused_models");
    char all[256], first[80];
    struct tb_finding f;
    if (names_of(denied, all, first) > 0) {
        f = tb_find(TB_MARK_WRONG, "this site may not read there: %s", all);
        tb_advise(&f, "at %s: models.%s.read: add %s, then tombolo reload", w->peer->of.text, first,
                  w->own_uri);
        return f;
    }
    if (names_of(refused, all, first) > 0) {
        f = tb_find(TB_MARK_WRONG, "%s asked for %s, and may not read it here", w->peer->site.text, all);
        tb_advise(&f, "models.%s.read: add %s, then tombolo reload", first, w->uri);
        return f;
    }
    if (!json_is_array(denied) || !json_is_array(refused) || strcmp(tb_text_of(row, "state").text, "up") != 0)
        return tb_find(TB_MARK_UNKNOWN, "the link is not up: the peer said nothing of rights");
    return tb_find(TB_MARK_FINE, "neither end was denied a model");
}

/* Of models whose home is here: some one may read, and others not. */
static struct tb_finding rights_of_file(const struct tb_peer_words *w)
{
    const struct tb_config *c = w->config;
    const struct tb_identity it = {
        .kind = TB_IDENTITY_GATEWAY, .site = w->peer->of, .name = w->peer->gateway};
    const char *lacking = NULL;
    uint32_t home = 0, granted = 0;
    TB_ASSERT(c->model_count <= TB_CONFIG_LIST_MAX);
    for (uint32_t i = 0; i < c->model_count; i++) {
        if (!tb_name_equal(&c->models[i].home, &c->label)) continue;
        const bool may =
            tb_name_equal(&w->peer->of, &c->site) || tb_rights_may(c, &c->models[i].name, &it, false);
        home++;
        granted += may;
        if (!may && lacking == NULL) lacking = c->models[i].name.text;
    }
    if (home == 0)
        return tb_find(TB_MARK_UNKNOWN,
                       "no model has its home here, and what %s grants is known once both gateways run",
                       w->peer->of.text);
    if (lacking == NULL)
        return tb_find(TB_MARK_FINE, "%s may read each of the %u models of this home", w->uri, home);
    struct tb_finding f =
        tb_find(granted == 0 ? TB_MARK_WRONG : TB_MARK_WARNING,
                "%s may read %u of the %u models of this home, and not %s", w->uri, granted, home, lacking);
    tb_advise(&f, "models.%s.read: add %s", lacking, w->uri);
    return f;
}

struct tb_finding tb_judge_rights(const struct tb_peer_words *w, const json_t *row)
{
    return row != NULL ? rights_of_link(w, row) : rights_of_file(w);
}
