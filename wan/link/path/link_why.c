/* link_why.c - what a link says of itself: why it is down, since when, and what ails one that is
 * up.
 *
 * A link has one reason at a time. A session that comes up clears the reason of the time
 * before; what fails beside a session that is up is not told here. Attempts of both ends, and
 * to several addresses, fail in turns and not all alike: the one that came furthest speaks for
 * the link. A refused certificate says more than a closed port, so the port waits until no
 * certificate was refused for STANDS. */
#include "wan/link/path/link_why.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/net/chan_facts.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_stats.h"
#include "wan/link/session/link_conn.h"
#include "wan/link/session/link_control.h"

#define STANDS 2u /* times retry_max_ms: one attempt of each end, and a little */

/* How far an attempt came that failed so. */
static unsigned rank(enum tb_links_why why, bool refused)
{
    if (why == TB_LINKS_WHY_DOWN || why == TB_LINKS_WHY_DNS) return refused ? 2 : 0;
    return why == TB_LINKS_WHY_REFUSED && !refused ? 1 : 2;
}

static void set(struct tb_link *l, enum tb_links_why why, bool refused, const char *format, va_list args)
{
    TB_ASSERT(why != TB_LINKS_WHY_NONE);
    const tb_time_ns now = tb_clock_now();
    const bool fresh = tb_time_since(l->path.said.at, now) < TB_MS(STANDS * l->links->options.retry_max_ms);
    if (fresh && rank(why, refused) < rank(l->path.said.why, l->path.said.refused)) return;
    l->path.said.at = now;
    l->path.said.why = why;
    l->path.said.refused = refused;
    vsnprintf(l->path.said.error, sizeof l->path.said.error, format, args);
}

__attribute__((format(printf, 3, 4))) static void down_for(struct tb_link *l, enum tb_links_why why,
                                                           const char *format, ...)
{
    va_list args;
    if (tb_link_is_up(l)) return;
    va_start(args, format);
    set(l, why, false, format, args);
    va_end(args);
}

/* A handshake or a BYE said no. */
__attribute__((format(printf, 3, 4))) static void refused_for(struct tb_link *l, enum tb_links_why why,
                                                              const char *format, ...)
{
    va_list args;
    if (tb_link_is_up(l)) return;
    va_start(args, format);
    set(l, why, true, format, args);
    va_end(args);
}

static const char *peer_of(const struct tb_link *l)
{
    static char uri[TB_URI_BYTES_MAX]; /* the main loop's alone */
    tb_identity_format(&l->identity, uri);
    return uri;
}

static const char *us_of(const struct tb_link *l)
{
    static char uri[TB_URI_BYTES_MAX];
    tb_identity_format(&l->links->identity, uri);
    return uri;
}

/* ---- up and down ---- */

void tb_link_said_up(struct tb_link *l)
{
    TB_ASSERT(tb_link_is_up(l));
    const tb_time_ns since = l->path.said.up ? l->path.said.since : tb_clock_now();
    l->path.said = (struct tb_link_said){.up = true, .since = since};
}

void tb_link_said_down(struct tb_link *l, enum tb_status why)
{
    TB_ASSERT(!tb_link_is_up(l));
    l->path.said = (struct tb_link_said){.since = tb_clock_now()};
    if (why == TB_STREAM_IDLE)
        down_for(l, TB_LINKS_WHY_DOWN, "nothing was heard from %s for %u ms", peer_of(l),
                 l->links->options.down_ms);
    else
        down_for(l, TB_LINKS_WHY_DOWN, "the session with %s ended: %s", peer_of(l), tb_status_text(why));
}

void tb_link_said_expired(struct tb_link *l, bool ours)
{
    refused_for(l, TB_LINKS_WHY_CLOCK, "the certificate of %s ended, and with it the session",
                ours ? us_of(l) : peer_of(l));
}

void tb_link_said_init(struct tb_link *l)
{
    l->path.said.since = tb_clock_now();
    l->path.said.why = TB_LINKS_WHY_DOWN;
}

enum tb_links_why tb_link_why(const struct tb_link *l)
{
    return l->path.said.why;
}

void tb_link_said_show(const struct tb_link *l, struct tb_links_stats *stats_out)
{
    stats_out->turned_away = l->path.said.refused;
    stats_out->why = l->path.said.why;
    stats_out->state_since = l->path.said.since;
    snprintf(stats_out->error, sizeof stats_out->error, "%s", l->path.said.error);
}

/* ---- refusals ---- */

static enum tb_links_why why_of_fault(enum tb_tls_fault fault)
{
    switch (fault) {
    case TB_TLS_FAULT_DATES:
        return TB_LINKS_WHY_CLOCK;
    case TB_TLS_FAULT_IDENTITY:
        return TB_LINKS_WHY_IDENTITY;
    case TB_TLS_FAULT_REVOKED:
        return TB_LINKS_WHY_REVOKED;
    default:
        return TB_LINKS_WHY_TLS;
    }
}

static const char *told_by(enum tb_tls_fault fault)
{
    switch (fault) {
    case TB_TLS_FAULT_DATES:
        return "it has expired, or is not valid yet, by the clock there";
    case TB_TLS_FAULT_IDENTITY:
        return "it is not the one of the gateway that is expected there";
    case TB_TLS_FAULT_REVOKED:
        return "it is on the list of revoked certificates there";
    default:
        return "no CA that is trusted there signed it";
    }
}

static void handshake_refused(struct tb_link *l, const struct tb_link_conn *c, const char *reason)
{
    TB_ASSERT(c->wire != NULL);
    const struct tb_tls_refusal r = tb_chan_refusal(tb_wire_chan(c->wire));
    if (r.by_peer)
        refused_for(l, why_of_fault(r.fault), "%s at %s does not accept the certificate of %s: %s (%s)",
                    peer_of(l), c->address_text, us_of(l), told_by(r.fault), reason);
    else
        refused_for(l, why_of_fault(r.fault), "%s at %s: %s", peer_of(l), c->address_text, reason);
}

void tb_link_said_bye(struct tb_link *l, enum tb_status why, bool by_peer)
{
    const char *text = tb_status_text(why);
    if (why == TB_PEER_TWIN)
        refused_for(
            l, TB_LINKS_WHY_TWIN,
            "another gateway is %s, too, and has the session with %s; stop one of the two, or issue a "
            "certificate of its own to it",
            us_of(l), peer_of(l));
    else if (why == TB_SITE_DRAINING)
        down_for(l, TB_LINKS_WHY_DOWN, "%s is shutting down", peer_of(l));
    else if (why == TB_PEER_IDENTITY && by_peer)
        refused_for(l, TB_LINKS_WHY_IDENTITY, "%s does not take this gateway for %s any more", peer_of(l),
                    us_of(l));
    else if (why == TB_PEER_IDENTITY)
        refused_for(l, TB_LINKS_WHY_IDENTITY, "who dials as %s says in HELLO that it is another gateway",
                    peer_of(l));
    else if (why == TB_PEER_DENIED && by_peer)
        refused_for(l, TB_LINKS_WHY_REFUSED, "%s has no %s among its peers", peer_of(l), us_of(l));
    else if (by_peer)
        refused_for(l, TB_LINKS_WHY_REFUSED, "%s refused the session: %s", peer_of(l), text);
    else
        refused_for(l, TB_LINKS_WHY_DOWN, "this gateway refused the session of %s: %s", peer_of(l), text);
}

/* ---- of a link that is up ---- */

void tb_link_said_twin(struct tb_link *l, const struct tb_link_conn *twin)
{
    TB_ASSERT(tb_link_is_up(l));
    l->path.said.why = TB_LINKS_WHY_TWIN;
    snprintf(l->path.said.error, sizeof l->path.said.error,
             "two gateways are %s: the one at %s has the session, and the one at %s is refused; stop one of "
             "the two, or issue a certificate of its own to it",
             peer_of(l), tb_link_control(l)->address_text, twin->address_text);
}

void tb_link_said_no_twin(struct tb_link *l)
{
    if (l->path.said.why != TB_LINKS_WHY_TWIN) return;
    l->path.said.why = TB_LINKS_WHY_NONE;
    l->path.said.error[0] = '\0';
    if (l->path.segment.proven) tb_link_said_mtu(l);
}

void tb_link_said_mtu(struct tb_link *l)
{
    if (!tb_link_is_up(l)) return;
    l->path.said.why = TB_LINKS_WHY_MTU;
    snprintf(
        l->path.said.error, sizeof l->path.said.error,
        "large packets do not pass between here and %s: connections have segments of %u bytes at most; let "
        "ICMP \"fragmentation needed\" pass on the path, or lower the MTU of the device",
        peer_of(l), l->path.segment.bytes_max);
}

void tb_link_said_no_mtu(struct tb_link *l)
{
    if (l->path.said.why != TB_LINKS_WHY_MTU) return;
    l->path.said.why = TB_LINKS_WHY_NONE;
    l->path.said.error[0] = '\0';
}

/* ---- dials ---- */

void tb_link_said_unresolved(struct tb_link *l, enum tb_status why)
{
    down_for(l, TB_LINKS_WHY_DNS, "%s: the name %s has no address: %s", peer_of(l), l->path.endpoint.host,
             why == TB_OK ? "the answer is empty" : tb_status_text(why));
}

static enum tb_links_why why_of_dial(const struct tb_link_conn *c, enum tb_status why)
{
    const struct tb_chan *chan = tb_wire_chan(c->wire);
    const struct tb_tls_refusal r = tb_chan_refusal(chan);
    if (r.fault != TB_TLS_FAULT_NONE) return why_of_fault(r.fault);
    if (why == TB_PEER_UNREACHABLE && tb_chan_reach(chan) == TB_CHAN_HEARD) return TB_LINKS_WHY_REFUSED;
    return TB_LINKS_WHY_DOWN;
}

void tb_link_said_undialled(struct tb_link_conn *c, enum tb_status status)
{
    struct tb_link *l = c->link;
    const enum tb_links_why why = why_of_dial(c, status);
    const char *reason = tb_chan_reason(tb_wire_chan(c->wire));
    if (reason[0] == '\0') reason = tb_status_text(status);
    if (tb_chan_refusal(tb_wire_chan(c->wire)).fault != TB_TLS_FAULT_NONE)
        handshake_refused(l, c, reason);
    else
        down_for(l, why, "%s at %s: %s", peer_of(l), c->address_text, reason);
}

/* ---- those who come ---- */

/* A host of IPv4 as one of IPv6: a listener at [::] sees it so. False: neither. */
static bool host_of(const struct tb_address *a, struct in6_addr *host_out)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (a->any.sa_family == AF_INET6) {
        *host_out = a->v6.sin6_addr;
        return true;
    }
    memcpy(host_out->s6_addr, mapped, sizeof mapped);
    memcpy(host_out->s6_addr + sizeof mapped, &a->v4.sin_addr, 4);
    return a->any.sa_family == AF_INET;
}

static bool same_host(const struct tb_address *a, const struct tb_address *b)
{
    struct in6_addr x, y;
    return host_of(a, &x) && host_of(b, &y) && memcmp(&x, &y, sizeof x) == 0;
}

static bool lives_at(const struct tb_link *l, const struct tb_address *from)
{
    for (uint32_t i = 0; i < l->path.address_count; i++)
        if (same_host(&l->path.addresses[i], from)) return true;
    return same_host(&l->path.good, from);
}

/* The one peer for which `fits` holds; NULL: none, or several. */
static struct tb_link *only_one(struct tb_links *ls,
                                bool (*fits)(const struct tb_link *l, const struct tb_link_conn *c),
                                const struct tb_link_conn *c)
{
    struct tb_link *found = NULL;
    for (uint32_t i = 0; i < ls->options.peer_count; i++) {
        if (!fits(&ls->links[i], c)) continue;
        if (found != NULL) return NULL;
        found = &ls->links[i];
    }
    return found;
}

static struct tb_identity claim_of(const struct tb_link_conn *c)
{
    return c->identity.kind != TB_IDENTITY_NONE ? c->identity
                                                : tb_chan_refusal(tb_wire_chan(c->wire)).claimed;
}

static bool fits_claim(const struct tb_link *l, const struct tb_link_conn *c)
{
    const struct tb_identity claim = claim_of(c);
    return claim.kind != TB_IDENTITY_NONE && tb_identity_equal(&l->identity, &claim);
}

static bool fits_address(const struct tb_link *l, const struct tb_link_conn *c)
{
    return lives_at(l, &c->address);
}

/* Its CA speaks for that site: another gateway of it than is configured. */
static bool fits_site(const struct tb_link *l, const struct tb_link_conn *c)
{
    return c->identity.kind == TB_IDENTITY_GATEWAY && tb_name_equal(&l->identity.site, &c->identity.site);
}

/* A scanner of the port breaks TLS in other ways. */
static bool is_judgement(enum tb_tls_fault fault)
{
    return fault != TB_TLS_FAULT_NONE && fault != TB_TLS_FAULT_OTHER;
}

void tb_links_said_stranger(struct tb_link_conn *c, enum tb_status why)
{
    const char *reason = tb_chan_reason(tb_wire_chan(c->wire));
    char claim[TB_URI_BYTES_MAX];
    struct tb_link *l = only_one(c->links, fits_claim, c);
    if (l == NULL) l = only_one(c->links, fits_site, c);
    if (l == NULL) l = only_one(c->links, fits_address, c);
    if (l == NULL) return;
    tb_identity_format(&c->identity, claim);
    if (c->identity.kind != TB_IDENTITY_NONE)
        refused_for(l, TB_LINKS_WHY_IDENTITY, "%s came from %s, where %s is expected", claim, c->address_text,
                    peer_of(l));
    else if (is_judgement(tb_chan_refusal(tb_wire_chan(c->wire)).fault))
        handshake_refused(l, c, reason[0] != '\0' ? reason : tb_status_text(why));
}
