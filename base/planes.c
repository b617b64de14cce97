/* planes.c - byte loops that a compiler turns into vectors; a tile of the hot plane at a time, so that joining can be
 * done in place. Bytes are read and written one by one: the same on every machine. */
#include "base/planes.h"

#include <string.h>

#include "base/assert.h"

#define TILE 4096 /* elements; the hot plane of a tile is on the stack */

enum tb_planes_kind tb_planes_kind_of(enum tb_dtype dtype)
{
    switch (dtype) {
    case TB_DTYPE_BF16:
        return TB_PLANES_BF16;
    case TB_DTYPE_F16:
        return TB_PLANES_F16;
    case TB_DTYPE_F8E4:
    case TB_DTYPE_F8E5:
        return TB_PLANES_F8;
    case TB_DTYPE_F32:
        return TB_PLANES_F32;
    default:
        return TB_PLANES_NONE;
    }
}

size_t tb_planes_width(uint8_t kind)
{
    static const uint8_t widths[] = {0, 2, 2, 1, 4};
    return kind < sizeof widths ? widths[kind] : 0;
}

/* The exponent of an element whose two highest bytes are these. */
static inline uint8_t exponent(uint8_t high, uint8_t next)
{
    return (uint8_t)(high << 1 | next >> 7);
}

void tb_planes_hot(enum tb_planes_kind kind, const uint8_t *restrict elements, size_t count,
                   uint8_t *restrict hot_out)
{
    TB_ASSERT(tb_planes_width((uint8_t)kind) > 0);
    if (kind == TB_PLANES_F8) {
        memcpy(hot_out, elements, count);
    } else if (kind == TB_PLANES_F16) {
        for (size_t i = 0; i < count; i++)
            hot_out[i] = elements[2 * i + 1];
    } else if (kind == TB_PLANES_BF16) {
        for (size_t i = 0; i < count; i++)
            hot_out[i] = exponent(elements[2 * i + 1], elements[2 * i]);
    } else {
        for (size_t i = 0; i < count; i++)
            hot_out[i] = exponent(elements[4 * i + 3], elements[4 * i + 2]);
    }
}

static void rest_of_f32(const uint8_t *restrict elements, size_t count, uint8_t *restrict rest_out)
{
    for (size_t i = 0; i < count; i++) {
        rest_out[i] = (uint8_t)(elements[4 * i] << 1 | elements[4 * i + 3] >> 7);
        rest_out[count + i] = (uint8_t)(elements[4 * i + 1] << 1 | elements[4 * i] >> 7);
        rest_out[2 * count + i] = (uint8_t)(elements[4 * i + 2] << 1 | elements[4 * i + 1] >> 7);
    }
}

void tb_planes_rest(enum tb_planes_kind kind, const uint8_t *restrict elements, size_t count,
                    uint8_t *restrict rest_out)
{
    TB_ASSERT(tb_planes_width((uint8_t)kind) > 0);
    if (kind == TB_PLANES_F16) {
        for (size_t i = 0; i < count; i++)
            rest_out[i] = elements[2 * i];
    } else if (kind == TB_PLANES_BF16) {
        for (size_t i = 0; i < count; i++)
            rest_out[i] = (uint8_t)(elements[2 * i] << 1 | elements[2 * i + 1] >> 7);
    } else if (kind == TB_PLANES_F32) {
        rest_of_f32(elements, count, rest_out);
    }
}

/* The planes of one tile; `stride` is from one plane of the rest to the next. */
struct tile {
    const uint8_t *hot, *rest;
    size_t count, stride;
};

static void join_bf16(struct tile t, uint8_t *restrict out)
{
    const uint8_t *restrict hot = t.hot, *restrict rest = t.rest;
    for (size_t i = 0; i < t.count; i++) {
        out[2 * i] = (uint8_t)(rest[i] >> 1 | hot[i] << 7);
        out[2 * i + 1] = (uint8_t)(hot[i] >> 1 | rest[i] << 7);
    }
}

static void join_f16(struct tile t, uint8_t *restrict out)
{
    const uint8_t *restrict hot = t.hot, *restrict rest = t.rest;
    for (size_t i = 0; i < t.count; i++) {
        out[2 * i] = rest[i];
        out[2 * i + 1] = hot[i];
    }
}

static void join_f32(struct tile t, uint8_t *restrict out)
{
    const uint8_t *restrict hot = t.hot, *restrict low = t.rest;
    const uint8_t *restrict mid = low + t.stride, *restrict high = mid + t.stride;
    for (size_t i = 0; i < t.count; i++) {
        out[4 * i] = (uint8_t)(low[i] >> 1 | mid[i] << 7);
        out[4 * i + 1] = (uint8_t)(mid[i] >> 1 | high[i] << 7);
        out[4 * i + 2] = (uint8_t)(high[i] >> 1 | hot[i] << 7);
        out[4 * i + 3] = (uint8_t)(hot[i] >> 1 | low[i] << 7);
    }
}

/* Element i ends at width x (i + 1), which is never behind the hot byte of element i + 1: going up, a tile that was
 * copied aside overwrites no hot byte that is still to be read. */
void tb_planes_join(enum tb_planes_kind kind, const uint8_t *rest, size_t count, uint8_t *elements)
{
    const size_t width = tb_planes_width((uint8_t)kind);
    TB_ASSERT(width > 0);
    if (kind == TB_PLANES_F8) return; /* the hot plane is all there is, and in its place */
    uint8_t aside[TILE];
    for (size_t at = 0; at < count; at += TILE) {
        const struct tile t = {aside, rest + at, count - at < TILE ? count - at : TILE, count};
        memcpy(aside, elements + (width - 1) * count + at, t.count);
        if (kind == TB_PLANES_BF16)
            join_bf16(t, elements + width * at);
        else if (kind == TB_PLANES_F16)
            join_f16(t, elements + width * at);
        else
            join_f32(t, elements + width * at);
    }
}
