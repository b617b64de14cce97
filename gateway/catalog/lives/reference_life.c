/* reference_life.c - the tables. */
#include "gateway/catalog/lives/reference_life.h"

#include "gateway/catalog/lives/life_table.h"

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

#define STANDING_ROWS(ROW)                       \
    ROW(KEEPS_UP,  IS_PUT_ASIDE, ASIDE)          \
    ROW(KEEPS_UP,  IS_PLANNED,   KEEPS_UP)       \
    ROW(KEEPS_UP,  IS_SLOW,      SLOW)           \
    ROW(ASIDE,     IS_PUT_ASIDE, ASIDE)          \
    ROW(ASIDE,     IS_PLANNED,   KEEPS_UP)       \
    ROW(ASIDE,     IS_SLOW,      SLOW)           \
    ROW(SLOW,      IS_PUT_ASIDE, SLOW)           \
    ROW(SLOW,      IS_PLANNED,   SLOW)
/* clang-format on */

#define SIGHT_CELL(in, on, then)    [TB_SIGHT_##in][TB_SIGHT_##on] = TB_SIGHT_##then + 1,
#define READING_CELL(in, on, then)  [TB_READING_##in][TB_READING_##on] = TB_READING_##then + 1,
#define STANDING_CELL(in, on, then) [TB_STANDING_##in][TB_STANDING_##on] = TB_STANDING_##then + 1,

TB_LIFE_TABLE(sights, SIGHT_ROWS(SIGHT_CELL), TB_SIGHT_END, TB_SIGHT_EVENT_END);
TB_LIFE_TABLE(readings, READING_ROWS(READING_CELL), TB_READING_END, TB_READING_EVENT_END);
TB_LIFE_TABLE(standings, STANDING_ROWS(STANDING_CELL), TB_STANDING_END, TB_STANDING_EVENT_END);

enum tb_sight tb_sight_after(enum tb_sight sight, enum tb_sight_event event)
{
    return (enum tb_sight)tb_life_after(&sights, sight, event);
}

enum tb_reading tb_reading_after(enum tb_reading reading, enum tb_reading_event event)
{
    return (enum tb_reading)tb_life_after(&readings, reading, event);
}

enum tb_standing tb_standing_after(enum tb_standing standing, enum tb_standing_event event)
{
    return (enum tb_standing)tb_life_after(&standings, standing, event);
}
