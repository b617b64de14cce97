/* patch.c - the three ways into the buffers that a rollout computes from: copied, in the other
 * of two, or as a patch.
 *
 * Covers: intra/client/follow/patch.c intra/client/follow/buffer_switch.c
 * Covers: intra/client/follow/activate.c */
#include "intra/client/follow/patch.h"

#include <stdlib.h>
#include <string.h>

#include "unit/client/fake_gateway.h"

#define TENSOR 1500000u /* bytes of each of 4 tensors, in 2 shards */
#define BYTES  (4u * TENSOR)

struct worker {
    struct fake f;
    struct tb_session *s;
    uint8_t *memory[2]; /* four tensors each, one behind the other */
    struct tb_registration *r[2];
    struct tb_subscription *sub;
    struct fake_version *v[4]; /* by number; each a step of the one before */
};

static struct tb_registration *registered(struct worker *w, uint8_t *memory)
{
    struct tb_registration *r;
    struct tb_tensor_desc list[4];
    static const char *const names[] = {"t0", "t1", "t2", "t3"};
    static const uint64_t shape[] = {TENSOR};
    for (uint32_t i = 0; i < 4; i++)
        list[i] = (struct tb_tensor_desc){names[i], "U8", 1, shape, memory + i * TENSOR};
    CHECK_OK(tb_register(w->s, list, 4, &r));
    return r;
}

static void worker_open_at(struct worker *w, enum tb_update update, const char *host, bool shelves)
{
    memset(w, 0, sizeof *w);
    fake_open(&w->f);
    FAKE_SET(&w->f, shelves, shelves);
    w->s = fake_session_open(&w->f, "w0", host);
    for (int i = 0; i < 2; i++) {
        w->memory[i] = calloc(1, BYTES);
        w->r[i] = registered(w, w->memory[i]);
    }
    const struct tb_subscribe_options o = {.struct_bytes = sizeof o,
                                           .member_count = 1,
                                           .model = "policy",
                                           .registration = w->r[0],
                                           .update = (uint32_t)update,
                                           .second = update == TB_UPDATE_SWITCH ? w->r[1] : NULL};
    CHECK_OK(tb_subscribe(w->s, &o, &w->sub));
    w->v[1] = fake_make(&w->f, 1, 2, 2, TENSOR);
    for (uint64_t n = 2; n < 4; n++)
        w->v[n] = fake_step(&w->f, n, w->v[n - 1], 2);
}

static void worker_open(struct worker *w, enum tb_update update)
{
    worker_open_at(w, update, "host-a", false);
}

static void worker_close(struct worker *w)
{
    tb_session_close(w->s);
    free(w->memory[0]);
    free(w->memory[1]);
    fake_close(&w->f);
}

static void check_memory(const struct worker *w, const uint8_t *memory, uint32_t number)
{
    for (uint32_t i = 0; i < 4; i++)
        assert_memory_equal(memory + i * TENSOR, w->v[number]->shards[i / 2].bytes + (i % 2) * TENSOR,
                            TENSOR);
}

static void stage(struct worker *w, uint32_t number)
{
    const struct tb_uid uid = fake_uid(w->v[number]);
    if (tb_stage(w->sub, &uid, 20000) != TB_OK) fail_msg("%s", tb_last_error());
    fake_go(&w->f, number);
}

static struct tb_activate_info activate(struct worker *w, uint32_t number)
{
    const struct tb_uid uid = fake_uid(w->v[number]);
    struct tb_activate_info info = {.struct_bytes = sizeof info};
    if (tb_activate(w->sub, &uid, &info) != TB_OK) fail_msg("%s", tb_last_error());
    return info;
}

/* Checks the UPDATED of switch number `count`, and the status of the session. */
static void check_told(struct worker *w, uint32_t count, enum tb_msg_way way,
                       const struct tb_activate_info *info)
{
    char text[8192], expected[256];
    uint64_t needed;
    fake_wait_seen(&w->f, TB_MSG_UPDATED, count);
    pthread_mutex_lock(&w->f.lock);
    const struct tb_msg_updated told = w->f.updated;
    pthread_mutex_unlock(&w->f.lock);
    assert_int_equal(told.way, way);
    assert_int_equal(told.stall_ns, info->stall_ns);
    assert_int_equal(told.staged_bytes, info->staged_bytes);
    assert_int_equal(told.copied_bytes, info->copied_bytes);
    assert_int_equal(told.patched_bytes, info->patched_bytes);
    assert_int_equal(told.fetched_chunks, info->fetched_chunks);
    CHECK_OK(tb_status(w->s, "session", text, sizeof text, &needed));
    snprintf(expected, sizeof expected,
             "\"way\":\"%s\",\"stall_ms\":%llu.%03u,\"staged_bytes\":%llu,\"copied_bytes\":%llu,"
             "\"patched_bytes\":%llu,\"fetched_chunks\":%u}",
             tb_msg_way_name((uint8_t)way), (unsigned long long)(info->stall_ns / 1000000),
             (unsigned)(info->stall_ns / 1000 % 1000), (unsigned long long)info->staged_bytes,
             (unsigned long long)info->copied_bytes, (unsigned long long)info->patched_bytes,
             info->fetched_chunks);
    if (strstr(text, expected) == NULL) fail_msg("no %s in %s", expected, text);
}

/* Staging keeps the deltas alone, and the buffers hold the version bit for bit (P1). */
static void a_delta_is_staged_as_a_patch(void **state)
{
    (void)state;
    struct worker w;
    worker_open(&w, TB_UPDATE_PATCH);
    stage(&w, 1);
    struct tb_activate_info info = activate(&w, 1);
    assert_int_equal(info.copied_bytes, BYTES);
    assert_true(info.staged_bytes >= BYTES); /* there was nothing to be a step to */
    check_told(&w, 1, TB_MSG_WAY_COPY, &info);
    check_memory(&w, w.memory[0], 1);
    for (uint32_t n = 2; n < 4; n++) {
        stage(&w, n);
        check_memory(&w, w.memory[0], n - 1);
        info = activate(&w, n);
        check_memory(&w, w.memory[0], n);
        print_message("version of %u bytes: %llu staged\n", BYTES, (unsigned long long)info.staged_bytes);
        assert_true(info.staged_bytes < BYTES / 20);
        assert_int_equal(info.patched_bytes, BYTES);
        assert_int_equal(info.copied_bytes, 0);
        assert_int_equal(info.fetched_chunks, 0);
        check_told(&w, n, TB_MSG_WAY_PATCH, &info);
        fake_wait_seen(&w.f, TB_MSG_EXPORT, n);
        pthread_mutex_lock(&w.f.lock);
        assert_int_equal(w.f.exported.export_id, 0); /* nobody is sent here */
        pthread_mutex_unlock(&w.f.lock);
    }
    worker_close(&w);
}

/* A number from the session's status of the one version that it stages. */
static uint64_t staged_number(struct worker *w, const char *key)
{
    char text[16384], quoted[64];
    uint64_t needed;
    CHECK_OK(tb_status(w->s, "session", text, sizeof text, &needed));
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(strstr(text, "\"staged\""), quoted);
    assert_non_null(at);
    return strtoull(at + strlen(quoted), NULL, 10);
}

/* P1: encoded chunks of the gateway's are decoded on what the buffers hold, kept as they came, and
 * applied. Where the buffers are not what they were taken for, as after the stray write, what was
 * decoded has another digest, and the chunk comes whole. */
static void encoded_chunks_are_kept(const char *host)
{
    struct worker w;
    worker_open_at(&w, TB_UPDATE_PATCH, host, true);
    stage(&w, 1);
    activate(&w, 1);
    check_memory(&w, w.memory[0], 1);
    for (uint32_t n = 2; n < 4; n++) {
        if (n == 3) w.memory[0][TENSOR + 5] ^= 1;
        stage(&w, n);
        const uint64_t read = staged_number(&w, "read_bytes"), chunks = staged_number(&w, "encoded_chunks");
        print_message("version of %u bytes: %llu read, %llu chunks encoded\n", BYTES,
                      (unsigned long long)read, (unsigned long long)chunks);
        assert_true(read < (n == 3 ? BYTES / 2 : BYTES / 20));
        assert_int_equal(chunks, staged_number(&w, "total_chunks") - 2 - (n == 3)); /* but for two blobs */
        const struct tb_activate_info info = activate(&w, n);
        check_memory(&w, w.memory[0], n);
        assert_int_equal(info.fetched_chunks, 0);
    }
    worker_close(&w);
}

static void encoded_chunks_are_kept_as_they_came(void **state)
{
    (void)state;
    encoded_chunks_are_kept("host-b"); /* by tcp */
    encoded_chunks_are_kept("host-a"); /* by shm */
}

static void blobs_of_a_patch_can_be_read(void **state)
{
    (void)state;
    struct worker w;
    worker_open(&w, TB_UPDATE_PATCH);
    stage(&w, 1);
    activate(&w, 1);
    stage(&w, 2);
    const struct tb_uid uid = fake_uid(w.v[2]);
    struct tb_item item = {.struct_bytes = sizeof item};
    uint32_t blobs = 0;
    for (uint32_t i = 0; tb_staged_item(w.sub, &uid, i, &item) == TB_OK; i++) {
        if (item.is_blob)
            assert_memory_equal(item.bytes, w.v[2]->shards[blobs++].bytes + 2 * TENSOR, item.count);
        else
            assert_null(item.bytes);
    }
    assert_int_equal(blobs, 2);
    worker_close(&w);
}

/* The base is not what it was: what the buffers then hold is looked at, and the chunk comes whole
 * before activate returns. */
static void a_chunk_that_does_not_match_is_fetched(void **state)
{
    (void)state;
    struct worker w;
    worker_open(&w, TB_UPDATE_PATCH);
    stage(&w, 1);
    activate(&w, 1);
    stage(&w, 2);
    w.memory[0][TENSOR + 5] ^= 1; /* a stray write, of a byte that the step does not touch */
    const struct tb_activate_info info = activate(&w, 2);
    check_memory(&w, w.memory[0], 2);
    assert_int_equal(info.fetched_chunks, 1);
    assert_true(info.copied_bytes > 0 && info.copied_bytes < BYTES / 2);
    stage(&w, 3);
    assert_int_equal(activate(&w, 3).fetched_chunks, 0);
    check_memory(&w, w.memory[0], 3);
    worker_close(&w);
}

/* An engine slept, and woke with its tensors elsewhere and empty: the patch is void,
 * and all comes whole. */
static void tensors_that_moved_make_a_patch_void(void **state)
{
    (void)state;
    struct worker w;
    worker_open(&w, TB_UPDATE_PATCH);
    stage(&w, 1);
    activate(&w, 1);
    stage(&w, 2);
    CHECK_OK(tb_suspend(w.r[0]));
    memset(w.memory[0], 0xee, BYTES);
    void *moved[4];
    for (uint32_t i = 0; i < 4; i++)
        moved[i] = w.memory[1] + i * TENSOR;
    CHECK_OK(tb_resume(w.r[0], moved, 4));
    assert_true(activate(&w, 2).fetched_chunks > 1);
    check_memory(&w, w.memory[1], 2);
    assert_int_equal(w.memory[0][0], 0xee);
    worker_close(&w);
}

/* P2: the source is away when a chunk is needed: the buffers hold nothing, which is said, also to a
 * gateway that comes back, and the next call brings it. */
static void a_fetch_that_fails_can_be_repeated(void **state)
{
    (void)state;
    struct worker w;
    worker_open(&w, TB_UPDATE_PATCH);
    stage(&w, 1);
    activate(&w, 1);
    stage(&w, 2);
    const struct tb_uid uid = fake_uid(w.v[2]);
    CHECK_OK(tb_status(w.s, "site", NULL, 0, NULL) == TB_TOO_LARGE
                 ? TB_OK
                 : TB_AGAIN); /* GO came before its answer */
    fake_go_away(&w.f, w.s);
    w.memory[0][7] ^= 1;
    CHECK_STATUS(tb_activate(w.sub, &uid, NULL), TB_GATEWAY_AWAY);
    const uint32_t before = fake_seen(&w.f, TB_MSG_SUBSCRIBE);
    fake_away(&w.f, false);
    fake_wait_seen(&w.f, TB_MSG_SUBSCRIBE, before + 1);
    const struct tb_id none = fake_active(&w.f, "w0");
    assert_true(tb_id_is_zero(&none));
    stage(&w, 3); /* what the buffers hold is no base */
    activate(&w, 2);
    check_memory(&w, w.memory[0], 2);
    fake_go_away(&w.f, w.s);
    fake_come_back(&w.f, w.s);
    assert_memory_equal(fake_active(&w.f, "w0").bytes, w.v[2]->key.uid.bytes, 16);
    fake_go(&w.f, 3);
    assert_true(activate(&w, 3).staged_bytes >= BYTES);
    check_memory(&w, w.memory[0], 3);
    worker_close(&w);
}

/* The newer one was withdrawn: what the buffers held of the older is gone, and comes again. */
static void an_older_version_comes_back_whole(void **state)
{
    (void)state;
    struct worker w;
    worker_open(&w, TB_UPDATE_PATCH);
    for (uint32_t n = 1; n < 4; n++) {
        stage(&w, n);
        activate(&w, n);
    }
    assert_true(activate(&w, 2).fetched_chunks > 1);
    check_memory(&w, w.memory[0], 2);
    worker_close(&w);
}

/* P2: the switch is a name; the bytes were there before, and those of the old version still are. */
static void two_buffers_are_used_in_turn(void **state)
{
    (void)state;
    struct worker w;
    worker_open(&w, TB_UPDATE_SWITCH);
    for (uint32_t n = 1; n < 4; n++) {
        stage(&w, n);
        check_memory(&w, w.memory[(n + 1) % 2], n);
        if (n > 1) check_memory(&w, w.memory[n % 2], n - 1);
        const struct tb_activate_info info = activate(&w, n);
        assert_int_equal(info.buffer, (n + 1) % 2);
        assert_int_equal(info.copied_bytes, 0);
        assert_true(info.staged_bytes >= BYTES);
        check_told(&w, n, TB_MSG_WAY_SWITCH, &info);
    }
    assert_int_equal(activate(&w, 3).buffer, 0); /* again: nothing changes */
    check_memory(&w, w.memory[0], 3);
    worker_close(&w);
}

/* Another version was staged in between: the buffers are filled again, in the switch. */
static void a_buffer_filled_for_another_is_filled_again(void **state)
{
    (void)state;
    struct worker w;
    worker_open(&w, TB_UPDATE_SWITCH);
    stage(&w, 1);
    activate(&w, 1);
    stage(&w, 2);
    stage(&w, 3);
    const struct tb_activate_info info = activate(&w, 2);
    assert_int_equal(info.copied_bytes, BYTES);
    check_memory(&w, w.memory[info.buffer], 2);
    worker_close(&w);
}

/* Its engine slept, and woke with the buffers elsewhere and empty. */
static void sleep_and_move(struct worker *w, int buffer)
{
    CHECK_OK(tb_suspend(w->r[buffer]));
    memset(w->memory[buffer], 0xee, BYTES);
    free(w->memory[buffer]);
    w->memory[buffer] = calloc(1, BYTES);
    void *moved[4];
    for (uint32_t i = 0; i < 4; i++)
        moved[i] = w->memory[buffer] + i * TENSOR;
    CHECK_OK(tb_resume(w->r[buffer], moved, 4));
}

/* P1, P2: an earlier fill is no fill of the memory that came instead. */
static void a_buffer_that_slept_is_filled_again(void **state)
{
    (void)state;
    struct worker w;
    worker_open(&w, TB_UPDATE_SWITCH);
    stage(&w, 1);
    assert_int_equal(activate(&w, 1).buffer, 0);
    stage(&w, 2);
    sleep_and_move(&w, 1);
    const struct tb_activate_info info = activate(&w, 2);
    assert_int_equal(info.buffer, 1);
    assert_int_equal(info.copied_bytes, BYTES);
    check_memory(&w, w.memory[1], 2);
    check_memory(&w, w.memory[0], 1);
    worker_close(&w);
}

/* The same of the buffers in use: the active version comes again, to where the
 * rollout computes from. */
static void the_buffer_in_use_is_filled_again_after_a_sleep(void **state)
{
    (void)state;
    struct worker w;
    worker_open(&w, TB_UPDATE_SWITCH);
    for (uint32_t n = 1; n < 3; n++) {
        stage(&w, n);
        activate(&w, n);
    }
    sleep_and_move(&w, 1);
    struct tb_activate_info info = activate(&w, 2);
    assert_int_equal(info.buffer, 1);
    assert_int_equal(info.copied_bytes, BYTES);
    check_memory(&w, w.memory[1], 2);
    check_memory(&w, w.memory[0], 1);
    info = activate(&w, 2); /* and is there then */
    assert_int_equal(info.copied_bytes, 0);
    worker_close(&w);
}

static void a_tensor_that_cannot_be_updated_is_refused(void **state)
{
    (void)state;
    struct worker w;
    worker_open(&w, TB_UPDATE_COPY);
    struct tb_subscription *sub;
    struct tb_subscribe_options o = {.struct_bytes = sizeof o, .member_count = 1, .model = "policy"};
    o.update = 3;
    CHECK_STATUS(tb_subscribe(w.s, &o, &sub), TB_BAD_ARGUMENT);
    o.update = TB_UPDATE_PATCH;
    CHECK_STATUS(tb_subscribe(w.s, &o, &sub), TB_BAD_ARGUMENT);
    o.registration = w.r[0];
    o.second = w.r[1];
    CHECK_STATUS(tb_subscribe(w.s, &o, &sub), TB_BAD_ARGUMENT);
    o.update = TB_UPDATE_SWITCH;
    o.second = w.r[0];
    CHECK_STATUS(tb_subscribe(w.s, &o, &sub), TB_BAD_ARGUMENT);
    o.second = NULL;
    CHECK_STATUS(tb_subscribe(w.s, &o, &sub), TB_BAD_ARGUMENT);
    /* Of a program that knows of no update. */
    o.struct_bytes = offsetof(struct tb_subscribe_options, update);
    CHECK_OK(tb_subscribe(w.s, &o, &sub));
    CHECK_OK(tb_unsubscribe(sub));
    worker_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_delta_is_staged_as_a_patch),
        cmocka_unit_test(encoded_chunks_are_kept_as_they_came),
        cmocka_unit_test(blobs_of_a_patch_can_be_read),
        cmocka_unit_test(a_chunk_that_does_not_match_is_fetched),
        cmocka_unit_test(tensors_that_moved_make_a_patch_void),
        cmocka_unit_test(a_fetch_that_fails_can_be_repeated),
        cmocka_unit_test(an_older_version_comes_back_whole),
        cmocka_unit_test(two_buffers_are_used_in_turn),
        cmocka_unit_test(a_buffer_filled_for_another_is_filled_again),
        cmocka_unit_test(a_buffer_that_slept_is_filled_again),
        cmocka_unit_test(the_buffer_in_use_is_filled_again_after_a_sleep),
        cmocka_unit_test(a_tensor_that_cannot_be_updated_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
