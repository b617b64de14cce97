/* foreign.c - a worker reads from another worker: it asks for a chunk once its gateway has told the
 * chunk's proof, and refuses bytes that have another, whatever their digest is (P1).
 *
 * Covers: intra/client/follow/staging_fill.c intra/client/session/notices.c */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/forged_chunk.h"
#include "unit/client/fake_gateway.h"

#define TENSOR 100000u

/* Session 0 has version 1, and session 1 is to read it from there. */
struct pair {
    struct fake f;
    struct fake_version *v;
    struct tb_uid uid;
    struct tb_session *sessions[2];
    struct tb_subscription *subs[2];
};

static void subscribe(struct pair *p, uint32_t i, const char *name)
{
    const struct tb_subscribe_options o = {.struct_bytes = sizeof o, .member_count = 1, .model = "policy"};
    p->sessions[i] = fake_session_open(&p->f, name, "one-host");
    CHECK_OK(tb_subscribe(p->sessions[i], &o, &p->subs[i]));
}

static void pair_open(struct pair *p)
{
    memset(p, 0, sizeof *p);
    fake_open(&p->f);
    p->v = fake_make(&p->f, 1, 2, 2, TENSOR);
    p->uid = fake_uid(p->v);
    FAKE_SET(&p->f, chain, true);
    subscribe(p, 0, "a");
    CHECK_OK(tb_stage(p->subs[0], &p->uid, 20000));
    subscribe(p, 1, "b");
}

static void pair_close(struct pair *p)
{
    tb_session_close(p->sessions[1]);
    tb_session_close(p->sessions[0]);
    fake_close(&p->f);
}

static uint8_t *staged_bytes(const struct pair *p, uint32_t i)
{
    struct tb_item item = {.struct_bytes = sizeof item};
    CHECK_OK(tb_staged_item(p->subs[i], &p->uid, 0, &item));
    return (uint8_t *)(uintptr_t)item.bytes; /* which the library shows read-only */
}

/* Behind the other's, until the gateway knows them. */
static void a_worker_waits_for_proofs_that_come_late(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    FAKE_SET(&p.f, no_proofs, true);
    CHECK_STATUS(tb_stage(p.subs[1], &p.uid, 300), TB_AGAIN);
    assert_non_null(strstr(tb_last_error(), ": 0 of"));
    fake_proofs(&p.f, 1, 1);
    fake_proofs(&p.f, 1, 1); /* P4: told again */
    CHECK_OK(tb_stage(p.subs[1], &p.uid, 20000));
    assert_memory_equal(staged_bytes(&p, 1), p.v->shards[0].bytes, TENSOR);
    pair_close(&p);
}

/* From its gateway nothing waits for them. */
static void a_worker_believes_its_gateway(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    FAKE_SET(&p.f, no_proofs, true);
    FAKE_SET(&p.f, chain, false);
    CHECK_OK(tb_stage(p.subs[1], &p.uid, 20000));
    pair_close(&p);
}

static void a_forged_chunk_is_refused_and_comes_from_elsewhere(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    const struct fake_shard *sh = &p.v->shards[0];
    forge_chunk(staged_bytes(&p, 0), sh->manifest.chunks[0].bytes, 0x3f);
    assert_memory_not_equal(staged_bytes(&p, 0), sh->bytes, TENSOR);
    CHECK_STATUS(tb_stage(p.subs[1], &p.uid, 0), TB_AGAIN);
    fake_wait_seen(&p.f, TB_MSG_CHUNK_BAD, 1);
    FAKE_SET(&p.f, chain, false);
    fake_plan(&p.f, 1, 1);
    CHECK_OK(tb_stage(p.subs[1], &p.uid, 20000));
    assert_memory_equal(staged_bytes(&p, 1), sh->bytes, TENSOR);
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_waits_for_proofs_that_come_late),
        cmocka_unit_test(a_worker_believes_its_gateway),
        cmocka_unit_test(a_forged_chunk_is_refused_and_comes_from_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
