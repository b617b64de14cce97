/* version_life.c - the tables. */
#include "gateway/catalog/lives/version_life.h"

#include "gateway/catalog/lives/life_table.h"

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

#define SEARCH_ROWS(ROW)                                \
    ROW(NONE,      TRIES,              TRYING)          \
    ROW(NONE,      BEGINS_ANEW,        NONE)            \
    ROW(TRYING,    TRIES,              TRYING)          \
    ROW(TRYING,    IS_ENOUGH,          DONE)            \
    ROW(TRYING,    BEGINS_ANEW,        NONE)            \
    ROW(DONE,      TRIES,              DONE)            \
    ROW(DONE,      BEGINS_ANEW,        NONE)
/* clang-format on */

#define LIFE_CELL(in, on, then) [TB_LIFE_##in][TB_VERSION_##on] = TB_LIFE_##then + 1,
#define COPY_CELL(in, on, then) [TB_VERSION_COPY_##in][TB_VERSION_COPY_##on] = TB_VERSION_COPY_##then + 1,
#define CROSSING_CELL(in, on, then)                                                                          \
    [TB_VERSION_CROSSING_##in][TB_VERSION_CROSSING_##on] = TB_VERSION_CROSSING_##then + 1,
#define SEARCH_CELL(in, on, then)                                                                            \
    [TB_VERSION_SEARCH_##in][TB_VERSION_SEARCH_##on] = TB_VERSION_SEARCH_##then + 1,

TB_LIFE_TABLE(lives, LIFE_ROWS(LIFE_CELL), TB_LIFE_END, TB_VERSION_EVENT_END);
TB_LIFE_TABLE(copies, COPY_ROWS(COPY_CELL), TB_VERSION_COPY_END, TB_VERSION_COPY_EVENT_END);
TB_LIFE_TABLE(crossings, CROSSING_ROWS(CROSSING_CELL), TB_VERSION_CROSSING_END,
              TB_VERSION_CROSSING_EVENT_END);
TB_LIFE_TABLE(searches, SEARCH_ROWS(SEARCH_CELL), TB_VERSION_SEARCH_END, TB_VERSION_SEARCH_EVENT_END);

enum tb_version_life tb_version_life_after(enum tb_version_life life, enum tb_version_event event)
{
    return (enum tb_version_life)tb_life_after(&lives, life, event);
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

enum tb_version_copy tb_version_copy_after(enum tb_version_copy copy, enum tb_version_copy_event event)
{
    return (enum tb_version_copy)tb_life_after(&copies, copy, event);
}

enum tb_version_crossing tb_version_crossing_after(enum tb_version_crossing crossing,
                                                   enum tb_version_crossing_event event)
{
    return (enum tb_version_crossing)tb_life_after(&crossings, crossing, event);
}

enum tb_version_search tb_version_search_after(enum tb_version_search search,
                                               enum tb_version_search_event event)
{
    return (enum tb_version_search)tb_life_after(&searches, search, event);
}
