/* versions.c - tests of gateway/catalog/versions.c: a version's life, each rule and its
 * opposite.
 *
 * Covers: gateway/catalog/versions.c gateway/catalog/rules/version_rules.c
 * Covers: gateway/catalog/rows/version_rows.c
 * Covers: gateway/catalog/rows/version_changes.c */
#include "gateway/catalog/versions.h"
#include "check.h"
#include "gateway/catalog/arena_copy.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/sites.h"
#include "gateway/catalog/views.h"
#include "site.h"

static void trainer(struct site *s)
{
    east_open(s, 2);
    come(s, "rank-0");
    come(s, "rank-1");
    CHECK_OK(run_open(s, "rank-0", "a", 100));
    hush(s);
}

/* P2: nobody sees a version before all of it is sealed. */
static void ready_only_when_every_shard_is_sealed(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    const uint64_t waiting = wait_for(&s, NULL, TB_CATALOG_WAIT_NEXT, 0, 0, 1000);
    CHECK_OK(version_open(&s, "rank-0", 5, 2, 5));
    CHECK_OK(version_open(&s, "rank-1", 5, 2, 55)); /* the same uid for all */
    CHECK_OK(seal(&s, "rank-0", 5, 0, 50));
    land(&s, 5, 0, SHARD_CHUNKS);
    said(&s, "[   0] store v5 open: opened\n"); /* landed before it could be asked for */
    assert_int_equal(waiting, 1);
    CHECK_OK(seal(&s, "rank-1", 5, 1, 51));
    said(&s, "[   0] store run a published, last 5\n"
             "[   0] store v5 ready: ready\n"
             "[   0] store head v5\n"
             "[   0] land v5 shard 1 of rank-1\n"
             "[   0] answer 1: v5\n");
    land(&s, 5, 1, SHARD_CHUNKS);
    said(&s, "[   0] store v5 kept: whole_here\n"
             "[   0] leave v5 shard 1 of rank-1\n"
             "[   0] peers v5 whole\n"
             "[   0] tell rank-1 v5 kept\n"
             "[   0] tell rank-0 v5 kept\n");
    site_close(&s);
}

/* The twin: a rank is lost before; the version is no version, and its space is free. */
static void a_rank_lost_before_ready_fails_the_version(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    CHECK_OK(version_open(&s, "rank-0", 5, 2, 5));
    CHECK_OK(version_open(&s, "rank-1", 5, 2, 5));
    CHECK_OK(seal(&s, "rank-0", 5, 0, 50));
    land(&s, 5, 0, SHARD_CHUNKS);
    hush(&s);
    const char *const renewing[] = {"rank-0", NULL};
    pass_ms(&s, 10050, renewing);
    said(&s, "[10000] store v5 lost: rank_lost, rank-1\n"
             "[10000] lost rank-1\n"
             "[10000] evict v5: version_lost\n"
             "[10000] tell rank-0 v5 version_lost\n");
    CHECK_STATUS(seal(&s, "rank-0", 5, 0, 50), TB_VERSION_LOST);
    /* The number is not spent: the ranks may try again, and get another uid. */
    CHECK_OK(version_open(&s, "rank-0", 5, 1, 15));
    CHECK_OK(seal(&s, "rank-0", 15, 0, 50));
    assert_string_equal(state_of(&s, 15), "ready");
    site_close(&s);
}

/* JSON and the store have no number of 2^63: it would be shown below zero, and a restart
 * would read another one. */
static void a_number_fits_into_63_bits(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    CHECK_STATUS(version_open(&s, "rank-0", UINT64_C(1) << 63, 1, 5), TB_BAD_ARGUMENT);
    CHECK_STATUS(version_open(&s, "rank-0", UINT64_MAX, 1, 5), TB_BAD_ARGUMENT);
    CHECK_OK(version_open(&s, "rank-0", INT64_MAX, 1, 5));
    site_close(&s);
}

/* P4 */
static void a_seal_said_twice_is_one(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    CHECK_OK(version_open(&s, "rank-0", 5, 2, 5));
    CHECK_OK(seal(&s, "rank-0", 5, 0, 50));
    CHECK_STATUS(seal(&s, "rank-0", 5, 0, 50), TB_DONE_BEFORE);
    CHECK_STATUS(seal(&s, "rank-0", 5, 0, 51), TB_CONFLICT); /* and changes nothing */
    CHECK_STATUS(seal(&s, "rank-0", 5, 2, 52), TB_BAD_ARGUMENT);
    CHECK_STATUS(seal(&s, "rank-0", 6, 0, 52), TB_NOT_FOUND);
    CHECK_STATUS(seal(&s, "nobody", 5, 1, 52), TB_PEER_LEASE);
    assert_string_equal(state_of(&s, 5), "open");
    CHECK_OK(seal(&s, "rank-0", 5, 1, 51)); /* one rank may hold several */
    assert_string_equal(state_of(&s, 5), "ready");
    site_close(&s);
}

/* Data-parallel ranks: equal digests are references. */
static void equal_digests_are_one_reference_more(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    CHECK_OK(version_open(&s, "rank-0", 5, 1, 5));
    CHECK_OK(seal(&s, "rank-0", 5, 0, 50));
    CHECK_OK(seal(&s, "rank-1", 5, 0, 50));
    struct tb_catalog_version_view view;
    const struct tb_id v5 = id_of(5), first = session_of("rank-0");
    assert_true(tb_catalog_version_get(s.c, &v5, &view));
    assert_int_equal(view.publishers, 2);
    /* Either may go: the other has it. */
    tb_catalog_session_close(s.c, s.now, &first);
    assert_string_equal(state_of(&s, 5), "ready");
    site_close(&s);
}

/* The twin (P1, P10): unequal ones break the version, and the log can name the rank. */
static void unequal_digests_break_the_version(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    CHECK_OK(version_open(&s, "rank-0", 5, 1, 5));
    CHECK_OK(seal(&s, "rank-0", 5, 0, 50));
    hush(&s);
    CHECK_STATUS(seal(&s, "rank-1", 5, 0, 51), TB_VERSION_BROKEN);
    said(&s, "[   0] store v5 broken: digest_differs, rank-1 shard 0\n"
             "[   0] store head v0\n"
             "[   0] tell rank-0 v5 version_broken\n");
    CHECK_STATUS(version_open(&s, "rank-0", 5, 1, 15), TB_VERSION_BROKEN);
    site_close(&s);
}

/* P2: A command that runs again beside a version that is ready: other bytes are refused, and the
 * version stays. While it is open, ranks that differ have diverged. */
static void a_retry_with_other_bytes_changes_nothing(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    CHECK_OK(version_open(&s, "rank-0", 5, 1, 5));
    CHECK_OK(seal(&s, "rank-0", 5, 0, 50));
    hush(&s);
    s.retry = true;
    CHECK_STATUS(seal(&s, "rank-1", 5, 0, 51), TB_CONFLICT);
    said(&s, "");
    assert_string_equal(state_of(&s, 5), "ready");
    CHECK_OK(seal(&s, "rank-1", 5, 0, 50));
    CHECK_OK(version_open(&s, "rank-0", 6, 2, 6));
    CHECK_OK(seal(&s, "rank-0", 6, 0, 60));
    CHECK_STATUS(seal(&s, "rank-1", 6, 0, 61), TB_VERSION_BROKEN);
    site_close(&s);
}

/* P1: the same chunk bad twice from its publisher means that somebody writes there. */
static void a_chunk_bad_twice_breaks_the_version(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    CHECK_OK(version_open(&s, "rank-0", 5, 1, 5));
    CHECK_OK(seal(&s, "rank-0", 5, 0, 50));
    const struct tb_id v5 = id_of(5), rank = session_of("rank-0"), other = session_of("rank-1");
    CHECK_STATUS(tb_catalog_chunk_bad(s.c, s.now, &v5, 0, 3, &other), TB_NOT_FOUND);
    CHECK_STATUS(tb_catalog_chunk_bad(s.c, s.now, &v5, 0, 3, &rank), TB_AGAIN);
    CHECK_STATUS(tb_catalog_chunk_bad(s.c, s.now, &v5, 0, 4, &rank),
                 TB_AGAIN); /* another chunk: an accident each */
    hush(&s);
    CHECK_STATUS(tb_catalog_chunk_bad(s.c, s.now, &v5, 0, 3, &rank), TB_VERSION_BROKEN);
    said(&s, "[   0] store v5 broken: chunk_bad, rank-0 shard 0\n"
             "[   0] store head v0\n"
             "[   0] tell rank-0 v5 version_broken\n");
    site_close(&s);
}

static struct tb_catalog_seal large(const char *rank, uint32_t shard, uint64_t manifest_bytes)
{
    return (struct tb_catalog_seal){.session = session_of(rank),
                                    .uid = id_of(5),
                                    .shard = shard,
                                    .root = root_of((uint8_t)(50 + shard)),
                                    .chunk_count = SHARD_CHUNKS,
                                    .bytes = SHARD_BYTES,
                                    .manifest_bytes = manifest_bytes,
                                    .export_id = 1};
}

/* P7: manifests that no site could take are not sealed, however many shards they are spread over.
 * The one that was too much changes nothing: what was sealed can be sealed again, and a smaller one
 * makes the version ready. */
static void manifests_over_the_limit_are_not_sealed(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    CHECK_OK(version_open(&s, "rank-0", 5, 2, 5));
    CHECK_OK(version_open(&s, "rank-1", 5, 2, 5));
    const struct tb_catalog_seal first = large("rank-0", 0, SITE_MANIFEST_BYTES - 400);
    const struct tb_catalog_seal second = large("rank-1", 1, 401), fits = large("rank-1", 1, 400);
    const struct tb_catalog_seal alone = large("rank-0", 0, SITE_MANIFEST_BYTES + 1);
    CHECK_STATUS(tb_catalog_seal(s.c, s.now, &alone), TB_TOO_LARGE);
    CHECK_OK(tb_catalog_seal(s.c, s.now, &first));
    hush(&s);
    uint64_t most = 0;
    CHECK_STATUS(tb_catalog_seal(s.c, s.now, &second), TB_TOO_LARGE);
    assert_int_equal(tb_catalog_manifest_bytes(s.c, &second, &most), SITE_MANIFEST_BYTES + 1);
    assert_int_equal(most, SITE_MANIFEST_BYTES);
    said(&s, "");
    CHECK_STATUS(tb_catalog_seal(s.c, s.now, &first), TB_DONE_BEFORE);
    const struct tb_id v5 = id_of(5);
    struct tb_catalog_version_view view;
    assert_true(tb_catalog_version_get(s.c, &v5, &view));
    assert_int_equal(view.state, TB_VERSION_OPEN);
    assert_int_equal(view.sealed_count, 1);
    CHECK_OK(tb_catalog_seal(s.c, s.now, &fits));
    assert_true(tb_catalog_version_get(s.c, &v5, &view));
    assert_int_equal(view.state, TB_VERSION_READY);
    site_close(&s);
}

static void numbers_only_grow_within_a_run(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    publish_whole(&s, "rank-0", 5);
    CHECK_STATUS(version_open(&s, "rank-0", 4, 1, 4), TB_BAD_STATE);
    CHECK_OK(version_open(&s, "rank-1", 5, 1, 15)); /* the same again gives what is there */
    CHECK_STATUS(version_open(&s, "rank-1", 5, 2, 15), TB_CONFLICT);
    CHECK_STATUS(version_open(&s, "rank-1", 6, 0, 6), TB_BAD_ARGUMENT);
    CHECK_STATUS(version_open(&s, "rank-1", 6, 5, 6), TB_TOO_LARGE);
    CHECK_STATUS(version_open(&s, "rank-1", 6, 1, 5), TB_CONFLICT); /* a fresh uid that is not */
    CHECK_OK(version_open(&s, "rank-1", 6, 1, 6));
    CHECK_OK(run_open(&s, "rank-0", "b", 101));
    CHECK_OK(version_open(&s, "rank-0", 2, 1, 2002)); /* a new run counts anew */
    site_close(&s);
}

/* P6: the trainer dies in the middle; the gateway has all of it. */
/* P4: also when the catalog remembers no more of the last version than its number. */
static void a_forgotten_number_is_not_given_again(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 2);
    const struct tb_catalog_run run = {.model = name_of("policy"),
                                       .id = id_of(100),
                                       .order = 1,
                                       .key = "k",
                                       .has_last = true,
                                       .last_number = 5};
    CHECK_OK(tb_catalog_restore_run(s.c, &run));
    come(&s, "rank-0");
    CHECK_OK(run_open(&s, "rank-0", "k", 101)); /* joins it */
    s.run = run.id;
    CHECK_STATUS(version_open(&s, "rank-0", 5, 1, 5), TB_BAD_STATE);
    CHECK_OK(version_open(&s, "rank-0", 6, 1, 6));
    site_close(&s);
}

static void kept_survives_its_publisher(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    publish_whole(&s, "rank-0", 5);
    hush(&s);
    const struct tb_id rank = session_of("rank-0");
    tb_catalog_session_close(s.c, s.now, &rank);
    said(&s, "");
    assert_string_equal(state_of(&s, 5), "kept");
    site_close(&s);
}

/* The twin: it has not; waiters wake, memory is free. */
static void lost_when_nobody_has_the_rest(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    CHECK_OK(version_open(&s, "rank-0", 5, 1, 5));
    CHECK_OK(seal(&s, "rank-0", 5, 0, 50));
    land(&s, 5, 0, 7);
    wait_for(&s, NULL, TB_CATALOG_WAIT_EXACT, 5, 0, 1000);
    hush(&s);
    const struct tb_id rank = session_of("rank-0");
    tb_catalog_session_close(s.c, s.now, &rank);
    said(&s, "[   0] store v5 lost: no_holder\n"
             "[   0] store head v0\n"
             "[   0] leave v5 shard 0 of rank-0\n"
             "[   0] evict v5: version_lost\n"
             "[   0] answer 1: version_lost\n");
    site_close(&s);
}

/* A worker that says that it has all of it is a hope: the gateway lands from there. It is no copy
 * that lets the publisher go (P3). */
static void a_whole_worker_keeps_a_version_from_being_lost(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    s.left_out = NOT_STORE | NOT_PLANS;
    come(&s, "w0");
    CHECK_OK(join(&s, "w0", "g", 0, 1));
    CHECK_OK(version_open(&s, "rank-0", 5, 1, 5));
    CHECK_OK(seal(&s, "rank-0", 5, 0, 50));
    land(&s, 5, 0, 7);
    CHECK_OK(staged(&s, "w0", 5));
    hush(&s);
    const struct tb_id rank = session_of("rank-0"), worker = session_of("w0");
    tb_catalog_session_close(s.c, s.now, &rank);
    said(&s, "[   0] leave v5 shard 0 of rank-0\n"
             "[   0] land v5 all of w0\n");
    assert_string_equal(state_of(&s, 5), "ready");
    tb_catalog_session_close(s.c, s.now, &worker);
    assert_string_equal(state_of(&s, 5), "lost");
    site_close(&s);
}

/* The twin: spot workers serve, and count for nothing. */
static void a_spot_worker_does_not(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    come_from(&s, "w0", "h", true);
    CHECK_OK(join(&s, "w0", "g", 0, 1));
    CHECK_OK(version_open(&s, "rank-0", 5, 1, 5));
    CHECK_OK(seal(&s, "rank-0", 5, 0, 50));
    land(&s, 5, 0, 7);
    CHECK_OK(staged(&s, "w0", 5));
    assert_string_equal(state_of(&s, 5), "ready");
    const struct tb_id rank = session_of("rank-0");
    tb_catalog_session_close(s.c, s.now, &rank);
    assert_string_equal(state_of(&s, 5), "lost");
    site_close(&s);
}

/* West is named as durable or not, and says so itself or a relay does (P3). */
static void a_durable_site_keeps_it_by_its_own_word(void **state)
{
    (void)state;
    for (unsigned way = 0; way < 4; way++) {
        const bool named = (way & 1) != 0, itself = (way & 2) != 0;
        struct site s;
        trainer(&s);
        if (named) name_durable(&s, "west");
        CHECK_OK(version_open(&s, "rank-0", 5, 1, 5));
        CHECK_OK(seal(&s, "rank-0", 5, 0, 50));
        land(&s, 5, 0, 7);
        const struct tb_name west = name_of("west");
        CHECK_OK(tb_catalog_site_up(s.c, s.now, &west, true));
        struct tb_catalog_site_progress p = {.site = west, .uid = id_of(5), .itself = itself};
        p.held_chunks = 9; /* not all of it is no copy */
        CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
        assert_string_equal(state_of(&s, 5), "ready");
        p.held_chunks = 10, p.whole = true;
        CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
        assert_string_equal(state_of(&s, 5), named && itself ? "kept" : "ready");
        hush(&s);
        const struct tb_id rank = session_of("rank-0");
        tb_catalog_session_close(s.c, s.now, &rank);
        said(&s, "[   0] leave v5 shard 0 of rank-0\n"
                 "[   0] cross v5 from west\n"); /* it comes back the way it went */
        assert_string_equal(state_of(&s, 5), named && itself ? "kept" : "ready");
        site_close(&s);
    }
}

/* A relay said so first; the site's own word comes later, and counts. */
static void a_durable_sites_own_word_may_come_late(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    name_durable(&s, "west");
    CHECK_OK(version_open(&s, "rank-0", 5, 1, 5));
    CHECK_OK(seal(&s, "rank-0", 5, 0, 50));
    struct tb_catalog_site_progress p = {.site = name_of("west"), .uid = id_of(5), .whole = true};
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
    assert_string_equal(state_of(&s, 5), "ready");
    p.itself = true;
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &p));
    assert_string_equal(state_of(&s, 5), "kept");
    site_close(&s);
}

/* At home, by an operator, for good. */
static void withdrawn_is_the_operators_word(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    publish_whole(&s, "rank-0", 4);
    publish_whole(&s, "rank-0", 5);
    hush(&s);
    const struct tb_id v5 = id_of(5), v6 = id_of(6);
    CHECK_STATUS(tb_catalog_withdraw(s.c, s.now, &v6, "ann"), TB_NOT_FOUND);
    CHECK_OK(tb_catalog_withdraw(s.c, s.now, &v5, "ann"));
    said(&s, "[   0] store v5 withdrawn: withdrawn, ann\n"
             "[   0] store head v4\n"
             "[   0] evict v5: version_withdrawn\n"
             "[   0] tell rank-0 v5 version_withdrawn\n");
    CHECK_STATUS(tb_catalog_withdraw(s.c, s.now, &v5, "ann"), TB_DONE_BEFORE);
    CHECK_OK(tb_catalog_evicted(s.c, s.now, &v5));
    assert_string_equal(state_of(&s, 5), "withdrawn");
    CHECK_OK(version_open(&s, "rank-0", 6, 1, 6));
    CHECK_STATUS(tb_catalog_withdraw(s.c, s.now, &v6, "ann"), TB_BAD_STATE);
    site_close(&s);
}

static struct tb_catalog_version_view view_of(const struct site *s, uint64_t uid)
{
    const struct tb_id id = id_of(uid);
    struct tb_catalog_version_view v;
    assert_true(tb_catalog_version_get(s->c, &id, &v));
    return v;
}

/* P2: elsewhere an operator withdraws for that site alone. The version is not taken from a peer
 * again, and reports of other sites are still heard. */
static void withdrawn_for_one_site(void **state)
{
    (void)state;
    struct site s;
    west_open(&s, 2);
    const struct tb_id v5 = id_of(5);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    hush(&s);
    CHECK_OK(tb_catalog_withdraw(s.c, s.now, &v5, "ann"));
    said(&s, "[   0] store v5 withdrawn: withdrawn_here, ann\n"
             "[   0] store head v0\n");
    assert_true(view_of(&s, 5).withdrawn_here);
    assert_string_equal(view_of(&s, 5).who, "ann");
    CHECK_STATUS(tb_catalog_withdraw(s.c, s.now, &v5, "bob"), TB_DONE_BEFORE);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    const struct tb_catalog_site_progress north = {
        .site = name_of("north"), .uid = v5, .held_chunks = 10, .whole = true};
    CHECK_OK(tb_catalog_site_progress(s.c, s.now, &north));
    said(&s, "");
    assert_string_equal(state_of(&s, 5), "withdrawn");
    site_close(&s);
}

/* P3: home withdraws it for every site later, and from then on other sites are told. */
static void withdrawn_for_one_site_and_then_for_all(void **state)
{
    (void)state;
    struct site s;
    west_open(&s, 2);
    const struct tb_id v5 = id_of(5);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    CHECK_OK(tb_catalog_withdraw(s.c, s.now, &v5, "ann"));
    hush(&s);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_ENDED_WITHDRAWN));
    said(&s, "[   0] store v5 withdrawn: said_by_home\n");
    assert_false(view_of(&s, 5).withdrawn_here);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_ENDED_WITHDRAWN));
    said(&s, "");
    site_close(&s);
}

static void a_withdrawal_for_one_site_is_restored(void **state)
{
    (void)state;
    struct site s;
    west_open(&s, 2);
    CHECK_OK(hear(&s, "east", 5, TB_VERSION_READY));
    const struct tb_version_key key = view_of(&s, 5).key;
    site_close(&s);
    west_open(&s, 2);
    CHECK_OK(tb_catalog_restore_version(s.c, &key, TB_VERSION_ENDED_WITHDRAWN, 1, false));
    assert_true(tb_catalog_restore_withdrawn(s.c, &key.uid, true, "ann"));
    assert_false(tb_catalog_restore_withdrawn(s.c, &(struct tb_id){{6}}, true, "ann"));
    assert_true(view_of(&s, 5).withdrawn_here);
    assert_string_equal(view_of(&s, 5).who, "ann");
    site_close(&s);
}

/* P7: the table is full of ended versions; the oldest is forgotten for a new one. */
static void ended_versions_make_place(void **state)
{
    (void)state;
    struct site s;
    trainer(&s);
    for (uint64_t n = 1; n <= 40; n++) {
        publish_whole(&s, "rank-0", n);
        const struct tb_id uid = id_of(n), rank = session_of("rank-0");
        CHECK_OK(tb_catalog_withdraw(s.c, s.now, &uid, "ann"));
        CHECK_OK(tb_catalog_evicted(s.c, s.now, &uid));
        CHECK_OK(tb_catalog_session_renew(s.c, s.now, &rank));
        hush(&s);
    }
    assert_string_equal(state_of(&s, 40), "withdrawn");
    assert_string_equal(state_of(&s, 1), "unknown");
    site_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ready_only_when_every_shard_is_sealed),
        cmocka_unit_test(a_rank_lost_before_ready_fails_the_version),
        cmocka_unit_test(a_number_fits_into_63_bits),
        cmocka_unit_test(a_seal_said_twice_is_one),
        cmocka_unit_test(equal_digests_are_one_reference_more),
        cmocka_unit_test(unequal_digests_break_the_version),
        cmocka_unit_test(a_retry_with_other_bytes_changes_nothing),
        cmocka_unit_test(a_chunk_bad_twice_breaks_the_version),
        cmocka_unit_test(manifests_over_the_limit_are_not_sealed),
        cmocka_unit_test(numbers_only_grow_within_a_run),
        cmocka_unit_test(a_forgotten_number_is_not_given_again),
        cmocka_unit_test(kept_survives_its_publisher),
        cmocka_unit_test(lost_when_nobody_has_the_rest),
        cmocka_unit_test(a_whole_worker_keeps_a_version_from_being_lost),
        cmocka_unit_test(a_spot_worker_does_not),
        cmocka_unit_test(a_durable_site_keeps_it_by_its_own_word),
        cmocka_unit_test(a_durable_sites_own_word_may_come_late),
        cmocka_unit_test(withdrawn_is_the_operators_word),
        cmocka_unit_test(withdrawn_for_one_site),
        cmocka_unit_test(withdrawn_for_one_site_and_then_for_all),
        cmocka_unit_test(a_withdrawal_for_one_site_is_restored),
        cmocka_unit_test(ended_versions_make_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
