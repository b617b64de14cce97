/* utf8.c - one well-formed character of UTF-8, or none. */
#include "base/utf8.h"

size_t tb_utf8_decode(const void *bytes, size_t left, uint32_t *code_out)
{
    const uint8_t *at = bytes;
    if (left == 0) return 0;
    size_t count = 0;
    uint32_t code = 0;
    uint32_t least = 0; /* smaller codes have a shorter form, and only the shortest is right */
    if (at[0] < 0x80) {
        count = 1, code = at[0], least = 0;
    } else if (at[0] >= 0xc2 && at[0] < 0xe0) {
        count = 2, code = at[0] & 0x1fu, least = 0x80;
    } else if (at[0] >= 0xe0 && at[0] < 0xf0) {
        count = 3, code = at[0] & 0x0fu, least = 0x800;
    } else if (at[0] >= 0xf0 && at[0] < 0xf5) {
        count = 4, code = at[0] & 0x07u, least = 0x10000;
    }
    if (count == 0 || count > left) return 0;
    for (size_t i = 1; i < count; i++) {
        if ((at[i] & 0xc0u) != 0x80u) return 0;
        code = code << 6 | (at[i] & 0x3fu);
    }
    if (code < least || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return 0;
    *code_out = code;
    return count;
}

bool tb_utf8_is_clean(const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    while (count > 0) {
        /* Nearly all names are ASCII, and a layout of 100,000 tensors has two
         * million characters. */
        if (*at >= 0x20 && *at < 0x7f) {
            at++;
            count--;
            continue;
        }
        uint32_t code = 0;
        const size_t step = tb_utf8_decode(at, count, &code);
        if (step == 0) return false;
        if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return false;
        at += step;
        count -= step;
    }
    return true;
}
