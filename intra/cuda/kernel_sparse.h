/* kernel_sparse.h - the sparse form (base/codec/sparse.h, docs/protocol.md) of one chunk by one
 * block of threads: encoding writes the very bytes that base/codec/sparse.c writes, patching takes
 * any that it takes. The text of kernels: include kernel_words_*.h first.
 *
 * Sections and classes follow one another as in base/codec/sparse.c; inside a class the threads
 * share its words of 64 elements and its changes. How long a code is says where the next begins, so
 * lengths are scanned before codes are put. Reading codes waits for itself and is one thread's;
 * what they mean for the elements is everybody's. */
#ifndef TB_INTRA_KERNEL_SPARSE_H
#define TB_INTRA_KERNEL_SPARSE_H

#include "intra/cuda/kernel_block.h"

/* Of enum tb_sparse_kind. */
#define TB_KIND_BF16          1u
#define TB_KIND_F16           2u
#define TB_KIND_F8            3u
#define TB_KIND_F32           4u
#define TB_KIND_BYTES         5u
#define TB_KIND_END           6u

#define TB_FORM_HEADER_BYTES  4u
#define TB_FORM_ZEROS_MAX     16u /* of a Rice code; then the number is plain */
#define TB_FORM_GAP_BITS      16u
#define TB_FORM_COUNT_BITS    5u
#define TB_FORM_GAP_K_BITS    4u
#define TB_FORM_AMOUNT_K_BITS 5u

/* A block's own: keys of a section of the base, places or ranks of its changes, those that
 * are odd, differences. */
struct tb_sparse_scratch {
    uint8_t keys[TB_KERNEL_SECTION];
    uint16_t places[TB_KERNEL_SECTION], odd[TB_KERNEL_SECTION];
    uint32_t differences[TB_KERNEL_SECTION];
};

struct tb_sparse_shared {
    uint64_t changed[TB_KERNEL_WORDS], members[TB_KERNEL_WORDS];
    uint32_t behind[TB_KERNEL_WORDS]; /* members of the words before */
    uint64_t sums[TB_KERNEL_THREADS];
    uint32_t by_key[256];
    uint8_t bounds[TB_KERNEL_CLASSES_MAX];
    uint32_t classes;
    uint64_t at;     /* bits written or read */
    uint64_t zeroed; /* words of 32 bits that were */
    uint32_t count;  /* of changes, then of odd ones */
    uint32_t seen;
    uint32_t full, bad;
};

TB_DEVICE uint32_t tb_kind_width(uint32_t kind)
{
    if (kind == TB_KIND_F32) return 4;
    return kind == TB_KIND_BF16 || kind == TB_KIND_F16 ? 2 : 1;
}

TB_DEVICE uint8_t tb_kind_key(uint32_t kind, uint32_t element)
{
    if (kind == TB_KIND_BF16) return (uint8_t)(element >> 7);
    if (kind == TB_KIND_F16) return (uint8_t)(element >> 8 & 0x7f);
    if (kind == TB_KIND_F32) return (uint8_t)(element >> 23);
    return kind == TB_KIND_F8 ? (uint8_t)(element & 0x7f) : 0;
}

struct tb_section {
    const uint8_t *base, *bytes;
    uint32_t count, kind, width; /* elements */
};

TB_DEVICE uint32_t tb_section_words(const struct tb_section *s)
{
    return (s->count + 63) / 64;
}

TB_DEVICE uint32_t tb_word_elements(const struct tb_section *s, uint32_t word)
{
    const uint32_t left = s->count - 64 * word;
    return left < 64 ? left : 64;
}

/* ---- classes ---- */

TB_DEVICE uint32_t tb_class_low(const struct tb_sparse_shared *sh, uint32_t j)
{
    return j == 0 ? 0 : sh->bounds[j - 1];
}

TB_DEVICE uint32_t tb_class_high(const struct tb_sparse_shared *sh, uint32_t j)
{
    return j + 1 == sh->classes ? 255 : sh->bounds[j] - 1u;
}

/* Taken before the first class is patched, since they are the base's; threads side by side
 * take bytes side by side. */
TB_DEVICE void tb_section_keys(const struct tb_block *b, const struct tb_sparse_shared *sh,
                               const struct tb_section *s, uint8_t *keys)
{
    for (uint32_t i = b->thread; sh->classes > 1 && i < s->count; i += b->threads)
        keys[i] = tb_kind_key(s->kind, tb_element_load(s->base, s->width, i));
    tb_block_sync(b);
}

/* The members of class j as masks, and how many stand before each word. All of them. Keys stand on
 * a border, and have a whole section's room. */
TB_DEVICE uint32_t tb_class_members(const struct tb_block *b, struct tb_sparse_shared *sh,
                                    const struct tb_section *s, const uint8_t *keys, uint32_t j)
{
    const uint32_t low = tb_class_low(sh, j), high = tb_class_high(sh, j);
    const struct tb_share mine = tb_share_of(b, tb_section_words(s));
    uint64_t count = 0, total;
    for (uint32_t w = mine.first; w < mine.end; w++) {
        const uint32_t elements = tb_word_elements(s, w);
        uint64_t mask = elements == 64 ? ~(uint64_t)0 : ((uint64_t)1 << elements) - 1;
        for (uint32_t i = 0; sh->classes > 1 && i < elements; i += 8) {
            const uint64_t eight = tb_load64(keys + 64 * w + i);
            for (uint32_t u = 0; u < 8; u++) {
                const uint32_t key = (uint32_t)(eight >> (8 * u)) & 0xff;
                if (key < low || key > high) mask &= ~((uint64_t)1 << (i + u));
            }
        }
        sh->members[w] = mask;
        count += tb_count_bits(mask);
    }
    uint64_t before = tb_block_scan(b, sh->sums, count, &total);
    for (uint32_t w = mine.first; w < mine.end; w++) {
        sh->behind[w] = (uint32_t)before;
        before += tb_count_bits(sh->members[w]);
    }
    tb_block_sync(b);
    return (uint32_t)total;
}

/* ---- writing bits ---- */

struct tb_bits_out {
    uint8_t *out;
    uint64_t cap;
};

/* Takes the next bits of the form: zeroed, to be put by anybody. False: they do not fit,
 * and nothing more will. */
TB_DEVICE int tb_bits_reserve(const struct tb_block *b, struct tb_sparse_shared *sh,
                              const struct tb_bits_out *o, uint64_t bits, uint64_t *start_out)
{
    const uint64_t at = sh->at, zeroed = sh->zeroed, end = at + bits;
    const int fits = !sh->full && (end + 7) / 8 <= o->cap;
    const uint64_t words = (end + 31) / 32;
    tb_block_sync(b); /* all have read */
    for (uint64_t i = zeroed + b->thread; fits && i < words; i += b->threads)
        tb_store32(o->out + 4 * i, 0);
    if (b->thread == 0) {
        if (fits) sh->at = end;
        if (fits && words > zeroed) sh->zeroed = words;
        if (!fits) sh->full = 1;
    }
    tb_block_sync(b);
    *start_out = at;
    return fits;
}

/* At most 56 bits, into reserved ones. */
TB_DEVICE void tb_bits_or(const struct tb_bits_out *o, uint64_t at, uint64_t value)
{
    uint32_t *word = (uint32_t *)(void *)o->out + at / 32;
    const uint32_t shift = (uint32_t)(at % 32);
    const uint64_t low = value << shift;
    if ((uint32_t)low != 0) tb_or32(word, (uint32_t)low);
    if ((uint32_t)(low >> 32) != 0) tb_or32(word + 1, (uint32_t)(low >> 32));
    const uint32_t rest = shift == 0 ? 0 : (uint32_t)(value >> (64 - shift));
    if (rest != 0) tb_or32(word + 2, rest);
}

TB_DEVICE int tb_bits_one(const struct tb_block *b, struct tb_sparse_shared *sh, const struct tb_bits_out *o,
                          uint64_t value, uint32_t bits)
{
    uint64_t at;
    if (!tb_bits_reserve(b, sh, o, bits, &at)) return 0;
    if (b->thread == 0) tb_bits_or(o, at, value);
    return 1;
}

TB_DEVICE int tb_form_count(const struct tb_block *b, struct tb_sparse_shared *sh,
                            const struct tb_bits_out *o, uint32_t n)
{
    const uint32_t length = tb_bit_length(n), more = length > 1 ? length - 1 : 0;
    const uint64_t low = n & (((uint64_t)1 << more) - 1);
    return tb_bits_one(b, sh, o, low << TB_FORM_COUNT_BITS | length, TB_FORM_COUNT_BITS + more);
}

/* ---- numbers and their Rice codes ---- */

/* Ascending places, whose gaps are coded; or the magnitudes of odd steps, less 2. */
struct tb_numbers {
    const uint16_t *places;
    const uint32_t *differences; /* NULL: gaps */
    uint32_t above_bits;         /* 32 less those of an element */
    uint32_t count;
    uint32_t plain_bits;
};

TB_DEVICE uint32_t tb_magnitude(uint32_t difference, uint32_t above_bits)
{
    const int32_t amount = (int32_t)(difference << above_bits) >> above_bits;
    return amount < 0 ? 0u - (uint32_t)amount : (uint32_t)amount;
}

TB_DEVICE uint32_t tb_number_at(const struct tb_numbers *n, uint32_t i)
{
    if (n->differences != 0) return tb_magnitude(n->differences[n->places[i]], n->above_bits) - 2;
    return i == 0 ? n->places[0] : n->places[i] - n->places[i - 1] - 1u;
}

TB_DEVICE uint64_t tb_zeros_of(const struct tb_block *b, struct tb_sparse_shared *sh,
                               const struct tb_numbers *n, uint32_t k)
{
    uint64_t sum = 0, total;
    for (uint32_t i = b->thread; i < n->count; i += b->threads) {
        const uint32_t zeros = tb_number_at(n, i) >> k;
        sum += zeros < 31 ? zeros : 31;
    }
    (void)tb_block_scan(b, sh->sums, sum, &total);
    return total;
}

/* As base/codec/bits.h and base/codec/sparse.c choose it: what a mean would be right for, then
 * downward while that costs less. */
TB_DEVICE uint32_t tb_rice_parameter(const struct tb_block *b, struct tb_sparse_shared *sh,
                                     const struct tb_numbers *n, uint64_t sum, uint32_t k_max)
{
    const uint64_t mean_64 = (2 * sum + n->count) * 32;
    uint32_t k = 0;
    while (k < k_max && mean_64 >= (uint64_t)n->count * 133 / 2 << (k + 1))
        k++;
    uint64_t zeros = tb_zeros_of(b, sh, n, k);
    for (; k > 0; k--) {
        const uint64_t more = tb_zeros_of(b, sh, n, k - 1);
        if (more - zeros >= n->count) break;
        zeros = more;
    }
    return k;
}

TB_DEVICE uint32_t tb_code_bits(const struct tb_numbers *n, uint32_t x, uint32_t k)
{
    const uint32_t zeros = x >> k;
    return zeros < TB_FORM_ZEROS_MAX ? zeros + 1 + k : TB_FORM_ZEROS_MAX + n->plain_bits;
}

TB_DEVICE uint64_t tb_code_of(uint32_t x, uint32_t k)
{
    const uint32_t zeros = x >> k;
    if (zeros >= TB_FORM_ZEROS_MAX) return (uint64_t)x << TB_FORM_ZEROS_MAX;
    return ((x & (((uint64_t)1 << k) - 1)) << 1 | 1) << zeros;
}

/* k and the codes. */
TB_DEVICE int tb_form_codes(const struct tb_block *b, struct tb_sparse_shared *sh,
                            const struct tb_bits_out *o, const struct tb_numbers *n, uint32_t k,
                            uint32_t k_bits)
{
    if (!tb_bits_one(b, sh, o, k, k_bits)) return 0;
    const struct tb_share mine = tb_share_of(b, n->count);
    uint64_t bits = 0, total, start;
    for (uint32_t i = mine.first; i < mine.end; i++)
        bits += tb_code_bits(n, tb_number_at(n, i), k);
    uint64_t at = tb_block_scan(b, sh->sums, bits, &total);
    if (!tb_bits_reserve(b, sh, o, total, &start)) return 0;
    for (uint32_t i = mine.first; i < mine.end; i++) {
        const uint32_t x = tb_number_at(n, i);
        tb_bits_or(o, start + at, tb_code_of(x, k));
        at += tb_code_bits(n, x, k);
    }
    return 1;
}

TB_DEVICE int tb_form_gaps(const struct tb_block *b, struct tb_sparse_shared *sh, const struct tb_bits_out *o,
                           const uint16_t *places, uint32_t count)
{
    struct tb_numbers gaps;
    gaps.places = places;
    gaps.differences = 0;
    gaps.above_bits = 0;
    gaps.count = count;
    gaps.plain_bits = TB_FORM_GAP_BITS;
    const uint64_t sum = places[count - 1] + 1u - count;
    const uint32_t k = tb_rice_parameter(b, sh, &gaps, sum, (1u << TB_FORM_GAP_K_BITS) - 1);
    return tb_form_codes(b, sh, o, &gaps, k, TB_FORM_GAP_K_BITS);
}

/* ---- encoding ---- */

TB_DEVICE void tb_section_changed(const struct tb_block *b, struct tb_sparse_shared *sh,
                                  const struct tb_section *s)
{
    const uint32_t per_load = 8 / s->width;
    for (uint32_t w = b->thread; w < tb_section_words(s); w += b->threads) {
        const uint32_t elements = tb_word_elements(s, w);
        uint64_t mask = 0;
        for (uint32_t i = 0; i < elements; i++) {
            const uint32_t at = 64 * w + i;
            const uint64_t offset = (uint64_t)at * s->width;
            /* Most loads of 8 bytes find nothing. */
            if (i % per_load == 0 && i + per_load <= elements &&
                tb_load64(s->base + offset) == tb_load64(s->bytes + offset)) {
                i += per_load - 1;
                continue;
            }
            const int differs =
                tb_element_load(s->base, s->width, at) != tb_element_load(s->bytes, s->width, at);
            mask |= (uint64_t)differs << i;
        }
        sh->changed[w] = mask;
    }
    tb_block_sync(b);
}

/* Ranks and differences of the changed members, in order; how many. */
TB_DEVICE uint32_t tb_class_collect(const struct tb_block *b, struct tb_sparse_shared *sh,
                                    struct tb_sparse_scratch *scratch, const struct tb_section *s)
{
    const struct tb_share mine = tb_share_of(b, tb_section_words(s));
    uint64_t count = 0, total;
    for (uint32_t w = mine.first; w < mine.end; w++)
        count += tb_count_bits(sh->changed[w] & sh->members[w]);
    uint64_t next = tb_block_scan(b, sh->sums, count, &total);
    for (uint32_t w = mine.first; w < mine.end; w++) {
        for (uint64_t left = sh->changed[w] & sh->members[w]; left != 0; left &= left - 1, next++) {
            const uint32_t bit = tb_lowest_bit(left), at = 64 * w + bit;
            scratch->places[next] =
                (uint16_t)(sh->behind[w] + tb_count_bits(sh->members[w] & (((uint64_t)1 << bit) - 1)));
            scratch->differences[next] =
                tb_element_load(s->bytes, s->width, at) - tb_element_load(s->base, s->width, at);
        }
    }
    tb_block_sync(b);
    return (uint32_t)total;
}

/* Signs of all changes; those that are odd, neither 1 nor -1, go into scratch->odd. How many; -1:
 * no room. */
TB_DEVICE int64_t tb_form_signs(const struct tb_block *b, struct tb_sparse_shared *sh,
                                const struct tb_bits_out *o, struct tb_sparse_scratch *scratch,
                                uint32_t count, uint32_t above_bits, uint64_t *magnitudes_out)
{
    uint64_t start, odd = 0, sum = 0, total;
    if (!tb_bits_reserve(b, sh, o, count, &start)) return -1;
    const struct tb_share mine = tb_share_of(b, count);
    for (uint32_t i = mine.first; i < mine.end; i++) {
        const uint32_t difference = scratch->differences[i], magnitude = tb_magnitude(difference, above_bits);
        if ((int32_t)(difference << above_bits) < 0) tb_bits_or(o, start + i, 1);
        odd += magnitude != 1;
        sum += magnitude != 1 ? magnitude - 2 : 0;
    }
    uint64_t next = tb_block_scan(b, sh->sums, odd, &total);
    for (uint32_t i = mine.first; i < mine.end; i++)
        if (tb_magnitude(scratch->differences[i], above_bits) != 1) scratch->odd[next++] = (uint16_t)i;
    (void)tb_block_scan(b, sh->sums, sum, magnitudes_out);
    return (int64_t)total;
}

TB_DEVICE int tb_form_amounts(const struct tb_block *b, struct tb_sparse_shared *sh,
                              const struct tb_bits_out *o, struct tb_sparse_scratch *scratch, uint32_t count,
                              uint32_t width)
{
    uint64_t sum;
    const int64_t odd = tb_form_signs(b, sh, o, scratch, count, 32 - 8 * width, &sum);
    if (odd < 0 || !tb_form_count(b, sh, o, (uint32_t)odd)) return 0;
    if (odd == 0) return 1;
    if (!tb_form_gaps(b, sh, o, scratch->odd, (uint32_t)odd)) return 0;
    struct tb_numbers magnitudes;
    magnitudes.places = scratch->odd;
    magnitudes.differences = scratch->differences;
    magnitudes.above_bits = 32 - 8 * width;
    magnitudes.count = (uint32_t)odd;
    magnitudes.plain_bits = 8 * width;
    const uint32_t k = tb_rice_parameter(b, sh, &magnitudes, sum, (1u << TB_FORM_AMOUNT_K_BITS) - 1);
    return tb_form_codes(b, sh, o, &magnitudes, k, TB_FORM_AMOUNT_K_BITS);
}

TB_DEVICE int tb_form_section(const struct tb_block *b, struct tb_sparse_shared *sh,
                              const struct tb_bits_out *o, struct tb_sparse_scratch *scratch,
                              const struct tb_section *s)
{
    tb_section_changed(b, sh, s);
    tb_section_keys(b, sh, s, scratch->keys);
    for (uint32_t j = 0; j < sh->classes; j++) {
        (void)tb_class_members(b, sh, s, scratch->keys, j);
        const uint32_t count = tb_class_collect(b, sh, scratch, s);
        if (!tb_form_count(b, sh, o, count)) return 0;
        if (count == 0) continue;
        if (!tb_form_gaps(b, sh, o, scratch->places, count)) return 0;
        if (!tb_form_amounts(b, sh, o, scratch, count, s->width)) return 0;
        if (b->thread == 0) sh->seen += count;
        tb_block_sync(b);
    }
    return 1;
}

/* ---- which classes ---- */

TB_DEVICE void tb_sample_keys(const struct tb_block *b, struct tb_sparse_shared *sh,
                              const struct tb_encode_job *job, uint32_t width, uint32_t count)
{
    for (uint32_t i = b->thread; i < 256; i += b->threads)
        sh->by_key[i] = 0;
    tb_block_sync(b);
    for (uint32_t at = 512 * b->thread; at + 64 <= count; at += 512 * b->threads) {
        for (uint32_t i = at; i < at + 64; i++) {
            const uint32_t was = tb_element_load(job->base, width, i);
            if (was != tb_element_load(job->bytes, width, i))
                tb_add32(&sh->by_key[tb_kind_key(job->kind, was)], 1);
        }
    }
    tb_block_sync(b);
}

TB_DEVICE void tb_choose_bounds(struct tb_sparse_shared *sh, uint32_t classes_max)
{
    uint32_t seen = 0, have = 0;
    for (uint32_t key = 0; key < 256; key++)
        seen += sh->by_key[key];
    const uint32_t part = seen / (classes_max + 2), least = part > 16 ? part : 16;
    for (uint32_t key = 0; key < 255 && sh->classes < classes_max; key++) {
        have += sh->by_key[key];
        if (have < least) continue;
        sh->bounds[sh->classes++ - 1] = (uint8_t)(key + 1);
        have = 0;
    }
}

TB_DEVICE void tb_classes_choose(const struct tb_block *b, struct tb_sparse_shared *sh,
                                 const struct tb_encode_job *job, uint32_t width, uint32_t count)
{
    if (b->thread == 0) sh->classes = 1;
    tb_block_sync(b);
    if (job->classes_max == 1 || job->kind == TB_KIND_BYTES) return;
    tb_sample_keys(b, sh, job, width, count);
    if (b->thread == 0) tb_choose_bounds(sh, job->classes_max);
    tb_block_sync(b);
}

/* Header, bounds, and the bytes behind the last whole element. */
TB_DEVICE int tb_form_head(const struct tb_block *b, struct tb_sparse_shared *sh, const struct tb_bits_out *o,
                           const struct tb_encode_job *job, uint32_t tail)
{
    uint64_t at;
    const uint32_t bounds = sh->classes - 1;
    if (!tb_bits_reserve(b, sh, o, 8 * (uint64_t)(TB_FORM_HEADER_BYTES + bounds + tail), &at)) return 0;
    if (b->thread == 0) {
        o->out[0] = (uint8_t)job->kind;
        o->out[1] = (uint8_t)sh->classes;
        for (uint32_t i = 0; i < bounds; i++)
            o->out[TB_FORM_HEADER_BYTES + i] = sh->bounds[i];
        for (uint32_t i = 0; i < tail; i++)
            o->out[TB_FORM_HEADER_BYTES + bounds + i] = job->bytes[job->count - tail + i];
    }
    tb_block_sync(b);
    return 1;
}

TB_DEVICE void tb_kernel_encode(const struct tb_block *b, struct tb_sparse_shared *sh,
                                struct tb_sparse_scratch *scratch, struct tb_encode_job *job)
{
    const uint32_t width = tb_kind_width(job->kind);
    const uint32_t count = (uint32_t)(job->count / width), tail = (uint32_t)(job->count % width);
    const uint64_t gain_max = job->count - job->count * 3 / 100;
    struct tb_bits_out o;
    o.out = job->out;
    o.cap = job->cap < gain_max ? job->cap : gain_max;
    if (b->thread == 0) sh->at = sh->zeroed = sh->full = sh->seen = 0;
    tb_classes_choose(b, sh, job, width, count);
    int fits = tb_form_head(b, sh, &o, job, tail);
    for (uint32_t at = 0; at < count && fits; at += TB_KERNEL_SECTION) {
        struct tb_section s;
        s.base = job->base + (uint64_t)width * at;
        s.bytes = job->bytes + (uint64_t)width * at;
        s.count = count - at < TB_KERNEL_SECTION ? count - at : TB_KERNEL_SECTION;
        s.kind = job->kind;
        s.width = width;
        fits = tb_form_section(b, sh, &o, scratch, &s);
    }
    if (b->thread == 0) {
        job->used = fits ? (sh->at + 7) / 8 : 0;
        job->changed = sh->seen;
    }
    tb_block_sync(b);
}

/* ---- reading bits: one thread's ---- */

struct tb_bits_in {
    const uint8_t *in;
    uint64_t count; /* bytes; behind them are zeros */
    uint64_t at;    /* bits */
};

TB_DEVICE uint64_t tb_bits_in_peek(const struct tb_bits_in *r)
{
    const uint64_t first = r->at / 8;
    uint64_t x = 0;
    for (uint32_t i = 0; i < 8; i++)
        if (first + i < r->count) x |= (uint64_t)r->in[first + i] << (8 * i);
    return x >> (r->at & 7);
}

TB_DEVICE uint32_t tb_bits_in_get(struct tb_bits_in *r, uint32_t bits)
{
    const uint64_t x = tb_bits_in_peek(r) & (((uint64_t)1 << bits) - 1);
    r->at += bits;
    return (uint32_t)x;
}

TB_DEVICE uint32_t tb_bits_in_rice(struct tb_bits_in *r, uint32_t k, uint32_t plain_bits)
{
    const uint64_t next = tb_bits_in_peek(r);
    const uint32_t zeros = tb_lowest_bit(next | (uint64_t)1 << TB_FORM_ZEROS_MAX);
    if (zeros < TB_FORM_ZEROS_MAX) {
        r->at += zeros + 1 + k;
        return zeros << k | (uint32_t)(next >> (zeros + 1) & (((uint64_t)1 << k) - 1));
    }
    r->at += TB_FORM_ZEROS_MAX + plain_bits;
    return (uint32_t)(next >> TB_FORM_ZEROS_MAX & (((uint64_t)1 << plain_bits) - 1));
}

TB_DEVICE uint32_t tb_bits_in_count(struct tb_bits_in *r)
{
    const uint32_t length = tb_bits_in_get(r, TB_FORM_COUNT_BITS);
    if (length < 2) return length;
    return (uint32_t)((uint64_t)1 << (length - 1) | tb_bits_in_get(r, length - 1));
}

TB_DEVICE void tb_bits_in_gaps(struct tb_bits_in *r, uint16_t *gaps, uint32_t count)
{
    const uint32_t k = tb_bits_in_get(r, TB_FORM_GAP_K_BITS);
    for (uint32_t i = 0; i < count; i++)
        gaps[i] = (uint16_t)tb_bits_in_rice(r, k, TB_FORM_GAP_BITS);
}

TB_DEVICE int tb_bits_in_ended(const struct tb_bits_in *r)
{
    if (r->at > 8 * r->count) return 0;
    const uint64_t left = 8 * r->count - r->at;
    return left < 8 && (left == 0 || r->in[r->count - 1] >> (8 - left) == 0);
}

/* ---- patching ---- */

/* The member of rank `rank`, of those that tb_class_members told. */
TB_DEVICE uint32_t tb_member_at(const struct tb_sparse_shared *sh, uint32_t words, uint32_t rank)
{
    uint32_t low = 0, high = words;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (sh->behind[middle] <= rank)
            low = middle;
        else
            high = middle;
    }
    uint64_t left = sh->members[low];
    for (uint32_t skip = rank - sh->behind[low]; skip > 0; skip--)
        left &= left - 1;
    return 64 * low + tb_lowest_bit(left);
}

/* From gaps among the members to places among the elements. 0: behind the last member. */
TB_DEVICE int tb_class_places(const struct tb_block *b, struct tb_sparse_shared *sh,
                              struct tb_sparse_scratch *scratch, const struct tb_section *s, uint32_t j)
{
    const uint32_t members = tb_class_members(b, sh, s, scratch->keys, j), count = sh->count;
    const struct tb_share mine = tb_share_of(b, count);
    uint64_t sum = 0, total;
    for (uint32_t i = mine.first; i < mine.end; i++)
        sum += scratch->odd[i] + 1u; /* the gaps stand there */
    uint64_t rank = tb_block_scan(b, sh->sums, sum, &total);
    if (total > members) return 0;
    for (uint32_t i = mine.first; i < mine.end; i++) {
        rank += scratch->odd[i] + 1u;
        const uint32_t before = (uint32_t)(rank - 1);
        scratch->places[i] =
            (uint16_t)(sh->classes == 1 ? before : tb_member_at(sh, tb_section_words(s), before));
    }
    tb_block_sync(b);
    return 1;
}

TB_DEVICE void tb_amount_apply(uint8_t *elements, uint32_t width, uint32_t place, uint32_t magnitude,
                               uint32_t negative)
{
    const uint32_t was = tb_element_load(elements, width, place);
    tb_element_store(elements, width, place, negative ? was - magnitude : was + magnitude);
}

/* Adds the rest of each odd change, above the 1 that was applied before. */
TB_DEVICE int tb_odd_apply(struct tb_bits_in *r, const struct tb_bits_in *signs,
                           struct tb_sparse_scratch *scratch, uint8_t *elements, uint32_t width,
                           uint32_t count)
{
    const uint32_t odd = tb_bits_in_count(r);
    if (odd == 0) return 1;
    if (odd > count) return 0;
    tb_bits_in_gaps(r, scratch->odd, odd);
    const uint32_t k = tb_bits_in_get(r, TB_FORM_AMOUNT_K_BITS);
    uint32_t behind = 0;
    for (uint32_t i = 0; i < odd; i++) {
        behind += scratch->odd[i] + 1u;
        if (behind > count) return 0;
        struct tb_bits_in sign = *signs;
        sign.at += behind - 1;
        const uint32_t rest = tb_bits_in_rice(r, k, 8 * width) + 1;
        tb_amount_apply(elements, width, scratch->places[behind - 1], rest, tb_bits_in_get(&sign, 1));
    }
    return 1;
}

/* All threads; the reader is everybody's copy of sh->at. 0: damaged. */
TB_DEVICE int tb_class_patch(const struct tb_block *b, struct tb_sparse_shared *sh,
                             struct tb_sparse_scratch *scratch, const struct tb_section *s, uint8_t *elements,
                             struct tb_bits_in *r, uint32_t j)
{
    if (b->thread == 0) {
        sh->count = tb_bits_in_count(r);
        if (sh->count > 0 && sh->count <= s->count) tb_bits_in_gaps(r, scratch->odd, sh->count);
        sh->at = r->at;
    }
    tb_block_sync(b);
    r->at = sh->at;
    const uint32_t count = sh->count;
    if (count == 0) return 1;
    if (count > s->count || !tb_class_places(b, sh, scratch, s, j)) return 0;
    const struct tb_bits_in signs = *r;
    for (uint32_t i = b->thread; i < count; i += b->threads) {
        struct tb_bits_in sign = signs;
        sign.at += i;
        tb_amount_apply(elements, s->width, scratch->places[i], 1, tb_bits_in_get(&sign, 1));
    }
    tb_block_sync(b);
    r->at += count;
    if (b->thread == 0) {
        sh->bad = !tb_odd_apply(r, &signs, scratch, elements, s->width, count);
        sh->at = r->at;
    }
    tb_block_sync(b);
    r->at = sh->at;
    return !sh->bad;
}

TB_DEVICE int tb_section_patch(const struct tb_block *b, struct tb_sparse_shared *sh,
                               struct tb_sparse_scratch *scratch, const struct tb_section *s,
                               uint8_t *elements, struct tb_bits_in *r)
{
    tb_section_keys(b, sh, s, scratch->keys);
    for (uint32_t j = 0; j < sh->classes; j++) {
        const int fine = tb_class_patch(b, sh, scratch, s, elements, r, j);
        tb_block_sync(b); /* before sh->count and sh->at are written again */
        if (!fine) return 0;
    }
    return r->at <= 8 * r->count;
}

/* Kind, classes and bounds into sh. 0: not such a form. */
TB_DEVICE int tb_form_read_head(const struct tb_patch_job *job, struct tb_sparse_shared *sh,
                                uint32_t *kind_out)
{
    if (job->form_count < TB_FORM_HEADER_BYTES || job->form[2] != 0 || job->form[3] != 0) return 0;
    const uint32_t kind = job->form[0], classes = job->form[1];
    if (kind == 0 || kind >= TB_KIND_END || classes == 0 || classes > TB_KERNEL_CLASSES_MAX) return 0;
    const uint64_t tail = job->count % tb_kind_width(kind);
    if (job->form_count < TB_FORM_HEADER_BYTES + classes - 1 + tail) return 0;
    uint32_t low = 0;
    for (uint32_t i = 0; i + 1 < classes; i++) {
        const uint32_t bound = job->form[TB_FORM_HEADER_BYTES + i];
        if (bound <= low) return 0;
        sh->bounds[i] = (uint8_t)bound;
        low = bound;
    }
    sh->classes = classes;
    *kind_out = kind;
    return 1;
}

TB_DEVICE void tb_kernel_patch(const struct tb_block *b, struct tb_sparse_shared *sh,
                               struct tb_sparse_scratch *scratch, struct tb_patch_job *job)
{
    uint32_t kind = 0;
    if (b->thread == 0) {
        sh->classes = 1;
        sh->bad = !tb_form_read_head(job, sh, &kind);
        sh->seen = kind;
    }
    tb_block_sync(b);
    kind = sh->seen;
    int fine = !sh->bad;
    const uint32_t width = tb_kind_width(kind), tail = (uint32_t)(job->count % width);
    const uint32_t count = (uint32_t)(job->count / width),
                   head = TB_FORM_HEADER_BYTES + sh->classes - 1 + tail;
    struct tb_bits_in r;
    r.in = job->form + head;
    r.count = fine ? job->form_count - head : 0;
    r.at = 0;
    tb_block_sync(b);
    for (uint32_t at = 0; at < count && fine; at += TB_KERNEL_SECTION) {
        uint8_t *elements = job->bytes + (uint64_t)width * at;
        struct tb_section s;
        s.base = s.bytes = elements;
        s.count = count - at < TB_KERNEL_SECTION ? count - at : TB_KERNEL_SECTION;
        s.kind = kind;
        s.width = width;
        fine = tb_section_patch(b, sh, scratch, &s, elements, &r);
    }
    if (b->thread == 0) {
        fine = fine && tb_bits_in_ended(&r);
        for (uint32_t i = 0; i < tail && fine; i++)
            job->bytes[job->count - tail + i] = job->form[head - tail + i];
        job->ok = (uint32_t)fine;
    }
    tb_block_sync(b);
}

#endif
