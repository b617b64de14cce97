/* link_signed.h - statements that a home signed, on their way from gateway to gateway. */
#ifndef TB_WAN_LINK_SIGNED_H
#define TB_WAN_LINK_SIGNED_H

#include "wan/link/links.h"

struct tb_link;
struct tb_wire_frame;

/* Sends the statement to the peer, where there is one and the peer knows the frame. */
void tb_link_say(struct tb_link *l, enum tb_statement_kind kind, const struct tb_name *model,
                 const struct tb_id *id);
/* Those of the publishers of a version's shards. */
void tb_link_say_shards(struct tb_link *l, const struct tb_version_key *key);
/* The withdrawal, behind its statement. */
void tb_link_tell_withdrawn(struct tb_link *l, const struct tb_version_key *key);
enum tb_status tb_link_on_statement(struct tb_link *l, struct tb_wire_frame *f);

#endif
