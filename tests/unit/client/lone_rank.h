/* lone_rank.h - a rank that has registered one tensor of its memory, over a fake gateway. */
#ifndef TB_TESTS_LONE_RANK_H
#define TB_TESTS_LONE_RANK_H

#include "unit/client/fake_inside.h"

#define LONE_RANK_BYTES 2500000u

struct lone_rank {
    struct fake f;
    struct tb_session *s;
    uint8_t *memory;
    struct tb_registration *r;
    struct tb_publish_info info;
};

void lone_rank_open(struct lone_rank *w);
void lone_rank_open_draining(struct lone_rank *w, uint32_t drain_ms);
void lone_rank_close(struct lone_rank *w);
/* Seals version 1 in place; `info` says of its last shard. */
void lone_rank_seal(struct lone_rank *w);
void lone_rank_seal_shards(struct lone_rank *w, uint32_t count);
/* The drain of the last UNPUBLISH, and whether it said that the memory does not come back. */
uint32_t lone_rank_said(struct lone_rank *w);
bool lone_rank_said_gone(struct lone_rank *w);

#endif
