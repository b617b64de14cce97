/* sparse.c - encoder and decoder of the sparse form side by side. Both walk sections of 65536 elements; in each, every
 * class starts a new gap, so that the encoder can look one section ahead in a scratch of fixed size. */
#include "base/sparse.h"

#include <stdbool.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/rangecode.h"

#define SECTION      65536u
#define HEADER_BYTES 4u
#define TREE_BITS    5u /* a bit length, 1 to 32, less one */
#define NEAR_BITS    2u /* below the highest bit, these learn too */

enum kind { KIND_BF16 = 1, KIND_F16 = 2, KIND_F8 = 3, KIND_F32 = 4, KIND_BYTES = 5 };

static enum kind kind_of(enum tb_dtype dtype)
{
    switch (dtype) {
    case TB_DTYPE_BF16:
        return KIND_BF16;
    case TB_DTYPE_F16:
        return KIND_F16;
    case TB_DTYPE_F8E4:
    case TB_DTYPE_F8E5:
        return KIND_F8;
    case TB_DTYPE_F32:
        return KIND_F32;
    default:
        return KIND_BYTES;
    }
}

static size_t kind_width(unsigned kind)
{
    static const uint8_t widths[] = {0, 2, 2, 1, 4, 1};
    return kind < sizeof widths ? widths[kind] : 0;
}

/* What the inner loops are made for: one copy of them each. */
#define INLINE static inline __attribute__((always_inline))

INLINE uint32_t element_load(const uint8_t *at, enum kind kind)
{
    if (kind == KIND_F32) {
        return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
    }
    return kind == KIND_BF16 || kind == KIND_F16 ? (uint32_t)at[0] | (uint32_t)at[1] << 8 : at[0];
}

INLINE void element_store(uint8_t *at, enum kind kind, uint32_t x)
{
    for (size_t k = 0; k < kind_width(kind); k++)
        at[k] = (uint8_t)(x >> (8 * k));
}

/* The exponent, or what there is of it in the 7 bits below the sign. */
INLINE uint8_t element_key(uint32_t x, enum kind kind)
{
    if (kind == KIND_BF16) return (uint8_t)(x >> 7);
    if (kind == KIND_F32) return (uint8_t)(x >> 23);
    if (kind == KIND_F16) return (uint8_t)(x >> 8 & 0x7f);
    return kind == KIND_F8 ? (uint8_t)(x & 0x7f) : 0;
}

INLINE unsigned element_bits(enum kind kind)
{
    return kind == KIND_F32 ? 32 : kind == KIND_BF16 || kind == KIND_F16 ? 16 : 8;
}

/* A number above 0: is it 1, its bit length, the NEAR_BITS below its highest bit, and the rest as it is. */
struct number_model {
    struct tb_chance one;
    struct tb_chance length[1u << TREE_BITS];
    struct tb_chance near[32][1u << NEAR_BITS];
};

struct class_model {
    struct number_model gap, step;
};

struct model {
    uint8_t class_of[256]; /* by key */
    unsigned classes;
    struct class_model of[TB_SPARSE_CLASSES_MAX];
};

static void number_model_init(struct number_model *m)
{
    tb_chance_init(&m->one, 1);
    tb_chance_init(m->length, 1u << TREE_BITS);
    tb_chance_init(&m->near[0][0], 32u << NEAR_BITS);
}

/* Class j has the keys from bounds[j - 1] up to, not including, bounds[j]. False: bounds do not grow. */
static bool model_init(struct model *m, const uint8_t *bounds, unsigned classes)
{
    m->classes = classes;
    for (unsigned j = 0; j + 1 < classes; j++) {
        if (bounds[j] == 0 || (j > 0 && bounds[j] <= bounds[j - 1])) return false;
    }
    unsigned j = 0;
    for (unsigned key = 0; key < 256; key++) {
        if (j + 1 < classes && key == bounds[j]) j++;
        m->class_of[key] = (uint8_t)j;
    }
    for (j = 0; j < classes; j++) {
        number_model_init(&m->of[j].gap);
        number_model_init(&m->of[j].step);
    }
    return true;
}

static unsigned bit_length(uint32_t x)
{
    return 32u - (unsigned)__builtin_clz(x);
}

static void number_code(struct tb_range_coder *c, struct number_model *m, uint32_t x)
{
    tb_range_code(c, &m->one, x == 1);
    if (x == 1) return;
    const unsigned length = bit_length(x) - 1; /* bits below the highest: 1 to 31 */
    unsigned node = 1;
    for (unsigned k = TREE_BITS; k-- > 0;) {
        tb_range_code(c, &m->length[node], length >> k & 1);
        node = 2 * node + (length >> k & 1);
    }
    const unsigned near = length < NEAR_BITS ? length : NEAR_BITS;
    node = 1;
    for (unsigned k = length; k-- > length - near;) {
        tb_range_code(c, &m->near[length][node], x >> k & 1);
        node = 2 * node + (x >> k & 1);
    }
    tb_range_code_even(c, x, length - near);
}

/* Any 32-bit number above 0; length 0 is 1 in another dress, which a coder does not write and which harms nobody. */
static uint32_t number_decode(struct tb_range_decoder *d, struct number_model *m)
{
    if (tb_range_decode(d, &m->one)) return 1;
    unsigned node = 1;
    for (unsigned k = 0; k < TREE_BITS; k++)
        node = 2 * node + tb_range_decode(d, &m->length[node]);
    const unsigned length = node - (1u << TREE_BITS);
    const unsigned near = length < NEAR_BITS ? length : NEAR_BITS;
    uint32_t top = 1;
    for (unsigned k = 0; k < near; k++)
        top = 2 * top + tb_range_decode(d, &m->near[length][top]);
    const unsigned rest = length - near;
    return (rest == 0 ? top : top << rest) | tb_range_decode_even(d, rest);
}

/* The difference modulo the width as a sign and the smaller magnitude. */
static void step_code(struct tb_range_coder *c, struct class_model *m, uint32_t difference, unsigned bits)
{
    const uint32_t mask = UINT32_MAX >> (32 - bits);
    const bool negative = difference >> (bits - 1) & 1;
    tb_range_code_even(c, negative, 1); /* up is as likely as down */
    number_code(c, &m->step, negative ? (0u - difference) & mask : difference);
}

static uint32_t step_decode(struct tb_range_decoder *d, struct class_model *m)
{
    const bool negative = tb_range_decode_even(d, 1) != 0;
    const uint32_t magnitude = number_decode(d, &m->step);
    return negative ? 0u - magnitude : magnitude;
}

/* One changed element; `gap` becomes that to the next one of its class. */
struct change {
    uint32_t difference;
    uint32_t gap_and_class;
};

_Static_assert(SECTION * sizeof(struct change) == TB_SPARSE_SCRATCH_BYTES, "a section may change whole");

struct section {
    const uint8_t *base, *bytes;
    size_t count;
};

/* Gaps count from 1 and end with the class: gap members further is the next change, or the end of the section. */
INLINE size_t section_scan(const struct model *m, struct section s, enum kind kind, struct change *changes,
                           uint32_t *gaps)
{
    const size_t width = kind_width(kind);
    size_t found = 0;
    for (size_t i = 0; i < s.count; i++) {
        const uint32_t x = element_load(s.base + width * i, kind);
        const uint32_t y = element_load(s.bytes + width * i, kind);
        const unsigned class = m->class_of[element_key(x, kind)];
        gaps[class]++;
        if (x == y) continue;
        changes[found++] = (struct change){y - x, gaps[class] << 4 | class};
        gaps[class] = 0;
    }
    return found;
}

/* One class: eight bytes at a time, and only where they differ one element. */
INLINE size_t section_scan_one(struct section s, enum kind kind, struct change *changes, uint32_t *gaps)
{
    const size_t width = kind_width(kind), at_once = 8 / width;
    size_t found = 0, last = 0; /* elements up to and including the last change */
    for (size_t i = 0; i < s.count;) {
        if (s.count - i >= at_once && memcmp(s.base + width * i, s.bytes + width * i, 8) == 0) {
            i += at_once;
            continue;
        }
        const size_t end = s.count - i < at_once ? s.count : i + at_once;
        for (; i < end; i++) {
            const uint32_t x = element_load(s.base + width * i, kind);
            const uint32_t y = element_load(s.bytes + width * i, kind);
            if (x == y) continue;
            changes[found++] = (struct change){y - x, (uint32_t)(i + 1 - last) << 4};
            last = i + 1;
        }
    }
    gaps[0] = (uint32_t)(s.count - last);
    return found;
}

/* Turns "gap before" into "gap after", the order in which a decoder asks; gaps[] becomes each class's first. */
static void changes_turn(struct change *changes, size_t count, uint32_t *gaps)
{
    for (size_t i = count; i-- > 0;) {
        const uint32_t before = changes[i].gap_and_class >> 4, class = changes[i].gap_and_class & 15;
        changes[i].gap_and_class = gaps[class] << 4 | class;
        gaps[class] = before;
    }
}

INLINE void section_encode(struct model *m, struct section s, enum kind kind, struct change *changes,
                           struct tb_range_coder *c)
{
    uint32_t gaps[TB_SPARSE_CLASSES_MAX] = {0};
    const size_t found =
        m->classes == 1 ? section_scan_one(s, kind, changes, gaps) : section_scan(m, s, kind, changes, gaps);
    for (unsigned j = 0; j < m->classes; j++)
        gaps[j]++; /* the member behind the last one never comes */
    changes_turn(changes, found, gaps);
    for (unsigned j = 0; j < m->classes; j++)
        number_code(c, &m->of[j].gap, gaps[j]);
    for (size_t i = 0; i < found; i++) {
        struct class_model *of = &m->of[changes[i].gap_and_class & 15];
        step_code(c, of, changes[i].difference, element_bits(kind));
        number_code(c, &of->gap, changes[i].gap_and_class >> 4);
    }
}

/* A sample of the changes by key: 32 elements of 256. */
INLINE size_t changes_sample(const struct tb_sparse_input *in, enum kind kind, uint32_t *by_key)
{
    const size_t width = kind_width(kind), count = in->count / width;
    size_t seen = 0;
    for (size_t i = 0; i < count; i += i % 256 == 31 ? 225 : 1) {
        const uint32_t x = element_load(in->base + width * i, kind);
        const bool changed = x != element_load(in->bytes + width * i, kind);
        by_key[element_key(x, kind)] += changed;
        seen += changed;
    }
    return seen;
}

/* A class is closed once it has a twentieth of the changes, and at least 16 in the sample: less teaches nothing. */
static unsigned bounds_choose(const uint32_t *by_key, size_t seen, unsigned classes_max, uint8_t *bounds_out)
{
    const size_t least = seen / 20 > 16 ? seen / 20 : 16;
    unsigned classes = 1;
    size_t have = 0;
    for (unsigned key = 0; key < 255 && classes < classes_max; key++) {
        have += by_key[key];
        if (have < least) continue;
        bounds_out[classes++ - 1] = (uint8_t)(key + 1);
        have = 0;
    }
    return classes;
}

INLINE unsigned bounds_sample(const struct tb_sparse_input *in, enum kind kind, uint8_t *bounds_out)
{
    if (in->classes_max == 1 || kind == KIND_BYTES) return 1;
    uint32_t by_key[256] = {0};
    const size_t seen = changes_sample(in, kind, by_key);
    return bounds_choose(by_key, seen, in->classes_max, bounds_out);
}

INLINE size_t encode_kind(const struct tb_sparse_input *in, enum kind kind, const struct tb_sparse_room *room)
{
    const size_t width = kind_width(kind), count = in->count / width, tail = in->count % width;
    const size_t gain_max = in->count - in->count * 3 / 100;
    const size_t cap = room->cap < gain_max ? room->cap : gain_max;
    uint8_t bounds[TB_SPARSE_CLASSES_MAX] = {0};
    const unsigned classes = bounds_sample(in, kind, bounds);
    const size_t head = HEADER_BYTES + classes - 1 + tail;
    if (cap < head) return 0;

    struct model m;
    const bool growing = model_init(&m, bounds, classes);
    TB_ASSERT(growing);
    struct tb_range_coder c;
    tb_range_coder_init(&c, room->out + head, cap - head);
    for (size_t at = 0; at < count && !c.full; at += SECTION) {
        const struct section s = {in->base + width * at, in->bytes + width * at,
                                  count - at < SECTION ? count - at : SECTION};
        section_encode(&m, s, kind, room->scratch, &c);
    }
    const size_t used = tb_range_end(&c);
    if (c.full) return 0;
    struct tb_writer w;
    tb_writer_init(&w, room->out, head);
    tb_write_u8(&w, (uint8_t)kind);
    tb_write_u8(&w, (uint8_t)classes);
    tb_write_u16(&w, 0);
    tb_write_bytes(&w, bounds, classes - 1);
    tb_write_bytes(&w, in->bytes + width * count, tail);
    return head + used;
}

size_t tb_sparse_encode(const struct tb_sparse_input *in, const struct tb_sparse_room *room)
{
    TB_ASSERT(in->classes_max >= 1 && in->classes_max <= TB_SPARSE_CLASSES_MAX);
    if (in->count > TB_SPARSE_BYTES_MAX) return 0;
    switch (kind_of(in->dtype)) {
    case KIND_BF16:
        return encode_kind(in, KIND_BF16, room);
    case KIND_F16:
        return encode_kind(in, KIND_F16, room);
    case KIND_F8:
        return encode_kind(in, KIND_F8, room);
    case KIND_F32:
        return encode_kind(in, KIND_F32, room);
    case KIND_BYTES:
        break;
    }
    return encode_kind(in, KIND_BYTES, room);
}

/* Element i is looked at before it is patched: its class is the base's. */
INLINE void section_decode(struct model *m, uint8_t *elements, size_t count, enum kind kind,
                           struct tb_range_decoder *d)
{
    const size_t width = kind_width(kind);
    uint32_t left[TB_SPARSE_CLASSES_MAX];
    for (unsigned j = 0; j < m->classes; j++)
        left[j] = number_decode(d, &m->of[j].gap);
    for (size_t i = 0; i < count; i++) {
        const uint32_t x = element_load(elements + width * i, kind);
        const unsigned class = m->class_of[element_key(x, kind)];
        if (--left[class] > 0) continue;
        if (d->bad) return;
        element_store(elements + width * i, kind, x + step_decode(d, &m->of[class]));
        left[class] = number_decode(d, &m->of[class].gap);
    }
}

/* One class: straight from change to change. */
INLINE void section_patch(struct class_model *m, uint8_t *elements, size_t count, enum kind kind,
                          struct tb_range_decoder *d)
{
    const size_t width = kind_width(kind);
    size_t i = 0;
    while (!d->bad) {
        const uint32_t gap = number_decode(d, &m->gap);
        if (gap > count - i) return;
        i += gap;
        uint8_t *at = elements + width * (i - 1);
        element_store(at, kind, element_load(at, kind) + step_decode(d, m));
    }
}

INLINE void decode_kind(struct model *m, uint8_t *elements, size_t count, enum kind kind,
                        struct tb_range_decoder *d)
{
    const size_t width = kind_width(kind);
    for (size_t at = 0; at < count && !d->bad; at += SECTION) {
        const size_t here = count - at < SECTION ? count - at : SECTION;
        if (m->classes == 1)
            section_patch(&m->of[0], elements + width * at, here, kind, d);
        else
            section_decode(m, elements + width * at, here, kind, d);
    }
}

static void decode_all(struct model *m, uint8_t *elements, size_t count, enum kind kind,
                       struct tb_range_decoder *d)
{
    switch (kind) {
    case KIND_BF16:
        decode_kind(m, elements, count, KIND_BF16, d);
        return;
    case KIND_F16:
        decode_kind(m, elements, count, KIND_F16, d);
        return;
    case KIND_F8:
        decode_kind(m, elements, count, KIND_F8, d);
        return;
    case KIND_F32:
        decode_kind(m, elements, count, KIND_F32, d);
        return;
    case KIND_BYTES:
        decode_kind(m, elements, count, KIND_BYTES, d);
        return;
    }
}

enum tb_status tb_sparse_decode(const uint8_t *in, size_t in_count, uint8_t *elements, size_t count)
{
    struct tb_reader r;
    tb_reader_init(&r, in, in_count);
    const uint8_t kind = tb_read_u8(&r), classes = tb_read_u8(&r);
    const uint16_t zero = tb_read_u16(&r);
    const size_t width = kind_width(kind);
    if (r.bad || width == 0 || zero != 0) return TB_CHUNK_CODEC;
    if (classes < 1 || classes > TB_SPARSE_CLASSES_MAX) return TB_CHUNK_CODEC;
    const size_t tail = count % width, head = HEADER_BYTES + classes - 1u + tail;
    const uint8_t *bounds = tb_read_span(&r, classes - 1u);
    const uint8_t *tail_bytes = tb_read_span(&r, tail);
    struct model m;
    if (r.bad || !model_init(&m, bounds, classes)) return TB_CHUNK_CODEC;

    struct tb_range_decoder d;
    tb_range_decoder_init(&d, in + head, in_count - head);
    decode_all(&m, elements, count / width, (enum kind)kind, &d);
    if (!tb_range_ended(&d)) return TB_CHUNK_CODEC;
    if (tail > 0) memcpy(elements + count - tail, tail_bytes, tail);
    return TB_OK;
}
