/* staging_life.c - the life of a staged version as a table of states and events.
 *
 * The table is the whole truth. A pair that is not in it is a mistake of this library: no peer,
 * worker or file can cause one. tests/unit/client/staging_life.c walks all pairs. */
#include "intra/client/follow/staging_life.h"

#include <stdint.h>

#include "base/assert.h"

/* clang-format off */
#define STAGING_ROWS(ROW)                   \
    /*  in state   on event    then      */ \
    ROW(ASKED,     DESCRIBED,  MANIFESTS)   \
    ROW(ASKED,     FAILS,      FAILED)      \
    ROW(MANIFESTS, SUBMITTED,  PREPARING)   \
    ROW(MANIFESTS, FAILS,      FAILED)      \
    ROW(PREPARING, PLACED,     PREPARED)    \
    ROW(PREPARING, UNPLACED,   FAILED)      \
    ROW(PREPARING, FAILS,      FAILING)     \
    ROW(PREPARED,  OPENED,     READING)     \
    ROW(PREPARED,  FAILS,      FAILED)      \
    ROW(READING,   LANDED,     WHOLE)       \
    ROW(READING,   READ_AGAIN, READING)     \
    ROW(READING,   FAILS,      FAILED)      \
    ROW(WHOLE,     READ_AGAIN, READING)     \
    ROW(WHOLE,     FAILS,      FAILED)      \
    ROW(FAILING,   PLACED,     FAILED)      \
    ROW(FAILING,   UNPLACED,   FAILED)      \
    ROW(FAILING,   FAILS,      FAILING)     \
    ROW(FAILED,    FAILS,      FAILED)      \
    ROW(FAILED,    LEAVES,     LEFT)        \
    ROW(LEFT,      FAILS,      LEFT)
/* clang-format on */

enum tb_staging_life tb_staging_after(enum tb_staging_life life, enum tb_staging_event event)
{
    /* The next state plus one; 0: there is no such row. */
    static const uint8_t table[TB_STAGING_LIVES][TB_STAGING_EVENTS] = {
#define ROW(in, on, then) [TB_STAGING_##in][TB_STAGING_##on] = TB_STAGING_##then + 1,
        STAGING_ROWS(ROW)
#undef ROW
    };
    TB_ASSERT(life < TB_STAGING_LIVES && event < TB_STAGING_EVENTS);
    const uint8_t next = table[life][event];
    return next == 0 ? TB_STAGING_LIVES : (enum tb_staging_life)(next - 1);
}

void tb_staging_step(enum tb_staging_life *life, enum tb_staging_event event)
{
    const enum tb_staging_life next = tb_staging_after(*life, event);
    TB_ASSERT(next != TB_STAGING_LIVES);
    *life = next;
}

bool tb_staging_is_preparing(enum tb_staging_life life)
{
    return life == TB_STAGING_PREPARING || life == TB_STAGING_FAILING;
}

bool tb_staging_has_places(enum tb_staging_life life)
{
    return life == TB_STAGING_PREPARED || tb_staging_is_open(life);
}

bool tb_staging_is_open(enum tb_staging_life life)
{
    return life == TB_STAGING_READING || life == TB_STAGING_WHOLE;
}

bool tb_staging_has_failed(enum tb_staging_life life)
{
    return life == TB_STAGING_FAILING || life == TB_STAGING_FAILED || life == TB_STAGING_LEFT;
}
