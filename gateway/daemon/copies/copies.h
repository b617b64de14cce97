/* copies.h - this gateway's copy of a version: its region, who may read it, and giving it back. */
#ifndef TB_DAEMON_COPIES_H
#define TB_DAEMON_COPIES_H

#include "gateway/catalog/arena_copy.h"

struct tb_copy;
struct tb_daemon;

/* Everything in the arena becomes a copy again, and the catalog hears of it. */
void tb_copies_restore(struct tb_daemon *d);
/* Exports and offers it, where its region is complete. */
void tb_copy_serve(struct tb_copy *copy);
void tb_copy_evict(struct tb_copy *copy, enum tb_status why);
/* Its version ended. Where nothing of it has a place here, the next tick frees it. */
void tb_copy_ended(struct tb_copy *copy, enum tb_status why);
/* Bitmaps to the catalog; retries. True while something is on its way. */
bool tb_copies_tick(struct tb_daemon *d);
/* Tells the catalog now which chunks are here. A caller does so before the catalog hears that a
 * holder of a version goes or gave it up: else it would call the version lost for chunks that
 * landed since the last tick. */
void tb_copies_look(struct tb_daemon *d);
/* Tells the catalog now which chunks were found damaged: when the verifier wakes this loop, and
 * before a rank takes back memory that has the missing chunk. */
void tb_copies_rotted(struct tb_daemon *d);
void tb_copies_free(struct tb_daemon *d);
/* `bytes` did not fit in one piece: the catalog may evict versions for them
 * (tb_catalog_make_room). */
TB_MUST_USE enum tb_status tb_copies_make_room(struct tb_daemon *d, uint64_t bytes,
                                               struct tb_catalog_room *room_out);

#endif
