/* link_send.h - what the peer says of its crossings, and parcels into the feed. */
#ifndef TB_WAN_LINK_SEND_H
#define TB_WAN_LINK_SEND_H

#include "wan/link/links.h"
#include "wan/send/feed.h"

struct tb_link;
struct tb_wire_frame;

enum tb_status tb_link_on_want(struct tb_link *l, struct tb_wire_frame *f);
enum tb_status tb_link_on_base(struct tb_link *l, struct tb_wire_frame *f);
enum tb_status tb_link_on_held(struct tb_link *l, struct tb_wire_frame *f);
void tb_link_take_taken(struct tb_link *l); /* parcels that streams took */
enum tb_status tb_link_on_start(struct tb_link *l, struct tb_wire_frame *f);
enum tb_status tb_link_on_stop(struct tb_link *l, struct tb_wire_frame *f);
enum tb_status tb_link_on_refused(struct tb_link *l, struct tb_wire_frame *f);
void tb_link_out_unsent(struct tb_link *l, const struct tb_note *n);
void tb_link_out_stream_gone(struct tb_link *l, uint32_t slot);
bool tb_link_refill(struct tb_link *l, tb_time_ns now); /* the feed; true: streams may find something */
/* nothing that we put on it is still on its way */
bool tb_link_slot_idle(const struct tb_link *l, uint32_t slot);
enum tb_status tb_link_on_take(struct tb_link *l, struct tb_wire_frame *f);
/* A paused crossing of a peer that cannot know it gives its place to the peer's next one. */
void tb_link_outs_yield(struct tb_link *l);
void tb_link_outs_have(struct tb_link *l, tb_time_ns now);

#endif
