/* tensor.c - one tensor of a layout: its dtype by name and by number, its bytes, and its place in
 * packed order but for the name. */
#include "base/layout/tensor.h"

#include <string.h>

#include "base/assert.h"
#include "base/layout/layout.h"

static const struct {
    enum tb_dtype dtype;
    const char *text;
    uint32_t bytes;
} dtypes[] = {
#define DTYPE_ROW(name, number, text, bits) {name, text, (bits) / 8},
    TB_DTYPE_LIST(DTYPE_ROW)
#undef DTYPE_ROW
};
#define DTYPE_COUNT (sizeof dtypes / sizeof dtypes[0])

static const struct {
    const char *name;
    uint16_t bits;
    enum tb_dtype codec;
} others[] = {
#define OTHER_ROW(name, bits, codec) {name, bits, codec},
    TB_DTYPE_OTHER_LIST(OTHER_ROW)
#undef OTHER_ROW
};
#define OTHER_COUNT (sizeof others / sizeof others[0])

/* By number: sorting and searching 100,000 tensors ask it millions of times. */
uint32_t tb_dtype_element_bytes(enum tb_dtype dtype)
{
    static const uint8_t bytes[] = {
#define DTYPE_BYTES(name, number, text, bits) [number] = (bits) / 8,
        TB_DTYPE_LIST(DTYPE_BYTES)
#undef DTYPE_BYTES
    };
    return (size_t)dtype < sizeof bytes ? bytes[dtype] : 0;
}

const char *tb_dtype_name(enum tb_dtype dtype)
{
    for (size_t i = 0; i < DTYPE_COUNT; i++) {
        if (dtypes[i].dtype == dtype) return dtypes[i].text;
    }
    return NULL;
}

enum tb_dtype tb_dtype_parse(const char *text)
{
    for (size_t i = 0; i < DTYPE_COUNT; i++) {
        if (strcmp(dtypes[i].text, text) == 0) return dtypes[i].dtype;
    }
    return (enum tb_dtype)0;
}

/* ---- other dtypes ---- */

static bool dtype_name_clean(const char *name, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char c = name[i];
        const bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        if (!letter && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-') return false;
    }
    return count > 0 && count <= TB_DTYPE_NAME_MAX;
}

/* Its index in TB_DTYPE_OTHER_LIST; OTHER_COUNT: it is not there. */
static size_t other_known(const char *name)
{
    size_t i = 0;
    while (i < OTHER_COUNT && strcmp(others[i].name, name) != 0)
        i++;
    return i;
}

static bool other_valid(const struct tb_dtype_other *o)
{
    const size_t count = strnlen(o->name, sizeof o->name);
    return o->bits > 0 && o->bits <= TB_DTYPE_BITS_MAX && dtype_name_clean(o->name, count) &&
           tb_dtype_parse(o->name) == (enum tb_dtype)0;
}

/* Digits only, below 2^16; 0 where they are none. */
static uint16_t bits_parse(const char *text)
{
    uint32_t bits = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9' && bits <= TB_DTYPE_BITS_MAX; at++)
        bits = bits * 10 + (uint32_t)(*at - '0');
    return *at == '\0' && bits <= TB_DTYPE_BITS_MAX ? (uint16_t)bits : 0;
}

bool tb_tensor_set_dtype(struct tb_tensor *t, const char *text)
{
    const char *colon = strchr(text, ':');
    const size_t name_bytes = colon != NULL ? (size_t)(colon - text) : strlen(text);
    struct tb_dtype_other o = {.bits = colon != NULL ? bits_parse(colon + 1) : 0};
    if (!dtype_name_clean(text, name_bytes) || (colon != NULL && o.bits == 0)) return false;
    memcpy(o.name, text, name_bytes);
    const enum tb_dtype dtype = tb_dtype_parse(o.name);
    const size_t known = other_known(o.name);
    const bool listed = dtype != (enum tb_dtype)0;
    uint32_t bits = o.bits;
    if (listed)
        bits = tb_dtype_element_bytes(dtype) * 8;
    else if (known < OTHER_COUNT)
        bits = others[known].bits;
    if (bits == 0 || (colon != NULL && bits != o.bits)) return false;
    o.bits = (uint16_t)bits;
    t->dtype = listed ? dtype : TB_DTYPE_OTHER;
    memset(&t->other, 0, sizeof t->other);
    if (!listed) t->other = o;
    return true;
}

const char *tb_tensor_dtype_name(const struct tb_tensor *t)
{
    return t->dtype == TB_DTYPE_OTHER ? t->other.name : tb_dtype_name(t->dtype);
}

uint32_t tb_tensor_bits(const struct tb_tensor *t)
{
    return t->dtype == TB_DTYPE_OTHER ? t->other.bits : tb_dtype_element_bytes(t->dtype) * 8;
}

/* Bytes to which each of its elements is aligned: a power of two. It follows from the bits alone,
 * so that all releases have one packed order, whichever names they know. */
static uint32_t unit_bytes(const struct tb_tensor *t)
{
    if (t->dtype != TB_DTYPE_OTHER) return tb_dtype_element_bytes(t->dtype);
    uint32_t unit = 8;
    while (unit > 1 && t->other.bits % (unit * 8) != 0)
        unit /= 2;
    return unit;
}

enum tb_dtype tb_tensor_codec_dtype(const struct tb_tensor *t)
{
    static const enum tb_dtype by_unit[] = {
        [1] = TB_DTYPE_U8, [2] = TB_DTYPE_U16, [4] = TB_DTYPE_U32, [8] = TB_DTYPE_U64};
    if (t->dtype != TB_DTYPE_OTHER) return t->dtype;
    const size_t known = other_known(t->other.name);
    if (known < OTHER_COUNT && others[known].bits == t->other.bits) return others[known].codec;
    return by_unit[unit_bytes(t)];
}

bool tb_tensor_box_on_bytes(const struct tb_tensor *t)
{
    const uint32_t bits = tb_tensor_bits(t);
    bool whole = true;
    for (uint8_t i = 0; i < t->rank; i++)
        whole = whole && t->box_count[i] == t->full[i];
    if (bits % 8 == 0 || whole) return true;
    TB_ASSERT(t->rank > 0); /* a scalar is whole */
    const uint64_t full = t->full[t->rank - 1], first = t->box_first[t->rank - 1];
    const uint64_t count = t->box_count[t->rank - 1];
    return full % 8 * bits % 8 == 0 && first % 8 * bits % 8 == 0 && count % 8 * bits % 8 == 0;
}

/* ---- a tensor ---- */

/* *product_io x factor, or false past TB_SHARD_BYTES_MAX. Both in bits. */
static bool multiply(uint64_t *product_io, uint64_t factor)
{
    if (factor != 0 && *product_io > TB_SHARD_BYTES_MAX * 8 / factor) return false;
    *product_io *= factor;
    return true;
}

enum tb_status tb_tensor_measure(const struct tb_tensor *t, uint64_t *bytes_out)
{
    uint64_t full = tb_tensor_bits(t); /* bits, both */
    uint64_t box = full;
    if (t->dtype == TB_DTYPE_OTHER && !other_valid(&t->other)) return TB_BAD_ARGUMENT;
    if (full == 0 || t->rank > TB_RANK_MAX || t->part > TB_PARTS_MAX) return TB_BAD_ARGUMENT;
    for (uint8_t i = 0; i < t->rank; i++) {
        if (t->box_first[i] > t->full[i]) return TB_BAD_ARGUMENT;
        if (t->box_count[i] > t->full[i] - t->box_first[i]) return TB_BAD_ARGUMENT;
        if (!multiply(&full, t->full[i] == 0 ? 1 : t->full[i])) return TB_TOO_LARGE;
        /* The box is inside the full shape, so this can not fail where that did not. */
        if (!multiply(&box, t->box_count[i])) return TB_TOO_LARGE;
    }
    if (!tb_tensor_box_on_bytes(t)) return TB_BAD_ARGUMENT;
    TB_ASSERT(box <= full);
    *bytes_out = (box + 7) / 8;
    return TB_OK;
}

int tb_tensor_dtype_compare(const struct tb_tensor *a, const struct tb_tensor *b)
{
    if (a->dtype == b->dtype && a->dtype != TB_DTYPE_OTHER) return 0;
    const uint32_t a_bytes = unit_bytes(a);
    const uint32_t b_bytes = unit_bytes(b);
    if (a_bytes != b_bytes) return a_bytes > b_bytes ? -1 : 1;
    if (a->dtype != b->dtype) return a->dtype < b->dtype ? -1 : 1;
    const int by_name = strcmp(a->other.name, b->other.name);
    return by_name != 0 ? by_name : (int)a->other.bits - (int)b->other.bits;
}

bool tb_tensor_dtype_equal(const struct tb_tensor *a, const struct tb_tensor *b)
{
    return tb_tensor_dtype_compare(a, b) == 0;
}
