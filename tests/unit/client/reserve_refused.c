/* reserve_refused.c - memory that is not prepared, because something was refused, costs a line and
 * no more; and what a subscription prepares for its first version.
 *
 * Covers: intra/client/memory/reserve.c intra/client/follow/staging.c */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "unit/caught_log.h"
#include "unit/client/prepared_rank.h"

/* ---- refusals ---- */

/* One line, and then as without it. */
static void must_be_refused(struct prepared_rank *k)
{
    const int log = caught_log_new();
    tb_log_set(TB_LOG_WARN, log);
    prepared_prepare(k);
    prepared_wait_prepared(k->s);
    tb_log_set(TB_LOG_ERROR, STDERR_FILENO);
    char told[2048] = "";
    assert_true(pread(log, told, sizeof told - 1, 0) > 0);
    close(log);
    const char *line = strstr(told, "memory.unprepared what=shadow model=policy shard=0 bytes=83886080");
    assert_non_null(line);
    assert_null(strstr(line + 1, "memory.unprepared"));
    CHECK_OK(prepared_publish(k, 1));
    assert_int_equal(prepared_counts_of(k->s).made_bytes, PREPARED_TENSOR);
    assert_int_equal(prepared_reserves_of(k->s), 0);
    prepared_must_land(k, 1);
}

static void a_refusal_at_any_point_leaves_the_old_way(void **state)
{
    (void)state;
    static const enum tb_fault_point points[] = {TB_FAULT_memfd, TB_FAULT_ftruncate, TB_FAULT_mmap,
                                                 TB_FAULT_fallocate};
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        struct prepared_rank k;
        prepared_rank_open(&k, true);
        tb_fault_arm(points[i], 1, false);
        must_be_refused(&k);
        tb_fault_arm(points[i], 0, false);
        prepared_rank_close(&k);
    }
    struct prepared_rank k;
    prepared_rank_open(&k, true);
    prepared_hold(1);
    tb_fault_arm(TB_FAULT_fallocate, 2, false);
    prepared_let_go();
    must_be_refused(&k);
    prepared_rank_close(&k);
}

static void without_a_task_it_is_refused_too(void **state)
{
    (void)state;
    struct prepared_rank k;
    prepared_rank_open(&k, true);
    const int log = caught_log_new();
    tb_log_set(TB_LOG_WARN, log);
    prepared_refuse_submits(0);
    prepared_prepare(&k);
    prepared_refuse_submits(PREPARED_NONE);
    tb_log_set(TB_LOG_ERROR, STDERR_FILENO);
    char told[2048] = "";
    assert_true(pread(log, told, sizeof told - 1, 0) > 0);
    close(log);
    assert_non_null(strstr(told, "memory.unprepared"));
    assert_int_equal(prepared_reserves_of(k.s), 0);
    CHECK_OK(prepared_publish(&k, 1));
    prepared_rank_close(&k);
}

/* It found no place in line again: what is missing the call makes. */
static void ready_pages_count_where_the_rest_found_no_turn(void **state)
{
    (void)state;
    struct prepared_rank k;
    prepared_rank_open(&k, true);
    prepared_hold(PREPARED_NONE);
    prepared_refuse_submits(1);
    prepared_prepare(&k);
    prepared_wait_prepared(k.s);
    prepared_refuse_submits(PREPARED_NONE);
    const uint32_t ready = prepared_filled_now();
    assert_in_range(ready, 1, PREPARED_PIECES - 1);
    CHECK_OK(prepared_publish(&k, 1));
    assert_int_equal(prepared_counts_of(k.s).taken_bytes, PREPARED_TENSOR);
    assert_true(prepared_counts_of(k.s).taken_ready_bytes < PREPARED_TENSOR);
    prepared_must_land(&k, 1);
    prepared_rank_close(&k);
}

/* There is no memory for what the call makes itself either: it says so, and may be called again. */
static void a_full_machine_is_a_status(void **state)
{
    (void)state;
    struct prepared_rank k;
    struct prepared_blocker b;
    prepared_rank_open(&k, true);
    prepared_block_worker(k.s, &b);
    prepared_prepare(&k);
    tb_fault_arm(TB_FAULT_fallocate, 3, true);
    CHECK_STATUS(prepared_publish(&k, 1), TB_SITE_NOMEM);
    tb_fault_arm(TB_FAULT_fallocate, 0, false);
    assert_int_equal(prepared_reserves_of(k.s), 0);
    prepared_unblock_worker(&b);
    CHECK_OK(prepared_publish(&k, 1));
    prepared_must_land(&k, 1);
    prepared_rank_close(&k);
}

/* ---- staging ---- */

struct follower {
    struct fake f;
    struct tb_session *s;
    struct tb_registration *r;
    struct tb_subscription *sub;
    struct tb_uid uid;
    uint8_t *memory;
};

static void follower_open(struct follower *w, bool no_prepare)
{
    memset(w, 0, sizeof *w);
    prepared_let_go();
    fake_open(&w->f);
    w->uid = fake_uid(fake_make(&w->f, 1, 1, 1, PREPARED_TENSOR));
    w->s = prepared_session_of(&w->f, no_prepare);
    w->memory = malloc(PREPARED_TENSOR);
    const uint64_t shape[] = {PREPARED_TENSOR};
    const struct tb_tensor_desc t = {
        .name = "t0", .dtype = "U8", .rank = 1, .shape = shape, .memory = w->memory};
    CHECK_OK(tb_register(w->s, &t, 1, &w->r));
    const struct tb_subscribe_options o = {
        .struct_bytes = sizeof o, .member_count = 1, .model = "policy", .registration = w->r};
    CHECK_OK(tb_subscribe(w->s, &o, &w->sub));
}

static void follower_close(struct follower *w)
{
    tb_session_close(w->s);
    free(w->memory);
    fake_close(&w->f);
}

static void must_follow(struct follower *w)
{
    CHECK_OK(tb_stage(w->sub, &w->uid, 60000));
    fake_go(&w->f, 1);
    CHECK_OK(tb_activate(w->sub, &w->uid, NULL));
    assert_memory_equal(w->memory, fake_version(&w->f, 1)->shards[0].bytes, PREPARED_TENSOR);
}

/* It is a little larger than the version, and stands for the next one all the same. */
static void the_first_stage_takes_what_subscribe_prepared(void **state)
{
    (void)state;
    struct follower w;
    follower_open(&w, false);
    prepared_wait_prepared(w.s);
    assert_int_equal(prepared_reserves_of(w.s), 1);
    prepared_hold(PREPARED_NONE);
    for (uint32_t round = 0; round < 2; round++) {
        must_follow(&w);
        CHECK_OK(tb_release(w.sub, &w.uid));
    }
    assert_int_equal(prepared_filled_now(), 0);
    const struct tb_reserve_counts counts = prepared_counts_of(w.s);
    assert_true(counts.taken_bytes >= PREPARED_TENSOR);
    assert_int_equal(counts.taken_ready_bytes, counts.taken_bytes);
    assert_int_equal(counts.made_bytes, 0);
    follower_close(&w);
}

static void a_stage_at_once_takes_what_there_is(void **state)
{
    (void)state;
    struct follower w;
    follower_open(&w, false);
    must_follow(&w);
    assert_int_equal(prepared_counts_of(w.s).made_bytes, 0);
    assert_int_equal(prepared_reserves_of(w.s), 0);
    follower_close(&w);
    follower_open(&w, true);
    assert_int_equal(prepared_reserves_of(w.s), 0);
    must_follow(&w);
    assert_true(prepared_counts_of(w.s).made_bytes >= PREPARED_TENSOR);
    follower_close(&w);
}

static void the_last_subscription_takes_it_along(void **state)
{
    (void)state;
    struct follower w;
    follower_open(&w, false);
    struct tb_subscription *second = NULL;
    const struct tb_subscribe_options o = {
        .struct_bytes = sizeof o, .member_count = 1, .model = "policy", .registration = w.r};
    CHECK_OK(tb_subscribe(w.s, &o, &second));
    assert_int_equal(prepared_reserves_of(w.s), 1); /* for both */
    CHECK_OK(tb_unsubscribe(second));
    assert_int_equal(prepared_reserves_of(w.s), 1);
    CHECK_OK(tb_unsubscribe(w.sub));
    assert_int_equal(prepared_reserves_of(w.s), 0);
    follower_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_refusal_at_any_point_leaves_the_old_way),
        cmocka_unit_test(without_a_task_it_is_refused_too),
        cmocka_unit_test(ready_pages_count_where_the_rest_found_no_turn),
        cmocka_unit_test(a_full_machine_is_a_status),
        cmocka_unit_test(the_first_stage_takes_what_subscribe_prepared),
        cmocka_unit_test(a_stage_at_once_takes_what_there_is),
        cmocka_unit_test(the_last_subscription_takes_it_along),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
