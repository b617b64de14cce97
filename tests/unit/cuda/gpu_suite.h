/* gpu_suite.h - what has to be true of any device: a worker that publishes from its memory and
 * activates into it, through libtombolo. Run over the fake (a mock) in tests/unit/cuda and over a
 * real device in tests/gpu. */
#ifndef TB_TESTS_GPU_SUITE_H
#define TB_TESTS_GPU_SUITE_H

#include "unit/cuda/shard_on_gpu.h"

int gpu_suite_run(const struct gpu_under_test *under); /* how many failed */

/* A worker for other tests: a session over `f` with its tensors on the device. */
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
void gpu_worker_close(struct gpu_worker *w, const struct gpu_under_test *under);
void gpu_worker_fill(struct gpu_worker *w, const struct gpu_under_test *under, uint64_t seed);
/* `mode` of tb_publish_options; the status of tb_publish. */
int gpu_worker_publish(struct gpu_worker *w, uint64_t number, uint32_t mode);
/* What the device holds now is the truth of another worker. */
bool gpu_worker_holds(const struct gpu_worker *w, const struct gpu_under_test *under,
                      const struct gpu_worker *truth);

#endif
