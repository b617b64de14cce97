/* statements.c - a follower takes versions, withdrawals and runs on the word of the model's home
 * alone, from any carrier (P1, P2). East follows `policy`, whose home is middle; west relays it.
 *
 * Covers: gateway/daemon/links/statements.c gateway/daemon/links/link_events.c
 * Covers: gateway/daemon/links/publisher_words.c */
#include "gateway/daemon/links/statements.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/net/signed.h"
#include "base/proof/version_proof.h"
#include "gateway/catalog/views.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/links/link_events.h"
#include "gateway/daemon/links/site_lag.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/linked_home.h"

#define MIDDLE 0u /* peers, in the order of the config */
#define WEST   1u
#define DAY_MS ((int64_t)24 * 3600 * 1000)

struct follower {
    struct world world; /* of certificates */
    struct home home;
    struct tb_tls *middle, *west; /* as those gateways have them */
};

static void begin_as(struct follower *f, const char *of_model, const char *of_west)
{
    char rest[1792];
    world_init(&f->world);
    world_issue(&f->world, "middle", "gw", "tombolo://middle/gw");
    world_issue(&f->world, "middle", "rank", "tombolo://middle/worker/rank-0");
    world_issue(&f->world, "middle", "trainer", "tombolo://middle/publisher/trainer");
    world_issue(&f->world, "middle", "other", "tombolo://middle/publisher/other");
    world_issue(&f->world, "west", "gw", "tombolo://west/gw");
    snprintf(
        rest, sizeof rest,
        "{policy: {home: middle%s}}\npeers: {middle: {address: \"127.0.0.1:9\", ca: %s}, "
        "west: {address: \"127.0.0.1:9\", ca: %s%s}}\nsubscribe: [{model: policy, from: [west, middle]}]",
        of_model, world_path(&f->world, "middle", "ca.crt"), world_path(&f->world, "west", "ca.crt"),
        of_west);
    linked_home_new(&f->home, &f->world, rest);
    home_start(&f->home);
    f->middle = world_tls(&f->world, "middle", "gw", "middle");
    f->west = world_tls(&f->world, "west", "gw", "west");
}

static void begin_with(struct follower *f, const char *of_west)
{
    begin_as(f, "", of_west);
}

static void begin(struct follower *f)
{
    begin_with(f, "");
}

static void end(struct follower *f)
{
    tb_tls_free(f->middle);
    tb_tls_free(f->west);
    linked_home_end(&f->home, &f->world);
}

static struct tb_version_key version_of(uint32_t number)
{
    struct tb_version_key key = {.run = {{1}}, .run_order = 1, .number = number, .shard_count = 1};
    memcpy(key.uid.bytes, &number, sizeof number);
    key.root.bytes[0] = 1;
    CHECK_OK(tb_name_set(&key.model, "policy"));
    return key;
}

static struct tb_statement said_of(enum tb_statement_kind kind, const struct tb_version_key *key)
{
    struct tb_statement s = tb_statement_of(kind, key);
    if (kind == TB_STATEMENT_VERSION) s.root = tb_blake3_of("root", 4);
    s.wall_ms = tb_clock_wall_ms();
    return s;
}

/* West brings it, signed by `by`. */
static void brings(struct follower *f, const struct tb_tls *by, const struct tb_statement *s)
{
    static uint8_t bytes[TB_SIGNED_BYTES_MAX];
    struct tb_writer w;
    tb_writer_init(&w, bytes, sizeof bytes);
    CHECK_OK(tb_signed_write(by, s, &w));
    const struct tb_span span = {.bytes = bytes, .count = (uint32_t)w.used};
    tb_link_events.on_statement(f->home.d, WEST, &span);
    tb_daemon_turn(f->home.d);
}

static void says(struct follower *f, uint32_t peer, const struct tb_version_key *key,
                 enum tb_links_version_state state, enum tb_status why)
{
    tb_link_events.on_version(f->home.d, peer, key, 100, state, why);
    tb_daemon_turn(f->home.d);
}

static bool knows(const struct follower *f, const struct tb_version_key *key,
                  enum tb_catalog_state *state_out)
{
    struct tb_catalog_version_view view;
    if (!tb_catalog_version_get(f->home.d->catalog, &key->uid, &view)) return false;
    if (state_out != NULL) *state_out = view.state;
    return true;
}

static void a_version_counts_once_home_has_signed_it(void **state)
{
    struct follower f;
    (void)state;
    begin(&f);
    const struct tb_version_key key = version_of(7);
    const struct tb_statement s = said_of(TB_STATEMENT_VERSION, &key);
    says(&f, WEST, &key, TB_LINKS_READY, TB_OK);
    assert_false(knows(&f, &key, NULL));
    brings(&f, f.middle, &s);
    says(&f, WEST, &key, TB_LINKS_READY, TB_OK);
    assert_true(knows(&f, &key, NULL));
    assert_int_equal(f.home.d->counters.statements_taken, 1);
    end(&f);
}

static bool awaits(const struct follower *f, const struct tb_version_key *key)
{
    struct tb_catalog_version_view view;
    assert_true(tb_catalog_version_get(f->home.d->catalog, &key->uid, &view));
    return view.awaits;
}

/* P1: by home's own link a version crosses at once. Its readers hear of it when home has signed. */
static void home_itself_has_to_sign(void **state)
{
    struct follower f;
    (void)state;
    begin(&f);
    const struct tb_version_key key = version_of(7);
    const struct tb_statement s = said_of(TB_STATEMENT_VERSION, &key);
    says(&f, MIDDLE, &key, TB_LINKS_READY, TB_OK);
    assert_true(awaits(&f, &key));
    brings(&f, f.middle, &s);
    assert_false(awaits(&f, &key));
    says(&f, MIDDLE, &key, TB_LINKS_READY, TB_OK);
    assert_false(awaits(&f, &key));
    end(&f);
}

/* The run that stayed head for ever at the site, before versions were signed. */
static void a_relay_cannot_invent_a_run(void **state)
{
    struct follower f;
    struct tb_catalog_known_run known;
    (void)state;
    begin(&f);
    struct tb_version_key key = version_of(1);
    key.run_order = (uint64_t)1 << 62;
    says(&f, WEST, &key, TB_LINKS_READY, TB_OK);
    says(&f, WEST, &key, TB_LINKS_GONE, TB_VERSION_LOST);
    says(&f, WEST, &key, TB_LINKS_WITHDRAWN, TB_OK);
    assert_false(knows(&f, &key, NULL));
    assert_false(tb_catalog_known_run(f.home.d->catalog, &key.model, &known));
    end(&f);
}

/* Each is wrong in one thing; what it would prove is announced behind it. */
static void no_wrong_signature_counts(void **state)
{
    struct follower f;
    (void)state;
    begin(&f);
    struct tb_tls *rank = world_tls(&f.world, "middle", "rank", "middle");
    const struct {
        const char *what;
        const struct tb_tls *by;
        int64_t dated_ms;
        bool other_model;
    } wrong[] = {{"of the relay", f.west, 0, false},
                 {"of this site", f.home.d->tls, 0, false},
                 {"of a worker of home", rank, 0, false},
                 {"before the certificate began", f.middle, -3000 * DAY_MS, false},
                 {"behind its end", f.middle, 9000 * DAY_MS, false},
                 {"over another model", f.middle, 0, true}};
    for (uint32_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const struct tb_version_key key = version_of(i + 1);
        struct tb_statement s = said_of(TB_STATEMENT_VERSION, &key);
        s.wall_ms = (uint64_t)((int64_t)s.wall_ms + wrong[i].dated_ms);
        if (wrong[i].other_model) CHECK_OK(tb_name_set(&s.model, "other"));
        brings(&f, wrong[i].by, &s);
        says(&f, WEST, &key, TB_LINKS_READY, TB_OK);
        if (knows(&f, &key, NULL)) fail_msg("a signature %s counted", wrong[i].what);
    }
    assert_int_equal(f.home.d->counters.statements_taken, 0);
    tb_tls_free(rank);
    end(&f);
}

static void a_statement_is_of_its_version_alone(void **state)
{
    struct follower f;
    (void)state;
    begin(&f);
    const struct tb_version_key key = version_of(1);
    const struct tb_statement s = said_of(TB_STATEMENT_VERSION, &key);
    struct tb_version_key changed[4] = {key, key, key, version_of(2)};
    changed[0].root.bytes[0]++;
    changed[1].run_order++;
    changed[2].shard_count++;
    brings(&f, f.middle, &s);
    for (uint32_t i = 0; i < 4; i++) {
        says(&f, WEST, &changed[i], TB_LINKS_READY, TB_OK);
        if (knows(&f, &changed[i], NULL)) fail_msg("change %u was taken", i);
    }
    end(&f);
}

static void a_withdrawal_is_homes_too(void **state)
{
    struct follower f;
    enum tb_catalog_state is;
    (void)state;
    begin(&f);
    const struct tb_version_key first = version_of(1), second = version_of(2);
    for (uint32_t i = 1; i <= 2; i++) {
        const struct tb_version_key key = version_of(i);
        const struct tb_statement s = said_of(TB_STATEMENT_VERSION, &key);
        brings(&f, f.middle, &s);
        says(&f, WEST, &key, TB_LINKS_READY, TB_OK);
    }
    says(&f, WEST, &first, TB_LINKS_WITHDRAWN, TB_OK);
    says(&f, WEST, &first, TB_LINKS_GONE, TB_VERSION_WITHDRAWN);
    assert_true(knows(&f, &first, &is));
    assert_int_not_equal(is, TB_VERSION_ENDED_WITHDRAWN);
    const struct tb_statement s = said_of(TB_STATEMENT_WITHDRAWN, &first);
    brings(&f, f.middle, &s);
    says(&f, WEST, &second, TB_LINKS_WITHDRAWN, TB_OK); /* replayed for another one */
    says(&f, WEST, &first, TB_LINKS_WITHDRAWN, TB_OK);
    assert_true(knows(&f, &second, &is));
    assert_int_not_equal(is, TB_VERSION_ENDED_WITHDRAWN);
    assert_true(knows(&f, &first, &is));
    assert_int_equal(is, TB_VERSION_ENDED_WITHDRAWN);
    end(&f);
}

/* P3: a relay's word on the end of a version is of its own copy. Home's is of all. */
static void a_relay_ends_no_version(void **state)
{
    struct follower f;
    enum tb_catalog_state is = TB_VERSION_OPEN;
    (void)state;
    begin(&f);
    static const enum tb_status ends[] = {TB_VERSION_LOST, TB_VERSION_BROKEN};
    for (uint32_t i = 0; i < 2; i++) {
        const struct tb_version_key key = version_of(1 + i);
        const struct tb_statement s = said_of(TB_STATEMENT_VERSION, &key);
        brings(&f, f.middle, &s);
        says(&f, WEST, &key, TB_LINKS_READY, TB_OK);
        says(&f, WEST, &key, TB_LINKS_GONE, ends[i]);
        assert_true(knows(&f, &key, &is));
        assert_true(is != TB_VERSION_ENDED_LOST && is != TB_VERSION_ENDED_BROKEN);
        says(&f, WEST, &key, TB_LINKS_READY, TB_OK);
        assert_true(knows(&f, &key, &is));
        assert_int_equal(is, TB_VERSION_READY);
    }
    const struct tb_version_key key = version_of(2);
    says(&f, MIDDLE, &key, TB_LINKS_GONE, TB_VERSION_BROKEN);
    assert_true(knows(&f, &key, &is));
    assert_int_equal(is, TB_VERSION_ENDED_BROKEN);
    end(&f);
}

static struct tb_statement shard_of(const struct tb_version_key *key, uint32_t shard)
{
    struct tb_statement s = tb_statement_of(TB_STATEMENT_SHARD, key);
    s.root = tb_blake3_of("head", 4);
    s.wall_ms = tb_clock_wall_ms();
    s.shard = shard;
    return s;
}

/* P1: home signed it, and a version counts once each of its shards has a publisher's signature. */
static void a_version_needs_its_publishers(void **state)
{
    struct follower f;
    (void)state;
    begin_as(&f, ", publishers: [\"tombolo://middle/publisher/trainer\"]", "");
    struct tb_tls *trainer = world_tls(&f.world, "middle", "trainer", "middle");
    struct tb_tls *other = world_tls(&f.world, "middle", "other", "middle");
    struct tb_version_key key = version_of(7);
    key.shard_count = 2;
    const struct tb_statement s = said_of(TB_STATEMENT_VERSION, &key), first = shard_of(&key, 0),
                              second = shard_of(&key, 1);
    struct tb_version_key of_another = key;
    of_another.run_order++;
    const struct tb_statement wrong = shard_of(&of_another, 1);
    brings(&f, f.middle, &s);
    brings(&f, trainer, &first);
    brings(&f, other, &second);
    brings(&f, f.middle, &second);
    says(&f, MIDDLE, &key, TB_LINKS_READY, TB_OK);
    assert_false(knows(&f, &key, NULL));
    brings(&f, trainer, &wrong);
    says(&f, MIDDLE, &key, TB_LINKS_READY, TB_OK);
    assert_false(knows(&f, &key, NULL));
    tb_said_free(&f.home.d->said);
    brings(&f, f.middle, &s);
    brings(&f, trainer, &first);
    brings(&f, trainer, &second);
    says(&f, MIDDLE, &key, TB_LINKS_READY, TB_OK);
    assert_true(knows(&f, &key, NULL));
    tb_tls_free(trainer);
    tb_tls_free(other);
    end(&f);
}

/* A worker's word on a run counts as far as home signed, and it may show the signature. */
static void a_run_that_a_worker_claims_needs_its_signature(void **state)
{
    struct follower f;
    (void)state;
    begin(&f);
    const struct tb_name worker = {"w0"};
    const struct tb_version_key key = version_of(5);
    const struct tb_statement s = said_of(TB_STATEMENT_VERSION, &key);
    struct tb_catalog_known_run told = {key.model, 1, 5, {{0}}};
    static uint8_t bytes[TB_SIGNED_BYTES_MAX];
    struct tb_writer w;
    assert_true(tb_statements_run_lower_of_worker(f.home.d, &told));
    assert_int_equal(told.order, 0);
    const struct tb_tls *const by[] = {f.west, f.middle};
    for (uint32_t i = 0; i < 2; i++) {
        tb_writer_init(&w, bytes, sizeof bytes);
        CHECK_OK(tb_signed_write(by[i], &s, &w));
        const struct tb_span said = {.bytes = bytes, .count = (uint32_t)w.used};
        assert_int_equal(tb_statements_shown(f.home.d, &worker, &key.model, &said), i == 1);
    }
    told = (struct tb_catalog_known_run){key.model, 1, 5, {{0}}};
    assert_false(tb_statements_run_lower_of_worker(f.home.d, &told));
    told.number = 6;
    assert_true(tb_statements_run_lower_of_worker(f.home.d, &told));
    assert_int_equal(told.number, 5);
    assert_int_equal(f.home.d->counters.statements_refused, 1);
    end(&f);
}

/* P4: home signs each version once; a second word of it is for other bytes, and is not taken. */
static void the_first_word_of_a_version_stays(void **state)
{
    struct follower f;
    (void)state;
    begin(&f);
    const struct tb_version_key key = version_of(1);
    struct tb_statement s = said_of(TB_STATEMENT_VERSION, &key);
    brings(&f, f.middle, &s);
    s.wall_ms += 5;
    s.root = tb_blake3_of("other", 5);
    brings(&f, f.middle, &s);
    const struct tb_said *kept = tb_said_find(&f.home.d->said, TB_STATEMENT_VERSION, &key.uid);
    const struct tb_blake3 right = tb_blake3_of("root", 4);
    assert_true(tb_blake3_equal(&kept->what.root, &right));
    s.root = right; /* the same again, under a renewed certificate */
    brings(&f, f.middle, &s);
    kept = tb_said_find(&f.home.d->said, TB_STATEMENT_VERSION, &key.uid);
    assert_int_equal(kept->what.wall_ms, s.wall_ms);
    end(&f);
}

/* P1: a relay has other manifests with the roots of the key. They do not make the root of home. */
static void other_manifests_than_home_signed_are_refused(void **state)
{
    struct follower f;
    struct tb_layout layout;
    (void)state;
    begin(&f);
    const struct tb_tensor tensor = {
        .name = "embed", .dtype = TB_DTYPE_BF16, .rank = 1, .full = {100}, .box_count = {100}};
    static max_align_t memory[512], manifest_memory[512];
    struct tb_manifest m;
    CHECK_OK(tb_layout_build(&tensor, 1, memory, sizeof memory, &layout));
    CHECK_OK(tb_manifest_build(&layout, NULL, 0, manifest_memory, sizeof manifest_memory, &m));
    m.root = tb_manifest_root(&m);
    assert_int_equal(m.chunk_count, 1);
    const struct tb_blake3 proof = tb_blake3_of("chunk", 5);
    const struct tb_version_key unproven = version_of(3);
    tb_link_events.on_manifests(f.home.d, WEST, &unproven, &m); /* a relay's come with all proofs */
    assert_int_equal(f.home.d->counters.roots_refused, 1);
    tb_manifest_set_proof(&m, 0, &proof);
    const struct tb_manifest *one = &m;
    static max_align_t scratch[512];
    for (uint32_t i = 1; i <= 2; i++) {
        const struct tb_version_key key = version_of(i);
        struct tb_statement s = said_of(TB_STATEMENT_VERSION, &key);
        s.root = tb_proof_root(&one, 1, scratch, sizeof scratch);
        s.root.bytes[0] ^= i == 2;
        brings(&f, f.middle, &s);
        tb_link_events.on_manifests(f.home.d, WEST, &key, &m);
        assert_int_equal(f.home.d->counters.roots_refused, 1 + (i == 2));
    }
    end(&f);
}

/* P6: pages were on their way in the session before. Home is asked for them again. */
static void a_renewed_session_owes_no_proofs(void **state)
{
    (void)state;
    struct follower f;
    begin(&f);
    const struct tb_version_key key = version_of(1);
    struct tb_copy *copy = tb_copy_get(f.home.d, &key);
    assert_non_null(copy);
    copy->proofs = (struct tb_copy_proofs){.owed = true, .peer = MIDDLE, .asked_at = tb_clock_now()};
    tb_link_events.on_renewed(f.home.d, WEST);
    assert_true(copy->proofs.owed);
    tb_link_events.on_renewed(f.home.d, MIDDLE);
    assert_true(!copy->proofs.owed && copy->proofs.asked_at == 0);
    end(&f);
}

static void an_unsigned_peer_is_believed_where_the_operator_says_so(void **state)
{
    struct follower f;
    (void)state;
    begin_with(&f, ", unsigned: true");
    const struct tb_version_key first = version_of(1), second = version_of(2);
    says(&f, WEST, &first, TB_LINKS_READY, TB_OK);
    says(&f, MIDDLE, &second, TB_LINKS_READY, TB_OK);
    assert_false(awaits(&f, &first));
    assert_true(awaits(&f, &second)); /* that one has to sign */
    end(&f);
}

static void statements_outlive_a_restart(void **state)
{
    struct follower f;
    (void)state;
    begin(&f);
    const struct tb_version_key key = version_of(1);
    const struct tb_statement s = said_of(TB_STATEMENT_VERSION, &key);
    brings(&f, f.middle, &s);
    home_turn_until(&f.home, "store_rows", 0);
    home_end(&f.home);
    home_start(&f.home);
    assert_non_null(tb_said_find(&f.home.d->said, TB_STATEMENT_VERSION, &key.uid));
    says(&f, WEST, &key, TB_LINKS_READY, TB_OK);
    assert_true(knows(&f, &key, NULL));
    end(&f);
}

/* P7: a peer cannot keep this gateway at checking signatures. */
static void a_flood_of_wrong_signatures_ends(void **state)
{
    struct follower f;
    (void)state;
    begin(&f);
    for (uint32_t i = 1; i < 100; i++) {
        const struct tb_version_key key = version_of(i);
        const struct tb_statement s = said_of(TB_STATEMENT_VERSION, &key);
        brings(&f, f.west, &s);
    }
    assert_int_equal(f.home.d->counters.statements_refused, 32);
    tb_statements_tick(f.home.d);
    const struct tb_version_key key = version_of(100);
    const struct tb_statement s = said_of(TB_STATEMENT_VERSION, &key);
    brings(&f, f.middle, &s);
    assert_int_equal(f.home.d->counters.statements_taken, 1);
    end(&f);
}

/* A home that lost its store believes a run and a number as far as its own key signed them. */
static void a_run_that_a_peer_remembers_is_lowered_to_what_is_signed(void **state)
{
    struct follower f;
    (void)state;
    begin(&f);
    struct tb_version_key key = version_of(5);
    key.run_order = 3;
    const struct tb_statement s = said_of(TB_STATEMENT_VERSION, &key);
    struct tb_catalog_known_run told = {key.model, 4, 0, {{9}}};
    assert_true(tb_statements_run_lower(f.home.d, WEST, &told));
    assert_int_equal(told.order, 0); /* nothing is signed yet */
    brings(&f, f.middle, &s);
    told = (struct tb_catalog_known_run){key.model, 3, 5, key.run};
    assert_false(tb_statements_run_lower(f.home.d, WEST, &told));
    told = (struct tb_catalog_known_run){key.model, 3, 6, key.run};
    assert_true(tb_statements_run_lower(f.home.d, WEST, &told));
    assert_int_equal(told.number, 5);
    told = (struct tb_catalog_known_run){key.model, (uint64_t)1 << 40, 1, {{9}}};
    assert_true(tb_statements_run_lower(f.home.d, WEST, &told));
    assert_int_equal(told.order, 3);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_version_counts_once_home_has_signed_it),
        cmocka_unit_test(home_itself_has_to_sign),
        cmocka_unit_test(a_relay_cannot_invent_a_run),
        cmocka_unit_test(no_wrong_signature_counts),
        cmocka_unit_test(a_statement_is_of_its_version_alone),
        cmocka_unit_test(a_withdrawal_is_homes_too),
        cmocka_unit_test(a_relay_ends_no_version),
        cmocka_unit_test(a_version_needs_its_publishers),
        cmocka_unit_test(a_run_that_a_worker_claims_needs_its_signature),
        cmocka_unit_test(the_first_word_of_a_version_stays),
        cmocka_unit_test(other_manifests_than_home_signed_are_refused),
        cmocka_unit_test(a_renewed_session_owes_no_proofs),
        cmocka_unit_test(an_unsigned_peer_is_believed_where_the_operator_says_so),
        cmocka_unit_test(statements_outlive_a_restart),
        cmocka_unit_test(a_flood_of_wrong_signatures_ends),
        cmocka_unit_test(a_run_that_a_peer_remembers_is_lowered_to_what_is_signed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
