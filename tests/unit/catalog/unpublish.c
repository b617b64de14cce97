/* unpublish.c - tests of gateway/catalog/unpublish.c: a rank takes its memory back and nothing
 * retained is lost (P3).
 *
 * Covers: gateway/catalog/unpublish.c gateway/catalog/rules/unpublish_rules.c
 * Covers: gateway/catalog/rows/reference_rows.c */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/sites.h"
#include "gateway/catalog/unpublish.h"
#include "gateway/catalog/versions.h"
#include "site.h"

static void trainer(struct site *s)
{
    east_open(s, 2);
    s->left_out = NOT_STORE | NOT_PEERS | NOT_TELL | NOT_PLANS;
    come(s, "rank-0");
    CHECK_OK(run_open(s, "rank-0", "a", 100));
    CHECK_OK(version_open(s, "rank-0", 5, 1, 5));
    CHECK_OK(seal(s, "rank-0", 5, 0, 50));
    land(s, 5, 0, 4);
    hush(s);
}

static enum tb_status unpublish(struct site *s, const char *rank, uint64_t uid, uint64_t drain_ms)
{
    const struct tb_id session = session_of(rank), id = id_of(uid);
    return tb_catalog_unpublish(s->c, s->now, &session, &id, TB_CATALOG_ALL_SHARDS, TB_MS(drain_ms));
}

static enum tb_status unpublish_shard(struct site *s, const char *rank, uint64_t uid, uint32_t shard)
{
    const struct tb_id session = session_of(rank), id = id_of(uid);
    return tb_catalog_unpublish(s->c, s->now, &session, &id, shard, TB_MS(1000));
}

static void the_gateway_first_takes_what_it_lacks(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    CHECK_OK(unpublish(&s, "rank-0", 5, 1000));
    CHECK_STATUS(unpublish(&s, "rank-0", 5, 1000), TB_DONE_BEFORE); /* P4 */
    said(&s, "");
    land(&s, 5, 0, SHARD_CHUNKS);
    said(&s, "[   0] leave v5 shard 0 of rank-0\n"
             "[   0] unpublished rank-0 v5: ok\n");
    assert_string_equal(state_of(&s, 5), "kept");
    CHECK_STATUS(unpublish(&s, "rank-0", 5, 1000), TB_NOT_FOUND);
    site_close(&s);
}

/* The twin: it cannot in time, so the reference stays, and the version with it. */
static void the_reference_stays_when_it_cannot(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    const char *const renewing[] = {"rank-0", NULL};
    CHECK_OK(unpublish(&s, "rank-0", 5, 300));
    pass_ms(&s, 400, renewing);
    said(&s, "[ 300] unpublished rank-0 v5: timeout\n");
    assert_string_equal(state_of(&s, 5), "ready");
    land(&s, 5, 0, SHARD_CHUNKS);
    CHECK_OK(unpublish(&s, "rank-0", 5, 300)); /* and may be asked again */
    said(&s, "[ 400] leave v5 shard 0 of rank-0\n"
             "[ 400] unpublished rank-0 v5: ok\n");
    site_close(&s);
}

static enum tb_status gone(struct site *s, const char *rank, uint64_t uid, uint32_t shard, uint64_t drain_ms)
{
    const struct tb_id session = session_of(rank), id = id_of(uid);
    return tb_catalog_unpublish_gone(s->c, s->now, &session, &id, shard, TB_MS(drain_ms));
}

/* P1: memory that goes at the end of the drain is offered to nobody after it, and P3: a
 * version that is lost by that is told. */
static void a_version_that_is_gone_does_not_come_back(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    const char *const renewing[] = {"rank-0", NULL};
    CHECK_STATUS(gone(&s, "rank-0", 5, TB_CATALOG_ALL_SHARDS, 300), TB_BAD_ARGUMENT);
    CHECK_OK(gone(&s, "rank-0", 5, 0, 300));
    said(&s, "");
    pass_ms(&s, 400, renewing);
    said(&s, "[ 300] leave v5 shard 0 of rank-0\n"
             "[ 300] evict v5: version_lost\n"
             "[ 300] unpublished rank-0 v5 shard 0: peer_revoked\n");
    assert_string_equal(state_of(&s, 5), "lost");
    CHECK_STATUS(gone(&s, "rank-0", 5, 0, 300), TB_NOT_FOUND);
    site_close(&s);
}

/* The twin: a version that the gateway takes in time is not lost. */
static void a_version_taken_before_it_is_gone_is_kept(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    CHECK_OK(gone(&s, "rank-0", 5, 0, 300));
    said(&s, "");
    land(&s, 5, 0, SHARD_CHUNKS);
    said(&s, "[   0] leave v5 shard 0 of rank-0\n"
             "[   0] unpublished rank-0 v5 shard 0: ok\n");
    assert_string_equal(state_of(&s, 5), "kept");
    site_close(&s);
}

static bool unpublishing(const struct site *s, const char *rank, uint64_t uid, uint32_t shard)
{
    const struct tb_id session = session_of(rank), id = id_of(uid);
    return tb_catalog_unpublishing(s->c, &session, &id, shard);
}

/* rank-0 sealed both shards of version 6, rank-1 the first of them as well, which is here. */
static void two_shards(struct site *s)
{
    trainer(s);
    come(s, "rank-1");
    CHECK_OK(version_open(s, "rank-0", 6, 2, 6));
    CHECK_OK(seal(s, "rank-0", 6, 0, 60));
    CHECK_OK(seal(s, "rank-0", 6, 1, 61));
    CHECK_OK(seal(s, "rank-1", 6, 0, 60));
    land(s, 6, 0, SHARD_CHUNKS);
    hush(s);
}

/* A shard that waits with others goes when its own memory does, whichever of them answers for all;
 * that is told of it alone (P10), and the others drain on and come back into sight. */
static void one_that_goes_takes_no_other_with_it(void **state)
{
    (void)state;
    struct site s;
    two_shards(&s);
    const char *const renewing[] = {"rank-0", "rank-1", NULL};
    CHECK_OK(unpublish(&s, "rank-0", 6, 300));
    CHECK_STATUS(gone(&s, "rank-0", 6, 0, 1000), TB_DONE_BEFORE);
    assert_true(unpublishing(&s, "rank-0", 6, 0)); /* untold */
    said(&s, "[   0] unpublished rank-0 v6 shard 0: ok\n");
    assert_false(unpublishing(&s, "rank-0", 6, 0));
    assert_true(unpublishing(&s, "rank-0", 6, 1));
    assert_true(unpublishing(&s, "rank-0", 6, TB_CATALOG_ALL_SHARDS));
    CHECK_STATUS(unpublish_shard(&s, "rank-0", 6, 0), TB_NOT_FOUND);
    pass_ms(&s, 250, renewing);
    said(&s, "");
    pass_ms(&s, 100, renewing);
    said(&s, "[ 300] unpublished rank-0 v6: timeout\n");
    assert_false(unpublishing(&s, "rank-0", 6, TB_CATALOG_ALL_SHARDS));
    assert_string_equal(state_of(&s, 6), "ready");
    CHECK_OK(unpublish_shard(&s, "rank-0", 6, 1));
    site_close(&s);
}

/* The twin: home does not have it, so the version is lost with it, at the earlier of the two ends.
 * Nothing holds the other. */
static void one_that_goes_goes_by_itself(void **state)
{
    (void)state;
    const struct {
        uint64_t drain_ms;
        const char *said;
    } rows[] = {
        {0, "[   0] leave v6 shard 1 of rank-0\n"
            "[   0] evict v6: version_lost\n"
            "[   0] unpublished rank-0 v6 shard 1: peer_revoked\n"
            "[   0] unpublished rank-0 v6: ok\n"},
        {100, "[   0] unpublished rank-0 v6: ok\n"
              "[ 100] leave v6 shard 1 of rank-0\n"
              "[ 100] evict v6: version_lost\n"
              "[ 100] unpublished rank-0 v6 shard 1: peer_revoked\n"},
        {1000, "[   0] unpublished rank-0 v6: ok\n"
               "[ 300] leave v6 shard 1 of rank-0\n"
               "[ 300] evict v6: version_lost\n"
               "[ 300] unpublished rank-0 v6 shard 1: peer_revoked\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct site s;
        two_shards(&s);
        const char *const renewing[] = {"rank-0", "rank-1", NULL};
        CHECK_OK(unpublish(&s, "rank-0", 6, 300));
        CHECK_STATUS(gone(&s, "rank-0", 6, 1, rows[i].drain_ms), TB_DONE_BEFORE);
        drain(&s);
        pass_ms(&s, 400, renewing);
        said(&s, rows[i].said);
        assert_string_equal(state_of(&s, 6), "lost");
        site_close(&s);
    }
}

/* P1: the worker's farewell ends the drain that its own request began: the memory is away now. */
static void a_farewell_ends_the_drain(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    CHECK_OK(unpublish_shard(&s, "rank-0", 5, 0));
    CHECK_STATUS(unpublish_shard(&s, "rank-0", 5, 0), TB_DONE_BEFORE); /* without it nothing ends */
    said(&s, "");
    CHECK_STATUS(gone(&s, "rank-0", 5, 0, 0), TB_DONE_BEFORE);
    CHECK_STATUS(unpublish_shard(&s, "rank-0", 5, 0), TB_DONE_BEFORE); /* its end is not told yet */
    said(&s, "[   0] leave v5 shard 0 of rank-0\n"
             "[   0] evict v5: version_lost\n"
             "[   0] unpublished rank-0 v5 shard 0: peer_revoked\n");
    CHECK_STATUS(unpublish_shard(&s, "rank-0", 5, 0), TB_NOT_FOUND);
    site_close(&s);
}

static enum tb_status seal_at(struct site *s, uint64_t uid, uint32_t shard, uint8_t root, uint64_t export_id)
{
    const struct tb_catalog_seal q = {.session = session_of("rank-0"),
                                      .uid = id_of(uid),
                                      .shard = shard,
                                      .root = root_of(root),
                                      .chunk_count = SHARD_CHUNKS,
                                      .bytes = SHARD_BYTES,
                                      .export_id = export_id};
    return tb_catalog_seal(s->c, s->now, &q);
}

/* P3: sealed at another export meanwhile, its memory is there again; the same seal said twice (P4)
 * brings nothing back. */
static void a_shard_sealed_again_is_not_gone(void **state)
{
    (void)state;
    for (uint32_t again = 0; again < 2; again++) {
        struct site s;
        trainer(&s);
        const char *const renewing[] = {"rank-0", NULL};
        CHECK_OK(gone(&s, "rank-0", 5, 0, 300));
        CHECK_STATUS(seal_at(&s, 5, 0, 50, 1 + again), TB_DONE_BEFORE);
        pass_ms(&s, 400, renewing);
        hush(&s);
        assert_string_equal(state_of(&s, 5), again == 0 ? "lost" : "ready");
        CHECK_STATUS(unpublish_shard(&s, "rank-0", 5, 0), again == 0 ? TB_NOT_FOUND : TB_OK);
        site_close(&s);
    }
}

/* P6: it is in sight again at once. Else it went once home had that shard, and its rank never heard
 * that the version is kept. */
static void a_shard_sealed_again_hears_of_its_version(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    come(&s, "rank-1");
    s.left_out &= ~NOT_TELL;
    CHECK_OK(version_open(&s, "rank-0", 6, 2, 6));
    CHECK_OK(version_open(&s, "rank-1", 6, 2, 6));
    CHECK_OK(seal(&s, "rank-0", 6, 0, 60));
    land(&s, 6, 0, 1);
    hush(&s);
    CHECK_OK(gone(&s, "rank-0", 6, 0, 300));
    CHECK_STATUS(seal_at(&s, 6, 0, 60, 2), TB_DONE_BEFORE);
    said(&s, "[   0] land v6 shard 0 of rank-0\n"
             "[   0] unpublished rank-0 v6 shard 0: timeout\n");
    land(&s, 6, 0, SHARD_CHUNKS);
    said(&s, "[   0] leave v6 shard 0 of rank-0\n");
    CHECK_OK(seal(&s, "rank-1", 6, 1, 61));
    land(&s, 6, 1, SHARD_CHUNKS);
    said(&s, "[   0] tell rank-1 v6 kept\n"
             "[   0] tell rank-0 v6 kept\n");
    CHECK_OK(unpublish(&s, "rank-0", 6, 300));
    said(&s, "[   0] unpublished rank-0 v6: ok\n");
    site_close(&s);
}

/* P10: a reference that was hidden with it has its answer from another, and the asker for all hears
 * that one stays. */
static void a_shard_sealed_again_parts_from_the_others(void **state)
{
    (void)state;
    for (uint32_t shard = 0; shard < 2; shard++) { /* one of them leads */
        struct site s;
        char expected[128];
        trainer(&s);
        const char *const renewing[] = {"rank-0", NULL};
        CHECK_OK(version_open(&s, "rank-0", 6, 2, 6));
        CHECK_OK(seal(&s, "rank-0", 6, 0, 60));
        CHECK_OK(seal(&s, "rank-0", 6, 1, 61));
        hush(&s);
        CHECK_OK(unpublish(&s, "rank-0", 6, 300));
        CHECK_STATUS(seal_at(&s, 6, shard, (uint8_t)(60 + shard), 2), TB_DONE_BEFORE);
        assert_true(unpublishing(&s, "rank-0", 6, shard)); /* untold */
        (void)snprintf(expected, sizeof expected, "[   0] unpublished rank-0 v6 shard %u: timeout\n", shard);
        drain(&s);
        said(&s, expected);
        assert_false(unpublishing(&s, "rank-0", 6, shard));
        assert_true(unpublishing(&s, "rank-0", 6, 1 - shard));
        pass_ms(&s, 400, renewing);
        said(&s, "[ 300] unpublished rank-0 v6: timeout\n");
        CHECK_OK(unpublish(&s, "rank-0", 6, 300)); /* both may be asked for again */
        site_close(&s);
    }
}

/* P6: nobody waits for a version of which one shard went before the others were sealed. */
static void an_open_version_whose_shard_is_gone_is_lost(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    come(&s, "rank-1");
    CHECK_OK(version_open(&s, "rank-0", 6, 2, 6));
    CHECK_OK(version_open(&s, "rank-1", 6, 2, 6));
    CHECK_OK(seal(&s, "rank-0", 6, 0, 60));
    hush(&s);
    CHECK_OK(gone(&s, "rank-0", 6, 0, 0));
    assert_string_equal(state_of(&s, 6), "lost");
    CHECK_STATUS(seal(&s, "rank-1", 6, 1, 61), TB_VERSION_LOST);
    CHECK_OK(version_open(&s, "rank-1", 6, 2, 7)); /* and may be made anew */
    site_close(&s);
}

static void the_drain_is_bounded_by_config(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    const char *const renewing[] = {"rank-0", NULL};
    CHECK_OK(unpublish(&s, "rank-0", 5, 3600000));
    pass_ms(&s, 10100, renewing);
    said(&s, "[10000] unpublished rank-0 v5: timeout\n");
    site_close(&s);
}

/* P3: only what this site's gateways hold lets a rank go. */
static void another_rank_with_the_same_digest_is_not_enough(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    come(&s, "rank-1");
    CHECK_OK(seal(&s, "rank-1", 5, 0, 50));
    hush(&s);
    CHECK_OK(unpublish(&s, "rank-0", 5, 1000));
    said(&s, "");
    land(&s, 5, 0, SHARD_CHUNKS);
    drain(&s);
    assert_non_null(strstr(s.trace, "unpublished rank-0 v5: ok\n"));
    site_close(&s);
}

/* P3: nor is a worker that says that it has all of it, nor a site that nobody called durable. */
static void the_word_of_others_lets_no_rank_go(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    const char *const renewing[] = {"rank-0", "w", NULL};
    come(&s, "w");
    CHECK_OK(join(&s, "w", "g", 0, 1));
    CHECK_OK(staged(&s, "w", 5));
    const struct tb_catalog_site_progress p = {
        .site = name_of("west"), .uid = id_of(5), .whole = true, .itself = true};
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
    hush(&s);
    CHECK_OK(unpublish(&s, "rank-0", 5, 300));
    pass_ms(&s, 400, renewing);
    said(&s, "[ 300] unpublished rank-0 v5: timeout\n");
    name_durable(&s, "west");
    CHECK_OK(unpublish(&s, "rank-0", 5, 300));
    drain(&s);
    assert_non_null(strstr(s.trace, "unpublished rank-0 v5: ok\n"));
    site_close(&s);
}

/* P3: nor one that may go at any time, and then goes. */
static void a_spot_rank_with_the_same_digest_is_not(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    come_from(&s, "rank-1", "h", true);
    CHECK_OK(seal(&s, "rank-1", 5, 0, 50));
    hush(&s);
    CHECK_OK(unpublish(&s, "rank-0", 5, 1000));
    said(&s, "");
    const struct tb_id spot = session_of("rank-1");
    tb_catalog_session_close(s.c, s.now, &spot);
    said(&s, "[   0] leave v5 shard 0 of rank-1\n");
    assert_string_equal(state_of(&s, 5), "ready");
    land(&s, 5, 0, SHARD_CHUNKS);
    said(&s, "[   0] leave v5 shard 0 of rank-0\n"
             "[   0] unpublished rank-0 v5: ok\n");
    assert_string_equal(state_of(&s, 5), "kept");
    site_close(&s);
}

static void two_that_leave_at_once_do_not_count_on_each_other(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    come(&s, "rank-1");
    come(&s, "w");
    CHECK_OK(join(&s, "w", "g", 0, 1));
    CHECK_OK(version_open(&s, "rank-0", 6, 2, 6));
    CHECK_OK(seal(&s, "rank-0", 6, 0, 60));
    CHECK_OK(seal(&s, "rank-1", 6, 0, 60));
    CHECK_OK(unpublish(&s, "rank-0", 6, 1000));
    CHECK_OK(unpublish(&s, "rank-1", 6, 1000)); /* nobody has it, and it is still open */
    said(&s, "");
    land(&s, 6, 0, SHARD_CHUNKS);
    said(&s, "[   0] unpublished rank-1 v6: ok\n"
             "[   0] unpublished rank-0 v6: ok\n");
    come(&s, "rank-2");
    CHECK_OK(seal(&s, "rank-2", 6, 1, 61));
    assert_string_equal(state_of(&s, 6), "ready"); /* what left is in the arena */
    site_close(&s);
}

/* rank-0 waits with its shard 1, so its shard 0, although still there, is on its way out. */
static void a_reference_on_its_way_out_is_no_keeper(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    come(&s, "rank-1");
    CHECK_OK(version_open(&s, "rank-0", 6, 2, 6));
    CHECK_OK(seal(&s, "rank-0", 6, 0, 60));
    CHECK_OK(seal(&s, "rank-0", 6, 1, 61));
    CHECK_OK(seal(&s, "rank-1", 6, 0, 60));
    CHECK_OK(unpublish(&s, "rank-0", 6, 1000));
    CHECK_OK(unpublish(&s, "rank-1", 6, 1000));
    said(&s, "");
    land(&s, 6, 1, SHARD_CHUNKS);
    said(&s, "[   0] land v6 shard 0 of rank-1\n"
             "[   0] land v6 shard 0 of rank-0\n");
    land(&s, 6, 0, SHARD_CHUNKS);
    said(&s, "[   0] leave v6 shard 0 of rank-1\n"
             "[   0] leave v6 shard 0 of rank-0\n"
             "[   0] unpublished rank-1 v6: ok\n"
             "[   0] unpublished rank-0 v6: ok\n");
    site_close(&s);
}

static void a_version_that_retention_does_not_need_goes_at_once(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    publish_whole(&s, "rank-0", 6);
    publish_whole(&s, "rank-0", 7);
    hush(&s);
    CHECK_OK(unpublish(&s, "rank-0", 5, 1000)); /* partly landed, superseded twice: its space goes as well */
    said(&s, "[   0] leave v5 shard 0 of rank-0\n"
             "[   0] evict v5: version_lost\n"
             "[   0] unpublished rank-0 v5: ok\n");
    site_close(&s);
}

/* P3: a rank that sealed two shards takes one back: the other can still be read, and the
 * version becomes whole. */
static void one_shard_leaves_and_the_other_stays(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    CHECK_OK(version_open(&s, "rank-0", 6, 2, 6));
    CHECK_OK(seal(&s, "rank-0", 6, 0, 60));
    CHECK_OK(seal(&s, "rank-0", 6, 1, 61));
    land(&s, 6, 0, SHARD_CHUNKS);
    hush(&s);
    CHECK_OK(unpublish_shard(&s, "rank-0", 6, 0));
    said(&s, "[   0] unpublished rank-0 v6 shard 0: ok\n");
    CHECK_STATUS(unpublish_shard(&s, "rank-0", 6, 0), TB_NOT_FOUND);
    CHECK_OK(unpublish_shard(&s, "rank-0", 6, 1)); /* and is asked for on its own */
    CHECK_STATUS(unpublish(&s, "rank-0", 6, 1000), TB_DONE_BEFORE);
    said(&s, "");
    land(&s, 6, 1, SHARD_CHUNKS);
    said(&s, "[   0] leave v6 shard 1 of rank-0\n"
             "[   0] unpublished rank-0 v6 shard 1: ok\n");
    assert_string_equal(state_of(&s, 6), "kept");
    site_close(&s);
}

static void an_ended_version_lets_go(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    CHECK_OK(unpublish(&s, "rank-0", 5, 1000));
    said(&s, "");
    const struct tb_id v5 = id_of(5);
    CHECK_OK(tb_catalog_withdraw(s.c, s.now, &v5, "ann"));
    said(&s, "[   0] leave v5 shard 0 of rank-0\n"
             "[   0] evict v5: version_withdrawn\n"
             "[   0] unpublished rank-0 v5: ok\n");
    site_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gateway_first_takes_what_it_lacks),
        cmocka_unit_test(the_reference_stays_when_it_cannot),
        cmocka_unit_test(a_version_that_is_gone_does_not_come_back),
        cmocka_unit_test(a_version_taken_before_it_is_gone_is_kept),
        cmocka_unit_test(one_that_goes_takes_no_other_with_it),
        cmocka_unit_test(one_that_goes_goes_by_itself),
        cmocka_unit_test(a_farewell_ends_the_drain),
        cmocka_unit_test(a_shard_sealed_again_is_not_gone),
        cmocka_unit_test(a_shard_sealed_again_hears_of_its_version),
        cmocka_unit_test(a_shard_sealed_again_parts_from_the_others),
        cmocka_unit_test(an_open_version_whose_shard_is_gone_is_lost),
        cmocka_unit_test(the_drain_is_bounded_by_config),
        cmocka_unit_test(another_rank_with_the_same_digest_is_not_enough),
        cmocka_unit_test(the_word_of_others_lets_no_rank_go),
        cmocka_unit_test(a_spot_rank_with_the_same_digest_is_not),
        cmocka_unit_test(two_that_leave_at_once_do_not_count_on_each_other),
        cmocka_unit_test(a_reference_on_its_way_out_is_no_keeper),
        cmocka_unit_test(a_version_that_retention_does_not_need_goes_at_once),
        cmocka_unit_test(one_shard_leaves_and_the_other_stays),
        cmocka_unit_test(an_ended_version_lets_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
