/* link_push.h - versions that come before they are asked for. */
#ifndef TB_WAN_LINK_PUSH_H
#define TB_WAN_LINK_PUSH_H

#include "wan/link/links.h"

struct tb_link_in;
struct tb_link;
struct tb_offer;
struct tb_wire_frame;

void tb_link_expect(struct tb_link *l,
                    const struct tb_offer *o); /* it is whole here, and the peer was told so */
void tb_link_expect_paused(struct tb_link *l); /* none of a model that is paused is expected */
enum tb_status tb_link_on_push(struct tb_link *l, struct tb_wire_frame *f);
/* A landing begins, on in->base: as which crossing that the peer began already; 0: it is to be
 * asked. */
uint32_t tb_link_push_take(struct tb_link *l, const struct tb_link_in *in);
void tb_link_pushes_tick(struct tb_link *l, tb_time_ns now);
void tb_link_push_gone(struct tb_link *l, const struct tb_id *uid);
void tb_link_push_unwanted(struct tb_link *l, const struct tb_id *uid);
void tb_link_push_too_much(struct tb_link *l,
                           const struct tb_id *uid); /* there is no room for its manifests */

#endif
