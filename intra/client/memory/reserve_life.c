/* reserve_life.c - the life of prepared memory as a table of states and events.
 *
 * The table is the whole truth. A pair that is not in it is a mistake of this library: no peer,
 * worker or file can cause one. tests/unit/client/reserve_life.c walks all pairs. */
#include "intra/client/memory/reserve_life.h"

#include <stdint.h>

#include "base/assert.h"

/* clang-format off */
#define RESERVE_ROWS(ROW)              \
    /*  in state  on event   then    */ \
    ROW(QUEUED,   TURN,      FILLING)  \
    ROW(QUEUED,   LEAVES,    DROPPED)  \
    ROW(FILLING,  GIVES_WAY, QUEUED)   \
    ROW(FILLING,  ENDS,      READY)    \
    ROW(FILLING,  FAILS,     REFUSED)  \
    ROW(FILLING,  LEAVES,    ENDING)   \
    ROW(READY,    LEAVES,    FREE)     \
    ROW(REFUSED,  LEAVES,    FREE)     \
    ROW(ENDING,   ENDS,      FREE)     \
    ROW(ENDING,   FAILS,     FREE)     \
    ROW(DROPPED,  TURN,      FREE)
/* clang-format on */

enum tb_reserve_life tb_reserve_after(enum tb_reserve_life life, enum tb_reserve_event event)
{
    /* The next state plus one; 0: there is no such row. */
    static const uint8_t table[TB_RESERVE_LIVES][TB_RESERVE_EVENTS] = {
#define ROW(in, on, then) [TB_RESERVE_##in][TB_RESERVE_##on] = TB_RESERVE_##then + 1,
        RESERVE_ROWS(ROW)
#undef ROW
    };
    TB_ASSERT(life < TB_RESERVE_LIVES && event < TB_RESERVE_EVENTS);
    const uint8_t next = table[life][event];
    return next == 0 ? TB_RESERVE_LIVES : (enum tb_reserve_life)(next - 1);
}

void tb_reserve_step(enum tb_reserve_life *life, enum tb_reserve_event event)
{
    const enum tb_reserve_life next = tb_reserve_after(*life, event);
    TB_ASSERT(next != TB_RESERVE_LIVES);
    *life = next;
}

bool tb_reserve_is_leaving(enum tb_reserve_life life)
{
    return life == TB_RESERVE_ENDING || life == TB_RESERVE_DROPPED || life == TB_RESERVE_FREE;
}
