/* worker.c - libtombolo over device memory of a driver that is none (fake_cuda.h): the suite that a
 * real device runs too, and what only a fake can show.
 *
 * Covers: intra/client/follow/patch_device.c intra/client/follow/staged_slices.c
 * Covers: intra/client/follow/buffer_switch.c intra/cuda/cuda_memory.c */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "intra/client/follow/subscription.h"
#include "intra/client/memory/registration.h"
#include "intra/client/publish/publication.h"
#include "intra/client/session/session.h"
#include "unit/caught_log.h"
#include "unit/check.h"
#include "unit/client/fake_gateway.h"
#include "unit/cuda/fake_cuda.h"
#include "unit/cuda/fake_device.h"
#include "unit/cuda/gpu_suite.h"

struct world {
    struct fake f;
    struct gpu_worker rank, rollout;
    struct tb_subscription *sub;
};

static void world_open_as(struct world *w, const struct gpu_under_test *on, enum tb_update update)
{
    memset(w, 0, sizeof *w);
    on->open();
    fake_open(&w->f);
    gpu_worker_open(&w->rank, &w->f, &fake_device, "rank0", "host-a");
    gpu_worker_open(&w->rollout, &w->f, &fake_device, "rollout0", "host-b");
    gpu_worker_fill(&w->rank, &fake_device, 77);
    const struct tb_subscribe_options o = {.struct_bytes = sizeof o,
                                           .member_count = 1,
                                           .model = "policy",
                                           .group = "engine",
                                           .registration = w->rollout.r,
                                           .update = (uint32_t)update};
    CHECK_OK(tb_subscribe(w->rollout.s, &o, &w->sub));
}

static void world_open(struct world *w)
{
    world_open_as(w, &fake_device, TB_UPDATE_COPY);
}

static void world_close(struct world *w)
{
    fake_cuda_fail(NULL, 0, CUDA_SUCCESS);
    gpu_worker_close(&w->rollout, &fake_device);
    gpu_worker_close(&w->rank, &fake_device);
    fake_close(&w->f);
    fake_cuda_close();
}

static struct tb_uid uid_of(struct world *w, uint64_t number)
{
    struct tb_uid uid;
    memcpy(uid.bytes, fake_version(&w->f, number)->key.uid.bytes, sizeof uid.bytes);
    return uid;
}

/* Host memory is pinned when it is made, once, and used again pinned. */
static void shadow_and_staging_are_pinned_once(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    for (uint64_t number = 1; number <= 4; number++) {
        CHECK_OK(gpu_worker_publish(&w.rank, number, TB_PUBLISH_SHADOW));
        fake_land(&w.f, number);
        const struct tb_uid uid = uid_of(&w, number);
        CHECK_OK(tb_stage(w.sub, &uid, 20000));
        fake_go(&w.f, number);
        CHECK_OK(tb_activate(w.sub, &uid, NULL));
        CHECK_OK(tb_release(w.sub, &uid));
    }
    assert_int_equal(fake_cuda_counts().unpinned_copies, 0);
    assert_int_equal(fake_cuda_calls("cuMemHostRegister"), 3); /* two shadows, one staging */
    world_close(&w);
}

/* In place the packed copy is left to the registration's next version; one beside it has its own.
 * They go with the registration. */
static void a_copy_of_a_device_is_pinned_once(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    for (uint64_t number = 1; number <= 4; number++) {
        gpu_worker_fill(&w.rank, &fake_device, number);
        CHECK_OK(gpu_worker_publish(&w.rank, number, TB_PUBLISH_IN_PLACE));
        fake_land(&w.f, number);
        assert_memory_equal(fake_version(&w.f, number)->shards[0].bytes, w.rank.big_truth, GPU_WORKER_BIG);
        const struct tb_uid uid = uid_of(&w, number);
        CHECK_OK(tb_unpublish(w.rank.s, &uid, 1000));
    }
    assert_int_equal(fake_cuda_calls("cuMemHostRegister"), 1);
    assert_int_equal(fake_cuda_counts().unpinned_copies, 0);
    CHECK_OK(gpu_worker_publish(&w.rank, 5, TB_PUBLISH_IN_PLACE));
    CHECK_OK(tb_suspend(w.rank.r));
    CHECK_OK(tb_resume(w.rank.r, NULL, 0));
    CHECK_OK(gpu_worker_publish(&w.rank, 6, TB_PUBLISH_IN_PLACE)); /* beside it */
    assert_int_equal(fake_cuda_calls("cuMemHostRegister"), 2);
    assert_int_equal(fake_cuda_counts().pinned, 2);
    CHECK_OK(tb_unregister(w.rank.r));
    assert_int_equal(fake_cuda_counts().pinned, 0);
    world_close(&w);
}

static uint8_t found_of(struct world *w, uint32_t count)
{
    const struct tb_msg_doubt m = {.uid = fake_version(&w->f, 1)->key.uid};
    fake_doubt(&w->f, 0, &m);
    fake_wait_seen(&w->f, TB_MSG_DOUBTED, count);
    pthread_mutex_lock(&w->f.lock);
    const uint8_t found = w->f.doubted.found;
    pthread_mutex_unlock(&w->f.lock);
    return found;
}

static struct world *published_in_place(struct world *w)
{
    world_open(w);
    CHECK_OK(gpu_worker_publish(&w->rank, 1, TB_PUBLISH_IN_PLACE));
    return w;
}

static uint8_t *packed_copy(const struct world *w)
{
    return w->rank.s->publications->blobs.bytes;
}

/* P1: the packed copy of a GPU's memory is damaged, and a reader says so: it is made again, from
 * memory that has what was sealed. */
static void a_damaged_copy_of_a_device_is_made_again(void **state)
{
    (void)state;
    struct world w;
    packed_copy(published_in_place(&w))[1234] ^= 1;
    assert_int_equal(found_of(&w, 1), TB_MSG_FOUND_MENDED);
    fake_land(&w.f, 1);
    assert_memory_equal(fake_version(&w.f, 1)->shards[0].bytes, w.rank.big_truth, GPU_WORKER_BIG);
    world_close(&w);
}

/* A pass has the device for seconds: the session's thread does not wait for it, and a later report
 * is answered. The answer to the first call comes behind the report, and the second call behind an
 * answer to the report. */
static void a_damaged_copy_waits_for_no_pass(void **state)
{
    (void)state;
    struct world w;
    packed_copy(published_in_place(&w))[1234] ^= 1;
    tb_session_lock(w.rank.s);
    w.rank.r->passes++;
    tb_session_unlock(w.rank.s);
    const struct tb_msg_doubt m = {.uid = fake_version(&w.f, 1)->key.uid};
    fake_doubt(&w.f, 0, &m);
    struct tb_run_info run = {.struct_bytes = sizeof run};
    for (int i = 0; i < 2; i++)
        CHECK_OK(tb_run_join(w.rank.s, "policy", "", &run));
    assert_int_equal(fake_seen(&w.f, TB_MSG_DOUBTED), 0);
    tb_session_lock(w.rank.s);
    w.rank.r->passes--;
    tb_session_unlock(w.rank.s);
    assert_int_equal(found_of(&w, 1), TB_MSG_FOUND_MENDED);
    world_close(&w);
}

/* The twin: the trainer wrote to that memory. The copy is not made of what was not sealed. */
static void a_damaged_copy_of_what_changed_is_told(void **state)
{
    (void)state;
    struct world w;
    packed_copy(published_in_place(&w))[1234] ^= 1;
    w.rank.big_truth[77]++;
    fake_cuda_write(w.rank.big, w.rank.big_truth, GPU_WORKER_BIG);
    assert_int_equal(found_of(&w, 1), TB_MSG_FOUND_SPOILED);
    assert_int_not_equal(packed_copy(&w)[77], w.rank.big_truth[77]);
    world_close(&w);
}

/* And the other: the copy is what is served, and it is good. */
static void a_good_copy_of_what_changed_stays(void **state)
{
    (void)state;
    struct world w;
    published_in_place(&w);
    w.rank.big_truth[77]++;
    fake_cuda_write(w.rank.big, w.rank.big_truth, GPU_WORKER_BIG);
    assert_int_equal(found_of(&w, 1), TB_MSG_FOUND_GOOD);
    world_close(&w);
}

static struct tb_activate_info follow(struct world *w, uint64_t number)
{
    struct tb_activate_info info = {.struct_bytes = sizeof info};
    const struct tb_uid uid = uid_of(w, number);
    CHECK_OK(tb_stage(w->sub, &uid, 20000));
    fake_go(&w->f, number);
    CHECK_OK(tb_activate(w->sub, &uid, &info));
    return info;
}

/* Whether a step came encoded or whole: what the tensors hold is the device's to read, and comes
 * down the bus for nobody. */
static void nothing_comes_down_for_a_patch(void **state)
{
    (void)state;
    struct world w;
    for (int encoded = 0; encoded < 2; encoded++) {
        world_open_as(&w, &fake_device_with_kernels, TB_UPDATE_PATCH);
        FAKE_SET(&w.f, shelves, encoded == 1);
        CHECK_OK(gpu_worker_publish(&w.rank, 1, TB_PUBLISH_SHADOW));
        fake_land(&w.f, 1);
        (void)follow(&w, 1);
        w.rank.big_truth[77]++;
        fake_cuda_write(w.rank.big, w.rank.big_truth, GPU_WORKER_BIG);
        CHECK_OK(gpu_worker_publish(&w.rank, 2, TB_PUBLISH_SHADOW));
        fake_land_on(&w.f, 2, fake_version(&w.f, 1));
        const uint64_t before = fake_cuda_counts().down_bytes;
        const struct tb_activate_info info = follow(&w, 2);
        assert_int_equal(info.patched_bytes, GPU_WORKER_BIG + GPU_WORKER_SMALL);
        assert_true(info.staged_bytes < 10000);
        assert_true(fake_cuda_counts().down_bytes - before < 100000); /* jobs, digests and forms */
        assert_true(gpu_worker_holds(&w.rollout, &fake_device, &w.rank));
        world_close(&w);
    }
}

/* Of a version of which slices want some, the pages of that, and none between. */
static void slices_pin_what_they_want(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    CHECK_OK(gpu_worker_publish(&w.rank, 1, TB_PUBLISH_SHADOW));
    fake_land(&w.f, 1);
    const uint64_t before = fake_cuda_counts().pinned_bytes;
    const uint64_t shape[] = {3, GPU_WORKER_BIG / 6}, first[2][2] = {{0, 0}, {2, GPU_WORKER_BIG / 6 - 10}},
                   count[2][2] = {{1, 1000}, {1, 10}};
    struct tb_slice_desc list[2];
    for (int i = 0; i < 2; i++)
        list[i] = (struct tb_slice_desc){.struct_bytes = sizeof list[i],
                                         .rank = 2,
                                         .name = "model.big",
                                         .dtype = "BF16",
                                         .shape = shape,
                                         .first = first[i],
                                         .count = count[i],
                                         .memory = w.rollout.big + 2000 * i};
    struct tb_registration *r;
    CHECK_OK(tb_register_slices(w.rollout.s, list, 2, &r));
    const struct tb_subscribe_options o = {
        .struct_bytes = sizeof o, .member_count = 1, .model = "policy", .group = "slices", .registration = r};
    struct tb_subscription *sub;
    CHECK_OK(tb_subscribe(w.rollout.s, &o, &sub));
    const struct tb_uid uid = uid_of(&w, 1);
    CHECK_OK(tb_stage(sub, &uid, 20000));
    fake_go(&w.f, 1);
    struct tb_activate_info info = {.struct_bytes = sizeof info};
    CHECK_OK(tb_activate(sub, &uid, &info));
    const uint64_t pinned = fake_cuda_counts().pinned_bytes - before;
    assert_true(info.staged_bytes < GPU_WORKER_BIG / 4 * 3);
    assert_true(pinned >= info.staged_bytes && pinned <= info.staged_bytes + 4 * 4096);
    assert_int_equal(fake_cuda_counts().unpinned_copies, 0);
    CHECK_OK(tb_release(sub, &uid));
    assert_int_equal(fake_cuda_counts().pinned_bytes, before);
    world_close(&w);
}

/* A matrix on the rank's device, each row of which has chunks enough for rows of a slice to be
 * pinned apart; of the slice on the rollout's. */
#define EXPERTS      3u
#define EXPERT_BYTES ((uint64_t)4 << 20)
#define SLICE_BYTES  100000u

struct experts {
    struct world w;
    uint8_t *all, *slice; /* of the device */
    uint8_t *truth;
    struct tb_subscription *sub;
    struct tb_uid uid;
};

static void experts_publish(struct experts *x)
{
    const uint64_t shape[] = {EXPERTS, EXPERT_BYTES};
    const struct tb_tensor_desc d = {
        .name = "experts", .dtype = "U8", .rank = 2, .shape = shape, .memory = x->all};
    uint64_t seed = 5;
    for (uint64_t i = 0; i < EXPERTS * EXPERT_BYTES; i++)
        x->truth[i] = (uint8_t)check_random(&seed);
    fake_cuda_write(x->all, x->truth, EXPERTS * EXPERT_BYTES);
    CHECK_OK(tb_register(x->w.rank.s, &d, 1, &x->w.rank.r));
    CHECK_OK(gpu_worker_publish(&x->w.rank, 1, TB_PUBLISH_SHADOW));
    fake_land(&x->w.f, 1);
    x->uid = uid_of(&x->w, 1);
}

static void experts_open(struct experts *x)
{
    memset(x, 0, sizeof *x);
    world_open(&x->w);
    x->all = fake_cuda_alloc(0, EXPERTS * EXPERT_BYTES);
    x->slice = fake_cuda_alloc(0, EXPERTS * SLICE_BYTES);
    x->truth = malloc(EXPERTS * EXPERT_BYTES);
    experts_publish(x);
    const uint64_t shape[] = {EXPERTS, EXPERT_BYTES}, first[] = {0, EXPERT_BYTES / 2},
                   count[] = {EXPERTS, SLICE_BYTES};
    const struct tb_slice_desc d = {.struct_bytes = sizeof d,
                                    .rank = 2,
                                    .name = "experts",
                                    .dtype = "U8",
                                    .shape = shape,
                                    .first = first,
                                    .count = count,
                                    .memory = x->slice};
    struct tb_registration *r;
    CHECK_OK(tb_register_slices(x->w.rollout.s, &d, 1, &r));
    const struct tb_subscribe_options o = {
        .struct_bytes = sizeof o, .member_count = 1, .model = "policy", .group = "slices", .registration = r};
    CHECK_OK(tb_subscribe(x->w.rollout.s, &o, &x->sub));
}

/* Stages and activates it: what the log says of that. */
static void experts_bring(struct experts *x, char *told, size_t bytes)
{
    const int log = caught_log_new();
    tb_log_set(TB_LOG_WARN, log);
    CHECK_OK(tb_stage(x->sub, &x->uid, 20000));
    fake_go(&x->w.f, 1);
    const int status = tb_activate(x->sub, &x->uid, NULL);
    tb_log_set(TB_LOG_ERROR, STDERR_FILENO);
    const ssize_t n = pread(log, told, bytes - 1, 0);
    close(log);
    told[n > 0 ? n : 0] = '\0';
    CHECK_OK(status);
    uint8_t *got = malloc(EXPERTS * SLICE_BYTES);
    fake_cuda_read(x->slice, got, EXPERTS * SLICE_BYTES);
    for (uint32_t i = 0; i < EXPERTS; i++)
        assert_memory_equal(got + i * SLICE_BYTES, x->truth + i * EXPERT_BYTES + EXPERT_BYTES / 2,
                            SLICE_BYTES);
    free(got);
}

static void experts_close(struct experts *x)
{
    world_close(&x->w);
    free(x->truth);
}

/* P1: rows of a slice with chunks between them that are not wanted, so not pinned: one call of the
 * driver may not have both. */
static void rows_with_chunks_between_them_get_in(void **state)
{
    (void)state;
    struct experts x;
    char told[4096];
    experts_open(&x);
    const uint32_t before = fake_cuda_counts().pinned;
    experts_bring(&x, told, sizeof told);
    assert_string_equal(told, "");
    assert_int_equal(fake_cuda_counts().pinned - before, EXPERTS + 1); /* and the blob */
    assert_int_equal(fake_cuda_counts().unpinned_copies, 0);
    assert_true(fake_cuda_calls("cuMemcpy2DAsync") > 0);
    experts_close(&x);
}

/* A limit that the second stretch meets the third meets, too: none is pinned, and
 * one line says so. */
static void slices_are_pinned_all_or_not_at_all(void **state)
{
    (void)state;
    struct experts x;
    char told[4096];
    experts_open(&x);
    const uint32_t before = fake_cuda_counts().pinned;
    fake_cuda_fail("cuMemHostRegister", 2, CUDA_ERROR_OUT_OF_MEMORY);
    experts_bring(&x, told, sizeof told);
    assert_true(fake_cuda_failed());
    assert_int_equal(fake_cuda_calls("cuMemHostRegister"), 2);
    assert_int_equal(fake_cuda_counts().pinned, before);
    const char *line = strstr(told, "gpu.unpinned");
    assert_non_null(line);
    assert_null(strstr(line + 1, "gpu."));
    experts_close(&x);
}

/* A failure is told, leaves neither copy nor memory, and the next attempt is as good as the
 * first. */
static void a_publish_that_the_driver_refuses_is_no_version(void **state)
{
    (void)state;
    static const char *const entries[] = {"cuMemcpyAsync", "cuEventRecord", "cuEventSynchronize",
                                          "cuCtxPushCurrent"};
    for (size_t e = 0; e < sizeof entries / sizeof entries[0]; e++) {
        bool failed = true;
        for (uint32_t nth = 1; failed; nth++) {
            struct world w;
            world_open(&w);
            fake_cuda_fail(entries[e], nth, CUDA_ERROR_ECC_UNCORRECTABLE);
            const int status = gpu_worker_publish(&w.rank, 1, TB_PUBLISH_SHADOW);
            failed = fake_cuda_failed();
            fake_cuda_fail(NULL, 0, CUDA_SUCCESS);
            if (status != TB_OK) {
                assert_true(failed);
                CHECK_STATUS(status, TB_SITE_IO);
                assert_int_equal(fake_seen(&w.f, TB_MSG_SEAL), 0);
                CHECK_OK(gpu_worker_publish(&w.rank, 1, TB_PUBLISH_SHADOW));
            }
            /* Else it was refused only that memory is pinned, which costs no version. */
            fake_land(&w.f, 1);
            assert_memory_equal(fake_version(&w.f, 1)->shards[0].bytes, w.rank.big_truth, GPU_WORKER_BIG);
            world_close(&w);
        }
    }
}

/* P2: a switch that the driver refuses is none, and says so; the same call again makes it. */
static void an_activate_that_the_driver_refuses_is_none(void **state)
{
    (void)state;
    static const char *const entries[] = {"cuMemcpyAsync", "cuEventRecord", "cuEventSynchronize",
                                          "cuCtxPushCurrent"};
    for (size_t e = 0; e < sizeof entries / sizeof entries[0]; e++) {
        struct world w;
        world_open(&w);
        CHECK_OK(gpu_worker_publish(&w.rank, 1, TB_PUBLISH_SHADOW));
        fake_land(&w.f, 1);
        const struct tb_uid uid = uid_of(&w, 1);
        CHECK_OK(tb_stage(w.sub, &uid, 20000));
        fake_go(&w.f, 1);
        for (uint32_t nth = 1;; nth++) {
            fake_cuda_fail(entries[e], nth, CUDA_ERROR_ECC_UNCORRECTABLE);
            const int status = tb_activate(w.sub, &uid, NULL);
            if (!fake_cuda_failed()) {
                CHECK_OK(status);
                break;
            }
            CHECK_STATUS(status, TB_SITE_IO);
            assert_non_null(strstr(tb_last_error(), "until tb_activate returns TB_OK"));
            assert_int_equal(fake_seen(&w.f, TB_MSG_ACTIVATED), 0);
        }
        assert_true(gpu_worker_holds(&w.rollout, &fake_device, &w.rank));
        world_close(&w);
    }
}

/* The active version that the rollout announces to a gateway that comes back. */
static struct tb_id announced(struct world *w)
{
    fake_go_away(&w->f, w->rollout.s);
    const uint32_t before = fake_seen(&w->f, TB_MSG_SUBSCRIBE);
    fake_away(&w->f, false);
    fake_wait_seen(&w->f, TB_MSG_SUBSCRIBE, before + 1);
    return fake_active(&w->f, "rollout0");
}

/* P2: half of the copy was made when the driver refused: a gateway that comes back is told of no
 * version until the same call has made it, and what was before is not gone back behind. */
static void a_switch_that_stops_midway_leaves_no_version(void **state)
{
    (void)state;
    struct world w;
    struct tb_uid uid[4];
    world_open(&w);
    for (uint64_t number = 1; number <= 3; number++) {
        gpu_worker_fill(&w.rank, &fake_device, number);
        CHECK_OK(gpu_worker_publish(&w.rank, number, TB_PUBLISH_SHADOW));
        fake_land(&w.f, number);
        uid[number] = uid_of(&w, number);
        CHECK_OK(tb_stage(w.sub, &uid[number], 20000));
        fake_go(&w.f, number);
    }
    CHECK_OK(tb_activate(w.sub, &uid[2], NULL));
    assert_memory_equal(announced(&w).bytes, uid[2].bytes, sizeof uid[2].bytes);
    fake_cuda_fail("cuMemcpyAsync", 2, CUDA_ERROR_ECC_UNCORRECTABLE);
    CHECK_STATUS(tb_activate(w.sub, &uid[3], NULL), TB_SITE_IO);
    assert_true(fake_cuda_failed());
    fake_cuda_fail(NULL, 0, CUDA_SUCCESS);
    const struct tb_id none = announced(&w);
    assert_true(tb_id_is_zero(&none));
    CHECK_STATUS(tb_activate(w.sub, &uid[1], NULL), TB_BAD_STATE);
    CHECK_OK(tb_activate(w.sub, &uid[3], NULL));
    assert_true(gpu_worker_holds(&w.rollout, &fake_device, &w.rank));
    assert_memory_equal(announced(&w).bytes, uid[3].bytes, sizeof uid[3].bytes);
    world_close(&w);
}

/* A resume that finds no device leaves the registration as it was: suspended. */
static void a_resume_that_the_driver_refuses_may_be_tried_again(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    CHECK_OK(gpu_worker_publish(&w.rank, 1, TB_PUBLISH_IN_PLACE));
    CHECK_OK(tb_suspend(w.rank.r));
    fake_cuda_fail("cuStreamCreate", 2, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_STATUS(tb_resume(w.rank.r, NULL, 0), TB_SITE_NOMEM);
    fake_cuda_fail(NULL, 0, CUDA_SUCCESS);
    if (tb_resume(w.rank.r, NULL, 0) != TB_OK) fail_msg("%s", tb_last_error());
    CHECK_OK(fake_read(&w.f, fake_version(&w.f, 1), 0));
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shadow_and_staging_are_pinned_once),
        cmocka_unit_test(a_copy_of_a_device_is_pinned_once),
        cmocka_unit_test(a_damaged_copy_of_a_device_is_made_again),
        cmocka_unit_test(a_damaged_copy_waits_for_no_pass),
        cmocka_unit_test(a_damaged_copy_of_what_changed_is_told),
        cmocka_unit_test(a_good_copy_of_what_changed_stays),
        cmocka_unit_test(nothing_comes_down_for_a_patch),
        cmocka_unit_test(slices_pin_what_they_want),
        cmocka_unit_test(rows_with_chunks_between_them_get_in),
        cmocka_unit_test(slices_are_pinned_all_or_not_at_all),
        cmocka_unit_test(a_publish_that_the_driver_refuses_is_no_version),
        cmocka_unit_test(an_activate_that_the_driver_refuses_is_none),
        cmocka_unit_test(a_switch_that_stops_midway_leaves_no_version),
        cmocka_unit_test(a_resume_that_the_driver_refuses_may_be_tried_again),
    };
    tb_log_set(TB_LOG_ERROR, STDERR_FILENO);
    return gpu_suite_run(&fake_device) + gpu_suite_run(&fake_device_with_kernels) +
           cmocka_run_group_tests(tests, NULL, NULL);
}
