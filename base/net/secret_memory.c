/* secret_memory.c - see secret_memory.h: rows of one size, of one region. */
#include "base/net/secret_memory.h"

#include <fcntl.h>
#include <malloc.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"

#define REGION_BYTES      ((size_t)TB_SECRET_ROW_BYTES * TB_SECRET_ROWS)
#define OPENSSL_BYTES     ((size_t)256 << 10)
#define OPENSSL_LEAST     32u
#define CALL_MEMFD_SECRET 447

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static enum tb_secret_memory state;
static uint8_t *region;
static bool used[TB_SECRET_ROWS];
static _Thread_local bool wiping;

/* ---- what OpenSSL frees ---- */

static void *library_malloc(size_t bytes, const char *file, int line)
{
    (void)file, (void)line;
    return bytes != 0 ? tb_library_malloc(bytes) : NULL;
}

static void library_free(void *memory, const char *file, int line)
{
    (void)file, (void)line;
    if (wiping && memory != NULL) OPENSSL_cleanse(memory, malloc_usable_size(memory));
    free(memory);
}

/* Memory that moves leaves none of its bytes behind. */
static void *library_realloc(void *old, size_t bytes, const char *file, int line)
{
    if (bytes != 0 && (!wiping || old == NULL)) return tb_library_realloc(old, bytes);
    void *more = library_malloc(bytes, file, line);
    if (bytes != 0 && more == NULL) return NULL;
    if (more != NULL) {
        const size_t had = malloc_usable_size(old);
        memcpy(more, old, had < bytes ? had : bytes);
    }
    library_free(old, file, line);
    return more;
}

void tb_secret_wipe(bool on)
{
    wiping = on;
}

/* ---- rows ---- */

/* Its size counts against RLIMIT_MEMLOCK when it is mapped. */
static uint8_t *map_hidden(void)
{
    const int fd = (int)syscall(CALL_MEMFD_SECRET, O_CLOEXEC);
    void *at = MAP_FAILED;
    if (fd < 0) return NULL;
    if (ftruncate(fd, (off_t)REGION_BYTES) == 0)
        at = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    return at == MAP_FAILED ? NULL : at;
}

static void map_plain(void)
{
    region = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (region == MAP_FAILED) region = NULL;
}

enum tb_secret_memory tb_secret_memory_open(void)
{
    TB_ASSERT(region == NULL);
    /* Refused where OpenSSL has allocated before: bytes of keys then stay in what it freed. */
    (void)CRYPTO_set_mem_functions(library_malloc, library_realloc, library_free);
    (void)CRYPTO_secure_malloc_init(OPENSSL_BYTES, OPENSSL_LEAST); /* else its keys are plain memory */
    region = map_hidden();
    state = region != NULL ? TB_SECRET_HIDDEN : TB_SECRET_PLAIN;
    if (region == NULL) map_plain();
    if (region == NULL) return state;
    if (state == TB_SECRET_PLAIN)
        state = mlock(region, REGION_BYTES) == 0 ? TB_SECRET_LOCKED : TB_SECRET_SWAPS;
    (void)madvise(region, REGION_BYTES, MADV_DONTDUMP);
    (void)madvise(region, REGION_BYTES, MADV_DONTFORK);
    return state;
}

enum tb_secret_memory tb_secret_memory_state(void)
{
    return state;
}

/* The first free one from `from` on. */
static void *row_take(uint32_t from)
{
    void *row = NULL;
    pthread_mutex_lock(&lock);
    for (uint32_t i = from; i < TB_SECRET_ROWS && row == NULL; i++) {
        if (used[i]) continue;
        used[i] = true;
        row = region + (size_t)i * TB_SECRET_ROW_BYTES;
    }
    pthread_mutex_unlock(&lock);
    return row;
}

static void *row_new(size_t bytes, uint32_t from)
{
    void *row = region != NULL && bytes <= TB_SECRET_ROW_BYTES ? row_take(from) : NULL;
    if (row == NULL) return tb_calloc(1, bytes);
    memset(row, 0, TB_SECRET_ROW_BYTES);
    return row;
}

void *tb_secret_new(size_t bytes)
{
    return row_new(bytes, 0);
}

void *tb_secret_new_of_many(size_t bytes)
{
    return row_new(bytes, TB_SECRET_ROWS / 2);
}

void tb_secret_free(void *memory, size_t bytes)
{
    if (memory == NULL) return;
    OPENSSL_cleanse(memory, bytes);
    const uintptr_t at = (uintptr_t)memory, first = (uintptr_t)region;
    if (region == NULL || at < first || at >= first + REGION_BYTES) {
        tb_free(memory);
        return;
    }
    pthread_mutex_lock(&lock);
    TB_ASSERT((at - first) % TB_SECRET_ROW_BYTES == 0 && used[(at - first) / TB_SECRET_ROW_BYTES]);
    used[(at - first) / TB_SECRET_ROW_BYTES] = false;
    pthread_mutex_unlock(&lock);
}
