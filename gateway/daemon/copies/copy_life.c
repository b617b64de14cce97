/* copy_life.c - the tables. A cell holds the next state and one; 0 is a pair that there is not. */
#include "gateway/daemon/copies/copy_life.h"

#include <stdint.h>

#include "base/assert.h"

/* clang-format off */
#define LIFE_ROWS(ROW)                                     \
    /*  in state       on event      then         */       \
    ROW(RESTS,         ASKS,         ASKED)                \
    ROW(RESTS,         BEGINS,       CROSSES)              \
    ROW(RESTS,         STOPS,        RESTS)                \
    ROW(RESTS,         FILLS,        WHOLE)                \
    ROW(RESTS,         SHRINKS,      RESTS)                \
    ROW(RESTS,         IS_EVICTED,   PART_LEAVES)          \
    ROW(ASKED,         ASKS,         ASKED)                \
    ROW(ASKED,         NEEDS_ROOM,   AWAITS_ROOM)          \
    ROW(ASKED,         BEGINS,       CROSSES)              \
    ROW(ASKED,         STOPS,        RESTS)                \
    ROW(ASKED,         FILLS,        WHOLE)                \
    ROW(ASKED,         SHRINKS,      ASKED)                \
    ROW(ASKED,         IS_EVICTED,   PART_LEAVES)          \
    ROW(AWAITS_ROOM,   ASKS,         ASKED)                \
    ROW(AWAITS_ROOM,   BEGINS,       CROSSES)              \
    ROW(AWAITS_ROOM,   STOPS,        RESTS)                \
    ROW(AWAITS_ROOM,   FILLS,        WHOLE)                \
    ROW(AWAITS_ROOM,   SHRINKS,      AWAITS_ROOM)          \
    ROW(AWAITS_ROOM,   IS_EVICTED,   PART_LEAVES)          \
    ROW(CROSSES,       ASKS,         ASKED)                \
    ROW(CROSSES,       BEGINS,       CROSSES)              \
    ROW(CROSSES,       STOPS,        RESTS)                \
    ROW(CROSSES,       FILLS,        WHOLE)                \
    ROW(CROSSES,       SHRINKS,      CROSSES)              \
    ROW(CROSSES,       IS_EVICTED,   PART_LEAVES)          \
    ROW(WHOLE,         BEGINS,       WHOLE)                \
    ROW(WHOLE,         SHRINKS,      RESTS)                \
    ROW(WHOLE,         IS_EVICTED,   WHOLE_LEAVES)         \
    ROW(PART_LEAVES,   SHRINKS,      PART_LEAVES)          \
    ROW(WHOLE_LEAVES,  SHRINKS,      PART_LEAVES)

#define SERVING_ROWS(ROW)                                  \
    ROW(UNREADY,       IS_READY,         READY)            \
    ROW(UNREADY,       IS_RETRACTED,     UNREADY)          \
    ROW(READY,         IS_READY,         READY)            \
    ROW(READY,         SERVES,           DUE)              \
    ROW(READY,         IS_RETRACTED,     READY)            \
    ROW(DUE,           IS_READY,         DUE)              \
    ROW(DUE,           SERVES,           DUE)              \
    ROW(DUE,           IS_OFFERED,       OFFERED)          \
    ROW(DUE,           IS_NOT_OFFERED,   READY)            \
    ROW(DUE,           IS_RETRACTED,     READY)            \
    ROW(OFFERED,       IS_READY,         OFFERED)          \
    ROW(OFFERED,       SERVES,           OFFERED)          \
    ROW(OFFERED,       IS_RETRACTED,     READY)
/* clang-format on */

#define CELL(in, on, then) [TB_COPY_##in][TB_COPY_##on] = TB_COPY_##then + 1,

static const uint8_t lives[TB_COPY_LIVES][TB_COPY_EVENTS] = {LIFE_ROWS(CELL)};
static const uint8_t servings[TB_COPY_SERVINGS][TB_COPY_SERVING_EVENTS] = {SERVING_ROWS(CELL)};

enum tb_copy_life tb_copy_life_after(enum tb_copy_life life, enum tb_copy_event event)
{
    TB_ASSERT(life < TB_COPY_LIVES && event < TB_COPY_EVENTS);
    const uint8_t then = lives[life][event];
    return then == 0 ? TB_COPY_LIVES : (enum tb_copy_life)(then - 1);
}

void tb_copy_life_step(enum tb_copy_life *life, enum tb_copy_event event)
{
    const enum tb_copy_life then = tb_copy_life_after(*life, event);
    TB_ASSERT(then != TB_COPY_LIVES);
    *life = then;
}

enum tb_copy_serving tb_copy_serving_after(enum tb_copy_serving serving, enum tb_copy_serving_event event)
{
    TB_ASSERT(serving < TB_COPY_SERVINGS && event < TB_COPY_SERVING_EVENTS);
    const uint8_t then = servings[serving][event];
    return then == 0 ? TB_COPY_SERVINGS : (enum tb_copy_serving)(then - 1);
}

void tb_copy_serving_step(enum tb_copy_serving *serving, enum tb_copy_serving_event event)
{
    const enum tb_copy_serving then = tb_copy_serving_after(*serving, event);
    TB_ASSERT(then != TB_COPY_SERVINGS);
    *serving = then;
}
