/* dial_race.c - one counter and one time. Pure. */
#include "base/dial_race.h"

#include "base/assert.h"

void tb_race_begin(struct tb_race *r, uint32_t count, tb_time_ns now)
{
    TB_ASSERT(count > 0);
    *r = (struct tb_race){.on = true, .count = count, .next_at = now};
}

uint32_t tb_race_due(struct tb_race *r, tb_time_ns now)
{
    TB_ASSERT(r->open <= r->next && r->next <= r->count);
    if (!r->on || r->next == r->count || now < r->next_at) return TB_RACE_NONE;
    r->next_at = tb_time_add(now, TB_RACE_DELAY);
    r->open++;
    return r->next++;
}

bool tb_race_failed(struct tb_race *r, tb_time_ns now)
{
    TB_ASSERT(r->open <= r->next && r->next <= r->count);
    if (!r->on) return false;
    if (r->open > 0) r->open--;
    r->next_at = now;
    if (r->open > 0 || r->next < r->count) return false;
    r->on = false;
    return true;
}

void tb_race_won(struct tb_race *r)
{
    TB_ASSERT(r->next > 0 && r->next <= r->count); /* one of them was dialled */
    r->open = 1;
    r->next_at = TB_TIME_NEVER;
}

void tb_race_end(struct tb_race *r)
{
    r->on = false;
}
