/* library_faults.c - the three libraries' own ways to be given an allocator. */
#include "base/net/library_faults.h"

#include <ares.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <uv.h>

#include "base/allocate.h"
#include "base/assert.h"

static void *crypto_malloc(size_t bytes, const char *file, int line)
{
    (void)file, (void)line;
    return tb_library_malloc(bytes);
}

static void *crypto_realloc(void *old, size_t bytes, const char *file, int line)
{
    (void)file, (void)line;
    return tb_library_realloc(old, bytes);
}

static void crypto_free(void *memory, const char *file, int line)
{
    (void)file, (void)line;
    free(memory);
}

void tb_net_library_faults(void)
{
    /* Each says no only when it has allocated before. */
    TB_ASSERT(CRYPTO_set_mem_functions(crypto_malloc, crypto_realloc, crypto_free) == 1);
    /* libuv makes its own tables larger by realloc, and ends the process where it cannot, by
     * design. */
    TB_ASSERT(uv_replace_allocator(tb_library_malloc, realloc, tb_library_calloc, free) == 0);
    TB_ASSERT(ares_library_init_mem(ARES_LIB_INIT_ALL, tb_library_malloc, free, tb_library_realloc) ==
              ARES_SUCCESS);
}
