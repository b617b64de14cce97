/* stream_loop_inside.h - a loop of streams. Private to stream_loop.c and stream_thread.c. */
#ifndef TB_WAN_STREAM_LOOP_INSIDE_H
#define TB_WAN_STREAM_LOOP_INSIDE_H

#include "base/codec/codec.h"
#include "wan/stream/stream_loop.h"

#define TB_STREAM_SCRATCH_BYTES (64u << 10)

struct tb_stream_loop {
    uv_thread_t thread;
    uv_loop_t loop;
    uv_async_t wake;
    uv_timer_t tick;
    uv_timer_t due; /* of the first stream that waits for its link's cap */
    void (*on_due)(uv_timer_t *due);
    tb_time_ns due_at; /* TB_TIME_NEVER: nobody waits */
    uv_async_t *main_wake;
    uv_mutex_t lock;
    struct tb_stream *added;           /* under the lock */
    struct tb_stream_copy *copy_added; /* likewise */
    struct tb_stream *streams;
    struct tb_stream_copy *copies;
    struct tb_codec *codec;
    atomic_bool hungry;
    atomic_bool quit;
    uint8_t scratch[TB_STREAM_SCRATCH_BYTES]; /* what is read to be dropped */
};

#endif
