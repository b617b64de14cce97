/* fake_cuda.h - a driver of CUDA that is none: a mock. It has devices without a GPU, so that what
 * we ask of the driver, in which order, and what we do when it refuses can be tested anywhere. It
 * proves nothing about a real driver; tests/gpu does.
 *
 * It is as hostile as a real one may be:
 *
 *   memory   the host cannot touch device memory: its addresses are mapped without rights, the
 *            bytes stand elsewhere, and a core that looks there ends the test with a word
 *   copies   happen as late as they may, when their stream or an event behind them is waited for
 *   ends     a copy into or out of memory that is freed meanwhile ends the test; so does pinned
 *            memory that a fork would copy, and a call without the context that it needs
 *   refuses  a copy of host memory that is pinned in parts; any entry point, if a test says so
 *   counts   all that is not given back
 *
 * Two processes that have the fake share memory by its handles, as by CUDA IPC. A process that
 * frees memory that the other has open ends.
 *
 * Threads: any; one lock. */
#ifndef TB_TESTS_FAKE_CUDA_H
#define TB_TESTS_FAKE_CUDA_H

#include <stdbool.h>
#include <stdint.h>

#include "intra/cuda/cuda_kernels.h"

#define FAKE_CUDA_TRACE_BYTES 4096
/* The only image that the fake takes for a module of kernels (tb_cuda_replace_image). So there are
 * no kernels unless a test says so. */
#define FAKE_CUDA_IMAGE "the kernels' text, on cores"

/* Forgets everything and makes itself the driver of the process: CUDA 12.4, two devices. */
void fake_cuda_open(void);
/* The process's driver is the driver again. Ends the test if anything was not given back. */
void fake_cuda_close(void);
struct tb_cuda_driver fake_cuda_driver(void);

void *fake_cuda_alloc(int device, size_t bytes); /* as a caller's own cuMemAlloc */
void fake_cuda_free(void *device_memory);
void fake_cuda_write(void *device_memory, const void *from, size_t bytes);
void fake_cuda_read(const void *device_memory, void *to, size_t bytes);

/* As a NIC that has the memory's dma-buf writes there, and has said that it is complete: the
 * device sees it at once where it orders such writes (as it was told by set_attribute), else
 * behind the next flush. */
void fake_cuda_nic_write(void *device_memory, const void *from, size_t bytes);

/* Call `nth` (from 1) of an entry point ("cuMemAlloc") answers `result`. NULL: nothing fails. */
void fake_cuda_fail(const char *entry, uint32_t nth, CUresult result);
/* Calls of an entry point stand still until another is held, or none (NULL). */
void fake_cuda_hold(const char *entry);
bool fake_cuda_held(void);                   /* it has come to that, since the last hold */
bool fake_cuda_idle(void);                   /* nothing that was asked has still to run */
bool fake_cuda_failed(void);                 /* it has come to that */
uint32_t fake_cuda_calls(const char *entry); /* since open */

/* Properties of the driver: set before the effect of open is used. */
void fake_cuda_set_version(int version); /* entry points that came later are not there */
void fake_cuda_set_attribute(CUdevice_attribute which, int value);
/* A copy to a device from host memory that is not pinned gets there with a byte changed. */
void fake_cuda_set_spoils(bool yes);
/* It stands in a context that is not the primary one. */
void fake_cuda_set_context(void *device_memory, bool other);
void fake_cuda_set_managed(void *device_memory);
void fake_cuda_set_mapped(void *device_memory); /* by handles of cuMemCreate: CUDA IPC does not know it */
void fake_cuda_set_initialised(bool yes);
/* It copies rows from a device to itself only at strides that it may choose itself, and refuses
 * others. */
void fake_cuda_set_own_pitches(bool yes);
/* A thread of the process captures a graph: calls of one that takes part in it, as each does from
 * its beginning, end the test. */
void fake_cuda_set_capturing(bool yes);
bool fake_cuda_stands_aside(void); /* this thread, now: it takes no part */

struct fake_cuda_counts { /* that stand now */
    uint32_t contexts, streams, events, allocations, pinned, host_allocations, modules, ipc, dmabufs;
    uint64_t pinned_bytes;    /* by cuMemHostRegister */
    uint64_t unpinned_copies; /* asynchronous ones between a device and host memory that was not pinned */
    uint64_t down_bytes;      /* copied from devices to the host, since open */
};
struct fake_cuda_counts fake_cuda_counts(void);
/* Of the last launch of a kernel. A multiprocessor works on two at a time. */
uint32_t fake_cuda_blocks(void);

/* The calls in order: c0 is a copy (some in a row are one) on the first stream made since the trace
 * was cleared, e0 an event recorded there, w0 it was waited for, s0 the stream was, k0 a kernel, f0
 * what NICs wrote is flushed. `fake_cuda_note` adds a word of the test's. */
void fake_cuda_trace_clear(void);
const char *fake_cuda_trace(void);
void fake_cuda_note(const char *word);

/* Its cuGetProcAddress: what a library named libcuda.so.1 would export (fake_libcuda.c). */
CUresult CUDAAPI fake_cuda_find(const char *symbol, void **function_out, int version, cuuint64_t flags,
                                CUdriverProcAddressQueryResult *found_out);

#endif
