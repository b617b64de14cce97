/* stage.c - memory of ours on a device in which a version lands (cuda_stage.c), over a driver that
 * is none (fake_cuda.h).
 *
 * Covers: intra/cuda/cuda_stage.c intra/cuda/cuda_queue.c */
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "unit/check.h"
#include "unit/cuda/fake_cuda.h"
#include "unit/cuda/gpu_asks.h"

#define ROOM       ((uint64_t)5 << 20)
#define CHUNK      (1u << 20)
#define FLUSH_HOST CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST

struct world {
    struct tb_gpu *gpu;
    struct tb_gpu_memory *memory; /* of a registration's one tensor */
    uint8_t *tensor;              /* of the device */
    struct tb_gpu_stage *stage;
    uint8_t *truth; /* ROOM bytes */
    char why[TB_GPU_WHY_BYTES];
};

static void world_start(struct world *w)
{
    static uint8_t layout_memory[1024];
    const struct tb_tensor one = {
        .name = "one", .dtype = TB_DTYPE_U8, .rank = 1, .full = {4096}, .box_count = {4096}};
    struct tb_layout layout;
    memset(w, 0, sizeof *w);
    w->tensor = fake_cuda_alloc(0, 4096);
    w->truth = malloc(ROOM);
    uint64_t seed = 9;
    for (uint64_t i = 0; i < ROOM; i++)
        w->truth[i] = (uint8_t)check_random(&seed);
    CHECK_OK(tb_layout_build(&one, 1, layout_memory, sizeof layout_memory, &layout));
    CHECK_OK(tb_gpu_open(&w->gpu, w->why));
    const struct tb_gpu_tensors tensors = {&layout, &w->tensor};
    CHECK_OK(tb_gpu_memory_open(w->gpu, &tensors, &w->memory, w->why));
}

static enum tb_status stage_open(struct world *w)
{
    const struct tb_gpu_stage_size size = {.bytes = ROOM, .chunk_bytes = CHUNK};
    return tb_gpu_stage_open(w->memory, &size, &w->stage, w->why);
}

/* Writes of a NIC are seen behind a flush, or at once. */
static void world_open(struct world *w, bool ordered)
{
    fake_cuda_open();
    tb_cuda_replace_image(FAKE_CUDA_IMAGE);
    fake_cuda_set_attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, ordered ? 100 : 0);
    fake_cuda_set_attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, FLUSH_HOST);
    world_start(w);
    CHECK_OK(stage_open(w));
}

static void world_close(struct world *w)
{
    fake_cuda_fail(NULL, 0, CUDA_SUCCESS);
    tb_gpu_stage_close(w->stage);
    tb_gpu_memory_close(w->memory);
    tb_gpu_close(w->gpu);
    fake_cuda_free(w->tensor);
    free(w->truth);
    fake_cuda_close();
}

static enum tb_status take(struct world *w, uint64_t offset, uint32_t bytes, const uint8_t *from,
                           bool *is_out)
{
    struct tb_gpu_landing landing = {
        .at = tb_gpu_stage_base(w->stage) + offset, .bytes = bytes, .from = from};
    const enum tb_status status = gpu_land(w->stage, &landing);
    const struct tb_digest right = tb_digest_of(w->truth + offset, bytes);
    *is_out = status == TB_OK && tb_digest_equal(&landing.digest, &right);
    return status;
}

/* P1: of any length and on any border what comes from the host stands there, and its digest is of
 * that. */
static void a_chunk_that_lands_is_digested_where_it_stands(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {1, 16, 240, 241, 255, 1000, 4096, CHUNK + 4095};
    struct world w;
    world_open(&w, true);
    uint8_t *seen = malloc(CHUNK + 4095);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (uint64_t offset = 0; offset <= 17; offset += offset == 1 ? 14 : 1) {
            bool is;
            CHECK_OK(take(&w, offset, lengths[i], w.truth + offset, &is));
            assert_true(is);
            fake_cuda_read(tb_gpu_stage_base(w.stage) + offset, seen, lengths[i]);
            assert_memory_equal(seen, w.truth + offset, lengths[i]);
        }
    }
    free(seen);
    /* The bytes that came there are digested, and not those that were to come. */
    fake_cuda_set_spoils(true);
    for (uint32_t bytes = 100; bytes <= CHUNK; bytes += CHUNK - 100) {
        bool is;
        CHECK_OK(take(&w, 0, bytes, w.truth, &is));
        assert_false(is);
    }
    fake_cuda_set_spoils(false);
    /* And what does not stand there has another. */
    const uint8_t stray = (uint8_t)(w.truth[CHUNK / 2] + 1);
    bool is;
    CHECK_OK(take(&w, 0, CHUNK, w.truth, &is));
    fake_cuda_write(tb_gpu_stage_base(w.stage) + CHUNK / 2, &stray, 1);
    CHECK_OK(take(&w, 0, CHUNK, NULL, &is));
    assert_false(is);
    assert_false(tb_gpu_stage_failed(w.stage));
    world_close(&w);
}

/* P1: of what comes from one who might forge it, the device also says the proof; whatever else is
 * in its batch, and of any length. */
static void a_foreign_chunk_is_proven_where_it_stands(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {1, 240, 241, 1000, CHUNK, CHUNK + 4095};
    struct world w;
    world_open(&w, true);
    for (size_t i = 0; i < 2 * sizeof lengths / sizeof lengths[0]; i++) {
        const uint32_t bytes = lengths[i / 2];
        const uint64_t offset = i % 2 == 0 ? 0 : 17;
        struct tb_gpu_landing landing = {.at = tb_gpu_stage_base(w.stage) + offset,
                                         .bytes = bytes,
                                         .from = w.truth + offset,
                                         .foreign = true};
        const struct tb_blake3 none = {{0}}, right = tb_blake3_of(w.truth + offset, bytes);
        const struct tb_digest digest = tb_digest_of(w.truth + offset, bytes);
        CHECK_OK(gpu_land(w.stage, &landing));
        assert_true(tb_blake3_equal(&landing.proof, &right));
        assert_true(tb_digest_equal(&landing.digest, &digest));
        landing.foreign = false;
        landing.proof = none;
        CHECK_OK(gpu_land(w.stage, &landing)); /* nobody asked for it */
        assert_true(tb_blake3_equal(&landing.proof, &none));
    }
    fake_cuda_set_spoils(true);
    struct tb_gpu_landing spoiled = {
        .at = tb_gpu_stage_base(w.stage), .bytes = CHUNK, .from = w.truth, .foreign = true};
    const struct tb_blake3 meant = tb_blake3_of(w.truth, CHUNK);
    CHECK_OK(gpu_land(w.stage, &spoiled));
    assert_false(tb_blake3_equal(&spoiled.proof, &meant)); /* of what stands there */
    fake_cuda_set_spoils(false);
    world_close(&w);
}

/* P1: where the device does not order a NIC's writes itself, what was digested before the flush is
 * what stood there before. A chunk off the kernel's border, and one that cores digest, are copied
 * first: behind the flush, too. */
static void writes_of_a_nic_are_flushed_before_a_digest(void **state)
{
    (void)state;
    static const struct {
        uint64_t offset;
        uint32_t bytes;
    } chunks[] = {{0, CHUNK}, {CHUNK + 1, CHUNK}, {3 * CHUNK, 100}};
    for (int ordered = 0; ordered < 2; ordered++) {
        struct world w;
        world_open(&w, ordered);
        for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
            const uint64_t offset = chunks[i].offset;
            bool is;
            fake_cuda_trace_clear();
            fake_cuda_nic_write(tb_gpu_stage_base(w.stage) + offset, w.truth + offset, chunks[i].bytes);
            CHECK_OK(take(&w, offset, chunks[i].bytes, NULL, &is));
            assert_true(is);
            assert_int_equal(strncmp(fake_cuda_trace(), "f0 ", 3) == 0, !ordered);
        }
        world_close(&w);
    }
}

static void a_nic_is_given_the_stage_where_its_writes_are_seen(void **state)
{
    (void)state;
    struct world w;
    struct tb_export_device device = {.dmabuf = -1};
    uint8_t seen[100];
    world_open(&w, false);
    uint8_t *at = tb_gpu_stage_base(w.stage) + 4096;
    assert_true(tb_gpu_stage_device(w.stage, at, CHUNK, &device));
    fake_cuda_write(at, w.truth, sizeof seen);
    assert_int_equal(pread(device.dmabuf, seen, sizeof seen, (off_t)device.offset), sizeof seen);
    assert_memory_equal(seen, w.truth, sizeof seen);
    world_close(&w);
    assert_int_equal(fcntl(device.dmabuf, F_GETFD), -1); /* it went with the stage */

    fake_cuda_open();
    tb_cuda_replace_image(FAKE_CUDA_IMAGE); /* neither ordered nor flushed */
    world_start(&w);
    CHECK_OK(stage_open(&w));
    assert_false(tb_gpu_stage_device(w.stage, tb_gpu_stage_base(w.stage), CHUNK, &device));
    assert_int_equal(fake_cuda_calls("cuMemGetHandleForAddressRange"), 0);
    world_close(&w);
}

#define CHUNKS 64u

/* Nobody who asks waits for the device, and it gets at once all that came meanwhile, while the lane
 * before it still works. */
static void all_that_come_meanwhile_are_one_launch(void **state)
{
    (void)state;
    struct world w;
    struct gpu_asks asks;
    struct gpu_asked_landing landings[CHUNKS];
    world_open(&w, true);
    fake_cuda_fail(NULL, 0, CUDA_SUCCESS); /* calls count from here */
    fake_cuda_hold("cuLaunchKernel");
    gpu_asks_init(&asks);
    for (uint32_t i = 0; i < CHUNKS; i++) {
        landings[i].landing = (struct tb_gpu_landing){
            .at = tb_gpu_stage_base(w.stage) + i * 4096, .bytes = 4096, .from = w.truth + i * 4096};
        gpu_asks_land(&asks, w.stage, &landings[i]);
        while (i == 0 && !fake_cuda_held())
            sched_yield();
    }
    assert_int_equal(gpu_asks_answered(&asks), 0);
    fake_cuda_hold(NULL);
    CHECK_OK(gpu_asks_wait(&asks));
    for (uint32_t i = 0; i < CHUNKS; i++) {
        const struct tb_digest right = tb_digest_of(w.truth + i * 4096, 4096);
        assert_true(tb_digest_equal(&landings[i].landing.digest, &right));
    }
    struct tb_gpu_stage_facts facts;
    tb_gpu_stage_facts(w.stage, &facts);
    assert_int_equal(fake_cuda_calls("cuLaunchKernel"), 2);
    /* Each batch: its jobs, its digests, and chunks that stand side by side as one. */
    assert_int_equal(fake_cuda_calls("cuMemcpyAsync"), 2 * 3);
    assert_int_equal(facts.queue.batches, 2);
    assert_int_equal(facts.queue.largest, CHUNKS - 1);
    assert_int_equal(facts.queue.beside, 1);
    world_close(&w);
}

/* The ring has two parts at least, gives each out once, and takes it back. */
static void the_ring_is_lent_part_by_part(void **state)
{
    (void)state;
    struct world w;
    uint8_t *lent[64];
    uint32_t count = 0;
    world_open(&w, true);
    while (count < 64 && (lent[count] = tb_gpu_stage_lend(w.stage, CHUNK)) != NULL)
        memset(lent[count], (int)count, CHUNK), count++;
    assert_in_range(count, 2, 63);
    for (uint32_t i = 0; i < count; i++)
        assert_true(lent[i][0] == i && lent[i][CHUNK - 1] == i);
    for (uint32_t i = 0; i < count; i++)
        tb_gpu_stage_give(w.stage, lent[i]);
    struct tb_gpu_stage_facts facts;
    tb_gpu_stage_facts(w.stage, &facts);
    assert_int_equal(facts.ring_bytes, (uint64_t)count * CHUNK);
    lent[0] = tb_gpu_stage_lend(w.stage, CHUNK);
    assert_non_null(lent[0]);
    memcpy(lent[0], w.truth, CHUNK);
    struct tb_gpu_landing landing = {.at = tb_gpu_stage_base(w.stage), .bytes = CHUNK, .from = lent[0]};
    CHECK_OK(gpu_land(w.stage, &landing));
    assert_int_equal(fake_cuda_counts().unpinned_copies, 0);
    tb_gpu_stage_give(w.stage, lent[0]);
    world_close(&w);
}

/* P10: a refusal of the driver is a status, nothing of it runs on, and the stage is known for
 * it. */
static void a_take_that_the_driver_refuses_is_told(void **state)
{
    (void)state;
    static const char *const entries[] = {"cuMemcpyAsync",    "cuLaunchKernel",
                                          "cuEventRecord",    "cuEventSynchronize",
                                          "cuCtxPushCurrent", "cuFlushGPUDirectRDMAWrites"};
    for (size_t e = 0; e < sizeof entries / sizeof entries[0]; e++) {
        struct world w;
        bool is;
        world_open(&w, false);
        fake_cuda_fail(entries[e], 1, CUDA_ERROR_ECC_UNCORRECTABLE);
        CHECK_STATUS(take(&w, 1, CHUNK, w.truth + 1, &is), TB_SITE_IO);
        assert_true(fake_cuda_failed());
        assert_true(fake_cuda_idle());
        assert_true(tb_gpu_stage_failed(w.stage));
        world_close(&w);
    }
}

/* When any call of its opening is refused, nothing is left of it, and a sentence says why. */
static void a_stage_that_cannot_be_opened_leaves_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *entry;
        const char *says;
        uint32_t calls;
    } rows[] = {{"cuMemAlloc", "no room", 5},
                {"cuMemHostAlloc", "no room", 2},
                {"cuStreamCreate", "the driver refused", 2},
                {"cuEventCreate", "the driver refused", 2},
                {"cuCtxPushCurrent", "the driver refused", 1}};
    for (size_t e = 0; e < sizeof rows / sizeof rows[0]; e++) {
        for (uint32_t nth = 1; nth <= rows[e].calls; nth++) {
            struct world w;
            fake_cuda_open();
            tb_cuda_replace_image(FAKE_CUDA_IMAGE);
            world_start(&w);
            const struct fake_cuda_counts before = fake_cuda_counts();
            fake_cuda_fail(rows[e].entry, nth, CUDA_ERROR_OUT_OF_MEMORY);
            CHECK_STATUS(stage_open(&w), TB_SITE_NOMEM);
            assert_true(fake_cuda_failed());
            assert_non_null(strstr(w.why, rows[e].says));
            assert_null(w.stage);
            const struct fake_cuda_counts after = fake_cuda_counts();
            assert_int_equal(after.allocations, before.allocations);
            assert_int_equal(after.host_allocations, before.host_allocations);
            assert_int_equal(after.streams, before.streams);
            assert_int_equal(after.events, before.events);
            fake_cuda_fail(NULL, 0, CUDA_SUCCESS);
            CHECK_OK(stage_open(&w));
            world_close(&w);
        }
    }
}

static void without_kernels_there_is_none(void **state)
{
    (void)state;
    struct world w;
    fake_cuda_open();
    world_start(&w);
    CHECK_STATUS(stage_open(&w), TB_NOT_FOUND);
    assert_non_null(strstr(w.why, "cores: "));
    assert_int_equal(fake_cuda_calls("cuMemAlloc"), 0);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chunk_that_lands_is_digested_where_it_stands),
        cmocka_unit_test(a_foreign_chunk_is_proven_where_it_stands),
        cmocka_unit_test(writes_of_a_nic_are_flushed_before_a_digest),
        cmocka_unit_test(a_nic_is_given_the_stage_where_its_writes_are_seen),
        cmocka_unit_test(all_that_come_meanwhile_are_one_launch),
        cmocka_unit_test(the_ring_is_lent_part_by_part),
        cmocka_unit_test(a_take_that_the_driver_refuses_is_told),
        cmocka_unit_test(a_stage_that_cannot_be_opened_leaves_nothing),
        cmocka_unit_test(without_kernels_there_is_none),
    };
    tb_log_set(TB_LOG_ERROR, STDERR_FILENO);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
