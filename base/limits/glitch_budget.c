/* glitch_budget.c - glitches of a minute, and how long an identity is shut out. */
#include "base/limits/glitch_budget.h"

#include <string.h>

#include "base/assert.h"

/* A row that shuts an identity out, or remembers for how long it was, does not give way. */
static bool is_shut(const void *row, tb_time_ns now)
{
    const struct tb_glitch_row *r = row;
    return r->shut_until != 0 && now < tb_time_add(r->shut_until, TB_GLITCH_LAST);
}

tb_time_ns tb_glitch_shut(struct tb_glitch_budget *b, uint64_t identity, tb_time_ns now)
{
    const struct tb_glitch_row *r = tb_keyed_find(b->rows, TB_GLITCH_ROWS, sizeof *r, identity);
    return r == NULL || now >= r->shut_until ? 0 : r->shut_until - now;
}

static void shut_out(struct tb_glitch_row *r, tb_time_ns now)
{
    const bool again = is_shut(r, now);
    r->shut_for = again ? 2 * r->shut_for : TB_GLITCH_FIRST;
    if (r->shut_for > TB_GLITCH_LAST) r->shut_for = TB_GLITCH_LAST;
    TB_ASSERT(r->shut_for >= TB_GLITCH_FIRST);
    r->shut_until = tb_time_add(now, r->shut_for);
    memset(r->count, 0, sizeof r->count);
}

bool tb_glitch_note(struct tb_glitch_budget *b, uint64_t identity, enum tb_glitch_kind kind, tb_time_ns now)
{
    TB_ASSERT((unsigned)kind < TB_GLITCH_KINDS && b->most[kind] > 0);
    struct tb_glitch_row *r = tb_keyed_get(b->rows, TB_GLITCH_ROWS, sizeof *r, identity, now, is_shut);
    if (r == NULL) return false; /* its eight places shut others out */
    if (now < r->shut_until) return false;
    if (r->minute_at == 0 || tb_time_since(r->minute_at, now) >= TB_GLITCH_MINUTE) {
        r->minute_at = now;
        memset(r->count, 0, sizeof r->count);
    }
    if (++r->count[kind] < b->most[kind]) return false;
    shut_out(r, now);
    b->shut++;
    return true;
}
