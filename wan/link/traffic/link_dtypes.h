/* link_dtypes.h - layouts that a peer's protocol cannot read. */
#ifndef TB_WAN_LINK_DTYPES_H
#define TB_WAN_LINK_DTYPES_H

#include "wan/link/links.h"

struct tb_link;
struct tb_offer;

/* The session's protocol can say every layout of the version. */
bool tb_link_may_read(const struct tb_link *l, const struct tb_offer *o);
/* It cannot: GONE, a counter, and a line in the log for each model of a session. */
void tb_link_refuse_dtypes(struct tb_link *l, const struct tb_offer *o);

#endif
