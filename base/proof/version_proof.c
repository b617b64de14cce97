/* version_proof.c - one digest over the manifests of a version, and which version a statement is
 * of. */
#include "base/proof/version_proof.h"

#include "base/assert.h"

static const char magic[] = "tombolo root 1";

size_t tb_proof_scratch_bytes(const struct tb_manifest *const *manifests, uint32_t shard_count)
{
    size_t most = 0;
    for (uint32_t s = 0; s < shard_count; s++) {
        const size_t bytes = tb_manifest_head_bytes(manifests[s]);
        if (bytes > most) most = bytes;
    }
    return most;
}

static void add_number(struct tb_blake3_state *all, uint64_t number, size_t bytes)
{
    uint8_t little[8];
    struct tb_writer w;
    tb_writer_init(&w, little, sizeof little);
    tb_write_u64(&w, number);
    tb_blake3_update(all, little, bytes);
}

static void add_shard(struct tb_blake3_state *all, const struct tb_manifest *manifest, void *scratch,
                      size_t scratch_bytes)
{
    struct tb_writer w;
    tb_writer_init(&w, scratch, scratch_bytes);
    tb_manifest_head_encode(manifest, &w);
    TB_ASSERT(!w.full);
    add_number(all, w.used, 8);
    tb_blake3_update(all, scratch, w.used);
    add_number(all, manifest->chunk_count, 4);
    tb_blake3_update(all, manifest->proofs, manifest->chunk_count * sizeof(struct tb_blake3));
}

struct tb_blake3 tb_proof_root(const struct tb_manifest *const *manifests, uint32_t shard_count,
                               void *scratch, size_t scratch_bytes)
{
    TB_ASSERT(shard_count > 0 && shard_count <= TB_SHARDS_MAX);
    struct tb_blake3_state all;
    tb_blake3_begin(&all);
    tb_blake3_update(&all, magic, sizeof magic);
    add_number(&all, shard_count, 4);
    for (uint32_t s = 0; s < shard_count; s++)
        add_shard(&all, manifests[s], scratch, scratch_bytes);
    return tb_blake3_end(&all);
}

struct tb_blake3 tb_proof_shard(const struct tb_manifest *manifest, void *scratch, size_t scratch_bytes)
{
    static const char shard_magic[] = "tombolo shard 1";
    struct tb_blake3_state all;
    tb_blake3_begin(&all);
    tb_blake3_update(&all, shard_magic, sizeof shard_magic);
    add_shard(&all, manifest, scratch, scratch_bytes);
    return tb_blake3_end(&all);
}

struct tb_statement tb_statement_of(enum tb_statement_kind kind, const struct tb_version_key *key)
{
    TB_ASSERT(kind != TB_STATEMENT_RUN);
    return (struct tb_statement){.kind = kind,
                                 .model = key->model,
                                 .uid = key->uid,
                                 .run = key->run,
                                 .run_order = key->run_order,
                                 .number = key->number,
                                 .shard_count = key->shard_count,
                                 .digest = key->root};
}

bool tb_statement_fits(const struct tb_statement *s, const struct tb_version_key *key)
{
    const bool no_digest =
        s->kind == TB_STATEMENT_SHARD ||
        (s->kind == TB_STATEMENT_WITHDRAWN && tb_digest_equal(&s->digest, &(struct tb_digest){{0}}));
    return s->kind != TB_STATEMENT_RUN && tb_name_equal(&s->model, &key->model) &&
           tb_id_equal(&s->uid, &key->uid) && tb_id_equal(&s->run, &key->run) &&
           s->run_order == key->run_order && s->number == key->number && s->shard_count == key->shard_count &&
           (no_digest || tb_digest_equal(&s->digest, &key->root));
}
