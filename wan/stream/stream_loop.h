/* stream_loop.h - the loops on which streams live, each with a thread of its own. Internal to
 * wan. */
#ifndef TB_WAN_STREAM_LOOP_H
#define TB_WAN_STREAM_LOOP_H

#include "base/codec/codec.h"
#include "wan/stream/stream.h"
#include "wan/stream/stream_copy.h"

/* Loops. `wake` is the main loop's async: sent when a phase changed, parcels were taken,
 * or notes were written. */
TB_MUST_USE enum tb_status tb_stream_loop_new(uv_async_t *wake, struct tb_stream_loop **loop_out);
void tb_stream_loop_add(struct tb_stream_loop *l, struct tb_stream *s);
void tb_stream_loop_copy(struct tb_stream_loop *l, struct tb_stream_copy *copy); /* takes it */
void tb_stream_loop_wake(struct tb_stream_loop *l);
void tb_stream_loop_feed(struct tb_stream_loop *l); /* wakes it if one of its streams found nothing to send */
void tb_stream_loop_free(struct tb_stream_loop *l); /* every stream is GONE; joins the thread */

/* On the loop. */
void tb_stream_loop_tell(struct tb_stream_loop *l); /* the main loop */
struct tb_codec *tb_stream_loop_codec(struct tb_stream_loop *l);
uint8_t *tb_stream_loop_scratch(struct tb_stream_loop *l, size_t *cap_out);
atomic_bool *tb_stream_loop_hungry(struct tb_stream_loop *l);
uv_loop_t *tb_stream_loop_uv(struct tb_stream_loop *l);
/* Looks at its streams again at that time: one has something to send that may not go before. */
void tb_stream_loop_wait(struct tb_stream_loop *l, tb_time_ns at);
/* On the loop, before it says GONE. */
void tb_stream_loop_leave(struct tb_stream_loop *l, struct tb_stream *s);

#endif
