/* planes.h - the bytes of an element that a code can shorten, kept apart from those that are noise. Pure.
 *
 * An array of elements is the hot plane (one byte an element: bf16 and fp32 the exponent, the sign rotated away; fp16
 * the high byte; fp8 the whole byte) and the rest, width - 1 bytes an element. Whoever calls codes the hot plane and
 * sends the rest as it is. Bytes behind the last whole element are not the planes' business. */
#ifndef TB_BASE_PLANES_H
#define TB_BASE_PLANES_H

#include <stddef.h>
#include <stdint.h>

#include "base/layout.h"

/* Numbers are on the wire. NONE: the dtype has no plane worth coding. */
enum tb_planes_kind {
    TB_PLANES_NONE = 0,
    TB_PLANES_BF16 = 1,
    TB_PLANES_F16 = 2,
    TB_PLANES_F8 = 3,
    TB_PLANES_F32 = 4
};

enum tb_planes_kind tb_planes_kind_of(enum tb_dtype dtype);

/* Bytes an element; 0 for NONE and for numbers that are no kind. */
size_t tb_planes_width(uint8_t kind);

/* `kind` is a kind with a width; `elements` are width x count bytes. */
void tb_planes_hot(enum tb_planes_kind kind, const uint8_t *elements, size_t count, uint8_t *hot_out);

/* Writes (width - 1) x count bytes: plane after plane, that of the lowest byte first. */
void tb_planes_rest(enum tb_planes_kind kind, const uint8_t *elements, size_t count, uint8_t *rest_out);

/* Puts elements together in place: their hot plane lies in the last `count` of the width x count bytes. */
void tb_planes_join(enum tb_planes_kind kind, const uint8_t *rest, size_t count, uint8_t *elements);

#endif
