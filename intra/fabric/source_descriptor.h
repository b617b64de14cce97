/* source_descriptor.h - the source descriptor on the wire: where a replica's shards stand
 * in its export. Pure.
 *
 * u32 shard count, then for each: u32 shard, u32 held_buffer, u64 held_offset, u8 scattered, u32
 * packed_buffer, u64 packed_offset, u32 tensor_count, tensor_count x (u32 buffer, u64 offset), u32
 * encoded_count, encoded_count x (u8 codec, u32 bytes, u32 buffer, u64 offset). */
#ifndef TB_INTRA_SOURCE_H
#define TB_INTRA_SOURCE_H

#include "intra/fabric/fabric.h"

#define TB_SOURCE_ALL_HELD UINT32_MAX /* held_buffer: there is no bitmap, every chunk is held */

size_t tb_source_encoded_bytes(const struct tb_source_shard *shards, uint32_t count);
void tb_source_encode(const struct tb_source_shard *shards, uint32_t count, struct tb_writer *w);
/* Memory for a decode; 0 if garbled. */
size_t tb_source_decode_bytes(const void *encoded, size_t encoded_bytes);
/* Tables are put into `memory` (8-byte aligned). TB_PEER_GARBLED; TB_SITE_NOMEM: cap is
 * less than tb_source_decode_bytes. Offsets are checked against the manifest by
 * tb_source_check before use. */
TB_MUST_USE enum tb_status tb_source_decode(const void *encoded, size_t encoded_bytes, void *memory,
                                            size_t cap, const struct tb_source_shard **shards_out,
                                            uint32_t *count_out);
/* TB_PEER_GARBLED when tables do not fit this shard's manifest (counts, encoded chunk sizes
 * over the chunk, offsets of 2^62 and more, a bitmap off its 8 bytes). Buffer bounds are
 * the door's to check. */
TB_MUST_USE enum tb_status tb_source_check(const struct tb_source_shard *shard,
                                           const struct tb_manifest *manifest);

/* A stretch of an export that one READ names. */
struct tb_source_run {
    uint32_t buffer;
    uint64_t offset;
    uint64_t bytes; /* at least 1 */
};
/* Where the packed bytes from packed_offset on stand: as far as they stand in one piece, at
 * most bytes_max. Only for a source that tb_source_check has passed, and packed_offset
 * below manifest->bytes. */
struct tb_source_run tb_source_run_at(const struct tb_source_shard *shard, const struct tb_manifest *manifest,
                                      uint64_t packed_offset, uint64_t bytes_max);
/* True when chunk k is to be read in its encoded form, from *object_out (borrowed
 * from the source). */
bool tb_source_encoded_of(const struct tb_source_shard *shard, uint32_t k,
                          const struct tb_source_encoded **encoded_out);

#endif
