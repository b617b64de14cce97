/* links_messages.h - what one peer is told: reports, runs, the state of a site, a withdrawal. On
 * the main loop. */
#ifndef TB_WAN_LINKS_MESSAGES_H
#define TB_WAN_LINKS_MESSAGES_H

#include "wan/link/links.h"

/* Tells that peer alone, if it is up and may read the model. */
void tb_links_tell_withdrawn(struct tb_links *ls, uint32_t peer, const struct tb_version_key *key);
/* Sent to that peer if it is up; TB_PEER_UNREACHABLE otherwise (tell it again after on_peer and
 * on_renewed). That a version is whole here is told by itself to peers that offer it; reports are
 * for activation and for sites behind us. */
TB_MUST_USE enum tb_status tb_links_tell(struct tb_links *links, uint32_t peer,
                                         const struct tb_links_report *report);
/* A statement that came, or was made, after its version or run was told. It goes to every peer that
 * is up, knows the frame and asked for the model. */
void tb_links_tell_statement(struct tb_links *links, const struct tb_name *model, const struct tb_span *said);

/* Which run of the model does that peer remember? on_run_told answers, once for each session; a
 * session that ends first leaves it unanswered. TB_PEER_UNREACHABLE: it is not up.
 * TB_PEER_PROTOCOL: it is, and speaks a protocol without the question. */
TB_MUST_USE enum tb_status tb_links_runs_ask(struct tb_links *links, uint32_t peer,
                                             const struct tb_name *model);
/* Likewise; the same statuses. */
TB_MUST_USE enum tb_status tb_links_run_tell(struct tb_links *links, uint32_t peer,
                                             const struct tb_links_run *run);
/* Tells that peer which versions of a model this site holds, or a site behind it (hops > 0). The
 * caller says it when it changes, at most once a second, and when a session begins.
 * TB_PEER_UNREACHABLE: the link is down. TB_PEER_PROTOCOL: the peer does not know the message.
 * TB_PEER_DENIED: the model does not concern that peer. */
TB_MUST_USE enum tb_status tb_links_tell_state(struct tb_links *links, uint32_t peer,
                                               const struct tb_site_state *state);

#endif
