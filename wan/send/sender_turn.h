/* sender_turn.h - the turn of a peer to send a version, where several cannot send it at once: a
 * peer that knows no TAKE sends alone.
 *
 * Pure. The peer that began sends on while something comes; the others wait. A peer that brings
 * nothing for TB_TURN_PATIENCE and two round trips has had its turn. Then it is the turn of the
 * peer that waits longest. So two sites that draw from each other, and have nothing, come to the
 * peer that has it, and a dumb peer holds up nobody. Chunks that were on their way when the turn
 * passed are lost. Bytes are counted, so a large chunk on a slow path is no silence.
 *
 * Promise P6. Kept by tests/unit/wan/sender_turn.c and sim/world. */
#ifndef TB_WAN_TURN_H
#define TB_WAN_TURN_H

#include <stdbool.h>

#include "base/time.h"

#define TB_TURN_PATIENCE TB_SECONDS(2)

struct tb_turn {         /* of one peer with one version; zeroed before use */
    tb_time_ns begun_at; /* 0: never */
    tb_time_ns moved_at;
    uint64_t came;
};

/* Also if the attempt comes to nothing: the next one is another's. */
void tb_turn_begin(struct tb_turn *t, tb_time_ns now);
/* `came`: a sum that changes whenever a byte comes from the peer, or a chunk from anywhere. */
void tb_turn_came(struct tb_turn *t, uint64_t came, tb_time_ns now);
/* Of one that sends: it has had its turn. */
bool tb_turn_over(const struct tb_turn *t, tb_time_ns rtt, tb_time_ns now);
/* Of two that wait: is it `a` before `b`? */
bool tb_turn_before(const struct tb_turn *a, const struct tb_turn *b);

#endif
