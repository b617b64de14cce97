/* source.h - the source descriptor on the wire: where a replica's shards stand in its export. Pure.
 *
 * u32 shard count, then for each: u32 shard, u32 held_buffer, u64 held_offset, u8 scattered, u32 packed_buffer, u64 packed_offset,
 * u32 tensor_count, tensor_count x (u32 buffer, u64 offset), u32 object_count, object_count x (u8 codec, u32 bytes, u32 buffer, u64 offset). */
#ifndef TB_INTRA_SOURCE_H
#define TB_INTRA_SOURCE_H

#include "intra/fabric.h"

size_t tb_source_encoded_bytes(const struct tb_source_shard *shards, uint32_t count);
void tb_source_encode(const struct tb_source_shard *shards, uint32_t count, struct tb_writer *w);
size_t tb_source_decode_bytes(const void *encoded, size_t encoded_bytes); /* memory for a decode; 0 if garbled */
/* Tables are put into `memory`. TB_PEER_GARBLED. Offsets are checked against the manifest by tb_source_check before use. */
TB_MUST_USE enum tb_status tb_source_decode(const void *encoded, size_t encoded_bytes, void *memory, size_t cap,
                                            const struct tb_source_shard **shards_out, uint32_t *count_out);
/* TB_PEER_GARBLED when tables do not fit this shard's manifest (counts, object sizes over the chunk). Buffer bounds are the door's to check. */
TB_MUST_USE enum tb_status tb_source_check(const struct tb_source_shard *shard, const struct tb_manifest *manifest);

#endif
