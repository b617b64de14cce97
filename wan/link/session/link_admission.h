/* link_admission.h - which connections from outside are accepted, and which peers are shut out.
 *
 * Strangers have half of the connections that may stand at link.listen, and each address has few
 * handshakes that are unfinished or fail (base/limits/handshake_limits.h). Addresses of peers have
 * a pool of their own: those that `peers.*.address` leads to, and the last ones from which a peer
 * showed its certificate. So strangers do not keep out a link that comes back (P6). Of each such
 * address a quarter of all connections may be nameless, for each peer that is there; beyond that it
 * counts as a stranger's. */
#ifndef TB_WAN_LINK_ADMISSION_H
#define TB_WAN_LINK_ADMISSION_H

#include "base/ident.h"
#include "base/limits/glitch_budget.h"
#include "base/limits/handshake_limits.h"
#include "wan/link/links.h"

struct tb_link;
struct tb_link_conn;
struct tb_links;

struct tb_link_admission {
    struct tb_handshake_limits strangers;
    struct tb_glitch_budget glitches; /* of peers */
};

/* NULL: no memory. */
struct tb_link_admission *tb_link_admission_new(const struct tb_links_options *o);
/* As the options say. */
void tb_link_admission_set(struct tb_link_admission *a, const struct tb_links_options *o);
/* False: the connection is to be closed. True: *handshake_out is its handshake's address, 0 of a
 * known one. */
bool tb_link_admit(struct tb_links *ls, const struct tb_address *from, uint64_t *handshake_out);
/* The connection's handshake is over: a peer showed who it is, or it failed. */
void tb_link_admitted(struct tb_link_conn *c, bool good);
bool tb_link_is_shut_out(struct tb_link *l);
/* The peer broke the protocol on that connection; a connection counts once. True: it is shut out
 * now, and its connections are to end. */
bool tb_link_glitched(struct tb_link_conn *c);

#endif
