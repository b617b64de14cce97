/* link_expected.h - versions that go before they are asked for. */
#ifndef TB_WAN_LINK_EXPECTED_H
#define TB_WAN_LINK_EXPECTED_H

#include "wan/link/links.h"

struct link;
struct offer;
struct tb_wire_frame;

enum tb_status link_on_expect(struct link *l, struct tb_wire_frame *f);
bool link_push(struct link *l, struct offer *o); /* before VERSION; true: its manifests are to follow that */

#endif
