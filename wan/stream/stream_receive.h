/* stream_receive.h - the receiving half of a stream. On the stream's loop. */
#ifndef TB_WAN_STREAM_RECEIVE_H
#define TB_WAN_STREAM_RECEIVE_H

#include <stdbool.h>
#include <stdint.h>

struct tb_stream;

/* Reads at most `budget` bytes, and for one turn; false when there was no more, or the stream
 * closed. */
bool tb_stream_receive_more(struct tb_stream *s, uint64_t budget);
void tb_stream_receive_heed(struct tb_stream *s);
void tb_stream_receive_fini(struct tb_stream *s);
bool tb_stream_receiving(const struct tb_stream *s); /* in the middle of a frame */

#endif
