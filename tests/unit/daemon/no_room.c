/* no_room.c - P10: a version that has no room in the arena is told of with the numbers, once, and
 * again when they are others. A crossing that fails again and again has one line, too.
 *
 * Covers: gateway/daemon/links/crossing_room.c gateway/daemon/links/crossings.c
 * Covers: gateway/daemon/links/crossing_failure_log.c gateway/daemon/daemon_check.c */
#include <string.h>
#include <unistd.h>

#include "gateway/arena/arena.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/arena/arena_reserve.h"
#include "gateway/catalog/sites.h"
#include "gateway/daemon/copies/copy_table.h"
#include "tests/unit/caught_log.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/linked_home.h"
#include "wan/link/links_stats.h"

#define LOG_BYTES_MAX 65536u

/* The callbacks of the links, and how often their peer was asked for manifests. */
static const struct tb_links_ops *said;
static uint32_t asked;
static struct tb_id asked_for; /* last */

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
    asked++;
    asked_for = *uid;
    return TB_OK;
}

/* The links are up, as lag sees them. */
void __real_tb_links_stats(const struct tb_links *links, uint32_t peer, struct tb_links_stats *stats_out);
void __wrap_tb_links_stats(const struct tb_links *links, uint32_t peer, struct tb_links_stats *stats_out);
void __wrap_tb_links_stats(const struct tb_links *links, uint32_t peer, struct tb_links_stats *stats_out)
{
    __real_tb_links_stats(links, peer, stats_out);
    stats_out->up = true;
}

/* East, which follows west, and writes its log where it can be read. Its arena of 8 MiB
 * has the least of slots. */
struct follower {
    struct world world; /* of certificates */
    struct home home;
    int log;
};

static void follower_begin(struct follower *f)
{
    asked = 0;
    linked_home_begin(&f->home, &f->world,
                      "{policy: {home: west}, critic: {home: west}}\n"
                      "subscribe: [{model: policy, from: [west]}, {model: critic, from: [west]}]\n"
                      "peers: {west: {address: \"127.0.0.1:9\", unsigned: true}}");
    f->log = caught_log_new();
    tb_log_set(TB_LOG_WARN, f->log);
}

static void follower_end(struct follower *f)
{
    tb_log_set(TB_LOG_INFO, STDERR_FILENO);
    (void)close(f->log);
    linked_home_end(&f->home, &f->world);
}

/* Lines that have all of that, in this order. */
static uint32_t lines(const struct follower *f, const char *event, const char *words)
{
    static char text[LOG_BYTES_MAX];
    uint32_t count = 0;
    const ssize_t got = pread(f->log, text, sizeof text - 1, 0);
    assert_true(got >= 0 && got < (ssize_t)sizeof text - 1);
    text[got] = '\0';
    for (char *at = text, *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        *end = '\0';
        const char *found = strstr(at, event);
        count += found != NULL && strstr(found, words) != NULL;
    }
    return count;
}

/* West begins a session, and tells of these in it; what it told in the one before is asked of
 * nobody. */
static void hear(struct follower *f, const struct tb_version_key *keys, uint32_t count)
{
    struct tb_name west;
    CHECK_OK(tb_name_set(&west, "west"));
    const enum tb_status up = tb_catalog_site_up(f->home.d->catalog, tb_clock_now(), &west, true);
    assert_true(up == TB_OK || up == TB_DONE_BEFORE);
    for (uint32_t i = 0; i < count; i++)
        CHECK_OK(
            tb_catalog_remote_version(f->home.d->catalog, tb_clock_now(), &west, &keys[i], TB_VERSION_READY));
    tb_daemon_turn(f->home.d);
}

/* Until it is asked for so often. */
static void until_asked(struct follower *f, uint32_t times)
{
    const tb_time_ns until = tb_time_add(tb_clock_now(), TB_SECONDS(60));
    while (asked < times && tb_clock_now() < until)
        (void)uv_run(&f->home.d->loop, UV_RUN_ONCE);
    assert_int_equal(asked, times);
}

static struct tb_version_key version_of(const char *model, uint32_t shard_count)
{
    struct tb_version_key key = {.uid = {{(uint8_t)model[0]}},
                                 .run = {{(uint8_t)model[0]}},
                                 .run_order = 1,
                                 .number = 1,
                                 .shard_count = shard_count,
                                 .root = {{1}}};
    CHECK_OK(tb_name_set(&key.model, model));
    return key;
}

/* P7: a version that a peer with other limits offers is not asked for, nor looked for elsewhere. */
static void more_shards_than_a_version_may_have_are_told(void **state)
{
    const struct tb_version_key key = version_of("policy", TB_CATALOG_SHARDS + 1);
    struct follower f;
    (void)state;
    follower_begin(&f);
    said->on_version(f.home.d, 0, &key, 4096, TB_LINKS_READY, TB_OK);
    assert_int_equal(lines(&f, "crossing.refused", "number=1 status=too_large shards=65 of=64 action="), 1);
    assert_int_equal(asked, 0);
    follower_end(&f);
}

/* The least arena has slots for four versions of the most shards: one of 300 is no version here,
 * but of a release that lets them have more. There will be no room for it in this life, so to ask
 * again would bring the same. */
static void more_shards_than_slots_are_told_once(void **state)
{
    enum { SHARDS = 300 };
    static struct tb_manifest manifests[SHARDS];
    const struct tb_version_key both[] = {version_of("policy", 1), version_of("critic", 1)};
    const struct tb_id other = both[1].uid;
    struct tb_version_key key = both[0];
    struct follower f;
    (void)state;
    follower_begin(&f);
    hear(&f, &key, 1);
    until_asked(&f, 1);
    key.shard_count = SHARDS;
    said->on_manifests(f.home.d, 0, &key, manifests);
    assert_int_equal(lines(&f, "arena.refused", "needed_slots=301 free_slots=256 slots=256"), 1);
    assert_int_equal(lines(&f, "arena.refused", "a new one of 78905344 bytes has enough"), 1);
    assert_int_equal(lines(&f, "crossing.refused", "number=1 status=too_large action=not_asked_again"), 1);
    assert_int_equal(f.home.d->counters.arena_refused, 1);
    home_check_lag(&f.home, "east", "no-room", "301 slots needed, 256 of 256 free");
    hear(&f, both, 2);
    for (uint32_t times = 2; times <= 4; times++) { /* that one is tried again and again */
        until_asked(&f, times);
        assert_true(tb_id_equal(&asked_for, &other));
        said->on_failed(f.home.d, 0, &other, TB_PEER_UNREACHABLE);
    }
    follower_end(&f);
}

/* P10: a crossing that fails each second for want of memory has one line, and is counted each time.
 * Another reason has a line of its own, and so has the first one after the crossing went on. */
static void a_crossing_that_fails_each_second_has_one_line(void **state)
{
    const struct tb_version_key key = version_of("policy", 1);
    struct follower f;
    (void)state;
    follower_begin(&f);
    hear(&f, &key, 1);
    for (uint32_t times = 1; times <= 4; times++) {
        until_asked(&f, times);
        said->on_failed(f.home.d, 0, &key.uid, times < 4 ? TB_SITE_NOMEM : TB_NOT_FOUND);
        assert_int_equal(f.home.d->counters.crossings_failed, times);
        assert_int_equal(lines(&f, "crossing.failed", "number=1 status=site_nomem"), 1);
        assert_int_equal(lines(&f, "crossing.refused", "status=site_nomem action=retry"), 1);
        assert_int_equal(lines(&f, "crossing.failed", "number=1 status=not_found"), times / 4);
    }
    tb_crossing_told_end(&tb_copy_find(f.home.d, &key.uid)->told);
    said->on_failed(f.home.d, 0, &key.uid, TB_SITE_NOMEM);
    assert_int_equal(lines(&f, "crossing.failed", "number=1 status=site_nomem"), 2);
    follower_end(&f);
}

/* A version that does not fit now is asked for each second, and counted each time. The reason of
 * the lag stays the same. */
static void a_full_arena_is_told_when_it_changes(void **state)
{
    const struct tb_manifest manifest = {.bytes = 16 << 20};
    const struct tb_version_key key = version_of("policy", 1), other = version_of("critic", 1);
    struct tb_arena_region *region = NULL;
    char error[TB_ARENA_ERROR_BYTES];
    struct follower f;
    (void)state;
    follower_begin(&f);
    hear(&f, &key, 1);
    for (uint32_t times = 1; times <= 3; times++) {
        until_asked(&f, times);
        home_check_lag(&f.home, "east", times == 1 ? "manifests" : "no-room", "");
        said->on_manifests(f.home.d, 0, &key, &manifest);
        home_check_lag(&f.home, "east", "no-room", "16777216 bytes needed, ");
        assert_int_equal(f.home.d->counters.arena_refused, times);
        assert_int_equal(lines(&f, "arena.refused", "needed_bytes=16777216"), times < 3 ? 1 : 2);
        assert_int_equal(lines(&f, "crossing.refused", "status=site_nomem action=retry"), 1);
        if (times == 2) CHECK_OK(tb_arena_region_new(f.home.d->arena, &other, &region, error));
    }
    CHECK_OK(tb_arena_free(region));
    follower_end(&f);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_shards_than_a_version_may_have_are_told),
        cmocka_unit_test(more_shards_than_slots_are_told_once),
        cmocka_unit_test(a_full_arena_is_told_when_it_changes),
        cmocka_unit_test(a_crossing_that_fails_each_second_has_one_line),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("daemon.no_room", tests, NULL, NULL);
}
