/* rate_cap.h - so many bytes a second, whichever of a link's streams sends them: each piece has a
 * time from which it may go.
 *
 * Pure: the time is passed in. Pieces follow each other at the rate; a late one may be caught up
 * with for TB_CAP_BURST, so that a timer's tardiness costs nothing and in no second more goes than
 * the rate and 2 %: the burst and one piece. */
#ifndef TB_WAN_CAP_H
#define TB_WAN_CAP_H

#include <stdint.h>

#include "base/time.h"

#define TB_CAP_BURST           TB_MS(10)
#define TB_CAP_PIECE           TB_MS(4) /* a piece takes so long, within the two bounds below */
#define TB_CAP_PIECE_BYTES     (64u << 10)
#define TB_CAP_PIECE_BYTES_MIN 1024u

struct tb_cap {
    uint64_t bytes_per_s; /* 0: no limit */
    tb_time_ns next_at;   /* when the next piece may go, if nothing is to be caught up with */
};

/* The price of packets: a limit that is bought counts them, not our bytes. */
struct tb_cap_price {
    uint32_t segment_bytes; /* of a packet that are the connection's */
    uint32_t header_bytes;  /* of each packet */
};
/* Of so many bytes written at once: with the records of TLS and the packets of TCP. */
uint64_t tb_cap_wire_bytes(const struct tb_cap_price *price, uint32_t bytes);

/* Also while pieces wait: they keep their times. */
void tb_cap_set(struct tb_cap *c, uint64_t bytes_per_s, tb_time_ns now);
/* Bytes of a piece; UINT32_MAX without a limit. */
uint32_t tb_cap_piece(const struct tb_cap *c);
/* A piece of so many bytes: from when on it may go, maybe already. */
tb_time_ns tb_cap_reserve(struct tb_cap *c, uint64_t bytes, tb_time_ns now);
/* These went without having been asked for: what TCP sent again. */
void tb_cap_charge(struct tb_cap *c, uint64_t bytes, tb_time_ns now);

#endif
