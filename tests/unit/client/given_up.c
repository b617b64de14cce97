/* given_up.c - a version is let go and staged anew while answers to the STAGE before are on their
 * way: nothing of them is taken for the new one, and the wire stays (P2, P7).
 *
 * Covers: intra/client/follow/stage_request.c intra/client/follow/staging.c
 * Covers: intra/client/session/request.c */
#include <stdlib.h>
#include <string.h>

#include "unit/client/subscriber.h"

/* Staged, let go and staged anew by a gateway that answers no STAGE. Returns the request of the
 * STAGE that was given up. */
static uint64_t give_up(struct subscriber *w)
{
    FAKE_SET(&w->f, mute[TB_MSG_STAGE], true);
    CHECK_STATUS(tb_stage(w->sub, &w->uid, 0), TB_AGAIN);
    fake_wait_seen(&w->f, TB_MSG_STAGE, 1);
    pthread_mutex_lock(&w->f.lock);
    const uint64_t request = w->f.stage_request;
    pthread_mutex_unlock(&w->f.lock);
    CHECK_OK(tb_release(w->sub, &w->uid));
    CHECK_STATUS(tb_stage(w->sub, &w->uid, 0), TB_AGAIN);
    fake_wait_seen(&w->f, TB_MSG_STAGE, 2);
    return request;
}

/* The session has taken what was said to it so far: WAIT is answered behind it. */
static void heard(struct subscriber *w)
{
    const struct tb_wait_options o = {.struct_bytes = sizeof o, .model = "policy", .timeout_ms = 20000};
    struct tb_version_info info = {.struct_bytes = sizeof info};
    CHECK_OK(tb_wait(w->s, &o, &info));
}

static void staged_after_all(struct subscriber *w)
{
    assert_int_equal(fake_seen(&w->f, TB_MSG_HELLO), 1);
    CHECK_OK(tb_release(w->sub, &w->uid));
    FAKE_SET(&w->f, mute[TB_MSG_STAGE], false);
    CHECK_OK(tb_stage(w->sub, &w->uid, 20000));
    assert_int_equal(fake_seen(&w->f, TB_MSG_HELLO), 1);
}

static void its_answer_is_not_that_of_the_next(void **state)
{
    (void)state;
    struct subscriber w;
    subscriber_open(&w, 2, false);
    const uint64_t request = give_up(&w);
    struct tb_msg_manifests m = {.key = w.v->key, .shard_count = w.v->key.shard_count};
    m.key.uid.bytes[0] ^= 1; /* a staging that takes it, fails */
    uint8_t bytes[1024];
    struct tb_writer writer;
    tb_writer_init(&writer, bytes, sizeof bytes);
    tb_msg_manifests_encode(&m, &writer);
    assert_false(writer.full);
    fake_raw(&w.f, 0, TB_MSG_MANIFESTS, request, bytes, (uint32_t)writer.used);
    heard(&w);
    CHECK_STATUS(tb_stage(w.sub, &w.uid, 0), TB_AGAIN);
    staged_after_all(&w);
    subscriber_close(&w);
}

static void its_manifests_and_plan_do_not_end_the_wire(void **state)
{
    (void)state;
    struct subscriber w;
    subscriber_open(&w, 2, false);
    (void)give_up(&w);
    const struct fake_shard *sh = &w.v->shards[0];
    const struct tb_msg_manifest manifest = {
        .uid = w.v->key.uid,
        .head = {sh->head, sh->head_bytes},
        .digests = {(const uint8_t *)sh->manifest.digests, sh->manifest.chunk_count * TB_DIGEST_BYTES}};
    uint8_t bytes[8192];
    struct tb_writer writer;
    tb_writer_init(&writer, bytes, sizeof bytes);
    tb_msg_manifest_encode(&manifest, &writer);
    assert_false(writer.full);
    fake_raw(&w.f, 0, TB_MSG_MANIFEST, 0, bytes, (uint32_t)writer.used);
    fake_proofs(&w.f, 0, 1);
    fake_plan(&w.f, 0, 1);
    heard(&w);
    staged_after_all(&w);
    subscriber_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_answer_is_not_that_of_the_next),
        cmocka_unit_test(its_manifests_and_plan_do_not_end_the_wire),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
