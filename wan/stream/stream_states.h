/* stream_states.h - the life of a data stream, as a table. A core: no socket, no clock, no thread.
 *
 * A stream that was dialled sends BIND once its session is known, and is bound by the answer. A
 * stream that was accepted is bound as soon as it is open. Each stream ends as GONE, in which
 * it is the main loop's. */
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

#endif
