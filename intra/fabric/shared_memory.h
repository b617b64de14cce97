/* shared_memory.h - memory of ours that readers on this host may map: an anonymous file that can
 * neither shrink nor grow. A shell.
 *
 * Sealed against shrinking, so no reader ever gets a SIGBUS, and (where the kernel knows it)
 * against new writable mappings, so a reader that is given the descriptor can only read. Kept out
 * of forked children (MADV_DONTFORK). In huge pages where the kernel gives them
 * (base/huge_pages.h). */
#ifndef TB_INTRA_SHARED_MEMORY_H
#define TB_INTRA_SHARED_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "tombolo/status.h"

/* The owner of a device pinned the memory for it; `drop` is called once, while it is mapped. */
struct tb_shared_pin {
    void (*drop)(struct tb_shared_pin *pin, void *bytes);
};

/* As tb_shared_memory_new makes it. Without a memfd (-1) it is its maker's own mapping, or a view
 * into one for a pin's sake: such a one is unpinned, and never freed, here. */
struct tb_shared_memory {
    void *bytes; /* zeroed, page-aligned */
    uint64_t count;
    int memfd;                 /* goes into tb_export_buffer */
    struct tb_shared_pin *pin; /* NULL: nobody */
};

/* `name` is for people (/proc/PID/maps). TB_BAD_ARGUMENT: 0 bytes. TB_SITE_NOMEM: the pages are
 * allocated now, so that a full machine is an answer and not a signal later. */
TB_MUST_USE enum tb_status tb_shared_memory_new(const char *name, uint64_t count,
                                                struct tb_shared_memory *memory_out);
/* The same, but of its pages none is there before tb_shared_memory_fill made it. Takes no time. */
TB_MUST_USE enum tb_status tb_shared_memory_open(const char *name, uint64_t count,
                                                 struct tb_shared_memory *memory_out);
/* Makes the pages of one piece, and maps them. Several threads may, each its own piece: pages of
 * 16 MiB take some 8 ms. TB_SITE_NOMEM: there is no room for them. */
#define TB_SHARED_PIECE_BYTES   ((uint64_t)16 << 20)
#define TB_SHARED_PIECES(count) ((uint32_t)(((count) + TB_SHARED_PIECE_BYTES - 1) / TB_SHARED_PIECE_BYTES))
TB_MUST_USE enum tb_status tb_shared_memory_fill(const struct tb_shared_memory *memory, uint32_t piece);
void tb_shared_memory_free(struct tb_shared_memory *memory); /* and zeroes it; a zeroed one is fine */

/* A part of free; for what is not freed there its owner calls it, while it is mapped. Nothing where
 * nobody has pinned it. */
void tb_shared_memory_unpin(struct tb_shared_memory *memory);

/* Maps [offset, offset + count) of a descriptor that a peer gave us, read-only; keeps no
 * descriptor. TB_PEER_GARBLED: it is not sealed against shrinking or is shorter than that: reading
 * it could kill us. TB_SITE_NOMEM: no room for a mapping. */
struct tb_shared_view {
    const uint8_t *bytes; /* where `offset` stands */
    uint64_t count;
    void *map;
    uint64_t map_bytes;
};
TB_MUST_USE enum tb_status tb_shared_view_open(int fd, uint64_t offset, uint64_t count,
                                               struct tb_shared_view *view_out);
void tb_shared_view_close(struct tb_shared_view *view);

#endif
