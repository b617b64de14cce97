/* device_pass.h - a shard on a device that is none, and a pass that copies it to shared memory and
 * digests it. */
#ifndef TB_TESTS_DEVICE_PASS_H
#define TB_TESTS_DEVICE_PASS_H

#include "intra/fabric/shared_memory.h"
#include "unit/cuda/shard_on_gpu.h"

struct device_pass {
    struct tb_gpu *gpu;
    struct shard_on_gpu shard;
    struct tb_digest *truth, *got;
    struct tb_shared_memory to;
};

/* On the fake device as it is. */
void device_pass_start(struct device_pass *w, uint32_t elements);
/* Opens the fake device before. */
void device_pass_open_of(struct device_pass *w, uint32_t elements);
void device_pass_open(struct device_pass *w); /* of SHARD_SMALL elements */
void device_pass_close(struct device_pass *w);
/* copy: to shared memory as well. Digests by cores are noted as "d". */
enum tb_status device_pass_run(struct device_pass *w, bool copy);
bool device_pass_digests_are_right(const struct device_pass *w);

#endif
