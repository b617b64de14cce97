/* chan_facts.c - what is known of one channel. */
#include "base/net/chan_facts.h"

#include "base/net/chan_inner.h"

const char *tb_chan_reason(const struct tb_chan *c)
{
    return c->reason;
}

struct tb_tls_refusal tb_chan_refusal(const struct tb_chan *c)
{
    return c->secure ? c->tls.refusal : (struct tb_tls_refusal){.fault = TB_TLS_FAULT_NONE};
}

const struct tb_chan_peer *tb_chan_peer(const struct tb_chan *c)
{
    return &c->peer;
}

int tb_chan_fd(const struct tb_chan *c)
{
    return c->fd;
}

bool tb_chan_connected(const struct tb_chan *c)
{
    return c->state != CONNECTING && c->state != CLOSING;
}

enum tb_chan_reach tb_chan_reach(const struct tb_chan *c)
{
    return c->reach;
}

bool tb_chan_hung_up(const struct tb_chan *c)
{
    return c->hung_up;
}

bool tb_chan_kernel_sends(const struct tb_chan *c)
{
    return c->secure && tb_tls_session_kernel_sends(&c->tls);
}

bool tb_chan_own_records(const struct tb_chan *c)
{
    return c->secure && tb_tls_session_own_records(&c->tls);
}

bool tb_chan_is_trusted(const struct tb_chan *c, const struct tb_tls *tls)
{
    return c->secure && tb_tls_session_trusted(&c->tls, tls);
}

bool tb_chan_is_revoked(const struct tb_chan *c, const struct tb_tls *tls)
{
    return c->secure && tb_tls_session_revoked(&c->tls, tls);
}

uint64_t tb_chan_records(const struct tb_chan *c)
{
    const struct tb_tls_session *t = &c->tls;
    if (!c->secure) return 0;
    return t->records_sent > t->records_received ? t->records_sent : t->records_received;
}
