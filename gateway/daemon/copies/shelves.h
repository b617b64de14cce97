/* shelves.h - a thread that fills shelves: chunks that have landed, encoded on an older version,
 * for the workers that hold it. A shell.
 *
 * A delta to that version that a rank or a link encoded, or is about to, goes onto the shelf as it
 * came. The other chunks are encoded here, one at a time, the newest version first; so a shelf
 * follows its version while it fills. A chunk that does not get much smaller, or finds no room,
 * gets an entry that says so, and comes whole.
 *
 * Threads: all calls are for one thread, the owner's. The work's memory stays until
 * tb_shelves_work_end has returned, which waits for the chunk in hand, 16 MiB at most. */
#ifndef TB_DAEMON_SHELVES_H
#define TB_DAEMON_SHELVES_H

#include "base/layout/place.h"
#include "base/layout/shelf.h"
#include "wan/send/encoded_chunks.h"

struct tb_shelves;
struct tb_shelf_work;

/* TB_SITE_NOMEM: no thread or no memory. */
TB_MUST_USE enum tb_status tb_shelves_open(struct tb_shelves **shelves_out);
/* All work has ended; NULL is fine. */
void tb_shelves_close(struct tb_shelves *shelves);

struct tb_shelf_task {
    struct tb_shelf *shelf;                   /* opened by this, and closed when every chunk has its entry */
    struct tb_encoded_chunks *encoded_chunks; /* encoded elsewhere; NULL: none are kept */
    struct tb_id uid, base;
    uint32_t shard_count;
    const struct tb_place *const *places; /* copied; of the version, and of the base, which is whole */
    const struct tb_place *const *bases;
};
TB_MUST_USE enum tb_status tb_shelves_work_begin(struct tb_shelves *shelves, const struct tb_shelf_task *task,
                                                 struct tb_shelf_work **work_out);
/* The shelf is closed then. NULL is fine. */
void tb_shelves_work_end(struct tb_shelf_work *work);

struct tb_shelves_stats {
    uint64_t chunks;    /* with an encoded form */
    uint64_t forwarded; /* of those, as they came from a rank or a link */
    uint64_t raw_bytes; /* of those, and */
    uint64_t bytes;     /* encoded */
    uint64_t without;   /* chunks that got no encoded form */
};
void tb_shelves_stats(struct tb_shelves *shelves, struct tb_shelves_stats *stats_out); /* NULL: all zero */

#endif
