/* plans.c - tests of gateway/catalog/rules/plans.c and workers.c: whom a worker reads from. P6: it
 * goes on elsewhere, and only it.
 *
 * Covers: gateway/catalog/rules/plans.c gateway/catalog/workers.c
 * Covers: gateway/catalog/rows/source_links.c */
#include "check.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/sites.h"
#include "gateway/catalog/unpublish.h"
#include "gateway/catalog/versions.h"
#include "gateway/catalog/views.h"
#include "gateway/catalog/workers.h"
#include "plans_scene.h"

#include <stdio.h>

/* The second reader's source is told once it can be read there. */
static void hosts_form_a_chain_behind_the_gateway(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    CHECK_OK(stage(&s, "a", 5));
    said(&s, "[   0] plan a v5 from gateway\n");
    CHECK_OK(stage(&s, "b", 5));
    said(&s, ""); /* behind a, which has not exported */
    CHECK_OK(export_of(&s, "a", 5, 0));
    said(&s, "[   0] plan b v5 from a\n");
    CHECK_OK(export_of(&s, "b", 5, 0));
    CHECK_OK(stage(&s, "c", 5));
    said(&s, "[   0] plan c v5 from b\n");
    site_close(&s);
}

/* A byte reaches a host once. */
static void the_same_host_is_preferred(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    come_from(&s, "a2", "host-of-a", false);
    CHECK_OK(join(&s, "a2", "a2", 0, 1));
    CHECK_OK(stage(&s, "a", 5));
    CHECK_OK(export_of(&s, "a", 5, 0));
    CHECK_OK(stage(&s, "b", 5));
    CHECK_OK(export_of(&s, "b", 5, 0));
    CHECK_OK(stage(&s, "a2", 5));
    said(&s, "[   0] plan a v5 from gateway\n"
             "[   0] plan b v5 from a\n"
             "[   0] plan a2 v5 from a\n");
    site_close(&s);
}

/* P6: killed in the middle of the chain; its reader goes on with what it has, the others
 * stay where they are. */
static void only_the_readers_of_the_dead_are_moved(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    const char *const names[] = {"a", "b", "c"};
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_OK(stage(&s, names[i], 5));
        CHECK_OK(export_of(&s, names[i], 5, 0));
    }
    said(&s, "[   0] plan a v5 from gateway\n"
             "[   0] plan b v5 from a\n"
             "[   0] plan c v5 from b\n");
    const struct tb_id b = session_of("b");
    tb_catalog_session_close(s.c, s.now, &b);
    said(&s, "[   0] plan c v5 from a\n");
    site_close(&s);
}

/* P6: they would wait for proofs that nobody has. */
static void workers_without_proofs_read_from_the_gateway(void **state)
{
    (void)state;
    struct site s;
    const struct tb_id uid = id_of(5);
    spread(&s);
    CHECK_OK(stage(&s, "a", 5));
    CHECK_OK(export_of(&s, "a", 5, 0));
    CHECK_OK(stage(&s, "b", 5));
    said(&s, "[   0] plan a v5 from gateway\n"
             "[   0] plan b v5 from a\n");
    tb_catalog_version_unproven(s.c, s.now, &uid, true);
    said(&s, "[   0] plan b v5 from gateway\n");
    CHECK_OK(stage(&s, "c", 5));
    said(&s, "[   0] plan c v5 from gateway\n");
    tb_catalog_version_unproven(s.c, s.now, &uid, false);
    come(&s, "d");
    CHECK_OK(join(&s, "d", "d", 0, 1));
    CHECK_OK(stage(&s, "d", 5));
    said(&s, "[   0] plan d v5 from a\n");
    site_close(&s);
}

static void a_release_moves_its_readers(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    CHECK_OK(stage(&s, "a", 5));
    CHECK_OK(export_of(&s, "a", 5, 0));
    CHECK_OK(stage(&s, "b", 5));
    hush(&s);
    const struct tb_id a = session_of("a"), v5 = id_of(5);
    CHECK_OK(tb_catalog_release(s.c, s.now, &a, &v5));
    said(&s, "[   0] plan b v5 from gateway\n");
    CHECK_STATUS(tb_catalog_release(s.c, s.now, &a, &v5), TB_DONE_BEFORE); /* P4 */
    site_close(&s);
}

/* Nobody else has it: the reader is told so, and when somebody has. */
static void without_a_source_it_waits(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    CHECK_OK(version_open(&s, "rank", 6, 1, 6));
    CHECK_OK(seal(&s, "rank", 6, 0, 60)); /* the gateway has no space for it yet */
    CHECK_OK(export_of(&s, "a", 6, SHARD_CHUNKS));
    CHECK_OK(stage(&s, "b", 6));
    said(&s, "[   0] plan b v6 from a\n");
    const struct tb_id a = session_of("a"), v6 = id_of(6);
    CHECK_OK(tb_catalog_release(s.c, s.now, &a, &v6));
    said(&s, "[   0] plan b v6 from nobody\n");
    land(&s, 6, 0, 1);
    said(&s, "[   0] plan b v6 from gateway\n");
    site_close(&s);
}

/* P1: it found a chunk of its staging damaged. It is no whole copy until the chunk came again, and
 * gets a source for it. */
static void a_damaged_copy_gets_a_source_again(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    land(&s, 5, 0, SHARD_CHUNKS);
    CHECK_OK(staged(&s, "a", 5));
    const struct tb_id a = session_of("a"), v5 = id_of(5);
    hush(&s);
    const struct tb_catalog_progress damaged = {
        .session = a, .uid = v5, .held_chunks = SHARD_CHUNKS - 1, .total_chunks = SHARD_CHUNKS};
    CHECK_OK(tb_catalog_progress(s.c, s.now, &damaged));
    said(&s, "[   0] plan a v5 from gateway\n");
    CHECK_OK(tb_catalog_progress(s.c, s.now, &damaged)); /* P4 */
    said(&s, "");
    CHECK_OK(progress(&s, "a", 5, SHARD_CHUNKS));
    said(&s, "");
    site_close(&s);
}

static void a_failed_source_is_avoided_until_it_shows_progress(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    CHECK_OK(stage(&s, "a", 5));
    CHECK_OK(export_of(&s, "a", 5, 2));
    CHECK_OK(stage(&s, "b", 5));
    hush(&s);
    const uint64_t first = plan_of(&s, "b");
    CHECK_OK(hop_lost(&s, "b", first));
    said(&s, "[   0] plan b v5 from gateway\n");
    CHECK_STATUS(hop_lost(&s, "b", first), TB_DONE_BEFORE); /* of an old plan: P4 */
    said(&s, "");
    /* a goes on, so it is as good as before. */
    CHECK_OK(progress(&s, "a", 5, 3));
    CHECK_OK(hop_lost(&s, "b", plan_of(&s, "b")));
    said(&s, "[   0] plan b v5 from a\n");
    site_close(&s);
}

/* P6: another reader of the same source gets nothing either until it has noticed, too: the first to
 * notice goes to the gateway, though that feeds the source, and the next comes behind it. */
static void a_reader_of_a_failed_source_is_no_way_out(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    come_from(&s, "a2", "host-of-a", false);
    CHECK_OK(join(&s, "a2", "a2", 0, 1));
    const char *const names[] = {"a", "b", "a2"};
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_OK(stage(&s, names[i], 5));
        CHECK_OK(export_of(&s, names[i], 5, 0));
    }
    said(&s, "[   0] plan a v5 from gateway\n"
             "[   0] plan b v5 from a\n"
             "[   0] plan a2 v5 from a\n");
    CHECK_OK(hop_lost(&s, "a2", plan_of(&s, "a2")));
    said(&s, "[   0] plan a2 v5 from gateway\n");
    CHECK_OK(hop_lost(&s, "b", plan_of(&s, "b")));
    said(&s, "[   0] plan b v5 from a2\n");
    site_close(&s);
}

/* The twin: it was the only one; it is tried again after a while. */
static void the_only_source_is_tried_again(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    CHECK_OK(stage(&s, "a", 5));
    hush(&s);
    CHECK_OK(hop_lost(&s, "a", plan_of(&s, "a")));
    said(&s, "");
    const char *const renewing[] = {"rank", "a", "b", "c", NULL};
    pass_ms(&s, 950, renewing);
    said(&s, "");
    pass_ms(&s, 50, renewing);
    said(&s, "[1000] plan a v5 from gateway\n");
    site_close(&s);
}

/* P3: after a restart a worker says what it has, and is a source again. */
static void an_export_nobody_asked_for_is_a_source(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    CHECK_OK(export_of(&s, "a", 5, SHARD_CHUNKS));
    CHECK_OK(stage(&s, "b", 5));
    said(&s, "[   0] plan b v5 from a\n");
    assert_string_equal(state_of(&s, 5), "ready"); /* and no copy that makes it kept */
    site_close(&s);
}

static enum tb_status reads_only(struct site *s, const char *worker, bool whole)
{
    const struct tb_id session = session_of(worker), v5 = id_of(5);
    const enum tb_status status = tb_catalog_export(s->c, s->now, &session, &v5, 0, whole ? 10 : 0, whole);
    drain(s);
    return status;
}

/* P3 P6: a worker that keeps a version in a form of its own is nobody's source, who waited for it
 * goes elsewhere, and what it has is no copy. */
static void a_worker_that_reads_only_is_no_source_and_no_copy(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    CHECK_OK(stage(&s, "a", 5));
    CHECK_OK(stage(&s, "b", 5));
    said(&s, "[   0] plan a v5 from gateway\n");
    CHECK_OK(reads_only(&s, "a", false));
    said(&s, "[   0] plan b v5 from gateway\n");
    CHECK_OK(reads_only(&s, "a", true));
    assert_string_equal(state_of(&s, 5), "ready"); /* of ten chunks the gateway has four */
    CHECK_OK(stage(&s, "c", 5));
    CHECK_OK(export_of(&s, "b", 5, 0));
    said(&s, "[   0] plan c v5 from b\n");
    site_close(&s);
}

/* P6: a worker whose word of where it can be read was lost, as one that said it before a restarted
 * gateway knew the version: a reader that waited for that word goes elsewhere once it is whole, and
 * nobody is sent to it until it says it again. */
static void a_whole_worker_without_an_address_is_no_source(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    CHECK_OK(stage(&s, "a", 5));
    CHECK_OK(stage(&s, "b", 5));
    said(&s, "[   0] plan a v5 from gateway\n"); /* b waits for a, which reads still */
    CHECK_OK(progress(&s, "a", 5, SHARD_CHUNKS));
    said(&s, "[   0] plan b v5 from gateway\n");
    CHECK_OK(export_of(&s, "a", 5, SHARD_CHUNKS));
    CHECK_OK(stage(&s, "c", 5));
    said(&s, "[   0] plan c v5 from a\n");
    site_close(&s);
}

static void whole_readers_read_no_more(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    CHECK_OK(stage(&s, "a", 5));
    CHECK_OK(export_of(&s, "a", 5, 0));
    CHECK_OK(progress(&s, "a", 5, SHARD_CHUNKS));
    assert_int_equal(plan_of(&s, "a"), 0);
    CHECK_OK(stage(&s, "b", 5));
    CHECK_OK(stage(&s, "c", 5));
    said(&s, "[   0] plan b v5 from a\n"); /* a plan that was overtaken is not said any more */
    const struct tb_id b = session_of("b"), v5 = id_of(5);
    struct tb_catalog_reference_view view;
    assert_true(tb_catalog_plan_get(s.c, &b, &v5, plan_of(&s, "b"), &view));
    assert_string_equal(view.upstream_name.text, "a");
    assert_false(tb_catalog_plan_get(s.c, &b, &v5, 12345, &view));
    site_close(&s);
}

/* P6: a worker that did not answer a reader, or the site, is not found out by each of those who
 * come next; nor is who reads from it. Its next word ends that. */
static void nobody_is_sent_to_a_silent_source(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    come_from(&s, "a2", "host-of-a", false);
    CHECK_OK(join(&s, "a2", "a2", 0, 1));
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_OK(stage(&s, i == 0 ? "a" : "b", 5));
        CHECK_OK(export_of(&s, i == 0 ? "a" : "b", 5, 0));
    }
    hush(&s);
    const struct tb_id a = session_of("a"), c = session_of("c"), v5 = id_of(5);
    tb_catalog_session_silent(s.c, s.now, &a);
    said(&s, ""); /* nobody is moved for it */
    CHECK_OK(stage(&s, "c", 5));
    CHECK_OK(export_of(&s, "c", 5, 0));
    CHECK_OK(stage(&s, "a2", 5)); /* though it is of a's host */
    said(&s, "[   0] plan c v5 from gateway\n"
             "[   0] plan a2 v5 from c\n");
    CHECK_OK(tb_catalog_release(s.c, s.now, &c, &v5));
    CHECK_OK(tb_catalog_session_renew(s.c, s.now, &a));
    CHECK_OK(stage(&s, "c", 5));
    said(&s, "[   0] plan a2 v5 from gateway\n"
             "[   0] plan c v5 from b\n");
    site_close(&s);
}

/* P6: also of a version that it stages while it is silent, as a restarted catalog hears
 * of it, and of a rank. */
static void a_silent_source_is_none_of_any_version(void **state)
{
    (void)state;
    struct site s;
    spread(&s);
    const struct tb_id a = session_of("a");
    tb_catalog_session_silent(s.c, s.now, &a);
    CHECK_OK(stage(&s, "a", 5));
    CHECK_OK(export_of(&s, "a", 5, 2));
    CHECK_OK(stage(&s, "b", 5));
    said(&s, "[   0] plan a v5 from gateway\n"
             "[   0] plan b v5 from gateway\n");
    site_close(&s);
}

/* ---- ranks ---- */

/* A version of that many shards, sealed in place or not; "near" is on the rank's
 * host, "a" is not. */
static void beside_a_rank(struct site *s, bool in_place, uint32_t shards)
{
    east_open(s, 8);
    s->left_out = NOT_STORE | NOT_LANDING | NOT_PEERS | NOT_TELL | 1u << TB_CATALOG_GO;
    come_from(s, "rank", "mill", false);
    CHECK_OK(run_open(s, "rank", "k", 100));
    CHECK_OK(version_open(s, "rank", 5, shards, 5));
    for (uint32_t i = 0; i < shards; i++) {
        const struct tb_catalog_seal q = {.session = session_of("rank"),
                                          .uid = id_of(5),
                                          .shard = i,
                                          .root = root_of(50),
                                          .chunk_count = SHARD_CHUNKS,
                                          .bytes = SHARD_BYTES,
                                          .export_id = 1,
                                          .in_place = in_place};
        CHECK_OK(tb_catalog_seal(s->c, s->now, &q));
    }
    land(s, 5, 0, 4);
    come_from(s, "near", "mill", false);
    come(s, "a");
    CHECK_OK(join(s, "near", "near", 0, 1));
    CHECK_OK(join(s, "a", "a", 0, 1));
    hush(s);
}

/* Workers of its own host read a version published in place there, and no others do. When the
 * rank takes it back, the reader goes on elsewhere at once (P6). */
static void a_rank_in_place_is_read_by_its_own_host(void **state)
{
    (void)state;
    struct site s;
    beside_a_rank(&s, true, 1);
    CHECK_OK(stage(&s, "near", 5));
    said(&s, "[   0] plan near v5 from rank\n");
    CHECK_OK(stage(&s, "a", 5));
    CHECK_OK(export_of(&s, "near", 5, 0));
    said(&s, "[   0] plan a v5 from near\n");
    const struct tb_id rank = session_of("rank"), v5 = id_of(5);
    CHECK_OK(tb_catalog_unpublish(s.c, s.now, &rank, &v5, 0, TB_SECONDS(1)));
    said(&s, "[   0] plan near v5 from gateway\n");
    site_close(&s);
}

/* One that fails its reader is avoided like any source. */
static void a_rank_that_failed_is_avoided(void **state)
{
    (void)state;
    struct site s;
    beside_a_rank(&s, true, 1);
    CHECK_OK(stage(&s, "near", 5));
    said(&s, "[   0] plan near v5 from rank\n");
    CHECK_OK(hop_lost(&s, "near", plan_of(&s, "near")));
    said(&s, "[   0] plan near v5 from gateway\n");
    site_close(&s);
}

/* Nor is one that answers nobody asked. */
static void a_rank_that_does_not_answer_is_left_alone(void **state)
{
    (void)state;
    struct site s;
    beside_a_rank(&s, true, 1);
    const struct tb_id rank = session_of("rank");
    tb_catalog_session_silent(s.c, s.now, &rank);
    CHECK_OK(stage(&s, "near", 5));
    said(&s, "[   0] plan near v5 from gateway\n");
    site_close(&s);
}

/* P6: a worker that comes after such a rank has gone, and is given its row, has failed nobody. */
static void nobody_is_avoided_in_place_of_a_rank(void **state)
{
    (void)state;
    struct site s;
    const struct tb_id rank = session_of("rank"), v5 = id_of(5);
    beside_a_rank(&s, true, 1);
    CHECK_OK(stage(&s, "near", 5));
    CHECK_OK(reads_only(&s, "near", false)); /* nobody is behind it */
    said(&s, "[   0] plan near v5 from rank\n");
    CHECK_OK(hop_lost(&s, "near", plan_of(&s, "near")));
    land(&s, 5, 0, SHARD_CHUNKS);
    hush(&s);
    CHECK_OK(tb_catalog_unpublish(s.c, s.now, &rank, &v5, 0, TB_SECONDS(1)));
    hush(&s);
    CHECK_OK(stage(&s, "a", 5));
    CHECK_OK(export_of(&s, "a", 5, 0));
    hush(&s);
    CHECK_OK(hop_lost(&s, "near", plan_of(&s, "near")));
    said(&s, "[   0] plan near v5 from a\n");
    site_close(&s);
}

/* P6: a rank whose process ends is a source that ends. */
static void a_rank_that_is_gone_feeds_nobody(void **state)
{
    (void)state;
    struct site s;
    beside_a_rank(&s, true, 1);
    CHECK_OK(stage(&s, "near", 5));
    said(&s, "[   0] plan near v5 from rank\n");
    land(&s, 5, 0, SHARD_CHUNKS); /* else the version ends with it */
    hush(&s);
    const struct tb_id rank = session_of("rank");
    tb_catalog_session_close(s.c, s.now, &rank);
    said(&s, "[   0] plan near v5 from gateway\n");
    site_close(&s);
}

/* The twins: a shadow is used again, and of several shards a rank has one. */
static void other_ranks_are_read_by_the_gateway_alone(void **state)
{
    (void)state;
    for (uint32_t shards = 1; shards <= 2; shards++) {
        struct site s;
        beside_a_rank(&s, shards == 2, shards);
        CHECK_OK(stage(&s, "near", 5));
        said(&s, "[   0] plan near v5 from gateway\n");
        site_close(&s);
    }
}

/* ---- how wide ---- */

/* v1 arrives at west, a chunk of 100 bytes every 10 ms: 10,000 bytes a second. Then v2 is
 * spread. */
struct nics {
    uint64_t config, gateway, workers[3];
};

static void after_one_arrival_on(struct site *s, const struct nics *nics)
{
    west_open_wide(s, 8, nics->config);
    tb_catalog_nic(s->c, nics->gateway);
    s->left_out = ~(1u << TB_CATALOG_PLAN | 1u << TB_CATALOG_PLAN_END);
    const struct tb_name east = name_of("east");
    CHECK_OK(tb_catalog_site_up(s->c, s->now, &east, true));
    CHECK_OK(hear(s, "east", 1, TB_VERSION_KEPT));
    cross_begin(s, 1);
    for (uint32_t held = 1; held <= SHARD_CHUNKS; held++, s->now += TB_MS(10))
        land(s, 1, 0, held);
    CHECK_OK(hear(s, "east", 2, TB_VERSION_KEPT));
    cross_begin(s, 2);
    s->now = TB_SECONDS(1000);
    const char *const names[] = {"a", "b", "c"};
    for (uint32_t i = 0; i < 3; i++) {
        s->hosts_nic = nics->workers[i];
        come(s, names[i]);
        CHECK_OK(join(s, names[i], names[i], 0, 1));
        CHECK_OK(stage(s, names[i], 2));
        CHECK_OK(export_of(s, names[i], 2, 0));
    }
}

static void after_one_arrival(struct site *s, uint64_t nic_bytes_per_s)
{
    after_one_arrival_on(s, &(struct nics){.config = nic_bytes_per_s});
}

/* Nobody configured it: each host's NIC feeds what it says it can, and one reader
 * where it says nothing. */
static void hosts_say_what_their_nics_carry(void **state)
{
    (void)state;
    static const struct {
        struct nics nics;
        const char *source_of_c;
        uint32_t gateway;
    } rows[] = {
        {{.workers = {20000}}, "a", 1},               /* the first's carries two */
        {{.workers = {10000, 20000, 20000}}, "b", 1}, /* the second's would */
        {{.gateway = 20000}, "b", 2},                 /* the gateway's alone: workers come before it */
        {{.config = 10000, .gateway = 20000, .workers = {20000}}, "b", 1}, /* the config's word goes before */
        {{.config = 20000, .gateway = 1, .workers = {1, 1, 1}}, "a", 2},   /* likewise */
    };
    const struct tb_id uid = id_of(2);
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct site s;
        char trace[128];
        struct tb_catalog_version_view view;
        after_one_arrival_on(&s, &rows[i].nics);
        (void)snprintf(trace, sizeof trace,
                       "[   0] plan a v2 from gateway\n"
                       "[   0] plan b v2 from a\n"
                       "[   0] plan c v2 from %s\n",
                       rows[i].source_of_c);
        said(&s, trace);
        assert_true(tb_catalog_version_get(s.c, &uid, &view));
        assert_int_equal(view.fan_out, rows[i].gateway);
        site_close(&s);
    }
}

/* NICs that carry twice the rate of arrival feed two readers each. */
static void a_slow_arrival_makes_the_tree_wide(void **state)
{
    (void)state;
    struct site s;
    after_one_arrival(&s, 20000);
    said(&s, "[   0] plan a v2 from gateway\n"
             "[   0] plan b v2 from a\n"
             "[   0] plan c v2 from a\n");
    site_close(&s);
}

/* The twins: as fast as a NIC, or not known, is a chain. */
static void a_fast_arrival_makes_a_chain(void **state)
{
    (void)state;
    const uint64_t nics[] = {10000, 0};
    for (uint32_t i = 0; i < 2; i++) {
        struct site s;
        after_one_arrival(&s, nics[i]);
        said(&s, "[   0] plan a v2 from gateway\n"
                 "[   0] plan b v2 from a\n"
                 "[   0] plan c v2 from b\n");
        site_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_form_a_chain_behind_the_gateway),
        cmocka_unit_test(the_same_host_is_preferred),
        cmocka_unit_test(only_the_readers_of_the_dead_are_moved),
        cmocka_unit_test(workers_without_proofs_read_from_the_gateway),
        cmocka_unit_test(a_release_moves_its_readers),
        cmocka_unit_test(without_a_source_it_waits),
        cmocka_unit_test(a_damaged_copy_gets_a_source_again),
        cmocka_unit_test(a_failed_source_is_avoided_until_it_shows_progress),
        cmocka_unit_test(a_reader_of_a_failed_source_is_no_way_out),
        cmocka_unit_test(the_only_source_is_tried_again),
        cmocka_unit_test(an_export_nobody_asked_for_is_a_source),
        cmocka_unit_test(a_worker_that_reads_only_is_no_source_and_no_copy),
        cmocka_unit_test(a_whole_worker_without_an_address_is_no_source),
        cmocka_unit_test(whole_readers_read_no_more),
        cmocka_unit_test(nobody_is_sent_to_a_silent_source),
        cmocka_unit_test(a_silent_source_is_none_of_any_version),
        cmocka_unit_test(a_rank_that_does_not_answer_is_left_alone),
        cmocka_unit_test(a_rank_in_place_is_read_by_its_own_host),
        cmocka_unit_test(a_rank_that_failed_is_avoided),
        cmocka_unit_test(nobody_is_avoided_in_place_of_a_rank),
        cmocka_unit_test(a_rank_that_is_gone_feeds_nobody),
        cmocka_unit_test(other_ranks_are_read_by_the_gateway_alone),
        cmocka_unit_test(a_slow_arrival_makes_the_tree_wide),
        cmocka_unit_test(hosts_say_what_their_nics_carry),
        cmocka_unit_test(a_fast_arrival_makes_a_chain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
