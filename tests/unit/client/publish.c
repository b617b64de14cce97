/* publish.c - what a rank seals is what a reader of its export lands, in every mode; and what a
 * retry, a thief and a full shadow get.
 *
 * Covers: intra/client/publish/publish.c intra/client/publish/publication_messages.c
 * Covers: intra/client/publish/shadow_claim.c */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "unit/client/fake_gateway.h"

#define BIG   3000000u /* BF16 elements: chunks that are parts of it */
#define SMALL 1000u

struct rank {
    struct fake f;
    struct tb_session *s;
    uint8_t *big, *small;
    void *mapped; /* big, when it stands in memory of tb_buffer_new */
    struct tb_registration *r;
    struct tb_run_info run;
};

static void fill(struct rank *k, uint64_t seed)
{
    for (uint32_t i = 0; i < BIG * 2; i++)
        k->big[i] = (uint8_t)(check_random(&seed) & 0x0f); /* zstd gets below it */
    for (uint32_t i = 0; i < SMALL; i++)
        k->small[i] = (uint8_t)check_random(&seed);
}

static void rank_open(struct rank *k, bool mapped)
{
    memset(k, 0, sizeof *k);
    fake_open(&k->f);
    k->s = fake_session_open(&k->f, "rank0", "host-a");
    if (mapped) {
        CHECK_OK(tb_buffer_new(k->s, BIG * 2, &k->mapped));
        k->big = k->mapped;
    } else {
        k->big = malloc(BIG * 2);
    }
    k->small = malloc(SMALL);
    const uint64_t big_shape[] = {3, BIG / 3}, small_shape[] = {SMALL};
    const struct tb_tensor_desc tensors[] = {
        {.name = "model.small", .dtype = "U8", .rank = 1, .shape = small_shape, .memory = k->small},
        {.name = "model.big", .dtype = "BF16", .rank = 2, .shape = big_shape, .memory = k->big}};
    CHECK_OK(tb_register(k->s, tensors, 2, &k->r));
    k->run.struct_bytes = sizeof k->run;
    CHECK_OK(tb_run_open(k->s, "policy", "key-1", &k->run));
    fill(k, 1);
}

static void rank_close(struct rank *k)
{
    if (k->s != NULL) tb_session_close(k->s);
    if (k->mapped == NULL) free(k->big);
    free(k->small);
    fake_close(&k->f);
}

static const struct tb_blob_desc blobs[] = {{"config.json", "{\"a\":1}", 7}, {"sub/tokenizer", "tok", 3}};

static struct tb_publish_options options_of(struct rank *k, uint64_t number, uint32_t mode, const char *codec)
{
    return (struct tb_publish_options){.struct_bytes = sizeof(struct tb_publish_options),
                                       .mode = mode,
                                       .model = "policy",
                                       .run = &k->run.run,
                                       .number = number,
                                       .shard_count = 1,
                                       .registration = k->r,
                                       .blobs = blobs,
                                       .blob_count = 2,
                                       .codec = codec,
                                       .timeout_ms = 5000};
}

static int publish(struct rank *k, uint64_t number, uint32_t mode, const char *codec,
                   struct tb_publish_info *info)
{
    struct tb_publish_info unused;
    if (info == NULL) info = &unused;
    memset(info, 0, sizeof *info);
    info->struct_bytes = sizeof *info;
    const struct tb_publish_options o = options_of(k, number, mode, codec);
    return tb_publish(k->s, &o, info);
}

/* BF16 stands before U8 in packed order, blobs behind. */
static void check_landed(struct rank *k, uint64_t number)
{
    const struct fake_version *v = fake_version(&k->f, number);
    const uint8_t *at = v->shards[0].bytes;
    assert_int_equal(v->shards[0].manifest.bytes, BIG * 2 + SMALL + 10);
    assert_memory_equal(at, k->big, BIG * 2);
    assert_memory_equal(at + BIG * 2, k->small, SMALL);
    assert_memory_equal(at + BIG * 2 + SMALL, "{\"a\":1}tok", 10);
}

static void check_mode(bool mapped, uint32_t mode, const char *codec)
{
    struct rank k;
    rank_open(&k, mapped);
    struct tb_publish_info info;
    if (publish(&k, 1, mode, codec, &info) != TB_OK) fail_msg("%s", tb_last_error());
    assert_int_equal(info.bytes, BIG * 2 + SMALL + 10);
    assert_int_equal(info.chunk_count, fake_version(&k.f, 1)->shards[0].manifest.chunk_count);
    if (codec != NULL)
        assert_true(info.encoded_bytes < info.bytes * 3 / 4);
    else
        assert_int_equal(info.encoded_bytes, info.bytes);
    assert_true((info.hold_ns > 0) == (mode == TB_PUBLISH_SHADOW));
    fake_land(&k.f, 1);
    check_landed(&k, 1);
    rank_close(&k);
}

/* P1 */
static void a_shadow_is_read_bit_exact(void **state)
{
    (void)state;
    check_mode(false, TB_PUBLISH_SHADOW, NULL);
}

static void in_place_memory_of_the_caller_is_read_bit_exact(void **state)
{
    (void)state;
    check_mode(false, TB_PUBLISH_IN_PLACE, NULL);
}

static void in_place_memory_of_ours_is_read_bit_exact(void **state)
{
    (void)state;
    check_mode(true, TB_PUBLISH_IN_PLACE, NULL);
}

static void encoded_chunks_are_read_bit_exact(void **state)
{
    (void)state;
    check_mode(false, TB_PUBLISH_SHADOW, "zstd");
    check_mode(true, TB_PUBLISH_IN_PLACE, "zstd");
}

/* The caller's bytes are its own when the call returns: what is read later is what was sealed. */
static void writing_after_a_shadow_changes_nothing(void **state)
{
    (void)state;
    struct rank k;
    rank_open(&k, false);
    CHECK_OK(publish(&k, 1, TB_PUBLISH_SHADOW, NULL, NULL));
    fill(&k, 2);
    fake_land(&k.f, 1);
    assert_memory_not_equal(fake_version(&k.f, 1)->shards[0].bytes, k.big, BIG * 2);
    fill(&k, 1);
    check_landed(&k, 1);
    rank_close(&k);
}

/* The twin: in place, they are not, and a reader finds out (P1). */
static void writing_in_place_is_found_out(void **state)
{
    (void)state;
    struct rank k;
    rank_open(&k, true);
    CHECK_OK(publish(&k, 1, TB_PUBLISH_IN_PLACE, NULL, NULL));
    k.big[12345] ^= 1;
    struct fake_version *v = fake_version(&k.f, 1);
    (void)v;
    uint32_t bad = 0;
    for (uint32_t i = 0; i < v->shards[0].manifest.chunk_count; i++) {
        const struct tb_chunk *c = &v->shards[0].manifest.chunks[i];
        if (c->offset + c->bytes > BIG * 2) continue;
        const struct tb_digest d = tb_digest_of(k.big + c->offset, c->bytes);
        bad += !tb_digest_equal(&d, &v->shards[0].manifest.digests[i]);
    }
    assert_int_equal(bad, 1);
    rank_close(&k);
}

/* P4 */
static void the_same_bytes_again_are_done_and_others_refused(void **state)
{
    (void)state;
    struct rank k;
    rank_open(&k, false);
    struct tb_publish_info first, again;
    CHECK_OK(publish(&k, 1, TB_PUBLISH_SHADOW, NULL, &first));
    CHECK_OK(publish(&k, 1, TB_PUBLISH_SHADOW, NULL, &again));
    assert_memory_equal(&first.uid, &again.uid, sizeof first.uid);
    k.big[BIG] ^= 1;
    CHECK_STATUS(publish(&k, 1, TB_PUBLISH_SHADOW, NULL, NULL), TB_CONFLICT);
    assert_non_null(strstr(tb_last_error(), "chunk"));
    k.big[BIG] ^= 1;
    fake_land(&k.f, 1);
    check_landed(&k, 1);
    rank_close(&k);
}

/* Another rank of the same shard sealed other bytes: the gateway's refusal leaves
 * nothing exported. */
static void a_refused_seal_leaves_nothing(void **state)
{
    (void)state;
    struct rank k;
    rank_open(&k, false);
    FAKE_SET(&k.f, refuse[TB_MSG_SEAL], TB_CONFLICT);
    CHECK_STATUS(publish(&k, 1, TB_PUBLISH_SHADOW, NULL, NULL), TB_CONFLICT);
    char text[4096];
    uint64_t needed;
    CHECK_OK(tb_status(k.s, "session", text, sizeof text, &needed));
    assert_non_null(strstr(text, "\"published\":[]"));
    rank_close(&k);
}

static void a_silent_gateway_is_a_timeout_and_a_retry_succeeds(void **state)
{
    (void)state;
    struct rank k;
    rank_open(&k, false);
    FAKE_SET(&k.f, mute[TB_MSG_SEAL], true);
    struct tb_publish_options o = options_of(&k, 1, TB_PUBLISH_SHADOW, NULL);
    o.timeout_ms = 300;
    CHECK_STATUS(tb_publish(k.s, &o, NULL), TB_TIMEOUT);
    FAKE_SET(&k.f, mute[TB_MSG_SEAL], false);
    CHECK_OK(publish(&k, 1, TB_PUBLISH_SHADOW, NULL, NULL));
    fake_land(&k.f, 1);
    check_landed(&k, 1);
    rank_close(&k);
}

static void an_older_run_is_fenced(void **state)
{
    (void)state;
    struct rank k;
    rank_open(&k, false);
    struct tb_run_info newer = {.struct_bytes = sizeof newer};
    CHECK_OK(tb_run_open(k.s, "policy", "key-2", &newer));
    assert_int_equal(newer.joined, 0);
    CHECK_STATUS(publish(&k, 1, TB_PUBLISH_SHADOW, NULL, NULL), TB_FENCED);
    CHECK_STATUS(tb_run_open(k.s, "policy", "key-1", &newer), TB_FENCED);
    rank_close(&k);
}

/* P7: two shadows, and a third version waits for the oldest to be kept. */
static void a_third_shadow_waits_for_the_oldest(void **state)
{
    (void)state;
    struct rank k;
    rank_open(&k, false);
    CHECK_OK(publish(&k, 1, TB_PUBLISH_SHADOW, NULL, NULL));
    fill(&k, 2);
    CHECK_OK(publish(&k, 2, TB_PUBLISH_SHADOW, NULL, NULL));
    fill(&k, 3);
    struct tb_publish_options o = options_of(&k, 3, TB_PUBLISH_SHADOW, NULL);
    o.timeout_ms = 300;
    do /* a busy machine may need all of that for what comes before */
        CHECK_STATUS(tb_publish(k.s, &o, NULL), TB_TIMEOUT);
    while (strstr(tb_last_error(), "shadows") == NULL);
    fill(&k, 1);
    fake_land(&k.f, 1);
    check_landed(&k, 1);
    fill(&k, 3);
    CHECK_OK(publish(&k, 3, TB_PUBLISH_SHADOW, NULL, NULL));
    fake_wait_seen(&k.f, TB_MSG_UNPUBLISH, 1); /* the first one's reference is taken back */
    fake_land(&k.f, 3);
    check_landed(&k, 3);
    fill(&k, 2);
    fake_land(&k.f, 2);
    check_landed(&k, 2);
    rank_close(&k);
}

/* A version that failed gives its shadow back too. */
static void a_lost_version_frees_its_shadow(void **state)
{
    (void)state;
    struct rank k;
    rank_open(&k, false);
    CHECK_OK(publish(&k, 1, TB_PUBLISH_SHADOW, NULL, NULL));
    CHECK_OK(publish(&k, 2, TB_PUBLISH_SHADOW, NULL, NULL));
    fake_state(&k.f, 1, TB_VERSION_LOST);
    CHECK_OK(publish(&k, 3, TB_PUBLISH_SHADOW, NULL, NULL));
    rank_close(&k);
}

static void unpublish_ends_the_export(void **state)
{
    (void)state;
    struct rank k;
    rank_open(&k, true);
    struct tb_publish_info info;
    CHECK_OK(publish(&k, 1, TB_PUBLISH_IN_PLACE, NULL, &info));
    fake_land(&k.f, 1);
    CHECK_OK(tb_unpublish(k.s, &info.uid, 100));
    assert_true(fake_read(&k.f, fake_version(&k.f, 1), 0) != TB_OK);
    CHECK_OK(tb_unregister(k.r));
    CHECK_OK(tb_buffer_free(k.s, k.mapped));
    k.big = NULL;
    rank_close(&k);
}

static void a_timed_out_unpublish_keeps_the_reference(void **state)
{
    (void)state;
    struct rank k;
    rank_open(&k, true);
    struct tb_publish_info info;
    CHECK_OK(publish(&k, 1, TB_PUBLISH_IN_PLACE, NULL, &info));
    FAKE_SET(&k.f, refuse[TB_MSG_UNPUBLISH], TB_TIMEOUT);
    CHECK_STATUS(tb_unpublish(k.s, &info.uid, 100), TB_TIMEOUT);
    fake_land(&k.f, 1);
    check_landed(&k, 1);
    rank_close(&k);
}

/* P3, P4: a gateway that forgot everything hears it all again, and reads what was sealed. */
static void a_restarted_gateway_hears_the_seal_again(void **state)
{
    (void)state;
    struct rank k;
    rank_open(&k, false);
    CHECK_OK(publish(&k, 1, TB_PUBLISH_SHADOW, NULL, NULL));
    const uint32_t runs = fake_seen(&k.f, TB_MSG_RUN_OPEN), seals = fake_seen(&k.f, TB_MSG_SEAL);
    fake_go_away(&k.f, k.s);
    struct tb_publish_options o = options_of(&k, 2, TB_PUBLISH_SHADOW, NULL);
    o.timeout_ms = 200;
    CHECK_STATUS(tb_publish(k.s, &o, NULL), TB_GATEWAY_AWAY);
    assert_non_null(strstr(tb_last_error(), "away"));
    fake_away(&k.f, false);
    fake_wait_seen(&k.f, TB_MSG_RUN_OPEN, runs + 1);
    fake_wait_seen(&k.f, TB_MSG_SEAL, seals + 1);
    fake_land(&k.f, 1);
    check_landed(&k, 1);
    CHECK_OK(publish(&k, 2, TB_PUBLISH_SHADOW, NULL, NULL));
    rank_close(&k);
}

/* Where only the wire broke, seals are not sent again. */
static void a_known_session_goes_on(void **state)
{
    (void)state;
    struct rank k;
    rank_open(&k, false);
    FAKE_SET(&k.f, remember, true);
    CHECK_OK(publish(&k, 1, TB_PUBLISH_SHADOW, NULL, NULL));
    fake_away(&k.f, true);
    fake_away(&k.f, false);
    CHECK_OK(publish(&k, 2, TB_PUBLISH_SHADOW, NULL, NULL));
    assert_int_equal(fake_seen(&k.f, TB_MSG_SEAL), 2);
    rank_close(&k);
}

static void impossible_values_are_refused(void **state)
{
    (void)state;
    struct rank k;
    rank_open(&k, false);
    struct tb_publish_options o = options_of(&k, 1, TB_PUBLISH_SHADOW, "lz4");
    CHECK_STATUS(tb_publish(k.s, &o, NULL), TB_BAD_ARGUMENT);
    o = options_of(&k, 1, 7, NULL);
    CHECK_STATUS(tb_publish(k.s, &o, NULL), TB_BAD_ARGUMENT);
    o = options_of(&k, 1, 0, NULL);
    o.shard_index = 1;
    CHECK_STATUS(tb_publish(k.s, &o, NULL), TB_BAD_ARGUMENT);
    o = options_of(&k, 1, 0, NULL);
    o.struct_bytes = 8;
    CHECK_STATUS(tb_publish(k.s, &o, NULL), TB_BAD_ARGUMENT);
    const struct tb_blob_desc climbing = {"../x", "", 0};
    o = options_of(&k, 1, 0, NULL);
    o.blobs = &climbing;
    o.blob_count = 1;
    CHECK_STATUS(tb_publish(k.s, &o, NULL), TB_BAD_ARGUMENT);
    assert_non_null(strstr(tb_last_error(), "../x"));
    const struct tb_blob_desc marker = {"STABLE", "", 0};
    o.blobs = &marker;
    CHECK_STATUS(tb_publish(k.s, &o, NULL), TB_BAD_ARGUMENT);
    assert_non_null(strstr(tb_last_error(), "\"STABLE\": subscribe could not write such a file"));
    o = options_of(&k, UINT64_C(1) << 63, 0, NULL);
    CHECK_STATUS(tb_publish(k.s, &o, NULL), TB_BAD_ARGUMENT);
    assert_non_null(strstr(tb_last_error(), "number 9223372036854775808: at most 2^63 - 1"));
    assert_int_equal(fake_seen(&k.f, TB_MSG_VERSION_OPEN), 0);
    rank_close(&k);
}

static void blobs_alone_are_a_shard(void **state)
{
    (void)state;
    struct rank k;
    rank_open(&k, false);
    for (uint32_t mode = 0; mode <= 1; mode++) {
        struct tb_publish_options o = options_of(&k, 1 + mode, mode, NULL);
        o.registration = NULL;
        if (tb_publish(k.s, &o, NULL) != TB_OK) fail_msg("%s", tb_last_error());
        fake_land(&k.f, 1 + mode);
        assert_memory_equal(fake_version(&k.f, 1 + mode)->shards[0].bytes, "{\"a\":1}tok", 10);
    }
    rank_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shadow_is_read_bit_exact),
        cmocka_unit_test(in_place_memory_of_the_caller_is_read_bit_exact),
        cmocka_unit_test(in_place_memory_of_ours_is_read_bit_exact),
        cmocka_unit_test(encoded_chunks_are_read_bit_exact),
        cmocka_unit_test(writing_after_a_shadow_changes_nothing),
        cmocka_unit_test(writing_in_place_is_found_out),
        cmocka_unit_test(the_same_bytes_again_are_done_and_others_refused),
        cmocka_unit_test(a_refused_seal_leaves_nothing),
        cmocka_unit_test(a_silent_gateway_is_a_timeout_and_a_retry_succeeds),
        cmocka_unit_test(an_older_run_is_fenced),
        cmocka_unit_test(a_third_shadow_waits_for_the_oldest),
        cmocka_unit_test(a_lost_version_frees_its_shadow),
        cmocka_unit_test(unpublish_ends_the_export),
        cmocka_unit_test(a_timed_out_unpublish_keeps_the_reference),
        cmocka_unit_test(a_restarted_gateway_hears_the_seal_again),
        cmocka_unit_test(a_known_session_goes_on),
        cmocka_unit_test(impossible_values_are_refused),
        cmocka_unit_test(blobs_alone_are_a_shard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
