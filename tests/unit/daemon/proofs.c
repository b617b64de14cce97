/* proofs.c - a follower gathers the proofs of a version from its peers, page by page, and asks for
 * those that lack: home first, then the relays in turn (P1, P6). East follows `policy`, whose home
 * is middle; west and north relay it.
 *
 * Covers: gateway/daemon/links/proofs.c */
#include "gateway/daemon/links/proofs.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/net/signed.h"
#include "base/proof/version_proof.h"
#include "gateway/arena/arena_proofs.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/arena/arena_reserve.h"
#include "gateway/catalog/workers.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/links/link_events.h"
#include "gateway/daemon/links/statements.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/linked_home.h"
#include "wan/link/links_stats.h"

#define MIDDLE 0u /* peers, in the order of the config */
#define NORTH  1u
#define WEST   2u
#define PEERS  3u
#define SHARDS 2u
#define CHUNKS 4u /* of each */

/* The links, as they would speak of the peers, and all that they and the catalog were told. */
static struct {
    bool announces[PEERS], older[PEERS];
    uint32_t asked[PEERS], asks;
    bool unproven;
} links;

enum tb_status __wrap_tb_links_ask(struct tb_links *l, uint32_t peer, const struct tb_id *uid);
enum tb_status __wrap_tb_links_ask(struct tb_links *l, uint32_t peer, const struct tb_id *uid)
{
    (void)l, (void)uid;
    links.asked[peer]++;
    links.asks++;
    return TB_OK;
}

bool __wrap_tb_links_announces(const struct tb_links *l, uint32_t peer, const struct tb_id *uid);
bool __wrap_tb_links_announces(const struct tb_links *l, uint32_t peer, const struct tb_id *uid)
{
    (void)l, (void)uid;
    return links.announces[peer];
}

void __real_tb_links_stats(const struct tb_links *l, uint32_t peer, struct tb_links_stats *stats_out);
void __wrap_tb_links_stats(const struct tb_links *l, uint32_t peer, struct tb_links_stats *stats_out);
void __wrap_tb_links_stats(const struct tb_links *l, uint32_t peer, struct tb_links_stats *stats_out)
{
    __real_tb_links_stats(l, peer, stats_out);
    stats_out->protocol = links.older[peer] ? TB_LINKS_PROTOCOL_STATE - 1 : TB_LINKS_PROTOCOL_STATE;
}

void __wrap_tb_catalog_version_unproven(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid,
                                        bool unproven);
void __wrap_tb_catalog_version_unproven(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid,
                                        bool unproven)
{
    (void)c, (void)now, (void)uid;
    links.unproven = unproven;
}

struct follower {
    struct world world; /* of certificates */
    struct home home;
    struct tb_tls *middle; /* as that gateway has it */
    struct tb_version_key key;
    struct tb_manifest made[SHARDS]; /* with the right proofs */
    max_align_t memory[SHARDS][512];
    struct tb_copy *copy;
};

static void manifest_make(struct follower *f, uint32_t shard)
{
    static const enum tb_dtype dtypes[CHUNKS] = {TB_DTYPE_U8, TB_DTYPE_BF16, TB_DTYPE_F32, TB_DTYPE_I64};
    static const char *const names[CHUNKS] = {"a", "b", "c", "d"};
    struct tb_tensor tensors[CHUNKS];
    struct tb_layout layout;
    max_align_t memory[512];
    struct tb_manifest *m = &f->made[shard];
    for (uint32_t k = 0; k < CHUNKS; k++)
        tensors[k] = (struct tb_tensor){
            .name = names[k], .dtype = dtypes[k], .rank = 1, .full = {100}, .box_count = {100}};
    CHECK_OK(tb_layout_build(tensors, CHUNKS, memory, sizeof memory, &layout));
    CHECK_OK(tb_manifest_build(&layout, NULL, 0, f->memory[shard], sizeof f->memory[shard], m));
    assert_int_equal(m->chunk_count, CHUNKS);
    for (uint32_t k = 0; k < CHUNKS; k++) {
        const uint32_t chunk = CHUNKS * shard + k;
        m->digests[k] = tb_digest_of(&chunk, sizeof chunk);
    }
    m->root = tb_manifest_root(m);
}

static struct tb_blake3 right(uint32_t shard, uint32_t k)
{
    const uint32_t chunk = CHUNKS * shard + k;
    return tb_blake3_of(&chunk, sizeof chunk);
}

/* Its places are reserved, and none of its proofs is known. */
static void copy_make(struct follower *f)
{
    struct tb_daemon *d = f->home.d;
    char error[TB_ARENA_ERROR_BYTES];
    f->key = (struct tb_version_key){.uid = {{1}}, .run = {{2}}, .run_order = 1, .number = 1, .root = {{3}}};
    f->key.shard_count = SHARDS;
    CHECK_OK(tb_name_set(&f->key.model, "policy"));
    f->copy = tb_copy_get(d, &f->key);
    assert_non_null(f->copy);
    CHECK_OK(tb_arena_region_new(d->arena, &f->key, &f->copy->region, error));
    for (uint32_t s = 0; s < SHARDS; s++) {
        CHECK_OK(tb_arena_shard_reserve(f->copy->region, s, &f->made[s], error));
        const enum tb_status done = tb_arena_digests_done(f->copy->region, s);
        assert_true(done == TB_OK || done == TB_DONE_BEFORE);
    }
    assert_true(tb_arena_region_complete(f->copy->region) && !tb_arena_region_proven(f->copy->region));
}

static void begin_of(struct follower *f, const char *home, const char *subscribe)
{
    char rest[1024];
    memset(&links, 0, sizeof links);
    world_init(&f->world);
    world_issue(&f->world, "middle", "gw", "tombolo://middle/gw");
    snprintf(rest, sizeof rest,
             "{policy: {home: %s}}\n"
             "peers: {middle: {address: \"127.0.0.1:9\", ca: %s}, north: {address: \"127.0.0.1:9\"}, "
             "west: {address: \"127.0.0.1:9\"}}\n%s",
             home, world_path(&f->world, "middle", "ca.crt"), subscribe);
    linked_home_new(&f->home, &f->world, rest);
    home_start(&f->home);
    f->middle = world_tls(&f->world, "middle", "gw", "middle");
    for (uint32_t s = 0; s < SHARDS; s++)
        manifest_make(f, s);
    copy_make(f);
    for (uint32_t s = 0; s < SHARDS; s++)
        for (uint32_t k = 0; k < CHUNKS; k++) {
            const struct tb_blake3 proof = right(s, k);
            tb_manifest_set_proof(&f->made[s], k, &proof);
        }
}

static void begin(struct follower *f)
{
    begin_of(f, "middle", "subscribe: [{model: policy, from: [middle, west, north]}]");
}

static void end(struct follower *f)
{
    tb_tls_free(f->middle);
    linked_home_end(&f->home, &f->world);
}

/* A word of the version, over the right proofs. */
static struct tb_statement word(struct follower *f, const struct tb_tls *by, struct tb_span *span_out)
{
    static uint8_t bytes[TB_SIGNED_BYTES_MAX];
    static max_align_t scratch[1024];
    const struct tb_manifest *each[SHARDS] = {&f->made[0], &f->made[1]};
    struct tb_statement s = tb_statement_of(TB_STATEMENT_VERSION, &f->key);
    struct tb_writer w;
    s.root = tb_proof_root(each, SHARDS, scratch, sizeof scratch);
    s.wall_ms = tb_clock_wall_ms();
    tb_writer_init(&w, bytes, sizeof bytes);
    CHECK_OK(tb_signed_write(by, &s, &w));
    *span_out = (struct tb_span){.bytes = bytes, .count = (uint32_t)w.used};
    return s;
}

static void home_signs(struct follower *f)
{
    struct tb_span span;
    (void)word(f, f->middle, &span);
    tb_link_events.on_statement(f->home.d, MIDDLE, &span);
    assert_non_null(tb_said_find(&f->home.d->said, TB_STATEMENT_VERSION, &f->key.uid));
}

/* A page of right proofs, but for the chunks of `wrong`, a bit each. */
static void page_with(struct follower *f, uint32_t peer, uint32_t shard, uint32_t first, uint32_t count,
                      uint32_t wrong)
{
    struct tb_blake3 proofs[CHUNKS + 1];
    for (uint32_t i = 0; i < count; i++) {
        proofs[i] = right(shard, first + i);
        proofs[i].bytes[0] ^= wrong >> (first + i) & 1;
    }
    const struct tb_links_proofs page = {f->key.uid, shard, first, count, proofs[0].bytes};
    tb_proofs_heard(f->home.d, peer, &page);
}

static void page(struct follower *f, uint32_t peer, uint32_t shard, uint32_t first, uint32_t count)
{
    page_with(f, peer, shard, first, count, 0);
}

static bool is_proven(const struct follower *f)
{
    struct tb_blake3 proof;
    const bool all = tb_arena_region_proven(f->copy->region);
    for (uint32_t s = 0; all && s < SHARDS; s++)
        for (uint32_t k = 0; k < CHUNKS; k++) {
            const struct tb_blake3 is = right(s, k);
            assert_true(tb_manifest_proof(tb_arena_manifest(f->copy->region, s), k, &proof));
            assert_true(tb_blake3_equal(&proof, &is));
        }
    return all;
}

/* Home's manifests came, and it owes their proofs. */
static void home_owes(struct follower *f)
{
    struct tb_manifest bare[SHARDS];
    uint64_t none[SHARDS] = {0};
    for (uint32_t s = 0; s < SHARDS; s++) {
        bare[s] = f->made[s];
        bare[s].proven = &none[s];
    }
    tb_proofs_take(f->copy, MIDDLE, bare);
    assert_true(f->copy->proofs.owed && f->copy->proofs.peer == MIDDLE && f->copy->proofs.came == 0);
}

static void silence(struct follower *f)
{
    assert_true(f->copy->proofs.asked_at > TB_SECONDS(10));
    f->copy->proofs.asked_at -= TB_SECONDS(10);
}

static void check_asked(uint32_t middle, uint32_t north, uint32_t west)
{
    assert_int_equal(links.asked[MIDDLE], middle);
    assert_int_equal(links.asked[NORTH], north);
    assert_int_equal(links.asked[WEST], west);
}

/* ---- pages ---- */

static void pages_make_a_version_proven(void **state)
{
    (void)state;
    static struct follower f;
    begin(&f);
    home_signs(&f);
    home_owes(&f);
    page(&f, MIDDLE, 0, 0, 3);
    page(&f, MIDDLE, 0, 3, 1);
    page(&f, MIDDLE, 1, 0, 2);
    assert_false(is_proven(&f));
    page(&f, MIDDLE, 1, 2, 2);
    assert_true(is_proven(&f));
    assert_true(f.copy->land_due && !f.copy->proofs.owed);
    page_with(&f, MIDDLE, 1, 2, 2, 0xf); /* too late */
    assert_true(is_proven(&f));
    end(&f);
}

/* P7: pages of another peer, out of order or past the end, leave all as it is. */
static void a_page_that_does_not_follow_is_dropped(void **state)
{
    (void)state;
    static struct follower f;
    begin(&f);
    home_signs(&f);
    page_with(&f, MIDDLE, 0, 0, 4, 0xf); /* nobody owes any */
    home_owes(&f);
    page(&f, MIDDLE, 0, 0, 2);
    static const struct {
        uint32_t peer, shard, first, count;
    } wrong[] = {
        {WEST, 0, 2, 2},           /* it may not say them for home */
        {MIDDLE, 0, 3, 1},         /* a gap */
        {MIDDLE, 0, 0, 2},         /* again */
        {MIDDLE, 1, 1, 1},         /* not the first of its shard */
        {MIDDLE, 0, 2, 3},         /* more than there are */
        {MIDDLE, 0, CHUNKS, 1},    /* behind the last */
        {MIDDLE, SHARDS, 0, 1},    /* of no shard */
        {MIDDLE, UINT32_MAX, 0, 1} /* likewise */
    };
    for (uint32_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        page_with(&f, wrong[i].peer, wrong[i].shard, wrong[i].first, wrong[i].count, 0xff);
        assert_true(f.copy->proofs.shard == 0 && f.copy->proofs.came == 2);
    }
    page(&f, MIDDLE, 0, 2, 2);
    page(&f, MIDDLE, 1, 0, 4);
    assert_true(is_proven(&f));
    end(&f);
}

static void proofs_wait_for_homes_word(void **state)
{
    (void)state;
    static struct follower f;
    begin(&f);
    home_owes(&f);
    page(&f, MIDDLE, 0, 0, 4);
    page(&f, MIDDLE, 1, 0, 4);
    assert_true(f.copy->proofs.complete && !is_proven(&f));
    links.announces[MIDDLE] = true;
    tb_proofs_tick(f.home.d);
    check_asked(0, 0, 0); /* they are all here */
    home_signs(&f);
    assert_true(is_proven(&f));
    end(&f);
}

/* P1: one wrong proof, and none counts. They are asked for again. */
static void proofs_that_home_did_not_sign_are_refused(void **state)
{
    (void)state;
    static struct follower f;
    begin(&f);
    home_signs(&f);
    home_owes(&f);
    page(&f, MIDDLE, 0, 0, 4);
    page_with(&f, MIDDLE, 1, 0, 4, 1 << 3);
    assert_false(is_proven(&f));
    assert_int_equal(tb_manifest_proven_count(tb_arena_manifest(f.copy->region, 0)), 0);
    assert_int_equal(f.home.d->counters.roots_refused, 1);
    links.announces[MIDDLE] = true;
    tb_proofs_tick(f.home.d);
    check_asked(0, 0, 0); /* not at once: it would say the same */
    silence(&f);
    tb_proofs_tick(f.home.d);
    check_asked(1, 0, 0);
    page(&f, MIDDLE, 0, 0, 4);
    page(&f, MIDDLE, 1, 0, 4);
    assert_true(is_proven(&f));
    end(&f);
}

/* ---- asking ---- */

static void home_is_asked_first_then_the_others_in_turn(void **state)
{
    (void)state;
    static struct follower f;
    begin(&f);
    tb_proofs_tick(f.home.d);
    check_asked(0, 0, 0); /* nobody has it */
    links.announces[NORTH] = links.announces[WEST] = true;
    static const uint32_t turns[][2] = {{1, 0}, {1, 1}, {2, 1}};
    for (uint32_t i = 0; i < 3; i++) {
        tb_proofs_tick(f.home.d);
        tb_proofs_tick(f.home.d); /* it was asked just now */
        check_asked(0, turns[i][0], turns[i][1]);
        silence(&f);
    }
    links.announces[MIDDLE] = true;
    tb_proofs_tick(f.home.d);
    check_asked(1, 2, 1);
    silence(&f);
    tb_proofs_tick(f.home.d); /* home owes them: they come, or its session ends */
    check_asked(1, 2, 1);
    tb_proofs_peer_down(f.home.d, WEST);
    tb_proofs_tick(f.home.d);
    check_asked(1, 2, 1);
    tb_proofs_peer_down(f.home.d, MIDDLE);
    links.announces[MIDDLE] = false;
    tb_proofs_tick(f.home.d);
    assert_int_equal(links.asks, 5); /* at once */
    end(&f);
}

static void one_of_an_older_release_is_not_asked(void **state)
{
    (void)state;
    static struct follower f;
    begin(&f);
    memset(links.announces, true, sizeof links.announces);
    links.older[MIDDLE] = links.older[NORTH] = true;
    tb_proofs_tick(f.home.d);
    check_asked(0, 0, 1);
    end(&f);
}

static void a_chunk_asked_for_or_proven_is_not_asked_again(void **state)
{
    (void)state;
    static struct follower f;
    begin(&f);
    memset(links.announces, true, sizeof links.announces);
    f.copy->life = TB_COPY_ASKED; /* its manifests come, and their proofs behind them */
    tb_proofs_tick(f.home.d);
    f.copy->life = TB_COPY_RESTS;
    home_signs(&f);
    home_owes(&f);
    page(&f, MIDDLE, 0, 0, 4);
    page(&f, MIDDLE, 1, 0, 4);
    assert_true(is_proven(&f));
    tb_proofs_tick(f.home.d);
    assert_int_equal(links.asks, 0);
    end(&f);
}

/* P6: readers of a version that is whole cannot judge each other's chunks. */
static void a_chunk_that_stays_unproven_is_told(void **state)
{
    (void)state;
    static struct follower f;
    begin(&f);
    tb_proofs_tick(f.home.d);
    assert_false(links.unproven); /* it is not whole */
    f.copy->life = TB_COPY_WHOLE;
    links.announces[WEST] = true;
    tb_proofs_tick(f.home.d);
    assert_false(links.unproven); /* west was asked */
    silence(&f);
    links.announces[WEST] = false;
    tb_proofs_tick(f.home.d);
    assert_true(links.unproven);
    home_signs(&f);
    home_owes(&f);
    page(&f, MIDDLE, 0, 0, 4);
    page(&f, MIDDLE, 1, 0, 4);
    assert_false(links.unproven);
    f.copy->life = TB_COPY_RESTS;
    end(&f);
}

/* East is home, and a disk gave the copy back without its proofs. They are made behind that. */
static void home_tells_of_proofs_that_it_makes_anew(void **state)
{
    (void)state;
    static struct follower f;
    struct tb_span span;
    begin_of(&f, "east", "");
    struct tb_daemon *d = f.home.d;
    const struct tb_statement s = word(&f, d->tls, &span);
    assert_non_null(tb_statements_keep(d, &s, tb_tls_identity(d->tls), span.bytes, span.count));
    for (uint32_t k = 0; k < SHARDS * CHUNKS; k++)
        tb_bitmap_set(tb_arena_place(f.copy->region, k / CHUNKS)->held, k % CHUNKS);
    f.copy->life = TB_COPY_WHOLE;
    links.announces[WEST] = true;
    tb_proofs_restored(d);
    tb_proofs_tick(d);
    check_asked(0, 0, 1);
    tb_proofs_take(f.copy, WEST, f.made); /* of chunks that are here none is taken */
    tb_proofs_tick(d);
    check_asked(0, 0, 1); /* P6: not in each second */
    silence(&f);
    links.announces[WEST] = false;
    tb_proofs_tick(d);
    assert_true(links.unproven);
    for (uint32_t k = 0; k < SHARDS * CHUNKS; k++) {
        const struct tb_blake3 proof = right(k / CHUNKS, k % CHUNKS);
        tb_manifest_set_proof(tb_arena_manifest(f.copy->region, k / CHUNKS), k % CHUNKS, &proof);
    }
    tb_proofs_tick(d);
    assert_true(is_proven(&f) && !links.unproven && !f.copy->proves_anew);
    f.copy->life = TB_COPY_RESTS;
    end(&f);
}

/* ---- a start ---- */

/* P1: proofs of the arena's file count if they make the root that home signed. */
static void damaged_proofs_do_not_outlive_a_start(void **state)
{
    (void)state;
    static struct follower f;
    begin(&f);
    home_signs(&f);
    home_owes(&f);
    page(&f, MIDDLE, 0, 0, 4);
    page(&f, MIDDLE, 1, 0, 4);
    tb_proofs_restored(f.home.d);
    assert_true(is_proven(&f));
    tb_arena_manifest(f.copy->region, 1)->proofs[2].bytes[5] ^= 1;
    tb_proofs_restored(f.home.d);
    assert_false(tb_arena_region_proven(f.copy->region));
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_make_a_version_proven),
        cmocka_unit_test(a_page_that_does_not_follow_is_dropped),
        cmocka_unit_test(proofs_wait_for_homes_word),
        cmocka_unit_test(proofs_that_home_did_not_sign_are_refused),
        cmocka_unit_test(home_is_asked_first_then_the_others_in_turn),
        cmocka_unit_test(one_of_an_older_release_is_not_asked),
        cmocka_unit_test(a_chunk_asked_for_or_proven_is_not_asked_again),
        cmocka_unit_test(a_chunk_that_stays_unproven_is_told),
        cmocka_unit_test(home_tells_of_proofs_that_it_makes_anew),
        cmocka_unit_test(damaged_proofs_do_not_outlive_a_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
