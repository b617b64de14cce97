/* arena.c - reserving, refusing, pinning, freeing; what may be opened and what may not (P3, P7).
 * Covers: gateway/arena/arena.c gateway/arena/arena_regions.c gateway/arena/arena_reserve.c
 * Covers: gateway/arena/arena_file.c gateway/arena/arena_tables.c */
#include "arena_world.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "gateway/arena/arena.h"
#include "gateway/arena/arena_inner.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/arena/arena_reserve.h"
#include "gateway/arena/arena_verify.h"

#define MIB ((uint64_t)1 << 20)

static char error[TB_ARENA_ERROR_BYTES];

static enum tb_status try_open(const char *path, uint64_t bytes)
{
    struct tb_arena *arena = NULL;
    const enum tb_status status =
        tb_arena_open(&(struct tb_arena_options){.path = path, .bytes = bytes}, &arena, error);
    if (status != TB_OK) assert_null(arena);
    tb_arena_close(arena);
    return status;
}

static void the_file_is_whole_and_private(void **state)
{
    (void)state;
    const char *path = world_path();
    struct tb_arena *arena = world_open(path, 16 * MIB + 100);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 16 * MIB);
    assert_true((uint64_t)st.st_blocks * 512 >= 16 * MIB); /* allocated, not a hole: no SIGBUS later */
    assert_int_equal(st.st_mode & 0777, 0600);
    struct tb_arena_budget budget;
    tb_arena_budget(arena, &budget);
    assert_int_equal(budget.used_bytes, 0);
    assert_int_equal(budget.free_bytes, budget.total_bytes);
    assert_int_equal(budget.largest_free_bytes, budget.total_bytes);
    assert_true(budget.total_bytes > 15 * MIB);
    tb_arena_close(arena);
}

static void a_second_daemon_is_refused(void **state)
{
    (void)state;
    const char *path = world_path();
    struct tb_arena *arena = world_open(path, 16 * MIB);
    assert_int_equal(try_open(path, 16 * MIB), TB_SITE_LOCKED);
    assert_non_null(strstr(error, path));
    tb_arena_close(arena);
    assert_int_equal(try_open(path, 16 * MIB), TB_OK);
}

static void a_full_filesystem_is_told_with_numbers(void **state)
{
    (void)state;
    const char *path = world_path();
    tb_fault_arm(TB_FAULT_fallocate, 1, false);
    const enum tb_status status = try_open(path, 16 * MIB);
    tb_fault_arm(TB_FAULT_fallocate, 0, false);
    assert_int_equal(status, TB_SITE_NOMEM);
    assert_non_null(strstr(error, "16777216 bytes"));
    assert_non_null(strstr(error, "free"));
    assert_int_equal(try_open(path, 16 * MIB), TB_OK); /* nothing is left locked or half made */
}

static void every_failing_call_of_open_is_survived(void **state)
{
    (void)state;
    const enum tb_fault_point points[] = {TB_FAULT_open, TB_FAULT_mmap, TB_FAULT_malloc};
    for (size_t p = 0; p < sizeof points / sizeof points[0]; p++)
        for (uint64_t nth = 1; nth < 8; nth++) {
            const char *path = world_path();
            tb_fault_arm(points[p], nth, false);
            const enum tb_status status = try_open(path, 16 * MIB);
            const bool hit = tb_fault_calls(points[p]) >= nth;
            tb_fault_arm(points[p], 0, false);
            assert_true(hit ? status != TB_OK && error[0] != '\0' : status == TB_OK);
        }
}

static void odd_sizes_and_files_are_refused(void **state)
{
    (void)state;
    const char *path = world_path();
    assert_int_equal(try_open(path, 1 * MIB), TB_SITE_CONFIG);
    assert_int_equal(try_open("/dev/null", 16 * MIB), TB_SITE_CONFIG);
    assert_int_equal(try_open("/dev/shm/no-such-folder/arena", 16 * MIB), TB_SITE_IO);
    assert_non_null(strstr(error, "no-such-folder"));
}

/* P7 P10: with the numbers, and before any of it is taken from others. */
static void a_size_that_cannot_fit_is_not_tried(void **state)
{
    (void)state;
    struct stat st;
    const char *path = world_path();
    tb_fault_arm(TB_FAULT_fallocate, 1, false);
    assert_int_equal(try_open(path, (uint64_t)1 << 46), TB_SITE_NOMEM);
    assert_int_equal(tb_fault_calls(TB_FAULT_fallocate), 0);
    tb_fault_arm(TB_FAULT_fallocate, 0, false);
    assert_non_null(strstr(error, "wants 70368744177664 bytes"));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_blocks, 0);
}

static void a_version_lands_and_is_whole(void **state)
{
    (void)state;
    struct version v;
    version_make(&v, 5, 2, 3 * MIB);
    struct tb_arena *arena = world_open(world_path(), 32 * MIB);
    struct tb_arena_region *region = NULL;
    assert_int_equal(tb_arena_reserve(arena, &v.key, v.list, 2, &region, error), TB_OK);
    assert_true(tb_arena_region_complete(region));
    assert_false(tb_arena_region_whole(region));
    assert_ptr_equal(tb_arena_region(arena, &v.key.uid), region);
    assert_int_equal(tb_arena_place(region, 0)->manifest->bytes, 3 * MIB);
    version_land_all(&v, region);
    assert_true(tb_arena_region_whole(region));
    assert_true(tb_arena_chunk_trusted(region, 1, 2)); /* it landed in this process */
    tb_arena_close(arena);
    version_fini(&v);
}

/* Lands the last chunk of shard 0 just after it was counted, as a stream does. */
struct told {
    const struct version *v;
    struct tb_arena_region *region;
    bool lands;
    uint32_t held[2];
};

static void on_told(void *user, uint32_t shard, uint32_t held_chunks)
{
    struct told *t = user;
    t->held[shard] = held_chunks;
    if (shard == 0 && t->lands) version_land(t->v, tb_arena_place(t->region, 0), 0, 2);
}

/* P6: else a catalog that was told one chunk less waits for it for ever. */
static void whole_means_that_all_chunks_were_told(void **state)
{
    (void)state;
    struct version v;
    version_make(&v, 5, 2, 3 * MIB);
    struct tb_arena *arena = world_open(world_path(), 32 * MIB);
    struct told t = {.v = &v, .lands = true};
    assert_int_equal(tb_arena_reserve(arena, &v.key, v.list, 2, &t.region, error), TB_OK);
    for (uint32_t k = 0; k < 3; k++)
        version_land(&v, tb_arena_place(t.region, 1), 1, k);
    version_land(&v, tb_arena_place(t.region, 0), 0, 0);
    version_land(&v, tb_arena_place(t.region, 0), 0, 1);

    assert_false(tb_arena_region_tell(t.region, on_told, &t));
    assert_true(tb_arena_region_whole(t.region)); /* by now */
    assert_int_equal(t.held[0], 2);
    t.lands = false;
    assert_true(tb_arena_region_tell(t.region, on_told, &t));
    assert_int_equal(t.held[0], 3);
    assert_int_equal(t.held[1], 3);
    tb_arena_close(arena);
    version_fini(&v);
}

static void asking_twice_gives_the_same_region(void **state)
{
    (void)state;
    struct version v, other;
    version_make(&v, 5, 2, MIB);
    version_make(&other, 6, 2, MIB);
    struct tb_arena *arena = world_open(world_path(), 16 * MIB);
    struct tb_arena_region *region = NULL;
    struct tb_arena_region *again = NULL;
    assert_int_equal(tb_arena_reserve(arena, &v.key, v.list, 2, &region, error), TB_OK);
    assert_int_equal(tb_arena_reserve(arena, &v.key, v.list, 2, &again, error), TB_DONE_BEFORE);
    assert_ptr_equal(region, again);
    assert_int_equal(tb_arena_region_new(arena, &v.key, &again, error), TB_DONE_BEFORE);
    assert_int_equal(tb_arena_shard_reserve(region, 1, v.list[1], error), TB_DONE_BEFORE);
    assert_int_equal(tb_arena_shard_reserve(region, 1, other.list[1], error), TB_CONFLICT);
    assert_int_equal(tb_arena_shard_reserve(region, 2, v.list[1], error), TB_BAD_ARGUMENT);
    v.key.number = 99;
    assert_int_equal(tb_arena_region_new(arena, &v.key, &again, error), TB_CONFLICT);
    tb_arena_close(arena);
    version_fini(&v);
    version_fini(&other);
}

/* P7: refused with the numbers, and nothing is taken by the attempt. */
static void a_version_that_does_not_fit_is_refused_whole(void **state)
{
    (void)state;
    struct version v, small;
    version_make(&v, 5, 4, 5 * MIB);
    version_make(&small, 6, 1, 4 * MIB);
    struct tb_arena *arena = world_open(world_path(), 16 * MIB);
    struct tb_arena_region *region = NULL;
    struct tb_arena_budget before, after;
    tb_arena_budget(arena, &before);
    assert_int_equal(tb_arena_reserve(arena, &v.key, v.list, 4, &region, error), TB_SITE_NOMEM);
    assert_non_null(strstr(error, "20971520 bytes in 4 shards"));
    assert_non_null(strstr(error, "bytes free of"));
    assert_null(region);
    tb_arena_budget(arena, &after);
    assert_memory_equal(&before, &after, sizeof before);
    assert_null(tb_arena_region(arena, &v.key.uid));
    assert_int_equal(tb_arena_reserve(arena, &small.key, small.list, 1, &region, error), TB_OK);
    tb_arena_close(arena);
    version_fini(&v);
    version_fini(&small);
}

static void slots_run_out_with_a_word(void **state)
{
    (void)state;
    struct version v;
    version_make(&v, 1, 1, 4096);
    struct tb_arena *arena = world_open(world_path(), 16 * MIB);
    struct tb_arena_region *region = NULL;
    enum tb_status status = TB_OK;
    uint32_t made = 0;
    for (; status == TB_OK && made < 1000; made++) {
        v.key.uid.bytes[3] = (uint8_t)made;
        v.key.uid.bytes[4] = (uint8_t)(made >> 8);
        status = tb_arena_reserve(arena, &v.key, v.list, 1, &region, error);
    }
    assert_int_equal(status, TB_SITE_NOMEM);
    assert_int_equal(made, 129); /* 256 slots, two a version */
    assert_non_null(strstr(error, "slots"));
    v.key.shard_count = 256;
    v.key.uid.bytes[5] = 1;
    assert_int_equal(tb_arena_region_new(arena, &v.key, &region, error), TB_TOO_LARGE);
    tb_arena_close(arena);
    version_fini(&v);
}

static void a_pin_keeps_the_bytes(void **state)
{
    (void)state;
    struct version v;
    version_make(&v, 5, 1, MIB);
    struct tb_arena *arena = world_open(world_path(), 16 * MIB);
    struct tb_arena_region *region = NULL;
    struct tb_arena_budget before, after;
    tb_arena_budget(arena, &before);
    assert_int_equal(tb_arena_reserve(arena, &v.key, v.list, 1, &region, error), TB_OK);
    tb_arena_region_ref(region);
    tb_arena_region_ref(region);
    assert_int_equal(tb_arena_free(region), TB_BAD_STATE);
    tb_arena_region_unref(region);
    assert_int_equal(tb_arena_free(region), TB_BAD_STATE);
    tb_arena_region_unref(region);
    assert_int_equal(tb_arena_free(region), TB_OK);
    assert_null(tb_arena_region(arena, &v.key.uid));
    tb_arena_budget(arena, &after);
    assert_memory_equal(&before, &after, sizeof before);
    tb_arena_close(arena);
    version_fini(&v);
}

/* At home shards are sealed one after another; across a link the digests come after the heads. */
static void shards_and_digests_may_come_one_by_one(void **state)
{
    (void)state;
    struct version v;
    version_make(&v, 5, 2, 2 * MIB);
    struct tb_arena *arena = world_open(world_path(), 16 * MIB);
    struct tb_arena_region *region = NULL;
    assert_int_equal(tb_arena_region_new(arena, &v.key, &region, error), TB_OK);
    assert_null(tb_arena_place(region, 1));
    assert_int_equal(tb_arena_digests_done(region, 1), TB_BAD_STATE);
    struct tb_manifest bare = v.manifests[1];
    struct tb_digest zeros[2] = {0};
    bare.digests = zeros;
    assert_int_equal(tb_arena_shard_reserve(region, 1, &bare, error), TB_OK);
    assert_false(tb_arena_place_ready(region, 1));
    struct tb_place *place = tb_arena_place(region, 1);
    assert_int_equal(tb_arena_digests_done(region, 1), TB_CHUNK_DIGEST);
    memcpy(place->manifest->digests, v.manifests[1].digests, sizeof zeros);
    assert_int_equal(tb_arena_digests_done(region, 1), TB_OK);
    assert_int_equal(tb_arena_digests_done(region, 1), TB_DONE_BEFORE);
    assert_true(tb_arena_place_ready(region, 1));
    assert_false(tb_arena_region_complete(region));
    assert_int_equal(tb_arena_shard_reserve(region, 0, v.list[0], error), TB_OK);
    assert_true(tb_arena_region_complete(region));
    assert_ptr_equal(tb_arena_place(region, 1), place);
    tb_arena_close(arena);
    version_fini(&v);
}

static void regions_are_listed_in_order(void **state)
{
    (void)state;
    struct tb_arena *arena = world_open(world_path(), 16 * MIB);
    struct tb_arena_region *regions[3];
    for (uint64_t i = 0; i < 3; i++) {
        struct version v;
        version_make(&v, 9 - i, 1, 8192);
        assert_int_equal(tb_arena_reserve(arena, &v.key, v.list, 1, &regions[i], error), TB_OK);
        version_fini(&v);
    }
    assert_ptr_equal(tb_arena_region_next(arena, NULL), regions[0]);
    assert_ptr_equal(tb_arena_region_next(arena, regions[0]), regions[1]);
    assert_int_equal(tb_arena_free(regions[1]), TB_OK);
    assert_ptr_equal(tb_arena_region_next(arena, regions[0]), regions[2]);
    assert_null(tb_arena_region_next(arena, regions[2]));
    tb_arena_close(arena);
}

static void large_shards_begin_on_a_huge_page(void **state)
{
    (void)state;
    struct version v;
    version_make(&v, 5, 2, 33 * MIB);
    struct tb_arena *arena = world_open(world_path(), 80 * MIB);
    struct tb_arena_region *region = NULL;
    assert_int_equal(tb_arena_reserve(arena, &v.key, v.list, 2, &region, error), TB_OK);
    const uint8_t *a = tb_arena_place(region, 0)->bytes;
    const uint8_t *b = tb_arena_place(region, 1)->bytes;
    assert_int_equal((uint64_t)(b - a) % (2 * MIB), 0);
    tb_arena_close(arena);
    version_fini(&v);
}

static void out_of_heap_reserves_nothing(void **state)
{
    (void)state;
    struct version v;
    version_make(&v, 5, 2, MIB);
    struct tb_arena *arena = world_open(world_path(), 16 * MIB);
    struct tb_arena_budget before, after;
    tb_arena_budget(arena, &before);
    for (uint64_t nth = 1; nth <= 5; nth++) {
        struct tb_arena_region *region = NULL;
        tb_fault_arm(TB_FAULT_malloc, nth, false);
        const enum tb_status status = tb_arena_reserve(arena, &v.key, v.list, 2, &region, error);
        tb_fault_arm(TB_FAULT_malloc, 0, false);
        assert_int_equal(status, TB_SITE_NOMEM);
        tb_arena_budget(arena, &after);
        assert_memory_equal(&before, &after, sizeof before);
    }
    tb_arena_close(arena);
    version_fini(&v);
}

static void one_region_more(struct tb_arena *arena)
{
    arena->regions++;
}

static void one_slot_less(struct tb_arena *arena)
{
    arena->slots_free--;
}

static void bytes_of_nobody(struct tb_arena *arena)
{
    arena->extents.all.bytes += MIB;
}

static void a_region_that_is_not_found(struct tb_arena *arena)
{
    memset(arena->buckets, 0, sizeof arena->buckets);
}

static int end_of_check(struct tb_arena *arena, void (*mistake)(struct tb_arena *arena))
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)close(STDERR_FILENO);
        mistake(arena);
        tb_arena_assert_tables(arena);
        _exit(0);
    }
    int ended = 0;
    assert_int_equal(waitpid(child, &ended, 0), child);
    return WIFSIGNALED(ended) ? WTERMSIG(ended) : 0;
}

static void no_mistake(struct tb_arena *arena)
{
    (void)arena;
}

/* In every build, once a second: a table that disagrees with another ends the process. */
static void tables_that_disagree_end_the_process(void **state)
{
    (void)state;
    void (*const mistakes[])(struct tb_arena * arena) = {one_region_more, one_slot_less, bytes_of_nobody,
                                                         a_region_that_is_not_found};
    struct version v;
    version_make(&v, 5, 2, MIB);
    struct tb_arena *arena = world_open(world_path(), 16 * MIB);
    struct tb_arena_region *region = NULL;
    assert_int_equal(tb_arena_reserve(arena, &v.key, v.list, 2, &region, error), TB_OK);
    assert_int_equal(end_of_check(arena, no_mistake), 0);
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++)
        assert_int_equal(end_of_check(arena, mistakes[i]), SIGABRT);
    tb_arena_close(arena);
    version_fini(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_that_disagree_end_the_process),
        cmocka_unit_test(the_file_is_whole_and_private),
        cmocka_unit_test(a_second_daemon_is_refused),
        cmocka_unit_test(a_full_filesystem_is_told_with_numbers),
        cmocka_unit_test(every_failing_call_of_open_is_survived),
        cmocka_unit_test(odd_sizes_and_files_are_refused),
        cmocka_unit_test(a_size_that_cannot_fit_is_not_tried),
        cmocka_unit_test(a_version_lands_and_is_whole),
        cmocka_unit_test(whole_means_that_all_chunks_were_told),
        cmocka_unit_test(asking_twice_gives_the_same_region),
        cmocka_unit_test(a_version_that_does_not_fit_is_refused_whole),
        cmocka_unit_test(slots_run_out_with_a_word),
        cmocka_unit_test(a_pin_keeps_the_bytes),
        cmocka_unit_test(shards_and_digests_may_come_one_by_one),
        cmocka_unit_test(regions_are_listed_in_order),
        cmocka_unit_test(large_shards_begin_on_a_huge_page),
        cmocka_unit_test(out_of_heap_reserves_nothing),
    };
    return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
