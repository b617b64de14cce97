/* gpu_worker.h - a worker with a session over a fake gateway, and its tensors on a device. */
#ifndef TB_TESTS_GPU_WORKER_H
#define TB_TESTS_GPU_WORKER_H

#include "unit/cuda/shard_on_gpu.h"

/* A session over `f` with its tensors on the device. */
struct fake;
struct gpu_worker {
    struct tb_session *s;
    struct tb_registration *r;
    uint8_t *big, *small;             /* of the device */
    uint8_t *big_truth, *small_truth; /* what was written there */
    struct tb_run_info *run;
};
#define GPU_WORKER_BIG   2400000u /* bytes, BF16: chunks that are parts of it */
#define GPU_WORKER_SMALL 1003u    /* bytes, U8 */

void gpu_worker_open(struct gpu_worker *w, struct fake *f, const struct gpu_under_test *under,
                     const char *name, const char *host);
/* The two tensors, where these two stand; the status of tb_register. */
int gpu_worker_register(struct tb_session *s, uint8_t *big, uint8_t *small,
                        struct tb_registration **registration_out);
void gpu_worker_close(struct gpu_worker *w, const struct gpu_under_test *under);
void gpu_worker_fill(struct gpu_worker *w, const struct gpu_under_test *under, uint64_t seed);
/* `mode` of tb_publish_options; the status of tb_publish. */
int gpu_worker_publish_as(struct gpu_worker *w, uint64_t number, uint32_t mode, const char *codec);
int gpu_worker_publish(struct gpu_worker *w, uint64_t number, uint32_t mode);
/* The device holds the bytes that another worker wrote. */
bool gpu_worker_holds(const struct gpu_worker *w, const struct gpu_under_test *under,
                      const struct gpu_worker *truth);

#endif
