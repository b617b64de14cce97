/* recover.c - what a restart finds (P3), and what it makes of damage.
 * Covers: gateway/arena/arena_recover.c gateway/arena/arena_file.c */
#include "arena_world.h"

#include <stddef.h>
#include <unistd.h>

#include "gateway/arena/arena.h"
#include "gateway/arena/arena_file.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/arena/arena_reserve.h"
#include "gateway/arena/arena_verify.h"

#define MIB     ((uint64_t)1 << 20)
#define RECORDS 4096u

static char error[TB_ARENA_ERROR_BYTES];
static const char *path;

/* An arena with version 5 (two shards, shard 0 whole, chunk 1 of shard 1 held) and version 6 (one
 * shard, whole), closed again. */
struct left {
    struct version v5, v6;
    uint64_t v6_bytes; /* of the file, what its region takes */
    struct tb_id life;
};

static void leave(struct left *l)
{
    struct tb_arena_region *region = NULL;
    struct tb_arena_budget before, after;
    path = world_path();
    version_make(&l->v5, 5, 2, 3 * MIB);
    version_make(&l->v6, 6, 1, 2 * MIB);
    struct tb_arena *arena = world_open(path, 24 * MIB);
    assert_int_equal(tb_arena_reserve(arena, &l->v5.key, l->v5.list, 2, &region, error), TB_OK);
    for (uint32_t k = 0; k < 3; k++)
        version_land(&l->v5, tb_arena_place(region, 0), 0, k);
    version_land(&l->v5, tb_arena_place(region, 1), 1, 1);
    assert_true(tb_place_claim(tb_arena_place(region, 1), 2)); /* in flight when the process ends */
    tb_arena_budget(arena, &before);
    assert_int_equal(tb_arena_reserve(arena, &l->v6.key, l->v6.list, 1, &region, error), TB_OK);
    tb_arena_budget(arena, &after);
    l->v6_bytes = after.used_bytes - before.used_bytes;
    version_land_all(&l->v6, region);
    const struct tb_digest root = {{1, 2, 3}};
    assert_int_equal(tb_arena_region_set_root(region, &root), TB_OK);
    assert_int_equal(tb_arena_region_set_root(region, &root), TB_OK);
    assert_int_equal(tb_arena_region_set_root(region, &(struct tb_digest){{9}}), TB_CONFLICT);
    l->life = tb_arena_life(arena);
    tb_arena_close(arena);
}

static void left_fini(struct left *l)
{
    version_fini(&l->v5);
    version_fini(&l->v6);
}

static bool same_life(struct tb_arena *arena, const struct left *l)
{
    const struct tb_id life = tb_arena_life(arena);
    return tb_id_equal(&life, &l->life);
}

static void a_restart_finds_everything(void **state)
{
    (void)state;
    struct left l;
    leave(&l);
    struct tb_arena *arena = world_open(path, 24 * MIB);
    assert_true(same_life(arena, &l));
    struct tb_arena_region *r5 = tb_arena_region_next(arena, NULL);
    struct tb_arena_region *r6 = tb_arena_region_next(arena, r5);
    assert_non_null(r6);
    assert_null(tb_arena_region_next(arena, r6));
    assert_int_equal(tb_arena_region_key(r5)->number, 5);
    assert_string_equal(tb_arena_region_key(r5)->model.text, "policy");
    assert_int_equal(tb_arena_region_key(r6)->root.bytes[1], 2);
    assert_int_equal(tb_arena_region_key(r5)->root.bytes[1], 0);
    assert_true(tb_arena_region_complete(r5));
    assert_true(tb_arena_region_whole(r6));
    struct tb_place *place = tb_arena_place(r5, 1);
    assert_true(tb_place_held(place, 1));
    assert_false(tb_place_held(place, 0));
    assert_false(tb_arena_chunk_trusted(r5, 1, 1)); /* served, but not yet a base */
    version_land_all(&l.v5, r5);                    /* chunk 2's claim did not survive its process */
    assert_true(tb_arena_region_whole(r5));
    tb_arena_close(arena);
    left_fini(&l);
}

static void freed_regions_stay_gone(void **state)
{
    (void)state;
    struct left l;
    leave(&l);
    struct tb_arena *arena = world_open(path, 24 * MIB);
    assert_int_equal(tb_arena_free(tb_arena_region(arena, &l.v5.key.uid)), TB_OK);
    tb_arena_close(arena);
    arena = world_open(path, 24 * MIB);
    assert_null(tb_arena_region(arena, &l.v5.key.uid));
    assert_non_null(tb_arena_region(arena, &l.v6.key.uid));
    assert_true(same_life(arena, &l)); /* it left as a whole: no new life */
    tb_arena_close(arena);
    left_fini(&l);
}

static void the_file_grows_with_the_config(void **state)
{
    (void)state;
    struct left l;
    leave(&l);
    struct tb_arena *arena = world_open(path, 48 * MIB);
    struct tb_arena_budget budget;
    tb_arena_budget(arena, &budget);
    assert_true(budget.total_bytes > 47 * MIB);
    assert_int_equal(budget.regions, 2);
    assert_true(same_life(arena, &l));
    tb_arena_close(arena);
    arena = world_open(path, 12 * MIB); /* and shrinks over free space */
    tb_arena_budget(arena, &budget);
    assert_int_equal(budget.regions, 2);
    assert_true(same_life(arena, &l));
    tb_arena_close(arena);
    struct tb_arena *none = NULL;
    assert_int_equal(tb_arena_open(&(struct tb_arena_options){path, 8 * MIB}, &none, error), TB_SITE_CONFIG);
    assert_non_null(strstr(error, "past byte 8388608"));
    arena = world_open(path, 12 * MIB); /* the refusal changed nothing */
    tb_arena_budget(arena, &budget);
    assert_int_equal(budget.regions, 2);
    assert_true(same_life(arena, &l));
    tb_arena_close(arena);
    left_fini(&l);
}

static void digests_that_never_came_are_asked_for_again(void **state)
{
    (void)state;
    struct version v;
    struct tb_arena_region *region = NULL;
    path = world_path();
    version_make(&v, 5, 1, 2 * MIB);
    struct tb_arena *arena = world_open(path, 24 * MIB);
    struct tb_manifest bare = v.manifests[0];
    struct tb_digest zeros[2] = {0};
    bare.digests = zeros;
    assert_int_equal(tb_arena_region_new(arena, &v.key, &region, error), TB_OK);
    assert_int_equal(tb_arena_shard_reserve(region, 0, &bare, error), TB_OK);
    tb_arena_close(arena);
    arena = world_open(path, 24 * MIB);
    region = tb_arena_region(arena, &v.key.uid);
    assert_non_null(tb_arena_place(region, 0));
    assert_false(tb_arena_place_ready(region, 0));
    tb_arena_close(arena);
    version_fini(&v);
}

/* ---- damage ---- */

static void flip(uint64_t offset)
{
    uint8_t byte;
    world_file_read(path, offset, &byte, 1);
    byte ^= 0x10;
    world_file_write(path, offset, &byte, 1);
}

/* The record of that kind and uid (and shard), by its place in the file. */
static uint64_t find_record(uint32_t kind, const struct tb_id *uid, uint32_t shard,
                            struct arena_record *record_out)
{
    for (uint32_t i = 0; i < TB_ARENA_RECORDS_MIN; i++) {
        const uint64_t at = RECORDS + (uint64_t)i * sizeof *record_out;
        world_file_read(path, at, record_out, sizeof *record_out);
        if (record_out->use != ARENA_USED || record_out->kind != kind || !tb_id_equal(&record_out->uid, uid))
            continue;
        if (kind == ARENA_REGION || record_out->shard.shard == shard) return at;
    }
    fail_msg("no such record");
    return 0;
}

/* Writes the header, as a later release or a larger arena would have it, into the
 * slot that counts. */
static void header_write(struct arena_header *h)
{
    h->sequence++;
    h->check = tb_digest_of(h, offsetof(struct arena_header, check));
    world_file_write(path, h->sequence % 2 * 512, h, sizeof *h);
}

static struct arena_header header_read(void)
{
    struct arena_header h[2];
    for (uint32_t slot = 0; slot < 2; slot++)
        world_file_read(path, slot * 512, &h[slot], sizeof h[slot]);
    return h[0].sequence > h[1].sequence ? h[0] : h[1];
}

/* P3: `arena.bytes: 16MiB` where 16GiB was meant is an error of a config, and no reason
 * to lose what is there. */
static void tables_past_the_new_end_are_a_refusal(void **state)
{
    (void)state;
    path = world_path();
    tb_arena_close(world_open(path, 24 * MIB));
    struct arena_header h = header_read();
    h.record_count = TB_ARENA_RECORDS_MAX; /* 16 MiB of tables: those of an arena of 16 GiB and more */
    header_write(&h);
    struct tb_arena *arena = NULL;
    assert_int_equal(tb_arena_open(&(struct tb_arena_options){path, 12 * MIB}, &arena, error),
                     TB_SITE_CONFIG);
    assert_non_null(strstr(error, "it was 25165824"));
    arena = world_open(path, 24 * MIB);
    const struct tb_id life = tb_arena_life(arena);
    assert_true(tb_id_equal(&life, &h.life));
    tb_arena_close(arena);
}

/* P9: nor is another release's file damage, also when nothing of its header but its
 * beginning is where ours is. */
static void another_format_is_a_refusal(void **state)
{
    (void)state;
    struct left l;
    leave(&l);
    const struct arena_header ours = header_read();
    struct arena_header theirs = ours;
    theirs.format = TB_ARENA_FORMAT + 1;
    for (uint32_t slot = 0; slot < 2; slot++)
        header_write(&theirs);
    struct tb_arena *arena = NULL;
    assert_int_equal(tb_arena_open(&(struct tb_arena_options){path, 24 * MIB}, &arena, error),
                     TB_SITE_CONFIG);
    assert_non_null(strstr(error, "is of format 2"));
    for (uint32_t slot = 0; slot < 2; slot++)
        flip(slot * 512 + offsetof(struct arena_header, check));
    assert_int_equal(tb_arena_open(&(struct tb_arena_options){path, 24 * MIB}, &arena, error),
                     TB_SITE_CONFIG);
    for (uint32_t slot = 0; slot < 2; slot++) { /* nor where an old header of ours is whole beside theirs */
        world_file_read(path, slot * 512, &theirs, sizeof theirs);
        world_file_write(path, slot * 512, &ours, sizeof ours);
        assert_int_equal(tb_arena_open(&(struct tb_arena_options){path, 24 * MIB}, &arena, error),
                         TB_SITE_CONFIG);
        world_file_write(path, slot * 512, &theirs, sizeof theirs);
    }
    for (uint32_t slot = 0; slot < 2; slot++)
        world_file_write(path, slot * 512, &ours, sizeof ours);
    arena = world_open(path, 24 * MIB); /* the release that made it finds everything */
    assert_true(same_life(arena, &l));
    assert_true(tb_arena_region_whole(tb_arena_region(arena, &l.v6.key.uid)));
    tb_arena_close(arena);
    left_fini(&l);
}

/* Both slots of the header: an empty arena and a new life. One slot: the other counts. */
static void a_damaged_header_begins_anew(void **state)
{
    (void)state;
    struct left l;
    leave(&l);
    for (uint32_t slot = 0; slot < 2; slot++)
        flip(slot * 512 + offsetof(struct arena_header, bytes));
    struct tb_arena *arena = world_open(path, 24 * MIB);
    assert_false(same_life(arena, &l));
    assert_null(tb_arena_region_next(arena, NULL));
    tb_arena_close(arena);
    left_fini(&l);
}

static void a_torn_header_slot_falls_back_to_the_other(void **state)
{
    (void)state;
    struct left l;
    leave(&l);
    struct arena_header h[2];
    for (uint32_t slot = 0; slot < 2; slot++)
        world_file_read(path, slot * 512, &h[slot], sizeof h[slot]);
    const uint32_t newest = h[0].sequence > h[1].sequence ? 0 : 1;
    h[1 - newest] = h[newest]; /* as it would be after two changes of one life */
    h[1 - newest].sequence++;
    world_file_write(path, (1 - newest) * 512, &h[1 - newest], 40); /* its check was not written yet */
    struct tb_arena *arena = world_open(path, 24 * MIB);
    assert_true(same_life(arena, &l));
    assert_non_null(tb_arena_region(arena, &l.v6.key.uid));
    tb_arena_close(arena);
    left_fini(&l);
}

/* One damage: version 5 goes, version 6 stays, the life is new, and the space of
 * version 5 is free again. */
static void damage_drops_one(uint64_t offset, struct left *l)
{
    flip(offset);
    struct tb_arena *arena = world_open(path, 24 * MIB);
    assert_null(tb_arena_region(arena, &l->v5.key.uid));
    assert_true(tb_arena_region_whole(tb_arena_region(arena, &l->v6.key.uid)));
    assert_false(same_life(arena, l));
    struct tb_arena_budget budget;
    tb_arena_budget(arena, &budget);
    assert_int_equal(budget.regions, 1);
    assert_int_equal(budget.used_bytes, l->v6_bytes);
    assert_int_equal(budget.slots_free, TB_ARENA_RECORDS_MIN - 2);
    const struct tb_id life = tb_arena_life(arena);
    tb_arena_close(arena);
    arena = world_open(path, 24 * MIB); /* told once: the next start is an ordinary one */
    const struct tb_id again = tb_arena_life(arena);
    assert_true(tb_id_equal(&life, &again));
    struct tb_arena_region *region = NULL;
    assert_int_equal(tb_arena_reserve(arena, &l->v5.key, l->v5.list, 2, &region, error), TB_OK);
    tb_arena_close(arena);
    left_fini(l);
}

static void every_kind_of_damage_drops_one_region(void **state)
{
    (void)state;
    struct arena_extent_plan plan;
    struct arena_record r;
    struct left l;
    const size_t region_fields[] = {offsetof(struct arena_record, use),
                                    offsetof(struct arena_record, kind),
                                    offsetof(struct arena_record, uid),
                                    offsetof(struct arena_record, region.key_bytes),
                                    offsetof(struct arena_record, region.key) + 20,
                                    offsetof(struct arena_record, check),
                                    offsetof(struct arena_record, spare)};
    for (size_t i = 0; i < sizeof region_fields / sizeof region_fields[0]; i++) {
        leave(&l);
        damage_drops_one(find_record(ARENA_REGION, &l.v5.key.uid, 0, &r) + region_fields[i], &l);
    }
    const size_t shard_fields[] = {
        offsetof(struct arena_record, use),          offsetof(struct arena_record, kind),
        offsetof(struct arena_record, shard.offset), offsetof(struct arena_record, shard.bytes),
        offsetof(struct arena_record, shard.shard),  offsetof(struct arena_record, digests_done)};
    for (size_t i = 0; i < sizeof shard_fields / sizeof shard_fields[0]; i++) {
        leave(&l);
        const uint64_t at = find_record(ARENA_SHARD, &l.v5.key.uid, 1, &r);
        flip(at + shard_fields[i]);
        struct tb_arena *arena = world_open(path, 24 * MIB);
        assert_false(same_life(arena, &l));
        assert_true(tb_arena_region_whole(tb_arena_region(arena, &l.v6.key.uid)));
        struct tb_arena_region *r5 = tb_arena_region(arena, &l.v5.key.uid);
        assert_true(r5 == NULL || (tb_arena_place(r5, 1) == NULL && tb_arena_place(r5, 0) != NULL));
        tb_arena_close(arena);
        left_fini(&l);
    }
    for (uint32_t part = 0; part < 4; part++) {
        leave(&l);
        find_record(ARENA_SHARD, &l.v5.key.uid, 1, &r);
        assert_true(tb_arena_extent_plan(&r.shard, &plan));
        const uint64_t inside[] = {plan.head + 2, plan.head + 30, plan.digests + 17, plan.held + 1};
        damage_drops_one(r.shard.offset + inside[part], &l);
    }
}

static void a_file_cut_behind_our_back_begins_anew(void **state)
{
    (void)state;
    struct left l;
    leave(&l);
    assert_int_equal(truncate(path, 9 * (off_t)MIB), 0);
    struct tb_arena *arena = world_open(path, 24 * MIB);
    assert_false(same_life(arena, &l));
    assert_null(tb_arena_region_next(arena, NULL));
    tb_arena_close(arena);
    left_fini(&l);
}

/* P7: whatever stands in the tables, opening ends, inside its bounds (the sanitizers look on), and
 * the arena can be used. */
static void random_damage_never_breaks_the_open(void **state)
{
    (void)state;
    for (uint64_t round = 1; round <= 20; round++) {
        uint64_t seed = round * 0x9E3779B97F4A7C15u;
        struct left l;
        struct arena_record r;
        leave(&l);
        find_record(ARENA_SHARD, &l.v5.key.uid, round % 2, &r);
        for (uint32_t i = 0; i < 1 + round % 8; i++) {
            const uint64_t x = world_random(&seed);
            const uint64_t meta = r.shard.offset + r.shard.packed_bytes;
            flip(x % 2 ? RECORDS + (x >> 8) % (8 * sizeof r) : meta + (x >> 8) % 4096);
        }
        struct tb_arena *arena = world_open(path, 24 * MIB);
        struct tb_arena_region *region = NULL;
        struct version v;
        version_make(&v, 77, 1, MIB);
        assert_int_equal(tb_arena_reserve(arena, &v.key, v.list, 1, &region, error), TB_OK);
        version_land_all(&v, region);
        version_fini(&v);
        tb_arena_close(arena);
        left_fini(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_restart_finds_everything),
        cmocka_unit_test(freed_regions_stay_gone),
        cmocka_unit_test(the_file_grows_with_the_config),
        cmocka_unit_test(digests_that_never_came_are_asked_for_again),
        cmocka_unit_test(tables_past_the_new_end_are_a_refusal),
        cmocka_unit_test(another_format_is_a_refusal),
        cmocka_unit_test(a_damaged_header_begins_anew),
        cmocka_unit_test(a_torn_header_slot_falls_back_to_the_other),
        cmocka_unit_test(every_kind_of_damage_drops_one_region),
        cmocka_unit_test(a_file_cut_behind_our_back_begins_anew),
        cmocka_unit_test(random_damage_never_breaks_the_open),
    };
    return cmocka_run_group_tests_name("recover", tests, NULL, NULL);
}
