/* source_division_table.h - the divider's bitmaps, for source_division.c alone: it decides, and
 * every change of a chunk's holders and of its taker is made here, so that the sums in struct
 * tb_divide are right. Pure. */
#ifndef TB_WAN_DIVIDE_TABLE_H
#define TB_WAN_DIVIDE_TABLE_H

#include "wan/send/source_division.h"

/* A word of a shard's bitmaps, and which of its bits are meant. */
struct tb_divide_at {
    struct tb_divide_shard *shard;
    uint32_t word;
    uint64_t mask;
};

/* Of the chunks that `word` says in word w. */
uint64_t tb_divide_bytes_of(const struct tb_divide_shard *shard, uint32_t w, uint64_t word);

/* ---- the order in which chunks are given ---- */

/* Chunks of the version, counted through all shards. */
struct tb_divide_stretch {
    uint64_t first, end;
};

/* From one chunk on and around: of the two stretches the second may be empty. */
struct tb_divide_around {
    struct tb_divide_stretch one, two;
};

struct tb_divide_around tb_divide_ours(const struct tb_divide *d); /* our lane's share; without lanes, all */
struct tb_divide_around tb_divide_theirs(const struct tb_divide *d);

/* A task for words of chunks. */
struct tb_divide_task {
    uint32_t source, victim;
    uint64_t most_bytes;  /* the source is given */
    uint64_t least_bytes; /* the victim keeps */
    tb_time_ns now;
};
/* False: enough. */
typedef bool tb_divide_word_fn(struct tb_divide *d, const struct tb_divide_at *at,
                               const struct tb_divide_task *t);

/* From the first word on, or from the last back. True: to the end. */
bool tb_divide_up(struct tb_divide *d, struct tb_divide_around all, tb_divide_word_fn *fn,
                  const struct tb_divide_task *t);
bool tb_divide_down(struct tb_divide *d, struct tb_divide_around all, tb_divide_word_fn *fn,
                    const struct tb_divide_task *t);

/* ---- changes ---- */

/* The chunks of `word` are the task's source's. */
void tb_divide_give(struct tb_divide *d, const struct tb_divide_at *at, uint64_t word,
                    const struct tb_divide_task *t);
/* The chunks of `word` that are this source's are nobody's again. */
void tb_divide_take_back(struct tb_divide *d, uint32_t source, struct tb_divide_shard *shard, uint32_t w,
                         uint64_t word);
void tb_divide_take_back_all(struct tb_divide *d, uint32_t source);
/* Another lane fell silent, or is heard again: what may be had from there is another. */
void tb_divide_see_all_near(struct tb_divide *d);
/* Counts the chunks that the places hold by now, and the source of each. */
void tb_divide_count_came(struct tb_divide *d, tb_time_ns now);

#endif
