/* budget.c - a sum and three thresholds. Pure. */
#include "wan/send/budget.h"

#include "base/assert.h"

#define AHEAD 256u /* what is written down is ahead by this part of the budget */

const char *tb_budget_state_name(enum tb_budget_state state)
{
    TB_ASSERT(state <= TB_BUDGET_HELD);
    static const char *const names[] = {"none", "ok", "warned", "held"};
    return names[state];
}

void tb_budget_restore(struct tb_budget *b, uint64_t day, uint64_t bytes, uint64_t today)
{
    b->day = today;
    b->used_bytes = b->saved_bytes = 0;
    if (day != today && day != today + 1) return;
    b->day = day;
    b->used_bytes = b->saved_bytes = bytes;
    TB_ASSERT(b->day <= today + 1); /* a day behind tomorrow counts for nothing */
    TB_ASSERT(b->saved_bytes == b->used_bytes);
}

void tb_budget_count(struct tb_budget *b, uint64_t today, uint64_t bytes)
{
    if (today > b->day) {
        b->day = today;
        b->used_bytes = b->saved_bytes = 0;
    } else if (b->day > today + 1) {
        /* The bytes counted for that day may have been sent today. They are written down anew. */
        b->day = today;
        b->saved_bytes = 0;
    }
    b->used_bytes += bytes;
    TB_ASSERT(b->day <= today + 1);
    TB_ASSERT(b->used_bytes >= bytes);
}

enum tb_budget_state tb_budget_state(const struct tb_budget *b)
{
    if (b->day_bytes == 0) return TB_BUDGET_NONE;
    if (tb_budget_left(b) == 0 || tb_budget_left(b) < b->short_bytes) return TB_BUDGET_HELD;
    return b->used_bytes >= b->day_bytes - b->day_bytes / 5 ? TB_BUDGET_WARNED : TB_BUDGET_OK;
}

uint64_t tb_budget_left(const struct tb_budget *b)
{
    if (b->day_bytes == 0) return UINT64_MAX;
    return b->used_bytes < b->day_bytes ? b->day_bytes - b->used_bytes : 0;
}

bool tb_budget_save(struct tb_budget *b, uint64_t *bytes_out)
{
    const bool held = tb_budget_state(b) == TB_BUDGET_HELD;
    if (b->day_bytes == 0 || b->used_bytes == 0) return false;
    if (b->used_bytes <= b->saved_bytes && !(held && b->saved_bytes < b->day_bytes)) return false;
    uint64_t bytes = b->used_bytes + b->day_bytes / AHEAD;
    /* Ahead up to the hold and no farther: the rest is what was really sent. A hold outlives a
     * kill, also one for want of little. */
    if (held || bytes > b->day_bytes) bytes = b->used_bytes > b->day_bytes ? b->used_bytes : b->day_bytes;
    b->saved_bytes = *bytes_out = bytes;
    TB_ASSERT(b->saved_bytes >= b->used_bytes); /* a kill sends no more than the budget */
    return true;
}
