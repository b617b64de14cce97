#include "unit/cuda/gpu_worker.h"

#include <stdlib.h>
#include <string.h>

#include "unit/check.h"
#include "unit/client/fake_gateway.h"

int gpu_worker_register(struct tb_session *s, uint8_t *big, uint8_t *small, struct tb_registration **r_out)
{
    const uint64_t big_shape[] = {3, GPU_WORKER_BIG / 6}, small_shape[] = {GPU_WORKER_SMALL};
    const struct tb_tensor_desc tensors[] = {
        {.name = "model.small", .dtype = "U8", .rank = 1, .shape = small_shape, .memory = small},
        {.name = "model.big", .dtype = "BF16", .rank = 2, .shape = big_shape, .memory = big}};
    return tb_register(s, tensors, 2, r_out);
}

void gpu_worker_fill(struct gpu_worker *w, const struct gpu_under_test *on, uint64_t seed)
{
    for (uint32_t i = 0; i < GPU_WORKER_BIG; i += 8) {
        const uint64_t word = check_random(&seed) & UINT64_C(0x0f0f0f0f0f0f0f0f); /* zstd gets below it */
        memcpy(w->big_truth + i, &word, 8);
    }
    for (uint32_t i = 0; i < GPU_WORKER_SMALL; i++)
        w->small_truth[i] = (uint8_t)check_random(&seed);
    on->write(w->big, w->big_truth, GPU_WORKER_BIG);
    on->write(w->small, w->small_truth, GPU_WORKER_SMALL);
}

void gpu_worker_open(struct gpu_worker *w, struct fake *f, const struct gpu_under_test *on, const char *name,
                     const char *host)
{
    memset(w, 0, sizeof *w);
    w->s = fake_session_open(f, name, host);
    w->big = on->alloc(GPU_WORKER_BIG);
    w->small = on->alloc(GPU_WORKER_SMALL);
    w->big_truth = malloc(GPU_WORKER_BIG);
    w->small_truth = malloc(GPU_WORKER_SMALL);
    gpu_worker_fill(w, on, 1);
    if (gpu_worker_register(w->s, w->big, w->small, &w->r) != TB_OK) fail_msg("%s", tb_last_error());
    w->run = calloc(1, sizeof *w->run);
    w->run->struct_bytes = sizeof *w->run;
    CHECK_OK(tb_run_open(w->s, "policy", "key-1", w->run));
}

void gpu_worker_close(struct gpu_worker *w, const struct gpu_under_test *on)
{
    tb_session_close(w->s);
    on->free(w->big);
    on->free(w->small);
    free(w->big_truth);
    free(w->small_truth);
    free(w->run);
}

static const struct tb_blob_desc blobs[] = {{"config.json", "{\"a\":1}", 7}};

int gpu_worker_publish_as(struct gpu_worker *w, uint64_t number, uint32_t mode, const char *codec)
{
    const struct tb_publish_options o = {.struct_bytes = sizeof o,
                                         .mode = mode,
                                         .model = "policy",
                                         .run = &w->run->run,
                                         .number = number,
                                         .shard_count = 1,
                                         .registration = w->r,
                                         .blobs = blobs,
                                         .blob_count = 1,
                                         .codec = codec,
                                         .timeout_ms = 20000};
    return tb_publish(w->s, &o, NULL);
}

int gpu_worker_publish(struct gpu_worker *w, uint64_t number, uint32_t mode)
{
    return gpu_worker_publish_as(w, number, mode, NULL);
}

bool gpu_worker_holds(const struct gpu_worker *w, const struct gpu_under_test *on,
                      const struct gpu_worker *truth)
{
    uint8_t *seen = malloc(GPU_WORKER_BIG);
    on->read(w->big, seen, GPU_WORKER_BIG);
    bool same = memcmp(seen, truth->big_truth, GPU_WORKER_BIG) == 0;
    on->read(w->small, seen, GPU_WORKER_SMALL);
    same = same && memcmp(seen, truth->small_truth, GPU_WORKER_SMALL) == 0;
    free(seen);
    return same;
}
