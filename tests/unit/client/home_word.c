/* home_word.c - a subscription that demands the home's signature stages nothing without it, and
 * nothing but the bytes that it covers. It keeps it and shows it to a gateway that comes back
 * (P1, P2).
 *
 * Covers: intra/client/follow/home_word.c intra/client/follow/staging_fill.c base/net/tls.c */
#include <stdlib.h>
#include <string.h>

#include "base/net/signed.h"
#include "base/proof/version_proof.h"
#include "tests/unit/forged_chunk.h"
#include "unit/client/fake_gateway.h"
#include "unit/client/fake_inside.h"
#include "unit/net/net_world.h"

#define DAY_MS ((int64_t)24 * 3600 * 1000)
#define TENSOR 100000u

struct scene {
    struct world world;
    struct fake f;
    struct fake_version *v;
    struct tb_tls *east, *rank, *west;
    struct tb_session *s;
    struct tb_subscription *sub;
};

static void subscribe(struct scene *c, struct tb_registration *r)
{
    const struct tb_subscribe_options o = {.struct_bytes = sizeof o,
                                           .member_count = 1,
                                           .model = "policy",
                                           .registration = r,
                                           .home_ca = world_path(&c->world, "east", "ca.crt")};
    if (tb_subscribe(c->s, &o, &c->sub) != TB_OK) fail_msg("%s", tb_last_error());
}

static void begin(struct scene *c)
{
    world_init(&c->world);
    world_issue(&c->world, "east", "gw", "tombolo://east/gw");
    world_issue(&c->world, "east", "rank", "tombolo://east/worker/rank-0");
    world_issue(&c->world, "west", "gw", "tombolo://west/gw");
    c->east = world_tls(&c->world, "east", "gw", "east");
    c->rank = world_tls(&c->world, "east", "rank", "east");
    c->west = world_tls(&c->world, "west", "gw", "west");
    fake_open(&c->f);
    c->v = fake_make(&c->f, 1, 2, 2, TENSOR);
    c->s = fake_session_open(&c->f, "w0", "host-a");
    subscribe(c, NULL);
}

static void end(struct scene *c)
{
    tb_session_close(c->s);
    fake_close(&c->f);
    tb_tls_free(c->east);
    tb_tls_free(c->rank);
    tb_tls_free(c->west);
    world_fini(&c->world);
}

static struct tb_statement right_word(struct fake_version *v)
{
    fake_know_proofs(v);
    const struct tb_manifest *each[FAKE_SHARDS_MAX];
    for (uint32_t i = 0; i < v->key.shard_count; i++)
        each[i] = &v->shards[i].manifest;
    const size_t bytes = tb_proof_scratch_bytes(each, v->key.shard_count);
    void *scratch = malloc(bytes);
    struct tb_statement s = tb_statement_of(TB_STATEMENT_VERSION, &v->key);
    s.root = tb_proof_root(each, v->key.shard_count, scratch, bytes);
    s.wall_ms = tb_clock_wall_ms();
    free(scratch);
    return s;
}

static void gateway_has(struct scene *c, const struct tb_tls *by, const struct tb_statement *s)
{
    static uint8_t shown[TB_SIGNED_BYTES_MAX];
    uint8_t bytes[TB_SIGNED_BYTES_MAX];
    struct tb_writer w;
    tb_writer_init(&w, bytes, sizeof bytes);
    CHECK_OK(tb_signed_write(by, s, &w));
    pthread_mutex_lock(&c->f.lock);
    memcpy(shown, bytes, w.used);
    c->f.said = (struct tb_span){.bytes = shown, .count = (uint32_t)w.used};
    pthread_mutex_unlock(&c->f.lock);
}

static void refused(struct scene *c, const char *what, const char *words)
{
    const struct tb_uid uid = fake_uid(c->v);
    const int status = tb_stage(c->sub, &uid, 20000);
    if (status != TB_PEER_IDENTITY) fail_msg("%s: %s", what, tb_status_name((enum tb_status)status));
    if (strstr(tb_last_error(), words) == NULL) fail_msg("%s: %s", what, tb_last_error());
    CHECK_STATUS(tb_activate(c->sub, &uid, NULL), TB_BAD_STATE); /* nothing of it is left */
}

static void no_version_is_staged_without_its_home(void **state)
{
    (void)state;
    struct scene c;
    begin(&c);
    struct tb_statement s = right_word(c.v);
    refused(&c, "no signature", "no signature of the model's home");
    gateway_has(&c, c.rank, &s);
    refused(&c, "of a worker of home", "a gateway of the model's home");
    gateway_has(&c, c.west, &s);
    refused(&c, "of another site", "the signer's certificate");
    for (int days = -3000; days <= 9000; days += 12000) {
        struct tb_statement dated = s;
        dated.wall_ms = (uint64_t)((int64_t)s.wall_ms + days * DAY_MS);
        gateway_has(&c, c.east, &dated);
        refused(&c, "a date outside the certificate's", "the signer's certificate");
    }
    struct tb_statement changed = s;
    changed.uid.bytes[0]++;
    gateway_has(&c, c.east, &changed);
    refused(&c, "of another version", "another version");
    changed = s;
    changed.run_order++;
    gateway_has(&c, c.east, &changed);
    refused(&c, "of another run", "another version");
    changed = s;
    changed.kind = TB_STATEMENT_WITHDRAWN;
    memset(&changed.root, 0, sizeof changed.root);
    gateway_has(&c, c.east, &changed);
    refused(&c, "a withdrawal", "another version");
    changed = s;
    changed.root.bytes[0] ^= 1;
    gateway_has(&c, c.east, &changed);
    refused(&c, "another root", "manifests");
    const struct tb_span garbage = {.bytes = (const uint8_t *)"garbage", .count = 7};
    FAKE_SET(&c.f, said, garbage);
    refused(&c, "garbage", "no signed statement");
    gateway_has(&c, c.east, &s);
    const struct tb_uid uid = fake_uid(c.v);
    if (tb_stage(c.sub, &uid, 20000) != TB_OK) fail_msg("%s", tb_last_error());
    end(&c);
}

/* Its gateway shows them behind the manifests, as it learns them. */
static void the_root_is_judged_once_all_proofs_are_here(void **state)
{
    (void)state;
    struct scene c;
    begin(&c);
    struct tb_statement s = right_word(c.v);
    const struct tb_uid uid = fake_uid(c.v);
    gateway_has(&c, c.east, &s);
    FAKE_SET(&c.f, no_proofs, true);
    CHECK_STATUS(tb_stage(c.sub, &uid, 300), TB_AGAIN);
    assert_non_null(strstr(tb_last_error(), ": 0 of"));
    fake_proofs(&c.f, 0, 1);
    if (tb_stage(c.sub, &uid, 20000) != TB_OK) fail_msg("%s", tb_last_error());
    CHECK_OK(tb_release(c.sub, &uid));
    s.root.bytes[0] ^= 1;
    gateway_has(&c, c.east, &s);
    CHECK_STATUS(tb_stage(c.sub, &uid, 300), TB_AGAIN);
    fake_proofs(&c.f, 0, 1);
    refused(&c, "another root, late", "manifests");
    end(&c);
}

static void shard_proofs(struct scene *c, uint32_t shard)
{
    const struct tb_manifest *m = &c->v->shards[shard].manifest;
    uint8_t bytes[512];
    struct tb_writer w;
    tb_writer_init(&w, bytes, sizeof bytes);
    const struct tb_msg_proofs proofs = {
        .uid = c->v->key.uid,
        .shard = shard,
        .proofs = {(const uint8_t *)m->proofs, m->chunk_count * TB_BLAKE3_BYTES}};
    tb_msg_proofs_encode(&proofs, &w);
    assert_false(w.full);
    fake_raw(&c->f, 0, TB_MSG_PROOFS, 0, bytes, (uint32_t)w.used);
}

/* A version of slices is whole before the proofs of what is not wanted are here. */
static void slices_wait_for_the_proofs_of_all(void **state)
{
    (void)state;
    struct scene c;
    begin(&c);
    CHECK_OK(tb_unsubscribe(c.sub));
    static uint8_t memory[TENSOR];
    const uint64_t shape[1] = {TENSOR};
    const struct tb_slice_desc d = {
        .struct_bytes = sizeof d, .rank = 1, .name = "t0", .dtype = "U8", .shape = shape, .memory = memory};
    struct tb_registration *r;
    CHECK_OK(tb_register_slices(c.s, &d, 1, &r));
    subscribe(&c, r);
    const struct tb_statement s = right_word(c.v);
    const struct tb_uid uid = fake_uid(c.v);
    gateway_has(&c, c.east, &s);
    FAKE_SET(&c.f, no_proofs, true);
    CHECK_STATUS(tb_stage(c.sub, &uid, 0), TB_AGAIN);
    fake_wait_seen(&c.f, TB_MSG_STAGE, 1);
    shard_proofs(&c, 0);
    CHECK_STATUS(tb_stage(c.sub, &uid, 300), TB_AGAIN);
    CHECK_STATUS(tb_activate(c.sub, &uid, NULL), TB_AGAIN);
    shard_proofs(&c, 1);
    if (tb_stage(c.sub, &uid, 20000) != TB_OK) fail_msg("%s", tb_last_error());
    fake_go(&c.f, 1);
    CHECK_OK(tb_activate(c.sub, &uid, NULL));
    assert_memory_equal(memory, c.v->shards[0].bytes, TENSOR);
    CHECK_OK(tb_unsubscribe(c.sub));
    CHECK_OK(tb_unregister(r));
    end(&c);
}

static struct tb_subscription *believer_of(struct scene *c)
{
    const struct tb_subscribe_options o = {.struct_bytes = sizeof o, .member_count = 1, .model = "policy"};
    struct tb_subscription *sub = NULL;
    CHECK_OK(tb_subscribe(c->s, &o, &sub));
    return sub;
}

static const uint8_t *staged_bytes(struct tb_subscription *sub, const struct tb_uid *uid)
{
    struct tb_item item = {.struct_bytes = sizeof item};
    CHECK_OK(tb_staged_item(sub, uid, 0, &item));
    return item.bytes;
}

/* A subscription that believes the gateway holds the forged bytes: their digests are right. */
static void its_gateway_serves_other_bytes_of_the_same_digest(void **state)
{
    (void)state;
    struct scene c;
    begin(&c);
    const struct tb_statement s = right_word(c.v);
    const struct tb_uid uid = fake_uid(c.v);
    struct fake_shard *sh = &c.v->shards[0];
    const uint64_t forged = sh->manifest.chunks[0].bytes;
    uint8_t *right = fake_copy_of(sh->bytes, (uint32_t)forged);
    gateway_has(&c, c.east, &s);
    forge_chunk(sh->bytes, forged, 0x3f);
    assert_memory_not_equal(sh->bytes, right, forged);
    CHECK_STATUS(tb_stage(c.sub, &uid, 0), TB_AGAIN);
    fake_wait_seen(&c.f, TB_MSG_CHUNK_BAD, 1);
    CHECK_STATUS(tb_stage(c.sub, &uid, 0), TB_AGAIN);
    memcpy(sh->bytes, right, forged);
    fake_plan(&c.f, 0, 1);
    if (tb_stage(c.sub, &uid, 20000) != TB_OK) fail_msg("%s", tb_last_error());
    assert_memory_equal(staged_bytes(c.sub, &uid), right, TENSOR);
    CHECK_OK(tb_release(c.sub, &uid));
    forge_chunk(sh->bytes, forged, 0x3f);
    struct tb_subscription *believer = believer_of(&c);
    CHECK_OK(tb_stage(believer, &uid, 20000));
    assert_memory_equal(staged_bytes(believer, &uid), sh->bytes, TENSOR);
    /* Bytes that another took on trust are not taken over. */
    CHECK_STATUS(tb_stage(c.sub, &uid, 0), TB_BAD_STATE);
    assert_non_null(strstr(tb_last_error(), "home_ca"));
    free(right);
    end(&c);
}

static bool is_shown(struct fake *f, uint32_t bytes)
{
    bool shown = false;
    pthread_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < FAKE_SESSIONS_MAX; i++)
        shown |= f->sessions[i].welcomed && f->sessions[i].subscribed.said.count == bytes;
    pthread_mutex_unlock(&f->lock);
    return shown;
}

static void the_word_of_the_active_version_is_shown(void **state)
{
    (void)state;
    struct scene c;
    begin(&c);
    const struct tb_statement s = right_word(c.v);
    const struct tb_uid uid = fake_uid(c.v);
    gateway_has(&c, c.east, &s);
    const uint32_t bytes = c.f.said.count;
    CHECK_OK(tb_stage(c.sub, &uid, 20000));
    fake_go(&c.f, 1);
    CHECK_OK(tb_activate(c.sub, &uid, NULL));
    CHECK_OK(tb_release(c.sub, &uid)); /* it is kept beyond the bytes */
    fake_go_away(&c.f, c.s);
    assert_false(is_shown(&c.f, bytes));
    fake_come_back(&c.f, c.s);
    assert_true(is_shown(&c.f, bytes));
    end(&c);
}

static void a_file_without_a_ca_is_refused(void **state)
{
    (void)state;
    struct scene c;
    begin(&c);
    struct tb_subscription *none = NULL;
    const struct tb_subscribe_options o = {.struct_bytes = sizeof o,
                                           .member_count = 1,
                                           .model = "policy",
                                           .home_ca = world_path(&c.world, "east", "gw.key")};
    CHECK_STATUS(tb_subscribe(c.s, &o, &none), TB_SITE_CONFIG);
    assert_non_null(strstr(tb_last_error(), "gw.key"));
    end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_version_is_staged_without_its_home),
        cmocka_unit_test(the_root_is_judged_once_all_proofs_are_here),
        cmocka_unit_test(slices_wait_for_the_proofs_of_all),
        cmocka_unit_test(its_gateway_serves_other_bytes_of_the_same_digest),
        cmocka_unit_test(the_word_of_the_active_version_is_shown),
        cmocka_unit_test(a_file_without_a_ca_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
