/* memory_pieces.c - threads make the pages of a memory together: one counter hands out its
 * pieces, also to two jobs at a time. */
#include "intra/client/memory/memory_pieces.h"

#include <stddef.h>

#include "base/assert.h"

static uint32_t piece_count(const struct tb_memory_pieces *p)
{
    return TB_SHARED_PIECES(p->memory.count);
}

uint32_t tb_pieces_left(const struct tb_memory_pieces *p)
{
    const uint32_t next = atomic_load(&p->next), count = piece_count(p);
    return next < count ? count - next : 0;
}

uint64_t tb_pieces_made_bytes(const struct tb_memory_pieces *p)
{
    if (tb_pieces_left(p) == 0) return p->memory.count;
    return atomic_load(&p->next) * TB_SHARED_PIECE_BYTES;
}

/* The crew's number of the piece is not looked at: another job takes pieces of the same memory. */
static void fill_next(void *user, uint32_t piece, uint32_t slot)
{
    (void)piece, (void)slot;
    struct tb_memory_pieces *p = user;
    if (atomic_load(&p->stop) || atomic_load(&p->failed)) return;
    const uint32_t next = atomic_fetch_add(&p->next, 1);
    if (next >= piece_count(p)) return;
    if (tb_shared_memory_fill(&p->memory, next) != TB_OK) atomic_store(&p->failed, true);
}

void tb_pieces_fill(struct tb_crew *crew, struct tb_memory_pieces *p)
{
    TB_ASSERT(p->memory.bytes != NULL);
    const uint32_t left = tb_pieces_left(p);
    if (left > 0) tb_crew_run(crew, left, fill_next, p);
}

void tb_pieces_fill_between(struct tb_crew *crew, struct tb_memory_pieces *p, uint32_t most)
{
    TB_ASSERT(p->memory.bytes != NULL && most > 0);
    const uint32_t left = tb_pieces_left(p), count = left < most ? left : most;
    const uint32_t run = tb_crew_run_between(crew, count, fill_next, p);
    TB_ASSERT(run <= count);
}
