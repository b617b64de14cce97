#include "island_device.h"

#include <stdlib.h>
#include <string.h>

#include "intra/cuda_part_trays.h"
#include "unit/cuda/fake_cuda.h"

/* Of this process: of an owner all its tensors, of a reader one that is there for its device's
 * sake. */
static struct {
    struct tb_gpu *gpu;
    struct tb_gpu_memory *memory;
    uint8_t *bytes; /* of the device */
    uint8_t **tensors;
    const struct cargo *cargo;
} mine;

static void register_tensors(const struct tb_layout *layout, uint8_t **tensors)
{
    char why[TB_GPU_WHY_BYTES] = "";
    const struct tb_gpu_tensors all = {layout, tensors};
    if (tb_gpu_open(&mine.gpu, why) != TB_OK ||
        tb_gpu_memory_open(mine.gpu, &all, &mine.memory, why) != TB_OK)
        fail_msg("%s", why);
}

static void device_open(const struct owner *o, struct tb_gpu_origin *origin_out)
{
    const struct tb_layout *layout = &o->cargo->manifest.layout;
    fake_cuda_open();
    mine.cargo = o->cargo;
    mine.bytes = fake_cuda_alloc(0, layout->bytes);
    fake_cuda_write(mine.bytes, o->cargo->bytes, layout->bytes);
    mine.tensors = calloc(layout->tensor_count, sizeof *mine.tensors);
    for (uint32_t i = 0; i < layout->tensor_count; i++)
        mine.tensors[i] = mine.bytes + layout->tensors[i].offset;
    register_tensors(layout, mine.tensors);
    *origin_out = (struct tb_gpu_origin){
        .memory = mine.memory,
        .manifest = &o->cargo->manifest,
        .from = {.layout = layout, .tensors = mine.tensors, .blobs = o->bytes + 64 + layout->bytes}};
}

/* Tensors alone: blobs and bitmap are the host's. */
static void device_put(uint64_t offset, const void *bytes, uint64_t count)
{
    const uint64_t end = 64 + mine.cargo->manifest.layout.bytes;
    const uint64_t skipped = offset < 64 ? 64 - offset : 0;
    if (offset >= end || skipped >= count) return;
    const uint64_t last = offset + count < end ? offset + count : end;
    fake_cuda_write(mine.bytes + (offset + skipped - 64), (const uint8_t *)bytes + skipped,
                    last - offset - skipped);
}

/* Its memory is freed as an owner's is: what has it open still is found by the fake. */
static void device_close(void)
{
    tb_gpu_memory_close(mine.memory);
    tb_gpu_close(mine.gpu);
    fake_cuda_free(mine.bytes);
    free(mine.tensors);
    fake_cuda_close();
    memset(&mine, 0, sizeof mine);
}

static struct tb_gpu *device_reader(void)
{
    return mine.gpu;
}

static int64_t device_ask(const struct far_ask *ask)
{
    static char entry[sizeof ask->words[0]];
    switch (ask->op) {
    case FAR_DEVICE_FAIL:
        memcpy(entry, ask->words[0], sizeof entry);
        fake_cuda_fail(ask->a > 0 ? entry : NULL, ask->a, CUDA_ERROR_ECC_UNCORRECTABLE);
        return 0;
    case FAR_DEVICE_FAILED:
        return fake_cuda_failed();
    case FAR_DEVICE_TRAYS:
        return fake_cuda_counts().allocations;
    case FAR_DEVICE_MAPPED:
        fake_cuda_set_mapped(mine.bytes);
        return 0;
    default:
        return -1;
    }
}

static const struct island_device device = {.open = device_open,
                                            .put = device_put,
                                            .close = device_close,
                                            .reader = device_reader,
                                            .ask = device_ask};

bool island_device_begin(void)
{
    static uint8_t *tensor;
    static uint8_t layout_memory[1024];
    const struct tb_tensor one = {
        .name = "one", .dtype = TB_DTYPE_U8, .rank = 1, .full = {4096}, .box_count = {4096}};
    struct tb_layout layout;
    island_device = &device;
    far_begin();
    fake_cuda_open();
    mine.bytes = tensor = fake_cuda_alloc(0, 4096);
    assert_int_equal(tb_layout_build(&one, 1, layout_memory, sizeof layout_memory, &layout), TB_OK);
    register_tensors(&layout, &tensor);
    return true;
}

void island_device_end(void)
{
    far_end();
    device_close();
}
