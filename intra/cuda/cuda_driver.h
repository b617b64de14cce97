/* cuda_driver.h - the driver API of CUDA, found when the program runs: libcuda is
 * never linked. A shell.
 *
 * A table of entry points. Each is asked for by cuGetProcAddress with the version of CUDA whose
 * types we call it with, the one in the name of its type, so an older driver is refused by a
 * sentence and a newer one is called by the signature that we were compiled for. The table is also
 * the seam where tests put a driver that is none (tests/unit/cuda/fake_cuda.h).
 *
 * Threads: any. */
#ifndef TB_INTRA_CUDA_DRIVER_H
#define TB_INTRA_CUDA_DRIVER_H

#include <cuda.h>
#include <cudaTypedefs.h>
#include <stddef.h>

#include "tombolo/status.h"

/* Field, entry point, and the version of CUDA (1000 major + 10 minor) that brought
 * the signature we use. */
#define TB_CUDA_NEEDED(X)                                                                                    \
    X(driver_version, cuDriverGetVersion, 2020)                                                              \
    X(error_name, cuGetErrorName, 6000)                                                                      \
    X(init, cuInit, 2000)                                                                                    \
    X(device_count, cuDeviceGetCount, 2000)                                                                  \
    X(device_get, cuDeviceGet, 2000)                                                                         \
    X(device_name, cuDeviceGetName, 2000)                                                                    \
    X(device_attribute, cuDeviceGetAttribute, 2000)                                                          \
    X(primary_retain, cuDevicePrimaryCtxRetain, 7000)                                                        \
    X(primary_release, cuDevicePrimaryCtxRelease, 11000)                                                     \
    X(context_push, cuCtxPushCurrent, 4000)                                                                  \
    X(context_pop, cuCtxPopCurrent, 4000)                                                                    \
    X(pointer_attributes, cuPointerGetAttributes, 7000)                                                      \
    X(mem_alloc, cuMemAlloc, 3020)                                                                           \
    X(mem_free, cuMemFree, 3020)                                                                             \
    X(mem_range, cuMemGetAddressRange, 3020)                                                                 \
    X(host_alloc, cuMemHostAlloc, 2020)                                                                      \
    X(host_free, cuMemFreeHost, 2000)                                                                        \
    X(host_register, cuMemHostRegister, 6050)                                                                \
    X(host_unregister, cuMemHostUnregister, 4000)                                                            \
    X(copy_async, cuMemcpyAsync, 4000)                                                                       \
    X(copy_rows_async, cuMemcpy2DAsync, 3020)                                                                \
    X(capture_mode, cuThreadExchangeStreamCaptureMode, 10010)                                                \
    X(stream_create, cuStreamCreate, 2000)                                                                   \
    X(stream_destroy, cuStreamDestroy, 4000)                                                                 \
    X(stream_synchronize, cuStreamSynchronize, 2000)                                                         \
    X(event_create, cuEventCreate, 2000)                                                                     \
    X(event_destroy, cuEventDestroy, 4000)                                                                   \
    X(event_record, cuEventRecord, 2000)                                                                     \
    X(event_query, cuEventQuery, 2000)                                                                       \
    X(event_synchronize, cuEventSynchronize, 2000)                                                           \
    X(module_load, cuModuleLoadData, 2000)                                                                   \
    X(module_unload, cuModuleUnload, 2000)                                                                   \
    X(module_function, cuModuleGetFunction, 2000)                                                            \
    X(launch, cuLaunchKernel, 4000)

/* Entry points that a driver may lack; the field is NULL then. */
#define TB_CUDA_OPTIONAL(X)                                                                                  \
    X(range_handle, cuMemGetHandleForAddressRange, 11070)                                                    \
    X(flush_rdma, cuFlushGPUDirectRDMAWrites, 11030)                                                         \
    X(ipc_get, cuIpcGetMemHandle, 4010)                                                                      \
    X(ipc_open, cuIpcOpenMemHandle, 11000)                                                                   \
    X(ipc_close, cuIpcCloseMemHandle, 4010)                                                                  \
    X(device_uuid, cuDeviceGetUuid, 11040)                                                                   \
    X(device_pci, cuDeviceGetPCIBusId, 4010)                                                                 \
    X(blocks_at_a_time, cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050)

struct tb_cuda_driver {
#define TB_CUDA_FIELD(field, entry, version) PFN_##entry##_v##version field;
    TB_CUDA_NEEDED(TB_CUDA_FIELD)
    TB_CUDA_OPTIONAL(TB_CUDA_FIELD)
#undef TB_CUDA_FIELD
    void *library; /* of dlopen; NULL: nothing to close */
    int version;   /* 12040 for CUDA 12.4 */
};

#define TB_CUDA_WHY_BYTES 200

/* `path` NULL: the libcuda.so.1 that this process has loaded already, and only that: an owner of
 * device memory has loaded it, and nobody else is made to. On failure `why` (TB_CUDA_WHY_BYTES) is
 * a sentence.
 *   TB_NOT_FOUND      the library is not there, or not loaded
 *   TB_PEER_PROTOCOL  it is older than CUDA 12.0, or lacks an entry point that we need */
TB_MUST_USE enum tb_status tb_cuda_driver_load(const char *path, struct tb_cuda_driver *driver_out,
                                               char *why);
void tb_cuda_driver_unload(struct tb_cuda_driver *driver);

/* The entry points by somebody's cuGetProcAddress: what load does behind dlopen. */
TB_MUST_USE enum tb_status tb_cuda_driver_fill(PFN_cuGetProcAddress_v12000 find,
                                               struct tb_cuda_driver *driver_out, char *why);

/* "CUDA_ERROR_OUT_OF_MEMORY"; never NULL. */
const char *tb_cuda_error_name(const struct tb_cuda_driver *driver, CUresult result);

#endif
