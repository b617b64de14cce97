/* allocate.h - memory for shells, with the fault points malloc and library (base/fault.h). Threads:
 * any. */
#ifndef TB_BASE_ALLOCATE_H
#define TB_BASE_ALLOCATE_H

#include <stddef.h>

void *tb_malloc(size_t bytes);               /* NULL when there is none */
void *tb_calloc(size_t count, size_t bytes); /* NULL also on overflow */
void *tb_realloc(void *old, size_t bytes);
void tb_free(void *memory);
char *tb_strdup(const char *text);

/* For libraries; what they give is freed by free(). */
void *tb_library_malloc(size_t bytes);
void *tb_library_calloc(size_t count, size_t bytes);
void *tb_library_realloc(void *old, size_t bytes);

#endif
