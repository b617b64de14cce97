/* delta_loops.h - integer differences modulo the width of an element: loops that a compiler
 * makes vectors of, compiled for each variant. */
#ifndef TB_BASE_DELTA_LOOPS_H
#define TB_BASE_DELTA_LOOPS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define LITTLE_uint8_t(x)  (x)
#define LITTLE_uint16_t(x) __builtin_bswap16(x)
#define LITTLE_uint32_t(x) __builtin_bswap32(x)
#define LITTLE_uint64_t(x) __builtin_bswap64(x)
#else
#define LITTLE_uint8_t(x)  (x)
#define LITTLE_uint16_t(x) (x)
#define LITTLE_uint32_t(x) (x)
#define LITTLE_uint64_t(x) (x)
#endif

#define DELTA_LOOPS(type)                                                                                    \
    static void subtract_##type(const uint8_t *restrict bytes, const uint8_t *restrict base, size_t count,   \
                                uint8_t *restrict out)                                                       \
    {                                                                                                        \
        for (size_t i = 0; i < count; i += sizeof(type)) {                                                   \
            type x, y;                                                                                       \
            memcpy(&x, bytes + i, sizeof x);                                                                 \
            memcpy(&y, base + i, sizeof y);                                                                  \
            x = LITTLE_##type((type)(LITTLE_##type(x) - LITTLE_##type(y)));                                  \
            memcpy(out + i, &x, sizeof x);                                                                   \
        }                                                                                                    \
    }                                                                                                        \
    static void add_##type(uint8_t *restrict bytes, const uint8_t *restrict base, size_t count)              \
    {                                                                                                        \
        for (size_t i = 0; i < count; i += sizeof(type)) {                                                   \
            type x, y;                                                                                       \
            memcpy(&x, bytes + i, sizeof x);                                                                 \
            memcpy(&y, base + i, sizeof y);                                                                  \
            x = LITTLE_##type((type)(LITTLE_##type(x) + LITTLE_##type(y)));                                  \
            memcpy(bytes + i, &x, sizeof x);                                                                 \
        }                                                                                                    \
    }

DELTA_LOOPS(uint8_t)
DELTA_LOOPS(uint16_t)
DELTA_LOOPS(uint32_t)
DELTA_LOOPS(uint64_t)

static void subtract(const uint8_t *bytes, const uint8_t *base, unsigned width, size_t count, uint8_t *out)
{
    TB_ASSERT(count % width == 0); /* no element is cut in two */
    if (width == 1)
        subtract_uint8_t(bytes, base, count, out);
    else if (width == 2)
        subtract_uint16_t(bytes, base, count, out);
    else if (width == 4)
        subtract_uint32_t(bytes, base, count, out);
    else
        subtract_uint64_t(bytes, base, count, out);
}

static void add(uint8_t *bytes, const uint8_t *base, unsigned width, size_t count)
{
    TB_ASSERT(count % width == 0);
    if (width == 1)
        add_uint8_t(bytes, base, count);
    else if (width == 2)
        add_uint16_t(bytes, base, count);
    else if (width == 4)
        add_uint32_t(bytes, base, count);
    else
        add_uint64_t(bytes, base, count);
}

#undef DELTA_LOOPS

#endif
