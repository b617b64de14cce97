/* chunk_cut.h - the one function that cuts a shard into chunks. Pure. */
#ifndef TB_BASE_CHUNK_CUT_H
#define TB_BASE_CHUNK_CUT_H

#include <stdint.h>

struct tb_layout;

#define TB_CHUNK_BYTES_MIN ((uint64_t)1 << 20)
#define TB_CHUNK_BYTES_MAX ((uint64_t)16 << 20)
#define TB_CHUNKS_MAX      (1u << 21) /* per shard; what 2^44 bytes in 16 MiB need, twice */

/* The cut: chunk k of a shard covers packed bytes [offset, offset + bytes). The published rule:
 *   target = the largest power of two not above 1/4096 of the shard's tensor bytes, at least 1 MiB
 *   and at most 16 MiB.
 *   A tensor larger than the target is cut into n = ceil(bytes / target) pieces: piece i of it
 *   starts at floor(i x bytes / n) rounded down to a multiple of 4096.
 *   Smaller tensors that follow one another and have one dtype and part are grouped until the next
 *   one would take the group over the target. A tensor of 0 bytes belongs to no chunk.
 *   Blobs are cut behind, together, like one opaque tensor, with the same target.
 * So chunk k covers the same bytes in every version of a layout, whatever its blobs. */
struct tb_chunk {
    uint64_t offset; /* in packed bytes; blob chunks start at layout.bytes */
    uint32_t bytes;  /* 1 to 2 x TB_CHUNK_BYTES_MAX */
};

uint64_t tb_cut_target_bytes(uint64_t tensor_bytes);
/* How many chunks; `blob_bytes` is the sum over blobs. */
uint32_t tb_cut_count(const struct tb_layout *layout, uint64_t blob_bytes);
/* Fills chunks_out[0..tb_cut_count), ascending, without gap or overlap. The table is made once a
 * shard. */
void tb_cut(const struct tb_layout *layout, uint64_t blob_bytes, struct tb_chunk *chunks_out);

#endif
