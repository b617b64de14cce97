/* encoded_chunks.h - encoded chunks, made once: deltas of a version on a base, kept for other
 * links and for readers. A shell: a lock and a heap.
 *
 * A gateway that encodes a chunk on a base puts it here. So does one that got it encoded, from its
 * publisher or over a link: a relay forwards it as it came. The name says which base, so it fits
 * every peer that holds that base.
 *
 * The table stays under a budget and under 64 pairs of version and base. The oldest pair goes
 * first, with all that it has. Forms on no base are not kept: they are the size of the version,
 * and the second peer of a full copy is rare.
 *
 * A version may leave, and its deltas stay. By them a peer that stands on it gets to a newer one,
 * chained.
 *
 * Encoded chunks may be on their way. Then a reader waits for one while they keep coming, sooner
 * than to make it a second time.
 *
 * Threads: any. An encoded chunk that was found stays until it is given back, also where its pair
 * leaves the table. */
#ifndef TB_WAN_ENCODED_CHUNKS_H
#define TB_WAN_ENCODED_CHUNKS_H

#include "base/codec/codec.h"
#include "base/ident.h"
#include "base/layout/place.h"
#include "base/time.h"

#define TB_ENCODED_CHUNKS_PAIRS_MAX 64u        /* the last 16 versions, on four bases or of four models */
#define TB_ENCODED_CHUNKS_PATIENCE  TB_MS(500) /* nothing came from a rank: no more is waited for */
/* And in all, of a shard, since it was first said: so long, and as much again for each that came.
 * A core here is faster. */
#define TB_ENCODED_CHUNKS_PATIENCE_WHOLE TB_SECONDS(2)
#define TB_ENCODED_CHUNKS_PATIENCE_EACH  TB_MS(25)

struct tb_encoded_chunks;
struct tb_encoded_chunk;

/* Memory of at most so many bytes, tables included. TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_encoded_chunks_new(uint64_t budget_bytes,
                                                 struct tb_encoded_chunks **encoded_chunks_out);
/* every encoded chunk was given back; NULL is fine */
void tb_encoded_chunks_free(struct tb_encoded_chunks *o);

struct tb_encoded_chunk_name {
    const struct tb_id *uid, *base; /* of the version, of its base */
    uint32_t shard, chunk;
    uint32_t shard_count; /* of the version */
    uint32_t chunk_count; /* of the shard */
};
/* Referenced; NULL: not here. */
struct tb_encoded_chunk *tb_encoded_chunks_find(struct tb_encoded_chunks *o,
                                                const struct tb_encoded_chunk_name *name);
enum tb_encoded_chunk_from {
    TB_ENCODED_CHUNK_MADE_HERE,
    TB_ENCODED_CHUNK_OF_RANK,
    TB_ENCODED_CHUNK_OF_LINK,
    TB_ENCODED_CHUNK_FROMS
};
struct tb_encoded_chunk_news {
    enum tb_encoded_chunk_from from;    /* who made it, or brought it; counted, kept or not */
    const struct tb_codec_coded *coded; /* on its base; NULL: it is known that there will be none */
    tb_time_ns now;
};
/* Copies it in. Nothing is kept where there is one already, the budget does not allow
 * it, or memory lacks. */
void tb_encoded_chunks_put(struct tb_encoded_chunks *o, const struct tb_encoded_chunk_name *name,
                           const struct tb_encoded_chunk_news *news);
/* A peer that decoded it says that it is wrong: it goes, and is made again by the next link that
 * wants it. One that was made here stays, unless its bytes are not those that were kept: a liar
 * would have it encoded again and again, for all others too. Where there is none, the chained
 * deltas that lead to the chunk (tb_encoded_chunks_chain) were wrong. */
void tb_encoded_chunks_bad(struct tb_encoded_chunks *o, const struct tb_encoded_chunk_name *name);
/* That version is not to be had any more: withdrawn, broken or lost. A version that only left this
 * site to make room stays known, and its deltas stay. */
void tb_encoded_chunks_drop(struct tb_encoded_chunks *o, const struct tb_id *uid);

/* A rank makes the encoded chunks of this shard, and puts them here (the name's chunk does not
 * count); or does so no more. */
void tb_encoded_chunks_coming(struct tb_encoded_chunks *o, const struct tb_encoded_chunk_name *name,
                              bool coming, tb_time_ns now);
/* The bits of the shard's chunks whose deltas are still to come. False: none is, and words_out is
 * as it was. */
bool tb_encoded_chunks_awaited(struct tb_encoded_chunks *o, const struct tb_encoded_chunk_name *name,
                               tb_time_ns now, uint64_t *words_out);
/* One of them. */
bool tb_encoded_chunks_awaits(struct tb_encoded_chunks *o, const struct tb_encoded_chunk_name *name,
                              tb_time_ns now);

struct tb_codec_coded tb_encoded_chunk_coded(const struct tb_encoded_chunk *encoded);
enum tb_encoded_chunk_from tb_encoded_chunk_from(const struct tb_encoded_chunk *encoded);
void tb_encoded_chunk_unref(struct tb_encoded_chunks *o, struct tb_encoded_chunk *encoded);

struct tb_encoded_chunk_sum {
    uint64_t count, bytes;
};
struct tb_encoded_chunks_stats {
    uint64_t bytes, most_bytes, budget_bytes; /* now; at once, as far as anybody looked; at most */
    uint64_t count;                           /* of encoded chunks */
    uint32_t pairs;
    uint32_t known;   /* versions, gone ones too */
    uint64_t used;    /* found instead of encoded again */
    uint64_t chained; /* chunks to which kept deltas led */
    uint64_t bad;     /* that were said to be wrong, and went */
    uint64_t damaged; /* of those: their bytes are not those that were kept */
    struct tb_encoded_chunk_sum from[TB_ENCODED_CHUNK_FROMS];
};
/* Asserts what holds of the tables between two calls. It looks at each row. */
void tb_encoded_chunks_check(struct tb_encoded_chunks *o);
/* So few that each turn can afford the check. */
#define TB_ENCODED_CHUNKS_FEW 256u
bool tb_encoded_chunks_are_few(struct tb_encoded_chunks *o);
/* NULL: all zero */
void tb_encoded_chunks_stats(struct tb_encoded_chunks *o, struct tb_encoded_chunks_stats *stats_out);

#endif
