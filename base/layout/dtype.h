/* dtype.h - the types of a tensor's elements: numbers, names and bits. Pure. */
#ifndef TB_BASE_DTYPE_H
#define TB_BASE_DTYPE_H

#include <stdint.h>

#define TB_DTYPE_NAME_MAX 29   /* bytes, without the NUL: A-Z a-z 0-9 . _ - */
#define TB_DTYPE_BITS_MAX 1024 /* of one element */

/* Numbers are on the wire. The order here is not the packed order: the element unit is
 * compared first. The list is closed: a dtype that is not in it crosses as TB_DTYPE_OTHER,
 * with its name and bits. */
/* clang-format off */
#define TB_DTYPE_LIST(X)     \
    X(TB_DTYPE_U8,    1, "U8",       8) \
    X(TB_DTYPE_I8,    2, "I8",       8) \
    X(TB_DTYPE_BOOL,  3, "BOOL",     8) \
    X(TB_DTYPE_U16,   4, "U16",     16) \
    X(TB_DTYPE_I16,   5, "I16",     16) \
    X(TB_DTYPE_U32,   6, "U32",     32) \
    X(TB_DTYPE_I32,   7, "I32",     32) \
    X(TB_DTYPE_U64,   8, "U64",     64) \
    X(TB_DTYPE_I64,   9, "I64",     64) \
    X(TB_DTYPE_F8E4, 10, "F8_E4M3",  8) \
    X(TB_DTYPE_F8E5, 11, "F8_E5M2",  8) \
    X(TB_DTYPE_F16,  12, "F16",     16) \
    X(TB_DTYPE_BF16, 13, "BF16",    16) \
    X(TB_DTYPE_F32,  14, "F32",     32) \
    X(TB_DTYPE_F64,  15, "F64",     64)
/* clang-format on */

enum tb_dtype {
#define TB_DTYPE_ENUM(name, number, text, bits) name = (number),
    TB_DTYPE_LIST(TB_DTYPE_ENUM)
#undef TB_DTYPE_ENUM
        TB_DTYPE_OTHER = 255 /* struct tb_dtype_other says which */
};

/* Other dtypes that are known by name: bits of an element, and the dtype whose codecs its chunks
 * take. A chunk in a form says its kind of element itself, so a reader need not know this table. */
/* clang-format off */
#define TB_DTYPE_OTHER_LIST(X)                   \
    X("F8_E8M0",      8, TB_DTYPE_U8)            \
    X("F8_E4M3FNUZ",  8, TB_DTYPE_F8E4)          \
    X("F8_E5M2FNUZ",  8, TB_DTYPE_F8E5)          \
    X("F6_E2M3",      6, TB_DTYPE_U8)            \
    X("F6_E3M2",      6, TB_DTYPE_U8)            \
    X("F4",           4, TB_DTYPE_U8)            \
    X("C64",         64, TB_DTYPE_F32)
/* clang-format on */

/* A dtype by name and bits. No name of TB_DTYPE_LIST: one dtype has one form. Bytes
 * behind the name are zero. */
struct tb_dtype_other {
    uint16_t bits; /* 1 to TB_DTYPE_BITS_MAX */
    char name[TB_DTYPE_NAME_MAX + 1];
};

uint32_t tb_dtype_element_bytes(enum tb_dtype dtype); /* 0 for TB_DTYPE_OTHER and for an unknown number */
const char *tb_dtype_name(enum tb_dtype dtype);       /* as safetensors spells it; NULL for those two */
enum tb_dtype tb_dtype_parse(const char *text);       /* 0 if it is not in TB_DTYPE_LIST */

#endif
