/* life_table.h - how a life's table is asked. Pure. */
#ifndef TB_GATEWAY_LIFE_TABLE_H
#define TB_GATEWAY_LIFE_TABLE_H

#include <stdint.h>

#include "base/assert.h"

/* A cell holds the next state and one. 0 is a pair of state and event that there is not. */
struct tb_life_table {
    const uint8_t *cells; /* `events` of them for each state */
    uint32_t states, events;
};
#define TB_LIFE_TABLE(name, rows, state_end, event_end)                                                      \
    static const uint8_t name##_cells[state_end][event_end] = {rows};                                        \
    static const struct tb_life_table name = {&name##_cells[0][0], state_end, event_end}

/* The state after that event. `table->states`, which is no state: the pair is not in the table. */
static inline uint32_t tb_life_after(const struct tb_life_table *table, uint32_t state, uint32_t event)
{
    TB_ASSERT(state < table->states && event < table->events);
    const uint8_t cell = table->cells[state * table->events + event];
    return cell == 0 ? table->states : cell - 1u;
}

#endif
