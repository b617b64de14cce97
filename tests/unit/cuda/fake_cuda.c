/* fake_cuda.c - see fake_cuda.h; here are its devices and contexts, how its entry points are found,
 * and what a test tells it. */
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "unit/cuda/fake_cuda_inside.h"

struct fake_cuda_state fake_cuda = {.lock = PTHREAD_MUTEX_INITIALIZER};
_Thread_local CUcontext fake_cuda_current[8];
_Thread_local int fake_cuda_depth;

static atomic_bool capturing;                  /* a thread of the process captures a graph */
static _Thread_local CUstreamCaptureMode mode; /* global, as a thread begins */

/* ---- every call ---- */

/* A driver may stand still in a call. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const char *entry; /* NULL: none is held */
    bool reached;
} held = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, false};

static void wait_while_held(const char *entry)
{
    pthread_mutex_lock(&held.lock);
    while (held.entry != NULL && strcmp(held.entry, entry) == 0) {
        held.reached = true;
        pthread_cond_wait(&held.changed, &held.lock);
    }
    pthread_mutex_unlock(&held.lock);
}

bool fake_cuda_spoils(void)
{
    return atomic_load(&capturing) && mode != CU_STREAM_CAPTURE_MODE_RELAXED;
}

CUresult fake_cuda_begin(const char *entry)
{
    wait_while_held(entry);
    pthread_mutex_lock(&fake_cuda.lock);
    uint32_t i = 0;
    while (fake_cuda.calls[i].name != NULL && strcmp(fake_cuda.calls[i].name, entry) != 0)
        i++;
    fake_cuda.calls[i].name = entry;
    const uint32_t nth = ++fake_cuda.calls[i].calls;
    if (strcmp(fake_cuda.fail.name, entry) != 0 || fake_cuda.fail.nth != nth) return CUDA_SUCCESS;
    fake_cuda.fail.hit = true;
    return fake_cuda.fail.result;
}

CUresult fake_cuda_end(CUresult result)
{
    pthread_mutex_unlock(&fake_cuda.lock);
    return result;
}

void fake_cuda_trace_add(const char *format, int number)
{
    char word[24];
    snprintf(word, sizeof word, format, number);
    const size_t used = strlen(fake_cuda.trace), more = strlen(word);
    /* Copies in a row on one stream are one. */
    if (word[0] == 'c' && used >= more && strcmp(fake_cuda.trace + used - more, word) == 0) return;
    if (used + more + 2 > sizeof fake_cuda.trace) return;
    snprintf(fake_cuda.trace + used, sizeof fake_cuda.trace - used, "%s%s", used > 0 ? " " : "", word);
}

/* ---- devices and contexts ---- */

static CUresult CUDAAPI e_cuDriverGetVersion(int *version)
{
    BEGIN("cuDriverGetVersion");
    *version = fake_cuda.version != 0 ? fake_cuda.version : 12040;
    return fake_cuda_end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuGetErrorName(CUresult result, const char **name)
{
    *name = result == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OF_THE_FAKE";
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI e_cuInit(unsigned flags)
{
    (void)flags;
    BEGIN("cuInit");
    fake_cuda.initialised = true;
    return fake_cuda_end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuDeviceGetCount(int *count)
{
    BEGIN("cuDeviceGetCount");
    *count = DEVICES;
    return fake_cuda_end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuDeviceGet(CUdevice *device, int ordinal)
{
    BEGIN("cuDeviceGet");
    *device = ordinal;
    return fake_cuda_end(ordinal < DEVICES ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE);
}

static CUresult CUDAAPI e_cuDeviceGetName(char *name, int bytes, CUdevice device)
{
    BEGIN("cuDeviceGetName");
    snprintf(name, (size_t)bytes, "Fake \"%d\"", device); /* a name may hold anything */
    return fake_cuda_end(CUDA_SUCCESS);
}

int fake_cuda_attribute(CUdevice_attribute which)
{
    int value = 0;
    for (uint32_t i = 0; i < fake_cuda.attribute_count; i++)
        if (fake_cuda.attributes[i].which == which) value = fake_cuda.attributes[i].value;
    return value;
}

static CUresult CUDAAPI e_cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device)
{
    (void)device;
    BEGIN("cuDeviceGetAttribute");
    *value = fake_cuda_attribute(which);
    return fake_cuda_end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    BEGIN_UNSAFE("cuDevicePrimaryCtxRetain");
    *context = &fake_cuda.primary[device];
    fake_cuda.primary[device].retained++;
    fake_cuda.counts.contexts++;
    return fake_cuda_end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuDevicePrimaryCtxRelease(CUdevice device)
{
    BEGIN_UNSAFE("cuDevicePrimaryCtxRelease");
    MUST(fake_cuda.primary[device].retained > 0, "a context is released that is not retained");
    fake_cuda.primary[device].retained--;
    fake_cuda.counts.contexts--;
    return fake_cuda_end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuCtxPushCurrent(CUcontext context)
{
    BEGIN("cuCtxPushCurrent");
    MUST(context->retained > 0, "a context is used that is not retained");
    MUST(fake_cuda_depth < 8, "contexts are pushed and not popped");
    fake_cuda_current[fake_cuda_depth++] = context;
    return fake_cuda_end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuCtxPopCurrent(CUcontext *context)
{
    BEGIN_IN_CONTEXT("cuCtxPopCurrent");
    *context = fake_cuda_current[--fake_cuda_depth];
    return fake_cuda_end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    BEGIN("cuDeviceGetUuid");
    memset(uuid, 'f', sizeof *uuid);
    uuid->bytes[0] = (char)device;
    return fake_cuda_end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuDeviceGetPCIBusId(char *name, int bytes, CUdevice device)
{
    BEGIN("cuDeviceGetPCIBusId");
    (void)snprintf(name, (size_t)bytes, "0000:A%d:00.0", device);
    return fake_cuda_end(CUDA_SUCCESS);
}

static CUresult CUDAAPI e_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *with)
{
    BEGIN("cuThreadExchangeStreamCaptureMode");
    const CUstreamCaptureMode before = mode;
    mode = *with;
    *with = before;
    return fake_cuda_end(CUDA_SUCCESS);
}

static void device_entries(struct tb_cuda_driver *d)
{
    d->driver_version = e_cuDriverGetVersion;
    d->error_name = e_cuGetErrorName;
    d->init = e_cuInit;
    d->device_count = e_cuDeviceGetCount;
    d->device_get = e_cuDeviceGet;
    d->device_name = e_cuDeviceGetName;
    d->device_attribute = e_cuDeviceGetAttribute;
    d->primary_retain = e_cuDevicePrimaryCtxRetain;
    d->primary_release = e_cuDevicePrimaryCtxRelease;
    d->context_push = e_cuCtxPushCurrent;
    d->context_pop = e_cuCtxPopCurrent;
    d->device_uuid = e_cuDeviceGetUuid;
    d->device_pci = e_cuDeviceGetPCIBusId;
    d->capture_mode = e_cuThreadExchangeStreamCaptureMode;
}

/* ---- finding them ---- */

#define ENTRY(field, entry, version) {#entry, version, offsetof(struct tb_cuda_driver, field)},
static const struct {
    const char *name;
    int version;
    size_t field;
} entries[] = {TB_CUDA_NEEDED(ENTRY) TB_CUDA_OPTIONAL(ENTRY)};

CUresult CUDAAPI fake_cuda_find(const char *symbol, void **function_out, int version, cuuint64_t flags,
                                CUdriverProcAddressQueryResult *found_out)
{
    (void)flags;
    struct tb_cuda_driver all = {0};
    device_entries(&all);
    fake_cuda_memory_entries(&all);
    fake_cuda_stream_entries(&all);
    const int have = fake_cuda.version != 0 ? fake_cuda.version : 12040;
    *function_out = NULL;
    *found_out = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        if (strcmp(entries[i].name, symbol) != 0) continue;
        *found_out = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        if (entries[i].version > have || version != entries[i].version) break;
        memcpy(function_out, (const char *)&all + entries[i].field, sizeof *function_out);
        *found_out = CU_GET_PROC_ADDRESS_SUCCESS;
    }
    return CUDA_SUCCESS;
}

/* ---- for tests ---- */

static struct tb_cuda_driver driver;
static struct sigaction before;

static void on_fall(int signal)
{
    static const char says[] =
        "fake_cuda fails: a core looks at a device's memory, or a copy at memory that has gone\n";
    (void)signal;
    (void)!write(STDERR_FILENO, says, sizeof says - 1);
    abort();
}

static void say_who_falls(void)
{
    const struct sigaction action = {.sa_handler = on_fall};
    MUST(sigaction(SIGSEGV, &action, &before) == 0, "no handler");
}

void fake_cuda_open(void)
{
    pthread_mutex_lock(&fake_cuda.lock);
    memset((char *)&fake_cuda + sizeof fake_cuda.lock, 0, sizeof fake_cuda - sizeof fake_cuda.lock);
    fake_cuda.version = 12040;
    fake_cuda.initialised = true;
    fake_cuda.primary[1].device = 1;
    atomic_store(&capturing, false);
    pthread_mutex_unlock(&fake_cuda.lock);
    say_who_falls();
    fake_cuda_set_attribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 1);
    fake_cuda_set_attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH, INT32_MAX);
    driver = fake_cuda_driver();
    tb_gpu_replace_driver(&driver);
    tb_cuda_replace_image("not for this device");
}

void fake_cuda_close(void)
{
    tb_gpu_replace_driver(NULL);
    (void)sigaction(SIGSEGV, &before, NULL);
    const struct fake_cuda_counts c = fake_cuda.counts;
    MUST(c.contexts == 0, "a context is still retained");
    MUST(c.streams == 0 && c.events == 0, "streams or events are left");
    MUST(c.allocations == 0 && c.host_allocations == 0, "memory of ours is left");
    MUST(c.pinned == 0, "memory is still pinned");
    MUST(c.modules == 0, "a module is still loaded");
    MUST(c.ipc == 0, "another process's memory is still open");
    MUST(fake_cuda_depth == 0, "a context is still current");
    tb_cuda_replace_image(NULL);
    for (int i = 0; i < ALLOCS_MAX; i++)
        if (fake_cuda.allocs[i].at != NULL) fake_cuda_free_alloc(&fake_cuda.allocs[i]);
}

struct tb_cuda_driver fake_cuda_driver(void)
{
    struct tb_cuda_driver d;
    char why[TB_CUDA_WHY_BYTES];
    MUST(tb_cuda_driver_fill(fake_cuda_find, &d, why) == TB_OK, "the fake lacks an entry point");
    return d;
}

void fake_cuda_fail(const char *entry, uint32_t nth, CUresult result)
{
    pthread_mutex_lock(&fake_cuda.lock);
    memset(&fake_cuda.fail, 0, sizeof fake_cuda.fail);
    if (entry != NULL) snprintf(fake_cuda.fail.name, sizeof fake_cuda.fail.name, "%s", entry);
    fake_cuda.fail.nth = nth;
    fake_cuda.fail.result = result;
    memset(fake_cuda.calls, 0, sizeof fake_cuda.calls);
    pthread_mutex_unlock(&fake_cuda.lock);
}

void fake_cuda_hold(const char *entry)
{
    pthread_mutex_lock(&held.lock);
    held.entry = entry;
    if (entry != NULL) held.reached = false;
    pthread_cond_broadcast(&held.changed);
    pthread_mutex_unlock(&held.lock);
}

bool fake_cuda_held(void)
{
    pthread_mutex_lock(&held.lock);
    const bool reached = held.reached;
    pthread_mutex_unlock(&held.lock);
    return reached;
}

void fake_cuda_set_capturing(bool yes)
{
    atomic_store(&capturing, yes);
}

bool fake_cuda_stands_aside(void)
{
    return mode != CU_STREAM_CAPTURE_MODE_GLOBAL;
}

bool fake_cuda_failed(void)
{
    pthread_mutex_lock(&fake_cuda.lock);
    const bool hit = fake_cuda.fail.hit;
    pthread_mutex_unlock(&fake_cuda.lock);
    return hit;
}

uint32_t fake_cuda_calls(const char *entry)
{
    uint32_t calls = 0;
    pthread_mutex_lock(&fake_cuda.lock);
    for (int i = 0; fake_cuda.calls[i].name != NULL; i++)
        if (strcmp(fake_cuda.calls[i].name, entry) == 0) calls = fake_cuda.calls[i].calls;
    pthread_mutex_unlock(&fake_cuda.lock);
    return calls;
}

void fake_cuda_set_version(int version)
{
    fake_cuda.version = version;
}

void fake_cuda_set_attribute(CUdevice_attribute which, int value)
{
    uint32_t i = 0;
    while (i < fake_cuda.attribute_count && fake_cuda.attributes[i].which != which)
        i++;
    MUST(i < sizeof fake_cuda.attributes / sizeof fake_cuda.attributes[0], "too many attributes");
    fake_cuda.attributes[i].which = which;
    fake_cuda.attributes[i].value = value;
    if (i == fake_cuda.attribute_count) fake_cuda.attribute_count++;
}

void fake_cuda_set_initialised(bool yes)
{
    fake_cuda.initialised = yes;
}

void fake_cuda_set_own_pitches(bool yes)
{
    fake_cuda.own_pitches = yes;
}

void fake_cuda_set_spoils(bool yes)
{
    fake_cuda.spoils = yes;
}

struct fake_cuda_counts fake_cuda_counts(void)
{
    pthread_mutex_lock(&fake_cuda.lock);
    const struct fake_cuda_counts c = fake_cuda.counts;
    pthread_mutex_unlock(&fake_cuda.lock);
    return c;
}

void fake_cuda_trace_clear(void)
{
    fake_cuda.trace[0] = '\0';
}

const char *fake_cuda_trace(void)
{
    return fake_cuda.trace;
}

void fake_cuda_note(const char *word)
{
    pthread_mutex_lock(&fake_cuda.lock);
    const size_t used = strlen(fake_cuda.trace);
    snprintf(fake_cuda.trace + used, sizeof fake_cuda.trace - used, "%s%s", used > 0 ? " " : "", word);
    pthread_mutex_unlock(&fake_cuda.lock);
}
