/* encoded_chunks_chain.h - chained deltas that are kept: which versions' digests are known, and the
 * deltas that lead from one of them to another. Threads: any. */
#ifndef TB_WAN_ENCODED_CHUNKS_CHAIN_H
#define TB_WAN_ENCODED_CHUNKS_CHAIN_H

#include "wan/send/encoded_chunks.h"

struct tb_known;

#define TB_ENCODED_CHUNKS_KNOWN_MAX 64u /* versions whose digests are known, gone ones too */

/* The digests of its chunks are known from now on, also once it has left. They stay under a
 * quarter of the budget and TB_ENCODED_CHUNKS_KNOWN_MAX; the oldest goes first. */
void tb_encoded_chunks_know(struct tb_encoded_chunks *o, const struct tb_version_key *key,
                            const struct tb_place *places);
/* A version of that model, referenced; NULL: not known. Its places have the cut and the digests, no
 * bytes, and nothing is held there. */
struct tb_known *tb_encoded_chunks_recall(struct tb_encoded_chunks *o, const struct tb_id *uid,
                                          const struct tb_name *model);
const struct tb_place *tb_known_places(const struct tb_known *known, uint32_t *shard_count_out);
void tb_known_unref(struct tb_encoded_chunks *o, struct tb_known *known);
/* The chained deltas that lead from the base's chunk to the version's, in the fewest bytes; both
 * versions are known. How many, each referenced; together they hold TB_CODEC_CHAINED_MAX deltas at
 * most. 0: none lead there. */
unsigned tb_encoded_chunks_chain(struct tb_encoded_chunks *o, const struct tb_encoded_chunk_name *name,
                                 struct tb_encoded_chunk *encoded_chunks_out[TB_CODEC_CHAINED_MAX]);

#endif
