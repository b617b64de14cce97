/* link_expected.h - versions that go before they are asked for. */
#ifndef TB_WAN_LINK_EXPECTED_H
#define TB_WAN_LINK_EXPECTED_H

#include "wan/link/links.h"

struct tb_link;
struct tb_offer;
struct tb_wire_frame;

enum tb_status tb_link_on_expect(struct tb_link *l, struct tb_wire_frame *f);
/* before VERSION; true: its manifests are to follow that */
bool tb_link_push(struct tb_link *l, struct tb_offer *o);

#endif
