/* layouts.h - layouts kept by their id, so that all versions of one layout share one table. A
 * shell.
 *
 * Consecutive versions of a model have one layout, and a layout of 100,000 tensors is 24 MB as a
 * table: it is taken apart when the first version of it comes, and recognised by its encoding after
 * that. A manifest made here borrows its layout. Layouts of other tensors stand side by side also
 * where somebody has made their ids equal.
 *
 * Promise P7: a table is as large as a small multiple of what a peer sent (layout.h);
 * what no manifest uses any more is kept for the next version up to
 * TB_LAYOUTS_IDLE_BYTES, the oldest going first.
 *
 * Threads: any. One mutex, held while an encoding is compared (1 ms where it has 10 MB) and not
 * while a layout is taken apart. */
#ifndef TB_BASE_LAYOUTS_H
#define TB_BASE_LAYOUTS_H

#include "base/layout/manifest.h"

#define TB_LAYOUTS_IDLE_BYTES ((size_t)64 << 20)

struct tb_layouts;

/* NULL: no memory. */
struct tb_layouts *tb_layouts_new(void);
/* Every manifest was released. NULL is fine. */
void tb_layouts_free(struct tb_layouts *l);

/* The memory of a manifest that was made here. Zero: none. */
struct tb_manifest_memory {
    void *tables;
    const struct tb_layout *layout; /* of which this is a reference */
};

/* tb_manifest_head_decode. TB_PEER_GARBLED, TB_SITE_NOMEM: both outputs are untouched. */
TB_MUST_USE enum tb_status tb_layouts_decode(struct tb_layouts *l, const void *head, size_t head_bytes,
                                             struct tb_manifest_memory *memory_out,
                                             struct tb_manifest *manifest_out);
/* tb_manifest_build: a layout that is not known yet is copied. */
TB_MUST_USE enum tb_status tb_layouts_build(struct tb_layouts *l, const struct tb_layout *layout,
                                            const struct tb_blob *blobs, uint32_t blob_count,
                                            struct tb_manifest_memory *memory_out,
                                            struct tb_manifest *manifest_out);
/* The manifest is gone; *memory is zero. Of zero memory: nothing. */
void tb_layouts_release(struct tb_layouts *l, struct tb_manifest_memory *memory);

struct tb_layouts_counts {
    uint32_t used, idle;                /* layouts */
    size_t idle_bytes, idle_bytes_most; /* now; at once so far */
    uint64_t taken_apart;               /* decoded or copied, ever */
};
void tb_layouts_count(struct tb_layouts *l, struct tb_layouts_counts *counts_out);

#endif
