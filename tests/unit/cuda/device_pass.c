#include "unit/cuda/device_pass.h"

#include <stdlib.h>
#include <string.h>

#include "unit/check.h"
#include "unit/cuda/fake_cuda.h"
#include "unit/cuda/fake_device.h"

void device_pass_start(struct device_pass *w, uint32_t elements)
{
    memset(w, 0, sizeof *w);
    CHECK_OK(tb_gpu_open(&w->gpu, (char[TB_GPU_WHY_BYTES]){""}));
    shard_open(&w->shard, w->gpu, &fake_device, elements);
    w->truth = calloc(w->shard.manifest.chunk_count, sizeof *w->truth);
    w->got = calloc(w->shard.manifest.chunk_count, sizeof *w->got);
    shard_digests(&w->shard, w->truth);
    CHECK_OK(tb_shared_memory_new("test", w->shard.manifest.bytes, &w->to));
}

void device_pass_open_of(struct device_pass *w, uint32_t elements)
{
    fake_cuda_open();
    device_pass_start(w, elements);
}

void device_pass_open(struct device_pass *w)
{
    device_pass_open_of(w, SHARD_SMALL);
}

void device_pass_close(struct device_pass *w)
{
    fake_cuda_fail(NULL, 0, CUDA_SUCCESS);
    shard_close(&w->shard, &fake_device);
    tb_shared_memory_free(&w->to);
    tb_gpu_close(w->gpu);
    free(w->truth);
    free(w->got);
    fake_cuda_close();
}

static void on_landed(void *user, uint32_t first, uint32_t count, const uint8_t *bytes)
{
    struct device_pass *w = user;
    fake_cuda_note("d");
    const struct tb_chunk *chunks = w->shard.manifest.chunks;
    for (uint32_t i = first; i < first + count; i++)
        w->got[i] = tb_digest_of(bytes + (chunks[i].offset - chunks[first].offset), chunks[i].bytes);
}

enum tb_status device_pass_run(struct device_pass *w, bool copy)
{
    uint8_t *to = copy ? w->to.bytes : NULL;
    struct tb_spread from = shard_spread(&w->shard);
    if (copy) {
        memcpy(to + from.layout->bytes, from.blobs, w->shard.manifest.blob_bytes);
        from.blobs = to + from.layout->bytes;
    }
    const struct tb_gpu_pass pass = {.manifest = &w->shard.manifest,
                                     .from = from,
                                     .to = to,
                                     .digests = w->got,
                                     .landed = on_landed,
                                     .user = w};
    return tb_gpu_pass(w->shard.memory, &pass);
}

bool device_pass_digests_are_right(const struct device_pass *w)
{
    return memcmp(w->got, w->truth, w->shard.manifest.chunk_count * sizeof *w->truth) == 0;
}
