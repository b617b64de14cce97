/* link_send.h - what the peer says of its crossings, and parcels into the feed. */
#ifndef TB_WAN_LINK_SEND_H
#define TB_WAN_LINK_SEND_H

#include "wan/link/links.h"
#include "wan/send/feed.h"

struct link;
struct tb_wire_frame;

enum tb_status tb_link_on_want(struct link *l, struct tb_wire_frame *f);
enum tb_status tb_link_on_base(struct link *l, struct tb_wire_frame *f);
enum tb_status tb_link_on_held(struct link *l, struct tb_wire_frame *f);
void tb_link_take_taken(struct link *l); /* parcels that streams took */
enum tb_status tb_link_on_start(struct link *l, struct tb_wire_frame *f);
enum tb_status tb_link_on_stop(struct link *l, struct tb_wire_frame *f);
enum tb_status tb_link_on_refused(struct link *l, struct tb_wire_frame *f);
void tb_link_out_unsent(struct link *l, const struct tb_note *n);
void tb_link_out_stream_gone(struct link *l, uint32_t slot);
bool tb_link_refill(struct link *l, tb_time_ns now); /* the feed; true: streams may find something */
/* nothing that we put on it is still on its way */
bool tb_link_slot_idle(const struct link *l, uint32_t slot);
enum tb_status tb_link_on_take(struct link *l, struct tb_wire_frame *f);
void tb_link_outs_have(struct link *l, tb_time_ns now);

#endif
