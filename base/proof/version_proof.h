/* version_proof.h - the root of a version that its home signs (statement.h). Pure.
 *
 * root = BLAKE3 over: "tombolo root 1" with its NUL, u32 shard count, and for each shard in order
 * u64 bytes of its sealed manifest head, the head as tb_manifest_head_encode writes it, u32 chunk
 * count, and the proofs of its chunks in order. The head binds the chunks by XXH3 alone, which does
 * not hold against a relay that looks for a second preimage. */
#ifndef TB_BASE_PROOF_VERSION_PROOF_H
#define TB_BASE_PROOF_VERSION_PROOF_H

#include "base/layout/manifest.h"
#include "base/proof/statement.h"

/* The largest head of these manifests. */
size_t tb_proof_scratch_bytes(const struct tb_manifest *const *manifests, uint32_t shard_count);
/* `scratch` has that many bytes, and every chunk has a proof. Takes some 0.3 s for the largest
 * manifests that a home seals, and less than 1 ms for those of a model of 10,000 tensors. */
struct tb_blake3 tb_proof_root(const struct tb_manifest *const *manifests, uint32_t shard_count,
                               void *scratch, size_t scratch_bytes);
/* The root of one shard, which its publisher signs: BLAKE3 over "tombolo shard 1" with its NUL, u64
 * bytes of the sealed head, the head, u32 chunk count, and the proofs of the chunks in order. Every
 * chunk has one. `scratch` has room for the head. */
struct tb_blake3 tb_proof_shard(const struct tb_manifest *manifest, void *scratch, size_t scratch_bytes);

/* The statement of that kind over the version, without root and date. */
struct tb_statement tb_statement_of(enum tb_statement_kind kind, const struct tb_version_key *key);
/* It speaks of this version, by every part of its key. A withdrawal without a digest fits any,
 * and of a SHARD the digest is the shard's own. */
bool tb_statement_fits(const struct tb_statement *statement, const struct tb_version_key *key);

#endif
