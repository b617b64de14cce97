/* outbound_parcels.h - parcels of one version's way over one link: the next one, and what became of
 * those that were given. Pure. */
#ifndef TB_WAN_OUTBOUND_PARCELS_H
#define TB_WAN_OUTBOUND_PARCELS_H

#include <stdbool.h>
#include <stdint.h>

#include "wan/send/outbound.h"

#define TB_PARCEL_BYTES_MIN (256u << 10) /* closed once it has so many bytes */
/* and before the next chunk takes it over this; a larger single chunk goes alone */
#define TB_PARCEL_BYTES_MAX  (1u << 20)
#define TB_PARCEL_CHUNKS_MAX 256u

struct tb_parcel {
    uint32_t shard;
    uint32_t first; /* index */
    uint32_t count; /* chunks */
    uint64_t bytes; /* raw */
    bool plain;     /* its chunks go whole, not as deltas */
};

/* The next parcel, now queued; false when nothing can be sent at the moment. */
bool tb_outbound_next(struct tb_outbound *c, struct tb_parcel *parcel_out);
/* A stream took a queued parcel: until it is gone its chunks are on their way. */
void tb_outbound_taken(struct tb_outbound *c, const struct tb_parcel *parcel, uint32_t slot);
/* The parcel is on its way and goes again, on another stream (hedge.h): queued a second time. */
void tb_outbound_again(struct tb_outbound *c, const struct tb_parcel *parcel);
/* Chunks of a parcel that the peer does not hold yet. */
uint32_t tb_outbound_left(const struct tb_outbound *c, const struct tb_parcel *parcel);
/* The parcel from the first of them to the last; false: it holds all. */
bool tb_outbound_rest(const struct tb_outbound *c, const struct tb_parcel *parcel,
                      struct tb_parcel *rest_out);
/* Every chunk is held by the peer, made there, queued or on a stream: nothing is left to send, and
 * nothing more will come to be. */
bool tb_outbound_all_on_their_way(const struct tb_outbound *c);
/* A queued parcel goes back without having been taken. */
void tb_outbound_unqueued(struct tb_outbound *c, const struct tb_parcel *parcel);
/* Both ends of the stream are closed and the peer's HELD of what it brought is here: the rest is
 * sent again, but for what goes by another stream too. How many chunks that is. */
uint32_t tb_outbound_stream_gone(struct tb_outbound *c, uint32_t slot);

#endif
