/* hostile.c - a gateway that lies: every frame is bounded before it is believed; the session drops
 * the wire and comes back (P7, P10).
 *
 * Covers: intra/client/session/notices.c intra/client/session/connection.c
 * Covers: intra/client/follow/staging.c intra/client/follow/staging_fill.c */
#include <stdlib.h>
#include <string.h>

#include "unit/client/subscriber.h"

static uint32_t session_index(struct fake *f)
{
    uint32_t index = 0;
    pthread_mutex_lock(&f->lock);
    while (!f->sessions[index].welcomed)
        index = (index + 1) % FAKE_SESSIONS_MAX;
    pthread_mutex_unlock(&f->lock);
    return index;
}

/* The wire breaks, and a new HELLO comes. */
static void expect_dropped(struct fake *f, uint16_t type, uint64_t request, const void *bytes, uint32_t count)
{
    const uint32_t hellos = fake_seen(f, TB_MSG_HELLO);
    pthread_mutex_lock(&f->lock);
    const uint32_t subscribed = f->seen[TB_MSG_SUBSCRIBE];
    pthread_mutex_unlock(&f->lock);
    fake_raw(f, session_index(f), type, request, bytes, count);
    fake_wait_seen(f, TB_MSG_HELLO, hellos + 1);
    fake_wait_seen(f, TB_MSG_SUBSCRIBE, subscribed + 1);
}

static void noise_of_every_type_drops_the_wire(void **state)
{
    (void)state;
    struct subscriber w;
    subscriber_open(&w, 2, false);
    uint8_t noise[40];
    memset(noise, 0xee, sizeof noise);
    const uint16_t types[] = {TB_MSG_MANIFEST, TB_MSG_PLAN,          TB_MSG_GRANT, TB_MSG_GO,
                              TB_MSG_PROOFS,   TB_MSG_VERSION_STATE, TB_MSG_HELLO, 999};
    for (uint32_t i = 0; i < sizeof types / sizeof types[0]; i++)
        expect_dropped(&w.f, types[i], 0, noise, sizeof noise);
    CHECK_OK(tb_stage(w.sub, &w.uid, 20000)); /* and it works as before */
    subscriber_close(&w);
}

static void no_status_is_no_answer(void **state)
{
    (void)state;
    struct subscriber w;
    subscriber_open(&w, 2, false);
    struct tb_msg_version_state m = {.status_negated = 12345};
    memcpy(m.uid.bytes, w.uid.bytes, 16);
    uint8_t bytes[64];
    struct tb_writer writer;
    tb_writer_init(&writer, bytes, sizeof bytes);
    tb_msg_version_state_encode(&m, &writer);
    expect_dropped(&w.f, TB_MSG_VERSION_STATE, 0, bytes, (uint32_t)writer.used);
    subscriber_close(&w);
}

static void answers_to_nobody_are_dropped_quietly(void **state)
{
    (void)state;
    struct subscriber w;
    subscriber_open(&w, 2, false);
    uint8_t noise[40] = {0};
    fake_raw(&w.f, session_index(&w.f), TB_MSG_REPLY, 0xffffffffffull, noise, sizeof noise);
    CHECK_OK(tb_stage(w.sub, &w.uid, 20000));
    assert_int_equal(fake_seen(&w.f, TB_MSG_HELLO), 1);
    subscriber_close(&w);
}

/* P1: manifests that do not hash to the root are not staged. */
static void a_wrong_root_is_refused(void **state)
{
    (void)state;
    struct subscriber w;
    subscriber_open(&w, 2, false);
    FAKE_SET(&w.f, garble_root, true);
    CHECK_STATUS(tb_stage(w.sub, &w.uid, 20000), TB_PEER_GARBLED);
    assert_non_null(strstr(tb_last_error(), "root"));
    FAKE_SET(&w.f, garble_root, false);
    CHECK_OK(tb_stage(w.sub, &w.uid, 20000));
    subscriber_close(&w);
}

static void a_source_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    struct subscriber w;
    subscriber_open(&w, 2, false);
    FAKE_SET(&w.f, bad_source, true);
    CHECK_STATUS(tb_stage(w.sub, &w.uid, 2000), TB_PEER_GARBLED);
    FAKE_SET(&w.f, bad_source, false);
    CHECK_OK(tb_stage(w.sub, &w.uid, 20000));
    subscriber_close(&w);
}

static void send_manifest(struct subscriber *w, uint32_t shard, uint32_t digest_bytes)
{
    const struct fake_shard *sh = &w->v->shards[0];
    uint8_t bytes[8192];
    struct tb_writer writer;
    tb_writer_init(&writer, bytes, sizeof bytes);
    struct tb_msg_manifest m = {.shard = shard,
                                .head = {sh->head, sh->head_bytes},
                                .digests = {(const uint8_t *)sh->manifest.digests, digest_bytes}};
    memcpy(m.uid.bytes, w->uid.bytes, 16);
    tb_msg_manifest_encode(&m, &writer);
    assert_false(writer.full);
    expect_dropped(&w->f, TB_MSG_MANIFEST, 0, bytes, (uint32_t)writer.used);
}

static void manifests_out_of_bounds_drop_the_wire(void **state)
{
    (void)state;
    struct subscriber w;
    subscriber_open(&w, 2, false);
    FAKE_SET(&w.f, no_plan, true);
    CHECK_STATUS(tb_stage(w.sub, &w.uid, 100), TB_AGAIN);
    send_manifest(&w, w.v->key.shard_count, 16);
    subscriber_close(&w);
}

/* `count` bytes of proofs of shard 0, of which the first chunk has this one. */
static void send_proofs(struct subscriber *w, struct tb_msg_proofs m, uint32_t count, uint8_t first)
{
    uint8_t proofs[3 * TB_BLAKE3_BYTES] = {first}, bytes[512];
    struct tb_writer writer;
    tb_writer_init(&writer, bytes, sizeof bytes);
    m.proofs = (struct tb_span){proofs, count};
    memcpy(m.uid.bytes, w->uid.bytes, 16);
    tb_msg_proofs_encode(&m, &writer);
    assert_true(!writer.full && count <= sizeof proofs);
    expect_dropped(&w->f, TB_MSG_PROOFS, 0, bytes, (uint32_t)writer.used);
}

/* P1 P7: of shards and chunks that are not there, half a proof, none, and one that is another than
 * before. */
static void proofs_out_of_bounds_drop_the_wire(void **state)
{
    (void)state;
    struct subscriber w;
    subscriber_open(&w, 2, false);
    CHECK_OK(tb_stage(w.sub, &w.uid, 20000));
    const uint32_t chunks = w.v->shards[0].manifest.chunk_count;
    assert_in_range(chunks, 1, 2);
    send_proofs(&w, (struct tb_msg_proofs){.shard = 2}, TB_BLAKE3_BYTES, 1);
    send_proofs(&w, (struct tb_msg_proofs){.first = chunks}, TB_BLAKE3_BYTES, 1);
    send_proofs(&w, (struct tb_msg_proofs){.first = UINT32_MAX}, TB_BLAKE3_BYTES, 1);
    send_proofs(&w, (struct tb_msg_proofs){.first = chunks - 1}, 2 * TB_BLAKE3_BYTES, 1);
    send_proofs(&w, (struct tb_msg_proofs){.first = 0}, TB_BLAKE3_BYTES - 1, 1);
    send_proofs(&w, (struct tb_msg_proofs){.first = 0}, 0, 1);
    send_proofs(&w, (struct tb_msg_proofs){.first = 0}, TB_BLAKE3_BYTES, 1);
    CHECK_OK(tb_stage(w.sub, &w.uid, 20000));
    subscriber_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(noise_of_every_type_drops_the_wire),
        cmocka_unit_test(no_status_is_no_answer),
        cmocka_unit_test(answers_to_nobody_are_dropped_quietly),
        cmocka_unit_test(a_wrong_root_is_refused),
        cmocka_unit_test(a_source_that_does_not_fit_is_refused),
        cmocka_unit_test(manifests_out_of_bounds_drop_the_wire),
        cmocka_unit_test(proofs_out_of_bounds_drop_the_wire),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
