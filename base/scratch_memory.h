/* scratch_memory.h - memory of one thread's own that grows to the most that was asked of it, for
 * what is made piece by piece. A shell. */
#ifndef TB_BASE_ROOM_H
#define TB_BASE_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A zeroed one is empty. Its bytes are lost when it grows. */
struct tb_room {
    uint8_t *bytes;
    size_t cap;
};

/* At least so many bytes. False: there is no memory, and it is empty. */
bool tb_room_for(struct tb_room *room, size_t bytes);
void tb_room_free(struct tb_room *room); /* and empties it */

#endif
