/* sparse.c - encoder and decoder of the sparse form side by side. Both walk sections of 65536
 * elements, and in each the classes one after the other: kernels turn elements into masks, and only
 * what changed is looked at by itself. */
#include "base/codec/sparse.h"

#include <stdbool.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/codec/bits.h"
#include "base/codec/sparse_kernels.h"
#include "base/tsan_marks.h"

#define SECTION       TB_SPARSE_SECTION
#define WORDS         TB_SPARSE_WORDS
#define BLOCK         TB_SPARSE_BLOCK
#define HEADER_BYTES  4u
#define WIDTH_MAX     4u
#define GAP_K_BITS    4u
#define AMOUNT_K_BITS 5u
#define SIGNS         TB_SPARSE_SIGNS

unsigned tb_sparse_kind_of(enum tb_dtype dtype)
{
    switch (dtype) {
    case TB_DTYPE_BF16:
        return TB_SPARSE_BF16;
    case TB_DTYPE_F16:
        return TB_SPARSE_F16;
    case TB_DTYPE_F8E4:
    case TB_DTYPE_F8E5:
        return TB_SPARSE_F8;
    case TB_DTYPE_F32:
        return TB_SPARSE_F32;
    default:
        return TB_SPARSE_BYTES;
    }
}

static unsigned kind_width(unsigned kind)
{
    static const uint8_t widths[] = {0, 2, 2, 1, 4, 1};
    return kind < sizeof widths ? widths[kind] : 0;
}

/* The two widths that inner loops are made for: one copy of them each. */
#define INLINE static inline __attribute__((always_inline))

INLINE void element_store(uint8_t *at, unsigned width, uint32_t x)
{
    for (unsigned k = 0; k < width; k++)
        at[k] = (uint8_t)(x >> (8 * k));
}

/* The scratch: what is known of one section. Of several classes each has its part of gaps and
 * steps. */
struct work {
    uint32_t amounts[SECTION]; /* differences, then magnitudes of those that are not 1 */
    uint16_t gaps[SECTION];
    union {
        uint16_t places[SECTION]; /* decoding */
        struct {                  /* encoding, where classes are mixed */
            uint32_t differences[SECTION];
            uint16_t ranks[SECTION];
            uint8_t classes[SECTION];
        } mixed;
    };
    uint64_t changed[TB_SPARSE_BLOCK_WORDS];
    uint8_t keys[BLOCK];
    struct tb_sparse_nest nest;
};

_Static_assert(sizeof(struct work) <= TB_SPARSE_SCRATCH_BYTES, "a section may change whole");

struct section {
    const uint8_t *base, *bytes; /* the same where a section is decoded */
    size_t count;                /* elements, 1 to SECTION */
    enum tb_sparse_kind kind;
};

static size_t section_words(struct section s)
{
    return (s.count + 63) / 64;
}

/* The last elements of a section, filled up with zeros to a word of them. */
struct padded {
    uint8_t base[64 * WIDTH_MAX], bytes[64 * WIDTH_MAX];
};

static struct padded section_end(struct section s)
{
    const size_t width = kind_width(s.kind), whole = s.count / 64 * 64;
    TB_ASSERT(width >= 1 && width <= WIDTH_MAX);
    struct padded p = {{0}, {0}};
    memcpy(p.base, s.base + width * whole, width * (s.count - whole));
    memcpy(p.bytes, s.bytes + width * whole, width * (s.count - whole));
    return p;
}

static void section_changed(const struct tb_sparse_kernels *kernels, struct section s, uint64_t *changed_out)
{
    TB_ASSERT(s.count >= 1 && s.count <= BLOCK); /* the scratch has masks of one block */
    const unsigned width = kind_width(s.kind);
    kernels->changed((struct tb_sparse_pair){s.base, s.bytes, width}, s.count / 64, changed_out);
    if (s.count % 64 == 0) return;
    const struct padded p = section_end(s);
    kernels->changed((struct tb_sparse_pair){p.base, p.bytes, width}, 1, changed_out + s.count / 64);
}

static void section_keys(const struct tb_sparse_kernels *kernels, struct section s, uint8_t *keys_out)
{
    TB_ASSERT(s.count >= 1 && s.count <= BLOCK);
    if (s.kind == TB_SPARSE_BYTES) {
        memset(keys_out, 0, 64 * section_words(s));
        return;
    }
    kernels->keys(s.base, s.count / 64, s.kind, keys_out);
    if (s.count % 64 == 0) return;
    const struct padded p = section_end(s);
    kernels->keys(p.base, 1, s.kind, keys_out + s.count / 64 * 64);
}

/* The classes of a chunk; with one, nobody needs keys. Class j has the keys from bounds[j - 1] up
 * to, not including, bounds[j]. False: bounds do not grow. */
static bool nest_init(struct tb_sparse_nest *nest, const uint8_t *bounds, unsigned classes)
{
    TB_ASSERT(classes >= 1 && classes <= TB_SPARSE_CLASSES_MAX);
    nest->classes = classes;
    for (unsigned j = 0; j + 1 < classes; j++) {
        if (bounds[j] <= (j > 0 ? bounds[j - 1] : 0)) return false;
        nest->bounds[j] = bounds[j];
    }
    if (classes == 1) return true;
    for (unsigned key = 0, j = 0; key < 256; key++) {
        while (j + 1 < classes && key >= bounds[j])
            j++;
        nest->class_of[key] = (uint8_t)j;
    }
    memset(nest->rows[0], 0, sizeof nest->rows[0]);
    memset(nest->before[0], 0, sizeof nest->before[0]);
    memset(nest->rows[classes], 0xff, sizeof nest->rows[0]);
    for (size_t w = 0; w < WORDS; w++)
        nest->before[classes][w] = (uint16_t)(64 * w);
    return true;
}

static struct section section_block(struct section s, size_t at)
{
    const size_t width = kind_width(s.kind);
    TB_ASSERT(at < s.count && at % BLOCK == 0);
    return (struct section){s.base + width * at, s.bytes + width * at,
                            s.count - at < BLOCK ? s.count - at : BLOCK, s.kind};
}

/* A block's keys, and its words of the nest. */
static void block_nest(const struct tb_sparse_kernels *kernels, struct section block, size_t at,
                       struct work *work)
{
    TB_ASSERT(at % 64 == 0 && at + block.count <= SECTION);
    section_keys(kernels, block, work->keys);
    kernels->nest(work->keys, at / 64, section_words(block), &work->nest);
}

/* Of a whole section. The bits that fill its last word up are in no class, and no word behind it
 * is found: as if 65535 members were before it, which only those of a full section may have. */
static void section_nest(const struct tb_sparse_kernels *kernels, struct section s, struct work *work)
{
    struct tb_sparse_nest *nest = &work->nest;
    TB_ASSERT(s.count >= 1 && s.count <= SECTION && nest->classes >= 1);
    for (size_t at = 0; at < s.count; at += BLOCK)
        block_nest(kernels, section_block(s, at), at, work);
    const size_t words = section_words(s);
    for (unsigned j = 0; j <= nest->classes && s.count < SECTION; j++) {
        if (s.count % 64 != 0) nest->rows[j][words - 1] &= tb_bits_mask(s.count % 64);
        for (size_t w = words; w < WORDS; w++)
            nest->before[j][w] = (uint16_t)(0u - j);
    }
}

static size_t class_members(const struct tb_sparse_nest *nest, unsigned j, struct section s)
{
    TB_ASSERT(j < nest->classes);
    const size_t last = section_words(s) - 1;
    const uint64_t members = nest->rows[j + 1][last] & ~nest->rows[j][last];
    return (uint16_t)(nest->before[j + 1][last] - nest->before[j][last]) +
           (size_t)__builtin_popcountll(members);
}

/* Steps that are not 1 or -1: how many that are lie before each, and its magnitude less 2. */
struct odd {
    uint16_t *gaps;
    uint32_t *magnitudes;
    size_t count, behind_last;
    uint64_t magnitudes_sum;
};

/* Downward from what a mean would be right for while one less costs less: `count` bits saved
 * and more zeros written. Real gaps and steps have longer tails than geometric ones, and their
 * mean overrates them. */
static unsigned rice_search(const struct tb_sparse_kernels *kernels, const struct tb_sparse_numbers *numbers,
                            unsigned k)
{
    uint64_t zeros = kernels->zeros(numbers, k);
    for (; k > 0; k--) {
        const uint64_t more = kernels->zeros(numbers, k - 1);
        if (more - zeros >= numbers->count) break;
        zeros = more;
    }
    return k;
}

#define AHEAD_STEP_MAX 2048u /* more at once would wait itself */

/* `left` bytes follow; one section of them is enough. */
static struct tb_sparse_ahead ahead_of(const uint8_t *one, const uint8_t *other, size_t left)
{
    const size_t most = (size_t)SECTION * 2;
    return (struct tb_sparse_ahead){one, other, left < most ? left : most, 0};
}

/* Two numbers a change are coded, gap and step. */
static void ahead_spread(struct tb_sparse_ahead *ahead, size_t changes)
{
    const size_t batches = 2 * (changes / TB_SPARSE_BATCH) + 1, step = (ahead->left / batches + 64) / 64 * 64;
    ahead->step = step < AHEAD_STEP_MAX ? step : AHEAD_STEP_MAX;
}

static unsigned gaps_k(const struct tb_sparse_kernels *kernels, const uint16_t *gaps, size_t count,
                       uint64_t sum)
{
    const struct tb_sparse_numbers numbers = {gaps, sizeof *gaps, count};
    return rice_search(kernels, &numbers, tb_rice_choose(sum, count, (1u << GAP_K_BITS) - 1));
}

static unsigned magnitudes_k(const struct tb_sparse_kernels *kernels, const struct odd *odd)
{
    const struct tb_sparse_numbers numbers = {odd->magnitudes, sizeof *odd->magnitudes, odd->count};
    const unsigned k = tb_rice_choose(odd->magnitudes_sum, odd->count, (1u << AMOUNT_K_BITS) - 1);
    return rice_search(kernels, &numbers, k);
}

static void gaps_code(const struct tb_sparse_kernels *kernels, struct tb_bit_writer *w, const uint16_t *gaps,
                      size_t count, uint64_t sum, struct tb_sparse_ahead *ahead)
{
    const unsigned k = gaps_k(kernels, gaps, count, sum);
    tb_bits_put(w, k, GAP_K_BITS);
    kernels->gaps_code(w, gaps, count, k, ahead);
}

static void odd_code(const struct tb_sparse_kernels *kernels, struct tb_bit_writer *w, const struct odd *odd,
                     unsigned width, struct tb_sparse_ahead *ahead)
{
    TB_ASSERT(odd->count <= odd->behind_last);
    tb_count_put(w, (uint32_t)odd->count);
    if (odd->count == 0) return;
    gaps_code(kernels, w, odd->gaps, odd->count, odd->behind_last - odd->count, ahead);
    const unsigned k = magnitudes_k(kernels, odd);
    tb_bits_put(w, k, AMOUNT_K_BITS);
    for (size_t i = 0; i < odd->count; i++)
        tb_rice_put(w, odd->magnitudes[i], k, 8 * width);
}

/* The signs of up to SIGNS steps, lowest bit first; those that are not 1 or -1 go into `odd`, whose
 * magnitudes may be the memory of the differences: no step is written before it is read. */
static uint32_t amounts_take(const struct tb_sparse_kernels *kernels, const struct tb_sparse_amounts *amounts,
                             size_t first, struct odd *odd)
{
    TB_ASSERT(odd->behind_last <= first); /* gaps have no sign */
    const struct tb_sparse_signs signs = kernels->signs(amounts);
    const uint32_t mask = (uint32_t)tb_bits_mask(8 * amounts->width);
    for (uint32_t left = signs.odd; left != 0; left &= left - 1) {
        const unsigned i = (unsigned)__builtin_ctz(left);
        const uint32_t negative = signs.negative >> i & 1;
        const uint32_t magnitude = ((amounts->differences[i] ^ (0u - negative)) + negative) & mask;
        odd->gaps[odd->count] = (uint16_t)(first + i - odd->behind_last);
        odd->magnitudes[odd->count++] = magnitude - 2;
        odd->magnitudes_sum += magnitude - 2;
        odd->behind_last = first + i + 1;
    }
    return signs.negative;
}

/* Differences modulo the width as signs and the smaller magnitudes. The gaps' memory
 * is free again by now. */
static void amounts_code(const struct tb_sparse_kernels *kernels, struct tb_bit_writer *w, unsigned width,
                         const struct tb_sparse_found *found, struct tb_sparse_ahead *ahead)
{
    struct odd odd = {.gaps = found->gaps, .magnitudes = found->differences};
    for (size_t i = 0; i < found->count; i += SIGNS) {
        const size_t left = found->count - i;
        const struct tb_sparse_amounts amounts = {found->differences + i,
                                                  (unsigned)(left < SIGNS ? left : SIGNS), width};
        tb_bits_put(w, amounts_take(kernels, &amounts, i, &odd), amounts.count);
        tb_sparse_ahead_fetch(ahead);
    }
    TB_ASSERT(odd.count <= found->count && odd.behind_last <= found->count);
    odd_code(kernels, w, &odd, width, ahead);
}

INLINE void amount_apply(uint8_t *at, unsigned width, uint32_t magnitude, uint32_t negative)
{
    const uint32_t mask = 0u - negative;
    element_store(at, width, tb_sparse_element(at, width) + ((magnitude ^ mask) + negative));
}

/* First 1 or -1 everywhere, then what is odd gets the rest; the signs are read
 * twice. False: damaged. */
INLINE bool chained_decode(const struct tb_sparse_kernels *kernels, struct tb_bit_reader *r,
                           uint8_t *elements, unsigned width, size_t count, struct work *work,
                           struct tb_sparse_ahead *ahead)
{
    struct tb_bit_reader signs = *r;
    for (size_t i = 0; i < count; i += SIGNS) {
        const size_t end = count - i < SIGNS ? count : i + SIGNS;
        uint64_t of = tb_bits_get(r, (unsigned)(end - i));
        for (size_t k = i; k < end; k++, of >>= 1)
            amount_apply(elements + (size_t)width * work->places[k], width, 1, of & 1);
        tb_sparse_ahead_fetch(ahead);
    }
    const size_t odd = tb_count_get(r);
    if (odd == 0) return true;
    if (odd > count) return false;
    const unsigned gap_k = (unsigned)tb_bits_get(r, GAP_K_BITS);
    kernels->gaps_decode(r, work->gaps, odd, gap_k, ahead);
    const unsigned k = (unsigned)tb_bits_get(r, AMOUNT_K_BITS);
    const size_t first_sign = signs.at;
    size_t i = 0; /* of the step, plus one */
    for (size_t o = 0; o < odd; o++) {
        i += work->gaps[o] + 1u;
        if (i > count) return false;
        signs.at = first_sign + i - 1;
        const uint32_t rest = tb_rice_get(r, k, 8 * width) + 1; /* above the 1 that is there */
        amount_apply(elements + (size_t)width * work->places[i - 1], width, rest,
                     (uint32_t)tb_bits_get(&signs, 1));
    }
    return true;
}

static void class_code(const struct tb_sparse_kernels *kernels, struct tb_bit_writer *w,
                       const struct tb_sparse_found *found, unsigned width, struct tb_sparse_ahead *ahead)
{
    TB_ASSERT(found->count <= found->behind_last && found->behind_last <= SECTION);
    tb_count_put(w, (uint32_t)found->count);
    if (found->count == 0) return;
    ahead_spread(ahead, found->count);
    gaps_code(kernels, w, found->gaps, found->count, found->behind_last - found->count, ahead);
    amounts_code(kernels, w, width, found, ahead);
}

/* One class: a block at a time, so that the second look at an element finds it in the nearest
 * cache, while the kernel has the block after it fetched; and while the changes are coded,
 * the section after it. */
static void section_encode_plain(const struct tb_sparse_kernels *kernels, struct section s, struct work *work,
                                 struct tb_sparse_ahead *ahead, struct tb_bit_writer *w)
{
    const unsigned width = kind_width(s.kind);
    struct tb_sparse_found found = {.gaps = work->gaps, .differences = work->amounts};
    TB_ASSERT(work->nest.classes == 1);
    for (size_t at = 0; at < s.count; at += BLOCK) {
        const struct section block = section_block(s, at);
        section_changed(kernels, block, work->changed);
        kernels->collect((struct tb_sparse_pair){block.base, block.bytes, width}, work->changed,
                         section_words(block), &found);
    }
    TB_ASSERT(found.count <= s.count);
    class_code(kernels, w, &found, width, ahead);
}

/* The changes of a section, class by class: gaps from ranks. */
static void mixed_part(struct work *work, size_t count, unsigned classes, struct tb_sparse_found *found)
{
    size_t of[TB_SPARSE_CLASSES_MAX] = {0}, first = 0;
    for (size_t i = 0; i < count; i++)
        of[work->mixed.classes[i]]++;
    for (unsigned j = 0; j < classes; j++) {
        found[j] = (struct tb_sparse_found){.gaps = work->gaps + first, .differences = work->amounts + first};
        first += of[j];
    }
    TB_ASSERT(first == count && count <= SECTION); /* each change is in one of the classes */
    for (size_t i = 0; i < count; i++) {
        struct tb_sparse_found *f = &found[work->mixed.classes[i]];
        f->gaps[f->count] = (uint16_t)(work->mixed.ranks[i] - f->behind_last);
        f->differences[f->count++] = work->mixed.differences[i];
        f->behind_last = work->mixed.ranks[i] + 1u;
    }
}

static void section_encode(const struct tb_sparse_kernels *kernels, struct section s, struct work *work,
                           struct tb_sparse_ahead *ahead, struct tb_bit_writer *w)
{
    const unsigned width = kind_width(s.kind), classes = work->nest.classes;
    struct tb_sparse_mixed mixed = {work->mixed.classes, work->mixed.ranks, work->mixed.differences, 0};
    struct tb_sparse_found found[TB_SPARSE_CLASSES_MAX];
    TB_ASSERT(classes > 1 && classes <= TB_SPARSE_CLASSES_MAX);
    for (size_t at = 0; at < s.count; at += BLOCK) {
        const struct section part = section_block(s, at);
        section_changed(kernels, part, work->changed);
        block_nest(kernels, part, at, work);
        const struct tb_sparse_block block = {
            {part.base, part.bytes, width}, work->changed, work->keys, at / 64, section_words(part)};
        kernels->collect_mixed(&block, &work->nest, &mixed);
    }
    TB_ASSERT(mixed.count <= s.count);
    mixed_part(work, mixed.count, classes, found);
    for (unsigned j = 0; j < classes && !w->full; j++)
        class_code(kernels, w, &found[j], width, ahead);
}

static bool class_patch(const struct tb_sparse_kernels *kernels, struct tb_bit_reader *r, uint8_t *elements,
                        unsigned width, size_t count, struct work *work, struct tb_sparse_ahead *ahead)
{
    TB_ASSERT(count >= 1 && count <= SECTION && (width == 1 || width == 2 || width == 4));
    switch (width) {
    case 1:
        return chained_decode(kernels, r, elements, 1, count, work, ahead);
    case 2:
        return chained_decode(kernels, r, elements, 2, count, work, ahead);
    default:
        return chained_decode(kernels, r, elements, 4, count, work, ahead);
    }
}

/* The places of a class's changes; with one class a place is the sum of the gaps. False: they lead
 * behind the last member. */
static bool class_find(const struct tb_sparse_kernels *kernels, unsigned j, struct section s, size_t count,
                       struct work *work, struct tb_sparse_ahead *ahead, struct tb_bit_reader *r)
{
    TB_ASSERT(j < work->nest.classes && count >= 1 && count <= s.count);
    const unsigned k = (unsigned)tb_bits_get(r, GAP_K_BITS);
    if (work->nest.classes == 1) return kernels->places_decode(r, work->places, count, k, ahead) <= s.count;
    kernels->gaps_decode(r, work->gaps, count, k, ahead);
    const struct tb_sparse_places places = {work->gaps, work->places, count};
    uint64_t members = count; /* as many are needed */
    for (size_t i = 0; i < count; i++)
        members += work->gaps[i];
    if (members > class_members(&work->nest, j, s)) return false;
    kernels->find(&work->nest, j, &places);
    return true;
}

/* Keys are taken before the first class is patched: they are the base's. False: damaged. */
static bool section_decode(const struct tb_sparse_kernels *kernels, struct section s, uint8_t *elements,
                           struct work *work, struct tb_sparse_ahead *ahead, struct tb_bit_reader *r)
{
    const unsigned classes = work->nest.classes;
    TB_ASSERT(classes >= 1 && s.count >= 1 && s.count <= SECTION);
    if (classes > 1) section_nest(kernels, s, work);
    for (unsigned j = 0; j < classes; j++) {
        const size_t count = tb_count_get(r);
        if (count == 0) continue;
        if (count > s.count) return false;
        ahead_spread(ahead, count);
        if (!class_find(kernels, j, s, count, work, ahead, r)) return false;
        if (!class_patch(kernels, r, elements, kind_width(s.kind), count, work, ahead)) return false;
    }
    return !tb_bits_over(r);
}

/* A sample of the changes by key: 32 elements of 256. */
INLINE size_t changes_sample(const struct tb_sparse_input *in, unsigned width,
                             const struct tb_sparse_kernels *kernels, enum tb_sparse_kind kind,
                             uint32_t *by_key)
{
    const size_t count = in->count / width;
    size_t seen = 0;
    uint8_t keys[64];
    for (size_t i = 0; i + 64 <= count; i += 512) {
        uint64_t changed;
        kernels->changed((struct tb_sparse_pair){in->base + width * i, in->bytes + width * i, width}, 1,
                         &changed);
        if (changed == 0) continue;
        kernels->keys(in->base + width * i, 1, kind, keys);
        for (; changed != 0; changed &= changed - 1, seen++)
            by_key[keys[__builtin_ctzll(changed)]]++;
    }
    TB_ASSERT(seen <= count);
    return seen;
}

/* A class is closed once it has its part of the changes, and at least 16 in the sample: less
 * teaches nothing. The last has the large weights, which are many and change seldom. */
static unsigned bounds_choose(const uint32_t *by_key, size_t seen, unsigned classes_max, uint8_t *bounds_out)
{
    const size_t part = seen / (classes_max + 2), least = part > 16 ? part : 16;
    unsigned classes = 1;
    size_t have = 0;
    for (unsigned key = 0; key < 255 && classes < classes_max; key++) {
        have += by_key[key];
        if (have < least) continue;
        bounds_out[classes++ - 1] = (uint8_t)(key + 1);
        have = 0;
    }
    TB_ASSERT(classes <= classes_max);
    return classes;
}

static unsigned bounds_sample(const struct tb_sparse_input *in, const struct tb_sparse_kernels *kernels,
                              enum tb_sparse_kind kind, uint8_t *bounds_out)
{
    TB_ASSERT(in->classes_max >= 1 && in->classes_max <= TB_SPARSE_CLASSES_MAX);
    if (in->classes_max == 1 || kind == TB_SPARSE_BYTES) return 1;
    uint32_t by_key[256] = {0};
    const size_t seen = changes_sample(in, kind_width(kind), kernels, kind, by_key);
    return bounds_choose(by_key, seen, in->classes_max, bounds_out);
}

static void header_write(uint8_t *out, size_t count, enum tb_sparse_kind kind, const uint8_t *bounds,
                         unsigned classes)
{
    struct tb_writer w;
    tb_writer_init(&w, out, count);
    tb_write_u8(&w, (uint8_t)kind);
    tb_write_u8(&w, (uint8_t)classes);
    tb_write_u16(&w, 0);
    tb_write_bytes(&w, bounds, classes - 1);
    TB_ASSERT(!w.full && w.used == HEADER_BYTES + classes - 1);
}

size_t tb_sparse_encode(const struct tb_sparse_input *in, const struct tb_sparse_means *means, uint8_t *out,
                        size_t cap)
{
    TB_ASSERT(in->classes_max >= 1 && in->classes_max <= TB_SPARSE_CLASSES_MAX);
    TB_TSAN_READS(in->base, in->count);
    TB_TSAN_READS(in->bytes, in->count);
    TB_TSAN_WRITES(means->scratch, TB_SPARSE_SCRATCH_BYTES);
    TB_TSAN_WRITES(out, cap);
    if (in->count > TB_SPARSE_BYTES_MAX) return 0;
    const struct tb_sparse_kernels *kernels = tb_sparse_kernels(means->vector);
    const enum tb_sparse_kind kind = tb_sparse_kind_of(in->dtype);
    const size_t width = kind_width(kind), count = in->count / width, tail = in->count % width;
    const size_t gain_max = in->count - in->count * 3 / 100;
    if (cap > gain_max) cap = gain_max;
    struct work *work = means->scratch;
    uint8_t bounds[TB_SPARSE_CLASSES_MAX] = {0};
    const unsigned classes = bounds_sample(in, kernels, kind, bounds);
    const size_t head = HEADER_BYTES + classes - 1 + tail;
    if (cap < head) return 0;
    const bool growing = nest_init(&work->nest, bounds, classes);
    TB_ASSERT(growing);

    header_write(out, head, kind, bounds, classes);
    memcpy(out + head - tail, in->bytes + width * count, tail);
    struct tb_bit_writer w;
    tb_bit_writer_init(&w, out + head, cap - head);
    for (size_t at = 0; at < count && !w.full; at += SECTION) {
        const struct section s = {in->base + width * at, in->bytes + width * at,
                                  count - at < SECTION ? count - at : SECTION, kind};
        struct tb_sparse_ahead ahead =
            ahead_of(s.base + width * s.count, s.bytes + width * s.count, width * (count - at - s.count));
        if (classes == 1)
            section_encode_plain(kernels, s, work, &ahead, &w);
        else
            section_encode(kernels, s, work, &ahead, &w);
    }
    const size_t used = tb_bit_writer_end(&w);
    TB_ASSERT(head + used <= cap);
    return w.full ? 0 : head + used;
}

/* A section of the base is copied just before it is patched: it is then in a near cache. */
static bool sections_decode(const struct tb_sparse_kernels *kernels, enum tb_sparse_kind kind,
                            const struct tb_sparse_output *out, struct work *work, struct tb_bit_reader *bits)
{
    const size_t width = kind_width(kind);
    TB_ASSERT(width >= 1 && width <= WIDTH_MAX);
    const size_t whole = out->count / width;
    for (size_t at = 0; at < whole; at += SECTION) {
        uint8_t *here = out->bytes + width * at;
        const struct section s = {here, here, whole - at < SECTION ? whole - at : SECTION, kind};
        const uint8_t *from = out->base == NULL ? here : out->base + width * at;
        if (out->base != NULL) memcpy(here, from, width * s.count);
        const size_t next = width * s.count;
        struct tb_sparse_ahead ahead = ahead_of(from + next, here + next, width * (whole - at - s.count));
        if (!section_decode(kernels, s, here, work, &ahead, bits)) return false;
    }
    return true;
}

unsigned tb_sparse_classes(struct tb_sparse_form form)
{
    struct tb_reader r;
    tb_reader_init(&r, form.bytes, form.count);
    (void)tb_read_u8(&r);
    const unsigned count = tb_read_u8(&r);
    return r.bad ? 0 : count;
}

enum tb_status tb_sparse_decode(struct tb_sparse_form form, const struct tb_sparse_means *means,
                                const struct tb_sparse_output *out)
{
    TB_TSAN_READS(form.bytes, form.count);
    if (out->base != NULL) TB_TSAN_READS(out->base, out->count);
    TB_TSAN_WRITES(means->scratch, TB_SPARSE_SCRATCH_BYTES);
    TB_TSAN_WRITES(out->bytes, out->count);
    struct tb_reader r;
    tb_reader_init(&r, form.bytes, form.count);
    const uint8_t kind = tb_read_u8(&r), classes_count = tb_read_u8(&r);
    const uint16_t zero = tb_read_u16(&r);
    const size_t width = kind_width(kind);
    if (r.bad || width == 0 || zero != 0 || out->count > TB_SPARSE_BYTES_MAX) return TB_CHUNK_CODEC;
    if (classes_count < 1 || classes_count > TB_SPARSE_CLASSES_MAX) return TB_CHUNK_CODEC;
    const size_t tail = out->count % width;
    const uint8_t *bounds = tb_read_span(&r, classes_count - 1u);
    const uint8_t *tail_bytes = tb_read_span(&r, tail);
    struct work *work = means->scratch;
    if (r.bad || !nest_init(&work->nest, bounds, classes_count)) return TB_CHUNK_CODEC;

    const struct tb_sparse_kernels *kernels = tb_sparse_kernels(means->vector);
    struct tb_bit_reader bits;
    tb_bit_reader_init(&bits, r.at, r.left);
    if (!sections_decode(kernels, kind, out, work, &bits)) return TB_CHUNK_CODEC;
    if (!tb_bits_ended(&bits)) return TB_CHUNK_CODEC;
    if (tail > 0) memcpy(out->bytes + out->count - tail, tail_bytes, tail);
    return TB_OK;
}
