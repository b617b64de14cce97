/* fake_cuda_inside.h - what the files of the fake driver share: its state, its
 * memory, its streams. */
#ifndef TB_TESTS_FAKE_CUDA_INSIDE_H
#define TB_TESTS_FAKE_CUDA_INSIDE_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#include "unit/cuda/fake_cuda.h"

#define DEVICES        2
#define ALLOCS_MAX     64
#define STREAMS_MAX    16
#define PINS_MAX       256
#define OPS_MAX        8192
#define OPENERS_MAX    8
#define NIC_WRITES_MAX 64

/* Ends the program: what a test sees as its death names the mistake, in a word that
 * tests/mutants/run knows for a verdict. */
#define MUST(condition, what)                                                                                \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "fake_cuda fails: %s\n", what);                                                  \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

/* Behind an allocation's bytes, for all processes that have it. */
struct openers {
    pid_t pids[OPENERS_MAX];
};

struct alloc {
    uint8_t *at;    /* what the caller has: no rights */
    uint8_t *bytes; /* where they stand */
    size_t count, mapped;
    int device, fd;
    bool managed, other_context;
    bool mapped_by_handles; /* cuMemCreate's */
    bool opened;            /* another process's */
    struct openers *openers;
};

/* On its way, and not yet to be seen by the device. */
struct nic_write {
    void *to;
    uint8_t *bytes;
    size_t count;
};

struct op {
    void *to;
    const void *from;
    size_t bytes; /* of a row */
    size_t rows, to_pitch, from_pitch;
    void (*run)(void *arguments); /* a kernel; NULL: a copy */
    void *arguments;
};

struct CUstream_st {
    bool used;
    int number; /* in the trace */
    struct op ops[OPS_MAX];
    size_t begun, ended; /* of those that were asked, how many ran */
};

struct CUevent_st {
    struct CUstream_st *stream;
    size_t upto;
    uint32_t looks; /* by cuEventQuery, since it was recorded */
};

struct CUctx_st {
    int device;
    int retained;
};

struct fake_cuda_state {
    pthread_mutex_t lock;
    int version;
    bool initialised;
    bool own_pitches;
    bool spoils;
    struct CUctx_st primary[DEVICES], other;
    struct alloc allocs[ALLOCS_MAX];
    struct CUstream_st *streams[STREAMS_MAX];
    struct nic_write nic_writes[NIC_WRITES_MAX];
    uint32_t nic_write_count;
    struct {
        void *at;
        size_t bytes;
    } pins[PINS_MAX];
    struct {
        CUdevice_attribute which;
        int value;
    } attributes[8];
    uint32_t attribute_count;
    struct {
        char name[48];
        uint32_t nth;
        CUresult result;
        bool hit;
    } fail;
    struct {
        const char *name;
        uint32_t calls;
    } calls[64];
    struct fake_cuda_counts counts;
    int next_stream;
    char trace[FAKE_CUDA_TRACE_BYTES];
};
extern struct fake_cuda_state fake_cuda;

extern _Thread_local CUcontext fake_cuda_current[8];
extern _Thread_local int fake_cuda_depth;

/* ---- every call, and what it leaves in the trace ---- */

CUresult fake_cuda_begin(const char *entry); /* takes the lock; what the test has it answer */
CUresult fake_cuda_end(CUresult result);     /* gives it back */
bool fake_cuda_spoils(void);                 /* a call of this thread now: a capture of another */
void fake_cuda_trace_add(const char *format, int number);

#define BEGIN(entry)                                                                                         \
    const CUresult refused = fake_cuda_begin(entry);                                                         \
    if (refused != CUDA_SUCCESS) return fake_cuda_end(refused)
/* Which calls spoil a capture a driver does not say: all that may be. */
#define BEGIN_UNSAFE(entry)                                                                                  \
    MUST(!fake_cuda_spoils(), entry " spoils a capture");                                                    \
    BEGIN(entry)
#define BEGIN_IN_CONTEXT(entry)                                                                              \
    MUST(fake_cuda_depth > 0 && fake_cuda_current[fake_cuda_depth - 1] != NULL, entry " without a context"); \
    BEGIN_UNSAFE(entry)

/* Each fills in the entry points of its own. */
void fake_cuda_memory_entries(struct tb_cuda_driver *d);
void fake_cuda_stream_entries(struct tb_cuda_driver *d);

/* ---- memory ---- */

struct alloc *fake_cuda_find_alloc(const void *at); /* NULL: not of a device */
/* Where the bytes of [at, at + bytes) stand: of a device's memory elsewhere. */
uint8_t *fake_cuda_bytes_of(const void *at, size_t bytes);
void fake_cuda_free_alloc(struct alloc *a);
void fake_cuda_see_nic_writes(void);
bool fake_cuda_is_pinned(const void *at, size_t bytes); /* all of it, by one call */
bool fake_cuda_touches_a_pin(const void *at, size_t bytes);
int fake_cuda_attribute(CUdevice_attribute which); /* 0: it was not set */

/* ---- streams ---- */

/* Ends the program where an operation that was asked may still touch it. */
void fake_cuda_no_op_touches(const void *at, size_t bytes);

#endif
