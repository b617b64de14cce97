/* crossings.h - what is asked of the links: a version from the sites that have it, and what this
 * site offers. */
#ifndef TB_DAEMON_CROSSINGS_H
#define TB_DAEMON_CROSSINGS_H

#include "gateway/catalog/todos.h"

struct tb_copy;
struct tb_daemon;

/* Chunks that streams of that peer bring land in the copy. tb_crossing_land_all asks every source
 * that is up, at once: the links divide the chunks among them. */
void tb_crossing_land(struct tb_copy *copy, uint32_t peer);
void tb_crossing_land_all(struct tb_copy *copy);
void tb_crossing_proven(struct tb_copy *copy); /* relays may bring its chunks from now on */
/* The peer announced it. Begun before, by this process or the one before it: what is held stays,
 * and the peer brings the rest. */
void tb_crossing_go_on(struct tb_copy *copy, uint32_t peer);
/* It was not to be had; it is tried again. */
void tb_crossing_refused(struct tb_copy *copy, enum tb_status why);
/* To ask again would bring the same, in this life. */
void tb_crossing_hopeless(struct tb_copy *copy);
/* Streams land no more of it; held chunks stay. It is asked for again when it may be. */
void tb_crossing_pause(struct tb_copy *copy);
void tb_crossing_start(struct tb_daemon *d, const struct tb_catalog_todo *todo);
void tb_crossing_retry(struct tb_copy *copy); /* after something was evicted */
void tb_crossing_offer(struct tb_copy *copy);

#endif
