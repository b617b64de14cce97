/* objects.c - what is kept is found as it was put, under its budget, and the oldest goes first (P7). */
#include "wan/objects.h"

#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "tests/unit/check.h"

#define CHUNKS 10u

/* A version of two shards as shares know it; only its shape and its name count. */
struct version {
    struct tb_manifest manifests[2];
    struct tb_share *share;
};

static void version_make(struct version *v, uint8_t n)
{
    const struct tb_id uid = {{n}};
    struct tb_place places[2];
    memset(v, 0, sizeof *v);
    for (int s = 0; s < 2; s++) {
        v->manifests[s].chunk_count = CHUNKS + (uint32_t)s;
        places[s] = (struct tb_place){.manifest = &v->manifests[s]};
    }
    v->share = tb_share_new(&uid, places, 2, NULL);
    assert_non_null(v->share);
}

static void put(struct tb_objects *o, const struct version *v, const struct version *base, uint32_t shard,
                uint32_t chunk, const char *text)
{
    const struct tb_object_name name = {v->share, base->share, shard, chunk};
    const struct tb_codec_coded coded = {{TB_CODEC_SPARSE, true}, text, strlen(text)};
    tb_objects_put(o, &name, &coded);
}

static bool finds(struct tb_objects *o, const struct version *v, const struct version *base, uint32_t shard,
                  uint32_t chunk, const char *text)
{
    const struct tb_object_name name = {v->share, base->share, shard, chunk};
    struct tb_object *object = tb_objects_find(o, &name);
    if (object == NULL) return false;
    const struct tb_codec_coded coded = tb_object_coded(object);
    const bool same = coded.count == strlen(text) && memcmp(coded.bytes, text, coded.count) == 0 &&
                      coded.form.id == TB_CODEC_SPARSE && coded.form.on_base;
    tb_object_unref(o, object);
    return same;
}

static struct tb_objects_stats stats_of(struct tb_objects *o)
{
    struct tb_objects_stats s;
    tb_objects_stats(o, &s);
    return s;
}

static void an_object_has_a_version_a_base_and_a_chunk(void **state)
{
    (void)state;
    struct version a, b, c;
    struct tb_objects *o = NULL;
    version_make(&a, 1), version_make(&b, 2), version_make(&c, 3);
    CHECK_OK(tb_objects_new(1 << 20, &o));
    put(o, &b, &a, 0, CHUNKS - 1, "b on a");
    put(o, &b, &a, 1, 0, "b on a, other shard");
    put(o, &c, &a, 0, CHUNKS - 1, "c on a");
    put(o, &c, &b, 0, CHUNKS - 1, "c on b");
    put(o, &c, &b, 0, CHUNKS - 1, "again"); /* what is there stays */
    assert_true(finds(o, &b, &a, 0, CHUNKS - 1, "b on a"));
    assert_true(finds(o, &b, &a, 1, 0, "b on a, other shard"));
    assert_true(finds(o, &c, &a, 0, CHUNKS - 1, "c on a"));
    assert_true(finds(o, &c, &b, 0, CHUNKS - 1, "c on b"));
    assert_false(finds(o, &b, &a, 0, 0, ""));
    assert_false(finds(o, &a, &b, 0, CHUNKS - 1, ""));
    assert_int_equal(stats_of(o).count, 4);
    assert_int_equal(stats_of(o).pairs, 3);
    assert_int_equal(stats_of(o).used, 4);
    tb_objects_drop(o, &c.share->uid);
    assert_int_equal(stats_of(o).count, 2);
    assert_false(finds(o, &c, &a, 0, CHUNKS - 1, ""));
    tb_objects_drop(o, &b.share->uid);
    assert_int_equal(stats_of(o).bytes, 0);
    tb_objects_free(o);
    tb_share_free(a.share), tb_share_free(b.share), tb_share_free(c.share);
}

static void the_oldest_go_first(void **state)
{
    (void)state;
    static char text[4001];
    struct version v[6];
    struct tb_objects *o = NULL;
    memset(text, 'x', 4000);
    for (uint8_t i = 0; i < 6; i++)
        version_make(&v[i], (uint8_t)(i + 1));
    CHECK_OK(tb_objects_new(20000, &o));
    for (uint32_t i = 1; i < 6; i++)
        for (uint32_t k = 0; k < 2; k++) {
            put(o, &v[i], &v[i - 1], 0, k, text);
            assert_true(stats_of(o).bytes <= 20000);
        }
    assert_true(finds(o, &v[5], &v[4], 0, 1, text));
    assert_true(finds(o, &v[4], &v[3], 0, 0, text));
    assert_false(finds(o, &v[1], &v[0], 0, 0, text));
    /* One version alone does not push itself out: what does not fit is not kept. */
    for (uint32_t k = 2; k < CHUNKS; k++)
        put(o, &v[5], &v[4], 0, k, text);
    assert_true(stats_of(o).bytes <= 20000);
    assert_int_equal(stats_of(o).pairs, 1);
    assert_true(finds(o, &v[5], &v[4], 0, 0, text));
    assert_false(finds(o, &v[5], &v[4], 0, CHUNKS - 1, text));
    tb_objects_free(o);
    for (int i = 0; i < 6; i++)
        tb_share_free(v[i].share);
}

static void sixteen_pairs_are_kept(void **state)
{
    (void)state;
    struct version v[20];
    struct tb_objects *o = NULL;
    CHECK_OK(tb_objects_new(1 << 20, &o));
    for (uint8_t i = 0; i < 20; i++)
        version_make(&v[i], (uint8_t)(i + 1));
    for (int i = 1; i < 20; i++)
        put(o, &v[i], &v[i - 1], 0, 0, "step");
    assert_int_equal(stats_of(o).pairs, TB_OBJECTS_PAIRS_MAX);
    assert_false(finds(o, &v[3], &v[2], 0, 0, "step"));
    assert_true(finds(o, &v[4], &v[3], 0, 0, "step"));
    tb_objects_free(o);
    for (int i = 0; i < 20; i++)
        tb_share_free(v[i].share);
}

/* A stream in the middle of sending it keeps it, whatever leaves the table. */
static void what_was_found_stays(void **state)
{
    (void)state;
    struct version a, b;
    struct tb_objects *o = NULL;
    version_make(&a, 1), version_make(&b, 2);
    CHECK_OK(tb_objects_new(1 << 20, &o));
    put(o, &b, &a, 0, 3, "in flight");
    const struct tb_object_name name = {b.share, a.share, 0, 3};
    struct tb_object *object = tb_objects_find(o, &name);
    assert_non_null(object);
    tb_objects_drop(o, &b.share->uid);
    assert_int_equal(stats_of(o).count, 1);
    assert_memory_equal(tb_object_coded(object).bytes, "in flight", 9);
    tb_object_unref(o, object);
    assert_int_equal(stats_of(o).bytes, 0);
    tb_objects_free(o);
    tb_share_free(a.share), tb_share_free(b.share);
}

/* No memory: nothing is kept, and that is all. */
static void without_memory_nothing_is_kept(void **state)
{
    (void)state;
    struct version a, b;
    struct tb_objects *o = NULL;
    version_make(&a, 1), version_make(&b, 2);
    CHECK_OK(tb_objects_new(1 << 20, &o));
    for (uint64_t at = 1; at < 4; at++) { /* a pair, its table, an object */
        tb_fault_arm(TB_FAULT_malloc, at, false);
        put(o, &b, &a, 0, (uint32_t)at, "step");
        tb_fault_arm(TB_FAULT_malloc, 0, false);
        assert_false(finds(o, &b, &a, 0, (uint32_t)at, "step"));
    }
    put(o, &b, &a, 0, 3, "step");
    assert_true(finds(o, &b, &a, 0, 3, "step"));
    tb_objects_free(o);
    tb_share_free(a.share), tb_share_free(b.share);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_object_has_a_version_a_base_and_a_chunk),
        cmocka_unit_test(the_oldest_go_first),
        cmocka_unit_test(sixteen_pairs_are_kept),
        cmocka_unit_test(what_was_found_stays),
        cmocka_unit_test(without_memory_nothing_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
