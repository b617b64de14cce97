/* telling.c - tests of gateway/catalog/todo_marks.c: what comes out, in which order, once.
 *
 * Covers: gateway/catalog/todo_marks.c */
#include "check.h"
#include "gateway/catalog/arena_copy.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/unpublish.h"
#include "gateway/catalog/versions.h"
#include "gateway/catalog/views.h"
#include "gateway/catalog/workers.h"
#include "site.h"

/* P3: a row that others build on is on disk before they hear of it. */
static void durable_things_come_out_first(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 1);
    come(&s, "rank");
    come(&s, "a");
    CHECK_OK(run_open(&s, "rank", "k", 100));
    CHECK_OK(join(&s, "a", "g", 0, 1));
    wait_for(&s, "a", TB_CATALOG_WAIT_LATEST, 0, 0, 1000);
    publish_whole(&s, "rank", 5);
    CHECK_OK(stage(&s, "a", 5));
    said(&s, "[   0] store run k published, last 5\n"
             "[   0] store v5 kept: whole_here\n" /* open and ready went by before anybody asked */
             "[   0] store head v5\n"
             "[   0] peers v5 whole\n"
             "[   0] tell rank v5 kept\n"
             "[   0] plan a v5 from gateway\n"
             "[   0] answer 1: v5 whole\n");
    said(&s, ""); /* once */
    site_close(&s);
}

/* P7: as many todos as there are rows, and none is lost however long nobody drains. */
static void nothing_is_lost_when_nobody_drains(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 1);
    rank_begins(&s);
    for (uint64_t n = 0; n < 16; n++)
        wait_for(&s, "rank", TB_CATALOG_WAIT_LATEST, 0, 0, 1000);
    const struct tb_catalog_wait more = {.handle = 99, .model = name_of("policy"), .deadline = TB_TIME_NEVER};
    CHECK_STATUS(tb_catalog_wait(s.c, s.now, &more), TB_SITE_NOMEM);
    assert_string_equal(tb_catalog_full(s.c), "waits");
    publish_whole(&s, "rank", 5);
    struct tb_catalog_todo t;
    uint32_t answers = 0;
    while (tb_catalog_next(s.c, &t))
        answers += t.kind == TB_CATALOG_ANSWER;
    assert_int_equal(answers, 16);
    CHECK_OK(tb_catalog_wait(s.c, s.now, &more)); /* and their rows are free again */
    site_close(&s);
}

/* P3: while a row is on its way to the disk, nothing comes out that others could
 * build on; all else does. */
static void a_word_about_an_unsaved_row_waits(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 1);
    const struct tb_name policy = name_of("policy");
    const struct tb_id v5 = id_of(5), none = {{0}};
    come(&s, "rank");
    come(&s, "a");
    come(&s, "b");
    CHECK_OK(run_open(&s, "rank", "k", 100));
    CHECK_OK(join(&s, "a", "g", 0, 1));
    wait_for(&s, "a", TB_CATALOG_WAIT_LATEST, 0, 0, 1000);
    wait_for(&s, "b", TB_CATALOG_WAIT_EXACT, 99, 0, 100);
    tb_catalog_unsaved(s.c, &policy, &none);
    tb_catalog_unsaved(s.c, &policy, &v5); /* before there is a v5: counted for its model */
    publish_whole(&s, "rank", 5);
    tb_catalog_unsaved(s.c, &policy, &v5);
    CHECK_OK(stage(&s, "a", 5));
    said(&s, "[   0] store run k published, last 5\n"
             "[   0] store v5 kept: whole_here\n"
             "[   0] store head v5\n");
    const char *const all[] = {"rank", "a", "b", NULL};
    pass_ms(&s, 200, all);
    said(&s, "[ 100] answer 2: timeout\n"); /* the clock needs no disk */
    tb_catalog_saved(s.c, &policy, &v5);    /* what is about that version alone */
    said(&s, "[ 200] peers v5 whole\n"
             "[ 200] tell rank v5 kept\n"
             "[ 200] plan a v5 from gateway\n");
    tb_catalog_saved(s.c, &policy, &v5);
    said(&s, "");
    tb_catalog_saved(s.c, &policy, &none);
    said(&s, "[ 200] answer 1: v5 whole\n");
    site_close(&s);
}

/* P6: one model's rows hold up no other model, and a version's rows no other version of it. */
static void an_unsaved_row_holds_up_its_own_alone(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 2);
    const struct tb_name policy = name_of("policy"), other = name_of("other");
    const struct tb_id v6 = id_of(6);
    come(&s, "rank");
    come(&s, "a");
    CHECK_OK(run_open(&s, "rank", "k", 100));
    wait_for(&s, "a", TB_CATALOG_WAIT_LATEST, 0, 0, 1000);
    publish_whole(&s, "rank", 5);
    tb_catalog_unsaved(s.c, &other, &v6);
    tb_catalog_saved(s.c, &other, &v6); /* unknown: nothing */
    publish_whole(&s, "rank", 6);
    tb_catalog_unsaved(s.c, &policy, &v6);
    hush(&s);
    CHECK_OK(join(&s, "a", "g", 0, 1));
    CHECK_OK(stage(&s, "a", 5));
    said(&s, "[   0] plan a v5 from gateway\n");
    tb_catalog_saved(s.c, &policy, &v6);
    said(&s, "[   0] peers v6 whole\n"
             "[   0] tell rank v6 kept\n"
             "[   0] answer 1: v6 whole\n");
    site_close(&s);
}

static enum tb_status hop_lost_any(struct site *s, const char *who, uint64_t uid)
{
    const struct tb_id session = session_of(who), v = id_of(uid);
    uint32_t cursor = 0;
    struct tb_catalog_reference_view view;
    while (tb_catalog_reference_at(s->c, &cursor, &view))
        if (view.plan != 0 && tb_id_equal(&view.session, &session) && tb_id_equal(&view.uid, &v))
            return tb_catalog_hop_lost(s->c, s->now, &session, &v, view.plan);
    return TB_NOT_FOUND;
}

static void chance_publishes(struct site *s, uint64_t r, const char *who, uint64_t uid, uint32_t shard)
{
    const struct tb_id session = session_of(who), v = id_of(uid);
    switch (r % 6) {
    case 0:
        (void)!run_open(s, who, (r >> 32) % 8 == 0 ? "y" : "x", 100 + (r >> 40) % 1000);
        break;
    case 1:
        (void)!version_open(s, who, uid, 2, uid);
        break;
    case 2:
    case 3:
        (void)!seal(s, who, uid, shard, (uint8_t)((r >> 32) % 30 == 0 ? 99 : uid));
        break;
    case 4:
        (void)!tb_catalog_arena_reserved(s->c, s->now, &v);
        (void)!tb_catalog_arena_progress(s->c, s->now, &v, shard, (uint32_t)(r >> 32) % (SHARD_CHUNKS + 1));
        break;
    case 5:
        (void)!tb_catalog_unpublish(s->c, s->now, &session, &v, (r >> 40) & 1 ? shard : TB_CATALOG_ALL_SHARDS,
                                    TB_MS(200));
        break;
    }
}

static void chance_follows(struct site *s, uint64_t r, const char *who, uint64_t uid)
{
    const struct tb_id session = session_of(who), v = id_of(uid);
    switch (r % 7) {
    case 0:
        (void)!join(s, who, (r >> 32) & 1 ? "g" : "h", (uint32_t)(r >> 40) % 2, 2);
        break;
    case 1:
    case 2:
        (void)!stage(s, who, uid);
        break;
    case 3:
        (void)!export_of(s, who, uid, (uint32_t)(r >> 32) % SHARD_CHUNKS);
        break;
    case 4:
        (void)!progress(s, who, uid, SHARD_CHUNKS);
        break;
    case 5:
        if (activate(s, who, uid) == TB_OK) CHECK_OK(activated(s, who, uid));
        break;
    case 6:
        (void)!hop_lost_any(s, who, uid);
        (void)!tb_catalog_release(s->c, s->now, &session, &v);
        break;
    }
}

static void chance_disturbs(struct site *s, uint64_t r, const char *who, uint64_t uid)
{
    const struct tb_id session = session_of(who), v = id_of(uid);
    struct tb_catalog_room room;
    switch (r % 4) {
    case 0:
        tb_catalog_session_close(s->c, s->now, &session);
        come(s, who);
        break;
    case 1:
        tb_catalog_session_detach(s->c, s->now, &session);
        if ((r >> 32) & 1) hush(s);
        CHECK_OK(tb_catalog_session_resume(s->c, s->now, &session, "unix:1000"));
        break;
    case 2:
        if ((r >> 32) % 4 == 0) (void)!tb_catalog_withdraw(s->c, s->now, &v, "chance");
        (void)!tb_catalog_evicted(s->c, s->now, &v);
        break;
    case 3:
        (void)!tb_catalog_make_room(s->c, s->now, (r >> 32) % 3000, &room);
        s->now += TB_MS(40);
        tb_catalog_tick(s->c, s->now);
        break;
    }
}

static void chance_step(struct site *s, uint64_t r)
{
    const char *const names[] = {"rank-0", "rank-1", "a", "b", "c"};
    const char *who = names[(r >> 8) % 5];
    const uint64_t uid = 1 + (r >> 16) % 6;
    if (r % 10 < 4)
        chance_publishes(s, r / 10, who, uid, (uint32_t)(r >> 24) % 2);
    else if (r % 10 < 8)
        chance_follows(s, r / 10, who, uid);
    else
        chance_disturbs(s, r / 10, who, uid);
    if ((r >> 60) % 3 == 0) hush(s);
}

/* P4, P7 over chance: whatever is asked in whatever order, the catalog answers, keeps its own rules
 * (TB_ASSERT) and runs dry. */
static void random_requests_do_no_harm(void **state)
{
    (void)state;
    const char *const names[] = {"rank-0", "rank-1", "a", "b", "c"};
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct site s;
        uint64_t random = seed;
        east_open(&s, 2);
        for (uint32_t i = 0; i < 5; i++)
            come(&s, names[i]);
        for (uint32_t step = 0; step < 150; step++)
            chance_step(&s, check_random(&random));
        hush(&s);
        site_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durable_things_come_out_first),
        cmocka_unit_test(nothing_is_lost_when_nobody_drains),
        cmocka_unit_test(a_word_about_an_unsaved_row_waits),
        cmocka_unit_test(an_unsaved_row_holds_up_its_own_alone),
        cmocka_unit_test(random_requests_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
