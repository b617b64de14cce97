/* copies_told_in_time.c - a version is lost only when no holder has some chunk (P3): the catalog
 * hears of chunks that landed or rotted since the last tick before it decides.
 *
 * Covers: gateway/daemon/copies/copies.c gateway/daemon/sessions/session_unpublish.c
 * Covers: gateway/daemon/sessions/sessions.c */
#include <string.h>

#include "base/allocate.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/arena/arena_verify.h"
#include "gateway/catalog/sites.h"
#include "gateway/daemon/copies/copies.h"
#include "gateway/daemon/sessions/session_unpublish.h"
#include "gateway/daemon/sessions/sessions.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/sealed_version.h"

static enum tb_catalog_state state_of(struct sealed *s)
{
    return sealed_view(s).state;
}

static void a_chunk_landed_since_the_tick_is_not_lost_with_its_rank(void **state)
{
    struct sealed s;
    (void)state;
    sealed_begin(&s, HOME_MODELS);
    const uint32_t chunks = s.made.list[0]->chunk_count;
    sealed_land(&s, 0, 1);
    (void)tb_copies_tick(s.home.d);
    assert_int_equal(state_of(&s), TB_VERSION_READY);
    sealed_land(&s, 1, chunks);
    tb_worker_leaves(s.home.d, &s.rank);
    assert_int_equal(state_of(&s), TB_VERSION_KEPT);
    sealed_end(&s);
}

static void a_chunk_that_did_not_land_is_lost_with_its_rank(void **state)
{
    struct sealed s;
    (void)state;
    sealed_begin(&s, HOME_MODELS);
    const uint32_t chunks = s.made.list[0]->chunk_count;
    assert_true(chunks > 1);
    sealed_land(&s, 0, chunks - 1);
    tb_worker_leaves(s.home.d, &s.rank);
    assert_int_equal(state_of(&s), TB_VERSION_ENDED_LOST);
    sealed_end(&s);
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

/* P6: no chunk of this one rotted, so nobody has what home never had: it is lost after a lease
 * time, though a site with a part of it may never come back. */
static void rot_of_another_version_is_none_of_its_own(void **state)
{
    struct sealed s;
    (void)state;
    sealed_begin(&s, HOME_MODELS);
    sealed_land(&s, 0, s.made.list[0]->chunk_count - 1);
    (void)tb_copies_tick(s.home.d);
    west_leaves_with_a_part(&s);
    verifier_wakes(s.home.d);
    tb_worker_leaves(s.home.d, &s.rank);
    const tb_time_ns until = tb_time_add(tb_clock_now(), TB_SECONDS(20));
    while (state_of(&s) == TB_VERSION_READY && tb_clock_now() < until)
        (void)uv_run(&s.home.d->loop, UV_RUN_ONCE);
    assert_int_equal(state_of(&s), TB_VERSION_ENDED_LOST);
    sealed_end(&s);
}

static uint32_t held_by_catalog(struct sealed *s)
{
    return sealed_view(s).held_chunks;
}

/* The twin: a chunk of its own did, and the site that may have read it is waited for. */
static void rot_of_its_own_is_heard_of(void **state)
{
    struct sealed s;
    (void)state;
    sealed_begin(&s, HOME_MODELS);
    const uint32_t held = s.made.list[0]->chunk_count - 1;
    sealed_land(&s, 0, held);
    (void)tb_copies_tick(s.home.d);
    west_leaves_with_a_part(&s);
    assert_int_equal(held_by_catalog(&s), held);
    tb_arena_place(s.copy->region, 0)->bytes[0] ^= 1;
    assert_int_equal(tb_arena_chunk_recheck(s.copy->region, 0, 0), TB_CHUNK_DIGEST);
    verifier_wakes(s.home.d);
    assert_int_equal(held_by_catalog(&s), held - 1);
    tb_worker_leaves(s.home.d, &s.rank);
    const tb_time_ns until = tb_time_add(tb_clock_now(), TB_SECONDS(1)); /* two lease times */
    while (tb_clock_now() < until)
        (void)uv_run(&s.home.d->loop, UV_RUN_ONCE);
    assert_int_equal(state_of(&s), TB_VERSION_READY);
    sealed_end(&s);
}

static bool rank_has_it(struct sealed *s)
{
    struct tb_catalog_reference_view r;
    for (uint32_t at = 0; tb_catalog_reference_at(s->home.d->catalog, &at, &r);)
        if (r.kind == TB_REFERENCE_PUBLISHER) return true;
    return false;
}

static void rank_unpublishes(struct sealed *s, struct tb_worker_session *rank)
{
    uint8_t bytes[64];
    const struct tb_msg_unpublish m = {
        .uid = s->made.key.uid, .shard = TB_CATALOG_ALL_SHARDS, .drain_ms = 3600000};
    struct tb_writer w;
    *rank = (struct tb_worker_session){.d = s->home.d, .id = s->rank};
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_msg_unpublish_encode(&m, &w);
    struct tb_wire_frame frame = {.type = TB_MSG_UNPUBLISH, .request = 1};
    tb_reader_init(&frame.payload, bytes, w.used);
    CHECK_OK(tb_worker_unpublish_frame(rank, &frame));
    tb_free(rank->unpublishes);
    s->home.d->unpublish_waits.used--;
}

/* The verifier's wake is still to come, and so it is the rank that has the chunk: it goes
 * when that is here again. */
static void a_rotten_chunk_is_taken_before_its_rank_goes(void **state)
{
    struct sealed s;
    struct tb_worker_session rank;
    (void)state;
    sealed_begin(&s, HOME_MODELS "\ndrain_ms: 3600000");
    sealed_land(&s, 0, s.made.list[0]->chunk_count);
    (void)tb_copies_tick(s.home.d);
    assert_int_equal(state_of(&s), TB_VERSION_KEPT);
    tb_arena_place(s.copy->region, 0)->bytes[0] ^= 1;
    assert_int_equal(tb_arena_chunk_recheck(s.copy->region, 0, 0), TB_CHUNK_DIGEST);
    rank_unpublishes(&s, &rank);
    assert_true(rank_has_it(&s));
    sealed_land(&s, 0, 1);
    (void)tb_copies_tick(s.home.d);
    assert_false(rank_has_it(&s));
    assert_int_equal(state_of(&s), TB_VERSION_KEPT);
    sealed_end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chunk_landed_since_the_tick_is_not_lost_with_its_rank),
        cmocka_unit_test(a_chunk_that_did_not_land_is_lost_with_its_rank),
        cmocka_unit_test(rot_of_another_version_is_none_of_its_own),
        cmocka_unit_test(rot_of_its_own_is_heard_of),
        cmocka_unit_test(a_rotten_chunk_is_taken_before_its_rank_goes),
    };
    return cmocka_run_group_tests_name("copies_told_in_time", tests, NULL, NULL);
}
