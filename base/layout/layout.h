/* layout.h - a shard's table of tensors, and the one function that cuts it into chunks.
 *
 * Packed order. The tensors of a layout stand in canonical order: larger element units first, then
 * dtype number, then part, then name (bytewise). Packed, each follows the one before without a gap,
 * so every tensor is aligned to its element unit, and a chunk is one contiguous range of packed
 * bytes. Behind the tensors come the version's blobs (manifest.h), in their order, cut by the same
 * rule as one opaque tensor.
 *
 * The layout's id is the XXH3-128 of its encoding, so equal layouts have one id and cross once.
 *
 * Pure. A layout is one block of memory that the caller gives: tb_layout_bytes_for says how
 * much. */
#ifndef TB_BASE_LAYOUT_H
#define TB_BASE_LAYOUT_H

#include "base/bytes.h"
#include "base/digest.h"
#include "base/ident.h"
#include "tombolo/status.h"

#define TB_TENSOR_NAME_MAX  512 /* bytes, without the NUL */
#define TB_RANK_MAX         8   /* dimensions */
#define TB_TENSORS_MAX      1000000
#define TB_PARTS_MAX        1024 /* of a tensor; each is looked for by name */
#define TB_SHARD_BYTES_MAX  ((uint64_t)1 << 44)
#define TB_SHARDS_MAX       4096
#define TB_CHUNK_BYTES_MIN  ((uint64_t)1 << 20)
#define TB_CHUNK_BYTES_MAX  ((uint64_t)16 << 20)
#define TB_CHUNKS_MAX       (1u << 21) /* per shard; what 2^44 bytes in 16 MiB need, twice */

#define TB_DTYPE_NAME_MAX   29   /* bytes, without the NUL: A-Z a-z 0-9 . _ - */
#define TB_DTYPE_BITS_MAX   1024 /* of one element */
#define TB_DTYPES_OTHER_MAX 64   /* different ones in one layout */

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

/* One tensor. full: its shape in the model; box: what of it is here, [first, first + count) an
 * axis. A layout of whole tensors has box_first all 0 and box_count equal to full. part: a tensor
 * that readers split along an axis stands as several boxes of one name, 1 + p where the p-th
 * reader's are, and those of all tensors that one reader wants stand together: chunks are cut
 * there. So do several boxes that a publisher has of a name, under numbers of their own
 * (intra/client/memory/slice_parts.h). 0: readers take it whole; at most TB_PARTS_MAX. */
struct tb_tensor {
    const char *name; /* canonical; UTF-8, 1 to TB_TENSOR_NAME_MAX bytes, no NUL, no control characters */
    enum tb_dtype dtype;
    uint8_t rank;
    uint16_t part;
    struct tb_dtype_other other; /* zero, unless dtype is TB_DTYPE_OTHER */
    uint64_t full[TB_RANK_MAX];
    uint64_t box_first[TB_RANK_MAX];
    uint64_t box_count[TB_RANK_MAX];
    /* product of box_count x bits, in whole bytes rounded up; filled by
     * tb_layout_build and decode */
    uint64_t bytes;
    uint64_t offset; /* in packed bytes; filled likewise */
};

/* "BF16", "F4", or "NAME:BITS" for a dtype that is not known here, into t->dtype and t->other.
 * False: the name is unknown and has no bits, is known with other bits, or is not one that
 * TB_DTYPE_NAME_MAX allows; t is untouched. */
bool tb_tensor_set_dtype(struct tb_tensor *t, const char *text);
const char *tb_tensor_dtype_name(const struct tb_tensor *t); /* without bits */
uint32_t tb_tensor_bits(const struct tb_tensor *t);          /* of one element; 0 for an unknown dtype */
bool tb_tensor_dtype_equal(const struct tb_tensor *a, const struct tb_tensor *b);
/* Of a dtype with fractions of a byte: the box begins and ends on whole bytes in every row of the
 * full tensor, or is all of it. Rows are those of the last axis: its length, first and count each
 * take whole bytes. Others: true. */
bool tb_tensor_box_on_bytes(const struct tb_tensor *t);

struct tb_chunk;

struct tb_layout {
    uint32_t tensor_count;
    bool other_dtypes; /* some tensor's dtype is TB_DTYPE_OTHER: peers of link protocol 2 cannot read it */
    uint64_t bytes;    /* of all tensors */
    struct tb_digest id;
    const struct tb_tensor *tensors; /* packed order */
    /* as tb_layout_encode would write it, where somebody keeps it (layouts.h); else NULL */
    const uint8_t *encoded;
    size_t encoded_bytes;
    /* its tensors' chunks, likewise: the table is large, and read through for each cut */
    const struct tb_chunk *cut;
    uint32_t cut_count;
};

/* Memory that a layout of these tensors needs (table and names). */
size_t tb_layout_bytes_for(const struct tb_tensor *tensors, uint32_t count);

/* Sorts copies of the tensors into packed order inside `memory` (16-byte aligned, the
 * caller's, kept until the layout is no longer used) and fills bytes, offsets and id. The
 * caller's names may go afterwards.
 *   TB_BAD_ARGUMENT  two equal names of one part; an empty or unclean name; an unknown dtype; rank
 *                    or part over the maximum; a box outside the full shape or not on bytes. A
 *                    dimension without elements is allowed: the tensor has 0 bytes
 *   TB_TOO_LARGE     over TB_TENSORS_MAX, TB_DTYPES_OTHER_MAX or TB_SHARD_BYTES_MAX, also by
 *                    overflow; also a full shape that alone is over TB_SHARD_BYTES_MAX, where
 *                    dimensions of 0 count as 1, so no product of its axes can overflow
 *   TB_SITE_NOMEM    `cap` is less than tb_layout_bytes_for */
TB_MUST_USE enum tb_status tb_layout_build(const struct tb_tensor *tensors, uint32_t count, void *memory,
                                           size_t cap, struct tb_layout *layout_out);

/* The tensor of that name that is no part; NULL if there is none. */
const struct tb_tensor *tb_layout_find(const struct tb_layout *layout, const char *name);
/* The tensor of that name, dtype and part; of `like` nothing else is looked at.
 * NULL: there is none. */
const struct tb_tensor *tb_layout_find_like(const struct tb_layout *layout, const struct tb_tensor *like);
/* The largest part; 0: there are none. */
uint16_t tb_layout_part_max(const struct tb_layout *layout);

/* Index of the tensor whose packed bytes hold `offset`, never one of 0 bytes;
 * tensor_count behind the tensors. */
uint32_t tb_layout_tensor_at(const struct tb_layout *layout, uint64_t offset);
/* The dtype whose codecs take a chunk that begins at `offset`: that of its tensor, or the one that
 * stands for it (never TB_DTYPE_OTHER). TB_DTYPE_U8 behind the tensors. */
enum tb_dtype tb_layout_dtype_at(const struct tb_layout *layout, uint64_t offset);

/* Another layout with the same content in the caller's memory, names included. TB_SITE_NOMEM. */
size_t tb_layout_copy_bytes(const struct tb_layout *layout);
TB_MUST_USE enum tb_status tb_layout_copy(const struct tb_layout *layout, void *memory, size_t cap,
                                          struct tb_layout *layout_out);

/* On the wire: u32 count, then for each tensor in packed order u8 dtype, u8 rank (and 0x80 of a
 * part, then u16 part), of dtype 255 u16 bits and its name (u16 length, bytes), u16 name length,
 * name, rank x (u64 full, u64 box_first, u64 box_count). */
size_t tb_layout_encoded_bytes(const struct tb_layout *layout);
void tb_layout_encode(const struct tb_layout *layout, struct tb_writer *w);
/* How much memory a decode of these encoded bytes needs; 0 when they are not a layout. Bounded by a
 * small multiple of `encoded_bytes`, so a peer can not make us allocate more than it sent. */
size_t tb_layout_decode_bytes(const void *encoded, size_t encoded_bytes);
/* Count and bytes of the tensors in an encoded layout, without memory for it: for sizing what
 * stands behind it. False when decode would refuse a tensor or the sum; order and equal names
 * are decode's to see. */
bool tb_layout_survey(const void *encoded, size_t encoded_bytes, uint32_t *tensor_count_out,
                      uint64_t *bytes_out);
/* TB_PEER_GARBLED for anything that encode would not have written, order included. Names are
 * copied. */
TB_MUST_USE enum tb_status tb_layout_decode(const void *encoded, size_t encoded_bytes, void *memory,
                                            size_t cap, struct tb_layout *layout_out);

/* The cut: chunk k of a shard covers packed bytes [offset, offset + bytes). The published rule:
 *   target = the largest power of two not above 1/4096 of the shard's tensor bytes, at least 1 MiB
 *   and at most 16 MiB.
 *   A tensor larger than the target is cut into n = ceil(bytes / target) pieces: piece i of it
 *   starts at floor(i x bytes / n) rounded down to a multiple of 4096.
 *   Smaller tensors that follow one another and have one dtype and part are grouped until the next
 *   one would take the group over the target. A tensor of 0 bytes belongs to no chunk.
 *   Blobs are cut behind, together, like one opaque tensor, with the same target.
 * So chunk k covers the same bytes in every version of a layout, whatever its blobs. */
struct tb_chunk {
    uint64_t offset; /* in packed bytes; blob chunks start at layout.bytes */
    uint32_t bytes;  /* 1 to 2 x TB_CHUNK_BYTES_MAX */
};

uint64_t tb_cut_target_bytes(uint64_t tensor_bytes);
/* How many chunks; `blob_bytes` is the sum over blobs. */
uint32_t tb_cut_count(const struct tb_layout *layout, uint64_t blob_bytes);
/* Fills chunks_out[0..tb_cut_count), ascending, without gap or overlap. The table is made once a
 * shard. */
void tb_cut(const struct tb_layout *layout, uint64_t blob_bytes, struct tb_chunk *chunks_out);

#endif
