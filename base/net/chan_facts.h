/* chan_facts.h - what is known of one channel: its peer, why it failed, how far a dial came, what
 * TLS does. No call changes anything. On the thread of its loop. */
#ifndef TB_BASE_NET_CHAN_FACTS_H
#define TB_BASE_NET_CHAN_FACTS_H

#include "base/net/chan.h"

/* Why it failed, as a sentence for the log: "certificate has expired", "Connection refused". Empty
 * when nothing is known. It may quote what the peer sent. Valid until on_closed returns. */
const char *tb_chan_reason(const struct tb_chan *c);
/* TLS: who refused whose certificate, and why. Valid until on_closed returns. */
struct tb_tls_refusal tb_chan_refusal(const struct tb_chan *c);
const struct tb_chan_peer *tb_chan_peer(const struct tb_chan *c);
int tb_chan_fd(const struct tb_chan *c);         /* for getsockopt(TCP_INFO) and tests */
bool tb_chan_hung_up(const struct tb_chan *c);   /* of one without TLS: it closed because its peer did */
bool tb_chan_connected(const struct tb_chan *c); /* the other machine has answered; TLS may be under way */

/* How far a dial came, also one that failed. */
enum tb_chan_reach {
    TB_CHAN_NOWHERE, /* this machine has no way there now, as while its device is down: nothing was sent */
    TB_CHAN_UNHEARD, /* nothing came from there: silence, or a router's word that it leads nowhere */
    TB_CHAN_HEARD    /* the other machine answered, be it by a refusal */
};

enum tb_chan_reach tb_chan_reach(const struct tb_chan *c);
bool tb_chan_kernel_sends(const struct tb_chan *c); /* TLS: the kernel encrypts what is written */
/* TLS: records are ours (tls_bulk.h), not OpenSSL's; those that are sent the
 * kernel's, where it sends. */
bool tb_chan_own_records(const struct tb_chan *c);
/* TLS: `tls`, which is newer, would let the peer in by the chain that it showed: a CA for its site
 * is among those of tb_tls_add_site_ca, and nothing is revoked. */
bool tb_chan_is_trusted(const struct tb_chan *c, const struct tb_tls *tls);
/* TLS: the peer's certificate is on the list of `tls` (revoked.h). */
bool tb_chan_is_revoked(const struct tb_chan *c, const struct tb_tls *tls);
uint64_t tb_chan_records(const struct tb_chan *c); /* of TLS, at most; the more of both ways */

#endif
