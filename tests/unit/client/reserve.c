/* reserve.c - memory that is prepared in background: a publish uses what is ready, and makes the
 * rest itself; a registration and a session end it at any time.
 *
 * Counters say what a call found and what it made; no time is looked at.
 *
 * Covers: intra/client/memory/reserve.c intra/client/memory/memory_pieces.c
 * Covers: intra/client/publish/publish_prepare.c */
#include <pthread.h>
#include <string.h>

#include "unit/client/prepared_rank.h"

/* ---- publishing ---- */

static void a_publish_behind_it_makes_no_page(void **state)
{
    (void)state;
    struct prepared_rank k;
    prepared_rank_open(&k, true);
    prepared_prepare(&k);
    prepared_prepare(&k); /* a second time as well: there is one */
    prepared_wait_prepared(k.s);
    prepared_must_say(
        k.s, "\"prepared\":[{\"what\":\"shadow\",\"model\":\"policy\",\"shard\":0,\"state\":\"ready\","
             "\"bytes\":83886080,\"ready_bytes\":83886080}]");
    assert_int_equal(prepared_reserves_of(k.s), 1);
    prepared_hold(PREPARED_NONE);
    CHECK_OK(prepared_publish(&k, 1));
    assert_int_equal(prepared_filled_now(), 0);
    const struct tb_reserve_counts counts = prepared_counts_of(k.s);
    assert_int_equal(counts.taken_bytes, PREPARED_TENSOR);
    assert_int_equal(counts.taken_ready_bytes, PREPARED_TENSOR);
    assert_int_equal(counts.made_bytes, 0);
    prepared_must_say(k.s,
                      "\"prepared\":[],\"memory\":{\"taken_bytes\":83886080,\"taken_ready_bytes\":83886080,"
                      "\"made_bytes\":0}");
    prepared_must_land(&k, 1);
    prepared_rank_close(&k);
}

/* The second shadow is made while the trainer computes; a third there never is (P7). */
static void the_second_shadow_is_prepared_behind_the_first_version(void **state)
{
    (void)state;
    struct prepared_rank k;
    prepared_rank_open(&k, false);
    CHECK_OK(prepared_publish(&k, 1));
    prepared_wait_prepared(k.s);
    assert_int_equal(prepared_counts_of(k.s).made_bytes, PREPARED_TENSOR);
    assert_int_equal(prepared_reserves_of(k.s), 1);
    prepared_must_land(&k, 1);
    prepared_hold(PREPARED_NONE);
    CHECK_OK(prepared_publish(&k, 2));
    prepared_must_land(&k, 2);
    CHECK_OK(prepared_publish(&k, 3));
    prepared_must_land(&k, 3);
    assert_int_equal(prepared_filled_now(), 0);
    assert_int_equal(prepared_reserves_of(k.s), 0);
    assert_int_equal(prepared_counts_of(k.s).taken_ready_bytes, PREPARED_TENSOR);
    prepared_rank_close(&k);
}

static void with_the_option_nothing_is_prepared_unasked(void **state)
{
    (void)state;
    struct prepared_rank k;
    prepared_rank_open(&k, true);
    CHECK_OK(prepared_publish(&k, 1));
    assert_int_equal(prepared_reserves_of(k.s), 0);
    assert_int_equal(prepared_counts_of(k.s).made_bytes, PREPARED_TENSOR);
    prepared_rank_close(&k);
}

/* A piece is in hand: the call makes all others meanwhile, and waits for that one alone. */
static void a_publish_during_it_goes_on_where_it_stands(void **state)
{
    (void)state;
    struct prepared_rank k;
    prepared_rank_open(&k, true);
    prepared_hold(1);
    prepared_prepare(&k);
    prepared_wait_held();
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, prepared_publish_one, &k), 0);
    prepared_wait_filled(PREPARED_PIECES - 1);
    prepared_let_go();
    pthread_join(thread, NULL);
    CHECK_OK(k.published);
    assert_int_equal(prepared_filled_now(), PREPARED_PIECES); /* none twice */
    const struct tb_reserve_counts counts = prepared_counts_of(k.s);
    assert_int_equal(counts.taken_bytes, PREPARED_TENSOR);
    assert_int_equal(counts.taken_ready_bytes, 2 * PREPARED_PIECE);
    assert_int_equal(counts.made_bytes, 0);
    prepared_must_land(&k, 1);
    prepared_rank_close(&k);
}

/* Its task stands in line behind another: the call does not wait for its turn. */
static void a_publish_ahead_of_it_makes_all_of_it(void **state)
{
    (void)state;
    struct prepared_rank k;
    struct prepared_blocker b;
    prepared_rank_open(&k, true);
    prepared_block_worker(k.s, &b);
    prepared_prepare(&k);
    prepared_hold(PREPARED_NONE);
    CHECK_OK(prepared_publish(&k, 1));
    assert_int_equal(prepared_filled_now(), PREPARED_PIECES);
    assert_int_equal(prepared_counts_of(k.s).taken_bytes, PREPARED_TENSOR);
    assert_int_equal(prepared_counts_of(k.s).taken_ready_bytes, 0);
    assert_int_equal(prepared_reserves_of(k.s), 0);
    prepared_must_land(&k, 1);
    prepared_unblock_worker(&b);
    prepared_rank_close(&k);
}

static void one_that_is_too_small_goes_first(void **state)
{
    (void)state;
    struct prepared_rank k;
    prepared_rank_open(&k, true);
    prepared_prepare(&k);
    prepared_wait_prepared(k.s);
    struct tb_publish_options o = prepared_options_of(&k, 1);
    const struct tb_blob_desc blob = {"a", "b", 1};
    o.blobs = &blob;
    o.blob_count = 1;
    CHECK_OK(tb_publish(k.s, &o, NULL));
    assert_int_equal(prepared_counts_of(k.s).made_bytes, PREPARED_TENSOR + 1);
    assert_int_equal(prepared_reserves_of(k.s), 0);
    prepared_rank_close(&k);
}

static void a_wrong_argument_is_named(void **state)
{
    (void)state;
    struct prepared_rank k;
    prepared_rank_open(&k, true);
    struct tb_publish_options o = prepared_options_of(&k, 0);
    CHECK_STATUS(tb_publish_prepare(k.s, NULL), TB_BAD_ARGUMENT);
    o.registration = NULL;
    CHECK_STATUS(tb_publish_prepare(k.s, &o), TB_BAD_ARGUMENT);
    o = prepared_options_of(&k, 0);
    o.mode = 7;
    CHECK_STATUS(tb_publish_prepare(k.s, &o), TB_BAD_ARGUMENT);
    o.mode = TB_PUBLISH_IN_PLACE; /* of host memory: there is nothing to prepare */
    CHECK_OK(tb_publish_prepare(k.s, &o));
    o.model = "no/name";
    CHECK_STATUS(tb_publish_prepare(k.s, &o), TB_BAD_ARGUMENT);
    assert_int_equal(prepared_reserves_of(k.s), 0);
    prepared_rank_close(&k);
}

/* ---- ends ---- */

static void unregister_at_once_ends_it(void **state)
{
    (void)state;
    struct prepared_rank k;
    prepared_rank_open(&k, true);
    prepared_hold(0);
    prepared_prepare(&k);
    prepared_wait_held();
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, prepared_unregister_it, &k), 0);
    prepared_wait_ending(k.s);
    prepared_let_go();
    pthread_join(thread, NULL);
    assert_int_equal(prepared_reserves_of(k.s), 0);
    assert_int_equal(prepared_filled_now(), 1); /* the piece in hand, and none behind it */
    prepared_rank_close(&k);
}

static void unregister_ahead_of_it_waits_for_nothing(void **state)
{
    (void)state;
    struct prepared_rank k;
    struct prepared_blocker b;
    prepared_rank_open(&k, true);
    prepared_block_worker(k.s, &b);
    prepared_hold(PREPARED_NONE);
    prepared_prepare(&k);
    CHECK_OK(tb_unregister(k.r));
    assert_int_equal(prepared_reserves_of(k.s), 0);
    prepared_unblock_worker(&b);
    prepared_rank_close(&k);
    assert_int_equal(prepared_filled_now(), 0);
}

/* Ours is no memory of the caller's: it stays while that is away. */
static void a_suspension_leaves_it(void **state)
{
    (void)state;
    struct prepared_rank k;
    prepared_rank_open(&k, true);
    prepared_prepare(&k);
    CHECK_OK(tb_suspend(k.r));
    CHECK_OK(tb_resume(k.r, NULL, 0));
    prepared_wait_prepared(k.s);
    CHECK_OK(prepared_publish(&k, 1));
    assert_int_equal(prepared_counts_of(k.s).taken_ready_bytes, PREPARED_TENSOR);
    prepared_rank_close(&k);
}

static void close_at_any_time_ends_it(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 3; round++) {
        struct prepared_rank k;
        prepared_rank_open(&k, true);
        prepared_prepare(&k);
        if (round == 1) prepared_wait_filled(1);
        if (round == 2) prepared_wait_prepared(k.s);
        prepared_rank_close(&k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_publish_behind_it_makes_no_page),
        cmocka_unit_test(the_second_shadow_is_prepared_behind_the_first_version),
        cmocka_unit_test(with_the_option_nothing_is_prepared_unasked),
        cmocka_unit_test(a_publish_during_it_goes_on_where_it_stands),
        cmocka_unit_test(a_publish_ahead_of_it_makes_all_of_it),
        cmocka_unit_test(one_that_is_too_small_goes_first),
        cmocka_unit_test(a_wrong_argument_is_named),
        cmocka_unit_test(unregister_at_once_ends_it),
        cmocka_unit_test(unregister_ahead_of_it_waits_for_nothing),
        cmocka_unit_test(a_suspension_leaves_it),
        cmocka_unit_test(close_at_any_time_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
