/* link_opening.h - links are opened, and opened anew under a new life of the arena. */
#ifndef TB_DAEMON_LINK_OPENING_H
#define TB_DAEMON_LINK_OPENING_H

#include <stdint.h>

#include "tombolo/status.h"

struct tb_config;
struct tb_daemon;

TB_MUST_USE enum tb_status tb_crossings_open(struct tb_daemon *d); /* links; offers what is held */
/* A reload, in this order. Links to the peers that `next` has and the configuration has not; not
 * TB_OK: there is none of them. */
TB_MUST_USE enum tb_status tb_peers_come(struct tb_daemon *d, const struct tb_config *next);
/* It is a peer still. */
void tb_peer_leaves(struct tb_daemon *d, uint32_t peer);
/* After that: addresses, wanted models, rights and limits of the peers that were there before. */
void tb_link_opening_changed(struct tb_daemon *d, const struct tb_config *was);
/* Models of patterns came or went: peers are asked for those that there are. */
void tb_link_opening_wanted(struct tb_daemon *d);
/* The arena's life is a new one: links begin anew, so that peers hear of it. Where memory fails
 * chunk by chunk, once a second, as what is fetched again comes over them. */
void tb_crossings_life_tell(struct tb_daemon *d);
/* Is ours from now on. Sessions that are there go on: P6, the word of one peer is no end of the
 * others' links. */
void tb_crossings_incarnation(struct tb_daemon *d, uint64_t incarnation);

#endif
