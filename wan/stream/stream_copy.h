/* stream_copy.h - chunks of a base: found for one that decodes, and copied where they are the same.
 * Internal to wan. */
#ifndef TB_WAN_STREAM_COPY_H
#define TB_WAN_STREAM_COPY_H

#include "wan/stream/stream.h"

/* The same chunk of the base, or NULL: none fits, it is not held, not to be trusted, or the
 * base was taken back. */
const uint8_t *tb_stream_base_chunk(const struct tb_stream_trust *trust, const struct tb_shared_places *share,
                                    const struct tb_shared_places *base, uint32_t shard, uint32_t chunk);

/* stream_copy.c: the chunks of a landing that are the same in its base are made here, by one loop
 * each `part` of `parts`. */
struct tb_stream_copy {
    struct tb_stream_copy *next;
    struct tb_feed *feed;
    uint32_t crossing;
    struct tb_shared_places *share, *base; /* referenced */
    struct tb_stream_trust trust;
    uint32_t part, parts;
    uint32_t shard, chunk; /* to be looked at next */
};
void tb_stream_copy_free(struct tb_stream_copy *copy); /* and lets go of its references */
/* On the loop. At most `budget` bytes. COPIED: all is done, or was taken back. WAITS: until the
 * main loop took its notes. */
enum tb_stream_copied { TB_STREAM_COPIED, TB_STREAM_COPY_MORE, TB_STREAM_COPY_WAITS };
enum tb_stream_copied tb_stream_copy_step(struct tb_stream_copy *copy, uint64_t budget);

#endif
