/* stream_states.c - the table. A pair that is not here cannot happen. */
#include "wan/stream/stream_states.h"

#include "base/assert.h"

#define STREAM_ROWS(ROW)                                                                                     \
    ROW(OPENING, EARLY, WAITING)                                                                             \
    ROW(OPENING, GREET, GREETED)                                                                             \
    ROW(OPENING, ACCEPT, BOUND)                                                                              \
    ROW(OPENING, CLOSE, CLOSING)                                                                             \
    ROW(OPENING, ENDED, GONE)                                                                                \
    ROW(WAITING, GREET, GREETED)                                                                             \
    ROW(WAITING, CLOSE, CLOSING)                                                                             \
    ROW(WAITING, ENDED, GONE)                                                                                \
    ROW(GREETED, ANSWERED, BOUND)                                                                            \
    ROW(GREETED, CLOSE, CLOSING)                                                                             \
    ROW(GREETED, ENDED, GONE)                                                                                \
    ROW(BOUND, CLOSE, CLOSING)                                                                               \
    ROW(BOUND, ENDED, GONE)                                                                                  \
    ROW(CLOSING, CLOSE, CLOSING)                                                                             \
    ROW(CLOSING, ENDED, GONE)

static const struct {
    bool legal;
    enum tb_stream_state then;
} rows[TB_STREAM_STATES][TB_STREAM_EVENTS] = {
#define STREAM_ROW(state, event, then)                                                                       \
    [TB_STREAM_STATE_##state][TB_STREAM_EVENT_##event] = {true, TB_STREAM_STATE_##then},
    STREAM_ROWS(STREAM_ROW)
#undef STREAM_ROW
};

bool tb_stream_state_step(enum tb_stream_state *state, enum tb_stream_event event)
{
    TB_ASSERT(*state < TB_STREAM_STATES && event < TB_STREAM_EVENTS);
    if (!rows[*state][event].legal) return false;
    *state = rows[*state][event].then;
    return true;
}
