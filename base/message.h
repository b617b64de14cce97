/* message.h - control messages as tables of fields: one list gives the struct, its
 * encoder and its decoder.
 *
 *   #define TB_SEAL_FIELDS(F) F(id, uid) F(u32, shard) F(span, head)
 *   TB_MESSAGE(tb_seal, TB_SEAL_FIELDS)
 *
 * gives struct tb_seal, void tb_seal_encode(const struct tb_seal *, struct tb_writer *), and enum
 * tb_status tb_seal_decode(struct tb_reader *, struct tb_seal *), which answers TB_PEER_GARBLED for
 * a truncation, a bad name, text with a NUL, a bool that is neither 0 nor 1, or trailing bytes.
 * Ranges of numbers are the handler's to check. Spans and the strings inside them are borrowed from
 * the frame: valid until the handler returns.
 *
 * Kinds: bool u8 u16 u32 u64, id (16 bytes), digest (16), fingerprint (32), name (u16 + bytes,
 * tb_name_valid), opt_name (may be empty), text (u16 + up to 255 bytes, any UTF-8 without NUL),
 * span (u32 + bytes), key (a tb_version_key). */
#ifndef TB_BASE_MESSAGE_H
#define TB_BASE_MESSAGE_H

#include <string.h>

#include "base/bytes.h"
#include "base/digest.h"
#include "base/ident.h"
#include "base/layout/version_key.h"

#define TB_TEXT_BYTES_MAX 255

struct tb_span {
    const uint8_t *bytes;
    uint32_t count;
};
struct tb_text {
    char text[TB_TEXT_BYTES_MAX + 1];
};
struct tb_fingerprint {
    uint8_t bytes[32];
};

typedef bool tb_field_bool;
typedef uint8_t tb_field_u8;
typedef uint16_t tb_field_u16;
typedef uint32_t tb_field_u32;
typedef uint64_t tb_field_u64;
typedef struct tb_id tb_field_id;
typedef struct tb_digest tb_field_digest;
typedef struct tb_fingerprint tb_field_fingerprint;
typedef struct tb_name tb_field_name;
typedef struct tb_name tb_field_opt_name;
typedef struct tb_text tb_field_text;
typedef struct tb_span tb_field_span;
typedef struct tb_version_key tb_field_key;

/* clang-format off */
#define TB_FIELD_KINDS(X) X(bool) X(u8) X(u16) X(u32) X(u64) X(id) X(digest) X(fingerprint) X(name) \
                          X(opt_name) X(text) X(span) X(key)
/* clang-format on */

/* In message.c. */
#define TB_FIELD_PROTOTYPES(kind)                                                                            \
    void tb_field_write_##kind(struct tb_writer *w, const tb_field_##kind *v);                               \
    void tb_field_read_##kind(struct tb_reader *r, tb_field_##kind *v_out);
TB_FIELD_KINDS(TB_FIELD_PROTOTYPES)
#undef TB_FIELD_PROTOTYPES

#define TB_FIELD_DECLARE(kind, name) tb_field_##kind name;
#define TB_FIELD_WRITE(kind, name)   tb_field_write_##kind(w, &m->name);
#define TB_FIELD_READ(kind, name)    tb_field_read_##kind(r, &m.name);

/* clang-format off */
#define TB_MESSAGE(type, FIELDS)                                                                    \
    struct type {                                                                                   \
        FIELDS(TB_FIELD_DECLARE)                                                                    \
    };                                                                                              \
    static inline void type##_encode(const struct type *m, struct tb_writer *w)                     \
    {                                                                                               \
        FIELDS(TB_FIELD_WRITE)                                                                      \
    }                                                                                               \
    TB_MUST_USE static inline enum tb_status type##_decode(struct tb_reader *r, struct type *m_out) \
    {                                                                                               \
        struct type m;                                                                              \
        memset(&m, 0, sizeof m);                                                                    \
        FIELDS(TB_FIELD_READ)                                                                       \
        if (!tb_reader_ended(r)) return TB_PEER_GARBLED;                                            \
        *m_out = m;                                                                                 \
        return TB_OK;                                                                               \
    }
/* clang-format on */

#endif
