/* shard_files.c - digests of files that ranks said beside their manifests: a row counts for one
 * manifest of one shard, and a newer one takes its place.
 *
 * Covers: gateway/daemon/copies/shard_files.c */
#include "gateway/daemon/copies/shard_files.h"

#include "tests/unit/check.h"

#define SHARDS 3u

static const struct tb_name rank = {.text = "rank"};

static struct tb_manifest manifest_of(uint8_t root, uint32_t blobs)
{
    return (struct tb_manifest){.root = {{root}}, .blob_count = blobs};
}

static bool put(struct tb_shard_files_table *t, uint32_t shard, uint8_t root, const struct tb_digest *digests,
                uint32_t blobs)
{
    const struct tb_manifest m = manifest_of(root, blobs);
    struct tb_shard_files *row = tb_shard_files_new(&m, &rank, digests);
    assert_non_null(row);
    return tb_shard_files_put(t, SHARDS, shard, row);
}

static void a_row_is_of_one_shard_and_one_manifest(void **state)
{
    (void)state;
    struct tb_shard_files_table t = {0};
    const struct tb_digest said[2] = {{{7}}, {{8}}}, root = {{1}}, other = {{2}};
    assert_null(tb_shard_files_find(&t, 0, &root));
    assert_true(put(&t, 1, 1, said, 2));
    assert_null(tb_shard_files_find(&t, 0, &root));
    assert_null(tb_shard_files_find(&t, 1, &other));
    assert_null(tb_shard_files_find(&t, SHARDS, &root));
    const struct tb_shard_files *row = tb_shard_files_find(&t, 1, &root);
    assert_non_null(row);
    assert_true(row->known);
    assert_memory_equal(row->digests, said, sizeof said);
    assert_string_equal(row->rank.text, rank.text);
    tb_shard_files_free(&t);
}

static void a_shard_that_is_sealed_again_has_its_newer_row(void **state)
{
    (void)state;
    struct tb_shard_files_table t = {0};
    const struct tb_digest said = {{7}}, root = {{1}}, newer = {{2}};
    assert_true(put(&t, 0, 1, &said, 1));
    assert_true(put(&t, 0, 2, NULL, 1)); /* without digests */
    assert_null(tb_shard_files_find(&t, 0, &root));
    const struct tb_shard_files *row = tb_shard_files_find(&t, 0, &newer);
    assert_true(row != NULL && !row->known);
    tb_shard_files_free(&t);
    assert_null(tb_shard_files_find(&t, 0, &newer)); /* and none once the version is ready */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_is_of_one_shard_and_one_manifest),
        cmocka_unit_test(a_shard_that_is_sealed_again_has_its_newer_row),
    };
    return cmocka_run_group_tests_name("shard_files", tests, NULL, NULL);
}
