/* stream_numbers.h - what the streams of a link sent and carry, added up for views. */
#ifndef TB_WAN_STREAM_NUMBERS_H
#define TB_WAN_STREAM_NUMBERS_H

#include <stdint.h>

struct tb_link;
struct tb_links_stats;
struct tb_stream;

void tb_link_stream_add_stats(struct tb_links_stats *to, const struct tb_stream *s);
uint64_t tb_link_sent_bytes(const struct tb_link *l); /* of chunk frames, on all streams since ever */
void tb_link_stream_stats(const struct tb_link *l, struct tb_links_stats *stats);

#endif
