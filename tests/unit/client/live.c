/* P1 P10: a worker compares the bytes that it computes from with the sealed ones, by chunks or by
 * boxes. A byte that changed is an alarm that names the tensor. A result that says "not
 * provable" says why.
 *
 * Covers: intra/client/live/live_proof.c intra/client/live/live_plan.c
 * Covers: intra/client/live/live_digest.c intra/client/live/prover.c */
#include <stdlib.h>
#include <string.h>

#include "intra/client/follow/staging.h"
#include "intra/client/live/live_plan.h"
#include "intra/client/session/session.h"
#include "unit/client/fake_gateway.h"

#define TENSORS 4u
#define TENSOR  900000u /* bytes: each is several strides of a digest */
#define SMALL   5000u   /* several stand in one chunk */

static const char *const names[TENSORS] = {"t0", "t1", "t2", "t3"};

struct rollout {
    struct fake f;
    struct fake_version *v;
    struct tb_session *s;
    uint64_t bytes; /* of a tensor */
    uint8_t *memory[2][TENSORS];
    struct tb_registration *r[2];
    struct tb_subscription *sub;
    struct tb_uid uid;
};

static void register_tensors(struct rollout *w, uint32_t set, uint32_t first, uint32_t count)
{
    struct tb_tensor_desc list[TENSORS];
    for (uint32_t i = first; i < first + count; i++) {
        w->memory[set][i] = calloc(1, w->bytes);
        list[i - first] = (struct tb_tensor_desc){
            .name = names[i], .dtype = "U8", .rank = 1, .shape = &w->bytes, .memory = w->memory[set][i]};
    }
    CHECK_OK(tb_register(w->s, list, count, &w->r[set]));
}

static void rollout_open(struct rollout *w, uint64_t bytes)
{
    memset(w, 0, sizeof *w);
    fake_open(&w->f);
    w->bytes = bytes;
    w->v = fake_make(&w->f, 1, 2, 2, bytes);
    w->uid = fake_uid(w->v);
    w->s = fake_session_open(&w->f, "w", NULL);
}

static void rollout_close(struct rollout *w)
{
    tb_session_close(w->s);
    fake_close(&w->f);
    for (uint32_t i = 0; i < TENSORS; i++) {
        free(w->memory[0][i]);
        free(w->memory[1][i]);
    }
}

static void subscribe(struct rollout *w, uint32_t update, uint32_t prove)
{
    const struct tb_subscribe_options o = {.struct_bytes = sizeof o,
                                           .member_count = 1,
                                           .model = "policy",
                                           .registration = w->r[0],
                                           .second = w->r[1],
                                           .update = update,
                                           .prove = prove};
    CHECK_OK(tb_subscribe(w->s, &o, &w->sub));
}

static void activate(struct rollout *w, const struct fake_version *v)
{
    const struct tb_uid uid = fake_uid(v);
    if (tb_stage(w->sub, &uid, 20000) != TB_OK) fail_msg("%s", tb_last_error());
    fake_go(&w->f, v->key.number);
    if (tb_activate(w->sub, &uid, NULL) != TB_OK) fail_msg("%s", tb_last_error());
}

static struct tb_msg_proven prove(struct rollout *w)
{
    return fake_prove(&w->f, 0, 1);
}

static void check_why(struct rollout *w, enum tb_msg_unprovable why)
{
    const struct tb_msg_proven m = prove(w);
    assert_int_equal(m.verdict, TB_MSG_PROVEN_NOT);
    assert_int_equal(m.why, why);
}

static struct tb_msg_proven alarm_of(struct rollout *w)
{
    pthread_mutex_lock(&w->f.lock);
    const struct tb_msg_proven m = w->f.alarm;
    pthread_mutex_unlock(&w->f.lock);
    return m;
}

/* By proofs as by digests alone. */
static void a_flipped_byte_is_named(bool no_proofs)
{
    struct rollout w;
    rollout_open(&w, TENSOR);
    FAKE_SET(&w.f, no_proofs, no_proofs);
    register_tensors(&w, 0, 0, TENSORS);
    subscribe(&w, TB_UPDATE_COPY, TB_PROVE_ASKED);
    check_why(&w, TB_MSG_UNPROVABLE_IDLE);
    activate(&w, w.v);
    CHECK_OK(tb_release(w.sub, &w.uid)); /* the buffers are looked at, not the staging */
    struct tb_msg_proven m = prove(&w);
    assert_int_equal(m.verdict, TB_MSG_PROVEN_WHOLE);
    assert_int_equal(m.bytes, TENSORS * TENSOR);
    assert_int_equal(m.box_bytes | m.left_bytes | m.bad, 0);
    assert_memory_equal(m.uid.bytes, w.uid.bytes, sizeof m.uid.bytes);
    assert_int_equal(alarm_of(&w).bad, 0);
    w.memory[0][2][TENSOR - 1] ^= 1;
    m = prove(&w);
    assert_int_equal(m.verdict, TB_MSG_PROVEN_DIFFERS);
    assert_int_equal(m.bad, 1);
    assert_int_equal(m.shard, 1);
    assert_non_null(strstr(m.tensor.text, "t2"));
    assert_string_equal(alarm_of(&w).tensor.text, m.tensor.text); /* before the run's end */
    char text[8192];
    CHECK_OK(tb_status(w.s, "session", text, sizeof text, NULL));
    assert_non_null(strstr(text, "\"verdict\":\"differs\""));
    w.memory[0][2][TENSOR - 1] ^= 1;
    assert_int_equal(prove(&w).verdict, TB_MSG_PROVEN_WHOLE);
    rollout_close(&w);
}

static void whole_tensors_are_proven_and_a_flipped_byte_is_named(void **state)
{
    (void)state;
    a_flipped_byte_is_named(false);
    a_flipped_byte_is_named(true);
}

/* The chunk has both tensors of the shard, and one of them is registered. */
static void a_box_is_proven_by_the_staged_bytes(void **state)
{
    (void)state;
    struct rollout w;
    rollout_open(&w, SMALL);
    register_tensors(&w, 0, 1, 2);
    subscribe(&w, TB_UPDATE_COPY, TB_PROVE_ASKED);
    activate(&w, w.v);
    struct tb_msg_proven m = prove(&w);
    assert_int_equal(m.verdict, TB_MSG_PROVEN_BY_BOX);
    assert_int_equal(m.bytes, 2 * SMALL);
    assert_int_equal(m.box_bytes, 2 * SMALL);
    w.memory[0][1][17] ^= 0x80;
    m = prove(&w);
    assert_int_equal(m.verdict, TB_MSG_PROVEN_DIFFERS);
    assert_string_equal(m.tensor.text, "t1");
    assert_int_equal(m.shard, 0);
    rollout_close(&w);
}

static void a_proof_that_cannot_be_says_why(void **state)
{
    (void)state;
    struct rollout w;
    rollout_open(&w, SMALL);
    register_tensors(&w, 0, 0, TENSORS);
    subscribe(&w, TB_UPDATE_COPY, TB_PROVE_NEVER);
    activate(&w, w.v);
    w.memory[0][0][0] ^= 1; /* the engine repacks: no alarm */
    check_why(&w, TB_MSG_UNPROVABLE_REPACKED);
    assert_int_equal(alarm_of(&w).bad, 0);
    rollout_close(&w);
    rollout_open(&w, SMALL);
    register_tensors(&w, 0, 0, TENSORS);
    subscribe(&w, TB_UPDATE_COPY, TB_PROVE_ASKED);
    activate(&w, w.v);
    CHECK_OK(tb_suspend(w.r[0]));
    check_why(&w, TB_MSG_UNPROVABLE_WRITTEN);
    CHECK_OK(tb_resume(w.r[0], NULL, 0));
    check_why(&w, TB_MSG_UNPROVABLE_WRITTEN);
    activate(&w, w.v);
    assert_int_equal(prove(&w).verdict, TB_MSG_PROVEN_WHOLE);
    rollout_close(&w);
}

static void a_staging_is_proven_until_it_is_released(void **state)
{
    (void)state;
    struct rollout w;
    rollout_open(&w, TENSOR);
    subscribe(&w, TB_UPDATE_COPY, TB_PROVE_ASKED);
    activate(&w, w.v);
    assert_int_equal(prove(&w).verdict, TB_MSG_PROVEN_WHOLE);
    struct tb_item item = {.struct_bytes = sizeof item};
    CHECK_OK(tb_staged_item(w.sub, &w.uid, 1, &item));
    uint8_t *staged = (uint8_t *)(uintptr_t)item.bytes;
    staged[3] ^= 1;
    const struct tb_msg_proven m = prove(&w);
    assert_int_equal(m.verdict, TB_MSG_PROVEN_DIFFERS);
    assert_non_null(strstr(m.tensor.text, item.name));
    CHECK_OK(tb_release(w.sub, &w.uid));
    check_why(&w, TB_MSG_UNPROVABLE_RELEASED);
    rollout_close(&w);
}

/* Behind each activation, and nobody asks. The buffers in use are looked at, of two as of one. */
static void each_activation_is_proven_in_background(void **state)
{
    (void)state;
    static const uint32_t updates[] = {TB_UPDATE_COPY, TB_UPDATE_SWITCH, TB_UPDATE_PATCH};
    for (size_t i = 0; i < sizeof updates / sizeof updates[0]; i++) {
        struct rollout w;
        rollout_open(&w, TENSOR);
        register_tensors(&w, 0, 0, TENSORS);
        if (updates[i] == TB_UPDATE_SWITCH) register_tensors(&w, 1, 0, TENSORS);
        subscribe(&w, updates[i], TB_PROVE_ALWAYS);
        const struct fake_version *v = w.v;
        for (uint64_t number = 1; number <= 3; number++) {
            if (number > 1) v = fake_step(&w.f, number, v, 2);
            activate(&w, v);
            const struct tb_msg_proven m = fake_wait_proven(&w.f, 0);
            assert_int_equal(m.verdict, TB_MSG_PROVEN_WHOLE);
            assert_int_equal(m.bytes, TENSORS * TENSOR);
            assert_memory_equal(m.uid.bytes, v->key.uid.bytes, sizeof m.uid.bytes);
        }
        rollout_close(&w);
    }
}

/* A gateway that forgot all is told again, and with the age of what was found. */
static void a_gateway_that_comes_back_hears_the_last_result(void **state)
{
    (void)state;
    struct rollout w;
    rollout_open(&w, SMALL);
    register_tensors(&w, 0, 0, TENSORS);
    subscribe(&w, TB_UPDATE_COPY, TB_PROVE_ALWAYS);
    activate(&w, w.v);
    assert_int_equal(fake_wait_proven(&w.f, 0).verdict, TB_MSG_PROVEN_WHOLE);
    fake_go_away(&w.f, w.s);
    fake_come_back(&w.f, w.s);
    assert_int_equal(fake_wait_proven(&w.f, 0).verdict, TB_MSG_PROVEN_WHOLE);
    rollout_close(&w);
}

/* A proof that the manifest has takes the digest's place; without it the digest counts. */
static void proofs_count_where_they_are_known(void **state)
{
    (void)state;
    struct rollout w;
    rollout_open(&w, TENSOR);
    FAKE_SET(&w.f, no_proofs, true); /* the test sets one itself */
    subscribe(&w, TB_UPDATE_COPY, TB_PROVE_ASKED);
    CHECK_OK(tb_stage(w.sub, &w.uid, 20000));
    struct tb_staged_shard *sh = &w.s->stagings->shards[0];
    uint32_t bytes;
    const uint8_t *chunk = tb_place_chunk(&sh->place, 0, &bytes);
    assert_false(tb_live_sum_of(&sh->manifest, 0).proof);
    struct tb_blake3 proof = tb_blake3_of(chunk, bytes);
    tb_manifest_set_proof(&sh->manifest, 0, &proof);
    struct tb_live_plan *plan = tb_live_plan_new(w.s->stagings, NULL, NULL);
    assert_non_null(plan);
    assert_true(plan->units[0].sum.proof);
    struct tb_live_sum sum = tb_live_sum_bytes(true, chunk, bytes);
    assert_true(tb_live_sum_equal(&sum, &plan->units[0].sum));
    sum.blake3.bytes[31] ^= 1;
    assert_false(tb_live_sum_equal(&sum, &plan->units[0].sum));
    tb_live_plan_drop(plan);
    rollout_close(&w);
}

static void a_wrong_option_is_refused(void **state)
{
    (void)state;
    struct rollout w;
    rollout_open(&w, SMALL);
    const struct tb_subscribe_options o = {
        .struct_bytes = sizeof o, .member_count = 1, .model = "policy", .prove = 3};
    CHECK_STATUS(tb_subscribe(w.s, &o, &w.sub), TB_BAD_ARGUMENT);
    rollout_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_tensors_are_proven_and_a_flipped_byte_is_named),
        cmocka_unit_test(a_box_is_proven_by_the_staged_bytes),
        cmocka_unit_test(a_proof_that_cannot_be_says_why),
        cmocka_unit_test(a_staging_is_proven_until_it_is_released),
        cmocka_unit_test(each_activation_is_proven_in_background),
        cmocka_unit_test(a_gateway_that_comes_back_hears_the_last_result),
        cmocka_unit_test(proofs_count_where_they_are_known),
        cmocka_unit_test(a_wrong_option_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
