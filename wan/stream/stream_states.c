/* stream_states.c - the two tables. A pair that is not here cannot happen. */
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

#define FAREWELL_ROWS(ROW)                                                                                   \
    ROW(NONE, RETIRE, RETIRED)                                                                               \
    ROW(NONE, TELL, TOLD)                                                                                    \
    ROW(NONE, HEAR, HEARD)                                                                                   \
    ROW(RETIRED, HEAR, BOTH)                                                                                 \
    ROW(TOLD, HEAR, BOTH)                                                                                    \
    ROW(HEARD, TELL, BOTH)                                                                                   \
    ROW(HEARD, HEAR, HEARD)                                                                                  \
    ROW(BOTH, HEAR, BOTH)

static const struct {
    bool legal;
    enum tb_stream_farewell then;
} farewells[TB_STREAM_FAREWELLS][TB_STREAM_WORDS] = {
#define FAREWELL_ROW(farewell, word, then)                                                                   \
    [TB_STREAM_FAREWELL_##farewell][TB_STREAM_WORD_##word] = {true, TB_STREAM_FAREWELL_##then},
    FAREWELL_ROWS(FAREWELL_ROW)
#undef FAREWELL_ROW
};

bool tb_stream_farewell_step(enum tb_stream_farewell *farewell, enum tb_stream_word word)
{
    TB_ASSERT(*farewell < TB_STREAM_FAREWELLS && word < TB_STREAM_WORDS);
    if (!farewells[*farewell][word].legal) return false;
    *farewell = farewells[*farewell][word].then;
    return true;
}

bool tb_stream_farewell_heard(enum tb_stream_farewell farewell)
{
    TB_ASSERT(farewell < TB_STREAM_FAREWELLS);
    return farewell == TB_STREAM_FAREWELL_HEARD || farewell == TB_STREAM_FAREWELL_BOTH;
}

bool tb_stream_farewell_told(enum tb_stream_farewell farewell)
{
    TB_ASSERT(farewell < TB_STREAM_FAREWELLS);
    return farewell != TB_STREAM_FAREWELL_NONE && farewell != TB_STREAM_FAREWELL_HEARD;
}
