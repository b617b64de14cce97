/* segment_attempt.h - the segment size of the next attempt. */
#ifndef TB_WAN_SEGMENT_ATTEMPT_H
#define TB_WAN_SEGMENT_ATTEMPT_H

#include "wan/link/links.h"

struct conn;
struct link;

uint32_t tb_link_segment_to_try(const struct link *l); /* of the next dial */
void tb_link_segment_won(const struct conn *won);

#endif
