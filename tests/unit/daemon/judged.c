/* judged.c - a version is lost only when nobody holds some chunk (P3): who judges knows what landed, also since the last tick. */
#include <string.h>

#include "tests/unit/arena/arena_world.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/daemon_home.h"

#define SHARD_BYTES ((uint64_t)4 << 20) /* four chunks */

/* A version that one rank sealed, and what of it has landed. */
struct sealed {
    struct home home;
    struct version made;
    struct tb_id rank;
    struct tb_copy *copy;
};

static void version_open(struct sealed *s)
{
    struct tb_catalog *c = s->home.d->catalog;
    const tb_time_ns now = tb_clock_now();
    struct tb_catalog_session session = {.id = {{1}}, .identity = "unix:1000"};
    CHECK_OK(tb_name_set(&session.name, "rank"));
    CHECK_OK(tb_name_set(&session.host, "host"));
    CHECK_OK(tb_catalog_session_open(c, now, &session));
    s->rank = session.id;
    const struct tb_catalog_run_request run = {
        .session = s->rank, .model = s->made.key.model, .key = "k", .fresh_id = {{2}}};
    struct tb_catalog_run info;
    bool joined;
    CHECK_OK(tb_catalog_run_open(c, now, &run, &info, &joined));
    const struct tb_catalog_version_request version = {.session = s->rank,
                                                       .model = s->made.key.model,
                                                       .run = info.id,
                                                       .number = 1,
                                                       .shard_count = 1,
                                                       .fresh_uid = {{3}}};
    CHECK_OK(tb_catalog_version_open(c, now, &version, &s->made.key));
}

/* As session_publish.c does with a SEAL. */
static void shard_seal(struct sealed *s)
{
    struct tb_daemon *d = s->home.d;
    const tb_time_ns now = tb_clock_now();
    const struct tb_manifest *m = s->made.list[0];
    const struct tb_catalog_shard info = {m->root, m->layout.id, m->chunk_count, m->bytes};
    char error[TB_ARENA_ERROR_BYTES];
    s->copy = tb_copy_get(d, &s->made.key);
    assert_non_null(s->copy);
    CHECK_OK(tb_arena_region_new(d->arena, &s->made.key, &s->copy->region, error));
    CHECK_OK(tb_arena_shard_reserve(s->copy->region, 0, m, error));
    const enum tb_status done = tb_arena_digests_done(s->copy->region, 0);
    assert_true(done == TB_OK || done == TB_DONE_BEFORE);
    CHECK_OK(tb_catalog_arena_shard(d->catalog, now, &s->made.key.uid, 0, &info));
    CHECK_OK(tb_catalog_arena_reserved(d->catalog, now, &s->made.key.uid));
    const struct tb_catalog_seal seal = {.session = s->rank,
                                         .uid = s->made.key.uid,
                                         .root = m->root,
                                         .layout_id = m->layout.id,
                                         .chunk_count = m->chunk_count,
                                         .bytes = m->bytes,
                                         .export_id = 1};
    CHECK_OK(tb_catalog_seal(d->catalog, now, &seal));
}

static void begin(struct sealed *s)
{
    memset(s, 0, sizeof *s);
    home_new(&s->home);
    home_start(&s->home);
    version_make(&s->made, 1, 1, SHARD_BYTES);
    version_open(s);
    shard_seal(s);
}

static void land(struct sealed *s, uint32_t first, uint32_t end)
{
    for (uint32_t k = first; k < end; k++)
        version_land(&s->made, tb_arena_place(s->copy->region, 0), 0, k);
}

static enum tb_catalog_state state_of(struct sealed *s)
{
    struct tb_catalog_version_view view;
    assert_true(tb_catalog_version_get(s->home.d->catalog, &s->made.key.uid, &view));
    return view.state;
}

static void end(struct sealed *s)
{
    (void)tb_daemon_settle(s->home.d);
    home_end(&s->home);
    home_free(&s->home);
    version_fini(&s->made);
}

static void what_landed_since_the_tick_is_not_lost_with_its_rank(void **state)
{
    struct sealed s;
    (void)state;
    begin(&s);
    const uint32_t chunks = s.made.list[0]->chunk_count;
    land(&s, 0, 1);
    (void)tb_copies_tick(s.home.d);
    assert_int_equal(state_of(&s), TB_VERSION_READY);
    land(&s, 1, chunks);
    tb_session_leaves(s.home.d, &s.rank);
    assert_int_equal(state_of(&s), TB_VERSION_KEPT);
    end(&s);
}

static void what_did_not_land_is_lost_with_its_rank(void **state)
{
    struct sealed s;
    (void)state;
    begin(&s);
    const uint32_t chunks = s.made.list[0]->chunk_count;
    assert_true(chunks > 1);
    land(&s, 0, chunks - 1);
    tb_session_leaves(s.home.d, &s.rank);
    assert_int_equal(state_of(&s), TB_VERSION_ENDED_LOST);
    end(&s);
}

/* ---- rot ---- */

/* As the verifier's thread does. */
static void verifier_wakes(struct tb_daemon *d)
{
    atomic_fetch_add(&d->verify_bad, 1);
    uv_async_send(&d->verify_wake);
    while (atomic_load(&d->verify_bad) != 0)
        (void)uv_run(&d->loop, UV_RUN_ONCE);
}

/* West has a part of it and is cut off. */
static void west_leaves_with_a_part(struct sealed *s)
{
    struct tb_catalog *c = s->home.d->catalog;
    struct tb_catalog_site_progress p = {.uid = s->made.key.uid, .held_chunks = 1};
    CHECK_OK(tb_name_set(&p.site, "west"));
    CHECK_OK(tb_catalog_site_up(c, tb_clock_now(), &p.site, true));
    CHECK_OK(tb_catalog_site_progress(c, tb_clock_now(), &p));
    CHECK_OK(tb_catalog_site_up(c, tb_clock_now(), &p.site, false));
}

/* P6: no chunk of this one rotted, so nobody has what home never had: it is lost after a lease time, though a site with a part of it
 * may never come back. */
static void rot_of_another_version_is_none_of_its_own(void **state)
{
    struct sealed s;
    (void)state;
    begin(&s);
    land(&s, 0, s.made.list[0]->chunk_count - 1);
    (void)tb_copies_tick(s.home.d);
    west_leaves_with_a_part(&s);
    verifier_wakes(s.home.d);
    tb_session_leaves(s.home.d, &s.rank);
    const tb_time_ns until = tb_time_add(tb_clock_now(), TB_SECONDS(20));
    while (state_of(&s) == TB_VERSION_READY && tb_clock_now() < until)
        (void)uv_run(&s.home.d->loop, UV_RUN_ONCE);
    assert_int_equal(state_of(&s), TB_VERSION_ENDED_LOST);
    end(&s);
}

static uint32_t held_by_catalog(struct sealed *s)
{
    struct tb_catalog_version_view view;
    assert_true(tb_catalog_version_get(s->home.d->catalog, &s->made.key.uid, &view));
    return view.held_chunks;
}

/* The twin: a chunk of its own did, and the site that may have read it is waited for. */
static void rot_of_its_own_is_heard_of(void **state)
{
    struct sealed s;
    (void)state;
    begin(&s);
    const uint32_t held = s.made.list[0]->chunk_count - 1;
    land(&s, 0, held);
    (void)tb_copies_tick(s.home.d);
    west_leaves_with_a_part(&s);
    assert_int_equal(held_by_catalog(&s), held);
    tb_arena_place(s.copy->region, 0)->bytes[0] ^= 1;
    assert_int_equal(tb_arena_chunk_recheck(s.copy->region, 0, 0), TB_CHUNK_DIGEST);
    verifier_wakes(s.home.d);
    assert_int_equal(held_by_catalog(&s), held - 1);
    tb_session_leaves(s.home.d, &s.rank);
    const tb_time_ns until = tb_time_add(tb_clock_now(), TB_SECONDS(1)); /* two lease times */
    while (tb_clock_now() < until)
        (void)uv_run(&s.home.d->loop, UV_RUN_ONCE);
    assert_int_equal(state_of(&s), TB_VERSION_READY);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_landed_since_the_tick_is_not_lost_with_its_rank),
        cmocka_unit_test(what_did_not_land_is_lost_with_its_rank),
        cmocka_unit_test(rot_of_another_version_is_none_of_its_own),
        cmocka_unit_test(rot_of_its_own_is_heard_of),
    };
    return cmocka_run_group_tests_name("daemon.judged", tests, NULL, NULL);
}
