/* links_peers.h - peers, their models and their rights change while the links are open. No call
 * ends a stream of another peer.
 *
 * Threads: as links.h. A peer that is added gets the next index, tb_links_peer_count before it. One
 * that is removed keeps its index, as a row of no peer. */
#ifndef TB_WAN_LINKS_PEERS_H
#define TB_WAN_LINKS_PEERS_H

#include "wan/link/links.h"

uint32_t tb_links_peer_count(const struct tb_links *links);
/* Dialling begins at once. As tb_links_new of one peer; TB_TOO_LARGE: TB_LINKS_PEERS_SPARE were
 * added. */
TB_MUST_USE enum tb_status tb_links_peer_add(struct tb_links *ls, const struct tb_links_peer_options *peer,
                                             char error_out[256]);
/* The one that was added last, in this turn: nothing of it has begun. */
void tb_links_peer_undo(struct tb_links *ls);
/* Its session ends with BYE, as one that drains; it is dialled no more, and a stranger where it
 * dials. Its landings wait for other peers, or for tb_links_land_stop. */
void tb_links_peer_remove(struct tb_links *ls, uint32_t peer);
/* NULL: only the peer dials. A session that is up stays, over the address that it has. */
void tb_links_peer_address(struct tb_links *ls, uint32_t peer, const char *address);
/* Those that are wanted from now on. Versions of others that the peer announced stay announced in
 * this session. */
void tb_links_peer_models(struct tb_links *ls, uint32_t peer, const struct tb_name *models, uint32_t count);
/* `may_read` says something else now than it did before. A peer that asked for the model hears of
 * its versions; or it is refused, its crossings end, and its streams stay. */
void tb_links_right_changed(struct tb_links *ls, uint32_t peer, const struct tb_name *model, bool may);
/* As the options of the same names. */
void tb_links_admission(struct tb_links *ls, uint32_t handshakes_open, uint32_t handshakes_failed,
                        uint32_t garbled_frames);

#endif
