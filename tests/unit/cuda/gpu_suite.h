/* gpu_suite.h - what has to be true of any device: a worker that publishes from its memory and
 * activates into it, through libtombolo. Run over the fake (a mock) in tests/unit/cuda and over a
 * real device in tests/gpu. */
#ifndef TB_TESTS_GPU_SUITE_H
#define TB_TESTS_GPU_SUITE_H

#include "unit/cuda/gpu_worker.h"

int gpu_suite_run(const struct gpu_under_test *under); /* how many failed */

#endif
