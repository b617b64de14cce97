/* planes.c - encoder and decoder of the planes' form side by side. Both walk sections of 65536
 * elements, each with a cascade of its own, in tiles that stay in the nearest cache between
 * taking apart and coding. */
#include "base/codec/planes.h"

#include <stdbool.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/codec/bits.h"
#include "base/codec/planes_cascade.h"

#define SECTION      65536u /* elements */
#define GROUP        TB_CASCADE_GROUP
#define TILE         4096u /* elements; in fp32, 20 KiB of input and hot bytes */
#define HEADER_BYTES 4u
#define SAMPLED      2048u                     /* elements of a section that choose its cascade */
#define STREAM_BYTES ((SECTION / 64 + 2) * 16) /* of a level, and what may be read behind it */

/* Numbers are on the wire. */
enum kind { KIND_BF16 = 1, KIND_F16 = 2, KIND_F8E4 = 3, KIND_F32 = 4, KIND_BYTES = 5, KIND_F8E5 = 6 };

static const struct kind_row {
    uint8_t width;    /* bytes an element; 0: no kind */
    uint8_t raw_bits; /* of the rotated element's highest byte that are not exponent */
    bool rotated;
} kinds[] = {
    {0}, {2, 0, true}, {2, 3, true}, {1, 4, true}, {4, 0, true}, {1, 0, false}, {1, 3, true},
};

static enum kind kind_of(enum tb_dtype dtype)
{
    switch (dtype) {
    case TB_DTYPE_BF16:
        return KIND_BF16;
    case TB_DTYPE_F16:
        return KIND_F16;
    case TB_DTYPE_F8E4:
        return KIND_F8E4;
    case TB_DTYPE_F8E5:
        return KIND_F8E5;
    case TB_DTYPE_F32:
        return KIND_F32;
    default:
        return KIND_BYTES;
    }
}

/* Those pieces of a section that are not written at once where they belong, or that are read
 * past their end. */
struct work {
    uint8_t hot[TILE];
    uint8_t streams[TB_CASCADE_LEVELS_MAX - 1][STREAM_BYTES];
    uint8_t literals[SECTION];
    uint8_t wide[SECTION * TB_PLANES_WIDTH_MAX];
};

_Static_assert(sizeof(struct work) <= TB_PLANES_SCRATCH_BYTES, "a section may escape whole");

/* One section as the encoder and the decoder see it. */
struct section {
    const uint8_t *base; /* NULL: none */
    size_t count;        /* elements, 1 to SECTION */
    struct kind_row kind;
};

static size_t groups_of(size_t count)
{
    return (count + GROUP - 1) / GROUP;
}

static bool is_folded(const struct section *s)
{
    return s->base != NULL;
}

/* Planes of the rest; on a base a difference is in its hot byte, or in the list of wide ones. */
static size_t rest_planes(const struct section *s)
{
    return is_folded(s) ? 0 : s->kind.width - 1u;
}

static bool has_wide(const struct section *s)
{
    return is_folded(s) && s->kind.width > 1;
}

static unsigned raw_bits_of(const struct section *s)
{
    return is_folded(s) ? 0 : s->kind.raw_bits;
}

static size_t level_bytes(size_t count, bool two)
{
    return groups_of(count) * (two ? 16 : 8);
}

/* ---- elements and hot bytes ---- */

static uint32_t element_load(const uint8_t *at, size_t width)
{
    uint32_t x = 0;
    for (size_t k = 0; k < width; k++)
        x |= (uint32_t)at[k] << (8 * k);
    return x;
}

static void element_store(uint8_t *at, size_t width, uint32_t x)
{
    for (size_t k = 0; k < width; k++)
        at[k] = (uint8_t)(x >> (8 * k));
}

/* Whole groups of elements apart: `base` is theirs. */
static void groups_apart(const struct tb_planes_kernels *kernels, const struct section *s,
                         const uint8_t *bytes, const uint8_t *base, size_t groups, struct tb_planes_apart to)
{
    if (is_folded(s))
        kernels->fold(bytes, base, s->kind.width, groups, to.hot);
    else if (s->kind.rotated)
        kernels->split(bytes, s->kind.width, groups, to);
    else
        memcpy(to.hot, bytes, GROUP * groups);
}

static void groups_together(const struct tb_planes_kernels *kernels, const struct section *s,
                            struct tb_planes_apart from, const uint8_t *base, size_t groups, uint8_t *bytes)
{
    if (is_folded(s))
        kernels->unfold(from.hot, base, s->kind.width, groups, bytes);
    else if (s->kind.rotated)
        kernels->join(from, s->kind.width, groups, bytes);
    else
        memcpy(bytes, from.hot, GROUP * groups);
}

/* Elements behind the last whole group, filled up with zeros to one. */
struct padded {
    uint8_t bytes[GROUP * TB_PLANES_WIDTH_MAX], base[GROUP * TB_PLANES_WIDTH_MAX];
    uint8_t rest[GROUP * (TB_PLANES_WIDTH_MAX - 1)];
};

/* `count` elements apart, the hot ones up to a whole group. */
static void tile_apart(const struct tb_planes_kernels *kernels, const struct section *s, const uint8_t *bytes,
                       const uint8_t *base, size_t count, struct tb_planes_apart to)
{
    const size_t width = s->kind.width, whole = count / GROUP * GROUP, more = count - whole;
    TB_ASSERT(count <= TILE && width >= 1 && width <= TB_PLANES_WIDTH_MAX);
    TB_ASSERT(count <= to.stride); /* planes of the rest do not meet */
    groups_apart(kernels, s, bytes, base, whole / GROUP, to);
    if (more == 0) return;
    struct padded p = {{0}, {0}, {0}};
    memcpy(p.bytes, bytes + width * whole, width * more);
    if (base != NULL) memcpy(p.base, base + width * whole, width * more);
    groups_apart(kernels, s, p.bytes, p.base, 1, (struct tb_planes_apart){to.hot + whole, p.rest, GROUP});
    for (size_t k = 0; k < rest_planes(s); k++)
        memcpy(to.rest + k * to.stride + whole, p.rest + k * GROUP, more);
}

static void tile_together(const struct tb_planes_kernels *kernels, const struct section *s,
                          struct tb_planes_apart from, const uint8_t *base, size_t count, uint8_t *bytes)
{
    const size_t width = s->kind.width, whole = count / GROUP * GROUP, more = count - whole;
    TB_ASSERT(count <= TILE && width >= 1 && width <= TB_PLANES_WIDTH_MAX);
    TB_ASSERT(count <= from.stride);
    groups_together(kernels, s, from, base, whole / GROUP, bytes);
    if (more == 0) return;
    struct padded p = {{0}, {0}, {0}};
    for (size_t k = 0; k < rest_planes(s); k++)
        memcpy(p.rest + k * GROUP, from.rest + k * from.stride + whole, more);
    if (base != NULL) memcpy(p.base, base + width * whole, width * more);
    groups_together(kernels, s, (struct tb_planes_apart){from.hot + whole, p.rest, GROUP}, p.base, 1,
                    p.bytes);
    memcpy(bytes + width * whole, p.bytes, width * more);
}

static uint32_t fold_one(const uint8_t *bytes, const uint8_t *base, size_t width)
{
    const unsigned above = (unsigned)(32 - 8 * width);
    const uint32_t d = (element_load(bytes, width) - element_load(base, width)) << above;
    return (d << 1 ^ (0u - (d >> 31))) >> above;
}

/* The first of hot[from..count) that is TB_PLANES_WIDE, or `count`. Few are, so eight are looked at
 * together: a zero byte of their complement is found exactly if it is the first (H. S. Warren,
 * Hacker's Delight, 6-1). */
static size_t wide_next(const uint8_t *hot, size_t from, size_t count)
{
    for (; from + 8 <= count; from += 8) {
        const uint64_t x = ~tb_bits_load(hot + from);
        if (((x - UINT64_C(0x0101010101010101)) & ~x & UINT64_C(0x8080808080808080)) != 0) break;
    }
    while (from < count && hot[from] != TB_PLANES_WIDE)
        from++;
    return from;
}

/* ---- a sample ---- */

static void sample_hot(const struct tb_planes_kernels *kernels, const struct section *s, const uint8_t *bytes,
                       uint32_t *by_hot)
{
    const size_t width = s->kind.width, groups = s->count / GROUP;
    const size_t step = groups > SAMPLED / GROUP ? groups / (SAMPLED / GROUP) : 1;
    uint8_t hot[GROUP], rest[GROUP * (TB_PLANES_WIDTH_MAX - 1)];
    const struct tb_planes_apart to = {hot, rest, GROUP};
    uint32_t odd[256] = {0}; /* two counts in turn: one that grows twice in a row would wait for itself */
    for (size_t g = 0; g < groups; g += step) {
        const size_t at = width * GROUP * g;
        groups_apart(kernels, s, bytes + at, is_folded(s) ? s->base + at : NULL, 1, to);
        for (size_t i = 0; i < GROUP; i += 2) {
            by_hot[hot[i]]++;
            odd[hot[i + 1]]++;
        }
    }
    for (size_t i = 0; i < 256; i++)
        by_hot[i] += odd[i];
    if (groups > 0) return;
    tile_apart(kernels, s, bytes, s->base, s->count, to);
    for (size_t i = 0; i < s->count; i++)
        by_hot[hot[i]]++;
}

/* ---- a section written ---- */

/* Where the pieces of a section begin, behind its header and the rest, which is first. */
struct pieces {
    size_t raw, first, next; /* `next`: the second level, or literals */
};

static struct pieces pieces_of(const struct section *s, const struct tb_cascade *c)
{
    TB_ASSERT(s->count >= 1 && s->count <= SECTION && c->levels <= TB_CASCADE_LEVELS_MAX);
    struct pieces p = {.raw = rest_planes(s) * s->count};
    p.first = p.raw + 8 * groups_of(s->count) * c->raw_bits;
    p.next = p.first + (c->levels > 0 ? level_bytes(s->count, (c->two & 1) != 0) : 0);
    return p;
}

static size_t section_header_bytes(const struct section *s, const struct tb_cascade *c)
{
    return HEADER_BYTES + 4u * c->levels + (has_wide(s) ? 4 : 0) + tb_cascade_keys(c);
}

/* Appends the wide differences among hot[0..count). */
static void wide_take(const struct section *s, const uint8_t *bytes, const uint8_t *base, size_t count,
                      const uint8_t *hot, struct tb_writer *wide)
{
    const size_t width = s->kind.width;
    TB_ASSERT(has_wide(s) && count * width <= wide->cap - wide->used);
    for (size_t i = wide_next(hot, 0, count); i < count; i = wide_next(hot, i + 1, count)) {
        element_store(wide->start + wide->used, width, fold_one(bytes + width * i, base + width * i, width));
        wide->used += width;
    }
}

/* Where the planes of the rest are from element `at` on; NULL where there are none. */
static const uint8_t *rest_at(const struct section *s, const uint8_t *rest, size_t at)
{
    TB_ASSERT(at < s->count);
    return rest_planes(s) > 0 ? rest + at : NULL;
}

/* The memory that the tile behind `at` and its `count` elements takes; none behind the section's
 * last tile. */
static struct tb_planes_ahead ahead_of(const struct section *s, size_t at, size_t count, const uint8_t *bytes,
                                       const uint8_t *rest)
{
    const size_t width = s->kind.width, next = at + count;
    TB_ASSERT(next <= s->count);
    if (next >= s->count) return (struct tb_planes_ahead){{{NULL, 0}, {NULL, 0}}};
    if (is_folded(s))
        return (struct tb_planes_ahead){{{bytes + width * next, width}, {s->base + width * next, width}}};
    return (struct tb_planes_ahead){
        {{bytes + width * next, width}, {rest_at(s, rest, next), rest_planes(s) > 0}}};
}

struct encoder {
    const struct tb_planes_kernels *kernels;
    struct work *work;
    struct tb_writer out;
};

/* The pieces of a section that are in the scratch when its tiles are done. */
struct aside {
    struct tb_cascade_writer coded;
    struct tb_writer wide;
};

static void tiles_encode(const struct encoder *e, const struct section *s, const uint8_t *bytes,
                         uint8_t *rest, struct aside *aside)
{
    const size_t width = s->kind.width;
    const bool coded = aside->coded.cascade->levels > 0;
    for (size_t at = 0; at < s->count; at += TILE) {
        const size_t count = s->count - at < TILE ? s->count - at : TILE;
        const uint8_t *base = is_folded(s) ? s->base + width * at : NULL;
        uint8_t *hot = e->work->hot;
        tile_apart(e->kernels, s, bytes + width * at, base, count,
                   (struct tb_planes_apart){hot, (uint8_t *)(uintptr_t)rest_at(s, rest, at), s->count});
        if (has_wide(s)) wide_take(s, bytes + width * at, base, count, hot, &aside->wide);
        aside->coded.ahead = ahead_of(s, at, count, bytes, rest);
        if (coded) {
            e->kernels->code(&aside->coded, hot, count);
        } else {
            memcpy(aside->coded.literals, hot, count);
            aside->coded.literals += count;
        }
    }
}

/* Header, then what lies in the scratch. The first level's escapes are the second's codes, and so
 * on. */
static void section_finish(struct encoder *e, const struct section *s, const struct tb_cascade *c,
                           const uint8_t *keys, const struct aside *aside, size_t next)
{
    struct tb_writer *w = &e->out;
    const size_t literals = (size_t)(aside->coded.literals - e->work->literals);
    TB_ASSERT(literals <= s->count && aside->wide.used <= s->count * s->kind.width);
    tb_write_u8(w, c->levels);
    tb_write_u8(w, c->two);
    tb_write_u16(w, 0);
    for (unsigned j = 0; j < c->levels; j++)
        tb_write_u32(w, j + 1 < c->levels ? aside->coded.next[j].count : (uint32_t)literals);
    if (has_wide(s)) tb_write_u32(w, (uint32_t)(aside->wide.used / s->kind.width));
    tb_write_bytes(w, keys, tb_cascade_keys(c));
    TB_ASSERT(w->full || next <= w->cap - w->used); /* section_encode has looked */
    w->used += next;                                /* is there already */
    for (unsigned j = 1; j < c->levels; j++)
        tb_write_bytes(w, e->work->streams[j - 1],
                       level_bytes(aside->coded.next[j - 1].count, (c->two >> j & 1) != 0));
    tb_write_bytes(w, e->work->literals, literals);
    tb_write_bytes(w, e->work->wide, aside->wide.used);
}

/* False: it does not fit. */
static bool section_encode(struct encoder *e, const struct section *s, const uint8_t *bytes)
{
    uint32_t by_hot[256] = {0};
    struct tb_cascade c;
    TB_ASSERT(s->count >= 1 && s->count <= SECTION);
    sample_hot(e->kernels, s, bytes, by_hot);
    const struct tb_frequent f = tb_frequent_of(by_hot, raw_bits_of(s));
    tb_cascade_choose(&f, raw_bits_of(s), &c);
    if (c.levels > 0) {
        tb_cascade_fill(&c, f.key);
        tb_cascade_single(&c);
    }

    const size_t header = section_header_bytes(s, &c);
    const struct pieces p = pieces_of(s, &c);
    if (e->out.cap - e->out.used < header + p.next) return false;
    uint8_t *behind = e->out.start + e->out.used + header;
    struct aside aside = {
        .coded = {
            .cascade = &c, .raw = behind + p.raw, .first = behind + p.first, .literals = e->work->literals}};
    for (unsigned j = 0; j + 1 < TB_CASCADE_LEVELS_MAX; j++)
        aside.coded.next[j].at = e->work->streams[j];
    tb_writer_init(&aside.wide, e->work->wide, sizeof e->work->wide);
    tiles_encode(e, s, bytes, behind, &aside);
    section_finish(e, s, &c, f.key, &aside, p.next);
    return !e->out.full;
}

size_t tb_planes_encode(const struct tb_planes_input *in, const struct tb_planes_means *means, uint8_t *out,
                        size_t cap)
{
    if (in->count > TB_PLANES_BYTES_MAX) return 0;
    const enum kind kind = kind_of(in->dtype);
    const size_t width = kinds[kind].width;
    TB_ASSERT(width >= 1 && width <= TB_PLANES_WIDTH_MAX);
    const size_t count = in->count / width, tail = in->count % width;
    const size_t gain_max = in->count - in->count * 3 / 100;
    struct encoder e = {.kernels = tb_planes_kernels(means->vector), .work = means->scratch};
    tb_writer_init(&e.out, out, cap < gain_max ? cap : gain_max);
    tb_write_u8(&e.out, (uint8_t)kind);
    tb_write_u8(&e.out, 0);
    tb_write_u16(&e.out, 0);
    if (tail > 0) tb_write_bytes(&e.out, in->bytes + width * count, tail);
    if (e.out.full) return 0;
    for (size_t at = 0; at < count; at += SECTION) {
        const struct section s = {.base = in->base == NULL ? NULL : in->base + width * at,
                                  .count = count - at < SECTION ? count - at : SECTION,
                                  .kind = kinds[kind]};
        if (!section_encode(&e, &s, in->bytes + width * at)) return 0;
    }
    return e.out.used;
}

/* ---- a section read ---- */

struct section_header {
    struct tb_cascade cascade;
    uint32_t escapes
        [TB_CASCADE_LEVELS_MAX]; /* of each level: the codes of the next, behind the last the literals */
    uint32_t wide;
};

/* Escapes can not be more than codes, nor wide differences more than elements. */
static bool section_header_read(struct tb_reader *r, const struct section *s, struct section_header *h)
{
    h->cascade.levels = tb_read_u8(r);
    h->cascade.two = tb_read_u8(r);
    const uint16_t zero = tb_read_u16(r);
    if (r->bad || h->cascade.levels > TB_CASCADE_LEVELS_MAX || zero != 0) return false;
    if (h->cascade.two >> h->cascade.levels != 0) return false;
    uint32_t most = (uint32_t)s->count;
    for (unsigned j = 0; j < h->cascade.levels; j++) {
        h->escapes[j] = tb_read_u32(r);
        if (h->escapes[j] > most) return false;
        most = h->escapes[j];
    }
    h->wide = has_wide(s) ? tb_read_u32(r) : 0;
    if (h->wide > s->count) return false;
    h->cascade.raw_bits = (uint8_t)(h->cascade.levels > 0 ? raw_bits_of(s) : 0);
    const uint8_t *keys = tb_read_span(r, tb_cascade_keys(&h->cascade));
    if (r->bad) return false;
    if (h->cascade.levels > 0) tb_cascade_fill(&h->cascade, keys);
    return true;
}

/* The pieces of a section that are read in their place, and those that are read from the
 * scratch. */
struct source {
    const uint8_t *rest;
    struct tb_cascade_reader coded;
    struct tb_reader wide;
};

/* Levels behind the first go into the scratch, where a word behind them may be read. */
static bool source_read(struct tb_reader *r, const struct section *s, const struct section_header *h,
                        struct work *work, struct source *from)
{
    const struct tb_cascade *c = &h->cascade;
    const struct pieces p = pieces_of(s, c);
    from->rest = tb_read_span(r, p.raw);
    from->coded = (struct tb_cascade_reader){.cascade = c};
    from->coded.raw = tb_read_span(r, p.first - p.raw);
    from->coded.first = tb_read_span(r, p.next - p.first);
    for (unsigned j = 1; j < c->levels; j++) {
        const size_t bytes = level_bytes(h->escapes[j - 1], (c->two >> j & 1) != 0);
        TB_ASSERT(bytes + 32 <= STREAM_BYTES); /* section_header_read has bounded the escapes */
        const uint8_t *words = tb_read_span(r, bytes);
        if (words == NULL) return false;
        memcpy(work->streams[j - 1], words, bytes);
        from->coded.next[j - 1] = (struct tb_cascade_codes){work->streams[j - 1], 0, h->escapes[j - 1]};
    }
    from->coded.literals_left = c->levels > 0 ? h->escapes[c->levels - 1] : (uint32_t)s->count;
    from->coded.literals = tb_read_span(r, from->coded.literals_left);
    const size_t wide_bytes = (size_t)h->wide * s->kind.width;
    tb_reader_init(&from->wide, tb_read_span(r, wide_bytes), wide_bytes);
    return !r->bad;
}

/* Puts the wide differences among hot[0..count) in their places. False: there are fewer. */
static bool wide_give(const struct section *s, const uint8_t *base, size_t count, const uint8_t *hot,
                      struct tb_reader *wide, uint8_t *bytes)
{
    const size_t width = s->kind.width;
    for (size_t i = wide_next(hot, 0, count); i < count; i = wide_next(hot, i + 1, count)) {
        const uint8_t *at = tb_read_span(wide, width);
        if (at == NULL) return false;
        const uint32_t folded = element_load(at, width);
        const uint32_t d = folded >> 1 ^ (0u - (folded & 1));
        element_store(bytes + width * i, width, element_load(base + width * i, width) + d);
    }
    return true;
}

static bool tile_hot(const struct tb_planes_kernels *kernels, struct tb_cascade_reader *coded, size_t count,
                     uint8_t *hot)
{
    if (coded->cascade->levels > 0) return kernels->decode(coded, count, hot);
    TB_ASSERT(count <= coded->literals_left);
    memcpy(hot, coded->literals, count); /* as many as elements, by the header */
    coded->literals += count;
    coded->literals_left -= (uint32_t)count;
    return true;
}

/* All was used that the header told of. */
static bool source_ended(const struct source *from)
{
    for (unsigned j = 1; j < from->coded.cascade->levels; j++) {
        if (from->coded.next[j - 1].at != from->coded.next[j - 1].count) return false;
    }
    return from->coded.literals_left == 0 && tb_reader_ended(&from->wide);
}

static bool section_decode(const struct tb_planes_kernels *kernels, const struct section *s,
                           struct work *work, struct tb_reader *r, uint8_t *bytes)
{
    struct section_header h;
    struct source from;
    if (!section_header_read(r, s, &h) || !source_read(r, s, &h, work, &from)) return false;
    const size_t width = s->kind.width;
    for (size_t at = 0; at < s->count; at += TILE) {
        const size_t count = s->count - at < TILE ? s->count - at : TILE;
        const uint8_t *base = is_folded(s) ? s->base + width * at : NULL;
        from.coded.ahead = ahead_of(s, at, count, bytes, from.rest);
        if (!tile_hot(kernels, &from.coded, count, work->hot)) return false;
        const struct tb_planes_apart apart = {work->hot, (uint8_t *)(uintptr_t)rest_at(s, from.rest, at),
                                              s->count};
        tile_together(kernels, s, apart, base, count, bytes + width * at);
        if (has_wide(s) && !wide_give(s, base, count, work->hot, &from.wide, bytes + width * at))
            return false;
    }
    return source_ended(&from);
}

enum tb_status tb_planes_decode(struct tb_planes_form form, const struct tb_planes_means *means,
                                const struct tb_planes_output *out)
{
    struct tb_reader r;
    tb_reader_init(&r, form.bytes, form.count);
    const uint8_t kind = tb_read_u8(&r), zero = tb_read_u8(&r);
    const uint16_t zeros = tb_read_u16(&r);
    if (r.bad || kind >= sizeof kinds / sizeof kinds[0] || zero != 0 || zeros != 0) return TB_CHUNK_CODEC;
    const size_t width = kinds[kind].width;
    if (width == 0 || out->count > TB_PLANES_BYTES_MAX) return TB_CHUNK_CODEC;
    const size_t count = out->count / width, tail = out->count % width;
    const uint8_t *tail_bytes = tb_read_span(&r, tail);
    if (r.bad) return TB_CHUNK_CODEC;
    const struct tb_planes_kernels *kernels = tb_planes_kernels(means->vector);
    for (size_t at = 0; at < count; at += SECTION) {
        const struct section s = {.base = out->base == NULL ? NULL : out->base + width * at,
                                  .count = count - at < SECTION ? count - at : SECTION,
                                  .kind = kinds[kind]};
        if (!section_decode(kernels, &s, means->scratch, &r, out->bytes + width * at)) return TB_CHUNK_CODEC;
    }
    if (!tb_reader_ended(&r)) return TB_CHUNK_CODEC;
    if (tail > 0) memcpy(out->bytes + width * count, tail_bytes, tail);
    return TB_OK;
}
