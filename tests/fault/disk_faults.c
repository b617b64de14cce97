/* Versions in files under faults: an anchor is written over an older one and read back, and a
 * folder's files are compared with a version and claimed. Whichever call fails, an anchor that
 * has its name is whole (P3), a good one is never called damaged (P10), and what is held is
 * what was published (P1).
 *
 * Covers: gateway/disk/anchor_file.c gateway/disk/anchor_folder.c gateway/disk/disk_io.c
 * Covers: gateway/disk/local_files.c */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/layout/version_key.h"
#include "base/log.h"
#include "gateway/arena/arena.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/arena/arena_reserve.h"
#include "gateway/daemon/copies/adopt_read.h"
#include "gateway/disk/anchor_file.h"
#include "tests/fault/sweep.h"
#include "tests/unit/scratch.h"

static const struct tb_disk_key disk_key = {{1, 2, 3}};

#define COUNT  (3u << 20) /* bytes of the tensor */
#define CHUNKS 3u

static char folder[SCRATCH_BYTES];

static const char *in_folder(const char *name)
{
    static char paths[4][160];
    static unsigned at;
    char *path = paths[at++ % 4];
    (void)snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/* ---- a version ---- */

struct version {
    struct tb_version_key key;
    struct tb_manifest manifest;
    const struct tb_manifest *list[1];
    void *memory;
    uint8_t *bytes;
};

static void version_make(struct version *v, uint8_t number)
{
    const struct tb_tensor t = {
        .name = "t", .dtype = TB_DTYPE_U8, .rank = 1, .full = {COUNT}, .box_count = {COUNT}};
    struct tb_layout layout;
    const size_t layout_bytes = tb_layout_bytes_for(&t, 1);
    void *layout_memory = malloc(layout_bytes);
    CHECK_OK(tb_layout_build(&t, 1, layout_memory, layout_bytes, &layout));
    const size_t cap = tb_manifest_bytes_for(&layout, NULL, 0);
    v->memory = malloc(cap);
    CHECK_OK(tb_manifest_build(&layout, NULL, 0, v->memory, cap, &v->manifest));
    free(layout_memory);
    assert_int_equal(v->manifest.chunk_count, CHUNKS);
    v->bytes = malloc(COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        v->bytes[i] = (uint8_t)(i * 2654435761u >> 11) ^ number;
    for (uint32_t k = 0; k < CHUNKS; k++)
        v->manifest.digests[k] =
            tb_digest_of(v->bytes + v->manifest.chunks[k].offset, v->manifest.chunks[k].bytes);
    v->manifest.root = tb_manifest_root(&v->manifest);
    v->list[0] = &v->manifest;
    v->key = (struct tb_version_key){.run_order = 1, .number = number, .shard_count = 1};
    v->key.uid.bytes[0] = number;
    v->key.run.bytes[0] = 1;
    CHECK_OK(tb_name_set(&v->key.model, "policy"));
    v->key.root = tb_version_key_root(&v->key, &v->manifest.root);
}

static void version_fini(struct version *v)
{
    free(v->memory);
    free(v->bytes);
}

/* ---- anchors ---- */

struct anchor_round {
    struct version older, newer;
    struct tb_disk_keys keys;
    uint8_t *chunk; /* COUNT */
};

static enum tb_status anchor_write(const struct version *v, const struct tb_disk_keys *keys, const char *path)
{
    struct tb_anchor_file f;
    char error[TB_ANCHOR_ERROR_BYTES] = "";
    enum tb_status s = tb_anchor_create(path, &v->key, v->list, keys->key, &f, error);
    assert_true((s == TB_OK) == (error[0] == '\0'));
    if (s != TB_OK) return s;
    s = tb_anchor_write(&f, 0, 0, v->bytes, COUNT);
    if (s == TB_OK) s = tb_anchor_flush(&f);
    if (s == TB_OK) return tb_anchor_finish(&f);
    tb_anchor_abort(&f);
    return s;
}

/* Which of the two it is: its number. 0: it could not be read, for another reason than its own
 * bytes. */
static uint64_t anchor_read(struct anchor_round *r, const char *path)
{
    struct tb_anchor_file f;
    char error[TB_ANCHOR_ERROR_BYTES] = "";
    enum tb_status s = tb_anchor_open(path, &r->keys, &f, error);
    assert_int_not_equal(s, TB_BAD_FILE);
    assert_int_not_equal(s, TB_NOT_FOUND);
    assert_true((s == TB_OK) == (error[0] == '\0'));
    if (s != TB_OK) return 0;
    const struct version *v = f.key.number == r->newer.key.number ? &r->newer : &r->older;
    assert_true(tb_id_equal(&f.key.uid, &v->key.uid));
    for (uint32_t k = 0; s == TB_OK && k < CHUNKS; k++) {
        const struct tb_chunk *c = &v->manifest.chunks[k];
        s = tb_anchor_read(&f, 0, k, r->chunk);
        if (s == TB_OK) assert_memory_equal(r->chunk, v->bytes + c->offset, c->bytes);
    }
    tb_anchor_close(&f);
    return s == TB_OK ? v->key.number : 0;
}

static void anchor_prepare(void *world)
{
    struct anchor_round *r = world;
    CHECK_OK(anchor_write(&r->older, &r->keys, in_folder("x.anchor")));
}

static bool anchor_round(void *world)
{
    struct anchor_round *r = world;
    const bool wrote = anchor_write(&r->newer, &r->keys, in_folder("x.anchor")) == TB_OK;
    const uint64_t number = anchor_read(r, in_folder("x.anchor"));
    return wrote && number == r->newer.key.number;
}

/* The next start removes a file that a failed removal left, by its name. */
static void anchor_check(void *world, bool done)
{
    struct anchor_round *r = world;
    const uint64_t number = anchor_read(r, in_folder("x.anchor"));
    assert_true(number == r->newer.key.number || (number == r->older.key.number && !done));
    (void)unlink(in_folder("x.anchor.part"));
}

static void anchors_swept(const struct tb_disk_key *key, unsigned most)
{
    struct anchor_round r = {.chunk = malloc(COUNT), .keys.key = key};
    version_make(&r.older, 1);
    version_make(&r.newer, 2);
    sweep_run(&(struct sweep){
        .prepare = anchor_prepare, .round = anchor_round, .check = anchor_check, .world = &r, .most = most});
    (void)unlink(in_folder("x.anchor"));
    version_fini(&r.older);
    version_fini(&r.newer);
    free(r.chunk);
}

static void an_anchor_with_its_name_is_whole(void **state)
{
    (void)state;
    anchors_swept(NULL, 8);
}

static void an_encrypted_anchor_with_its_name_is_whole(void **state)
{
    (void)state;
    anchors_swept(&disk_key, 3);
}

/* ---- adopting ---- */

struct adopt_round {
    struct version v;
    struct tb_arena *arena;
    struct tb_arena_region *region;
    char arena_path[128];
};

static void adopt_prepare(void *world)
{
    struct adopt_round *r = world;
    char error[TB_ARENA_ERROR_BYTES];
    const struct tb_arena_options options = {r->arena_path, 16u << 20};
    CHECK_OK(tb_arena_open(&options, &r->arena, error));
    CHECK_OK(tb_arena_reserve(r->arena, &r->v.key, r->v.list, 1, &r->region, error));
}

static bool job(struct tb_adopt_reading *reading, enum tb_adopt_job what)
{
    if (tb_adopt_read_start(reading, what) != TB_OK) return false;
    tb_adopt_read_join(reading);
    assert_true(atomic_load(&reading->done));
    /* P10: the files are good and there; what is passed over is a file that could not be read. */
    assert_true(reading->status == TB_OK || reading->error[0] != '\0' || reading->status == TB_SITE_NOMEM);
    if (reading->status == TB_BAD_FILE) assert_non_null(strstr(reading->error, ": "));
    assert_true(reading->status != TB_NOT_FOUND && reading->status != TB_CONFLICT);
    return reading->status == TB_OK;
}

static bool adopt_round(void *world)
{
    struct adopt_round *r = world;
    struct tb_adopt_reading *reading = calloc(1, sizeof *reading);
    char why[TB_LOCAL_ERROR_BYTES];
    const bool opened = tb_given_open(in_folder("files"), NULL, &reading->given, why) == TB_OK;
    reading->version_count = 1;
    reading->versions[0].key = r->v.key;
    reading->region = r->region;
    bool done = opened && job(reading, TB_ADOPT_OPEN);
    done = done && tb_adopt_version_fill(&reading->versions[0], r->v.list) == TB_OK;
    done = done && job(reading, TB_ADOPT_COMPARE);
    assert_true(reading->versions[0].matched_bytes <= COUNT);
    done = done && job(reading, TB_ADOPT_CLAIM);
    done = done && atomic_load(&reading->claimed_bytes) == COUNT;
    tb_adopt_read_fini(reading);
    free(reading);
    return done;
}

/* P1, and nothing is claimed any more: what is lacking may come from a link. */
static void adopt_check(void *world, bool done)
{
    struct adopt_round *r = world;
    const struct tb_place *place = tb_arena_place(r->region, 0);
    assert_true(!done || tb_place_whole(place));
    for (uint32_t k = 0; k < CHUNKS; k++) {
        uint32_t bytes = 0;
        assert_false(tb_bitmap_test(place->claimed, k) && !tb_place_held(place, k));
        if (!tb_place_held(place, k)) continue;
        const uint8_t *chunk = tb_place_chunk(place, k, &bytes);
        assert_memory_equal(chunk, r->v.bytes + r->v.manifest.chunks[k].offset, bytes);
    }
    tb_arena_close(r->arena);
    (void)unlink(r->arena_path);
}

static void file_write(const char *path, const uint8_t *bytes)
{
    static const char json[] = "{\"t\":{\"dtype\":\"U8\",\"shape\":[3145728],\"data_offsets\":[0,3145728]}}";
    uint8_t prefix[8] = {sizeof json - 1};
    FILE *f = fopen(path, "wbe");
    assert_non_null(f);
    assert_int_equal(fwrite(prefix, 1, sizeof prefix, f), sizeof prefix);
    assert_int_equal(fwrite(json, 1, sizeof json - 1, f), sizeof json - 1);
    assert_int_equal(fwrite(bytes, 1, COUNT, f), COUNT);
    assert_int_equal(fclose(f), 0);
}

static void adopted_files_give_what_is_right(void **state)
{
    (void)state;
    struct adopt_round r = {.arena = NULL};
    version_make(&r.v, 1);
    (void)snprintf(r.arena_path, sizeof r.arena_path, "%s/arena", scratch_memory());
    assert_int_equal(mkdir(in_folder("files"), 0700), 0);
    assert_int_equal(mkdir(in_folder("files/below"), 0700), 0);
    file_write(in_folder("files/below/t.safetensors"), r.v.bytes);
    sweep_run(&(struct sweep){
        .prepare = adopt_prepare, .round = adopt_round, .check = adopt_check, .world = &r, .most = 8});
    (void)unlink(in_folder("files/below/t.safetensors"));
    (void)rmdir(in_folder("files/below"));
    (void)rmdir(in_folder("files"));
    version_fini(&r.v);
}

static int set_up(void **state)
{
    (void)state;
    tb_log_set(TB_LOG_ERROR, -1);
    return scratch_folder(folder, sizeof folder, "disk") ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_anchor_with_its_name_is_whole),
        cmocka_unit_test(an_encrypted_anchor_with_its_name_is_whole),
        cmocka_unit_test(adopted_files_give_what_is_right),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
