/* allocate.c - memory, and the fault points malloc and library. */
#include "base/allocate.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"

void *tb_malloc(size_t bytes)
{
    return tb_fault_hit(TB_FAULT_malloc, ENOMEM) ? NULL : malloc(bytes);
}

void *tb_calloc(size_t count, size_t bytes)
{
    if (bytes == 0) bytes = 1;      /* a pointer of its own, not NULL for success */
    if (count > SIZE_MAX / bytes) { /* calloc says so too, but a sanitizer's aborts */
        errno = ENOMEM;
        return NULL;
    }
    return tb_fault_hit(TB_FAULT_malloc, ENOMEM) ? NULL : calloc(count, bytes);
}

void *tb_realloc(void *old, size_t bytes)
{
    return tb_fault_hit(TB_FAULT_malloc, ENOMEM) ? NULL : realloc(old, bytes);
}

void tb_free(void *memory)
{
    free(memory);
}

char *tb_strdup(const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *copy = tb_malloc(bytes);
    return copy == NULL ? NULL : memcpy(copy, text, bytes);
}

void *tb_library_malloc(size_t bytes)
{
    return tb_fault_hit(TB_FAULT_library, ENOMEM) ? NULL : malloc(bytes);
}

void *tb_library_calloc(size_t count, size_t bytes)
{
    return tb_fault_hit(TB_FAULT_library, ENOMEM) ? NULL : calloc(count, bytes);
}

void *tb_library_realloc(void *old, size_t bytes)
{
    return tb_fault_hit(TB_FAULT_library, ENOMEM) ? NULL : realloc(old, bytes);
}
