/* staged.c - libtombolo staging versions in a GPU's memory, over a driver that is none
 * (fake_cuda.h) with our kernels in it: what only a fake can show; gpu_suite.c has the rest. Its
 * device memory ends a process that touches it from the host.
 *
 * Covers: intra/client/follow/staged_gpu.c intra/cuda/cuda_stage.c */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "intra/fabric/fabric_exports.h"
#include "unit/check.h"
#include "unit/client/fake_gateway.h"
#include "unit/cuda/fake_cuda.h"
#include "unit/cuda/fake_device.h"
#include "unit/cuda/gpu_worker.h"

#define VERSION_BYTES (GPU_WORKER_BIG + GPU_WORKER_SMALL)

struct world {
    struct fake f;
    struct gpu_worker rank, rollout;
    struct tb_subscription *sub;
    struct tb_uid uid; /* of the version that the rank published last */
    int log;
    char told[4096];
};

static struct tb_subscribe_options options_of(struct tb_registration *r)
{
    return (struct tb_subscribe_options){.struct_bytes = sizeof(struct tb_subscribe_options),
                                         .member_count = 1,
                                         .model = "policy",
                                         .registration = r,
                                         .stage_on_gpu = 1};
}

static void world_start(struct world *w)
{
    memset(w, 0, sizeof *w);
    w->log = memfd_create("log", MFD_CLOEXEC);
    tb_log_set(TB_LOG_WARN, w->log);
    fake_open(&w->f);
    gpu_worker_open(&w->rank, &w->f, &fake_device_with_kernels, "rank0", "host-a");
    gpu_worker_open(&w->rollout, &w->f, &fake_device_with_kernels, "rollout0", "host-b");
}

static void world_open(struct world *w)
{
    fake_device_with_kernels.open();
    world_start(w);
    const struct tb_subscribe_options o = options_of(w->rollout.r);
    CHECK_OK(tb_subscribe(w->rollout.s, &o, &w->sub));
}

static void world_close(struct world *w)
{
    fake_cuda_fail(NULL, 0, CUDA_SUCCESS);
    gpu_worker_close(&w->rollout, &fake_device_with_kernels);
    gpu_worker_close(&w->rank, &fake_device_with_kernels);
    fake_close(&w->f);
    fake_cuda_close();
    tb_log_set(TB_LOG_ERROR, STDERR_FILENO);
    close(w->log);
}

/* How many lines of the log have both. */
static uint32_t told(struct world *w, const char *event, const char *words)
{
    uint32_t lines = 0;
    const ssize_t n = pread(w->log, w->told, sizeof w->told - 1, 0);
    w->told[n > 0 ? n : 0] = '\0';
    for (char *line = strtok(w->told, "\n"); line != NULL; line = strtok(NULL, "\n"))
        lines += strstr(line, event) != NULL && strstr(line, words) != NULL;
    return lines;
}

static struct fake_version *publish(struct world *w, uint64_t number)
{
    gpu_worker_fill(&w->rank, &fake_device_with_kernels, number);
    CHECK_OK(gpu_worker_publish(&w->rank, number, TB_PUBLISH_SHADOW));
    fake_land(&w->f, number);
    struct fake_version *v = fake_version(&w->f, number);
    w->uid = fake_uid(v);
    return v;
}

static void stage(struct world *w)
{
    if (tb_stage(w->sub, &w->uid, 20000) != TB_OK) fail_msg("%s", tb_last_error());
}

/* It is the rank's. */
static void activate(struct world *w, uint64_t number)
{
    fake_go(&w->f, number);
    struct tb_activate_info info = {.struct_bytes = sizeof info};
    if (tb_activate(w->sub, &w->uid, &info) != TB_OK) fail_msg("%s", tb_last_error());
    assert_true(info.staged_bytes >= VERSION_BYTES);
    assert_true(gpu_worker_holds(&w->rollout, &fake_device_with_kernels, &w->rank));
}

/* Of the rollout's only staging. */
static uint64_t status_of(const struct world *w, const char *key)
{
    char text[4096];
    uint64_t needed;
    CHECK_OK(tb_status(w->rollout.s, "session", text, sizeof text, &needed));
    const char *at = strstr(text, key);
    assert_non_null(at);
    return strtoull(at + strlen(key), NULL, 10);
}

static bool is_on_gpu(const struct world *w)
{
    return status_of(w, "\"gpu_bytes\":") > 0;
}

static bool same_device_memory(const struct fake_cuda_counts *a, const struct fake_cuda_counts *b)
{
    return a->allocations == b->allocations && a->streams == b->streams && a->events == b->events &&
           a->host_allocations == b->host_allocations && a->pinned == b->pinned;
}

/* ---- what it takes ---- */

/* Two stand beside each other; what each took goes when it is released, and nothing of it is
 * kept. */
static void a_release_gives_the_gpu_its_memory_back(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    publish(&w, 1);
    const struct fake_cuda_counts before = fake_cuda_counts();
    stage(&w);
    const struct tb_uid first = w.uid;
    const struct fake_cuda_counts one = fake_cuda_counts();
    assert_true(one.allocations > before.allocations);
    assert_int_equal(one.pinned, before.pinned); /* no host memory is for the version */
    fake_wait_seen(&w.f, TB_MSG_EXPORT, 1);
    assert_int_equal(w.f.exported.export_id, 0); /* nobody is sent here */
    activate(&w, 1);
    publish(&w, 2);
    stage(&w);
    activate(&w, 2);
    CHECK_OK(tb_release(w.sub, &first));
    CHECK_OK(tb_release(w.sub, &w.uid));
    const struct fake_cuda_counts after = fake_cuda_counts();
    assert_int_equal(after.allocations, before.allocations);
    assert_int_equal(after.streams, before.streams);
    assert_int_equal(told(&w, "staging.not_on_gpu", ""), 0);
    world_close(&w);
}

/* The switch stays on the device: what it asks of the driver while the version is copied has no
 * memory of the host in it. */
static void the_switch_copies_inside_the_device(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    publish(&w, 1);
    stage(&w);
    const uint64_t before = fake_cuda_counts().unpinned_copies;
    activate(&w, 1);
    assert_int_equal(fake_cuda_counts().unpinned_copies, before);
    world_close(&w);
}

/* ---- where it cannot be ---- */

/* P10: no room at any step: it is staged in host memory, one line says why, and the switch is as
 * good. The next one has room. */
static void without_room_it_is_staged_in_host_memory(void **state)
{
    (void)state;
    for (uint32_t nth = 1; nth <= 3; nth += 2) { /* for the version, and to digest in */
        struct world w;
        world_open(&w);
        publish(&w, 1);
        const uint32_t allocations = fake_cuda_counts().allocations;
        fake_cuda_fail("cuMemAlloc", nth, CUDA_ERROR_OUT_OF_MEMORY);
        stage(&w);
        assert_true(fake_cuda_failed());
        assert_int_equal(fake_cuda_counts().allocations, allocations);
        assert_false(is_on_gpu(&w));
        assert_int_equal(told(&w, "staging.not_on_gpu", "no room"), 1);
        activate(&w, 1);
        CHECK_OK(tb_release(w.sub, &w.uid));
        fake_cuda_fail(NULL, 0, CUDA_SUCCESS);
        publish(&w, 2);
        stage(&w);
        assert_true(is_on_gpu(&w));
        activate(&w, 2);
        assert_int_equal(told(&w, "staging.not_on_gpu", ""), 1);
        world_close(&w);
    }
}

static void without_kernels_it_is_staged_in_host_memory(void **state)
{
    (void)state;
    struct world w;
    fake_cuda_open();
    world_start(&w);
    const struct tb_subscribe_options o = options_of(w.rollout.r);
    CHECK_OK(tb_subscribe(w.rollout.s, &o, &w.sub));
    publish(&w, 1);
    stage(&w);
    assert_false(is_on_gpu(&w));
    assert_int_equal(told(&w, "staging.not_on_gpu", "would not digest"), 1);
    activate(&w, 1);
    world_close(&w);
}

/* Some of the tensors are the host's, or all, or another subscription has it already. */
static void a_version_that_is_in_part_the_hosts_is_staged_there(void **state)
{
    (void)state;
    struct world w;
    fake_device_with_kernels.open();
    world_start(&w);
    publish(&w, 1);
    uint8_t *host_big = malloc(GPU_WORKER_BIG), *host_small = malloc(GPU_WORKER_SMALL);
    const uint64_t big[] = {3, GPU_WORKER_BIG / 6}, small[] = {GPU_WORKER_SMALL};
    for (int all = 0; all < 2; all++) {
        const struct tb_tensor_desc tensors[] = {
            {.name = "model.small", .dtype = "U8", .rank = 1, .shape = small, .memory = host_small},
            {.name = "model.big",
             .dtype = "BF16",
             .rank = 2,
             .shape = big,
             .memory = all ? host_big : w.rollout.big}};
        struct tb_registration *r;
        CHECK_OK(tb_register(w.rollout.s, tensors, 2, &r));
        const struct tb_subscribe_options o = options_of(r);
        CHECK_OK(tb_subscribe(w.rollout.s, &o, &w.sub));
        stage(&w);
        fake_go(&w.f, 1);
        CHECK_OK(tb_activate(w.sub, &w.uid, NULL));
        assert_memory_equal(host_small, w.rank.small_truth, GPU_WORKER_SMALL);
        assert_int_equal(told(&w, "staging.not_on_gpu", all ? "\"its tensors" : "some of"), 1);
        if (all == 0) CHECK_OK(tb_unsubscribe(w.sub));
    }
    const struct tb_subscribe_options o = options_of(w.rollout.r);
    CHECK_OK(tb_subscribe(w.rollout.s, &o, &w.sub));
    stage(&w);
    assert_int_equal(told(&w, "staging.not_on_gpu", "another subscription"), 1);
    activate(&w, 1);
    world_close(&w);
    free(host_big);
    free(host_small);
}

/* Options that contradict each other are refused, and so is a second subscription to a version that
 * the first keeps for itself. */
static void contradictions_are_refused(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    struct tb_subscription *sub;
    struct tb_subscribe_options o = options_of(NULL);
    CHECK_STATUS(tb_subscribe(w.rollout.s, &o, &sub), TB_BAD_ARGUMENT);
    o = options_of(w.rollout.r);
    o.stage_on_gpu = 2;
    CHECK_STATUS(tb_subscribe(w.rollout.s, &o, &sub), TB_BAD_ARGUMENT);
    o = options_of(w.rollout.r);
    o.update = TB_UPDATE_PATCH;
    CHECK_STATUS(tb_subscribe(w.rollout.s, &o, &sub), TB_BAD_ARGUMENT);
    const uint64_t shape[] = {3, GPU_WORKER_BIG / 6}, first[] = {0, 0}, count[] = {1, 1000};
    const struct tb_slice_desc d = {.struct_bytes = sizeof d,
                                    .rank = 2,
                                    .name = "model.big",
                                    .dtype = "BF16",
                                    .shape = shape,
                                    .first = first,
                                    .count = count,
                                    .memory = w.rollout.big};
    struct tb_registration *r;
    CHECK_OK(tb_register_slices(w.rollout.s, &d, 1, &r));
    o = options_of(r);
    CHECK_STATUS(tb_subscribe(w.rollout.s, &o, &sub), TB_BAD_ARGUMENT);
    o.stage_on_gpu = 0;
    CHECK_OK(tb_subscribe(w.rollout.s, &o, &sub));
    publish(&w, 1);
    stage(&w);
    CHECK_STATUS(tb_stage(sub, &w.uid, 20000), TB_BAD_STATE);
    /* A program of before there was such a thing asks for none. */
    o = options_of(w.rollout.r);
    o.struct_bytes = offsetof(struct tb_subscribe_options, stage_on_gpu);
    CHECK_OK(tb_subscribe(w.rollout.s, &o, &sub));
    world_close(&w);
}

/* ---- chunks ---- */

/* All of it but one chunk: what the source shows of that is not what was sealed, so the device
 * refuses it, twice. Gives the byte. */
static uint8_t *stage_all_but_one(struct world *w, struct fake_version *v)
{
    uint8_t *byte = &v->shards[0].bytes[GPU_WORKER_BIG / 2];
    const uint32_t before = fake_seen(&w->f, TB_MSG_CHUNK_BAD);
    *byte ^= 1;
    CHECK_STATUS(tb_stage(w->sub, &w->uid, 0), TB_AGAIN);
    fake_wait_seen(&w->f, TB_MSG_CHUNK_BAD, before + 1);
    const uint32_t all = v->shards[0].manifest.chunk_count;
    while (status_of(w, "\"held_chunks\":") < all - 1)
        CHECK_STATUS(tb_stage(w->sub, &w->uid, 10), TB_AGAIN);
    assert_true(is_on_gpu(w));
    return byte;
}

/* P1: nothing of a chunk is held that the device did not prove. Once its source shows the right one
 * the version is whole. */
static void a_chunk_that_the_device_does_not_take_is_asked_again(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    *stage_all_but_one(&w, publish(&w, 1)) ^= 1;
    fake_plan(&w.f, 1, 1);
    stage(&w);
    activate(&w, 1);
    world_close(&w);
}

/* P5: its source goes in mid-version: what stands on the device stays held, and behind it only
 * what lacked is read. */
static void a_cut_costs_nothing_that_is_held(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    struct fake_version *v = publish(&w, 1);
    const uint64_t bytes = v->shards[0].manifest.bytes;
    (void)stage_all_but_one(&w, v);
    const uint64_t before = status_of(&w, "\"read_bytes\":");
    assert_true(before > bytes / 2 && before < bytes);
    tb_export_close(w.f.fabric, v->export_id, 0);
    fake_wait_seen(&w.f, TB_MSG_HOP_LOST, 1);
    FAKE_SET(&w.f, versions[v - w.f.versions].exported, false);
    fake_land(&w.f, 1); /* as it was sealed */
    fake_plan(&w.f, 1, 1);
    stage(&w);
    assert_int_equal(status_of(&w, "\"read_bytes\":"), bytes);
    activate(&w, 1);
    world_close(&w);
}

/* P10: a driver that refuses ends the attempt with a status, leaves nothing, and the next attempt
 * is as good as the first. */
static void a_refusal_of_the_driver_ends_the_attempt(void **state)
{
    (void)state;
    static const char *const entries[] = {"cuMemcpyAsync", "cuLaunchKernel", "cuEventSynchronize"};
    for (size_t e = 0; e < sizeof entries / sizeof entries[0]; e++) {
        struct world w;
        world_open(&w);
        publish(&w, 1);
        const struct fake_cuda_counts before = fake_cuda_counts();
        /* A version may be one copy and one batch. */
        fake_cuda_fail(entries[e], 1, CUDA_ERROR_ECC_UNCORRECTABLE);
        CHECK_STATUS(tb_stage(w.sub, &w.uid, 20000), TB_SITE_IO);
        assert_true(fake_cuda_failed());
        const struct fake_cuda_counts after = fake_cuda_counts();
        assert_true(same_device_memory(&after, &before));
        fake_cuda_fail(NULL, 0, CUDA_SUCCESS);
        stage(&w);
        activate(&w, 1);
        world_close(&w);
    }
}

/* ---- engines that sleep ---- */

/* The GPU has all of its memory back when tb_suspend returns, whole version or part of one; the
 * gateway hears that it is not here. While the engine sleeps versions are staged in host memory;
 * when it is awake tb_stage brings it there again. */
static void a_suspended_gpu_keeps_no_version(void **state)
{
    (void)state;
    for (int whole = 0; whole < 2; whole++) {
        struct world w;
        world_open(&w);
        struct fake_version *v = publish(&w, 1);
        uint8_t *byte = NULL;
        if (whole)
            stage(&w);
        else
            byte = stage_all_but_one(&w, v);
        const uint32_t released = fake_seen(&w.f, TB_MSG_RELEASE);
        CHECK_OK(tb_suspend(w.rank.r));
        CHECK_OK(tb_suspend(w.rollout.r));
        assert_int_equal(fake_cuda_counts().allocations, 0);
        assert_int_equal(fake_cuda_counts().streams, 0);
        fake_wait_seen(&w.f, TB_MSG_RELEASE, released + 1);
        fake_go(&w.f, 1);
        CHECK_STATUS(tb_activate(w.sub, &w.uid, NULL), TB_BAD_STATE);
        if (!whole) *byte ^= 1;
        CHECK_OK(tb_resume(w.rollout.r, NULL, 0));
        CHECK_STATUS(tb_activate(w.sub, &w.uid, NULL), TB_BAD_STATE); /* it is not there by itself */
        stage(&w);
        assert_true(is_on_gpu(&w));
        activate(&w, 1);
        CHECK_OK(tb_suspend(w.rollout.r)); /* its bytes are in the tensors, the staging goes */
        CHECK_OK(tb_release(w.sub, &w.uid));
        assert_int_equal(fake_cuda_counts().allocations, 0);
        CHECK_OK(tb_resume(w.rank.r, NULL, 0));
        publish(&w, 2);
        stage(&w);
        assert_false(is_on_gpu(&w));
        assert_int_equal(told(&w, "staging.not_on_gpu", "suspended"), 1);
        CHECK_OK(tb_resume(w.rollout.r, NULL, 0));
        activate(&w, 2);
        world_close(&w);
    }
}

struct switching {
    const struct world *w;
    int status;
};

static void *switch_run(void *user)
{
    struct switching *s = user;
    s->status = tb_activate(s->w->sub, &s->w->uid, NULL);
    return NULL;
}

/* P2: asleep and awake again while the switch waits for the gateway's answer: what it would copy
 * is not there any more. */
static void a_switch_finds_out_that_its_version_went(void **state)
{
    (void)state;
    struct world w;
    pthread_t thread;
    world_open(&w);
    publish(&w, 1);
    stage(&w);
    fake_go(&w.f, 1);
    FAKE_SET(&w.f, mute[TB_MSG_ACTIVATE], true); /* then the go that was heard is good, after a second */
    struct switching s = {.w = &w};
    const uint32_t asked = fake_seen(&w.f, TB_MSG_ACTIVATE);
    assert_int_equal(pthread_create(&thread, NULL, switch_run, &s), 0);
    fake_wait_seen(&w.f, TB_MSG_ACTIVATE, asked + 1);
    CHECK_OK(tb_suspend(w.rollout.r));
    CHECK_OK(tb_resume(w.rollout.r, NULL, 0));
    pthread_join(thread, NULL);
    CHECK_STATUS(s.status, TB_BAD_STATE);
    FAKE_SET(&w.f, mute[TB_MSG_ACTIVATE], false);
    stage(&w);
    activate(&w, 1);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_release_gives_the_gpu_its_memory_back),
        cmocka_unit_test(the_switch_copies_inside_the_device),
        cmocka_unit_test(without_room_it_is_staged_in_host_memory),
        cmocka_unit_test(without_kernels_it_is_staged_in_host_memory),
        cmocka_unit_test(a_version_that_is_in_part_the_hosts_is_staged_there),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(a_chunk_that_the_device_does_not_take_is_asked_again),
        cmocka_unit_test(a_cut_costs_nothing_that_is_held),
        cmocka_unit_test(a_refusal_of_the_driver_ends_the_attempt),
        cmocka_unit_test(a_suspended_gpu_keeps_no_version),
        cmocka_unit_test(a_switch_finds_out_that_its_version_went),
    };
    tb_log_set(TB_LOG_ERROR, STDERR_FILENO);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
