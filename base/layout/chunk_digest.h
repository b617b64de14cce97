/* chunk_digest.h - is this the chunk that the publisher sealed?
 *
 * Promise P1: every comparison of a chunk's bytes with the manifest goes through this file: of
 * bytes that land, that are read again from a file, and that a GPU digested. A manifest with
 * another kind of digest changes this file and the code that makes digests (base/digest.h,
 * intra/tensor_spread.h, intra/cuda). Pure. */
#ifndef TB_BASE_CHUNK_DIGEST_H
#define TB_BASE_CHUNK_DIGEST_H

#include "base/layout/manifest.h"

/* The digest of chunk k, whose bytes stand at `bytes`. */
struct tb_digest tb_chunk_digest(const struct tb_manifest *manifest, uint32_t k, const void *bytes);
/* `digest` is the one that the manifest has for chunk k. */
bool tb_chunk_has_digest(const struct tb_manifest *manifest, uint32_t k, const struct tb_digest *digest);
/* Both: digests the bytes and compares. */
bool tb_chunk_matches(const struct tb_manifest *manifest, uint32_t k, const void *bytes);

/* The proof that these bytes of chunk k have. */
struct tb_blake3 tb_chunk_proof(const struct tb_manifest *manifest, uint32_t k, const void *bytes);
/* `proof` is the one that is known of chunk k. False where none is known. */
bool tb_chunk_has_proof(const struct tb_manifest *manifest, uint32_t k, const struct tb_blake3 *proof);
/* Both. It holds against one who made other bytes with the same digest. */
bool tb_chunk_proven(const struct tb_manifest *manifest, uint32_t k, const void *bytes);

#endif
