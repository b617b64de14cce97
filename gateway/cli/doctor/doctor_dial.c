/* doctor_dial.c - see doctor_dial.h.
 *
 * In TLS 1.3 a dialler is open before the other end has judged its certificate. So each connection
 * that opens waits for a word of the peer: an alert that refuses our certificate, or BYE of a
 * gateway that has us not among its peers. After a second without one it says goodbye, and waits
 * for the peer's own. A goodbye that is there before the peer has written its BYE would take its
 * place. */
#include "gateway/cli/doctor/doctor_dial.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/net/chan_bytes.h"
#include "base/net/tcp.h"

#define BYE_TYPE  2u  /* docs/protocol.md */
#define BYE_BYTES 20u /* a frame's header, and the status behind it */
#define LISTEN_MS 1000u

/* ---- names ---- */

static void on_resolved(void *user, enum tb_status status, const struct tb_address *addresses, uint32_t count,
                        uint32_t ttl_s)
{
    struct tb_name_facts *facts = user;
    (void)ttl_s;
    facts->status = status;
    facts->count = status == TB_OK && count <= TB_ADDRESSES_MAX ? count : 0;
    for (uint32_t i = 0; i < facts->count; i++)
        facts->addresses[i] = addresses[i];
}

static void resolve_on(uv_loop_t *loop, const struct tb_endpoint *endpoint, const char *servers,
                       struct tb_name_facts *facts)
{
    const struct tb_resolver_options options = {.servers = servers, .timeout_ms = TB_DOCTOR_STEP_MS};
    struct tb_resolver *resolver = NULL;
    facts->status = tb_resolver_new(loop, &options, &resolver);
    if (facts->status != TB_OK) return;
    facts->status = TB_AGAIN;
    tb_resolve(resolver, endpoint, on_resolved, facts);
    while (facts->status == TB_AGAIN && uv_run(loop, UV_RUN_ONCE) != 0)
        continue;
    if (facts->status == TB_AGAIN) facts->status = TB_TIMEOUT;
    tb_resolver_close(resolver);
}

void tb_doctor_resolve(const struct tb_endpoint *endpoint, const char *servers,
                       struct tb_name_facts *facts_out)
{
    uv_loop_t loop;
    *facts_out = (struct tb_name_facts){.status = TB_SITE_NOMEM};
    if (uv_loop_init(&loop) != 0) return;
    resolve_on(&loop, endpoint, servers, facts_out);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&loop);
}

/* ---- connections ---- */

struct doctor_attempt {
    struct tb_dial_facts *facts;
    struct tb_chan *chan; /* NULL: closed */
    uv_timer_t listened;
    uint8_t said[BYE_BYTES];
    size_t said_bytes;
};

static uint32_t route_mtu(int fd)
{
    int mtu = 0;
    socklen_t bytes = sizeof mtu;
    if (getsockopt(fd, IPPROTO_IP, IP_MTU, &mtu, &bytes) == 0 && mtu > 0) return (uint32_t)mtu;
    bytes = sizeof mtu;
    return getsockopt(fd, IPPROTO_IPV6, IPV6_MTU, &mtu, &bytes) == 0 && mtu > 0 ? (uint32_t)mtu : 0;
}

static void on_listened(uv_timer_t *timer)
{
    struct doctor_attempt *a = timer->data;
    if (a->chan != NULL) tb_chan_end(a->chan);
}

static void on_open(struct tb_chan *c, void *user, const struct tb_chan_peer *peer)
{
    struct doctor_attempt *a = user;
    struct tb_dial_facts *facts = a->facts;
    struct tb_tcp_seen seen;
    facts->opened = true;
    facts->peer = peer->identity;
    facts->expires_wall_s = peer->expires_wall_s;
    if (tb_tcp_look(tb_chan_fd(c), &seen)) facts->packet_bytes = seen.segment_bytes;
    facts->mtu = route_mtu(tb_chan_fd(c));
    (void)uv_timer_start(&a->listened, on_listened, LISTEN_MS, 0);
}

/* A peer says nothing before HELLO but BYE; other bytes are of no Tombolo. */
static void on_readable(struct tb_chan *c, void *user)
{
    struct doctor_attempt *a = user;
    uint8_t rest[256];
    size_t count = 0;
    const bool first = a->said_bytes < sizeof a->said;
    const enum tb_status status = tb_chan_read(c, first ? a->said + a->said_bytes : rest,
                                               first ? sizeof a->said - a->said_bytes : sizeof rest, &count);
    if (status == TB_OK && first) a->said_bytes += count;
}

static void on_writable(struct tb_chan *c, void *user)
{
    (void)c, (void)user;
}

static enum tb_status bye_of(const struct doctor_attempt *a)
{
    struct tb_reader r;
    tb_reader_init(&r, a->said, a->said_bytes);
    (void)tb_read_u32(&r);
    const uint16_t type = tb_read_u16(&r);
    (void)tb_read_u16(&r);
    (void)tb_read_u64(&r);
    const uint32_t negated = tb_read_u32(&r);
    return r.bad || type != BYE_TYPE || negated < 100 || negated > 999 ? TB_OK
                                                                       : (enum tb_status)(-(int)negated);
}

static void on_closed(struct tb_chan *c, void *user, enum tb_status why)
{
    struct doctor_attempt *a = user;
    struct tb_dial_facts *facts = a->facts;
    a->chan = NULL;
    uv_close((uv_handle_t *)&a->listened, NULL);
    const bool heard = tb_chan_reach(c) == TB_CHAN_HEARD;
    facts->why = why;
    facts->silent = why == TB_STREAM_IDLE;
    facts->closed_port = heard && why == TB_PEER_UNREACHABLE;
    facts->connected = facts->opened || (heard && !facts->closed_port);
    facts->refusal = tb_chan_refusal(c);
    facts->bye = bye_of(a);
    facts->said = facts->opened && a->said_bytes > 0;
    (void)snprintf(facts->reason, sizeof facts->reason, "%s", tb_chan_reason(c));
    if (facts->reason[0] == '\0')
        (void)snprintf(facts->reason, sizeof facts->reason, "%s", tb_status_text(why));
}

static void dial(uv_loop_t *loop, const struct tb_dial_options *options, const struct tb_dial_wish *wish,
                 struct doctor_attempt *a)
{
    static const struct tb_chan_ops ops = {on_open, on_readable, on_writable, on_closed};
    const struct tb_chan_options how = {.loop = loop,
                                        .tls = options->tls,
                                        .expect = {.identity = options->expect},
                                        .ops = &ops,
                                        .user = a,
                                        .open_ms = TB_DOCTOR_STEP_MS,
                                        .segment_bytes_max = wish->segment_bytes,
                                        .source = options->source,
                                        .dscp = options->dscp};
    a->facts->why = tb_chan_dial(&how, &wish->address, &a->chan);
    if (a->facts->why == TB_OK) {
        (void)uv_timer_init(loop, &a->listened); /* cannot fail */
        a->listened.data = a;
        tb_chan_deadline(a->chan, TB_STREAM_IDLE, TB_DOCTOR_STEP_MS);
    } else {
        a->chan = NULL;
        (void)snprintf(a->facts->reason, sizeof a->facts->reason, "%s", tb_status_text(a->facts->why));
    }
}

enum tb_status tb_doctor_dial(const struct tb_dial_options *options, const struct tb_dial_wish *wishes,
                              struct tb_dial_facts *facts_out, uint32_t count)
{
    struct doctor_attempt attempts[TB_ADDRESSES_MAX];
    uv_loop_t loop;
    TB_ASSERT(count <= TB_ADDRESSES_MAX);
    if (uv_loop_init(&loop) != 0) return TB_SITE_NOMEM;
    for (uint32_t i = 0; i < count; i++) {
        attempts[i] = (struct doctor_attempt){.facts = &facts_out[i]};
        facts_out[i] = (struct tb_dial_facts){.segment_bytes = wishes[i].segment_bytes, .bye = TB_OK};
        tb_address_format(&wishes[i].address, facts_out[i].address, sizeof facts_out[i].address);
        dial(&loop, options, &wishes[i], &attempts[i]);
    }
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&loop);
    return TB_OK;
}
