/* segment_attempt.h - the segment size of the next attempt. */
#ifndef TB_WAN_SEGMENT_ATTEMPT_H
#define TB_WAN_SEGMENT_ATTEMPT_H

#include "wan/link/links.h"

struct tb_link_conn;
struct tb_link;

uint32_t tb_link_segment_to_try(const struct tb_link *l); /* of the next dial */
void tb_link_segment_won(const struct tb_link_conn *won);
/* The dial ends, and was not greeted. It counts for the attempts behind it if it stalled. */
void tb_link_segment_lost(const struct tb_link_conn *lost, enum tb_status why);

#endif
