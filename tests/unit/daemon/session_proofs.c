/* session_proofs.c - proofs of a version's chunks go to each worker that stages it, as they become
 * known here: once each, and all of them to a worker that comes later (P1).
 *
 * Covers: gateway/daemon/sessions/session_proofs.c gateway/daemon/sessions/session_plan.c */
#include <string.h>

#include "gateway/arena/arena_regions.h"
#include "gateway/daemon/copies/copies.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/daemon_worker.h"
#include "tests/unit/daemon/sealed_version.h"

#define CHUNKS 4u

struct reader {
    struct worker *worker;
    uint32_t told[CHUNKS]; /* how often */
};

static struct tb_manifest *manifest_of(const struct sealed *s)
{
    return (struct tb_manifest *)(uintptr_t)tb_arena_place(s->copy->region, 0)->manifest;
}

static void know(const struct sealed *s, uint32_t k)
{
    const struct tb_manifest *m = manifest_of(s);
    const struct tb_blake3 proof =
        tb_blake3_of(tb_arena_place(s->copy->region, 0)->bytes + m->chunks[k].offset, m->chunks[k].bytes);
    tb_manifest_set_proof(manifest_of(s), k, &proof);
}

static void subscribe(struct worker *w)
{
    const uint64_t request = worker_request(w);
    struct tb_msg_subscribe m = {.subscription = 1, .member_count = 1};
    CHECK_OK(tb_name_set(&m.model, "policy"));
    CHECK_OK(tb_name_set(&m.group, w->home->d->session_count == 1 ? "one" : "two"));
    tb_msg_subscribe_encode(&m, worker_begin(w, TB_MSG_SUBSCRIBE, request, 4096));
    worker_send(w);
    CHECK_OK(worker_reply(w, request));
}

static void stage(struct reader *r, struct sealed *s, const char *name)
{
    struct tb_reader answer;
    memset(r, 0, sizeof *r);
    r->worker = worker_new(&s->home, name);
    subscribe(r->worker);
    const uint64_t request = worker_request(r->worker);
    const struct tb_msg_stage m = {.subscription = 1, .uid = s->made.key.uid};
    tb_msg_stage_encode(&m, worker_begin(r->worker, TB_MSG_STAGE, request, 256));
    worker_send(r->worker);
    assert_int_equal(worker_answer(r->worker, request, &answer), TB_MSG_MANIFESTS);
    assert_int_equal(worker_answer(r->worker, 0, &answer), TB_MSG_MANIFEST); /* no proof before it */
}

/* Listens to notices until that chunk's proof has come. */
static void hear(struct reader *r, const struct sealed *s, uint32_t chunk)
{
    struct tb_reader payload;
    struct tb_msg_proofs m;
    while (r->told[chunk] == 0) {
        if (worker_answer(r->worker, 0, &payload) != TB_MSG_PROOFS) continue;
        CHECK_OK(tb_msg_proofs_decode(&payload, &m));
        assert_true(tb_id_equal(&m.uid, &s->made.key.uid) && m.shard == 0);
        const uint32_t count = m.proofs.count / TB_BLAKE3_BYTES;
        assert_true(count > 0 && m.first < CHUNKS && count <= CHUNKS - m.first);
        for (uint32_t i = 0; i < count; i++) {
            struct tb_blake3 right;
            assert_true(tb_manifest_proof(manifest_of(s), m.first + i, &right));
            assert_memory_equal(m.proofs.bytes + (size_t)i * TB_BLAKE3_BYTES, right.bytes, TB_BLAKE3_BYTES);
            r->told[m.first + i]++;
        }
    }
}

static void begin(struct sealed *s)
{
    sealed_begin_with(s, "{policy: {home: east, read: [\"unix:*\"]}}", 60000);
    assert_int_equal(s->made.list[0]->chunk_count, CHUNKS);
    sealed_land(s, 0, CHUNKS);
    (void)tb_copies_tick(s->home.d);
    tb_daemon_turn(s->home.d);
}

static void proofs_go_to_each_that_stages(void **state)
{
    (void)state;
    struct sealed s;
    struct reader early, late;
    begin(&s);
    stage(&early, &s, "early");
    know(&s, 0);
    know(&s, 2);
    hear(&early, &s, 0);
    hear(&early, &s, 2);
    stage(&late, &s, "late");
    hear(&late, &s, 0);
    hear(&late, &s, 2);
    know(&s, 1);
    know(&s, 3);
    for (uint32_t k = 0; k < CHUNKS; k++) {
        hear(&early, &s, k);
        hear(&late, &s, k);
    }
    for (uint32_t k = 0; k < CHUNKS; k++)
        assert_true(early.told[k] == 1 && late.told[k] == 1);
    worker_free(late.worker);
    worker_free(early.worker);
    sealed_end(&s);
}

/* ---- plans ---- */

static void export_all(struct worker *w, const struct sealed *s)
{
    const struct tb_msg_export m = {.uid = s->made.key.uid,
                                    .export_id = 7,
                                    .held_chunks = CHUNKS,
                                    .whole = true,
                                    .source = {(const uint8_t *)"x", 1}};
    tb_msg_export_encode(&m, worker_begin(w, TB_MSG_EXPORT, 0, 4096));
    worker_send(w);
    worker_sync(w);
}

/* GRANT is answered, if there is one by now. */
static void answer_grants(struct worker *w)
{
    const uint64_t request = worker_request(w);
    const struct tb_msg_unsubscribe none = {.subscription = 4711};
    struct tb_reader r;
    struct tb_msg_grant grant = {.export_id = 0};
    tb_msg_unsubscribe_encode(&none, worker_begin(w, TB_MSG_UNSUBSCRIBE, request, 64));
    worker_send(w);
    uint16_t type;
    while ((type = worker_notice(w, request, &r)) != TB_MSG_REPLY) {
        if (type != TB_MSG_GRANT) continue;
        CHECK_OK(tb_msg_grant_decode(&r, &grant));
        const struct tb_msg_granted m = {.token = grant.token};
        tb_msg_granted_encode(&m, worker_begin(w, TB_MSG_GRANTED, 0, 256));
        worker_send(w);
    }
}

static struct tb_msg_plan next_plan(struct worker *w, struct worker *grants)
{
    struct tb_reader r;
    struct tb_msg_plan m = {.plan = 0};
    while (w->plans == 0) {
        answer_grants(grants);
        worker_sync(w);
    }
    w->plans = 0;
    tb_reader_init(&r, w->plan, w->plan_bytes);
    CHECK_OK(tb_msg_plan_decode(&r, &m));
    return m;
}

static void lose(struct worker *w, const struct tb_msg_plan *plan)
{
    const struct tb_msg_hop_lost m = {.uid = plan->uid, .plan = plan->plan};
    tb_msg_hop_lost_encode(&m, worker_begin(w, TB_MSG_HOP_LOST, 0, 256));
    worker_send(w);
}

/* The gateway is believed, and another worker is not. On a busy machine that worker may have been
 * asked in vain, and then the gateway is planned: its reader loses that plan. */
static void a_plan_says_which_source_not_to_believe(void **state)
{
    (void)state;
    struct sealed s;
    struct reader early, late;
    begin(&s);
    stage(&early, &s, "early");
    const struct tb_msg_plan first = next_plan(early.worker, early.worker);
    assert_string_equal(first.source_name.text, "gw");
    assert_false(first.foreign);
    export_all(early.worker, &s);
    stage(&late, &s, "late");
    struct tb_msg_plan plan = next_plan(late.worker, early.worker);
    for (; strcmp(plan.source_name.text, "early") != 0; plan = next_plan(late.worker, early.worker)) {
        assert_false(plan.foreign);
        lose(late.worker, &plan);
    }
    assert_true(plan.foreign);
    worker_free(late.worker);
    worker_free(early.worker);
    sealed_end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proofs_go_to_each_that_stages),
        cmocka_unit_test(a_plan_says_which_source_not_to_believe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
