/* versions_lacking.c - tests of gateway/catalog/rules/version_rules.c: what home lacks of a version
 * is asked of sites that may have it, and it is lost when nobody has (P3, P6).
 *
 * Covers: gateway/catalog/rules/version_rules.c gateway/catalog/rules/landing_rules.c */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "gateway/catalog/arena_copy.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/sites.h"
#include "gateway/catalog/versions.h"
#include "gateway/catalog/views.h"
#include "gateway/catalog/workers.h"
#include "site.h"

static void trainer(struct site *s)
{
    east_open(s, 2);
    come(s, "rank-0");
    come(s, "rank-1");
    CHECK_OK(run_open(s, "rank-0", "a", 100));
    hush(s);
}

static void rots(struct site *s, uint32_t held_chunks)
{
    const struct tb_id v5 = id_of(5);
    CHECK_OK(tb_catalog_arena_shrunk(s->c, s->now, &v5, 0, held_chunks));
}

/* v5 is whole here, w0 has 6 chunks of it, its rank is gone; a second later one of ours rots. */
static void rots_under_a_reader(struct site *s)
{
    const struct tb_id rank = session_of("rank-0");
    const char *const renewing[] = {"w0", "rank-1", NULL};
    trainer(s);
    s->left_out = NOT_STORE | NOT_PLANS | NOT_PEERS;
    publish_whole(s, "rank-0", 5);
    come(s, "w0");
    CHECK_OK(join(s, "w0", "g", 0, 1));
    CHECK_OK(stage(s, "w0", 5));
    CHECK_OK(export_of(s, "w0", 5, 6));
    tb_catalog_session_close(s->c, s->now, &rank);
    pass_ms(s, 1000, renewing);
    hush(s);
    rots(s, SHARD_CHUNKS - 1);
}

/* P6: chunks that were here may be with a reader that has a part: home reads from it what it has,
 * and it becomes whole from the rest. */
static void a_rotten_chunk_comes_back_from_a_reader(void **state)
{
    (void)state;
    struct site s;
    const char *const renewing[] = {"w0", NULL};
    rots_under_a_reader(&s);
    pass_ms(&s, 9000, renewing);
    assert_string_equal(state_of(&s, 5), "kept");
    CHECK_OK(progress(&s, "w0", 5, 8)); /* moves: a lease time from here, */
    pass_ms(&s, 9000, renewing);
    pause_ms(&s, 60000); /* of which a pause of the process is no part */
    pass_ms(&s, 500, renewing);
    assert_string_equal(state_of(&s, 5), "kept");
    CHECK_OK(staged(&s, "w0", 5));
    said(&s, "[1050] land v5 all of w0\n"
             "[11000] lost rank-1\n"
             "[79500] go w0 v5\n");
    land(&s, 5, 0, SHARD_CHUNKS);
    pass_ms(&s, 20000, NULL);
    assert_string_equal(state_of(&s, 5), "kept");
    site_close(&s);
}

/* The twin: nothing comes for a lease time, even where others join meanwhile; the verdict has a
 * deadline of its own. */
static void a_rotten_chunk_that_no_reader_has_is_lost(void **state)
{
    (void)state;
    struct site s;
    const char *const renewing[] = {"w0", "w1", "rank-1", NULL};
    rots_under_a_reader(&s);
    come(&s, "w1");
    pass_ms(&s, 5000, renewing);
    pause_ms(&s, 60000); /* counts as one tick: 100 ms */
    pass_ms(&s, 50, renewing);
    CHECK_OK(join(&s, "w1", "h", 0, 1));
    CHECK_OK(stage(&s, "w1", 5));
    CHECK_OK(export_of(&s, "w1", 5, 6)); /* a copy of what is known */
    pass_ms(&s, 4850, renewing);
    assert_string_equal(state_of(&s, 5), "kept");
    pass_ms(&s, 50, renewing);
    assert_string_equal(state_of(&s, 5), "lost");
    site_close(&s);
    rots_under_a_reader(&s);
    const struct tb_id worker = session_of("w0");
    tb_catalog_session_close(s.c, s.now, &worker); /* nobody is left to wait for */
    assert_string_equal(state_of(&s, 5), "lost");
    site_close(&s);
}

/* P6: nobody has all of it, and all of them together have: each gives home what it has, and becomes
 * whole from the others'. */
static void several_rotten_chunks_come_back_from_several_readers(void **state)
{
    (void)state;
    struct site s;
    const char *const renewing[] = {"w0", "w1", "w2", NULL};
    const struct tb_id rank = session_of("rank-0"), v5 = id_of(5), w2 = session_of("w2");
    trainer(&s);
    s.left_out = NOT_STORE | NOT_PLANS | NOT_PEERS;
    publish_whole(&s, "rank-0", 5);
    for (uint32_t i = 0; renewing[i] != NULL; i++)
        come(&s, renewing[i]);
    CHECK_OK(export_of(&s, "w0", 5, 6));
    CHECK_OK(export_of(&s, "w1", 5, 3));
    CHECK_OK(export_of(&s, "w2", 5, 0)); /* has nothing to give yet */
    tb_catalog_session_close(s.c, s.now, &rank);
    hush(&s);
    rots(&s, SHARD_CHUNKS - 3);
    said(&s, "[   0] land v5 all of w1\n"
             "[   0] land v5 all of w0\n");
    for (uint32_t held = SHARD_CHUNKS - 2; held <= SHARD_CHUNKS; held++) {
        pass_ms(&s, 9000, renewing);
        assert_string_equal(state_of(&s, 5), "kept");
        land(&s, 5, 0, held);
    }
    said(&s, "[10000] lost rank-1\n"
             "[27000] leave v5 all of w1\n"
             "[27000] leave v5 all of w0\n");
    CHECK_OK(tb_catalog_export(s.c, s.now, &w2, &v5, 0, 4, false)); /* reads only: serves nobody */
    rots(&s, SHARD_CHUNKS - 1);
    said(&s, "[27000] land v5 all of w1\n"
             "[27000] land v5 all of w0\n");
    CHECK_OK(progress(&s, "w1", 5, SHARD_CHUNKS));
    said(&s, "[27000] leave v5 all of w0\n"); /* one that has all is enough */
    site_close(&s);
}

/* P6 P7: so many are read at once; the others have a lease time of their own, and then it is
 * lost. */
static void many_readers_are_asked_in_turn(void **state)
{
    (void)state;
    struct site s;
    char names[34][16];
    const char *renewing[35] = {NULL};
    const struct tb_id rank = session_of("rank-0"), other = session_of("rank-1");
    trainer(&s);
    s.left_out = NOT_STORE | NOT_PLANS | NOT_PEERS;
    publish_whole(&s, "rank-0", 5);
    for (uint32_t i = 0; i < 34; i++) {
        (void)snprintf(names[i], sizeof names[i], "w%u", i);
        renewing[i] = names[i];
        come(&s, names[i]);
        CHECK_OK(export_of(&s, names[i], 5, 6));
    }
    tb_catalog_session_close(s.c, s.now, &rank);
    tb_catalog_session_close(s.c, s.now, &other);
    hush(&s);
    rots(&s, SHARD_CHUNKS - 1);
    drain(&s);
    assert_null(strstr(s.trace, " of w0\n")); /* the youngest first: w0 and w1 are too many */
    assert_non_null(strstr(s.trace, " of w2\n"));
    pass_ms(&s, 9950, renewing);
    assert_null(strstr(s.trace, "leave"));
    hush(&s);
    pass_ms(&s, 50, renewing);
    assert_non_null(strstr(s.trace, "[10000] leave v5 all of w33\n"));
    assert_non_null(strstr(s.trace, "[10000] land v5 all of w0\n"));
    assert_non_null(strstr(s.trace, "[10000] land v5 all of w1\n"));
    pass_ms(&s, 9950, renewing);
    assert_string_equal(state_of(&s, 5), "kept");
    pass_ms(&s, 50, renewing);
    assert_string_equal(state_of(&s, 5), "lost");
    site_close(&s);
}

/* West has 6 chunks of v5, its rank is gone, and one of ours rots. */
static void rots_while_a_site_takes_it(struct site *s, struct tb_catalog_site_progress *p)
{
    const struct tb_id rank = session_of("rank-0");
    struct tb_catalog_version_view view;
    *p = (struct tb_catalog_site_progress){.site = name_of("west"), .uid = id_of(5), .held_chunks = 6};
    trainer(s);
    publish_whole(s, "rank-0", 5);
    CHECK_OK(tb_catalog_site_up(s->c, s->now, &p->site, true));
    assert_true(tb_catalog_version_get(s->c, &p->uid, &view));
    CHECK_OK(tb_catalog_remote_version(s->c, s->now, &p->site, &view.key, TB_VERSION_READY));
    CHECK_OK(tb_catalog_site_progress(s->c, s->now, p));
    tb_catalog_session_close(s->c, s->now, &rank);
    hush(s);
    rots(s, SHARD_CHUNKS - 1);
}

/* And from a site that is taking it. */
static void a_rotten_chunk_comes_back_from_a_site(void **state)
{
    (void)state;
    struct site s;
    struct tb_catalog_site_progress p;
    rots_while_a_site_takes_it(&s, &p);
    said(&s, "[   0] cross v5 from west\n");
    assert_string_equal(state_of(&s, 5), "kept");
    pass_ms(&s, 9000, NULL);
    p.held_chunks = 7;
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
    pass_ms(&s, 9950, NULL);
    assert_string_equal(state_of(&s, 5), "kept");
    pass_ms(&s, 50, NULL);
    assert_string_equal(state_of(&s, 5), "lost");
    site_close(&s);
}

/* P2 P7: a chunk takes longer than a lease time on a slow path: what comes is a sign that somebody
 * has it, but not for ever. */
static void a_rotten_chunk_that_comes_slowly_is_waited_for(void **state)
{
    (void)state;
    struct site s;
    const struct tb_id v5 = id_of(5);
    struct tb_catalog_site_progress p;
    rots_while_a_site_takes_it(&s, &p);
    hush(&s);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < 20; i++) {
        pass_ms(&s, 8000, NULL);
        CHECK_OK(tb_catalog_arena_came(s.c, s.now, &v5, ++bytes));
        assert_string_equal(state_of(&s, 5), "kept");
    }
    pass_ms(&s, 9950, NULL); /* 160 s, which is the most, and nearly a lease time */
    assert_string_equal(state_of(&s, 5), "kept");
    CHECK_OK(tb_catalog_arena_came(s.c, s.now, &v5, ++bytes));
    pass_ms(&s, 50, NULL);
    assert_string_equal(state_of(&s, 5), "lost");
    site_close(&s);
}

/* One rank's version, of which 7 chunks landed; a site relays it. */
static void half_landed(struct site *s, struct tb_catalog_site_progress *p)
{
    const struct tb_id v5 = id_of(5);
    struct tb_catalog_version_view view;
    trainer(s);
    CHECK_OK(version_open(s, "rank-0", 5, 1, 5));
    CHECK_OK(seal(s, "rank-0", 5, 0, 50));
    land(s, 5, 0, 7);
    *p = (struct tb_catalog_site_progress){.site = name_of("west"), .uid = v5, .held_chunks = 6};
    CHECK_OK(tb_catalog_site_up(s->c, s->now, &p->site, true));
    assert_true(tb_catalog_version_get(s->c, &v5, &view));
    CHECK_OK(tb_catalog_remote_version(s->c, s->now, &p->site, &view.key, TB_VERSION_READY));
    hush(s);
}

/* P3 P6: a chunk may rot while others land, so that the count is no smaller: that it was here is
 * not forgotten, and a site that is cut off may have it. By the seeded world, seed 45230. */
static void a_chunk_that_rots_while_others_land_was_here(void **state)
{
    (void)state;
    struct site s;
    struct tb_catalog_site_progress p;
    const struct tb_id rank = session_of("rank-0"), v5 = id_of(5);
    half_landed(&s, &p);
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &p.site, false));
    rots(&s, 8); /* two came, one of the seven went */
    tb_catalog_session_close(s.c, s.now, &rank);
    pass_ms(&s, 60000, NULL);
    assert_string_equal(state_of(&s, 5), "ready");
    land(&s, 5, 0, SHARD_CHUNKS);
    CHECK_STATUS(tb_catalog_arena_shrunk(s.c, s.now, &v5, 0, SHARD_CHUNKS), TB_DONE_BEFORE); /* another's */
    assert_string_equal(state_of(&s, 5), "kept");
    site_close(&s);
}

/* P6: a version that home never had a site may have adopted from files: it has a lease time to give
 * it. By the seeded world, seed 40974. */
static void a_site_may_have_what_home_never_had(void **state)
{
    (void)state;
    struct site s;
    struct tb_catalog_site_progress p;
    const struct tb_id rank = session_of("rank-0");
    half_landed(&s, &p);
    tb_catalog_session_close(s.c, s.now, &rank);
    said(&s, "[   0] leave v5 shard 0 of rank-0\n"
             "[   0] cross v5 from west\n");
    pass_ms(&s, 9000, NULL);
    land(&s, 5, 0, 8); /* moves: a lease time from here */
    pass_ms(&s, 9950, NULL);
    assert_string_equal(state_of(&s, 5), "ready");
    pass_ms(&s, 50, NULL);
    assert_string_equal(state_of(&s, 5), "lost");
    site_close(&s);
}

/* P6: so may one that says only then that it has it: it is asked, and has as long. By the seeded
 * world, seeds 49663 and 74807. */
static void a_site_that_comes_late_is_asked_too(void **state)
{
    (void)state;
    struct site s;
    struct tb_catalog_site_progress p;
    const struct tb_id rank = session_of("rank-0"), v5 = id_of(5);
    const struct tb_name north = name_of("north");
    struct tb_catalog_version_view view;
    half_landed(&s, &p);
    tb_catalog_session_close(s.c, s.now, &rank);
    pass_ms(&s, 6000, NULL);
    hush(&s);
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &north, true));
    assert_true(tb_catalog_version_get(s.c, &v5, &view));
    CHECK_OK(tb_catalog_remote_version(s.c, s.now, &north, &view.key, TB_VERSION_READY));
    said(&s, "[6000] cross v5 from west north\n");
    CHECK_OK(tb_catalog_remote_version(s.c, s.now, &north, &view.key, TB_VERSION_READY)); /* not for ever */
    pass_ms(&s, 12950, NULL); /* and the turn of west, of a release that sends alone maybe */
    assert_string_equal(state_of(&s, 5), "ready");
    CHECK_OK(tb_catalog_remote_version(s.c, s.now, &north, &view.key, TB_VERSION_READY));
    pass_ms(&s, 50, NULL);
    assert_string_equal(state_of(&s, 5), "lost");
    site_close(&s);
}

/* P3 P6: sites that cannot send it at once are asked one after the other: the last one has a lease
 * time too, and a site that went is not waited for. By the seeded world, seed 84697. */
static void each_site_has_its_turn(void **state)
{
    (void)state;
    static const char *const sites[] = {"west", "north", "south"};
    struct site s;
    const struct tb_id rank = session_of("rank-0"), v5 = id_of(5);
    struct tb_catalog_version_view view;
    trainer(&s);
    publish_whole(&s, "rank-0", 5);
    assert_true(tb_catalog_version_get(s.c, &v5, &view));
    for (uint32_t i = 0; i < 3; i++) {
        const struct tb_name name = name_of(sites[i]);
        CHECK_OK(tb_catalog_site_up(s.c, s.now, &name, true));
        CHECK_OK(tb_catalog_remote_version(s.c, s.now, &name, &view.key, TB_VERSION_READY));
    }
    tb_catalog_session_close(s.c, s.now, &rank);
    rots(&s, SHARD_CHUNKS - 1);
    pass_ms(&s, 15950, NULL); /* two turns, and a lease time */
    assert_string_equal(state_of(&s, 5), "kept");
    land(&s, 5, 0, SHARD_CHUNKS); /* the last one had it */
    rots(&s, SHARD_CHUNKS - 1);
    const struct tb_name south = name_of("south");
    CHECK_OK(tb_catalog_remote_version(s.c, s.now, &south, &view.key, TB_VERSION_RETIRED));
    pass_ms(&s, 12950, NULL);
    assert_string_equal(state_of(&s, 5), "kept");
    pass_ms(&s, 50, NULL);
    assert_string_equal(state_of(&s, 5), "lost");
    site_close(&s);
}

/* P6: nobody can say what a site has that is cut off: home waits for its link, and a
 * lease time from there. */
static void a_site_that_is_cut_off_is_waited_for(void **state)
{
    (void)state;
    struct site s;
    const struct tb_id rank = session_of("rank-0"), v5 = id_of(5);
    const struct tb_catalog_site_progress p = {.site = name_of("west"), .uid = v5, .held_chunks = 6};
    trainer(&s);
    publish_whole(&s, "rank-0", 5);
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &p.site, true));
    struct tb_catalog_version_view view;
    assert_true(tb_catalog_version_get(s.c, &v5, &view));
    CHECK_OK(tb_catalog_remote_version(s.c, s.now, &p.site, &view.key, TB_VERSION_READY));
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
    tb_catalog_session_close(s.c, s.now, &rank);
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &p.site, false));
    rots(&s, SHARD_CHUNKS - 1);
    pass_ms(&s, 60000, NULL);
    assert_string_equal(state_of(&s, 5), "kept");
    hush(&s);
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &p.site, true));
    said(&s, "[60000] cross v5 from west\n");
    pass_ms(&s, 9950, NULL);
    assert_string_equal(state_of(&s, 5), "kept");
    pass_ms(&s, 50, NULL);
    assert_string_equal(state_of(&s, 5), "lost"); /* it had other chunks */
    site_close(&s);
}

/* P3: a chunk of any version rots at west, so its arena has a new life. A version that west
 * alone has whole is not lost for that: west has a lease time to say so again. By the seeded
 * world, seed 9772. */
static void a_new_life_of_its_holder_loses_nothing(void **state)
{
    (void)state;
    struct site s;
    const struct tb_id rank = session_of("rank-0"), v5 = id_of(5);
    const struct tb_catalog_site_progress p = {
        .site = name_of("west"), .uid = v5, .held_chunks = 10, .whole = true, .itself = true};
    trainer(&s);
    publish_whole(&s, "rank-0", 5);
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &p.site, true));
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
    tb_catalog_session_close(s.c, s.now, &rank);
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &p.site, false));
    rots(&s, SHARD_CHUNKS - 1);
    pass_ms(&s, 20000, NULL);
    tb_catalog_site_forget(s.c, s.now, &p.site);
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &p.site, true));
    pass_ms(&s, 9000, NULL);
    assert_string_equal(state_of(&s, 5), "kept");
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
    pass_ms(&s, 20000, NULL);
    assert_string_equal(state_of(&s, 5), "kept");
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &p.site, false));
    tb_catalog_site_forget(s.c, s.now, &p.site);
    CHECK_OK(tb_catalog_site_up(s.c, s.now, &p.site, true));
    pass_ms(&s, 12000, NULL); /* and if it does not */
    assert_string_equal(state_of(&s, 5), "lost");
    site_close(&s);
}

/* Home restarts after it held v5, which its store says was in this state. */
static void next_life(struct site *s, enum tb_catalog_state state)
{
    struct tb_catalog_version_view view;
    const struct tb_id v5 = id_of(5);
    trainer(s);
    publish_whole(s, "rank-0", 5);
    assert_true(tb_catalog_version_get(s->c, &v5, &view));
    east_reopen(s, 2);
    s->left_out = NOT_STORE | NOT_PLANS | NOT_PEERS;
    CHECK_OK(tb_catalog_restore_version(s->c, &view.key, state, SHARD_BYTES, false));
}

/* P3 P6: also in the life after the one that held it, once recovery is over. */
static void a_reader_may_have_what_a_life_before_held(void **state)
{
    (void)state;
    struct site s;
    const char *const renewing[] = {"w0", NULL};
    const struct tb_id v5 = id_of(5);
    next_life(&s, TB_VERSION_KEPT);
    const struct tb_catalog_shard info = {
        .root = root_of(5), .chunk_count = SHARD_CHUNKS, .bytes = SHARD_BYTES};
    CHECK_OK(tb_catalog_arena_shard(s.c, s.now, &v5, 0, &info));
    land(&s, 5, 0, SHARD_CHUNKS - 1); /* one rotted in the life before */
    come(&s, "w0");
    CHECK_OK(export_of(&s, "w0", 5, 6));
    said(&s, "[   0] land v5 all of w0\n");
    pass_ms(&s, 19950, renewing);
    assert_string_equal(state_of(&s, 5), "ready");
    pass_ms(&s, 50, renewing);
    assert_string_equal(state_of(&s, 5), "lost");
    site_close(&s);
}

/* P6: nor is there a verdict that waits for readers nobody can ask: the arena is empty, and nothing
 * reserves room in it. */
static void a_reader_that_cannot_be_asked_holds_up_no_verdict(void **state)
{
    (void)state;
    struct site s;
    const char *const renewing[] = {"w0", NULL};
    next_life(&s, TB_VERSION_READY);
    come(&s, "w0");
    CHECK_OK(export_of(&s, "w0", 5, 1));
    pass_ms(&s, 19950, renewing); /* recovery, and a lease time from there */
    assert_string_equal(state_of(&s, 5), "ready");
    pass_ms(&s, 50, renewing);
    assert_string_equal(state_of(&s, 5), "lost");
    site_close(&s);
}

/* A chunk that was never here no reader can have: it is not waited for. */
static void a_reader_of_what_was_here_holds_up_no_verdict(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    come(&s, "w0");
    CHECK_OK(join(&s, "w0", "g", 0, 1));
    CHECK_OK(version_open(&s, "rank-0", 5, 1, 5));
    CHECK_OK(seal(&s, "rank-0", 5, 0, 50));
    land(&s, 5, 0, 7);
    CHECK_OK(stage(&s, "w0", 5));
    CHECK_OK(export_of(&s, "w0", 5, 6));
    const struct tb_id rank = session_of("rank-0");
    tb_catalog_session_close(s.c, s.now, &rank);
    assert_string_equal(state_of(&s, 5), "lost");
    site_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rotten_chunk_comes_back_from_a_reader),
        cmocka_unit_test(a_rotten_chunk_that_no_reader_has_is_lost),
        cmocka_unit_test(several_rotten_chunks_come_back_from_several_readers),
        cmocka_unit_test(many_readers_are_asked_in_turn),
        cmocka_unit_test(a_rotten_chunk_comes_back_from_a_site),
        cmocka_unit_test(a_rotten_chunk_that_comes_slowly_is_waited_for),
        cmocka_unit_test(a_chunk_that_rots_while_others_land_was_here),
        cmocka_unit_test(a_site_may_have_what_home_never_had),
        cmocka_unit_test(a_site_that_comes_late_is_asked_too),
        cmocka_unit_test(each_site_has_its_turn),
        cmocka_unit_test(a_reader_that_cannot_be_asked_holds_up_no_verdict),
        cmocka_unit_test(a_site_that_is_cut_off_is_waited_for),
        cmocka_unit_test(a_new_life_of_its_holder_loses_nothing),
        cmocka_unit_test(a_reader_may_have_what_a_life_before_held),
        cmocka_unit_test(a_reader_of_what_was_here_holds_up_no_verdict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
