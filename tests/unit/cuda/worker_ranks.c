/* worker_ranks.c - a worker gets what ranks of its host published in place on their GPUs, over a
 * driver that is none (fake_cuda.h). Each rank is a process of its own.
 *
 * Covers: intra/transport/transport_shm.c intra/cuda/cuda_tray.c */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "intra/transport/transport_words.h"
#include "unit/check.h"
#include "unit/client/fake_gateway.h"
#include "unit/cuda/fake_cuda.h"
#include "unit/cuda/fake_device.h"
#include "unit/cuda/gpu_worker.h"

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
    gpu_worker_open(&rank, &f, &fake_device, shard == 0 ? "rank0" : "rank1", "host-a");
    gpu_worker_fill(&rank, &fake_device, 77);
    if (shard_count == 1)
        CHECK_OK(gpu_worker_publish(&rank, 1, TB_PUBLISH_IN_PLACE));
    else
        CHECK_OK(publish_shard(&rank, shard));
    if (write(o->back[1], "p", 1) != 1 || read(o->there[0], &word, 1) != 1) _exit(2);
    gpu_worker_close(&rank, &fake_device);
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
    gpu_worker_open(&rollout, f, &fake_device, "rollout0", "host-a");
    gpu_worker_fill(&rollout, &fake_device, 77); /* its truth is the ranks' */
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
    assert_true(gpu_worker_holds(&rollout, &fake_device, &rollout));
    pthread_mutex_lock(&f->lock);
    tb_transport_unpack(f->progress.transport, &transport, why_out);
    pthread_mutex_unlock(&f->lock);
    gpu_worker_close(&rollout, &fake_device);
    return transport;
}

/* P1: a worker of its host takes a version that a rank published in place on its GPU from there,
 * and says so to its gateway. */
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
        cmocka_unit_test_teardown(a_rank_of_this_host_is_read_from_its_gpu, ranks_end),
        cmocka_unit_test_teardown(a_version_of_several_shards_is_read_from_the_gateway, ranks_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
