/* arena_map.c - what is mapped ahead costs no page fault when it is used, and what is not, does.
 * Covers: gateway/arena/arena_map.c */
#include <sys/resource.h>

#include "arena_world.h"
#include "gateway/arena/arena.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/arena/arena_reserve.h"
#include "gateway/arena/arena_verify.h"
#include "tests/unit/huge_given.h"

#define BYTES ((uint64_t)32 << 20)
#define PAGE  4096u

static long faults(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_minflt;
}

/* Faults of writing each page of a version's 16 MiB. */
static long faults_of_landing(struct tb_arena *arena)
{
    struct version v;
    char error[TB_ARENA_ERROR_BYTES];
    struct tb_arena_region *region = NULL;
    version_make(&v, 1, 1, (uint64_t)16 << 20);
    assert_int_equal(tb_arena_reserve(arena, &v.key, v.list, 1, &region, error), TB_OK);
    uint8_t *bytes = tb_arena_place(region, 0)->bytes;
    const long before = faults();
    for (uint64_t i = 0; i < (uint64_t)16 << 20; i += PAGE)
        *(volatile uint8_t *)(bytes + i) = 1;
    const long count = faults() - before;
    version_fini(&v);
    return count;
}

static bool map_all(struct tb_arena *arena)
{
    uint32_t steps = 0;
    while (tb_arena_map_step(arena, (uint64_t)4 << 20) == TB_AGAIN)
        steps++;
    struct tb_arena_mapping m;
    tb_arena_mapping(arena, true, &m);
    assert_int_equal(m.file_bytes, BYTES);
    if (m.mapped_bytes == 0) return false; /* a kernel before 5.14 */
    assert_int_equal(steps, 7);            /* bounded pieces: the asker can stop between them */
    assert_int_equal(m.mapped_bytes, BYTES);
    assert_int_equal(tb_arena_map_step(arena, 1), TB_END);
    return true;
}

/* P6: landing does not pay for pages that the background has mapped. */
static void mapped_bytes_cost_no_fault(void **state)
{
    (void)state;
    struct tb_arena *arena = world_open(world_path(), BYTES);
    if (!map_all(arena)) {
        tb_arena_close(arena);
        skip();
    }
    /* Of 4096 pages. ASan's own shadow has one for each eight of ours. */
    assert_in_range(faults_of_landing(arena), 0, 4096 / 8 + 64);
    tb_arena_close(arena);
}

/* And what it changes is the mapping alone: a held version is read back as it was. */
static void mapping_changes_no_byte(void **state)
{
    (void)state;
    struct version v;
    char error[TB_ARENA_ERROR_BYTES];
    struct tb_arena_region *region = NULL;
    const char *path = world_path();
    struct tb_arena *arena = world_open(path, BYTES);
    version_make(&v, 2, 1, (uint64_t)8 << 20);
    assert_int_equal(tb_arena_reserve(arena, &v.key, v.list, 1, &region, error), TB_OK);
    version_land_all(&v, region);
    tb_arena_close(arena);
    arena = world_open(path, BYTES);
    (void)map_all(arena);
    struct tb_arena_verified done;
    while (tb_arena_verify_step(arena, UINT64_MAX, &done) == TB_AGAIN) {
    }
    assert_int_equal(done.bad, 0);
    region = tb_arena_region(arena, &v.key.uid);
    assert_non_null(region);
    assert_true(tb_arena_region_whole(region));
    version_fini(&v);
    tb_arena_close(arena);
}

static uint64_t in_huge_pages(struct tb_arena *arena)
{
    struct tb_arena_mapping m;
    tb_arena_mapping(arena, true, &m);
    return m.huge_bytes;
}

/* tmpfs is not mounted for them. */
static void a_new_file_stands_in_huge_pages(void **state)
{
    (void)state;
    if (!huge_given(BYTES)) skip();
    const char *path = world_path();
    struct tb_arena *arena = world_open(path, BYTES);
    if (!map_all(arena)) {
        tb_arena_close(arena);
        skip(); /* a disk */
    }
    assert_int_equal(in_huge_pages(arena), BYTES);
    tb_arena_close(arena);
    arena = world_open(path, BYTES); /* and for the next life */
    assert_true(map_all(arena));
    assert_int_equal(in_huge_pages(arena), BYTES);
    tb_arena_close(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mapped_bytes_cost_no_fault),
        cmocka_unit_test(mapping_changes_no_byte),
        cmocka_unit_test(a_new_file_stands_in_huge_pages),
    };
    return cmocka_run_group_tests_name("arena_map", tests, NULL, NULL);
}
