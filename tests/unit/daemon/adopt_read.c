/* adopt_read.c - files are compared with versions, and chunks that match are claimed. Only bytes
 * that are the version's when they are read count, whatever the files were a moment before (P1).
 *
 * Covers: gateway/daemon/copies/adopt_read.c */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gateway/arena/arena.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/arena/arena_reserve.h"
#include "gateway/daemon/copies/adopt_read.h"
#include "tests/unit/check.h"
#include "tests/unit/scratch.h"

#define COUNT  (4u << 20) /* bytes of the tensor */
#define CHUNKS 4u

struct world {
    char dir[SCRATCH_BYTES], file[192], arena_path[192];
    uint8_t *bytes;
    struct tb_manifest manifests[2]; /* of versions 2 and 1: the newer first, as adoption.c has them */
    void *memory[2];
    struct tb_arena *arena;
    struct tb_adopt_reading r;
};

static const char json[] = "{\"t\":{\"dtype\":\"U8\",\"shape\":[4194304],\"data_offsets\":[0,4194304]}}";

static void manifest_make(struct world *w, uint32_t i, const uint8_t *bytes)
{
    const struct tb_tensor t = {
        .name = "t", .dtype = TB_DTYPE_U8, .rank = 1, .full = {COUNT}, .box_count = {COUNT}};
    struct tb_layout layout;
    const size_t layout_bytes = tb_layout_bytes_for(&t, 1);
    void *layout_memory = malloc(layout_bytes);
    CHECK_OK(tb_layout_build(&t, 1, layout_memory, layout_bytes, &layout));
    const size_t cap = tb_manifest_bytes_for(&layout, NULL, 0);
    w->memory[i] = malloc(cap);
    struct tb_manifest *m = &w->manifests[i];
    CHECK_OK(tb_manifest_build(&layout, NULL, 0, w->memory[i], cap, m));
    free(layout_memory);
    assert_int_equal(m->chunk_count, CHUNKS);
    for (uint32_t k = 0; k < CHUNKS; k++)
        m->digests[k] = tb_digest_of(bytes + m->chunks[k].offset, m->chunks[k].bytes);
    m->root = tb_manifest_root(m);
}

static void file_write(struct world *w, const uint8_t *bytes)
{
    FILE *f = fopen(w->file, "wb");
    assert_non_null(f);
    for (int i = 0; i < 8; i++)
        (void)fputc((int)((uint64_t)strlen(json) >> (8 * i) & 0xff), f);
    assert_int_equal(fwrite(json, 1, strlen(json), f), strlen(json));
    assert_int_equal(fwrite(bytes, 1, COUNT, f), COUNT);
    assert_int_equal(fclose(f), 0);
}

static struct tb_version_key key_of(uint64_t number)
{
    struct tb_version_key key = {.run_order = 1, .number = number, .shard_count = 1};
    key.uid.bytes[0] = (uint8_t)number;
    key.run.bytes[0] = 1;
    CHECK_OK(tb_name_set(&key.model, "policy"));
    return key;
}

/* The file is version 1; version 2 has another first chunk. */
static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    uint64_t seed = 7;
    if (!scratch_folder(w->dir, sizeof w->dir, "adopt")) return -1;
    (void)snprintf(w->file, sizeof w->file, "%s/t.safetensors", w->dir);
    (void)snprintf(w->arena_path, sizeof w->arena_path, "%s/arena", scratch_memory());
    w->bytes = malloc(COUNT);
    for (uint32_t i = 0; i < COUNT; i += 8) {
        const uint64_t v = check_random(&seed);
        memcpy(w->bytes + i, &v, 8);
    }
    manifest_make(w, 1, w->bytes);
    file_write(w, w->bytes);
    w->bytes[5] ^= 1;
    manifest_make(w, 0, w->bytes);
    w->bytes[5] ^= 1;
    char why[TB_LOCAL_ERROR_BYTES];
    CHECK_OK(tb_given_open(w->dir, NULL, &w->r.given, why));
    w->r.version_count = 2;
    w->r.versions[0].key = key_of(2);
    w->r.versions[1].key = key_of(1);
    for (uint32_t i = 0; i < 2; i++)
        CHECK_OK(tb_adopt_version_fill(&w->r.versions[i], &(const struct tb_manifest *){&w->manifests[i]}));
    char error[TB_ARENA_ERROR_BYTES];
    CHECK_OK(tb_arena_open(&(struct tb_arena_options){w->arena_path, 32u << 20}, &w->arena, error));
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    tb_adopt_read_fini(&w->r);
    tb_arena_close(w->arena);
    (void)unlink(w->file);
    (void)rmdir(w->dir);
    (void)unlink(w->arena_path);
    free(w->memory[0]);
    free(w->memory[1]);
    free(w->bytes);
    free(w);
    return 0;
}

static void job(struct world *w, enum tb_adopt_job what)
{
    CHECK_OK(tb_adopt_read_start(&w->r, what));
    tb_adopt_read_join(&w->r);
    assert_true(atomic_load(&w->r.done));
    CHECK_OK(w->r.status);
}

static struct tb_place *target(struct world *w, uint32_t version)
{
    char error[TB_ARENA_ERROR_BYTES];
    w->r.target = version;
    CHECK_OK(tb_arena_reserve(w->arena, &w->r.versions[version].key,
                              &(const struct tb_manifest *){&w->manifests[version]}, 1, &w->r.region, error));
    return tb_arena_place(w->r.region, 0);
}

static void each_version_is_told_what_of_it_is_here(void **state)
{
    struct world *w = *state;
    job(w, TB_ADOPT_OPEN);
    job(w, TB_ADOPT_COMPARE);
    assert_int_equal(w->r.versions[1].matched_bytes, COUNT);
    assert_int_equal(w->r.versions[0].matched_bytes, COUNT - w->manifests[0].chunks[0].bytes);
    assert_int_equal(atomic_load(&w->r.read_bytes), COUNT); /* once, for both */
    struct tb_place *place = target(w, 0);
    job(w, TB_ADOPT_CLAIM);
    assert_int_equal(atomic_load(&w->r.claimed_chunks), CHUNKS - 1);
    assert_false(tb_place_held(place, 0));
    for (uint32_t k = 1; k < CHUNKS; k++) {
        uint32_t bytes = 0;
        assert_true(tb_place_held(place, k));
        assert_memory_equal(tb_place_chunk(place, k, &bytes), w->bytes + w->manifests[0].chunks[k].offset,
                            bytes);
    }
}

/* P7: a layout's id may have been made equal for another with fewer chunks: what that
 * one has not is read. */
static void a_chunk_that_the_other_has_not_is_read(void **state)
{
    struct world *w = *state;
    w->r.versions[0].shards[0].manifest.chunk_count = 1;
    job(w, TB_ADOPT_OPEN);
    job(w, TB_ADOPT_COMPARE);
    assert_int_equal(w->r.versions[0].matched_bytes, 0);
    assert_int_equal(w->r.versions[1].matched_bytes, COUNT);
    w->r.versions[0].shards[0].manifest.chunk_count = CHUNKS;
}

/* P1: a file that changes between the look and the taking gives the chunks that are
 * still what they were. */
static void a_file_that_changed_meanwhile_gives_only_what_is_right(void **state)
{
    struct world *w = *state;
    job(w, TB_ADOPT_OPEN);
    job(w, TB_ADOPT_COMPARE);
    struct tb_place *place = target(w, 1);
    w->bytes[w->manifests[1].chunks[2].offset + 17] ^= 4;
    file_write(w, w->bytes);
    job(w, TB_ADOPT_CLAIM);
    assert_int_equal(tb_place_held_count(place), CHUNKS - 1);
    assert_false(tb_place_held(place, 2));
    assert_true(tb_place_claim(place, 2)); /* and nobody has a claim on it */
    tb_place_unclaim(place, 2);
}

/* A chunk that a link writes at the same time stays the link's. */
static void a_chunk_that_is_claimed_is_left_alone(void **state)
{
    struct world *w = *state;
    job(w, TB_ADOPT_OPEN);
    job(w, TB_ADOPT_COMPARE);
    struct tb_place *place = target(w, 1);
    assert_true(tb_place_claim(place, 1));
    job(w, TB_ADOPT_CLAIM);
    assert_int_equal(tb_place_held_count(place), CHUNKS - 1);
    tb_place_unclaim(place, 1);
}

static void a_stop_is_heeded(void **state)
{
    struct world *w = *state;
    job(w, TB_ADOPT_OPEN);
    atomic_store(&w->r.stop, true);
    CHECK_OK(tb_adopt_read_start(&w->r, TB_ADOPT_COMPARE));
    tb_adopt_read_join(&w->r);
    CHECK_STATUS(w->r.status, TB_CANCELLED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_version_is_told_what_of_it_is_here, setup, teardown),
        cmocka_unit_test_setup_teardown(a_chunk_that_the_other_has_not_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_that_changed_meanwhile_gives_only_what_is_right, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_chunk_that_is_claimed_is_left_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(a_stop_is_heeded, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
