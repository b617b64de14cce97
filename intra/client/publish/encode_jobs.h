/* encode_jobs.h - work that a pass leaves for after it. In background, each chunk of a version is
 * encoded as a delta against the version before, which the other shadow still has, onto a shelf
 * that readers look at (base/layout/shelf.h). A shell.
 *
 * First chunk first, a batch at a time over the crew, so tasks that wait for the crew go in
 * between, and a pass goes first: of another shard, say. The trainer waits for none of it. A call
 * that takes one of the shadows ends it, after the chunks in hand, and a chunk without an entry by
 * then comes whole. So does a chunk whose delta is not much smaller. A version where no delta is
 * smaller is given up early.
 *
 * Threads: begin and end are the owner's. */
#ifndef TB_INTRA_CLIENT_ENCODE_JOBS_H
#define TB_INTRA_CLIENT_ENCODE_JOBS_H

#include "base/layout/manifest.h"
#include "base/layout/shelf.h"
#include "intra/client/memory/thread_crew.h"

struct tb_encoding;

struct tb_encoding_task {
    const struct tb_manifest *manifest;
    /* packed; of the version and of the one before, whose cut is the same */
    const uint8_t *bytes, *base;
    unsigned classes;       /* 1 to 16: codec.h */
    struct tb_shelf *shelf; /* open; closed when there is nothing more to come */
};
/* All that the task names stays until tb_encoding_end has returned. TB_SITE_NOMEM: the shelf is
 * closed. */
TB_MUST_USE enum tb_status tb_encoding_begin(struct tb_crew *crew, const struct tb_encoding_task *task,
                                             struct tb_encoding **encoding_out);
/* Where it is. The shelf is closed then. NULL is fine. */
void tb_encoding_end(struct tb_encoding *encoding);

#endif
