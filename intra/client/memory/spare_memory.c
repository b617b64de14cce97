/* spare_memory.c - memory that a version leaves to the next one of its model: its pages stand, and
 * are mapped and pinned. */
#include "intra/client/memory/spare_memory.h"

#include "base/assert.h"
#include "intra/client/memory/buffers.h"
#include "intra/client/session/session.h"

static struct tb_shared_memory take_memory(struct tb_shared_memory *from)
{
    const struct tb_shared_memory taken = *from;
    *from = (struct tb_shared_memory){.memfd = -1};
    return taken;
}

/* The newest is kept: a model whose layout has changed needs the new size. */
struct tb_shared_memory tb_spare_keep(struct tb_spare *spare, const struct tb_name *model,
                                      struct tb_shared_memory *memory)
{
    TB_ASSERT(memory->bytes != NULL && memory->memfd >= 0);
    const struct tb_shared_memory before = take_memory(&spare->memory);
    *spare = (struct tb_spare){.memory = take_memory(memory), .model = *model};
    return before;
}

bool tb_spare_take(struct tb_session *s, struct tb_spare *spare, const struct tb_spare_wish *wish,
                   struct tb_shared_memory *memory_out)
{
    TB_ASSERT_UNLOCKED(s);
    TB_ASSERT(wish->bytes > 0);
    tb_session_lock(s);
    const bool ours = spare->memory.bytes != NULL && tb_name_equal(&spare->model, wish->model);
    struct tb_shared_memory memory = {.memfd = -1};
    if (ours) memory = take_memory(&spare->memory);
    tb_session_unlock(s);
    const bool fits = ours && memory.count >= wish->bytes && memory.count <= TB_SPARE_MOST(wish->bytes);
    if (fits)
        *memory_out = memory;
    else
        tb_buffer_memory_free(s, &memory);
    return fits;
}

/* Giving back pages takes a third of a second a GiB, and the lock's owner keeps the session from
 * renewing its lease. */
void tb_spare_drop(struct tb_session *s, struct tb_spare *spare)
{
    TB_ASSERT_LOCKED(s);
    struct tb_shared_memory memory = take_memory(&spare->memory);
    if (memory.bytes == NULL) return;
    tb_session_unlock(s);
    tb_buffer_memory_free(s, &memory);
    tb_session_lock(s);
}
