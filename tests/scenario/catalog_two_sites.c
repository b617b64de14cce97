/* catalog_two_sites.c - the catalogs of east and west, a trainer and an engine of two, and what
 * becomes of a version when somebody dies on its way. Virtual time; a chunk a step from the rank to
 * east, from east to west, from west to a worker.
 *
 * P2, P6, P10: each story beside its opposite.
 *
 * Covers: gateway/catalog/versions.c gateway/catalog/leases.c gateway/catalog/rules/settle.c */
#include <stdio.h>
#include <string.h>

#include "catalog/site.h"
#include "check.h"
#include "gateway/catalog/arena_copy.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/sites.h"
#include "gateway/catalog/views.h"

struct world {
    struct site east, west;
    bool rank_lives, link_up;
    bool landing;                          /* east may read the rank */
    bool crossing;                         /* west takes v5 from east */
    uint32_t at_east, at_west, at_a, at_b; /* chunks of v5 */
    bool a_reads, b_reads;
    char trace[4096];
};

static void tell_story(struct world *w, const char *line)
{
    const size_t used = strlen(w->trace);
    (void)snprintf(w->trace + used, sizeof w->trace - used, "[%4llu] %s\n",
                   (unsigned long long)((w->east.now - TB_SECONDS(1000)) / TB_MS(1)), line);
}

static void east_says(void *world, const struct tb_catalog_todo *t)
{
    struct world *w = world;
    char line[128];
    if (t->kind == TB_CATALOG_LAND_FROM) w->landing = true;
    if (t->kind == TB_CATALOG_LAND_END) w->landing = false;
    if (t->kind != TB_CATALOG_PERSIST_VERSION) return;
    (void)snprintf(line, sizeof line, "east > v5 is %s (%s)", tb_catalog_state_name(t->state), t->why);
    tell_story(w, line);
    if (!w->link_up) return;
    const struct tb_name east = name_of("east");
    CHECK_OK(tb_catalog_remote_version(w->west.c, w->west.now, &east, &t->key, t->state));
}

static void west_says(void *world, const struct tb_catalog_todo *t)
{
    struct world *w = world;
    char line[128];
    if (t->kind == TB_CATALOG_CROSS && !w->crossing) { /* one that stands is asked for again */
        tell_story(w, "west > crossing begins");
        cross_begin(&w->west, 5);
        w->crossing = true;
    }
    if (t->kind == TB_CATALOG_EVICT) w->crossing = false;
    if (t->kind == TB_CATALOG_PLAN && strcmp(t->name.text, "a") == 0) w->a_reads = true;
    if (t->kind == TB_CATALOG_PLAN && strcmp(t->name.text, "b") == 0) w->b_reads = true;
    if (t->kind == TB_CATALOG_GO)
        (void)snprintf(line, sizeof line, "west > go for %s", t->name.text);
    else if (t->kind == TB_CATALOG_ANSWER)
        (void)snprintf(line, sizeof line, "west > waiter woken: %s", tb_status_name(t->status));
    else if (t->kind == TB_CATALOG_TELL)
        (void)snprintf(line, sizeof line, "west > %s told: %s", t->name.text, tb_status_name(t->status));
    else if (t->kind == TB_CATALOG_PERSIST_VERSION && t->state != TB_VERSION_READY)
        (void)snprintf(line, sizeof line, "west > v5 is %s (%s)", tb_catalog_state_name(t->state), t->why);
    else
        return;
    tell_story(w, line);
}

static void world_init(struct world *w)
{
    memset(w, 0, sizeof *w);
    east_open(&w->east, 2);
    west_open(&w->west, 2);
    w->east.listener = east_says;
    w->west.listener = west_says;
    w->east.world = w->west.world = w;
    w->link_up = w->rank_lives = true;
    const struct tb_name east = name_of("east"), west = name_of("west");
    CHECK_OK(tb_catalog_site_up(w->east.c, w->east.now, &west, true));
    CHECK_OK(tb_catalog_site_up(w->west.c, w->west.now, &east, true));
    come(&w->east, "rank");
    CHECK_OK(run_open(&w->east, "rank", "k", 100));
    const char *const names[] = {"a", "b"};
    for (uint32_t i = 0; i < 2; i++) {
        come(&w->west, names[i]);
        CHECK_OK(join(&w->west, names[i], "engine", i, 2));
    }
}

static void publish(struct world *w)
{
    CHECK_OK(version_open(&w->east, "rank", 5, 1, 5));
    CHECK_OK(seal(&w->east, "rank", 5, 0, 50));
    const struct tb_id v5 = id_of(5);
    CHECK_OK(tb_catalog_arena_reserved(w->east.c, w->east.now, &v5));
}

static void east_lands(struct world *w)
{
    if (!w->landing || !w->rank_lives || w->at_east == SHARD_CHUNKS) return;
    land(&w->east, 5, 0, ++w->at_east);
}

static void west_lands(struct world *w)
{
    if (!w->crossing || !w->link_up || w->at_west >= w->at_east) return;
    land(&w->west, 5, 0, ++w->at_west);
    const struct tb_catalog_site_progress p = {.site = name_of("west"),
                                               .uid = id_of(5),
                                               .held_chunks = w->at_west,
                                               .whole = w->at_west == SHARD_CHUNKS};
    CHECK_OK(tb_catalog_site_progress(w->east.c, w->east.now, &p));
}

static void worker_lands(struct world *w, const char *name, bool reads, uint32_t *held)
{
    if (!reads || *held >= w->at_west) return;
    CHECK_OK(progress(&w->west, name, 5, ++*held));
}

static void drain_both(struct world *w)
{
    drain(&w->east);
    drain(&w->west);
    w->east.trace[0] = w->west.trace[0] = 0;
}

/* 50 ms: a chunk moves on each way; the living renew. */
static void step(struct world *w)
{
    const char *const ranks[] = {w->rank_lives ? "rank" : NULL, NULL};
    const char *const workers[] = {"a", "b", NULL};
    pass_ms(&w->east, 50, ranks);
    pass_ms(&w->west, 50, workers);
    east_lands(w);
    west_lands(w);
    worker_lands(w, "a", w->a_reads, &w->at_a);
    worker_lands(w, "b", w->b_reads, &w->at_b);
    drain_both(w);
}

static void run_ms(struct world *w, uint64_t ms)
{
    for (uint64_t passed = 0; passed < ms; passed += 50)
        step(w);
}

static void stage_both(struct world *w)
{
    CHECK_OK(stage(&w->west, "a", 5));
    CHECK_OK(stage(&w->west, "b", 5));
    CHECK_OK(export_of(&w->west, "a", 5, 0));
    CHECK_OK(export_of(&w->west, "b", 5, 0));
}

static void world_fini(struct world *w)
{
    site_close(&w->east);
    site_close(&w->west);
}

/* Everything at once: while the rank's last chunks land at east, workers of west hold the first. */
static void a_version_is_staged_while_it_is_on_the_ocean(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    publish(&w);
    step(&w);
    stage_both(&w);
    run_ms(&w, 700);
    assert_string_equal(w.trace, "[  50] east > v5 is ready (ready)\n"
                                 "[  50] west > crossing begins\n"
                                 "[ 500] east > v5 is kept (whole_here)\n"
                                 "[ 500] west > v5 is kept (whole_here)\n"
                                 "[ 550] west > go for a\n"
                                 "[ 550] west > go for b\n");
    switch_to(&w.west, "a", 5);
    switch_to(&w.west, "b", 5);
    world_fini(&w);
}

/* The trainer is killed when east has 6 of 10 chunks: nobody has the rest. Its lease ends; west,
 * which takes part in the version, may have adopted from files what east never had, and has a lease
 * time to show it. Then waiters wake, space is free. */
static void the_trainer_dies_and_nobody_has_the_rest(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    publish(&w);
    step(&w);
    stage_both(&w);
    wait_for(&w.west, NULL, TB_CATALOG_WAIT_EXACT, 5, 0, 60000);
    run_ms(&w, 250);
    w.rank_lives = false;
    run_ms(&w, 10100);
    assert_string_equal(state_of(&w.west, 5), "ready");
    run_ms(&w, 10900);
    assert_string_equal(w.trace, "[  50] east > v5 is ready (ready)\n"
                                 "[  50] west > crossing begins\n"
                                 "[20300] east > v5 is lost (no_holder)\n"
                                 "[20300] west > v5 is lost (said_by_home)\n"
                                 "[20300] west > b told: version_lost\n"
                                 "[20300] west > a told: version_lost\n"
                                 "[20300] west > waiter woken: version_lost\n");
    assert_string_equal(state_of(&w.west, 5), "lost");
    world_fini(&w);
}

/* The twin: it is killed 300 ms later, when east has all: the crossing is finished without it. */
static void the_trainer_dies_and_east_has_the_rest(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    w.link_up = false; /* so that west has nothing when the rank dies */
    publish(&w);
    run_ms(&w, 550);
    w.rank_lives = false;
    run_ms(&w, 11000);
    w.link_up = true;
    struct tb_catalog_version_view view;
    const struct tb_id v5 = id_of(5);
    assert_true(tb_catalog_version_get(w.east.c, &v5, &view));
    const struct tb_name east = name_of("east");
    CHECK_OK(tb_catalog_remote_version(w.west.c, w.west.now, &east, &view.key, view.state));
    step(&w);
    stage_both(&w);
    run_ms(&w, 700);
    assert_string_equal(w.trace, "[  50] east > v5 is ready (ready)\n"
                                 "[ 500] east > v5 is kept (whole_here)\n"
                                 "[11600] west > crossing begins\n"
                                 "[12050] west > v5 is kept (whole_here)\n"
                                 "[12100] west > go for a\n"
                                 "[12100] west > go for b\n");
    world_fini(&w);
}

/* A member dies before go: nobody switches; it comes back and the engine goes on with what it
 * holds. */
static void a_member_dies_before_go(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    publish(&w);
    step(&w);
    stage_both(&w);
    run_ms(&w, 250);
    const struct tb_id b = session_of("b");
    tb_catalog_session_close(w.west.c, w.west.now, &b);
    w.b_reads = false;
    w.at_b = 0;
    come(&w.west, "b");
    CHECK_OK(join(&w.west, "b", "engine", 1, 2));
    run_ms(&w, 400);
    CHECK_STATUS(activate(&w.west, "a", 5), TB_GROUP_BROKEN);
    CHECK_OK(stage(&w.west, "a", 5));
    CHECK_OK(stage(&w.west, "b", 5));
    run_ms(&w, 600);
    assert_string_equal(w.trace, "[  50] east > v5 is ready (ready)\n"
                                 "[  50] west > crossing begins\n"
                                 "[ 350] west > a told: group_broken\n"
                                 "[ 500] east > v5 is kept (whole_here)\n"
                                 "[ 500] west > v5 is kept (whole_here)\n"
                                 "[1200] west > go for a\n"
                                 "[1200] west > go for b\n");
    world_fini(&w);
}

/* The twin: it dies after go; the other switches all the same, and it comes back to that
 * version. */
static void a_member_dies_after_go(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    publish(&w);
    step(&w);
    stage_both(&w);
    run_ms(&w, 600);
    const struct tb_id b = session_of("b");
    tb_catalog_session_close(w.west.c, w.west.now, &b);
    switch_to(&w.west, "a", 5);
    w.b_reads = false;
    w.at_b = 0;
    come(&w.west, "b");
    CHECK_OK(join(&w.west, "b", "engine", 1, 2));
    CHECK_OK(stage(&w.west, "b", 5));
    run_ms(&w, 600);
    switch_to(&w.west, "b", 5);
    assert_string_equal(w.trace, "[  50] east > v5 is ready (ready)\n"
                                 "[  50] west > crossing begins\n"
                                 "[ 500] east > v5 is kept (whole_here)\n"
                                 "[ 500] west > v5 is kept (whole_here)\n"
                                 "[ 550] west > go for a\n"
                                 "[ 550] west > go for b\n"
                                 "[1150] west > go for b\n");
    world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_version_is_staged_while_it_is_on_the_ocean),
        cmocka_unit_test(the_trainer_dies_and_nobody_has_the_rest),
        cmocka_unit_test(the_trainer_dies_and_east_has_the_rest),
        cmocka_unit_test(a_member_dies_before_go),
        cmocka_unit_test(a_member_dies_after_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
