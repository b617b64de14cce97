/* publication_life.c - the life of one sealed shard as a table of states and events.
 *
 * The table is the whole truth. A pair that is not in it is a mistake of this library: no peer,
 * worker or file can cause one. tests/unit/client/publication_life.c walks all pairs. */
#include "intra/client/publish/publication_life.h"

#include <stdint.h>

#include "base/assert.h"

/* clang-format off */
#define PUBLICATION_ROWS(ROW)                     \
    /*  in state       on event   then         */ \
    ROW(NEW,           TAKEN,     CLAIMED)        \
    ROW(NEW,           LOST,      NEW)            \
    ROW(NEW,           REMOVE,    REMOVING)       \
    ROW(CLAIMED,       TAKEN,     CLAIMED)        \
    ROW(CLAIMED,       LOST,      ENDED_CLAIMED)  \
    ROW(CLAIMED,       RELEASE,   STANDING)       \
    ROW(STANDING,      CLAIM,     CLAIMED)        \
    ROW(STANDING,      LOST,      ENDED)          \
    ROW(STANDING,      HIDE,      HIDING)         \
    ROW(STANDING,      REMOVE,    REMOVING)       \
    ROW(ENDED,         CLAIM,     ENDED_CLAIMED)  \
    ROW(ENDED,         LOST,      ENDED)          \
    ROW(ENDED,         HIDE,      HIDDEN)         \
    ROW(ENDED,         REMOVE,    REMOVING)       \
    ROW(ENDED_CLAIMED, TAKEN,     CLAIMED)        \
    ROW(ENDED_CLAIMED, LOST,      ENDED_CLAIMED)  \
    ROW(ENDED_CLAIMED, RELEASE,   ENDED)          \
    ROW(HIDING,        LOST,      HIDDEN)         \
    ROW(HIDING,        ANSWERED,  HIDDEN)         \
    ROW(HIDING,        CLOSED,    SUSPENDED)      \
    ROW(HIDDEN,        LOST,      HIDDEN)         \
    ROW(HIDDEN,        ANSWERED,  HIDDEN)         \
    ROW(HIDDEN,        CLOSED,    SUSPENDED)      \
    ROW(SUSPENDED,     LOST,      SUSPENDED)      \
    ROW(SUSPENDED,     RETURN,    RETURNING)      \
    ROW(SUSPENDED,     REMOVE,    REMOVING)       \
    ROW(RETURNING,     LOST,      RETURNING)      \
    ROW(RETURNING,     RETURNED,  STANDING)       \
    ROW(RETURNING,     REMOVE,    REMOVING)       \
    ROW(REMOVING,      LOST,      REMOVING)
/* clang-format on */

enum tb_publication_life tb_publication_after(enum tb_publication_life life, enum tb_publication_event event)
{
    /* The next state plus one; 0: there is no such row. */
    static const uint8_t table[TB_PUBLICATION_LIVES][TB_PUBLICATION_EVENTS] = {
#define ROW(in, on, then) [TB_PUBLICATION_##in][TB_PUBLICATION_##on] = TB_PUBLICATION_##then + 1,
        PUBLICATION_ROWS(ROW)
#undef ROW
    };
    TB_ASSERT(life < TB_PUBLICATION_LIVES && event < TB_PUBLICATION_EVENTS);
    const uint8_t next = table[life][event];
    return next == 0 ? TB_PUBLICATION_LIVES : (enum tb_publication_life)(next - 1);
}

void tb_publication_step(enum tb_publication_life *life, enum tb_publication_event event)
{
    const enum tb_publication_life next = tb_publication_after(*life, event);
    TB_ASSERT(next != TB_PUBLICATION_LIVES);
    *life = next;
}

bool tb_publication_is_busy(enum tb_publication_life life)
{
    return life != TB_PUBLICATION_STANDING && life != TB_PUBLICATION_ENDED &&
           life != TB_PUBLICATION_SUSPENDED;
}

bool tb_publication_is_sealed(enum tb_publication_life life)
{
    return life != TB_PUBLICATION_NEW && life != TB_PUBLICATION_ENDED &&
           life != TB_PUBLICATION_ENDED_CLAIMED && life != TB_PUBLICATION_REMOVING;
}

bool tb_publication_is_announced(enum tb_publication_life life)
{
    return life == TB_PUBLICATION_CLAIMED || life == TB_PUBLICATION_STANDING || life == TB_PUBLICATION_HIDING;
}
