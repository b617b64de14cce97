/* link_session_life.h - a session begins, and ends. */
#ifndef TB_WAN_LINK_SESSION_LIFE_H
#define TB_WAN_LINK_SESSION_LIFE_H

#include "wan/frame/frame.h"
#include "wan/link/links.h"

struct tb_link_conn;
struct tb_link;

/* The link is down, and the daemon is told. */
void tb_link_be_down(struct tb_link *l, enum tb_status why);
/* Down now, if it waits for its peer to come back (limbo). */
void tb_link_limbo_end(struct tb_link *l, enum tb_status why);
void tb_link_session_end(struct tb_link *l, enum tb_status why);
/* The peer went on over another attempt of ours, of which nothing was heard yet. */
void tb_link_session_limbo(struct tb_link *l);
/* Ends the session; with BYE where it can still be sent. It is dialled again. */
void tb_link_drop(struct tb_link *l, enum tb_status why);
void tb_link_session_begin(struct tb_link_conn *c, const struct tb_frame_hello *hello, const struct tb_id *id,
                           uint32_t protocol);

#endif
