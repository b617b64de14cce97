/* link_up.h - a session begins, and ends. */
#ifndef TB_WAN_LINK_UP_H
#define TB_WAN_LINK_UP_H

#include "wan/frame/frame.h"
#include "wan/link/links.h"

struct conn;
struct link;

/* The link is down, and the daemon is told. */
void tb_link_be_down(struct link *l, enum tb_status why);
void tb_link_session_end(struct link *l, enum tb_status why);
/* The peer went on over another attempt of ours, of which nothing was heard yet. */
void tb_link_session_limbo(struct link *l);
/* Ends the session; with BYE where it can still be sent. It is dialled again. */
void tb_link_drop(struct link *l, enum tb_status why);
void tb_link_session_begin(struct conn *c, const struct tb_frame_hello *hello, const struct tb_id *id,
                           uint32_t protocol);

#endif
