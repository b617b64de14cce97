/* outbound_states.c - the table. A pair that is not here cannot happen. Pure. */
#include "wan/send/outbound_states.h"

#include "base/assert.h"

#define OUTBOUND_ROWS(ROW)                                                                                   \
    ROW(WANTED, BASE, ON_BASE)                                                                               \
    ROW(WANTED, START, STARTED)                                                                              \
    ROW(ON_BASE, PUSH, PUSHED)                                                                               \
    ROW(ON_BASE, START, STARTED_ON_BASE)                                                                     \
    ROW(PUSHED, START, STARTED_ON_BASE)

static const struct {
    bool legal;
    enum tb_outbound_state then;
} rows[TB_OUTBOUND_STATES][TB_OUTBOUND_EVENTS] = {
#define OUTBOUND_ROW(state, event, then)                                                                     \
    [TB_OUTBOUND_##state][TB_OUTBOUND_EVENT_##event] = {true, TB_OUTBOUND_##then},
    OUTBOUND_ROWS(OUTBOUND_ROW)
#undef OUTBOUND_ROW
};

bool tb_outbound_state_step(enum tb_outbound_state *state, enum tb_outbound_event event)
{
    TB_ASSERT(*state < TB_OUTBOUND_STATES && event < TB_OUTBOUND_EVENTS);
    if (!rows[*state][event].legal) return false;
    *state = rows[*state][event].then;
    return true;
}

bool tb_outbound_state_on_base(enum tb_outbound_state state)
{
    TB_ASSERT(state < TB_OUTBOUND_STATES);
    return state == TB_OUTBOUND_ON_BASE || state == TB_OUTBOUND_PUSHED ||
           state == TB_OUTBOUND_STARTED_ON_BASE;
}

bool tb_outbound_state_started(enum tb_outbound_state state)
{
    TB_ASSERT(state < TB_OUTBOUND_STATES);
    return state >= TB_OUTBOUND_STARTED;
}
