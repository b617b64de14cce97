/* reference_life.c - the tables. A cell holds the next state and one; 0 is a pair that there is
 * not. */
#include "gateway/catalog/lives/reference_life.h"

#include <stdint.h>

/* clang-format off */
#define SIGHT_ROWS(ROW)                          \
    /*  in state   on event    then        */    \
    ROW(IN_SIGHT,  IS_HIDDEN,  HIDDEN)           \
    ROW(HIDDEN,    LEADS,      ANSWERS)          \
    ROW(HIDDEN,    IS_GOING,   GOES)             \
    ROW(HIDDEN,    COMES_BACK, IN_SIGHT)         \
    ROW(ANSWERS,   IS_GOING,   GOES)             \
    ROW(ANSWERS,   COMES_BACK, IN_SIGHT)         \
    ROW(GOES,      IS_GOING,   GOES)             \
    ROW(GOES,      COMES_BACK, IN_SIGHT)

#define READING_ROWS(ROW)                        \
    ROW(RESTS,     WANTS,      ASKS)             \
    ROW(RESTS,     IS_DONE,    RESTS)            \
    ROW(ASKS,      WANTS,      ASKS)             \
    ROW(ASKS,      IS_SENT,    READS)            \
    ROW(ASKS,      IS_DONE,    RESTS)            \
    ROW(READS,     WANTS,      ASKS)             \
    ROW(READS,     GIVES_UP,   YIELDS)           \
    ROW(READS,     IS_DONE,    RESTS)            \
    ROW(YIELDS,    WANTS,      ASKS)             \
    ROW(YIELDS,    IS_DONE,    RESTS)
/* clang-format on */

#define SIGHT_CELL(in, on, then)   [TB_SIGHT_##in][TB_SIGHT_##on] = TB_SIGHT_##then + 1,
#define READING_CELL(in, on, then) [TB_READING_##in][TB_READING_##on] = TB_READING_##then + 1,

static const uint8_t sights[TB_SIGHT_END][TB_SIGHT_EVENT_END] = {SIGHT_ROWS(SIGHT_CELL)};
static const uint8_t readings[TB_READING_END][TB_READING_EVENT_END] = {READING_ROWS(READING_CELL)};

bool tb_sight_step(enum tb_sight *sight, enum tb_sight_event event)
{
    const uint8_t then = sights[*sight][event];
    if (then == 0) return false;
    *sight = (enum tb_sight)(then - 1);
    return true;
}

bool tb_reading_step(enum tb_reading *reading, enum tb_reading_event event)
{
    const uint8_t then = readings[*reading][event];
    if (then == 0) return false;
    *reading = (enum tb_reading)(then - 1);
    return true;
}
