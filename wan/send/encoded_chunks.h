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
#ifndef TB_WAN_OBJECTS_H
#define TB_WAN_OBJECTS_H

#include "base/codec/codec.h"
#include "base/ident.h"
#include "base/layout/place.h"
#include "base/time.h"

#define TB_OBJECTS_PAIRS_MAX 64u        /* the last 16 versions, on four bases or of four models */
#define TB_OBJECTS_KNOWN_MAX 64u        /* versions whose digests are known, gone ones too */
#define TB_OBJECTS_PATIENCE  TB_MS(500) /* nothing came from a rank: no more is waited for */
/* And in all, of a shard, since it was first said: so long, and as much again for each that came.
 * A core here is faster. */
#define TB_OBJECTS_PATIENCE_WHOLE TB_SECONDS(2)
#define TB_OBJECTS_PATIENCE_EACH  TB_MS(25)

struct tb_objects;
struct tb_object;

/* Memory of at most so many bytes, tables included. TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_objects_new(uint64_t budget_bytes, struct tb_objects **objects_out);
void tb_objects_free(struct tb_objects *o); /* every object was given back; NULL is fine */

struct tb_object_name {
    const struct tb_id *uid, *base; /* of the version, of its base */
    uint32_t shard, chunk;
    uint32_t shard_count; /* of the version */
    uint32_t chunk_count; /* of the shard */
};
/* Referenced; NULL: not here. */
struct tb_object *tb_objects_find(struct tb_objects *o, const struct tb_object_name *name);
enum tb_object_from { TB_OBJECT_MADE_HERE, TB_OBJECT_OF_RANK, TB_OBJECT_OF_LINK, TB_OBJECT_FROMS };
struct tb_object_news {
    enum tb_object_from from;           /* who made it, or brought it; counted, kept or not */
    const struct tb_codec_coded *coded; /* on its base; NULL: it is known that there will be none */
    tb_time_ns now;
};
/* Copies it in. Nothing is kept where there is one already, the budget does not allow
 * it, or memory lacks. */
void tb_objects_put(struct tb_objects *o, const struct tb_object_name *name,
                    const struct tb_object_news *news);
/* A peer that decoded it says that it is wrong: it goes, and is made again by the next link that
 * wants it. One that was made here stays, unless its bytes are not those that were kept: a liar
 * would have it encoded again and again, for all others too. Where there is none, the chained
 * deltas that lead to the chunk (tb_objects_steps) were wrong. */
void tb_objects_bad(struct tb_objects *o, const struct tb_object_name *name);
/* That version is not to be had any more: withdrawn, broken or lost. A version that only left this
 * site to make room stays known, and its deltas stay. */
void tb_objects_drop(struct tb_objects *o, const struct tb_id *uid);

/* A rank makes the encoded chunks of this shard, and puts them here (the name's chunk does not
 * count); or does so no more. */
void tb_objects_coming(struct tb_objects *o, const struct tb_object_name *name, bool coming, tb_time_ns now);
/* The bits of the shard's chunks whose deltas are still to come. False: none is, and words_out is
 * as it was. */
bool tb_objects_awaited(struct tb_objects *o, const struct tb_object_name *name, tb_time_ns now,
                        uint64_t *words_out);
/* One of them. */
bool tb_objects_awaits(struct tb_objects *o, const struct tb_object_name *name, tb_time_ns now);

struct tb_codec_coded tb_object_coded(const struct tb_object *object);
enum tb_object_from tb_object_from(const struct tb_object *object);
void tb_object_unref(struct tb_objects *o, struct tb_object *object);

/* The digests of its chunks are known from now on, also once it has left. They stay under a
 * quarter of the budget and TB_OBJECTS_KNOWN_MAX; the oldest goes first. */
void tb_objects_know(struct tb_objects *o, const struct tb_version_key *key, const struct tb_place *places);
/* A version of that model, referenced; NULL: not known. Its places have the cut and the digests, no
 * bytes, and nothing is held there. */
struct tb_known;
struct tb_known *tb_objects_recall(struct tb_objects *o, const struct tb_id *uid,
                                   const struct tb_name *model);
const struct tb_place *tb_known_places(const struct tb_known *known, uint32_t *shard_count_out);
void tb_known_unref(struct tb_objects *o, struct tb_known *known);
/* The chained deltas that lead from the base's chunk to the version's, in the fewest bytes; both
 * versions are known. How many, each referenced; together they hold TB_CODEC_STEPS_MAX deltas at
 * most. 0: none lead there. */
unsigned tb_objects_steps(struct tb_objects *o, const struct tb_object_name *name,
                          struct tb_object *objects_out[TB_CODEC_STEPS_MAX]);

struct tb_object_sum {
    uint64_t count, bytes;
};
struct tb_objects_stats {
    uint64_t bytes, most_bytes, budget_bytes; /* now; at once, as far as anybody looked; at most */
    uint64_t count;                           /* of encoded chunks */
    uint32_t pairs;
    uint32_t known;   /* versions, gone ones too */
    uint64_t used;    /* found instead of encoded again */
    uint64_t joined;  /* chunks to which kept deltas led */
    uint64_t bad;     /* that were said to be wrong, and went */
    uint64_t damaged; /* of those: their bytes are not those that were kept */
    struct tb_object_sum from[TB_OBJECT_FROMS];
};
/* Asserts what holds of the tables between two calls. It looks at each row. */
void tb_objects_check(struct tb_objects *o);
/* So few that each turn can afford the check. */
#define TB_OBJECTS_FEW 256u
bool tb_objects_are_few(struct tb_objects *o);
void tb_objects_stats(struct tb_objects *o, struct tb_objects_stats *stats_out); /* NULL: all zero */

#endif
