/* abandoned.c - P6: a crossing that has begun is given up for a newer version when clearly less has
 * to come of that, and is left alone otherwise. The rule is tested in tests/unit/catalog/abandon.c;
 * here the gateway asks it, by what was announced and what came.
 *
 * Covers: gateway/daemon/crossing_policy.c */
#include <stdlib.h>
#include <string.h>

#include "gateway/arena/arena_regions.h"
#include "gateway/catalog/sites.h"
#include "gateway/catalog/views.h"
#include "gateway/daemon/copies/copy_table.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/linked_home.h"

#define MIB          (UINT64_C(1) << 20)
#define SHARD_BYTES  (2 * MIB) /* two chunks */
#define VERSIONS_MAX 4u

/* The callbacks of the links, the version that was asked for last, and the announced bytes of each,
 * by its number. */
static const struct tb_links_ops *said;
static struct tb_id asked_for;
static uint64_t announced[VERSIONS_MAX + 1];

enum tb_status __real_tb_links_new(const struct tb_links_options *options, struct tb_links **links_out,
                                   char error_out[256]);
enum tb_status __wrap_tb_links_new(const struct tb_links_options *options, struct tb_links **links_out,
                                   char error_out[256]);
enum tb_status __wrap_tb_links_new(const struct tb_links_options *options, struct tb_links **links_out,
                                   char error_out[256])
{
    said = options->ops;
    return __real_tb_links_new(options, links_out, error_out);
}

enum tb_status __wrap_tb_links_ask(struct tb_links *links, uint32_t peer, const struct tb_id *uid);
enum tb_status __wrap_tb_links_ask(struct tb_links *links, uint32_t peer, const struct tb_id *uid)
{
    (void)links, (void)peer;
    asked_for = *uid;
    return TB_OK;
}

uint64_t __wrap_tb_links_announced_bytes(const struct tb_links *links, const struct tb_id *uid);
uint64_t __wrap_tb_links_announced_bytes(const struct tb_links *links, const struct tb_id *uid)
{
    (void)links;
    return announced[uid->bytes[0]];
}

/* East, which follows west and is told of versions of one shard; each that is asked for turns out
 * to have SHARD_BYTES. */
struct follower {
    struct world world; /* of certificates */
    struct home home;
    struct tb_manifest manifest;
    void *memory; /* the manifest's */
};

static void manifest_make(struct follower *f)
{
    const struct tb_tensor tensor = {.name = "weights",
                                     .dtype = TB_DTYPE_U8,
                                     .rank = 1,
                                     .full = {SHARD_BYTES},
                                     .box_count = {SHARD_BYTES}};
    struct tb_layout layout;
    const size_t layout_bytes = tb_layout_bytes_for(&tensor, 1);
    void *layout_memory = malloc(layout_bytes);
    CHECK_OK(tb_layout_build(&tensor, 1, layout_memory, layout_bytes, &layout));
    const size_t cap = tb_manifest_bytes_for(&layout, NULL, 0);
    f->memory = malloc(cap);
    CHECK_OK(tb_manifest_build(&layout, NULL, 0, f->memory, cap, &f->manifest));
    free(layout_memory);
    void *zeroes = calloc(1, SHARD_BYTES);
    for (uint32_t k = 0; k < f->manifest.chunk_count; k++)
        f->manifest.digests[k] = tb_digest_of(zeroes, f->manifest.chunks[k].bytes);
    free(zeroes);
    f->manifest.root = tb_manifest_root(&f->manifest);
    assert_int_equal(f->manifest.chunk_count, 2);
}

static void follower_begin(struct follower *f)
{
    memset(announced, 0, sizeof announced);
    asked_for = (struct tb_id){{0}};
    linked_home_begin(&f->home, &f->world,
                      "{policy: {home: west}}\nsubscribe: [{model: policy, from: [west]}]\n"
                      "peers: {west: {address: \"127.0.0.1:9\", unsigned: true}}");
    manifest_make(f);
}

static void follower_end(struct follower *f)
{
    linked_home_end(&f->home, &f->world);
    free(f->memory);
}

static struct tb_version_key version_of(uint64_t number)
{
    struct tb_version_key key = {.uid = {{(uint8_t)number}},
                                 .run = {{1}},
                                 .run_order = 1,
                                 .number = number,
                                 .shard_count = 1,
                                 .root = {{1}}};
    CHECK_OK(tb_name_set(&key.model, "policy"));
    return key;
}

/* West tells of a version of that many bytes, and its crossings are weighed, as each second. */
static void hear(struct follower *f, uint64_t number, uint64_t bytes)
{
    const struct tb_version_key key = version_of(number);
    struct tb_daemon *d = f->home.d;
    struct tb_name west;
    CHECK_OK(tb_name_set(&west, "west"));
    const enum tb_status up = tb_catalog_site_up(d->catalog, tb_clock_now(), &west, true);
    assert_true(up == TB_OK || up == TB_DONE_BEFORE);
    announced[number] = bytes;
    CHECK_OK(tb_catalog_remote_version(d->catalog, tb_clock_now(), &west, &key, TB_VERSION_READY));
    tb_daemon_turn(d);
    tb_policy_tick(d);
    tb_daemon_turn(d);
}

/* It is asked for, and its manifests come: from then on it crosses. */
static void begins(struct follower *f, uint64_t number)
{
    const struct tb_version_key key = version_of(number);
    const tb_time_ns until = tb_time_add(tb_clock_now(), TB_SECONDS(60));
    while (!tb_id_equal(&asked_for, &key.uid) && tb_clock_now() < until)
        (void)uv_run(&f->home.d->loop, UV_RUN_ONCE);
    assert_true(tb_id_equal(&asked_for, &key.uid));
    said->on_manifests(f->home.d, 0, &key, &f->manifest);
}

static bool crosses(struct follower *f, uint64_t number)
{
    const struct tb_version_key key = version_of(number);
    struct tb_catalog_version_view view;
    return tb_catalog_version_get(f->home.d->catalog, &key.uid, &view) && view.crossing &&
           tb_catalog_state_status(view.state) == TB_OK;
}

static void lands(struct follower *f, uint64_t number, uint32_t chunk)
{
    const struct tb_version_key key = version_of(number);
    const struct tb_copy *copy = tb_copy_find(f->home.d, &key.uid);
    struct tb_place *place = tb_arena_place(copy->region, 0);
    uint32_t bytes = 0;
    assert_true(tb_place_claim(place, chunk));
    memset(tb_place_chunk(place, chunk, &bytes), 0, MIB);
    CHECK_OK(tb_place_finish(place, chunk));
}

static void a_smaller_one_is_sooner(void **state)
{
    struct follower f;
    (void)state;
    follower_begin(&f);
    hear(&f, 1, SHARD_BYTES);
    begins(&f, 1);
    hear(&f, 2, SHARD_BYTES); /* nothing came yet: as much of either */
    assert_true(crosses(&f, 1));
    hear(&f, 3, MIB);
    assert_false(crosses(&f, 1));
    begins(&f, 3);
    assert_true(crosses(&f, 3));
    follower_end(&f);
}

/* Half of it is here, and the newer one is half as large. */
static void chunks_that_came_count(void **state)
{
    struct follower f;
    (void)state;
    follower_begin(&f);
    hear(&f, 1, SHARD_BYTES);
    begins(&f, 1);
    lands(&f, 1, 0);
    hear(&f, 2, MIB);
    assert_true(crosses(&f, 1));
    follower_end(&f);
}

/* It was said to be half as large and is not: that is no reason to give it up as well, for one that
 * is said to be as small. */
static void a_promise_that_was_not_kept_is_not_made_again(void **state)
{
    struct follower f;
    (void)state;
    follower_begin(&f);
    hear(&f, 1, SHARD_BYTES);
    begins(&f, 1);
    hear(&f, 2, MIB);
    begins(&f, 2);
    hear(&f, 3, MIB - MIB / 16);
    assert_true(crosses(&f, 2));
    hear(&f, 4, MIB / 2);
    assert_false(crosses(&f, 2));
    follower_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_smaller_one_is_sooner),
        cmocka_unit_test(chunks_that_came_count),
        cmocka_unit_test(a_promise_that_was_not_kept_is_not_made_again),
    };
    return cmocka_run_group_tests_name("daemon.abandoned", tests, NULL, NULL);
}
