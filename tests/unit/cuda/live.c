/* P1: the tensors of a rollout on a GPU are digested by the GPU, and by cores where it has no
 * kernels. The driver is none (fake_cuda.h): a touch of its device memory from the host ends the
 * process.
 *
 * Covers: intra/cuda/cuda_look.c intra/client/live/live_digest.c */
#include <stdlib.h>
#include <string.h>

#include "intra/client/memory/registration.h"
#include "intra/cuda_part_looks.h"
#include "unit/check.h"
#include "unit/client/fake_gateway.h"
#include "unit/cuda/fake_cuda.h"
#include "unit/cuda/fake_device.h"
#include "unit/cuda/gpu_worker.h"

struct world {
    const struct gpu_under_test *under;
    struct fake f;
    struct gpu_worker rank, rollout;
    struct tb_subscription *sub;
    struct tb_uid uid;
};

static void world_open(struct world *w, const struct gpu_under_test *under)
{
    memset(w, 0, sizeof *w);
    w->under = under;
    under->open();
    fake_open(&w->f);
    gpu_worker_open(&w->rank, &w->f, under, "rank0", "host-a");
    gpu_worker_open(&w->rollout, &w->f, under, "rollout0", "host-b");
    const struct tb_subscribe_options o = {
        .struct_bytes = sizeof o, .member_count = 1, .model = "policy", .registration = w->rollout.r};
    CHECK_OK(tb_subscribe(w->rollout.s, &o, &w->sub));
    gpu_worker_fill(&w->rank, under, 1);
    CHECK_OK(gpu_worker_publish(&w->rank, 1, TB_PUBLISH_SHADOW));
    fake_land(&w->f, 1);
    w->uid = fake_uid(fake_version(&w->f, 1));
    if (tb_stage(w->sub, &w->uid, 20000) != TB_OK) fail_msg("%s", tb_last_error());
    fake_go(&w->f, 1);
    if (tb_activate(w->sub, &w->uid, NULL) != TB_OK) fail_msg("%s", tb_last_error());
}

static void world_close(struct world *w)
{
    gpu_worker_close(&w->rollout, w->under);
    gpu_worker_close(&w->rank, w->under);
    fake_close(&w->f);
    w->under->close();
}

static void tensors_of_a_gpu_are_proven(void **state)
{
    (void)state;
    const struct gpu_under_test *const devices[] = {&fake_device, &fake_device_with_kernels};
    for (int i = 0; i < 2; i++) {
        struct world w;
        world_open(&w, devices[i]);
        struct tb_msg_proven m = fake_prove(&w.f, 1, 1);
        assert_int_equal(m.verdict, TB_MSG_PROVEN_WHOLE);
        assert_int_equal(m.bytes, GPU_WORKER_BIG + GPU_WORKER_SMALL);
        const uint8_t other = (uint8_t)(w.rank.big_truth[GPU_WORKER_BIG - 7] ^ 4);
        w.under->write(w.rollout.big + GPU_WORKER_BIG - 7, &other, 1);
        m = fake_prove(&w.f, 1, 1);
        assert_int_equal(m.verdict, TB_MSG_PROVEN_DIFFERS);
        assert_int_equal(m.bad, 1);
        assert_non_null(strstr(m.tensor.text, "big"));
        world_close(&w);
    }
}

/* Bit for bit what cores say, of pieces in rows, of few bytes and of many. */
static void a_look_is_what_cores_say(void **state)
{
    (void)state;
    static const struct {
        uint64_t first, run, rows, stride;
    } looks[] = {
        {0, 1, 1, 1}, {3, 200, 1, 200}, {0, 1000001, 1, 1000001}, {64, 48, 3, 4096}, {16, 4096, 500, 4608}};
    struct world w;
    world_open(&w, &fake_device_with_kernels);
    uint8_t *packed = malloc(GPU_WORKER_BIG);
    for (size_t i = 0; i < sizeof looks / sizeof looks[0]; i++) {
        const struct tb_stretch_rows piece = {.at = w.rollout.big + looks[i].first,
                                              .bytes = looks[i].run,
                                              .rows = looks[i].rows,
                                              .stride = looks[i].stride};
        struct tb_gpu_look look = {.pieces = &piece,
                                   .piece_count = 1,
                                   .bytes = (uint32_t)(looks[i].run * looks[i].rows),
                                   .prove = true};
        for (uint64_t row = 0; row < looks[i].rows; row++)
            memcpy(packed + row * looks[i].run, w.rank.big_truth + looks[i].first + row * looks[i].stride,
                   looks[i].run);
        CHECK_OK(tb_gpu_look(w.rollout.r->gpu, &look));
        const struct tb_digest digest = tb_digest_of(packed, look.bytes);
        const struct tb_blake3 proof = tb_blake3_of(packed, look.bytes);
        assert_true(tb_digest_equal(&look.digest, &digest));
        assert_true(tb_blake3_equal(&look.proof, &proof));
    }
    free(packed);
    world_close(&w);
}

/* P10: a driver that refuses is no difference of bytes. */
static void a_device_that_refuses_proves_nothing(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, &fake_device_with_kernels);
    fake_cuda_fail("cuLaunchKernel", 1, CUDA_ERROR_LAUNCH_FAILED);
    const struct tb_msg_proven m = fake_prove(&w.f, 1, 1);
    assert_true(fake_cuda_failed());
    fake_cuda_fail(NULL, 0, CUDA_SUCCESS);
    assert_int_equal(m.verdict, TB_MSG_PROVEN_NOT);
    assert_int_equal(m.why, TB_MSG_UNPROVABLE_REFUSED);
    assert_int_equal(m.bad, 0);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_of_a_gpu_are_proven),
        cmocka_unit_test(a_look_is_what_cores_say),
        cmocka_unit_test(a_device_that_refuses_proves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
