/* landing_judged.c - a home that lands from a worker takes no chunk whose proof it does not know: a
 * worker may forge bytes with the same digest (P1). A home that signed a version asks peers for its
 * proofs, and they count as they fit.
 *
 * Covers: gateway/daemon/copies/home_landing.c gateway/daemon/links/proofs.c */
#include <string.h>

#include "base/proof/version_proof.h"
#include "gateway/arena/arena_proofs.h"
#include "gateway/daemon/copies/home_landing.h"
#include "gateway/daemon/links/proofs.h"
#include "gateway/daemon/sessions/session_grant.h"
#include "gateway/daemon/sessions/session_table.h"
#include "intra/fabric/source_descriptor.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/daemon_worker.h"
#include "tests/unit/daemon/sealed_version.h"

#define CHUNKS 4u

static struct tb_grant_wait asked;
static bool foreign;
static uint32_t opened, told;

enum tb_status __wrap_tb_grant_ask(struct tb_worker_session *owner, struct tb_grant_wait *grant,
                                   const struct tb_fingerprint *reader);
enum tb_status __wrap_tb_grant_ask(struct tb_worker_session *owner, struct tb_grant_wait *grant,
                                   const struct tb_fingerprint *reader)
{
    (void)reader;
    grant->owner = owner->id;
    asked = *grant;
    return TB_OK;
}

enum tb_status __wrap_tb_hop_open(struct tb_fabric *fabric, const struct tb_hop_options *options,
                                  struct tb_hop **hop_out);
enum tb_status __wrap_tb_hop_open(struct tb_fabric *fabric, const struct tb_hop_options *options,
                                  struct tb_hop **hop_out)
{
    (void)fabric;
    foreign = options->foreign;
    opened++;
    *hop_out = (struct tb_hop *)(uintptr_t)&opened; /* open in name only */
    return TB_OK;
}

void __wrap_tb_hop_close_counted(struct tb_hop *hop, struct tb_hop_stats *last_out);
void __wrap_tb_hop_close_counted(struct tb_hop *hop, struct tb_hop_stats *last_out)
{
    (void)hop;
    *last_out = (struct tb_hop_stats){.bytes_read = 0};
}

void __wrap_tb_hop_proofs_came(struct tb_hop *hop);
void __wrap_tb_hop_proofs_came(struct tb_hop *hop)
{
    (void)hop;
    told++;
}

struct scene {
    struct sealed s;
    struct worker *worker;
    struct tb_worker_session *session;
};

static void export_put(struct scene *c, uint32_t shard)
{
    const struct tb_source_shard at = {.shard = 0, .held_offset = SEALED_SHARD_BYTES};
    uint8_t bytes[256];
    struct tb_writer w;
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_source_encode(&at, 1, &w);
    assert_false(w.full);
    const struct tb_worker_export e = {.uid = c->s.made.key.uid, .shard = shard, .export_id = 7};
    CHECK_OK(tb_worker_export_put(c->session, &e, &(struct tb_span){bytes, (uint32_t)w.used}));
}

/* Two of four chunks landed from the rank, and it is gone. */
static void begin(struct scene *c)
{
    memset(c, 0, sizeof *c);
    opened = told = 0;
    sealed_begin_with(&c->s, "{policy: {home: east, read: [\"unix:*\"], publish: [\"unix:*\"]}}", 60000);
    assert_int_equal(c->s.made.list[0]->chunk_count, CHUNKS);
    sealed_land(&c->s, 0, 2);
    c->worker = worker_new(&c->s.home, "w0");
    for (struct tb_worker_session *w = c->s.home.d->sessions; w != NULL; w = w->next)
        if (strcmp(w->name.text, "w0") == 0) c->session = w;
    assert_non_null(c->session);
}

static void end(struct scene *c)
{
    tb_home_landing_stop(c->s.copy);
    worker_free(c->worker);
    sealed_end(&c->s);
}

/* With certificates, as every site that has peers. */
static void land_from(struct scene *c, uint32_t shard)
{
    struct tb_daemon *d = c->s.home.d;
    const struct tb_catalog_todo todo = {.kind = TB_CATALOG_LAND_FROM,
                                         .uid = c->s.made.key.uid,
                                         .shard = shard,
                                         .session = c->session->id,
                                         .export_id = 7};
    export_put(c, shard);
    tb_home_landing_from(d, &todo);
    assert_null(d->tls);
    d->tls = (struct tb_tls *)(uintptr_t)c; /* nothing looks into it */
    asked.answer(d, &asked, TB_OK);
    d->tls = NULL;
    assert_int_equal(opened, 1);
}

static void a_worker_is_not_believed_where_proofs_lack(void **state)
{
    (void)state;
    struct scene c;
    begin(&c);
    land_from(&c, TB_CATALOG_ALL_SHARDS);
    assert_true(foreign);
    assert_int_equal(c.s.home.d->counters.landings_unproven, 1);
    end(&c);
}

static struct tb_manifest *manifest_of(const struct scene *c)
{
    return tb_arena_manifest(c->s.copy->region, 0);
}

static void know(const struct scene *c, struct tb_manifest *m)
{
    for (uint32_t k = 0; k < CHUNKS; k++) {
        struct tb_blake3 proof;
        if (!tb_manifest_proof(manifest_of(c), k, &proof)) proof = tb_blake3_of(&k, sizeof k);
        tb_manifest_set_proof(m, k, &proof);
    }
}

static void a_rank_is_believed_unless_its_publisher_signed(void **state)
{
    (void)state;
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        struct scene c;
        begin(&c);
        if (is_signed) know(&c, manifest_of(&c)); /* as its SEAL brought them */
        land_from(&c, 0);
        assert_int_equal(foreign, is_signed);
        assert_int_equal(c.s.home.d->counters.landings_unproven, 0);
        end(&c);
    }
}

/* They fit what home signed: links look at that before. A home that signed nothing takes none. */
static void a_home_takes_back_the_proofs_that_it_signed(void **state)
{
    (void)state;
    struct scene c;
    begin(&c);
    land_from(&c, TB_CATALOG_ALL_SHARDS);
    struct version *v = &c.s.made;
    know(&c, &v->manifests[0]);
    tb_proofs_take(c.s.copy, 0, v->manifests);
    assert_false(tb_arena_region_proven(c.s.copy->region));
    const struct tb_statement what = tb_statement_of(TB_STATEMENT_VERSION, &v->key);
    const struct tb_identity by = {.kind = TB_IDENTITY_GATEWAY};
    assert_non_null(tb_said_put(&c.s.home.d->said, &what, &by, (const uint8_t *)"said", 4));
    struct tb_place *place = tb_arena_place(c.s.copy->region, 0);
    assert_true(tb_place_claim(place, 3)); /* it is landing, and gets its proof so */
    tb_proofs_take(c.s.copy, 0, v->manifests);
    assert_false(tb_bitmap_test(manifest_of(&c)->proven, 3));
    assert_true(tb_bitmap_test(manifest_of(&c)->proven, 2));
    tb_place_unclaim(place, 3);
    tb_proofs_take(c.s.copy, 0, v->manifests);
    assert_true(tb_arena_region_proven(c.s.copy->region));
    assert_int_equal(told, 2);
    end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_is_not_believed_where_proofs_lack),
        cmocka_unit_test(a_rank_is_believed_unless_its_publisher_signed),
        cmocka_unit_test(a_home_takes_back_the_proofs_that_it_signed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
