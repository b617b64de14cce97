/* heartbeat.h - is the other end of a hop still there? Pure: the owner says what it heard and when.
 *
 * A closed connection shows that a process was killed. It does not show that a host went silent. So
 * a source that says nothing for one beat is asked. After TB_HEARTBEAT_MISSED silent beats it is
 * given up. Anything that it sends counts, so a hop that moves bytes costs no beat. A connection
 * that is not open yet has `open` instead, because a handshake may take longer.
 *
 * An owner that looks a beat late stood still itself. Bytes that came meanwhile lie unread, so the
 * time begins anew. */
#ifndef TB_INTRA_HEARTBEAT_H
#define TB_INTRA_HEARTBEAT_H

#include <stdbool.h>

#include "base/time.h"

#define TB_HEARTBEAT_MS      500u
#define TB_HEARTBEAT_MISSED  3u
#define TB_HEARTBEAT_OPEN_MS 5000u

struct tb_heartbeat {
    tb_time_ns every;    /* one beat */
    tb_time_ns open;     /* for the first word */
    tb_time_ns heard_at; /* the last word; before the first: when it was dialled */
    tb_time_ns look_at;  /* when it is to be looked again */
    bool greeted;        /* there was a first word */
    bool asked;          /* and not answered */
};

/* idle_ms: how long it may be silent in all, TB_HEARTBEAT_MISSED beats, and open_ms
 * before its first word. */
void tb_heartbeat_init(struct tb_heartbeat *h, uint32_t idle_ms, uint32_t open_ms, tb_time_ns now);
void tb_heartbeat_heard(struct tb_heartbeat *h, tb_time_ns now);

enum tb_heartbeat_do { TB_HEARTBEAT_WAIT, TB_HEARTBEAT_ASK, TB_HEARTBEAT_LOST };
/* ASK is said once until it is answered: `asked` is the owner's to clear. *next_out: when to look
 * again; untouched on LOST. */
enum tb_heartbeat_do tb_heartbeat_look(struct tb_heartbeat *h, tb_time_ns now, tb_time_ns *next_out);

#endif
