/* sent_counters.h - what was put on streams of one version, to all peers together: bytes, in which
 * ways, and how much of it a second time.
 *
 * A chunk counts when its frame is begun, with its header. "Again" is what had been begun to the
 * same peer before, in whatever session: hedges, what was on a stream that broke, what was refused.
 * So with what TCP sends again beside it (`tombolo streams`), nothing goes twice unseen.
 *
 * Threads: any; new and free: the owner's, when nobody else has it. */
#ifndef TB_WAN_SENT_H
#define TB_WAN_SENT_H

#include <stdint.h>

#include "tombolo/status.h"
#include "wan/send/codec_choice.h"

struct tb_sent;

struct tb_sent_chunk {
    uint32_t peer;  /* below the peers given to new */
    uint32_t chunk; /* of all shards in turn; below the chunks given to new */
    uint32_t raw_bytes, frame_bytes;
    enum tb_choice_way way;
};

struct tb_sent_sum {
    uint64_t raw_bytes;          /* what the chunks are when decoded */
    uint64_t bytes, again_bytes; /* frames; of them, a second time */
    uint64_t chunks[TB_WAYS];
};

struct tb_sent *tb_sent_new(uint32_t peers, uint32_t chunks); /* NULL: no memory */
void tb_sent_free(struct tb_sent *s);                         /* NULL is fine */
void tb_sent_add(struct tb_sent *s, const struct tb_sent_chunk *c);
void tb_sent_look(const struct tb_sent *s, struct tb_sent_sum *sum_out);

#endif
