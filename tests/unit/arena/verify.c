/* verify.c - what an earlier process left is digested again: before use as a base, and in
 * background (P1, P3).
 * Covers: gateway/arena/arena_verify.c */
#include "arena_world.h"

#include <pthread.h>
#include <stdatomic.h>

#include "gateway/arena/arena.h"
#include "gateway/arena/arena_inner.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/arena/arena_reserve.h"
#include "gateway/arena/arena_verify.h"

#define MIB ((uint64_t)1 << 20)

static char error[TB_ARENA_ERROR_BYTES];

/* A whole version of 5 chunks, as a restart finds it. */
static struct tb_arena *reopened(struct version *v, struct tb_arena_region **region_out)
{
    const char *path = world_path();
    version_make(v, 5, 1, 5 * MIB);
    struct tb_arena *arena = world_open(path, 16 * MIB);
    assert_int_equal(tb_arena_reserve(arena, &v->key, v->list, 1, region_out, error), TB_OK);
    version_land_all(v, *region_out);
    tb_arena_close(arena);
    arena = world_open(path, 16 * MIB);
    *region_out = tb_arena_region(arena, &v->key.uid);
    return arena;
}

static void sound_chunks_become_trusted(void **state)
{
    (void)state;
    struct version v;
    struct tb_arena_region *region = NULL;
    struct tb_arena_verified done;
    struct tb_arena *arena = reopened(&v, &region);
    const struct tb_id life = tb_arena_life(arena);
    assert_int_equal(tb_arena_verify_step(arena, 2 * MIB, &done), TB_AGAIN);
    assert_int_equal(done.chunks, 2);
    assert_true(tb_arena_chunk_trusted(region, 0, 1));
    assert_false(tb_arena_chunk_trusted(region, 0, 2));
    assert_int_equal(tb_arena_chunk_verify(region, 0, 3), TB_OK);
    assert_true(tb_arena_chunk_trusted(region, 0, 3));
    assert_int_equal(tb_arena_verify_step(arena, 100 * MIB, &done), TB_END);
    assert_int_equal(done.chunks, 2);
    assert_int_equal(done.bad, 0);
    assert_int_equal(tb_arena_verify_step(arena, 100 * MIB, &done), TB_END);
    assert_int_equal(done.chunks, 0);
    const struct tb_id after = tb_arena_life(arena);
    assert_true(tb_id_equal(&life, &after));
    tb_arena_close(arena);
    version_fini(&v);
}

static void a_flipped_byte_costs_the_bit_and_the_life(void **state)
{
    (void)state;
    struct version v;
    struct tb_arena_region *region = NULL;
    struct tb_arena_verified done;
    struct tb_arena *arena = reopened(&v, &region);
    struct tb_id life = tb_arena_life(arena);
    tb_arena_place(region, 0)->bytes[2 * MIB + 7] ^= 1;
    assert_int_equal(tb_arena_verify_step(arena, 100 * MIB, &done), TB_END);
    assert_int_equal(done.bad, 1);
    assert_int_equal(done.chunks, 5);
    assert_true(tb_arena_place_rotted(region, 0));
    assert_false(tb_arena_place_rotted(region, 0)); /* since it was asked, none */
    assert_false(tb_arena_place_rotted(region, 9));
    assert_false(tb_place_held(tb_arena_place(region, 0), 2));
    assert_int_equal(tb_place_held_count(tb_arena_place(region, 0)), 4);
    struct tb_id after = tb_arena_life(arena);
    assert_false(tb_id_equal(&life, &after));
    version_land_all(&v, region); /* fetched again, it is trusted */
    assert_true(tb_arena_chunk_trusted(region, 0, 2));
    assert_int_equal(tb_arena_chunk_verify(region, 0, 2), TB_OK);
    tb_arena_close(arena);
    version_fini(&v);
}

static void a_base_is_verified_before_its_use(void **state)
{
    (void)state;
    struct version v;
    struct tb_arena_region *region = NULL;
    struct tb_arena *arena = reopened(&v, &region);
    const struct tb_id life = tb_arena_life(arena);
    tb_arena_place(region, 0)->bytes[4 * MIB] ^= 1;
    assert_int_equal(tb_arena_chunk_verify(region, 0, 4), TB_CHUNK_DIGEST);
    assert_int_equal(tb_arena_chunk_verify(region, 0, 4), TB_CHUNK_ABSENT);
    assert_int_equal(tb_arena_chunk_verify(region, 9, 4), TB_CHUNK_ABSENT);
    const struct tb_id after = tb_arena_life(arena);
    assert_false(tb_id_equal(&life, &after));
    tb_arena_close(arena);
    version_fini(&v);
}

/* Somebody read a wrong chunk from us: it is digested although it landed in this process. */
static void a_trusted_chunk_can_be_rechecked(void **state)
{
    (void)state;
    struct version v;
    struct tb_arena_region *region = NULL;
    struct tb_arena *arena = world_open(world_path(), 16 * MIB);
    version_make(&v, 5, 1, 5 * MIB);
    assert_int_equal(tb_arena_reserve(arena, &v.key, v.list, 1, &region, error), TB_OK);
    version_land_all(&v, region);
    struct tb_id life = tb_arena_life(arena);
    assert_int_equal(tb_arena_chunk_recheck(region, 0, 1), TB_OK);
    struct tb_id after = tb_arena_life(arena);
    assert_true(tb_id_equal(&life, &after));
    tb_arena_place(region, 0)->bytes[MIB] ^= 1;
    assert_int_equal(tb_arena_chunk_verify(region, 0, 1), TB_OK); /* trusted: not looked at */
    assert_int_equal(tb_arena_chunk_recheck(region, 0, 1), TB_CHUNK_DIGEST);
    assert_int_equal(tb_arena_chunk_recheck(region, 0, 1), TB_CHUNK_ABSENT);
    after = tb_arena_life(arena);
    assert_false(tb_id_equal(&life, &after));
    tb_arena_close(arena);
    version_fini(&v);
}

/* Digests that are made while a test looks: those with the arena's mutex, and those beside it. */
static struct tb_arena *watched;
static uint32_t held_digests, free_digests;
static uint8_t *mended; /* this byte is as it was once the first digest is made */
static uint64_t *lost;  /* a chunk that is condemned meanwhile: its place's bits */
static bool lands;      /* that chunk, the moment after it was seen to be absent */
#define LOST 1u

struct tb_digest __real_tb_digest_of(const void *bytes, size_t count);
struct tb_digest __wrap_tb_digest_of(const void *bytes, size_t count);
struct tb_digest __wrap_tb_digest_of(const void *bytes, size_t count)
{
    const struct tb_digest digest = __real_tb_digest_of(bytes, count);
    if (watched == NULL) return digest;
    if (pthread_mutex_trylock(&watched->mutex) == 0) {
        pthread_mutex_unlock(&watched->mutex);
        free_digests++;
    } else {
        held_digests++;
    }
    if (mended != NULL) *mended ^= 1;
    if (lost != NULL) tb_bitmap_clear(lost, LOST);
    mended = NULL;
    lost = NULL;
    return digest;
}

bool __real_tb_place_held(const struct tb_place *p, uint32_t k);
bool __wrap_tb_place_held(const struct tb_place *p, uint32_t k);
bool __wrap_tb_place_held(const struct tb_place *p, uint32_t k)
{
    const bool held = __real_tb_place_held(p, k);
    if (watched != NULL && lands && k == LOST && !held) tb_bitmap_set(p->held, k);
    return held;
}

/* P6: a pass over a chunk is milliseconds, and the loop asks the arena at each step: nobody waits
 * for the mutex meanwhile. */
static void a_recheck_holds_up_nobody(void **state)
{
    (void)state;
    struct version v;
    struct tb_arena_region *region = NULL;
    struct tb_arena *arena = reopened(&v, &region);
    watched = arena;
    held_digests = free_digests = 0;
    assert_int_equal(tb_arena_chunk_recheck(region, 0, 1), TB_OK);
    assert_int_equal(tb_arena_chunk_verify(region, 0, 2), TB_OK);
    assert_int_equal(free_digests, 2);
    assert_int_equal(held_digests, 0);
    watched = NULL;
    tb_arena_close(arena);
    version_fini(&v);
}

/* It was condemned, and has landed again, while it was passed over: that is another chunk, and
 * good. */
static void a_chunk_that_landed_again_is_not_condemned(void **state)
{
    (void)state;
    struct version v;
    struct tb_arena_region *region = NULL;
    struct tb_arena *arena = reopened(&v, &region);
    const struct tb_id life = tb_arena_life(arena);
    mended = &tb_arena_place(region, 0)->bytes[MIB];
    *mended ^= 1;
    watched = arena;
    assert_int_equal(tb_arena_chunk_recheck(region, 0, 1), TB_OK);
    watched = NULL;
    assert_true(tb_place_held(tb_arena_place(region, 0), 1));
    const struct tb_id after = tb_arena_life(arena);
    assert_true(tb_id_equal(&life, &after));
    tb_arena_close(arena);
    version_fini(&v);
}

/* P5: it was absent at the last look, and is good and held a moment later, as what lands takes no
 * mutex: that is nobody's fault. */
static void a_chunk_that_lands_after_the_look_is_not_condemned(void **state)
{
    (void)state;
    for (int condemned_meanwhile = 0; condemned_meanwhile < 2; condemned_meanwhile++) {
        struct version v;
        struct tb_arena_region *region = NULL;
        struct tb_arena *arena = reopened(&v, &region);
        struct tb_place *place = tb_arena_place(region, 0);
        const struct tb_id life = tb_arena_life(arena);
        if (condemned_meanwhile) {
            mended = &place->bytes[LOST * MIB];
            *mended ^= 1;
            lost = place->held;
        } else {
            tb_bitmap_clear(place->held, LOST);
        }
        lands = true;
        watched = arena;
        assert_int_equal(tb_arena_chunk_recheck(region, 0, LOST), TB_CHUNK_ABSENT);
        watched = NULL;
        lands = false;
        assert_true(tb_place_held(place, LOST));
        const struct tb_id after = tb_arena_life(arena);
        assert_true(tb_id_equal(&life, &after));
        tb_arena_close(arena);
        version_fini(&v);
    }
}

static atomic_bool verifier_ended;

static void *verifier(void *user)
{
    struct tb_arena_verified done;
    while (tb_arena_verify_step(user, 1, &done) == TB_AGAIN)
        continue;
    atomic_store(&verifier_ended, true);
    return NULL;
}

/* A free that meets the verifier waits for the chunk in hand; ThreadSanitizer and
 * AddressSanitizer look on. */
static void a_free_waits_for_the_verifier(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 20; round++) {
        struct version v;
        struct tb_arena_region *region = NULL;
        struct tb_arena *arena = reopened(&v, &region);
        pthread_t thread;
        atomic_store(&verifier_ended, false);
        assert_int_equal(pthread_create(&thread, NULL, verifier, arena), 0);
        while (!atomic_load(&verifier_ended) && !tb_arena_chunk_trusted(region, 0, round % 5))
            continue;
        assert_int_equal(tb_arena_free(region), TB_OK);
        pthread_join(thread, NULL);
        tb_arena_close(arena);
        version_fini(&v);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_chunks_become_trusted),
        cmocka_unit_test(a_flipped_byte_costs_the_bit_and_the_life),
        cmocka_unit_test(a_base_is_verified_before_its_use),
        cmocka_unit_test(a_trusted_chunk_can_be_rechecked),
        cmocka_unit_test(a_recheck_holds_up_nobody),
        cmocka_unit_test(a_chunk_that_landed_again_is_not_condemned),
        cmocka_unit_test(a_chunk_that_lands_after_the_look_is_not_condemned),
        cmocka_unit_test(a_free_waits_for_the_verifier),
    };
    return cmocka_run_group_tests_name("verify", tests, NULL, NULL);
}
