#include "intra/verbs/poll_spin.h"

#include "base/assert.h"

void tb_spin_init(struct tb_spin *s)
{
    *s = (struct tb_spin){.gap = TB_TIME_NEVER};
}

/* A quarter of what is new, and no pause counts for more than it takes to stop: so one slow
 * completion ends the spinning, and five quick ones begin it again. */
static void note_gap(struct tb_spin *s, uint32_t count, tb_time_ns now)
{
    TB_ASSERT(count > 0);
    const tb_time_ns gap = tb_time_min(tb_time_since(s->last_at, now) / count, 5 * TB_SPIN_GAP);
    if (s->last_at != 0) s->gap = s->gap == TB_TIME_NEVER ? gap : s->gap - s->gap / 4 + gap / 4;
    s->last_at = now;
}

bool tb_spin_again(struct tb_spin *s, uint32_t count, uint32_t posted, tb_time_ns now)
{
    if (count > 0) note_gap(s, count, now);
    if (posted == 0) {
        s->last_at = 0; /* what follows a rest says nothing of the gap */
        return false;
    }
    if (s->gap > TB_SPIN_GAP) return false;
    return tb_time_since(s->last_at, now) <= 2 * TB_SPIN_GAP;
}
