/* worker.c - libtombolo over device memory of a driver that is none (fake_cuda.h): the suite that a
 * real device runs too, and what only a fake can show. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
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
#include "unit/cuda/gpu_suite.h"

static void *alloc_first(size_t bytes)
{
    return fake_cuda_alloc(0, bytes);
}

static const struct gpu_under_test fake = {fake_cuda_open, fake_cuda_close, alloc_first,
                                           fake_cuda_free, fake_cuda_write, fake_cuda_read};

static void open_with_kernels(void)
{
    fake_cuda_open();
    tb_cuda_replace_image(FAKE_CUDA_IMAGE);
}

static const struct gpu_under_test fake_with_kernels = {open_with_kernels, fake_cuda_close, alloc_first,
                                                        fake_cuda_free,    fake_cuda_write, fake_cuda_read};

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
    gpu_worker_open(&w->rank, &w->f, &fake, "rank0", "host-a");
    gpu_worker_open(&w->rollout, &w->f, &fake, "rollout0", "host-b");
    gpu_worker_fill(&w->rank, &fake, 77);
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
    world_open_as(w, &fake, TB_UPDATE_COPY);
}

static void world_close(struct world *w)
{
    fake_cuda_fail(NULL, 0, CUDA_SUCCESS);
    gpu_worker_close(&w->rollout, &fake);
    gpu_worker_close(&w->rank, &fake);
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
        gpu_worker_fill(&w.rank, &fake, number);
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
    const struct tb_session_doubt m = {.uid = fake_version(&w->f, 1)->key.uid};
    fake_doubt(&w->f, 0, &m);
    fake_wait_seen(&w->f, TB_SESSION_DOUBTED, count);
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
    assert_int_equal(found_of(&w, 1), TB_SESSION_FOUND_MENDED);
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
    const struct tb_session_doubt m = {.uid = fake_version(&w.f, 1)->key.uid};
    fake_doubt(&w.f, 0, &m);
    struct tb_run_info run = {.struct_bytes = sizeof run};
    for (int i = 0; i < 2; i++)
        CHECK_OK(tb_run_join(w.rank.s, "policy", "", &run));
    assert_int_equal(fake_seen(&w.f, TB_SESSION_DOUBTED), 0);
    tb_session_lock(w.rank.s);
    w.rank.r->passes--;
    tb_session_unlock(w.rank.s);
    assert_int_equal(found_of(&w, 1), TB_SESSION_FOUND_MENDED);
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
    assert_int_equal(found_of(&w, 1), TB_SESSION_FOUND_SPOILED);
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
    assert_int_equal(found_of(&w, 1), TB_SESSION_FOUND_GOOD);
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
        world_open_as(&w, &fake_with_kernels, TB_UPDATE_PATCH);
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
        assert_true(gpu_worker_holds(&w.rollout, &fake, &w.rank));
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

/* What fails is told, leaves neither copy nor memory, and the next attempt is as
 * good as the first. */
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
                assert_int_equal(fake_seen(&w.f, TB_SESSION_SEAL), 0);
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
            assert_int_equal(fake_seen(&w.f, TB_SESSION_ACTIVATED), 0);
        }
        assert_true(gpu_worker_holds(&w.rollout, &fake, &w.rank));
        world_close(&w);
    }
}

/* What the rollout tells a gateway that comes back. */
static struct tb_id announced(struct world *w)
{
    fake_go_away(&w->f, w->rollout.s);
    const uint32_t before = fake_seen(&w->f, TB_SESSION_SUBSCRIBE);
    fake_away(&w->f, false);
    fake_wait_seen(&w->f, TB_SESSION_SUBSCRIBE, before + 1);
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
        gpu_worker_fill(&w.rank, &fake, number);
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
    assert_true(gpu_worker_holds(&w.rollout, &fake, &w.rank));
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

/* ---- ranks in other processes ---- */

struct other_rank {
    pid_t pid;
    int there[2], back[2];
};

/* One of its tensors is a shard: the first is "model.big", the second "model.small". */
static int publish_shard(struct gpu_worker *rank, uint32_t shard)
{
    struct tb_registration *r;
    const uint64_t big[] = {3, GPU_WORKER_BIG / 6}, small[] = {GPU_WORKER_SMALL};
    const struct tb_tensor_desc shards[] = {
        {.name = "model.big", .dtype = "BF16", .rank = 2, .shape = big, .memory = rank->big},
        {.name = "model.small", .dtype = "U8", .rank = 1, .shape = small, .memory = rank->small}};
    CHECK_OK(tb_register(rank->s, &shards[shard], 1, &r));
    const struct tb_publish_options o = {.struct_bytes = sizeof o,
                                         .mode = TB_PUBLISH_IN_PLACE,
                                         .model = "policy",
                                         .run = &rank->run->run,
                                         .number = 1,
                                         .shard_index = shard,
                                         .shard_count = 2,
                                         .registration = r};
    return tb_publish(rank->s, &o, NULL);
}

/* Publishes in place, says so, and stays until it hears something. */
static void be_a_rank(const struct other_rank *o, uint32_t shard, uint32_t shard_count)
{
    struct fake f;
    struct gpu_worker rank;
    char word;
    if (read(o->there[0], f.path, sizeof f.path) != sizeof f.path) _exit(1);
    fake_cuda_open();
    gpu_worker_open(&rank, &f, &fake, shard == 0 ? "rank0" : "rank1", "host-a");
    gpu_worker_fill(&rank, &fake, 77);
    if (shard_count == 1)
        CHECK_OK(gpu_worker_publish(&rank, 1, TB_PUBLISH_IN_PLACE));
    else
        CHECK_OK(publish_shard(&rank, shard));
    if (write(o->back[1], "p", 1) != 1 || read(o->there[0], &word, 1) != 1) _exit(2);
    gpu_worker_close(&rank, &fake);
    fake_cuda_close(); /* nothing of it was left open, or the fake ends us */
    _exit(0);
}

static struct other_rank ranks[2];

/* Before this process has threads. */
static void ranks_fork(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(pipe(ranks[i].there), 0);
        assert_int_equal(pipe(ranks[i].back), 0);
        ranks[i].pid = fork();
        if (ranks[i].pid == 0) be_a_rank(&ranks[i], i, count);
    }
}

static void rank_publish(const struct other_rank *o, const struct fake *f)
{
    char word;
    assert_int_equal(write(o->there[1], f->path, sizeof f->path), sizeof f->path);
    assert_int_equal(read(o->back[0], &word, 1), 1);
}

static void rank_end(struct other_rank *o)
{
    int code = -1;
    assert_int_equal(write(o->there[1], "e", 1), 1);
    assert_int_equal(waitpid(o->pid, &code, 0), o->pid);
    o->pid = 0;
    assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
    for (int i = 0; i < 2; i++) {
        close(o->there[i]);
        close(o->back[i]);
    }
}

/* Those of a test that failed. */
static int ranks_end(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        if (ranks[i].pid <= 0) continue;
        (void)kill(ranks[i].pid, SIGKILL);
        (void)waitpid(ranks[i].pid, NULL, 0);
        ranks[i].pid = 0;
    }
    return 0;
}

/* As a catalog plans it for a worker of the rank's host. */
static void plan_from_the_rank(struct fake *f)
{
    struct fake_version *v = fake_version(f, 1);
    pthread_mutex_lock(&f->lock);
    const struct fake_shard *shard = &v->shards[0];
    const struct tb_span source = {shard->source, shard->source_bytes};
    fake_chain_behind(v, shard->session, shard->export_id, &source);
    f->chain = f->chain_stays = f->plans_again = true;
    pthread_mutex_unlock(&f->lock);
}

/* A worker of the ranks' host gets what they published into its own GPU: which way. */
static enum tb_transport staged_by(struct fake *f, enum tb_transport_why *why_out)
{
    struct gpu_worker rollout;
    struct tb_subscription *sub;
    enum tb_transport transport;
    gpu_worker_open(&rollout, f, &fake, "rollout0", "host-a");
    gpu_worker_fill(&rollout, &fake, 77); /* its truth is the ranks' */
    uint8_t *nothing = calloc(1, GPU_WORKER_BIG);
    fake_cuda_write(rollout.big, nothing, GPU_WORKER_BIG);
    fake_cuda_write(rollout.small, nothing, GPU_WORKER_SMALL);
    free(nothing);
    const struct tb_subscribe_options o = {.struct_bytes = sizeof o,
                                           .member_count = 1,
                                           .model = "policy",
                                           .group = "engine",
                                           .registration = rollout.r};
    CHECK_OK(tb_subscribe(rollout.s, &o, &sub));
    struct tb_uid uid;
    memcpy(uid.bytes, fake_version(f, 1)->key.uid.bytes, sizeof uid.bytes);
    CHECK_OK(tb_stage(sub, &uid, 20000));
    fake_go(f, 1);
    CHECK_OK(tb_activate(sub, &uid, NULL));
    assert_true(gpu_worker_holds(&rollout, &fake, &rollout));
    pthread_mutex_lock(&f->lock);
    tb_transport_unpack(f->progress.transport, &transport, why_out);
    pthread_mutex_unlock(&f->lock);
    gpu_worker_close(&rollout, &fake);
    return transport;
}

/* P1: what a rank published in place on its GPU, a worker of its host takes from there, and
 * says so to its gateway. */
static void a_rank_of_this_host_is_read_from_its_gpu(void **state)
{
    (void)state;
    struct fake f;
    enum tb_transport_why why;
    ranks_fork(1);
    fake_cuda_open();
    fake_open(&f);
    rank_publish(&ranks[0], &f);
    fake_land(&f, 1);
    plan_from_the_rank(&f);
    assert_int_equal(staged_by(&f, &why), TB_TRANSPORT_CUDA);
    assert_int_equal(why, TB_WHY_GPU);
    rank_end(&ranks[0]);
    fake_close(&f);
    fake_cuda_close();
}

/* P1: a version of several shards is whole at no rank, so its workers take it from the gateway
 * (plans.c), which has no GPU: each rank's shard comes home out of its device, and all of them
 * arrive in the worker's. */
static void a_version_of_several_shards_is_read_from_the_gateway(void **state)
{
    (void)state;
    struct fake f;
    enum tb_transport_why why;
    ranks_fork(2);
    fake_cuda_open();
    fake_open(&f);
    for (int i = 0; i < 2; i++)
        rank_publish(&ranks[i], &f);
    fake_land(&f, 1);
    assert_int_equal(staged_by(&f, &why), TB_TRANSPORT_SHM);
    assert_int_equal(fake_cuda_calls("cuIpcOpenMemHandle"), 0);
    for (int i = 0; i < 2; i++)
        rank_end(&ranks[i]);
    fake_close(&f);
    fake_cuda_close();
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
        cmocka_unit_test_teardown(a_rank_of_this_host_is_read_from_its_gpu, ranks_end),
        cmocka_unit_test_teardown(a_version_of_several_shards_is_read_from_the_gateway, ranks_end),
    };
    tb_log_set(TB_LOG_ERROR, STDERR_FILENO);
    return gpu_suite_run(&fake) + gpu_suite_run(&fake_with_kernels) +
           cmocka_run_group_tests(tests, NULL, NULL);
}
