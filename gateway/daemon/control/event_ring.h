/* event_ring.h - the newest lines of this process's log, at info and above, with ids: an operator
 * asks for those behind an id ("events" in docs/control.md). Bounded: the oldest give way.
 *
 * One ring a process. Threads: any; each log line is written into it. */
#ifndef TB_DAEMON_EVENT_RING_H
#define TB_DAEMON_EVENT_RING_H

#include <stdint.h>

#include "base/log.h"
#include "tombolo/status.h"

#define TB_EVENTS_MAX       4096u /* in the ring: 2.3 MB */
#define TB_EVENT_NAME_BYTES 48u
#define TB_EVENT_TEXT_BYTES 480u

struct tb_event {
    uint64_t id; /* 1 for the first of this process */
    uint64_t wall_ms;
    enum tb_log_level level;
    char name[TB_EVENT_NAME_BYTES];
    char text[TB_EVENT_TEXT_BYTES]; /* "key=value key=value", as a line of text has it; cut */
};

/* From here on lines are kept. TB_SITE_NOMEM: none is. */
TB_MUST_USE enum tb_status tb_events_open(void);
void tb_events_close(void);
/* Ids of the oldest and the newest in the ring; 0: there is none. */
uint64_t tb_events_first(void), tb_events_last(void);
/* The first `most` behind that id, the oldest first; how many there are in `out`. */
uint32_t tb_events_after(uint64_t id, struct tb_event *out, uint32_t most);

#endif
