/* segment.h - how large the segments of a link's connections may be: a path on which small
 * packets pass and large ones vanish without a word (an MTU black hole) is told from one that
 * is cut or slow. Pure.
 *
 * A stalled connection is one whose full segments go again and again and are never acknowledged,
 * while a heartbeat that was sent meanwhile is answered. One such connection may have a fault of
 * its own (one of several paths, a stopped reader's machine), so two in a row, without a full
 * segment that arrives between them, make the size guilty. Once a size was found guilty, one
 * connection is enough for the next.
 *
 * A path may be mended. So after a while the path's own size is tried again, and where one
 * connection stalls, what passed before counts at once, and the next trial is twice as far away, up
 * to TB_SEGMENT_AGAIN_MAX. */
#ifndef TB_WAN_SEGMENT_H
#define TB_WAN_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/time.h"

#define TB_SEGMENT_BYTES_MIN 536u   /* what every host takes */
#define TB_SEGMENT_BYTES_MAX 65495u /* of the largest IP packet */
#define TB_SEGMENT_STEPS     4u
#define TB_SEGMENT_AGAIN_MIN                                                                                 \
    TB_SECONDS(600) /* a trial stalls a connection for some seconds where the path is not mended */
#define TB_SEGMENT_AGAIN_MAX (64 * TB_SEGMENT_AGAIN_MIN)

struct tb_segment {
    uint32_t bytes_max;  /* of new connections (TCP_MAXSEG); 0: the path's own */
    uint32_t from;       /* the size that did not arrive; 0: none is known */
    uint32_t stalled;    /* connections in a row */
    bool proven;         /* else it is only tried */
    uint32_t back;       /* the path's own size is tried again: what passed before; 0: it is not */
    tb_time_ns wait;     /* until the next trial; 0: the least */
    tb_time_ns again_at; /* 0: no look was taken since */
};

/* The `steps`-th size below `bytes`; 0 is the path's own, above all. The last one for more
 * steps than there are. */
uint32_t tb_segment_below(uint32_t bytes, uint32_t steps);
/* A connection whose segments have so many bytes is stalled. True: bytes_max is
 * lower now, and proven. */
bool tb_segment_stalled(struct tb_segment *s, uint32_t bytes);
/* Full segments arrived. */
void tb_segment_moved(struct tb_segment *s);
/* True: it is time for a trial. The path's own size is the one of new connections from now on. */
bool tb_segment_again(struct tb_segment *s, tb_time_ns now);
/* The same now: the maker of the connections tries. */
void tb_segment_try_own(struct tb_segment *s);
/* The peer, or a handshake, says that no more than this passes. True: that is lower
 * than before, or new. */
bool tb_segment_told(struct tb_segment *s, uint32_t bytes);

#endif
