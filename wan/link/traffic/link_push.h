/* link_push.h - versions that come before they are asked for. */
#ifndef TB_WAN_LINK_PUSH_H
#define TB_WAN_LINK_PUSH_H

#include "wan/link/links.h"

struct in;
struct link;
struct offer;
struct tb_wire_frame;

void tb_link_expect(struct link *l, const struct offer *o); /* it is whole here, and the peer was told so */
enum tb_status tb_link_on_push(struct link *l, struct tb_wire_frame *f);
/* A landing begins, on in->base: as which crossing that the peer began already; 0: it is to be
 * asked. */
uint32_t tb_link_push_take(struct link *l, const struct in *in);
void tb_link_pushes_tick(struct link *l, tb_time_ns now);
void tb_link_push_gone(struct link *l, const struct tb_id *uid);
void tb_link_push_too_much(struct link *l, const struct tb_id *uid); /* there is no room for its manifests */

#endif
