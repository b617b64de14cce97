/* shard_on_gpu.h - a shard whose tensors stand on a device, and the truth about its bytes in
 * host memory. The device is whatever driver the process has: the fake's in tests/unit/cuda, a
 * real one in tests/gpu. */
#ifndef TB_TESTS_SHARD_ON_GPU_H
#define TB_TESTS_SHARD_ON_GPU_H

#include "base/layout/manifest.h"
#include "intra/cuda_part_trays.h"

/* Large and small tensors, one of no bytes, several dtypes, two in host memory, blobs: chunks that
 * are parts of tensors, groups, and both. */
#define SHARD_TENSORS 9u

#define SHARD_LARGE   28000001u /* elements of its largest tensor: three batches */
#define SHARD_SMALL   9600001u  /* two */

struct shard_on_gpu {
    void *layout_memory, *manifest_memory;
    struct tb_manifest manifest;
    uint8_t *packed;                 /* the truth: tensors, then blobs */
    uint8_t *tensors[SHARD_TENSORS]; /* packed order; of the device unless in_host */
    bool in_host[SHARD_TENSORS];
    uint8_t *blobs;
    struct tb_gpu_memory *memory;
};

/* How a test gets its driver, device memory, and writes and reads it. */
struct gpu_under_test {
    void (*open)(void);
    void (*close)(void);
    void *(*alloc)(size_t bytes);
    void (*free)(void *device_memory);
    void (*write)(void *device_memory, const void *from, size_t bytes);
    void (*read)(const void *device_memory, void *to, size_t bytes);
};

void shard_open(struct shard_on_gpu *s, struct tb_gpu *gpu, const struct gpu_under_test *under,
                uint32_t elements);
void shard_close(struct shard_on_gpu *s, const struct gpu_under_test *under);
struct tb_spread shard_spread(const struct shard_on_gpu *s);
/* Digests of the truth. */
void shard_digests(const struct shard_on_gpu *s, struct tb_digest *out);

#endif
