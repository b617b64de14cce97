/* utf8.h - UTF-8 in bytes of a stranger. Pure. */
#ifndef TB_BASE_UTF8_H
#define TB_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The UTF-8 character at `bytes`: how many bytes it takes (1 to 4) and its code; 0 when it is not
 * well formed (overlong, surrogate, cut off, past U+10FFFF) or left is 0. */
size_t tb_utf8_decode(const void *bytes, size_t left, uint32_t *code_out);
/* True for well-formed UTF-8 without control characters (C0, DEL, C1). Nothing at all is clean. */
bool tb_utf8_is_clean(const void *bytes, size_t count);

#endif
