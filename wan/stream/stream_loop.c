/* stream_loop.c - what streams ask of the loop on which they live, and what the main loop hands to
 * it. */
#include "base/assert.h"
#include "base/clock.h"
#include "wan/stream/stream_loop_inside.h"

void tb_stream_loop_tell(struct tb_stream_loop *l)
{
    uv_async_send(l->main_wake);
}

struct tb_codec *tb_stream_loop_codec(struct tb_stream_loop *l)
{
    return l->codec;
}

uint8_t *tb_stream_loop_scratch(struct tb_stream_loop *l, size_t *cap_out)
{
    *cap_out = sizeof l->scratch;
    return l->scratch;
}

atomic_bool *tb_stream_loop_hungry(struct tb_stream_loop *l)
{
    return &l->hungry;
}

uv_loop_t *tb_stream_loop_uv(struct tb_stream_loop *l)
{
    return &l->loop;
}

void tb_stream_loop_wait(struct tb_stream_loop *l, tb_time_ns at)
{
    if (at >= l->due_at) return;
    const tb_time_ns now = tb_clock_now();
    l->due_at = at;
    uv_update_time(&l->loop);
    uv_timer_start(&l->due, l->on_due, (tb_time_since(now, at) + TB_MS(1) - 1) / TB_MS(1), 0);
}

/* Streams that are gone belong to the main loop, which may have freed them by the next turn: they
 * leave the list in the turn in which they went, before the main loop can look. */
void tb_stream_loop_leave(struct tb_stream_loop *l, struct tb_stream *s)
{
    struct tb_stream **at = &l->streams;
    while (*at != s) {
        TB_ASSERT(*at != NULL); /* it lives on this loop */
        at = &(*at)->next;
    }
    *at = s->next;
}

void tb_stream_loop_add(struct tb_stream_loop *l, struct tb_stream *s)
{
    TB_ASSERT(s->loop == NULL); /* a stream lives on one loop */
    s->loop = l;
    uv_mutex_lock(&l->lock);
    s->next = l->added;
    l->added = s;
    uv_mutex_unlock(&l->lock);
    uv_async_send(&l->wake);
}

void tb_stream_loop_copy(struct tb_stream_loop *l, struct tb_stream_copy *copy)
{
    TB_ASSERT(copy->share != NULL && copy->base != NULL && copy->crossing != 0);
    uv_mutex_lock(&l->lock);
    copy->next = l->copy_added;
    l->copy_added = copy;
    uv_mutex_unlock(&l->lock);
    uv_async_send(&l->wake);
}

void tb_stream_loop_wake(struct tb_stream_loop *l)
{
    uv_async_send(&l->wake);
}

void tb_stream_loop_feed(struct tb_stream_loop *l)
{
    if (atomic_exchange_explicit(&l->hungry, false, memory_order_relaxed)) uv_async_send(&l->wake);
}
