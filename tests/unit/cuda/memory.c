/* memory.c - device memory over a driver that is none (fake_cuda.h): whose a pointer is, copies on
 * two lanes, the pass, pins, captures, and what is left when the driver refuses.
 *
 * Covers: intra/cuda/cuda_memory.c intra/cuda/cuda_pass.c intra/cuda/cuda_device.c */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "intra/cuda_part_deltas.h"
#include "unit/check.h"
#include "unit/cuda/device_pass.h"
#include "unit/cuda/fake_cuda.h"
#include "unit/cuda/fake_device.h"
#include "unit/cuda/shard_on_gpu.h"

/* ---- whose ---- */

static void the_driver_says_whose_a_pointer_is(void **state)
{
    (void)state;
    struct device_pass w;
    device_pass_open(&w);
    for (uint32_t i = 0; i < SHARD_TENSORS; i++)
        assert_int_equal(tb_gpu_memory_has(w.shard.memory, i),
                         !w.shard.in_host[i] && w.shard.manifest.layout.tensors[i].bytes > 0);
    assert_false(tb_gpu_memory_has(NULL, 0));
    struct tb_gpu_facts facts;
    tb_gpu_memory_facts(w.shard.memory, &facts);
    assert_int_equal(facts.device, 0);
    assert_string_equal(facts.name, "Fake \"0\"");
    assert_true(facts.dmabuf);
    device_pass_close(&w);
}

static enum tb_status open_two(struct tb_gpu *gpu, void *first, void *second, char *why,
                               struct tb_gpu_memory **memory_out)
{
    struct tb_tensor list[2];
    memset(list, 0, sizeof list);
    for (int i = 0; i < 2; i++)
        list[i] = (struct tb_tensor){.name = i == 0 ? "one" : "two",
                                     .dtype = TB_DTYPE_U8,
                                     .rank = 1,
                                     .full = {100},
                                     .box_count = {100}};
    uint64_t memory[256];
    struct tb_layout layout;
    CHECK_OK(tb_layout_build(list, 2, memory, sizeof memory, &layout));
    uint8_t *at[] = {first, second};
    const struct tb_gpu_tensors tensors = {&layout, at};
    why[0] = '\0';
    return tb_gpu_memory_open(gpu, &tensors, memory_out, why);
}

static void host_memory_needs_no_gpu(void **state)
{
    (void)state;
    fake_cuda_open();
    struct tb_gpu *gpu;
    CHECK_OK(tb_gpu_open(&gpu, (char[TB_GPU_WHY_BYTES]){""}));
    struct tb_gpu_memory *m = (struct tb_gpu_memory *)&m;
    uint8_t host[200];
    char why[TB_GPU_WHY_BYTES];
    CHECK_OK(open_two(gpu, host, host + 100, why, &m));
    assert_null(m);
    void *managed = fake_cuda_alloc(0, 200);
    fake_cuda_set_managed(managed);
    CHECK_OK(open_two(gpu, managed, host, why, &m));
    assert_null(m);
    fake_cuda_set_initialised(false); /* libcuda is loaded, and nobody called cuInit */
    CHECK_OK(open_two(gpu, host, host, why, &m));
    assert_null(m);
    fake_cuda_fail("cuPointerGetAttributes", 1,
                   CUDA_ERROR_INVALID_CONTEXT); /* or cuInit, and made no context */
    CHECK_OK(open_two(gpu, host, host, why, &m));
    assert_null(m);
    assert_int_equal(fake_cuda_counts().contexts, 0);
    assert_int_equal(fake_cuda_calls("cuInit"), 0);
    /* And without a driver at all. */
    CHECK_OK(open_two(NULL, host, host, why, &m));
    assert_null(m);
    tb_gpu_close(gpu);
    fake_cuda_close();
}

static void two_devices_and_strange_contexts_are_refused(void **state)
{
    (void)state;
    fake_cuda_open();
    struct tb_gpu *gpu;
    CHECK_OK(tb_gpu_open(&gpu, (char[TB_GPU_WHY_BYTES]){""}));
    struct tb_gpu_memory *m = NULL;
    char why[TB_GPU_WHY_BYTES];
    void *here = fake_cuda_alloc(0, 100), *there = fake_cuda_alloc(1, 100);
    CHECK_STATUS(open_two(gpu, here, there, why, &m), TB_BAD_ARGUMENT);
    assert_string_equal(
        why, "tensor \"two\" stands on another GPU than those before it: register each GPU's tensors apart");
    fake_cuda_set_context(here, true);
    CHECK_STATUS(open_two(gpu, here, here, why, &m), TB_BAD_ARGUMENT);
    assert_string_equal(
        why, "tensor \"one\" stands in a context other than the GPU's primary one: allocate it there");
    assert_null(m);
    CHECK_OK(open_two(gpu, there, there, why, &m));
    assert_non_null(m);
    struct tb_gpu_facts facts;
    tb_gpu_memory_facts(m, &facts);
    assert_int_equal(facts.device, 1);
    tb_gpu_memory_close(m);
    tb_gpu_close(gpu);
    fake_cuda_close();
}

/* ---- copies ---- */

/* P1: the copied bytes are digested, and all of them had arrived. */
static void a_pass_copies_and_digests_what_the_device_has(void **state)
{
    (void)state;
    struct device_pass w;
    device_pass_open(&w);
    CHECK_OK(device_pass_run(&w, true));
    assert_memory_equal(w.to.bytes, w.shard.packed, w.shard.manifest.bytes);
    assert_true(device_pass_digests_are_right(&w));
    memset(w.got, 0, w.shard.manifest.chunk_count * sizeof *w.got);
    CHECK_OK(device_pass_run(&w, false)); /* nowhere to copy to: by way of two pinned buffers of the lanes */
    assert_true(device_pass_digests_are_right(&w));
    assert_int_equal(fake_cuda_counts().host_allocations, 0);
    device_pass_close(&w);
}

/* The second batch is asked for before the first is waited for, and a lane's buffer is not written
 * again before what stands in it was digested. */
static void one_batch_is_copied_while_the_one_before_is_digested(void **state)
{
    (void)state;
    struct device_pass w;
    device_pass_open_of(&w, SHARD_LARGE);
    fake_cuda_trace_clear();
    CHECK_OK(device_pass_run(&w, false));
    assert_string_equal(fake_cuda_trace(), "c0 e0 c1 e1 w0 d c0 e0 w1 d w0 d");
    device_pass_close(&w);
}

/* ---- digested by the device ---- */

/* P1: the digests are those of the bytes that were copied, and nothing is digested by cores but two
 * chunks that are too short (d). Of the first batch a kernel gathers what is small. */
static void a_device_with_kernels_digests_what_it_has(void **state)
{
    (void)state;
    struct device_pass w;
    fake_cuda_open();
    tb_cuda_replace_image(FAKE_CUDA_IMAGE);
    device_pass_start(&w, SHARD_SMALL);
    struct tb_gpu_facts facts;
    tb_gpu_memory_facts(w.shard.memory, &facts);
    assert_string_equal(facts.digests, "gpu");
    fake_cuda_trace_clear();
    CHECK_OK(device_pass_run(&w, true));
    assert_string_equal(fake_cuda_trace(), "c0 k0 c0 k0 c0 e0 c1 k1 c1 e1 w0 d d w1");
    assert_memory_equal(w.to.bytes, w.shard.packed, w.shard.manifest.bytes);
    assert_true(device_pass_digests_are_right(&w));
    memset(w.got, 0, w.shard.manifest.chunk_count * sizeof *w.got);
    CHECK_OK(device_pass_run(&w, false));
    assert_true(device_pass_digests_are_right(&w));
    device_pass_close(&w);
}

/* Without room for it, or without kernels that this device takes, cores digest. */
static void without_room_or_kernels_cores_digest(void **state)
{
    (void)state;
    static const char *const entries[] = {"cuMemAlloc", "cuMemHostAlloc", "cuModuleLoadData",
                                          "cuModuleGetFunction"};
    for (size_t e = 0; e < sizeof entries / sizeof entries[0]; e++) {
        for (uint32_t nth = 1; nth <= 2; nth++) {
            struct device_pass w;
            fake_cuda_open();
            tb_cuda_replace_image(FAKE_CUDA_IMAGE);
            fake_cuda_fail(entries[e], nth, CUDA_ERROR_OUT_OF_MEMORY);
            device_pass_start(&w, SHARD_SMALL);
            CHECK_OK(device_pass_run(&w, true));
            assert_int_equal(fake_cuda_failed(), e != 2 || nth == 1);
            struct tb_gpu_facts facts;
            tb_gpu_memory_facts(w.shard.memory, &facts);
            assert_int_equal(strncmp(facts.digests, "cores: ", 7) == 0, fake_cuda_failed());
            assert_true(device_pass_digests_are_right(&w));
            assert_memory_equal(w.to.bytes, w.shard.packed, w.shard.manifest.bytes);
            device_pass_close(&w);
        }
    }
}

/* A device that had no room for patches once is not asked again, and nothing more is staged for it
 * as a patch; until then it is. */
static void without_room_for_patches_none_is_made(void **state)
{
    (void)state;
    static const struct {
        const char *entry;
        uint32_t calls; /* of both lanes: for passes and for patches */
    } rows[] = {{"cuMemAlloc", 10}, {"cuMemHostAlloc", 4}};
    for (size_t e = 0; e < sizeof rows / sizeof rows[0]; e++) {
        for (uint32_t nth = 1; nth <= rows[e].calls + 1; nth++) {
            const bool refused = nth <= rows[e].calls;
            struct device_pass w;
            fake_cuda_open();
            tb_cuda_replace_image(FAKE_CUDA_IMAGE);
            device_pass_start(&w, SHARD_SMALL);
            fake_cuda_fail(rows[e].entry, nth, CUDA_ERROR_OUT_OF_MEMORY);
            assert_true(tb_gpu_may_patch(w.shard.memory));
            CHECK_STATUS(tb_gpu_patch(w.shard.memory, NULL, 0), refused ? TB_SITE_NOMEM : TB_OK);
            assert_int_equal(fake_cuda_failed(), refused);
            assert_int_equal(tb_gpu_may_patch(w.shard.memory), !refused);
            device_pass_close(&w);
        }
    }
}

static void a_launch_that_is_refused_is_told(void **state)
{
    (void)state;
    struct device_pass w;
    fake_cuda_open();
    tb_cuda_replace_image(FAKE_CUDA_IMAGE);
    device_pass_start(&w, SHARD_SMALL);
    static const char *const entries[] = {"cuLaunchKernel", "cuMemcpyAsync", "cuEventSynchronize"};
    for (size_t e = 0; e < sizeof entries / sizeof entries[0]; e++) {
        fake_cuda_fail(entries[e], 2, CUDA_ERROR_ILLEGAL_ADDRESS);
        CHECK_STATUS(device_pass_run(&w, true), TB_SITE_IO);
        assert_true(fake_cuda_failed());
        assert_true(fake_cuda_idle());
    }
    fake_cuda_fail(NULL, 0, CUDA_SUCCESS);
    CHECK_OK(device_pass_run(&w, true));
    assert_true(device_pass_digests_are_right(&w));
    device_pass_close(&w);
}

static void memory_is_pinned_once_and_unpinned_before_it_goes(void **state)
{
    (void)state;
    struct device_pass w;
    device_pass_open(&w);
    CHECK_OK(device_pass_run(&w, true));
    assert_true(fake_cuda_counts().unpinned_copies > 0);
    const uint64_t before = fake_cuda_counts().unpinned_copies;
    tb_gpu_pin(w.gpu, &w.to);
    tb_gpu_pin(w.gpu, &w.to);
    assert_int_equal(fake_cuda_counts().pinned, 1);
    CHECK_OK(device_pass_run(&w, true));
    /* The two tensors that the caller has in host memory are left. */
    assert_true(fake_cuda_counts().unpinned_copies - before < before);
    tb_shared_memory_free(&w.to);
    assert_int_equal(fake_cuda_counts().pinned, 0);
    /* A refusal costs speed alone. */
    CHECK_OK(tb_shared_memory_new("test", w.shard.manifest.bytes, &w.to));
    fake_cuda_fail("cuMemHostRegister", 1, CUDA_ERROR_OUT_OF_MEMORY);
    tb_gpu_pin(w.gpu, &w.to);
    assert_null(w.to.pin);
    CHECK_OK(device_pass_run(&w, true));
    assert_memory_equal(w.to.bytes, w.shard.packed, w.shard.manifest.bytes);
    device_pass_close(&w);
}

/* ---- graphs ---- */

/* An engine captures a graph on a thread of its own, in the mode in which nobody else may do what
 * would spoil it, while readers come and go, versions are published and switched, and memory is
 * registered. The fake ends who spoils it. */
static void a_capture_of_another_thread_is_not_spoilt(void **state)
{
    (void)state;
    struct device_pass w;
    device_pass_open(&w);
    fake_cuda_set_capturing(true);
    struct tb_gpu_memory *again = NULL;
    struct tb_gpu_tray *tray;
    struct tb_gpu_offer offer;
    char why[TB_GPU_WHY_BYTES] = "";
    const struct tb_gpu_tensors tensors = {&w.shard.manifest.layout, w.shard.tensors};
    const struct tb_gpu_rows move = {.row = {w.shard.tensors[0], w.shard.packed, 50}};
    const struct tb_gpu_origin origin = {w.shard.memory, &w.shard.manifest, shard_spread(&w.shard)};
    const struct tb_gpu_fill fill = {.bytes = 100};
    tb_gpu_pin(w.gpu, &w.to);
    CHECK_OK(device_pass_run(&w, true));
    CHECK_OK(tb_gpu_move(w.shard.memory, &move, 1));
    CHECK_OK(tb_gpu_tray_open(w.shard.memory, 1 << 20, &tray, &offer));
    CHECK_OK(tb_gpu_tray_fill(tray, &origin, &fill, 1));
    tb_gpu_tray_close(tray, true);
    CHECK_OK(tb_gpu_memory_open(w.gpu, &tensors, &again, why));
    tb_gpu_memory_close(again);
    fake_cuda_fail("cuCtxPushCurrent", 1, CUDA_ERROR_UNKNOWN);
    CHECK_STATUS(tb_gpu_move(w.shard.memory, &move, 1), TB_SITE_IO);
    assert_false(fake_cuda_stands_aside()); /* its own captures are as they were */
    device_pass_close(&w);
}

/* A device comes up, and goes, during a capture. */
static void nor_by_a_device_that_comes_up(void **state)
{
    (void)state;
    fake_cuda_open();
    fake_cuda_set_capturing(true);
    struct tb_gpu *gpu;
    struct shard_on_gpu shard;
    CHECK_OK(tb_gpu_open(&gpu, (char[TB_GPU_WHY_BYTES]){""}));
    shard_open(&shard, gpu, &fake_device, SHARD_SMALL);
    shard_close(&shard, &fake_device);
    tb_gpu_close(gpu);
    assert_false(fake_cuda_stands_aside());
    fake_cuda_close();
}

/* ---- trays ---- */

/* In a process of its own: lends a tray, and keeps it until it is told to go. */
static void lend(int to, int until)
{
    struct tb_gpu *gpu;
    struct shard_on_gpu shard;
    struct tb_gpu_tray *tray;
    struct tb_gpu_offer offer;
    char end;
    CHECK_OK(tb_gpu_open(&gpu, (char[TB_GPU_WHY_BYTES]){""}));
    shard_open(&shard, gpu, &fake_device, SHARD_SMALL);
    CHECK_OK(tb_gpu_tray_open(shard.memory, 1 << 20, &tray, &offer));
    (void)!write(to, &offer, sizeof offer);
    (void)!read(until, &end, 1);
    _exit(0);
}

static pid_t lender;

static int lender_end(void **state)
{
    (void)state;
    if (lender <= 0) return 0;
    (void)kill(lender, SIGKILL);
    (void)waitpid(lender, NULL, 0);
    return 0;
}

/* P8: a source may lend less than it says: what is behind its memory is never read. */
static void a_tray_that_is_smaller_than_said_is_not_opened(void **state)
{
    (void)state;
    int offers[2], ends[2];
    struct tb_gpu_offer offer;
    struct tb_gpu_reach *reach;
    struct device_pass w;
    fake_cuda_open();
    assert_int_equal(pipe(offers), 0);
    assert_int_equal(pipe(ends), 0);
    lender = fork();
    if (lender == 0) lend(offers[1], ends[0]);
    device_pass_start(&w, SHARD_SMALL);
    assert_int_equal(read(offers[0], &offer, sizeof offer), sizeof offer);
    CHECK_OK(tb_gpu_reach_open(w.gpu, &offer, &reach));
    tb_gpu_reach_close(reach);
    offer.bytes = (uint64_t)2 << 20; /* the driver's block, of which it is a part */
    CHECK_OK(tb_gpu_reach_open(w.gpu, &offer, &reach));
    tb_gpu_reach_close(reach);
    offer.bytes++;
    CHECK_STATUS(tb_gpu_reach_open(w.gpu, &offer, &reach), TB_PEER_GARBLED);
    offer.bytes = UINT64_MAX;
    CHECK_STATUS(tb_gpu_reach_open(w.gpu, &offer, &reach), TB_PEER_GARBLED);
    offer.bytes = 1 << 20;
    fake_cuda_fail("cuMemGetAddressRange", 1, CUDA_ERROR_UNKNOWN);
    CHECK_STATUS(tb_gpu_reach_open(w.gpu, &offer, &reach), TB_SITE_IO);
    assert_int_equal(fake_cuda_counts().ipc, 0);
    assert_int_equal(write(ends[1], "e", 1), 1);
    int code;
    assert_int_equal(waitpid(lender, &code, 0), lender);
    lender = 0;
    assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
    for (int i = 0; i < 2; i++) {
        close(offers[i]);
        close(ends[i]);
    }
    device_pass_close(&w);
}

/* ---- refusals ---- */

static enum tb_status expected(CUresult result)
{
    return result == CUDA_ERROR_OUT_OF_MEMORY ? TB_SITE_NOMEM : TB_SITE_IO;
}

/* P1, P7: whatever is refused at whichever call, a pass that answers TB_OK has all bytes right,
 * one that does not says so, nothing runs on behind its back, and nothing is left.
 * fake_cuda_close counts. */
static void every_refusal_is_told_and_leaves_nothing(void **state)
{
    (void)state;
    static const char *const entries[] = {"cuMemcpyAsync", "cuEventRecord", "cuEventSynchronize",
                                          "cuMemHostAlloc", "cuCtxPushCurrent"};
    static const CUresult results[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_ECC_UNCORRECTABLE};
    struct device_pass w;
    device_pass_open(&w);
    for (size_t e = 0; e < sizeof entries / sizeof entries[0]; e++) {
        for (uint32_t nth = 1;; nth++) {
            fake_cuda_fail(entries[e], nth, results[nth % 2]);
            memset(w.got, 0, w.shard.manifest.chunk_count * sizeof *w.got);
            const enum tb_status status = device_pass_run(&w, false);
            if (!fake_cuda_failed()) {
                CHECK_OK(status);
                break;
            }
            CHECK_STATUS(status, expected(results[nth % 2]));
            assert_true(fake_cuda_idle());
        }
        assert_true(fake_cuda_calls(entries[e]) > 0);
        assert_true(device_pass_digests_are_right(&w)); /* of the run in which nothing failed any more */
    }
    device_pass_close(&w);
}

/* A switch that failed has no copy running on into buffers that its caller may free. */
static void a_move_that_is_refused_does_not_run_on(void **state)
{
    (void)state;
    static const char *const entries[] = {"cuMemcpyAsync", "cuEventRecord", "cuEventSynchronize"};
    struct device_pass w;
    device_pass_open(&w);
    uint8_t from[100] = {0};
    const struct tb_gpu_rows moves[] = {{.row = {w.shard.tensors[0], from, 50}},
                                        {.row = {w.shard.tensors[0] + 50, from + 50, 50}}};
    for (size_t e = 0; e < sizeof entries / sizeof entries[0]; e++) {
        for (uint32_t nth = 1; nth <= 2; nth++) {
            fake_cuda_fail(entries[e], nth, CUDA_ERROR_UNKNOWN);
            CHECK_STATUS(tb_gpu_move(w.shard.memory, moves, 2), TB_SITE_IO);
            assert_true(fake_cuda_idle());
        }
    }
    device_pass_close(&w);
}

static void a_memory_that_cannot_be_opened_leaves_nothing(void **state)
{
    (void)state;
    static const char *const entries[] = {"cuPointerGetAttributes",   "cuDeviceGet",
                                          "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent",
                                          "cuStreamCreate",           "cuEventCreate"};
    for (size_t e = 0; e < sizeof entries / sizeof entries[0]; e++) {
        for (uint32_t nth = 1;; nth++) {
            fake_cuda_open();
            struct tb_gpu *gpu;
            CHECK_OK(tb_gpu_open(&gpu, (char[TB_GPU_WHY_BYTES]){""}));
            void *here = fake_cuda_alloc(0, 200);
            struct tb_gpu_memory *m = NULL;
            char why[TB_GPU_WHY_BYTES];
            fake_cuda_fail(entries[e], nth, CUDA_ERROR_UNKNOWN);
            const enum tb_status status = open_two(gpu, here, (uint8_t *)here + 100, why, &m);
            const bool failed = fake_cuda_failed();
            CHECK_STATUS(status, failed ? TB_SITE_IO : TB_OK);
            assert_int_equal(m == NULL, failed);
            if (failed) assert_non_null(strstr(why, "gpu.failed"));
            fake_cuda_fail(NULL, 0, CUDA_SUCCESS);
            tb_gpu_memory_close(m);
            tb_gpu_close(gpu);
            fake_cuda_close();
            if (!failed) break;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_driver_says_whose_a_pointer_is),
        cmocka_unit_test(host_memory_needs_no_gpu),
        cmocka_unit_test(two_devices_and_strange_contexts_are_refused),
        cmocka_unit_test(a_pass_copies_and_digests_what_the_device_has),
        cmocka_unit_test(one_batch_is_copied_while_the_one_before_is_digested),
        cmocka_unit_test(a_device_with_kernels_digests_what_it_has),
        cmocka_unit_test(without_room_or_kernels_cores_digest),
        cmocka_unit_test(without_room_for_patches_none_is_made),
        cmocka_unit_test(a_launch_that_is_refused_is_told),
        cmocka_unit_test(memory_is_pinned_once_and_unpinned_before_it_goes),
        cmocka_unit_test(a_capture_of_another_thread_is_not_spoilt),
        cmocka_unit_test(nor_by_a_device_that_comes_up),
        cmocka_unit_test_teardown(a_tray_that_is_smaller_than_said_is_not_opened, lender_end),
        cmocka_unit_test(every_refusal_is_told_and_leaves_nothing),
        cmocka_unit_test(a_move_that_is_refused_does_not_run_on),
        cmocka_unit_test(a_memory_that_cannot_be_opened_leaves_nothing),
    };
    tb_log_set(TB_LOG_ERROR, STDERR_FILENO);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
