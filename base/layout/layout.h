/* layout.h - a shard's table of tensors (tensor.h), which chunk_cut.h cuts into chunks.
 *
 * Packed order. The tensors of a layout stand in canonical order: larger element units first, then
 * dtype number, then part, then name (bytewise). Packed, each follows the one before without a gap,
 * so every tensor is aligned to its element unit, and a chunk is one contiguous range of packed
 * bytes. Behind the tensors come the version's blobs (manifest.h), in their order, cut by the same
 * rule as one opaque tensor.
 *
 * The layout's id is the XXH3-128 of its encoding, so equal layouts have one id and cross once.
 *
 * Pure. A layout is one block of memory that the caller gives: tb_layout_bytes_for says how
 * much. */
#ifndef TB_BASE_LAYOUT_H
#define TB_BASE_LAYOUT_H

#include "base/bytes.h"
#include "base/digest.h"
#include "base/ident.h"
#include "base/layout/chunk_cut.h"
#include "base/layout/tensor.h"
#include "tombolo/status.h"

#define TB_TENSORS_MAX      1000000
#define TB_PARTS_MAX        1024 /* of a tensor; each is looked for by name */
#define TB_SHARD_BYTES_MAX  ((uint64_t)1 << 44)
#define TB_SHARDS_MAX       4096
#define TB_DTYPES_OTHER_MAX 64 /* different ones in one layout */

struct tb_layout {
    uint32_t tensor_count;
    bool other_dtypes; /* some tensor's dtype is TB_DTYPE_OTHER: peers of link protocol 2 cannot read it */
    uint64_t bytes;    /* of all tensors */
    struct tb_digest id;
    const struct tb_tensor *tensors; /* packed order */
    /* as tb_layout_encode would write it, where somebody keeps it (layouts.h); else NULL */
    const uint8_t *encoded;
    size_t encoded_bytes;
    /* its tensors' chunks, likewise: the table is large, and read through for each cut */
    const struct tb_chunk *cut;
    uint32_t cut_count;
};

/* Memory that a layout of these tensors needs (table and names). */
size_t tb_layout_bytes_for(const struct tb_tensor *tensors, uint32_t count);

/* Sorts copies of the tensors into packed order inside `memory` (16-byte aligned, the
 * caller's, kept until the layout is no longer used) and fills bytes, offsets and id. The
 * caller's names may go afterwards.
 *   TB_BAD_ARGUMENT  two equal names of one part; an empty or unclean name; an unknown dtype; rank
 *                    or part over the maximum; a box outside the full shape or not on bytes. A
 *                    dimension without elements is allowed: the tensor has 0 bytes
 *   TB_TOO_LARGE     over TB_TENSORS_MAX, TB_DTYPES_OTHER_MAX or TB_SHARD_BYTES_MAX, also by
 *                    overflow; also a full shape that alone is over TB_SHARD_BYTES_MAX, where
 *                    dimensions of 0 count as 1, so no product of its axes can overflow
 *   TB_SITE_NOMEM    `cap` is less than tb_layout_bytes_for */
TB_MUST_USE enum tb_status tb_layout_build(const struct tb_tensor *tensors, uint32_t count, void *memory,
                                           size_t cap, struct tb_layout *layout_out);

/* The tensor of that name that is no part; NULL if there is none. */
const struct tb_tensor *tb_layout_find(const struct tb_layout *layout, const char *name);
/* The tensor of that name, dtype and part; of `like` nothing else is looked at.
 * NULL: there is none. */
const struct tb_tensor *tb_layout_find_like(const struct tb_layout *layout, const struct tb_tensor *like);
/* The largest part; 0: there are none. */
uint16_t tb_layout_part_max(const struct tb_layout *layout);

/* Index of the tensor whose packed bytes hold `offset`, never one of 0 bytes;
 * tensor_count behind the tensors. */
uint32_t tb_layout_tensor_at(const struct tb_layout *layout, uint64_t offset);
/* The dtype whose codecs take a chunk that begins at `offset`: that of its tensor, or the one that
 * stands for it (never TB_DTYPE_OTHER). TB_DTYPE_U8 behind the tensors. */
enum tb_dtype tb_layout_dtype_at(const struct tb_layout *layout, uint64_t offset);

/* Another layout with the same content in the caller's memory, names included. TB_SITE_NOMEM. */
size_t tb_layout_copy_bytes(const struct tb_layout *layout);
TB_MUST_USE enum tb_status tb_layout_copy(const struct tb_layout *layout, void *memory, size_t cap,
                                          struct tb_layout *layout_out);

/* On the wire: u32 count, then for each tensor in packed order u8 dtype, u8 rank (and 0x80 of a
 * part, then u16 part), of dtype 255 u16 bits and its name (u16 length, bytes), u16 name length,
 * name, rank x (u64 full, u64 box_first, u64 box_count). */
size_t tb_layout_encoded_bytes(const struct tb_layout *layout);
void tb_layout_encode(const struct tb_layout *layout, struct tb_writer *w);
/* How much memory a decode of these encoded bytes needs; 0 when they are not a layout. Bounded by a
 * small multiple of `encoded_bytes`, so a peer can not make us allocate more than it sent. */
size_t tb_layout_decode_bytes(const void *encoded, size_t encoded_bytes);
/* Count and bytes of the tensors in an encoded layout, without memory for it: for sizing what
 * stands behind it. False when decode would refuse a tensor or the sum; order and equal names
 * are decode's to see. */
bool tb_layout_survey(const void *encoded, size_t encoded_bytes, uint32_t *tensor_count_out,
                      uint64_t *bytes_out);
/* TB_PEER_GARBLED for anything that encode would not have written, order included. Names are
 * copied. */
TB_MUST_USE enum tb_status tb_layout_decode(const void *encoded, size_t encoded_bytes, void *memory,
                                            size_t cap, struct tb_layout *layout_out);

#endif
