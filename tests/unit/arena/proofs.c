/* proofs.c - chunks of a model that is proven here get their proofs as they land and as they are
 * verified, and the file keeps them (P1, P3).
 *
 * Covers: gateway/arena/arena_proofs.c gateway/arena/arena_verify.c */
#include "arena_world.h"

#include <stddef.h>

#include "base/layout/chunk_digest.h"
#include "gateway/arena/arena_file.h"
#include "gateway/arena/arena_proofs.h"
#include "gateway/arena/arena_reserve.h"
#include "gateway/arena/arena_verify.h"

#define MIB ((uint64_t)1 << 20)

static char error[TB_ARENA_ERROR_BYTES];
static char ours[] = "policy", another[] = "another"; /* models */

static bool of(void *user, const struct tb_name *model)
{
    return strcmp(model->text, user) == 0;
}

static struct tb_arena *open_for(const char *path, char *model)
{
    struct tb_arena *arena = world_open(path, 16 * MIB);
    tb_arena_prove(arena, of, model);
    return arena;
}

/* Chunks get their proofs in steps behind the landing. */
static struct tb_arena *open_to_prove_later(const char *path)
{
    struct tb_arena *arena = world_open(path, 16 * MIB);
    assert_true(tb_arena_prove_later(arena, true));
    tb_arena_prove(arena, of, ours);
    return arena;
}

static struct tb_arena_region *reserve(struct tb_arena *arena, struct version *v, uint64_t seed,
                                       uint32_t shards, uint64_t shard_bytes)
{
    struct tb_arena_region *region = NULL;
    version_make(v, seed, shards, shard_bytes);
    assert_int_equal(tb_arena_reserve(arena, &v->key, v->list, shards, &region, error), TB_OK);
    return region;
}

/* The only version of the file is whole and has no proofs: a release that made none left it, or a
 * kill came before they were kept. */
static void leave_unproven(const char *path, struct version *v, uint64_t seed)
{
    struct tb_arena_region *region;
    struct tb_arena *arena = world_open(path, 16 * MIB);
    while ((region = tb_arena_region_next(arena, NULL)) != NULL)
        assert_int_equal(tb_arena_free(region), TB_OK);
    version_land_all(v, reserve(arena, v, seed, 1, 3 * MIB));
    tb_arena_close(arena);
}

static struct tb_arena_region *first(struct tb_arena *arena)
{
    struct tb_arena_region *region = tb_arena_region_next(arena, NULL);
    assert_non_null(region);
    return region;
}

static void proofs_fit(struct tb_arena_region *region, uint32_t shards)
{
    uint64_t bytes = 0;
    assert_true(tb_arena_region_proven(region));
    for (uint32_t s = 0; s < shards; s++) {
        const struct tb_place *p = tb_arena_place(region, s);
        bytes += p->manifest->bytes;
        for (uint32_t k = 0; k < p->manifest->chunk_count; k++)
            assert_true(tb_chunk_proven(p->manifest, k, p->bytes + p->manifest->chunks[k].offset));
    }
    assert_int_equal(tb_arena_region_proven_bytes(region), bytes);
}

static void a_chunk_that_lands_is_proven_and_stays_so(void **state)
{
    (void)state;
    struct version v;
    const char *path = world_path();
    struct tb_arena *arena = open_for(path, ours);
    struct tb_arena_region *region = reserve(arena, &v, 5, 2, 3 * MIB);
    assert_false(tb_arena_region_proven(region));
    version_land_all(&v, region);
    proofs_fit(region, 2);
    tb_arena_proofs_keep(region);
    tb_arena_close(arena);
    arena = open_for(path, another);
    proofs_fit(first(arena), 2); /* from the file: this process makes none of it */
    tb_arena_proofs_drop(first(arena));
    assert_false(tb_arena_region_proven(first(arena)));
    tb_arena_close(arena);
    arena = open_for(path, another);
    assert_false(tb_arena_region_proven(first(arena)));
    tb_arena_close(arena);
    version_fini(&v);
}

/* A model of another site: its proofs come from elsewhere. */
static void nothing_is_proven_of_other_models(void **state)
{
    (void)state;
    struct version v;
    struct tb_arena *arena = open_for(world_path(), another);
    struct tb_arena_region *region = reserve(arena, &v, 6, 1, 2 * MIB);
    version_land_all(&v, region);
    assert_int_equal(tb_arena_region_proven_bytes(region), 0);
    assert_int_equal(tb_arena_free(region), TB_OK);
    tb_arena_close(arena);
    version_fini(&v);
}

static void chunks_of_an_earlier_process_are_proven_as_they_are_verified(void **state)
{
    (void)state;
    struct version v;
    struct tb_arena_verified done;
    const char *path = world_path();
    leave_unproven(path, &v, 7);
    struct tb_arena *arena = open_for(path, ours);
    assert_int_equal(tb_arena_region_proven_bytes(first(arena)), 0);
    while (tb_arena_verify_step(arena, 1, &done) == TB_AGAIN)
        assert_int_equal(done.bad, 0);
    proofs_fit(first(arena), 1);
    tb_arena_close(arena);
    version_fini(&v);
}

/* The version is whole before it is proven. Steps do so many bytes, and end. */
static void a_chunk_is_proven_behind_its_landing(void **state)
{
    (void)state;
    struct version v;
    struct tb_arena_verified done;
    struct tb_arena *arena = open_to_prove_later(world_path());
    struct tb_arena_region *region = reserve(arena, &v, 8, 2, 3 * MIB);
    assert_int_equal(tb_arena_prove_step(arena, 1, false, &done), TB_END);
    version_land_all(&v, region);
    assert_true(tb_arena_region_whole(region));
    assert_int_equal(tb_arena_region_proven_bytes(region), 0);
    assert_int_equal(tb_arena_prove_step(arena, 1, false, &done), TB_AGAIN);
    assert_true(done.chunks == 1 && done.proven == 0);
    assert_int_equal(tb_arena_region_proven_bytes(region), done.bytes);
    assert_int_equal(tb_arena_prove_step(arena, UINT64_MAX, false, &done), TB_END);
    assert_true(done.bad == 0 && done.proven == 2); /* shards */
    proofs_fit(region, 2);
    assert_int_equal(tb_arena_prove_step(arena, UINT64_MAX, false, &done), TB_END);
    assert_true(done.chunks == 0 && done.proven == 0);
    assert_int_equal(tb_arena_free(region), TB_OK);
    tb_arena_close(arena);
    version_fini(&v);
}

/* P1 P3: home signs no proof of bytes that rotted between the landing and the pass. */
static void bytes_that_rotted_get_no_proof(void **state)
{
    (void)state;
    struct version v;
    struct tb_arena_verified done;
    struct tb_arena *arena = open_to_prove_later(world_path());
    struct tb_arena_region *region = reserve(arena, &v, 9, 1, 3 * MIB);
    version_land_all(&v, region);
    struct tb_place *p = tb_arena_place(region, 0);
    p->bytes[p->manifest->chunks[1].offset] ^= 1;
    assert_int_equal(tb_arena_prove_step(arena, UINT64_MAX, false, &done), TB_END);
    assert_int_equal(done.bad, 1);
    assert_false(tb_place_held(p, 1));
    assert_false(tb_bitmap_test(p->manifest->proven, 1));
    assert_int_equal(tb_arena_place_rotted(region, 0), 1);
    assert_int_equal(tb_manifest_proven_count(p->manifest), p->manifest->chunk_count - 1);
    assert_true(tb_place_claim(p, 1)); /* it lands again */
    p->bytes[p->manifest->chunks[1].offset] ^= 1;
    assert_int_equal(tb_place_finish(p, 1), TB_OK);
    assert_int_equal(tb_arena_prove_step(arena, UINT64_MAX, false, &done), TB_END);
    proofs_fit(region, 1);
    assert_int_equal(tb_arena_free(region), TB_OK);
    tb_arena_close(arena);
    version_fini(&v);
}

/* P6: arena.reverify is off, so nobody verifies what an earlier process left. */
static void a_chunk_that_nobody_verifies_is_proven(void **state)
{
    (void)state;
    struct version v;
    struct tb_arena_verified done;
    const char *path = world_path();
    leave_unproven(path, &v, 10);
    struct tb_arena *arena = open_to_prove_later(path);
    struct tb_place *p = tb_arena_place(first(arena), 0);
    p->bytes[p->manifest->chunks[1].offset] ^= 1;
    assert_int_equal(tb_arena_prove_step(arena, UINT64_MAX, false, &done), TB_END);
    assert_int_equal(done.chunks, 0); /* the verifier's */
    assert_int_equal(tb_arena_prove_step(arena, UINT64_MAX, true, &done), TB_END);
    assert_int_equal(done.chunks, p->manifest->chunk_count);
    assert_true(done.bad == 1 && !tb_place_held(p, 1) && tb_arena_chunk_trusted(first(arena), 0, 0));
    assert_int_equal(tb_manifest_proven_count(p->manifest), p->manifest->chunk_count - 1);
    assert_int_equal(tb_arena_verify_step(arena, 1, &done), TB_END);
    assert_int_equal(done.chunks, 0);
    tb_arena_close(arena);
    version_fini(&v);
}

/* An extent tells by its size which release made it. */
static void an_older_extent_has_no_space_for_proofs(void **state)
{
    (void)state;
    struct arena_record_shard s = {.packed_bytes = 1000 * MIB, .head_bytes = 500, .chunk_count = 1000};
    struct arena_extent_plan fresh, old, same;
    assert_true(tb_arena_extent_plan(&s, &fresh));
    assert_true(fresh.proofs >= fresh.held + 1000 / 8 && fresh.total >= fresh.proofs + 32000);
    s.bytes = fresh.proofs + 4096 - fresh.proofs % 4096;
    assert_true(tb_arena_extent_plan(&s, &old));
    assert_true(old.proofs == 0 && old.total < fresh.total && old.held == fresh.held);
    s.bytes = fresh.total;
    assert_true(tb_arena_extent_plan(&s, &same));
    assert_true(same.proofs == fresh.proofs && same.total == fresh.total);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chunk_that_lands_is_proven_and_stays_so),
        cmocka_unit_test(nothing_is_proven_of_other_models),
        cmocka_unit_test(chunks_of_an_earlier_process_are_proven_as_they_are_verified),
        cmocka_unit_test(a_chunk_is_proven_behind_its_landing),
        cmocka_unit_test(bytes_that_rotted_get_no_proof),
        cmocka_unit_test(a_chunk_that_nobody_verifies_is_proven),
        cmocka_unit_test(an_older_extent_has_no_space_for_proofs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
