/* chunk_digest.c - digests one chunk and compares it with the manifest. */
#include "base/layout/chunk_digest.h"

#include "base/assert.h"

struct tb_digest tb_chunk_digest(const struct tb_manifest *manifest, uint32_t k, const void *bytes)
{
    TB_ASSERT(k < manifest->chunk_count);
    return tb_digest_of(bytes, manifest->chunks[k].bytes);
}

bool tb_chunk_has_digest(const struct tb_manifest *manifest, uint32_t k, const struct tb_digest *digest)
{
    TB_ASSERT(k < manifest->chunk_count);
    return tb_digest_equal(digest, &manifest->digests[k]);
}

bool tb_chunk_matches(const struct tb_manifest *manifest, uint32_t k, const void *bytes)
{
    const struct tb_digest digest = tb_chunk_digest(manifest, k, bytes);
    return tb_chunk_has_digest(manifest, k, &digest);
}

struct tb_blake3 tb_chunk_proof(const struct tb_manifest *manifest, uint32_t k, const void *bytes)
{
    TB_ASSERT(k < manifest->chunk_count);
    return tb_blake3_of(bytes, manifest->chunks[k].bytes);
}

bool tb_chunk_has_proof(const struct tb_manifest *manifest, uint32_t k, const struct tb_blake3 *proof)
{
    struct tb_blake3 known;
    return tb_manifest_proof(manifest, k, &known) && tb_blake3_equal(proof, &known);
}

bool tb_chunk_proven(const struct tb_manifest *manifest, uint32_t k, const void *bytes)
{
    const struct tb_blake3 proof = tb_chunk_proof(manifest, k, bytes);
    return tb_chunk_has_proof(manifest, k, &proof);
}
