/* link_pause.h - what of a link is paused, by an operator here or there. */
#ifndef TB_WAN_LINK_PAUSE_H
#define TB_WAN_LINK_PAUSE_H

#include <stdbool.h>

#include "tombolo/status.h"

struct tb_link;
struct tb_name;
struct tb_wire_frame;

struct tb_link_pause {
    bool ours;   /* the link, by an operator here */
    bool told;   /* the peer heard so in this session */
    bool theirs; /* by the peer's word */
};

/* By an operator here: the link, or the model on every link. */
bool tb_link_is_paused(const struct tb_link *l, const struct tb_name *model);
/* By the peer's word: the link, or the model; no model (NULL): the link alone counts. */
bool tb_link_paused_there(const struct tb_link *l, const struct tb_name *model);
void tb_link_pause_up(struct tb_link *l); /* a session began */
void tb_link_pause_tell(struct tb_link *l);
/* To a peer that knows the word. No model (an empty name): the link. */
void tb_link_pause_say(struct tb_link *l, const struct tb_name *model, bool paused);
/* The peer was granted the model: it hears that it is paused. */
void tb_link_pause_granted(struct tb_link *l, const struct tb_name *model);
enum tb_status tb_link_on_paused(struct tb_link *l, struct tb_wire_frame *f);

#endif
