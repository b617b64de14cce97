#include "base/scratch_memory.h"

#include "base/allocate.h"
#include "base/assert.h"

bool tb_room_for(struct tb_room *room, size_t bytes)
{
    TB_ASSERT(room->bytes != NULL || room->cap == 0);
    if (room->cap >= bytes) return true;
    tb_room_free(room); /* both never stand at once, and nothing is copied */
    room->bytes = tb_malloc(bytes);
    if (room->bytes == NULL) return false;
    room->cap = bytes;
    return true;
}

void tb_room_free(struct tb_room *room)
{
    tb_free(room->bytes);
    *room = (struct tb_room){NULL, 0};
}
