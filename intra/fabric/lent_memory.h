/* lent_memory.h - memory that a reader makes and lends to its source, so that the source copies
 * bytes into it. For sources whose memory the reader may not read by itself. A shell.
 *
 * Both ends have it mapped, and neither trusts the other. It can neither shrink nor grow, its pages
 * are all there, and none can be taken out of it once it is held: so no access to it can end a
 * process (SIGBUS). No third mapping that writes can be made. But either end may change its bytes
 * at any time: a reader copies them out once, and judges its copy. */
#ifndef TB_INTRA_LENT_MEMORY_H
#define TB_INTRA_LENT_MEMORY_H

#include <stdint.h>

#include "tombolo/status.h"

#define TB_LENT_BYTES_MAX ((uint64_t)64 << 20)  /* of one: two of the largest chunks */
#define TB_LENT_ALL_MAX   ((uint64_t)256 << 20) /* that one process lends at a time, and that it is lent */

struct tb_lent_memory {
    uint8_t *bytes; /* NULL: none */
    uint64_t count;
    int fd; /* the reader's, until it holds it; else -1 */
};

/* The reader: its pages are made now. TB_BAD_ARGUMENT: 0 bytes, or more than TB_LENT_BYTES_MAX;
 * TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_lent_memory_make(uint64_t count, struct tb_lent_memory *memory_out);
/* The source: maps what a reader sent, and holds it. The descriptor stays the caller's.
 * TB_PEER_GARBLED: it is not as tb_lent_memory_make makes it; TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_lent_memory_take(int fd, uint64_t count, struct tb_lent_memory *memory_out);
/* The reader, once the source has mapped it: from here on its pages stay. Closes the descriptor.
 * TB_PEER_GARBLED: the source made that impossible. */
TB_MUST_USE enum tb_status tb_lent_memory_hold(struct tb_lent_memory *memory);
void tb_lent_memory_close(struct tb_lent_memory *memory); /* and zeroes it; a zeroed one is fine */

#endif
