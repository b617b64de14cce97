/* foreign.c - a worker reads from another worker into a GPU's memory, over a driver that is none
 * (fake_cuda.h): the device proves what lands, and what a delta makes of its tensors. A forged
 * chunk has the digest of the right one (P1).
 *
 * Covers: intra/client/follow/staged_gpu.c intra/client/follow/patch_device.c */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/forged_chunk.h"
#include "unit/client/fake_gateway.h"
#include "unit/cuda/fake_cuda.h"
#include "unit/cuda/fake_device.h"
#include "unit/cuda/gpu_worker.h"

#define FORGED_BYTES 8192u /* of the first chunk */

struct world {
    struct fake f;
    struct gpu_worker rank, rollout;
    struct tb_subscription *sub;
};

static void world_open(struct world *w, enum tb_update update, bool on_gpu)
{
    memset(w, 0, sizeof *w);
    fake_device_with_kernels.open();
    fake_open(&w->f);
    FAKE_SET(&w->f, foreign, true);
    gpu_worker_open(&w->rank, &w->f, &fake_device_with_kernels, "rank0", "host-a");
    gpu_worker_open(&w->rollout, &w->f, &fake_device_with_kernels, "rollout0", "host-b");
    const struct tb_subscribe_options o = {.struct_bytes = sizeof o,
                                           .member_count = 1,
                                           .model = "policy",
                                           .registration = w->rollout.r,
                                           .update = update,
                                           .stage_on_gpu = on_gpu};
    CHECK_OK(tb_subscribe(w->rollout.s, &o, &w->sub));
    gpu_worker_fill(&w->rank, &fake_device_with_kernels, 5);
}

static void world_close(struct world *w)
{
    gpu_worker_close(&w->rollout, &fake_device_with_kernels);
    gpu_worker_close(&w->rank, &fake_device_with_kernels);
    fake_close(&w->f);
    fake_cuda_close();
}

static void activate(struct world *w, const struct tb_uid *uid, uint64_t number)
{
    struct tb_activate_info info = {.struct_bytes = sizeof info};
    if (tb_stage(w->sub, uid, 20000) != TB_OK) fail_msg("%s", tb_last_error());
    fake_go(&w->f, number);
    if (tb_activate(w->sub, uid, &info) != TB_OK) fail_msg("%s", tb_last_error());
    assert_int_equal(info.fetched_chunks, 0); /* nothing that was kept was wrong */
    assert_true(gpu_worker_holds(&w->rollout, &fake_device_with_kernels, &w->rank));
}

static void a_gpu_refuses_a_forged_chunk(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, TB_UPDATE_COPY, true);
    CHECK_OK(gpu_worker_publish(&w.rank, 1, TB_PUBLISH_SHADOW));
    fake_land(&w.f, 1);
    struct fake_version *v = fake_version(&w.f, 1);
    const struct tb_uid uid = fake_uid(v);
    uint8_t right[FORGED_BYTES];
    memcpy(right, v->shards[0].bytes, sizeof right);
    fake_know_proofs(v);
    forge_chunk(v->shards[0].bytes, FORGED_BYTES, 0x3f);
    CHECK_STATUS(tb_stage(w.sub, &uid, 0), TB_AGAIN);
    fake_wait_seen(&w.f, TB_MSG_CHUNK_BAD, 1);
    memcpy(v->shards[0].bytes, right, sizeof right);
    fake_plan(&w.f, 1, 1);
    activate(&w, &uid, 1);
    world_close(&w);
}

/* The chunk comes whole, and the forged delta is not what the switch writes. */
static void a_gpu_keeps_no_forged_delta(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, TB_UPDATE_PATCH, false);
    FAKE_SET(&w.f, shelves, true);
    FAKE_SET(&w.f, forges, true);
    CHECK_OK(gpu_worker_publish(&w.rank, 1, TB_PUBLISH_SHADOW));
    fake_land(&w.f, 1);
    const struct tb_uid first = fake_uid(fake_version(&w.f, 1));
    activate(&w, &first, 1);
    w.rank.big_truth[77]++;
    fake_cuda_write(w.rank.big, w.rank.big_truth, GPU_WORKER_BIG);
    CHECK_OK(gpu_worker_publish(&w.rank, 2, TB_PUBLISH_SHADOW));
    fake_land_on(&w.f, 2, fake_version(&w.f, 1));
    const struct tb_uid second = fake_uid(fake_version(&w.f, 2));
    activate(&w, &second, 2);
    fake_wait_seen(&w.f, TB_MSG_CHUNK_BAD, 1); /* of the shelf */
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpu_refuses_a_forged_chunk),
        cmocka_unit_test(a_gpu_keeps_no_forged_delta),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
