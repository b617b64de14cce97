/* version_life.c - the tables. A cell holds the next state and one; 0 is a pair that there is
 * not. */
#include "gateway/catalog/lives/version_life.h"

#include "base/assert.h"

/* clang-format off */
#define LIFE_ROWS(ROW)                                  \
    /*  in state   on event            then        */   \
    ROW(OPEN,      BECOMES_READY,      READY)           \
    ROW(OPEN,      IS_UNHELD,          UNHELD)          \
    ROW(OPEN,      IS_LOST,            LOST)            \
    ROW(OPEN,      IS_BROKEN,          BROKEN)          \
    ROW(OPEN,      IS_WITHDRAWN,       WITHDRAWN)       \
    ROW(OPEN,      IS_ABANDONED,       ABANDONED)       \
    ROW(READY,     BECOMES_KEPT,       KEPT)            \
    ROW(READY,     IS_EVICTED,         RETIRED)         \
    ROW(READY,     IS_UNHELD,          UNHELD)          \
    ROW(READY,     IS_LOST,            LOST)            \
    ROW(READY,     IS_BROKEN,          BROKEN)          \
    ROW(READY,     IS_WITHDRAWN,       WITHDRAWN)       \
    ROW(READY,     IS_ABANDONED,       ABANDONED)       \
    ROW(KEPT,      IS_EVICTED,         RETIRED)         \
    ROW(KEPT,      IS_UNHELD,          UNHELD)          \
    ROW(KEPT,      IS_LOST,            LOST)            \
    ROW(KEPT,      IS_BROKEN,          BROKEN)          \
    ROW(KEPT,      IS_WITHDRAWN,       WITHDRAWN)       \
    ROW(KEPT,      IS_ABANDONED,       ABANDONED)       \
    ROW(RETIRED,   IS_BROKEN,          BROKEN)          \
    ROW(RETIRED,   IS_WITHDRAWN,       WITHDRAWN)       \
    ROW(RETIRED,   IS_ABANDONED,       ABANDONED)       \
    ROW(UNHELD,    IS_OFFERED_OPEN,    OPEN)            \
    ROW(UNHELD,    IS_OFFERED,         READY)           \
    ROW(UNHELD,    IS_BROKEN,          BROKEN)          \
    ROW(UNHELD,    IS_WITHDRAWN,       WITHDRAWN)       \
    ROW(UNHELD,    IS_ABANDONED,       ABANDONED)

#define COPY_ROWS(ROW)                                  \
    ROW(NONE,      RESERVED,           HERE)            \
    ROW(HERE,      RESERVED,           HERE)            \
    ROW(HERE,      EVICTED,            LEAVING)         \
    ROW(LEAVING,   RESERVED,           LEAVING)         \
    ROW(LEAVING,   GIVEN_BACK,         NONE)

#define CROSSING_ROWS(ROW)                              \
    ROW(NONE,      ASKS,               ASKED)           \
    ROW(NONE,      UNASKS,             NONE)            \
    ROW(NONE,      BEGINS,             BEGUN)           \
    ROW(NONE,      SHRINKS,            NONE)            \
    ROW(NONE,      STOPS,              NONE)            \
    ROW(ASKED,     UNASKS,             NONE)            \
    ROW(ASKED,     BEGINS,             BEGUN)           \
    ROW(ASKED,     SHRINKS,            ASKED)           \
    ROW(ASKED,     STOPS,              NONE)            \
    ROW(BEGUN,     UNASKS,             BEGUN)           \
    ROW(BEGUN,     SHRINKS,            NONE)            \
    ROW(BEGUN,     STOPS,              NONE)
/* clang-format on */

#define LIFE_CELL(in, on, then) [TB_LIFE_##in][TB_VERSION_##on] = TB_LIFE_##then + 1,
#define COPY_CELL(in, on, then) [TB_VERSION_COPY_##in][TB_VERSION_COPY_##on] = TB_VERSION_COPY_##then + 1,
#define CROSSING_CELL(in, on, then)                                                                          \
    [TB_VERSION_CROSSING_##in][TB_VERSION_CROSSING_##on] = TB_VERSION_CROSSING_##then + 1,

static const uint8_t lives[TB_LIFE_END][TB_VERSION_EVENT_END] = {LIFE_ROWS(LIFE_CELL)};
static const uint8_t copies[TB_VERSION_COPY_END][TB_VERSION_COPY_EVENT_END] = {COPY_ROWS(COPY_CELL)};
static const uint8_t crossings[TB_VERSION_CROSSING_END][TB_VERSION_CROSSING_EVENT_END] = {
    CROSSING_ROWS(CROSSING_CELL)};

bool tb_version_life_may(enum tb_version_life life, enum tb_version_event event)
{
    return lives[life][event] != 0;
}

bool tb_version_life_step(enum tb_version_life *life, enum tb_version_event event)
{
    const uint8_t then = lives[*life][event];
    if (then == 0) return false;
    *life = (enum tb_version_life)(then - 1);
    return true;
}

enum tb_catalog_state tb_version_life_state(enum tb_version_life life)
{
    static const enum tb_catalog_state states[TB_LIFE_END] = {
        [TB_LIFE_OPEN] = TB_VERSION_OPEN,
        [TB_LIFE_READY] = TB_VERSION_READY,
        [TB_LIFE_KEPT] = TB_VERSION_KEPT,
        [TB_LIFE_RETIRED] = TB_VERSION_RETIRED,
        [TB_LIFE_UNHELD] = TB_VERSION_RETIRED,
        [TB_LIFE_LOST] = TB_VERSION_ENDED_LOST,
        [TB_LIFE_BROKEN] = TB_VERSION_ENDED_BROKEN,
        [TB_LIFE_WITHDRAWN] = TB_VERSION_ENDED_WITHDRAWN,
        [TB_LIFE_ABANDONED] = TB_VERSION_ENDED_ABANDONED,
    };
    return states[life];
}

enum tb_version_life tb_version_life_restored(enum tb_catalog_state state)
{
    static const enum tb_version_life restored[TB_CATALOG_STATE_END] = {
        [TB_VERSION_OPEN] = TB_LIFE_OPEN,
        [TB_VERSION_READY] = TB_LIFE_READY,
        [TB_VERSION_KEPT] = TB_LIFE_READY,
        [TB_VERSION_RETIRED] = TB_LIFE_RETIRED,
        [TB_VERSION_ENDED_LOST] = TB_LIFE_LOST,
        [TB_VERSION_ENDED_BROKEN] = TB_LIFE_BROKEN,
        [TB_VERSION_ENDED_WITHDRAWN] = TB_LIFE_WITHDRAWN,
        [TB_VERSION_ENDED_ABANDONED] = TB_LIFE_ABANDONED,
    };
    return restored[state];
}

enum tb_version_event tb_version_life_event(enum tb_catalog_state end)
{
    switch (end) {
    case TB_VERSION_ENDED_LOST:
        return TB_VERSION_IS_LOST;
    case TB_VERSION_ENDED_BROKEN:
        return TB_VERSION_IS_BROKEN;
    case TB_VERSION_ENDED_WITHDRAWN:
        return TB_VERSION_IS_WITHDRAWN;
    default:
        TB_ASSERT(end == TB_VERSION_ENDED_ABANDONED);
        return TB_VERSION_IS_ABANDONED;
    }
}

bool tb_version_copy_step(enum tb_version_copy *copy, enum tb_version_copy_event event)
{
    const uint8_t then = copies[*copy][event];
    if (then == 0) return false;
    *copy = (enum tb_version_copy)(then - 1);
    return true;
}

bool tb_version_crossing_step(enum tb_version_crossing *crossing, enum tb_version_crossing_event event)
{
    const uint8_t then = crossings[*crossing][event];
    if (then == 0) return false;
    *crossing = (enum tb_version_crossing)(then - 1);
    return true;
}
