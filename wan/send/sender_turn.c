/* sender_turn.c - when something came last, and who sent last. Pure. */
#include "wan/send/sender_turn.h"

#include "base/assert.h"

void tb_turn_begin(struct tb_turn *t, tb_time_ns now)
{
    t->begun_at = t->moved_at = now;
}

void tb_turn_came(struct tb_turn *t, uint64_t came, tb_time_ns now)
{
    if (t->came == came) return;
    t->came = came;
    t->moved_at = now;
}

bool tb_turn_over(const struct tb_turn *t, tb_time_ns rtt, tb_time_ns now)
{
    TB_ASSERT(t->begun_at != 0); /* it sends */
    return tb_time_since(t->moved_at, now) >= TB_TURN_PATIENCE + 2 * rtt;
}

bool tb_turn_before(const struct tb_turn *a, const struct tb_turn *b)
{
    return a->begun_at < b->begun_at;
}
