/* manifest.h - what a shard of a version is: layout, blobs, a digest for each chunk, roots over
 * them, and a proof for each chunk.
 *
 *   shard root   = XXH3-128 over: "tbshard1", layout id, u32 blob count, each blob (u16 name
 *                  length, name, u64 bytes), u32 chunk count, the chunk digests in order.
 *   version root = XXH3-128 over: "tbversn1", uid, u16 model name length, model name, run id, u64
 *                  number, u32 shard count, the shard roots in order.
 *
 * A proof is the BLAKE3 of a chunk. It comes after the digest, and no root here covers it: the home
 * of the model signs all proofs of a version (base/proof/version_proof.h). Digests find accidents.
 * Proofs hold against a gateway or a worker that forges bytes (docs/design/trust.md).
 *
 * The manifest names no base. Pure; a manifest is one block of memory that the caller gives. */
#ifndef TB_BASE_MANIFEST_H
#define TB_BASE_MANIFEST_H

#include "base/layout/layout.h"
#include "base/layout/version_key.h"
#include "base/proof/blake3.h"

#define TB_BLOBS_MAX      1024
#define TB_BLOB_BYTES_MAX ((uint64_t)100 << 20) /* of one blob */

/* P7: of one version's manifests decoded, all shards together (tb_manifest_decode_bytes): home
 * seals no more, and no site takes more. Some 800,000 tensors with names of 70 bytes. Encoded
 * they are always less. */
#define TB_MANIFESTS_BYTES_MAX ((uint64_t)256 << 20)

struct tb_blob {
    const char *name;
    uint64_t bytes;
    uint64_t offset; /* in packed bytes, behind the tensors; filled by build and decode */
};

struct tb_manifest {
    struct tb_layout layout;
    uint32_t blob_count;
    uint64_t blob_bytes; /* sum */
    const struct tb_blob *blobs;
    uint32_t chunk_count;
    const struct tb_chunk *chunks;
    struct tb_digest *digests; /* chunk_count of them; filled by the publisher's pass or by pages */
    struct tb_digest root;     /* what the digests must hash to; zero until sealed */
    uint64_t bytes;            /* layout.bytes + blob_bytes */
    struct tb_blake3 *proofs;  /* of chunk k where bit k of `proven` is set */
    uint64_t *proven;          /* TB_BITMAP_WORDS(chunk_count); atomic */
};

/* Memory (16-byte aligned) for a manifest over this layout and these blobs; the layout is copied
 * in. 0 for blobs that build would refuse. */
size_t tb_manifest_bytes_for(const struct tb_layout *layout, const struct tb_blob *blobs,
                             uint32_t blob_count);
/* Lays out a manifest with zero digests. TB_BAD_ARGUMENT (names: unclean, twice, or one a folder of
 * another), TB_TOO_LARGE, TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_manifest_build(const struct tb_layout *layout, const struct tb_blob *blobs,
                                             uint32_t blob_count, void *memory, size_t cap,
                                             struct tb_manifest *manifest_out);
/* The same over a layout of which nothing is copied: it has to outlive the manifest. */
size_t tb_manifest_bytes_on(const struct tb_layout *layout, const struct tb_blob *blobs, uint32_t blob_count);
TB_MUST_USE enum tb_status tb_manifest_build_on(const struct tb_layout *layout, const struct tb_blob *blobs,
                                                uint32_t blob_count, void *memory, size_t cap,
                                                struct tb_manifest *manifest_out);
/* Chunk k of one is chunk k of the other, for all k, so one can be a base of the other. Equal
 * ids are asked for and not believed: a layout's id has no key, and a publisher of both may have
 * made it equal for two. */
bool tb_manifest_same_cut(const struct tb_manifest *a, const struct tb_manifest *b);
/* The root over what is there now. */
struct tb_digest tb_manifest_root(const struct tb_manifest *manifest);

/* The proof of chunk k. False: it is not known. Any thread. */
bool tb_manifest_proof(const struct tb_manifest *manifest, uint32_t k, struct tb_blake3 *proof_out);
/* From now on readers believe it. No proof changes: where one is known, the call does nothing. One
 * caller at a time for each chunk. */
void tb_manifest_set_proof(struct tb_manifest *manifest, uint32_t k, const struct tb_blake3 *proof);
bool tb_manifest_all_proven(const struct tb_manifest *manifest);
uint32_t tb_manifest_proven_count(const struct tb_manifest *manifest);

/* The head of a manifest on the wire and in the arena: u32 layout bytes, layout, u32 blob count,
 * blobs, root. The digests travel apart, in pages, and may come in any order. */
size_t tb_manifest_head_bytes(const struct tb_manifest *manifest);
void tb_manifest_head_encode(const struct tb_manifest *manifest, struct tb_writer *w);
/* Memory for a decode; 0 if not a head. */
size_t tb_manifest_decode_bytes(const void *head, size_t head_bytes);
/* The same for the head of this manifest, which is not encoded for it. */
size_t tb_manifest_decoded_bytes(const struct tb_manifest *manifest);
TB_MUST_USE enum tb_status tb_manifest_head_decode(const void *head, size_t head_bytes, void *memory,
                                                   size_t cap, struct tb_manifest *manifest_out);
/* The encoded layout in a head, borrowed; NULL: not a head. */
const uint8_t *tb_manifest_head_layout(const void *head, size_t head_bytes, size_t *bytes_out);
/* Decode where that layout stands already, byte for byte: it is not looked at again, nothing of it
 * is copied, and it has to outlive the manifest. */
size_t tb_manifest_decode_bytes_on(const void *head, size_t head_bytes, const struct tb_layout *layout);
TB_MUST_USE enum tb_status tb_manifest_head_decode_on(const void *head, size_t head_bytes,
                                                      const struct tb_layout *layout, void *memory,
                                                      size_t cap, struct tb_manifest *manifest_out);

#endif
