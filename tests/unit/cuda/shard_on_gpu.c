#include "unit/cuda/shard_on_gpu.h"

#include <stdlib.h>
#include <string.h>

#include "unit/check.h"

static const struct {
    const char *name;
    enum tb_dtype dtype;
    uint64_t count;
    bool in_host;
} shapes[SHARD_TENSORS] = {{"big", TB_DTYPE_BF16, 0, false},    {"a", TB_DTYPE_BF16, 3, false},
                           {"none", TB_DTYPE_BF16, 0, false},   {"b", TB_DTYPE_BF16, 70000, true},
                           {"c", TB_DTYPE_BF16, 90001, false},  {"f", TB_DTYPE_F32, 3000000, false},
                           {"g", TB_DTYPE_F32, 7, false},       {"byte", TB_DTYPE_U8, 11, false},
                           {"host", TB_DTYPE_U8, 2000003, true}};

static void build(struct shard_on_gpu *s, uint32_t elements)
{
    struct tb_tensor list[SHARD_TENSORS];
    memset(list, 0, sizeof list);
    for (size_t i = 0; i < SHARD_TENSORS; i++)
        list[i] = (struct tb_tensor){.name = shapes[i].name,
                                     .dtype = shapes[i].dtype,
                                     .rank = 1,
                                     .full = {shapes[i].count},
                                     .box_count = {shapes[i].count}};
    list[0].full[0] = list[0].box_count[0] = elements;
    struct tb_layout layout;
    const size_t layout_bytes = tb_layout_bytes_for(list, SHARD_TENSORS);
    s->layout_memory = malloc(layout_bytes);
    CHECK_OK(tb_layout_build(list, SHARD_TENSORS, s->layout_memory, layout_bytes, &layout));
    const struct tb_blob blobs[] = {{.name = "x", .bytes = 1200000}, {.name = "y/z", .bytes = 7}};
    const size_t bytes = tb_manifest_bytes_for(&layout, blobs, 2);
    s->manifest_memory = malloc(bytes);
    CHECK_OK(tb_manifest_build(&layout, blobs, 2, s->manifest_memory, bytes, &s->manifest));
}

static bool stands_in_host(const char *name)
{
    for (size_t i = 0; i < SHARD_TENSORS; i++)
        if (strcmp(shapes[i].name, name) == 0) return shapes[i].in_host;
    return false;
}

static void place_tensors(struct shard_on_gpu *s, const struct gpu_under_test *under)
{
    for (uint32_t i = 0; i < SHARD_TENSORS; i++) {
        const struct tb_tensor *t = &s->manifest.layout.tensors[i];
        s->in_host[i] = stands_in_host(t->name);
        if (s->in_host[i]) {
            s->tensors[i] = malloc(t->bytes);
            memcpy(s->tensors[i], s->packed + t->offset, t->bytes);
        } else if (t->bytes > 0) {
            s->tensors[i] = under->alloc(t->bytes);
            under->write(s->tensors[i], s->packed + t->offset, t->bytes);
        }
    }
}

void shard_open(struct shard_on_gpu *s, struct tb_gpu *gpu, const struct gpu_under_test *under,
                uint32_t elements)
{
    uint64_t seed = elements;
    memset(s, 0, sizeof *s);
    build(s, elements);
    s->packed = malloc(s->manifest.bytes + 8);
    for (uint64_t i = 0; i < s->manifest.bytes; i += 8) {
        const uint64_t word = check_random(&seed);
        memcpy(s->packed + i, &word, 8);
    }
    place_tensors(s, under);
    s->blobs = malloc(s->manifest.blob_bytes);
    memcpy(s->blobs, s->packed + s->manifest.layout.bytes, s->manifest.blob_bytes);
    const struct tb_gpu_tensors tensors = {&s->manifest.layout, s->tensors};
    char why[TB_GPU_WHY_BYTES] = "";
    if (tb_gpu_memory_open(gpu, &tensors, &s->memory, why) != TB_OK) fail_msg("%s", why);
    assert_non_null(s->memory);
}

void shard_close(struct shard_on_gpu *s, const struct gpu_under_test *under)
{
    tb_gpu_memory_close(s->memory);
    for (uint32_t i = 0; i < SHARD_TENSORS; i++) {
        if (s->in_host[i])
            free(s->tensors[i]);
        else if (s->tensors[i] != NULL)
            under->free(s->tensors[i]);
    }
    free(s->blobs);
    free(s->packed);
    free(s->manifest_memory);
    free(s->layout_memory);
}

struct tb_spread shard_spread(const struct shard_on_gpu *s)
{
    return (struct tb_spread){.layout = &s->manifest.layout, .tensors = s->tensors, .blobs = s->blobs};
}

void shard_digests(const struct shard_on_gpu *s, struct tb_digest *out)
{
    for (uint32_t k = 0; k < s->manifest.chunk_count; k++)
        out[k] = tb_digest_of(s->packed + s->manifest.chunks[k].offset, s->manifest.chunks[k].bytes);
}
