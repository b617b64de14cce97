/* feed_day_budget.c - a day's bytes: no frame begins that would go over them. */
#include "base/assert.h"
#include "wan/send/feed_inside.h"

static bool fits(const struct tb_feed *f, uint64_t bytes)
{
    return f->until_bytes == UINT64_MAX ||
           (f->begun_bytes < f->until_bytes && bytes <= f->until_bytes - f->begun_bytes);
}

void tb_feed_until(struct tb_feed *f, uint64_t bytes)
{
    uv_mutex_lock(&f->lock);
    f->until_bytes = bytes;
    if (fits(f, f->short_bytes)) f->short_bytes = 0;
    uv_mutex_unlock(&f->lock);
}

bool tb_feed_spend(struct tb_feed *f, uint64_t bytes)
{
    TB_ASSERT(bytes > 0);
    uv_mutex_lock(&f->lock);
    const bool begins = fits(f, bytes);
    if (begins)
        f->begun_bytes += bytes;
    else if (f->short_bytes == 0 || bytes < f->short_bytes)
        f->short_bytes = bytes;
    uv_mutex_unlock(&f->lock);
    return begins;
}

void tb_feed_unspend(struct tb_feed *f, uint64_t bytes)
{
    uv_mutex_lock(&f->lock);
    TB_ASSERT(bytes <= f->begun_bytes); /* it was begun */
    f->begun_bytes -= bytes;
    if (fits(f, f->short_bytes)) f->short_bytes = 0;
    uv_mutex_unlock(&f->lock);
}

bool tb_feed_spent(struct tb_feed *f, uint64_t *short_bytes_out)
{
    uv_mutex_lock(&f->lock);
    const bool spent = f->short_bytes != 0 || !fits(f, 1);
    if (short_bytes_out != NULL) *short_bytes_out = f->short_bytes;
    uv_mutex_unlock(&f->lock);
    return spent;
}

void tb_feed_limits_check_locked(const struct tb_feed *f)
{
    TB_ASSERT(f->capped == (f->cap.bytes_per_s != 0));
    TB_ASSERT(f->short_bytes == 0 || !fits(f, f->short_bytes)); /* else the frame would not wait */
}
