/* outbound_states.h - the life of a crossing that a peer draws from here, as a table. A core.
 *
 * A crossing begins with WANT, or with our PUSH where the peer said EXPECT. The peer may name one
 * base for it, before START. Chunks go from START on; those of a pushed crossing go before. */
#ifndef TB_WAN_OUTBOUND_STATES_H
#define TB_WAN_OUTBOUND_STATES_H

#include <stdbool.h>

#include "tombolo/status.h"

enum tb_outbound_state {
    TB_OUTBOUND_WANTED,
    TB_OUTBOUND_ON_BASE,         /* the peer named a base, by BASE or EXPECT */
    TB_OUTBOUND_PUSHED,          /* likewise, and chunks go before START */
    TB_OUTBOUND_STARTED,         /* START came, and no base was named */
    TB_OUTBOUND_STARTED_ON_BASE, /* START came, and a base had been named */
    TB_OUTBOUND_STATES
};

enum tb_outbound_event {
    TB_OUTBOUND_EVENT_BASE,
    TB_OUTBOUND_EVENT_PUSH, /* ours: the peer expects the version */
    TB_OUTBOUND_EVENT_START,
    TB_OUTBOUND_EVENTS
};

/* False: that event cannot come in that state; nothing changed. */
TB_MUST_USE bool tb_outbound_state_step(enum tb_outbound_state *state, enum tb_outbound_event event);
/* The peer named a base. */
bool tb_outbound_state_on_base(enum tb_outbound_state state);
/* START came: all that the peer holds is known. */
bool tb_outbound_state_started(enum tb_outbound_state state);

#endif
