/* hop_life.c - the life of one hop as a table of states and events.
 *
 * The table is the whole truth. A pair that is not in it is a mistake of this library: no peer and
 * no worker can cause one. tests/unit/intra/hop_life.c walks all pairs. */
#include "intra/hop/hop_life.h"

#include <stdint.h>

#include "base/assert.h"

/* clang-format off */
#define HOP_ROWS(ROW)                         \
    /*  in state    on event  then         */ \
    ROW(OPENING,    OPENED,   OPEN)           \
    ROW(OPENING,    REFUSED,  REDIALLING)     \
    ROW(OPENING,    LOSE,     LOSING)         \
    ROW(OPENING,    CLOSE,    CLOSING)        \
    ROW(REDIALLING, REDIAL,   OPENING)        \
    ROW(REDIALLING, CLOSE,    CLOSING)        \
    ROW(OPEN,       OPENED,   OPEN)           \
    ROW(OPEN,       WHOLE,    WHOLE)          \
    ROW(OPEN,       LOSE,     LOSING)         \
    ROW(OPEN,       CLOSE,    CLOSING)        \
    ROW(WHOLE,      OPENED,   WHOLE)          \
    ROW(WHOLE,      LOSE,     LOSING)         \
    ROW(WHOLE,      CLOSE,    CLOSING)        \
    ROW(LOSING,     ENDED,    LOST)           \
    ROW(LOSING,     CLOSE,    CLOSING)        \
    ROW(LOST,       CLOSE,    CLOSED)         \
    ROW(CLOSING,    ENDED,    CLOSED)
/* clang-format on */

enum tb_hop_life tb_hop_life_after(enum tb_hop_life life, enum tb_hop_life_event event)
{
    /* The next state plus one; 0: there is no such row. */
    static const uint8_t table[TB_HOP_LIVES][TB_HOP_LIFE_EVENTS] = {
#define ROW(in, on, then) [TB_HOP_LIFE_##in][TB_HOP_ON_##on] = TB_HOP_LIFE_##then + 1,
        HOP_ROWS(ROW)
#undef ROW
    };
    TB_ASSERT(life < TB_HOP_LIVES && event < TB_HOP_LIFE_EVENTS);
    const uint8_t next = table[life][event];
    return next == 0 ? TB_HOP_LIVES : (enum tb_hop_life)(next - 1);
}

void tb_hop_life_step(enum tb_hop_life *life, enum tb_hop_life_event event)
{
    const enum tb_hop_life next = tb_hop_life_after(*life, event);
    TB_ASSERT(next != TB_HOP_LIVES);
    *life = next;
}

bool tb_hop_life_is_open(enum tb_hop_life life)
{
    return life == TB_HOP_LIFE_OPEN || life == TB_HOP_LIFE_WHOLE;
}

bool tb_hop_life_ends(enum tb_hop_life life)
{
    TB_ASSERT(life < TB_HOP_LIVES);
    return life >= TB_HOP_LIFE_LOSING;
}

bool tb_hop_life_is_silent(enum tb_hop_life life)
{
    return life == TB_HOP_LIFE_CLOSING || life == TB_HOP_LIFE_CLOSED;
}
