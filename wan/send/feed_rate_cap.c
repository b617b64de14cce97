/* feed_rate_cap.c - the bytes per second that all streams of a link send together. */
#include "base/assert.h"
#include "base/clock.h"
#include "wan/send/feed_inside.h"

void tb_feed_cap(struct tb_feed *f, uint64_t bytes_per_s)
{
    uv_mutex_lock(&f->lock);
    if (f->cap.bytes_per_s != bytes_per_s) tb_cap_set(&f->cap, bytes_per_s, tb_clock_now());
    tb_feed_choice_cap_locked(f, bytes_per_s);
    atomic_store_explicit(&f->capped, bytes_per_s != 0, memory_order_relaxed);
    uv_mutex_unlock(&f->lock);
}

bool tb_feed_capped(const struct tb_feed *f)
{
    return atomic_load_explicit(&f->capped, memory_order_relaxed);
}

uint32_t tb_feed_piece(struct tb_feed *f, uint32_t want, const struct tb_cap_price *price, tb_time_ns *at_out)
{
    TB_ASSERT(want > 0);
    uv_mutex_lock(&f->lock);
    const uint32_t most = tb_cap_piece(&f->cap);
    const uint32_t bytes = want < most ? want : most;
    *at_out = tb_cap_reserve(&f->cap, tb_cap_wire_bytes(price, bytes), tb_clock_now());
    uv_mutex_unlock(&f->lock);
    TB_ASSERT(bytes > 0 && bytes <= want);
    return bytes;
}

void tb_feed_charge(struct tb_feed *f, uint64_t bytes)
{
    uv_mutex_lock(&f->lock);
    tb_cap_charge(&f->cap, bytes, tb_clock_now());
    uv_mutex_unlock(&f->lock);
}
