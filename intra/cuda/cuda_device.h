/* cuda_device.h - the driver and its devices, as one process of ours has them. Inside
 * intra/cuda only. A shell.
 *
 * A device's primary context is retained when its first memory comes and released at close: it is
 * the one that frameworks use, so their pointers and our streams live together, and nothing of
 * theirs ends when we do.
 *
 * Threads: any. Devices are opened under the lock and do not change after. */
#ifndef TB_INTRA_CUDA_DEVICE_H
#define TB_INTRA_CUDA_DEVICE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "intra/cuda/cuda_driver.h"
#include "intra/cuda_part.h"

#define TB_CUDA_DEVICES_MAX 64

enum tb_cuda_kernel {
    TB_CUDA_DIGEST,
    TB_CUDA_ENCODE,
    TB_CUDA_PATCH,
    TB_CUDA_MOVE,
    TB_CUDA_BLAKE3,
    TB_CUDA_KERNELS
};

/* How the device orders a NIC's writes before its own reads of the same memory. */
enum tb_cuda_nic_writes {
    TB_CUDA_NIC_WRITES_UNSEEN, /* nothing that we can ask for: no NIC is to write there */
    TB_CUDA_NIC_WRITES_FLUSHED,
    TB_CUDA_NIC_WRITES_ORDERED
};

struct tb_cuda_device {
    bool open;
    CUdevice handle;
    CUcontext context;
    char name[64];
    struct tb_id uuid;  /* zero: the driver does not say */
    char pci[20];       /* "0000:18:00.0", as sysfs names it; "": the driver does not say */
    bool dmabuf;        /* its memory can be exported */
    uint64_t pitch_max; /* of rows that are copied in one call; 0: none are */
    enum tb_cuda_nic_writes nic_writes;
    CUmodule module; /* NULL: it has no kernels of ours, and */
    char why_cores[80];
    CUfunction kernels[TB_CUDA_KERNELS];
    uint32_t blocks[TB_CUDA_KERNELS]; /* of each kernel that fit on it; 0: the driver does not say */
};

struct tb_gpu {
    struct tb_shared_pin pin; /* in each memory that we pinned */
    struct tb_cuda_driver driver;
    pthread_mutex_t lock;
    struct tb_cuda_device devices[TB_CUDA_DEVICES_MAX];
    uint32_t memories, pins; /* that stand */
};

/* Stands in for the process's driver; NULL: the process's again. For tests, before anything is
 * open. */
void tb_gpu_replace_driver(const struct tb_cuda_driver *driver);

/* TB_BAD_ARGUMENT: no such device. */
TB_MUST_USE enum tb_status tb_cuda_device_open(struct tb_gpu *gpu, int ordinal,
                                               struct tb_cuda_device **device_out);

/* Says so in the log, once a call; the status that it comes to. */
enum tb_status tb_cuda_failed(const struct tb_gpu *gpu, const struct tb_cuda_device *device, const char *call,
                              CUresult result);

/* The device's context becomes the thread's, until leave. */
TB_MUST_USE enum tb_status tb_cuda_enter(const struct tb_gpu *gpu, const struct tb_cuda_device *device);
void tb_cuda_leave(const struct tb_gpu *gpu);

#endif
