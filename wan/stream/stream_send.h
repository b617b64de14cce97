/* stream_send.h - the sending half of a stream. On the loop of the stream; internal to wan. */
#ifndef TB_WAN_STREAM_SEND_H
#define TB_WAN_STREAM_SEND_H

#include "wan/stream/stream.h"

/* Writes until it is full, nothing is there, or the turn is over. */
void tb_stream_send_more(struct tb_stream *s);
void tb_stream_send_control(struct tb_stream *s, enum tb_frame_type type);
void tb_stream_send_heed(struct tb_stream *s); /* revoked places: lets go of them, or closes in mid-chunk */
void tb_stream_send_due(struct tb_stream *s, tb_time_ns now); /* a piece that waited for the cap */
void tb_stream_send_fini(struct tb_stream *s);
bool tb_stream_sending(const struct tb_stream *s);
/* The times for which it wanted to send, and for which a limit held it; `time` since it was asked
 * last. */
struct tb_tcp_writer tb_stream_send_seen(struct tb_stream *s, tb_time_ns now, tb_time_ns time);
/* stream_busy_time.c: what the connection carried is told to the feed, now and then. */
void tb_stream_busy(struct tb_stream *s, tb_time_ns now);

#endif
