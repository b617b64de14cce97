/* version_proof.c - the root that a home signs follows from every byte of every manifest head and
 * from every proof, in their order, and a statement fits one version alone (P1, P2).
 *
 * Covers: base/proof/version_proof.c */
#include "base/proof/version_proof.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/check.h"

struct sample {
    void *memory;
    struct tb_manifest m;
};

static void sample_new(struct sample *s, uint32_t rows)
{
    const struct tb_tensor tensor = {
        .name = "embed", .dtype = TB_DTYPE_BF16, .rank = 2, .full = {rows, 64}, .box_count = {rows, 64}};
    struct tb_layout layout;
    const size_t layout_bytes = tb_layout_bytes_for(&tensor, 1);
    void *layout_memory = malloc(layout_bytes);
    CHECK_OK(tb_layout_build(&tensor, 1, layout_memory, layout_bytes, &layout));
    const size_t bytes = tb_manifest_bytes_for(&layout, NULL, 0);
    s->memory = malloc(bytes);
    CHECK_OK(tb_manifest_build(&layout, NULL, 0, s->memory, bytes, &s->m));
    free(layout_memory);
    for (uint32_t k = 0; k < s->m.chunk_count; k++)
        s->m.digests[k] = tb_digest_of(&k, sizeof k);
    for (uint32_t k = 0; k < s->m.chunk_count; k++) {
        const struct tb_blake3 proof = tb_blake3_of(&k, sizeof k);
        tb_manifest_set_proof(&s->m, k, &proof);
    }
    s->m.root = tb_manifest_root(&s->m);
}

static struct tb_blake3 root_of(const struct sample *a, const struct sample *b)
{
    const struct tb_manifest *both[] = {&a->m, &b->m};
    const size_t bytes = tb_proof_scratch_bytes(both, 2);
    void *scratch = malloc(bytes);
    const struct tb_blake3 root = tb_proof_root(both, 2, scratch, bytes);
    free(scratch);
    return root;
}

static void a_root_follows_from_each_manifest_and_their_order(void **state)
{
    (void)state;
    struct sample a, b;
    sample_new(&a, 100);
    sample_new(&b, 200);
    const struct tb_blake3 right = root_of(&a, &b), again = root_of(&a, &b), turned = root_of(&b, &a);
    assert_true(tb_blake3_equal(&right, &again));
    assert_false(tb_blake3_equal(&right, &turned));
    b.m.root.bytes[15] ^= 1;
    const struct tb_blake3 other = root_of(&a, &b);
    assert_false(tb_blake3_equal(&right, &other));
    b.m.root.bytes[15] ^= 1;
    b.m.proofs[b.m.chunk_count - 1].bytes[31] ^= 1; /* the last byte that the home signs */
    const struct tb_blake3 forged = root_of(&a, &b);
    assert_false(tb_blake3_equal(&right, &forged));
    free(a.memory);
    free(b.memory);
}

/* A second implementation can make it: the bytes that are digested stand in the header. */
static void a_root_is_made_as_the_header_says(void **state)
{
    (void)state;
    struct sample s;
    sample_new(&s, 100);
    const struct tb_manifest *one[] = {&s.m};
    const size_t head = tb_proof_scratch_bytes(one, 1);
    const size_t proofs = s.m.chunk_count * sizeof(struct tb_blake3), all = 15 + 4 + 8 + head + 4 + proofs;
    uint8_t *bytes = calloc(1, all);
    struct tb_writer w;
    memcpy(bytes, "tombolo root 1", 15);
    bytes[15] = 1;
    tb_writer_init(&w, bytes + 19, all - 19);
    tb_write_u64(&w, head);
    tb_manifest_head_encode(&s.m, &w);
    tb_write_u32(&w, s.m.chunk_count);
    tb_write_bytes(&w, s.m.proofs, proofs);
    void *scratch = malloc(head);
    const struct tb_blake3 root = tb_proof_root(one, 1, scratch, head), said = tb_blake3_of(bytes, all);
    assert_true(tb_blake3_equal(&root, &said));
    free(scratch);
    free(bytes);
    free(s.memory);
}

/* A publisher signs it: "tombolo shard 1", and the rest as in a root of one shard. */
static void a_shards_root_is_made_as_the_header_says(void **state)
{
    (void)state;
    struct sample s;
    sample_new(&s, 100);
    const struct tb_manifest *one[] = {&s.m};
    const size_t head = tb_proof_scratch_bytes(one, 1);
    const size_t proofs = s.m.chunk_count * sizeof(struct tb_blake3), all = 16 + 8 + head + 4 + proofs;
    uint8_t *bytes = calloc(1, all);
    struct tb_writer w;
    memcpy(bytes, "tombolo shard 1", 16);
    tb_writer_init(&w, bytes + 16, all - 16);
    tb_write_u64(&w, head);
    tb_manifest_head_encode(&s.m, &w);
    tb_write_u32(&w, s.m.chunk_count);
    tb_write_bytes(&w, s.m.proofs, proofs);
    assert_false(w.full);
    void *scratch = malloc(head);
    const struct tb_blake3 root = tb_proof_shard(&s.m, scratch, head), said = tb_blake3_of(bytes, all);
    assert_true(tb_blake3_equal(&root, &said));
    free(scratch);
    free(bytes);
    free(s.memory);
}

static struct tb_version_key some_key(void)
{
    struct tb_version_key key = {.uid = {{1}}, .run = {{2}}, .run_order = 3, .number = 4, .shard_count = 5};
    key.root.bytes[0] = 6;
    CHECK_OK(tb_name_set(&key.model, "policy"));
    return key;
}

static void a_statement_fits_its_version_alone(void **state)
{
    (void)state;
    const struct tb_version_key right = some_key();
    for (enum tb_statement_kind kind = TB_STATEMENT_VERSION; kind < TB_STATEMENT_KINDS; kind++) {
        const struct tb_statement s = tb_statement_of(kind, &right);
        assert_true(tb_statement_fits(&s, &right));
        struct tb_version_key wrong[7];
        for (size_t i = 0; i < 7; i++)
            wrong[i] = right;
        wrong[0].uid.bytes[0]++;
        wrong[1].run.bytes[0]++;
        wrong[2].run_order++;
        wrong[3].number++;
        wrong[4].shard_count++;
        wrong[5].root.bytes[0]++;
        CHECK_OK(tb_name_set(&wrong[6].model, "other"));
        const bool own_digest = kind == TB_STATEMENT_SHARD; /* of the shard, not of the version */
        for (size_t i = 0; i < 7; i++)
            if (tb_statement_fits(&s, &wrong[i]) != (own_digest && i == 5))
                fail_msg("kind %d fits key %zu", (int)kind, i);
    }
}

static void a_withdrawal_of_what_was_never_ready_fits_any_root(void **state)
{
    (void)state;
    struct tb_version_key key = some_key();
    struct tb_statement s = tb_statement_of(TB_STATEMENT_WITHDRAWN, &key);
    s.digest = (struct tb_digest){{0}};
    assert_true(tb_statement_fits(&s, &key));
    s.kind = TB_STATEMENT_RUN;
    assert_false(tb_statement_fits(&s, &key)); /* a run speaks of no version */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_root_follows_from_each_manifest_and_their_order),
        cmocka_unit_test(a_root_is_made_as_the_header_says),
        cmocka_unit_test(a_shards_root_is_made_as_the_header_says),
        cmocka_unit_test(a_statement_fits_its_version_alone),
        cmocka_unit_test(a_withdrawal_of_what_was_never_ready_fits_any_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
