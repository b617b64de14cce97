/* memory_pieces.h - the pages of one memory of ours, made piece by piece on several threads. */
#ifndef TB_INTRA_CLIENT_MEMORY_PIECES_H
#define TB_INTRA_CLIENT_MEMORY_PIECES_H

#include <stdatomic.h>
#include <stdbool.h>

#include "intra/client/memory/thread_crew.h"
#include "intra/fabric/shared_memory.h"

/* Each thread takes the next piece. Zero with a memory of tb_shared_memory_open: none is made. */
struct tb_memory_pieces {
    struct tb_shared_memory memory;
    _Atomic uint32_t next;
    atomic_bool failed; /* there was no room for one */
    atomic_bool stop;   /* nobody wants it any more */
};

/* That no thread has taken yet. */
uint32_t tb_pieces_left(const struct tb_memory_pieces *pieces);
/* In those that were taken. */
uint64_t tb_pieces_made_bytes(const struct tb_memory_pieces *pieces);
/* All that are left, on all threads of the crew, or until one has failed. */
void tb_pieces_fill(struct tb_crew *crew, struct tb_memory_pieces *pieces);
/* At most so many of them, giving way as tb_crew_run_between does. */
void tb_pieces_fill_between(struct tb_crew *crew, struct tb_memory_pieces *pieces, uint32_t most);

#endif
