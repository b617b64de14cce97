/* anchored.c - what an anchor is for is the newest version that somebody can come back to (P3). */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "tests/unit/arena/arena_world.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/daemon_home.h"

#define SHARD_BYTES ((uint64_t)1 << 20)
#define WAIT_NS     TB_SECONDS(20)

struct trainer {
    struct home home;
    struct tb_id rank, run;
    struct version made[2];
};

static void trainer_begin(struct trainer *t)
{
    memset(t, 0, sizeof *t);
    home_new_with(&t->home, "{policy: {home: east, keep: 3}}", true);
    home_start(&t->home);
    struct tb_catalog *c = t->home.d->catalog;
    struct tb_catalog_session session = {.id = {{1}}, .identity = "unix:1000"};
    CHECK_OK(tb_name_set(&session.name, "rank"));
    CHECK_OK(tb_name_set(&session.host, "host"));
    CHECK_OK(tb_catalog_session_open(c, tb_clock_now(), &session));
    t->rank = session.id;
    struct tb_catalog_run_request q = {.session = t->rank, .key = "k", .fresh_id = {{2}}};
    struct tb_catalog_run run;
    bool joined;
    CHECK_OK(tb_name_set(&q.model, "policy"));
    CHECK_OK(tb_catalog_run_open(c, tb_clock_now(), &q, &run, &joined));
    t->run = run.id;
}

/* Sealed and landed. */
static void publish(struct trainer *t, uint64_t number)
{
    struct tb_daemon *d = t->home.d;
    struct version *v = &t->made[number - 1];
    version_make(v, number, 1, SHARD_BYTES);
    const struct tb_manifest *m = v->list[0];
    const tb_time_ns now = tb_clock_now();
    const struct tb_catalog_version_request q = {.session = t->rank,
                                                 .model = v->key.model,
                                                 .run = t->run,
                                                 .number = number,
                                                 .shard_count = 1,
                                                 .fresh_uid = {{(uint8_t)(10 + number)}}};
    char error[TB_ARENA_ERROR_BYTES];
    CHECK_OK(tb_catalog_version_open(d->catalog, now, &q, &v->key));
    struct tb_copy *copy = tb_copy_get(d, &v->key);
    assert_non_null(copy);
    CHECK_OK(tb_arena_reserve(d->arena, &v->key, v->list, 1, &copy->region, error));
    const struct tb_catalog_shard info = {m->root, m->layout.id, m->chunk_count, m->bytes};
    CHECK_OK(tb_catalog_arena_shard(d->catalog, now, &v->key.uid, 0, &info));
    CHECK_OK(tb_catalog_arena_reserved(d->catalog, now, &v->key.uid));
    const struct tb_catalog_seal seal = {.session = t->rank,
                                         .uid = v->key.uid,
                                         .root = m->root,
                                         .layout_id = m->layout.id,
                                         .chunk_count = m->chunk_count,
                                         .bytes = m->bytes,
                                         .export_id = number};
    CHECK_OK(tb_catalog_seal(d->catalog, now, &seal));
    version_land_all(v, copy->region);
    CHECK_OK(tb_daemon_settle(d));
}

static bool has_anchor(const struct trainer *t, uint64_t number)
{
    char path[128];
    snprintf(path, sizeof path, "%s/anchors/policy@1-%d.anchor", t->home.dir, (int)number);
    return access(path, F_OK) == 0;
}

/* Until version `there` alone has an anchor. */
static bool comes_to_be(struct trainer *t, uint64_t there, uint64_t gone)
{
    const tb_time_ns until = tb_time_add(tb_clock_now(), WAIT_NS);
    while (tb_clock_now() < until) {
        if (has_anchor(t, there) && !has_anchor(t, gone)) return true;
        (void)uv_run(&t->home.d->loop, UV_RUN_ONCE);
    }
    return false;
}

static void trainer_end(struct trainer *t)
{
    char path[128];
    home_end(&t->home);
    for (int number = 1; number <= 2; number++) {
        snprintf(path, sizeof path, "%s/anchors/policy@1-%d.anchor", t->home.dir, number);
        (void)unlink(path);
        version_fini(&t->made[number - 1]);
    }
    home_free(&t->home);
}

/* P3: after a reboot the head is there, also where a newer one was withdrawn. */
static void a_withdrawn_versions_anchor_gives_way_to_the_head(void **state)
{
    (void)state;
    struct trainer t;
    trainer_begin(&t);
    publish(&t, 1);
    publish(&t, 2);
    assert_true(comes_to_be(&t, 2, 1));
    CHECK_OK(tb_catalog_withdraw(t.home.d->catalog, tb_clock_now(), &t.made[1].key.uid, "test"));
    CHECK_OK(tb_daemon_settle(t.home.d));
    assert_true(comes_to_be(&t, 1, 2));
    trainer_end(&t);
}

/* The twin: withdrawing what was the head before takes no anchor away. */
static void another_withdrawn_version_leaves_the_anchor(void **state)
{
    (void)state;
    struct trainer t;
    trainer_begin(&t);
    publish(&t, 1);
    publish(&t, 2);
    assert_true(comes_to_be(&t, 2, 1));
    CHECK_OK(tb_catalog_withdraw(t.home.d->catalog, tb_clock_now(), &t.made[0].key.uid, "test"));
    CHECK_OK(tb_daemon_settle(t.home.d));
    while (tb_copy_find(t.home.d, &t.made[0].key.uid) != NULL)
        (void)uv_run(&t.home.d->loop, UV_RUN_ONCE);
    tb_anchors_tick(t.home.d, tb_clock_now());
    assert_true(has_anchor(&t, 2) && !has_anchor(&t, 1));
    trainer_end(&t);
}

/* The newest is whole before the store has written that it is ready, and no other comes behind it. */
static void the_last_version_is_not_forgotten_for_one_before_it(void **state)
{
    (void)state;
    struct trainer t;
    trainer_begin(&t);
    struct tb_daemon *d = t.home.d;
    publish(&t, 1);
    publish(&t, 2);
    struct tb_copy *first = tb_copy_find(d, &t.made[0].key.uid), *last = tb_copy_find(d, &t.made[1].key.uid);
    tb_copies_look(d);
    assert_true(first->whole && last->whole);
    first->ready = true;
    last->ready = false;
    tb_anchors_tick(d, tb_clock_now());
    assert_true(tb_anchors_using(d, &first->key.uid));
    last->ready = true;
    assert_true(comes_to_be(&t, 2, 1));
    trainer_end(&t);
}

/* P7: what cannot be written is tried again when a newer one is whole or a minute later, and not at each tick, which is a thread and a
 * line in the log, because one that was whole before waits for the store. */
static void what_cannot_be_written_rests(void **state)
{
    (void)state;
    struct trainer t;
    trainer_begin(&t);
    struct tb_daemon *d = t.home.d;
    publish(&t, 1);
    publish(&t, 2);
    struct tb_copy *first = tb_copy_find(d, &t.made[0].key.uid), *last = tb_copy_find(d, &t.made[1].key.uid);
    tb_copies_look(d);
    first->ready = true;
    last->ready = false;
    const tb_time_ns now = tb_clock_now();
    tb_fault_arm(TB_FAULT_thread, 1, true);
    for (int tick = 0; tick < 3; tick++)
        tb_anchors_tick(d, tb_time_add(now, TB_SECONDS(tick)));
    tb_fault_arm(TB_FAULT_thread, 0, false);
    assert_int_equal(d->counters.anchors_failed, 1);
    last->ready = true;
    tb_anchors_tick(d, tb_time_add(now, TB_SECONDS(61)));
    assert_true(tb_anchors_using(d, &last->key.uid));
    assert_true(comes_to_be(&t, 2, 1));
    trainer_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_withdrawn_versions_anchor_gives_way_to_the_head),
        cmocka_unit_test(another_withdrawn_version_leaves_the_anchor),
        cmocka_unit_test(the_last_version_is_not_forgotten_for_one_before_it),
        cmocka_unit_test(what_cannot_be_written_rests),
    };
    return cmocka_run_group_tests_name("daemon.anchored", tests, NULL, NULL);
}
