/* rate_cap.c - one time that moves on by what is taken. Pure. */
#include "wan/send/rate_cap.h"

#include "base/assert.h"

#define RECORD_BYTES 16384u
#define RECORD_EXTRA 22u /* header, type and tag of TLS 1.3 */

uint64_t tb_cap_wire_bytes(const struct tb_cap_price *p, uint32_t bytes)
{
    TB_ASSERT(p->segment_bytes > 0);
    const uint64_t records = (bytes + (uint64_t)RECORD_BYTES - 1) / RECORD_BYTES;
    const uint64_t stream = bytes + records * RECORD_EXTRA;
    return stream + (stream + p->segment_bytes - 1) / p->segment_bytes * p->header_bytes;
}

static tb_time_ns lasts(const struct tb_cap *c, uint64_t bytes)
{
    TB_ASSERT(c->bytes_per_s > 0);
    return (tb_time_ns)((double)bytes * 1e9 / (double)c->bytes_per_s);
}

/* Time that was not used is lost, but for the burst. */
static void catch_up(struct tb_cap *c, tb_time_ns now)
{
    const tb_time_ns floor = now > TB_CAP_BURST ? now - TB_CAP_BURST : 0;
    if (c->next_at < floor) c->next_at = floor;
}

void tb_cap_set(struct tb_cap *c, uint64_t bytes_per_s, tb_time_ns now)
{
    /* Pieces that a lower rate had put off do not wait at a higher one. */
    if (c->next_at > now && bytes_per_s > c->bytes_per_s) c->next_at = now;
    if (c->bytes_per_s == 0) c->next_at = now;
    c->bytes_per_s = bytes_per_s;
}

uint32_t tb_cap_piece(const struct tb_cap *c)
{
    if (c->bytes_per_s == 0) return UINT32_MAX;
    const uint64_t bytes = c->bytes_per_s / (TB_SECONDS(1) / TB_CAP_PIECE);
    if (bytes > TB_CAP_PIECE_BYTES) return TB_CAP_PIECE_BYTES;
    return bytes > TB_CAP_PIECE_BYTES_MIN ? (uint32_t)bytes : TB_CAP_PIECE_BYTES_MIN;
}

tb_time_ns tb_cap_reserve(struct tb_cap *c, uint64_t bytes, tb_time_ns now)
{
    if (c->bytes_per_s == 0) return now;
    catch_up(c, now);
    const tb_time_ns at = c->next_at;
    c->next_at = tb_time_add(at, lasts(c, bytes));
    TB_ASSERT(c->next_at >= at);
    return at;
}

void tb_cap_charge(struct tb_cap *c, uint64_t bytes, tb_time_ns now)
{
    (void)tb_cap_reserve(c, bytes, now);
}
