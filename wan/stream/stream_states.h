/* stream_states.h - the life of a data stream, and its farewell, as tables. A core: no socket, no
 * clock, no thread.
 *
 * A stream that was dialled sends BIND once its session is known, and is bound by the answer. A
 * stream that was accepted is bound as soon as it is open. Each stream ends as GONE, in which it
 * is the main loop's.
 *
 * The farewell is the main loop's own: which ends have said STREAM_GONE. Chunks that were on a
 * stream go again once both have. */
#ifndef TB_WAN_STREAM_STATES_H
#define TB_WAN_STREAM_STATES_H

#include <stdbool.h>

#include "tombolo/status.h"

enum tb_stream_state {
    TB_STREAM_STATE_OPENING, /* TCP and TLS are under way, or it is on its way to a loop */
    TB_STREAM_STATE_WAITING, /* dialled and open; its session is not known yet */
    TB_STREAM_STATE_GREETED, /* BIND was sent */
    TB_STREAM_STATE_BOUND,   /* chunks go both ways */
    TB_STREAM_STATE_CLOSING, /* nothing is read or sent any more */
    TB_STREAM_STATE_GONE,
    TB_STREAM_STATES
};

enum tb_stream_event {
    TB_STREAM_EVENT_EARLY,    /* it opened before its session is known */
    TB_STREAM_EVENT_GREET,    /* it is open, its session is known, and BIND is sent */
    TB_STREAM_EVENT_ACCEPT,   /* it is open, and BOUND is sent */
    TB_STREAM_EVENT_ANSWERED, /* BOUND came */
    TB_STREAM_EVENT_CLOSE,    /* one end had enough of it */
    TB_STREAM_EVENT_ENDED,    /* the connection is closed, or never came to be */
    TB_STREAM_EVENTS
};

/* False: that event cannot come in that state; nothing changed. */
TB_MUST_USE bool tb_stream_state_step(enum tb_stream_state *state, enum tb_stream_event event);

enum tb_stream_farewell {
    TB_STREAM_FAREWELL_NONE,
    TB_STREAM_FAREWELL_RETIRED, /* we said it of a stream that is not needed: its end is no loss */
    TB_STREAM_FAREWELL_TOLD,    /* we said it of a stream that is gone here */
    TB_STREAM_FAREWELL_HEARD,   /* the peer said it */
    TB_STREAM_FAREWELL_BOTH,    /* each end said it */
    TB_STREAM_FAREWELLS
};

enum tb_stream_word {
    TB_STREAM_WORD_RETIRE, /* ours, of a stream that both ends still use */
    TB_STREAM_WORD_TELL,   /* ours, once the stream is gone here */
    TB_STREAM_WORD_HEAR,   /* the peer's, at any time, and as often as it likes */
    TB_STREAM_WORDS
};

/* False: that word cannot come now; nothing changed. */
TB_MUST_USE bool tb_stream_farewell_step(enum tb_stream_farewell *farewell, enum tb_stream_word word);
/* The peer said STREAM_GONE. */
bool tb_stream_farewell_heard(enum tb_stream_farewell farewell);
/* We said STREAM_GONE. */
bool tb_stream_farewell_told(enum tb_stream_farewell farewell);

#endif
