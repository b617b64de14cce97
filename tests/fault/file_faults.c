/* Files under faults: the arena, the store, a configuration, files as a version and back. After
 * each round the fault is over, and each answer TB_OK was true: held chunks are right (P1) and stay
 * held (P3), stored rows come back, and a written folder is the published one or has no marker.
 *
 * Covers: gateway/arena/arena.c gateway/arena/arena_file.c gateway/store/store.c
 * Covers: gateway/config/config.c gateway/cli/versions/bundle.c gateway/cli/versions/unbundle.c
 * Covers: base/fault.c */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "arena_world.h"
#include "base/allocate.h"
#include "base/log.h"
#include "gateway/arena/arena.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/arena/arena_reserve.h"
#include "gateway/arena/arena_verify.h"
#include "gateway/cli/versions/unbundle.h"
#include "gateway/config/config.h"
#include "gateway/store/store.h"
#include "gateway/store/store_load.h"
#include "tests/fault/sweep.h"
#include "tests/unit/scratch.h"

static const struct tb_disk_key key_a = {{1, 2, 3}}, key_b = {{3, 2, 1}};
static const struct tb_disk_keys in_clear = {.key = NULL}, under_a = {.key = &key_a},
                                 a_was_b = {&key_a, &key_b, true}, b_was_a = {&key_b, &key_a, true};

static char folder[SCRATCH_BYTES];

static const char *in_folder(const char *name)
{
    static char paths[4][SCRATCH_BYTES + 64];
    static unsigned at;
    char *path = paths[at++ % 4];
    (void)snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void write_text(const char *path, const void *bytes, size_t count)
{
    FILE *f = fopen(path, "wbe");
    assert_true(f != NULL && fwrite(bytes, 1, count, f) == count && fclose(f) == 0);
}

/* ---- arena ---- */

#define ARENA_BYTES ((uint64_t)8 << 20)

struct arena_round {
    struct version v;
    char path[128];
    uint64_t landed; /* chunks that finish said are held, in the round's first half */
};

static struct tb_arena *try_open(const struct arena_round *r)
{
    char error[TB_ARENA_ERROR_BYTES] = "";
    struct tb_arena *arena = NULL;
    const struct tb_arena_options options = {.path = r->path, .bytes = ARENA_BYTES};
    const enum tb_status status = tb_arena_open(&options, &arena, error);
    assert_true((status == TB_OK) == (arena != NULL) && (status == TB_OK || error[0] != '\0'));
    return arena;
}

/* Every second chunk lands. */
static bool arena_round(void *world)
{
    char error[TB_ARENA_ERROR_BYTES] = "";
    struct arena_round *r = world;
    struct tb_arena_region *region = NULL;
    struct tb_arena *arena = try_open(r);
    r->landed = 0;
    if (arena == NULL) return false;
    const bool reserved = tb_arena_reserve(arena, &r->v.key, r->v.list, 2, &region, error) == TB_OK;
    for (uint32_t k = 0; reserved && k < r->v.manifests[0].chunk_count; k += 2) {
        version_land(&r->v, tb_arena_place(region, 0), 0, k);
        r->landed++;
    }
    tb_arena_close(arena);
    return reserved;
}

/* The next process finds what was held, lands the rest, and gives it back. */
static void arena_check(void *world, bool done)
{
    struct arena_round *r = world;
    struct tb_arena *arena = try_open(r);
    assert_non_null(arena);
    struct tb_arena_region *region = tb_arena_region(arena, &r->v.key.uid);
    assert_true(region != NULL || !done);
    if (region != NULL) {
        struct tb_arena_verified verified;
        assert_int_equal(tb_place_held_count(tb_arena_place(region, 0)), r->landed); /* P3 */
        while (tb_arena_verify_step(arena, UINT64_MAX, &verified) == TB_AGAIN)
            assert_int_equal(verified.bad, 0); /* P1 */
        version_land_all(&r->v, region);
        assert_true(tb_arena_region_whole(region));
        assert_int_equal(tb_arena_free(region), TB_OK);
    }
    tb_arena_close(arena);
    (void)unlink(r->path);
}

static void the_arena_keeps_its_word(void **state)
{
    (void)state;
    struct arena_round r = {.landed = 0};
    version_make(&r.v, 5, 2, 2 << 20);
    (void)snprintf(r.path, sizeof r.path, "%s/arena", scratch_memory());
    sweep_run(&(struct sweep){.round = arena_round, .check = arena_check, .world = &r, .most = 20});
    version_fini(&r.v);
}

/* ---- store ---- */

struct store_round {
    const struct tb_disk_keys *keys;
    char path[128];
    bool run, version, pointer; /* what was answered TB_OK */
    uint64_t incarnation;       /* the highest that was given out */
    uint32_t runs_seen, versions_seen;
};

static const struct tb_store_audit audit = {.what = "test", .who = "unix:0", .why = "", .wall_ms = 1};

static struct tb_store_version a_version(void)
{
    struct tb_store_version v = {.state = TB_VERSION_READY, .bytes = 1000};
    v.key = (struct tb_version_key){.run_order = 1, .number = 3, .shard_count = 2};
    v.key.uid.bytes[0] = 9;
    v.key.run.bytes[0] = 1;
    assert_int_equal(tb_name_set(&v.key.model, "policy"), TB_OK);
    return v;
}

static enum tb_status see_run(void *user, const struct tb_catalog_run *run)
{
    struct store_round *r = user;
    assert_string_equal(run->key, "key");
    r->runs_seen++;
    return TB_OK;
}

static enum tb_status see_version(void *user, const struct tb_store_version *version)
{
    struct store_round *r = user;
    assert_int_equal(version->key.number, 3);
    r->versions_seen++;
    return TB_OK;
}

/* The store is written anew under another key, and then under its own again. */
static bool key_changed(struct store_round *r)
{
    char error[256] = "";
    struct tb_store *store = NULL;
    if (r->keys != &a_was_b) return true;
    if (tb_store_open(r->path, &b_was_a, &store, error) == TB_OK) {
        tb_store_close(store);
        return true;
    }
    assert_true(error[0] != '\0');
    return false;
}

static bool store_round(void *world)
{
    struct store_round *r = world;
    char error[256] = "";
    struct tb_store *store = NULL;
    struct tb_catalog_run run = {.order = 1, .key = "key"};
    run.id.bytes[0] = 1;
    const struct tb_store_version v = a_version();
    struct tb_store_pointer pointer = {.uid = v.key.uid};
    run.model = pointer.model = v.key.model;
    r->run = r->version = r->pointer = false;
    if (!key_changed(r)) return false;
    if (tb_store_open(r->path, r->keys, &store, error) != TB_OK) {
        assert_true(error[0] != '\0');
        return false;
    }
    uint64_t incarnation = 0;
    const bool counted = tb_store_incarnation(store, 1, &incarnation) == TB_OK;
    if (counted) {
        assert_true(incarnation > r->incarnation); /* it grows at each start, whatever failed before */
        r->incarnation = incarnation;
    }
    r->run = tb_store_run(store, &run, &audit) == TB_OK;
    r->version = r->run && tb_store_version(store, &v, &audit) == TB_OK;
    r->pointer = r->version && tb_store_pointer(store, &pointer, &audit) == TB_OK;
    tb_store_close(store);
    return counted && r->pointer;
}

static void store_check(void *world, bool done)
{
    struct store_round *r = world;
    char error[256];
    struct tb_store *store = NULL;
    (void)done;
    if (tb_store_open(r->path, r->keys, &store, error) != TB_OK) fail_msg("%s", error);
    r->runs_seen = r->versions_seen = 0;
    assert_int_equal(tb_store_load(store, see_run, see_version, r), TB_OK);
    assert_true(r->runs_seen >= r->run && r->runs_seen <= 1);
    assert_true(r->versions_seen >= r->version && r->versions_seen <= 1);
    tb_store_close(store);
    if (r->incarnation % 8 != 7) return; /* now and then a fresh file, as the first start has it */
    static const char *const ends[] = {"", "-wal", "-shm"};
    for (int i = 0; i < 3; i++) {
        char file[128];
        (void)snprintf(file, sizeof file, "%s%s", r->path, ends[i]);
        (void)unlink(file);
    }
    r->incarnation = 0;
}

static void store_swept(const struct tb_disk_keys *keys, unsigned most)
{
    struct store_round r = {.keys = keys};
    (void)snprintf(r.path, sizeof r.path, "%s/s.sqlite", folder);
    /* SQLite asks for its locks for ten seconds; tests/system/test_fault_sweep.py has that
     * patience. */
    const uint64_t locks = UINT64_C(1) << TB_CALL_fcntl | UINT64_C(1) << TB_CALL_fcntl64;
    sweep_run(&(struct sweep){
        .round = store_round, .check = store_check, .world = &r, .most = most, .passed_over = locks});
    (void)unlink(in_folder("s.sqlite"));
    (void)unlink(in_folder("s.sqlite-wal"));
    (void)unlink(in_folder("s.sqlite-shm"));
}

static void the_store_keeps_its_word(void **state)
{
    (void)state;
    store_swept(&in_clear, 12);
}

static void an_encrypted_store_keeps_its_word(void **state)
{
    (void)state;
    store_swept(&under_a, 4);
}

/* A failure at any point of a change leaves a store that one of the keys opens. */
static void a_change_of_keys_loses_nothing(void **state)
{
    (void)state;
    store_swept(&a_was_b, 2);
}

/* ---- configuration ---- */

struct config_round {
    char path[128];
    unsigned complaints;
    enum tb_status status;
};

static void complain(void *user, const char *line)
{
    struct config_round *r = user;
    assert_true(line[0] != '\0');
    r->complaints++;
}

static bool config_round(void *world)
{
    struct config_round *r = world;
    struct tb_config *config = NULL;
    r->complaints = 0;
    r->status = tb_config_load(r->path, complain, r, &config);
    assert_true((r->status == TB_OK) == (config != NULL));
    if (r->status == TB_OK) assert_string_equal(config->site.text, "east");
    tb_config_free(config);
    return r->status == TB_OK;
}

static void tb_config_check(void *world, bool done)
{
    const struct config_round *r = world;
    assert_true(!done || r->complaints == 0);
    assert_true(done || r->complaints > 0 || r->status == TB_SITE_NOMEM); /* P10 */
}

static void a_configuration_is_whole_or_refused(void **state)
{
    (void)state;
    static const char text[] =
        "site: east\ngateway: gw\narena:\n  path: /dev/shm/x\n  bytes: 64MiB\nstore:\n  path: /tmp/x\n"
        "peers: {}\nmodels:\n  policy:\n    home: east\nsubscribe: []\n";
    struct config_round r = {.complaints = 0};
    (void)snprintf(r.path, sizeof r.path, "%s/t.yaml", folder);
    write_text(r.path, text, sizeof text - 1);
    sweep_run(&(struct sweep){.round = config_round, .check = tb_config_check, .world = &r, .most = 200});
    (void)unlink(r.path);
}

/* ---- files as a version, and back ---- */

static const char model[] =
    "\x35\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}hi";

static bool files_round(void *world)
{
    (void)world;
    char *paths[] = {(char *)(uintptr_t)in_folder("in")};
    struct tb_bundle b;
    struct tb_bundle_error error = {0};
    struct tb_unbundle plan;
    if (tb_bundle_open(&(struct tb_bundle_paths){.paths = paths, .count = 1}, &b, &error) != TB_OK) {
        assert_true(error.text[0] != '\0');
        return false;
    }
    const uint64_t shape[] = {2};
    struct tb_item items[8] = {
        {.name = b.tensors[0].name,
         .dtype = "U8",
         .rank = 1,
         .shape = shape,
         .bytes = b.tensors[0].memory,
         .count = 2},
        {.name = "loose", .dtype = "U8", .rank = 1, .shape = shape, .bytes = "zz", .count = 2}};
    assert_int_equal(b.blob_count, 2);
    for (uint32_t i = 0; i < b.blob_count; i++)
        items[2 + i] = (struct tb_item){
            .is_blob = 1, .name = b.blobs[i].name, .bytes = b.blobs[i].bytes, .count = b.blobs[i].count};
    enum tb_status status = tb_unbundle_plan(items, 4, &plan, &error);
    if (status == TB_OK) {
        status = tb_unbundle_write(&plan, in_folder("out"), "marker", NULL, NULL, &error);
        tb_unbundle_fini(&plan);
    }
    assert_true(status == TB_OK || error.text[0] != '\0');
    tb_bundle_close(&b);
    return status == TB_OK;
}

static bool is_file(const char *path, const void *bytes, size_t count)
{
    char have[256];
    FILE *f = fopen(path, "rbe");
    if (f == NULL) return false;
    const size_t got = fread(have, 1, sizeof have, f);
    (void)fclose(f);
    return got == count && memcmp(have, bytes, count) == 0;
}

/* A folder with the marker is whole; what failed left no marker. */
static void files_check(void *world, bool done)
{
    (void)world;
    const bool marked = access(in_folder("out/" TB_BUNDLE_MARKER), F_OK) == 0;
    assert_true(marked || !done);
    if (marked) {
        assert_true(is_file(in_folder("out/m.safetensors"), model, sizeof model - 1));
        assert_true(is_file(in_folder("out/config.json"), "{}", 2));
        assert_int_equal(access(in_folder("out/tensors-0000.safetensors"), F_OK), 0);
    }
    static const char *const names[] = {"m.safetensors", "config.json", "tensors-0000.safetensors",
                                        TB_BUNDLE_MARKER, TB_UNBUNDLE_PART};
    for (int i = 0; i < 5; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "out/%s", names[i]);
        (void)unlink(in_folder(name));
    }
    (void)rmdir(in_folder("out"));
}

static void a_written_folder_is_whole_or_unmarked(void **state)
{
    (void)state;
    assert_int_equal(mkdir(in_folder("in"), 0700), 0);
    write_text(in_folder("in/m.safetensors"), model, sizeof model - 1);
    write_text(in_folder("in/config.json"), "{}", 2);
    sweep_run(&(struct sweep){.round = files_round, .check = files_check, .most = 200});
    (void)unlink(in_folder("in/m.safetensors"));
    (void)unlink(in_folder("in/config.json"));
    (void)rmdir(in_folder("in"));
}

static int set_up(void **state)
{
    (void)state;
    tb_log_set(TB_LOG_ERROR, -1);
    tb_store_library_faults();
    json_set_alloc_funcs(tb_library_malloc, tb_free);
    (void)snprintf(folder, sizeof folder, "%s/files", scratch_memory());
    return mkdir(folder, 0700);
}

static int tear_down(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_arena_keeps_its_word),
        cmocka_unit_test(the_store_keeps_its_word),
        cmocka_unit_test(an_encrypted_store_keeps_its_word),
        cmocka_unit_test(a_change_of_keys_loses_nothing),
        cmocka_unit_test(a_configuration_is_whole_or_refused),
        cmocka_unit_test(a_written_folder_is_whole_or_unmarked),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
