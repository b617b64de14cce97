/* objects.h - encoded chunks, made once: of a version on a base, kept for other links. A shell: a lock and a heap.
 *
 * A stream that encodes a chunk on a base puts it here, and so does one that landed it: a relay forwards it as it came. The
 * name says of which base it is, so it fits every peer that holds that base. What is kept stays under a budget and under 16
 * pairs of version and base; the oldest pair goes first, with all that it has. Forms on no base are not kept: they are the
 * size of the version, and the second peer of a full copy is rare.
 *
 * Threads: any. An object that was found stays until it is given back, whatever leaves the table. */
#ifndef TB_WAN_OBJECTS_H
#define TB_WAN_OBJECTS_H

#include "wan/feed.h"

#define TB_OBJECTS_PAIRS_MAX 16u

struct tb_objects;
struct tb_object;

/* Memory of at most so many bytes, tables included. TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_objects_new(uint64_t budget_bytes, struct tb_objects **objects_out);
void tb_objects_free(struct tb_objects *o); /* every object was given back; NULL is fine */

struct tb_object_name {
    const struct tb_share *share, *base; /* of the version, of its base */
    uint32_t shard, chunk;
};
/* Referenced; NULL: not here. */
struct tb_object *tb_objects_find(struct tb_objects *o, const struct tb_object_name *name);
/* Copies it in. Nothing happens where there is one already, the budget does not allow it, or memory lacks. */
void tb_objects_put(struct tb_objects *o, const struct tb_object_name *name,
                    const struct tb_codec_coded *coded);
/* That version is served here no more. */
void tb_objects_drop(struct tb_objects *o, const struct tb_id *uid);

struct tb_codec_coded tb_object_coded(const struct tb_object *object);
void tb_object_unref(struct tb_objects *o, struct tb_object *object);

struct tb_objects_stats {
    uint64_t bytes, budget_bytes;
    uint64_t count; /* of objects */
    uint32_t pairs;
    uint64_t used; /* found instead of encoded again */
};
void tb_objects_stats(struct tb_objects *o, struct tb_objects_stats *stats_out); /* NULL: all zero */

#endif
