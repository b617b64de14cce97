/* island_device.h - an owner whose bytes stand on a GPU, of a driver that is none
 * (unit/cuda/fake_cuda.h), and a reader with a GPU of its own. Trays are for other processes, so
 * such an owner is far: in a process of its own on this host (far_begin).
 *
 * Builds without CUDA's headers have no such ways (island_no_device.c). */
#ifndef TB_TESTS_INTRA_ISLAND_DEVICE_H
#define TB_TESTS_INTRA_ISLAND_DEVICE_H

#include "island_far.h"

struct tb_gpu;
struct tb_gpu_origin;

/* The calls of island.c; one owner and one reader a process. */
struct island_device {
    void (*open)(const struct owner *o, struct tb_gpu_origin *origin_out); /* with the cargo's bytes */
    void (*put)(uint64_t offset, const void *bytes, uint64_t count);       /* as owner_put */
    void (*close)(void);
    struct tb_gpu *(*reader)(void);
    int64_t (*ask)(const struct far_ask *ask); /* FAR_DEVICE_* */
};
extern const struct island_device *island_device; /* NULL: none */

/* False: this build has none. Before any thread; the server of owners is a child of this
 * process. */
bool island_device_begin(void);
void island_device_end(void);

#endif
