/* stream_life.h - the steps of a stream's life: its phase, closing, the end. */
#ifndef TB_WAN_STREAM_LIFE_H
#define TB_WAN_STREAM_LIFE_H

#include "wan/stream/stream.h"

enum tb_stream_phase tb_stream_phase(const struct tb_stream *s);
/* On the loop. */
void tb_stream_close(struct tb_stream *s, enum tb_status why);
bool tb_stream_is_closing(const struct tb_stream *s); /* or gone */
/* A step of the table; the phase follows it. False: that event cannot come. GONE: the stream is the
 * main loop's, which may have freed it. */
TB_MUST_USE bool tb_stream_step(struct tb_stream *s, enum tb_stream_event event);
/* Main loop. It never got to a loop, and is gone. */
void tb_stream_lost(struct tb_stream *s, enum tb_status why);
void tb_stream_moved(struct tb_stream *s, tb_time_ns *at_out); /* bytes went one way */

#endif
