/* kernel_encode.h - the sparse form (base/codec/sparse.h, docs/protocol.md) of one chunk by one
 * block of threads: the very bytes that base/codec/sparse.c writes. The text of kernels: include
 * kernel_words_*.h first.
 *
 * Of each section all threads find what changed, and of which class it is and with which rank. Then
 * each class is a warp's: it sorts out its changes, chooses how they are coded, and says how many
 * bits that takes. So it is known where each class begins, and all warps write. */
#ifndef TB_INTRA_KERNEL_ENCODE_H
#define TB_INTRA_KERNEL_ENCODE_H

#include "intra/cuda/kernel_sparse.h"

/* How a class is written. */
struct tb_plan {
    uint32_t count, odd; /* changes */
    uint32_t first;      /* of its changes in scratch */
    uint32_t gap_k, odd_k, amount_k;
    uint32_t gap_bits, odd_bits, amount_bits; /* of all codes of a list */
    uint32_t bits;                            /* of all of it */
    uint64_t at;                              /* of the form */
};

struct tb_encode_shared {
    uint32_t changed[TB_KERNEL_SECTION / 32];
    uint16_t before[TB_KERNEL_SECTION / 32]; /* changes in the words before */
    struct tb_ranks_shared ranks;
    struct tb_plan plans[TB_KERNEL_CLASSES_MAX];
    uint32_t counts[TB_KERNEL_CLASSES_MAX]; /* of changes */
    uint32_t sums[TB_WARPS_MAX];
    uint32_t by_key[256];
    uint8_t bounds[TB_KERNEL_CLASSES_MAX];
    uint32_t classes;
    uint64_t at;     /* bits written */
    uint64_t zeroed; /* words of 32 bits that were */
    uint32_t seen;
};

/* ---- writing bits ---- */

struct tb_bits_out {
    uint8_t *out;
    uint64_t cap;
};

/* The bits up to `end`: zeroed, to be put by anybody. 0: they do not fit. */
TB_DEVICE int tb_bits_reserve(const struct tb_block *b, struct tb_encode_shared *sh,
                              const struct tb_bits_out *o, uint64_t end)
{
    const uint64_t zeroed = sh->zeroed, words = (end + 31) / 32;
    tb_block_sync(b); /* all have read */
    if ((end + 7) / 8 > o->cap) return 0;
    for (uint64_t i = zeroed + b->thread; i < words; i += b->threads)
        tb_store32(o->out + 4 * i, 0);
    if (b->thread == 0) {
        sh->at = end;
        if (words > zeroed) sh->zeroed = words;
    }
    tb_block_sync(b);
    return 1;
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

TB_DEVICE uint32_t tb_count_code_bits(uint32_t n)
{
    const uint32_t length = tb_bit_length(n);
    return TB_FORM_COUNT_BITS + (length > 1 ? length - 1 : 0);
}

TB_DEVICE uint64_t tb_count_code(uint32_t n)
{
    const uint32_t length = tb_bit_length(n), more = length > 1 ? length - 1 : 0;
    return (uint64_t)(n & ((1u << more) - 1)) << TB_FORM_COUNT_BITS | length;
}

/* ---- numbers and their Rice codes, by a team ---- */

/* A warp, or the whole block where there is but one class: those that share a class's changes. */
struct tb_team {
    const struct tb_block *b;
    uint32_t *sums; /* of the block; NULL: the team is a warp */
    uint32_t member, members;
};

TB_DEVICE struct tb_team tb_team_of(const struct tb_block *b, uint32_t *sums)
{
    struct tb_team t;
    t.b = b;
    t.sums = sums;
    t.member = sums != 0 ? b->thread : tb_lane(b);
    t.members = sums != 0 ? b->threads : tb_lanes(b);
    return t;
}

/* The sum of what the members before this one gave, and of what all did. */
TB_DEVICE uint32_t tb_team_before(const struct tb_team *t, uint32_t mine, uint32_t *total_out)
{
    if (t->sums != 0) return tb_block_before(t->b, t->sums, mine, total_out);
    const uint32_t upto = tb_warp_upto(t->b, mine);
    *total_out = tb_warp_from(t->b, upto, tb_lanes(t->b) - 1);
    return upto - mine;
}

TB_DEVICE uint32_t tb_team_sum(const struct tb_team *t, uint32_t mine)
{
    uint32_t total;
    (void)tb_team_before(t, mine, &total);
    return total;
}

TB_DEVICE void tb_team_sync(const struct tb_team *t)
{
    if (t->sums != 0)
        tb_block_sync(t->b);
    else
        tb_warp_sync(t->b);
}

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

TB_DEVICE uint32_t tb_zeros_of(const struct tb_team *t, const struct tb_numbers *n, uint32_t k)
{
    uint32_t sum = 0;
    for (uint32_t i = t->member; i < n->count; i += t->members) {
        const uint32_t zeros = tb_number_at(n, i) >> k;
        sum += zeros < 31 ? zeros : 31;
    }
    return tb_team_sum(t, sum);
}

/* As base/codec/bits.h and base/codec/sparse.c choose it: what a mean would be right for, then
 * downward while that costs less. */
TB_DEVICE uint32_t tb_rice_parameter(const struct tb_team *t, const struct tb_numbers *n, uint64_t sum,
                                     uint32_t k_max)
{
    const uint64_t mean_64 = (2 * sum + n->count) * 32;
    uint32_t k = 0;
    while (k < k_max && mean_64 >= (uint64_t)n->count * 133 / 2 << (k + 1))
        k++;
    uint32_t zeros = tb_zeros_of(t, n, k);
    for (; k > 0; k--) {
        const uint32_t more = tb_zeros_of(t, n, k - 1);
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

TB_DEVICE uint32_t tb_codes_bits(const struct tb_team *t, const struct tb_numbers *n, uint32_t k)
{
    uint32_t bits = 0;
    for (uint32_t i = t->member; i < n->count; i += t->members)
        bits += tb_code_bits(n, tb_number_at(n, i), k);
    return tb_team_sum(t, bits);
}

/* From bit `at` on, as many at a time as the team has members. */
TB_DEVICE void tb_codes_put(const struct tb_team *t, const struct tb_bits_out *o, const struct tb_numbers *n,
                            uint32_t k, uint64_t at)
{
    for (uint32_t first = 0; first < n->count; first += t->members) {
        const uint32_t i = first + t->member, x = i < n->count ? tb_number_at(n, i) : 0;
        const uint32_t bits = i < n->count ? tb_code_bits(n, x, k) : 0;
        uint32_t all;
        const uint32_t before = tb_team_before(t, bits, &all);
        if (bits > 0) tb_bits_or(o, at + before, tb_code_of(x, k));
        at += all;
    }
}

TB_DEVICE struct tb_numbers tb_gaps(const uint16_t *places, uint32_t count)
{
    struct tb_numbers n;
    n.places = places;
    n.differences = 0;
    n.above_bits = 0;
    n.count = count;
    n.plain_bits = TB_FORM_GAP_BITS;
    return n;
}

TB_DEVICE struct tb_numbers tb_amounts(const struct tb_sparse_scratch *scratch, const struct tb_plan *p,
                                       uint32_t width)
{
    struct tb_numbers n;
    n.places = scratch->odd + p->first;
    n.differences = scratch->differences + p->first;
    n.above_bits = 32 - 8 * width;
    n.count = p->odd;
    n.plain_bits = 8 * width;
    return n;
}

TB_DEVICE uint32_t tb_gaps_parameter(const struct tb_team *t, const struct tb_numbers *gaps)
{
    const uint64_t sum = gaps->places[gaps->count - 1] + 1u - gaps->count;
    return tb_rice_parameter(t, gaps, sum, (1u << TB_FORM_GAP_K_BITS) - 1);
}

/* ---- a class, by a team ---- */

/* Those that are neither 1 nor -1 go into scratch->odd. The sum of their magnitudes, less 2
 * each. */
TB_DEVICE uint64_t tb_plan_odd(const struct tb_team *t, struct tb_sparse_scratch *scratch, struct tb_plan *p,
                               uint32_t above_bits)
{
    uint32_t low = 0, high = 0;
    p->odd = 0;
    for (uint32_t first = 0; first < p->count; first += t->members) {
        const uint32_t i = first + t->member;
        const uint32_t magnitude =
            i < p->count ? tb_magnitude(scratch->differences[p->first + i], above_bits) : 1;
        uint32_t all;
        const uint32_t before = tb_team_before(t, magnitude != 1, &all);
        if (magnitude != 1) {
            scratch->odd[p->first + p->odd + before] = (uint16_t)i;
            low += (magnitude - 2) & 0xffff;
            high += (magnitude - 2) >> 16;
        }
        p->odd += all;
    }
    tb_team_sync(t);
    if (p->odd == 0) return 0;
    low = tb_team_sum(t, low);
    return low + ((uint64_t)tb_team_sum(t, high) << 16);
}

/* How the class's changes in scratch are coded. */
TB_DEVICE void tb_plan_class(const struct tb_team *t, struct tb_sparse_scratch *scratch, struct tb_plan *p,
                             uint32_t width)
{
    p->bits = tb_count_code_bits(p->count);
    if (p->count == 0) return;
    const struct tb_numbers gaps = tb_gaps(scratch->places + p->first, p->count);
    p->gap_k = tb_gaps_parameter(t, &gaps);
    p->gap_bits = tb_codes_bits(t, &gaps, p->gap_k);
    const uint64_t sum = tb_plan_odd(t, scratch, p, 32 - 8 * width);
    p->bits += TB_FORM_GAP_K_BITS + p->gap_bits + p->count + tb_count_code_bits(p->odd);
    if (p->odd == 0) return;
    const struct tb_numbers odd = tb_gaps(scratch->odd + p->first, p->odd),
                            amounts = tb_amounts(scratch, p, width);
    p->odd_k = tb_gaps_parameter(t, &odd);
    p->odd_bits = tb_codes_bits(t, &odd, p->odd_k);
    p->amount_k = tb_rice_parameter(t, &amounts, sum, (1u << TB_FORM_AMOUNT_K_BITS) - 1);
    p->amount_bits = tb_codes_bits(t, &amounts, p->amount_k);
    p->bits += TB_FORM_GAP_K_BITS + p->odd_bits + TB_FORM_AMOUNT_K_BITS + p->amount_bits;
}

/* A warp at a time. */
TB_DEVICE void tb_signs_put(const struct tb_team *t, const struct tb_bits_out *o, const uint32_t *differences,
                            uint32_t count, uint32_t above_bits, uint64_t at)
{
    const uint32_t lane = tb_lane(t->b);
    for (uint32_t first = t->member - lane; first < count; first += t->members) {
        const uint32_t i = first + lane, difference = i < count ? differences[i] : 0;
        const uint32_t down = tb_warp_vote(t->b, (int32_t)(difference << above_bits) < 0);
        if (lane == 0) tb_bits_or(o, at + first, down);
    }
}

/* As it was planned. */
TB_DEVICE void tb_class_put(const struct tb_team *t, const struct tb_bits_out *o,
                            const struct tb_sparse_scratch *scratch, const struct tb_plan *p, uint32_t width)
{
    const int leads = t->member == 0;
    uint64_t at = p->at;
    if (leads) tb_bits_or(o, at, tb_count_code(p->count));
    at += tb_count_code_bits(p->count);
    if (p->count == 0) return;
    const struct tb_numbers gaps = tb_gaps(scratch->places + p->first, p->count);
    if (leads) tb_bits_or(o, at, p->gap_k);
    at += TB_FORM_GAP_K_BITS;
    tb_codes_put(t, o, &gaps, p->gap_k, at);
    at += p->gap_bits;
    tb_signs_put(t, o, scratch->differences + p->first, p->count, 32 - 8 * width, at);
    at += p->count;
    if (leads) tb_bits_or(o, at, tb_count_code(p->odd));
    at += tb_count_code_bits(p->odd);
    if (p->odd == 0) return;
    const struct tb_numbers odd = tb_gaps(scratch->odd + p->first, p->odd),
                            amounts = tb_amounts(scratch, p, width);
    if (leads) tb_bits_or(o, at, p->odd_k);
    at += TB_FORM_GAP_K_BITS;
    tb_codes_put(t, o, &odd, p->odd_k, at);
    at += p->odd_bits;
    if (leads) tb_bits_or(o, at, p->amount_k);
    tb_codes_put(t, o, &amounts, p->amount_k, at + TB_FORM_AMOUNT_K_BITS);
}

/* The changes of class c, out of those of all classes. By a warp. */
TB_DEVICE void tb_class_sort(const struct tb_block *b, struct tb_sparse_scratch *scratch,
                             const struct tb_section *s, const struct tb_plan *p, uint32_t all, uint32_t c)
{
    const uint32_t lanes = tb_lanes(b), lane = tb_lane(b);
    uint32_t next = p->first;
    for (uint32_t first = 0; first < all; first += lanes) {
        const uint32_t i = first + lane;
        const int mine = i < all && scratch->mixed_classes[i] == c;
        const uint32_t of = tb_warp_vote(b, mine);
        if (mine) scratch->odd[next + tb_count_bits32(of & ((1u << lane) - 1))] = (uint16_t)i;
        next += tb_count_bits32(of);
    }
    tb_warp_sync(b);
    for (uint32_t i = p->first + lane; i < p->first + p->count; i += lanes) {
        const uint32_t from = scratch->odd[i], at = scratch->mixed_at[from];
        scratch->places[i] = scratch->mixed_ranks[from];
        scratch->differences[i] =
            tb_element_load(s->bytes, s->width, at) - tb_element_load(s->base, s->width, at);
    }
    tb_warp_sync(b);
}

/* ---- what changed, by all threads ---- */

/* Of four bytes or two halves of x: bits 0 to 3, or 0 and 1, say which are not 0. */
TB_DEVICE uint32_t tb_bytes_set(uint32_t x)
{
    const uint32_t flags = (((x & 0x7f7f7f7fu) + 0x7f7f7f7fu) | x) >> 7 & 0x01010101u;
    return flags * 0x01020408u >> 24; /* no two of the products meet */
}

TB_DEVICE uint32_t tb_halves_set(uint32_t x, uint32_t y)
{
    const uint32_t a = ((x & 0x7fff7fffu) + 0x7fff7fffu) | x, c = ((y & 0x7fff7fffu) + 0x7fff7fffu) | y;
    return (tb_odd_bytes(a, c) >> 7 & 0x01010101u) * 0x01020408u >> 24;
}

/* Which of eight elements differ. */
TB_DEVICE uint32_t tb_eight_changed(const uint8_t *base, const uint8_t *bytes, uint32_t width)
{
    if (width == 1) {
        const uint64_t x = tb_load64(base) ^ tb_load64(bytes);
        return tb_bytes_set((uint32_t)x) | tb_bytes_set((uint32_t)(x >> 32)) << 4;
    }
    uint32_t changed = 0;
    TB_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        if (h == 1 && width == 2) continue;
        const struct tb_quad p = tb_load128(base + 16 * h), q = tb_load128(bytes + 16 * h);
        if (width == 2)
            changed = tb_halves_set(p.words[0] ^ q.words[0], p.words[1] ^ q.words[1]) |
                      tb_halves_set(p.words[2] ^ q.words[2], p.words[3] ^ q.words[3]) << 4;
        TB_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            if (width == 4) changed |= (uint32_t)(p.words[i] != q.words[i]) << (4 * h + i);
    }
    return changed;
}

TB_DEVICE uint32_t tb_rest_changed(const struct tb_section *s, uint32_t first)
{
    uint32_t changed = 0;
    for (uint32_t i = first; i < s->count; i++)
        changed |= (uint32_t)(tb_element_load(s->base, s->width, i) != tb_element_load(s->bytes, s->width, i))
                   << (i - first);
    return changed;
}

#define TB_EIGHTS_AT_ONCE 4u /* of a thread, whose loads are under way together; half of the widest */

/* Threads side by side look at elements side by side. The first of `count` eights that nobody
 * looked at. */
TB_DEVICE uint32_t tb_eights_changed(const struct tb_block *b, uint8_t *eights, const struct tb_section *s,
                                     uint32_t width, uint32_t count)
{
    const uint32_t at_once = width == 4 ? TB_EIGHTS_AT_ONCE / 2 : TB_EIGHTS_AT_ONCE;
    const uint32_t step = at_once * b->threads, whole = count / step * step;
    for (uint32_t first = b->thread; first < whole; first += step) {
        uint32_t found[TB_EIGHTS_AT_ONCE];
        TB_UNROLL
        for (uint32_t u = 0; u < at_once; u++) {
            const uint64_t at = (uint64_t)8 * width * (first + u * b->threads);
            found[u] = tb_eight_changed(s->base + at, s->bytes + at, width);
        }
        TB_UNROLL
        for (uint32_t u = 0; u < at_once; u++)
            eights[first + u * b->threads] = (uint8_t)found[u];
    }
    return whole;
}

TB_DEVICE void tb_section_changed(const struct tb_block *b, struct tb_encode_shared *sh,
                                  const struct tb_section *s)
{
    uint8_t *eights = (uint8_t *)sh->changed;
    const uint32_t whole = s->count / 8, all = (s->count + 31) / 32 * 4;
    const uint32_t done = s->width == 2   ? tb_eights_changed(b, eights, s, 2, whole)
                          : s->width == 4 ? tb_eights_changed(b, eights, s, 4, whole)
                                          : tb_eights_changed(b, eights, s, 1, whole);
    for (uint32_t i = done + b->thread; i < all; i += b->threads) {
        const uint64_t at = (uint64_t)8 * s->width * i;
        eights[i] = (uint8_t)(i < whole ? tb_eight_changed(s->base + at, s->bytes + at, s->width)
                                        : tb_rest_changed(s, 8 * i));
    }
    tb_block_sync(b);
}

/* Where the changes are, in order; with one class these are their ranks. How many. */
TB_DEVICE uint32_t tb_section_list(const struct tb_block *b, struct tb_encode_shared *sh,
                                   struct tb_sparse_scratch *scratch, const struct tb_section *s)
{
    const struct tb_thread_part mine = tb_thread_part_of(b, (s->count + 31) / 32);
    uint32_t count = 0, total;
    for (uint32_t w = mine.first; w < mine.end; w++)
        count += tb_count_bits32(sh->changed[w]);
    uint32_t next = tb_block_before(b, sh->sums, count, &total);
    for (uint32_t w = mine.first; w < mine.end; w++) {
        sh->before[w] = (uint16_t)next;
        for (uint32_t left = sh->changed[w]; left != 0; left &= left - 1, next++) {
            const uint32_t at = 32 * w + tb_lowest_bit32(left);
            if (sh->classes > 1) {
                scratch->mixed_at[next] = (uint16_t)at;
                continue;
            }
            scratch->places[next] = (uint16_t)at;
            scratch->differences[next] =
                tb_element_load(s->bytes, s->width, at) - tb_element_load(s->base, s->width, at);
        }
    }
    tb_block_sync(b);
    return total;
}

/* The group's changes of class c. */
TB_DEVICE void tb_group_mix(const struct tb_block *b, struct tb_encode_shared *sh,
                            struct tb_sparse_scratch *scratch, uint32_t changed, uint32_t before, uint32_t c)
{
    const uint32_t members = sh->ranks.members[c][b->thread];
    uint32_t left = changed & members;
    if (left == 0) return;
    const uint32_t rank = tb_group_rank(b, &sh->ranks, c);
    tb_add32(&sh->counts[c], tb_count_bits32(left));
    for (; left != 0; left &= left - 1) {
        const uint32_t below = (1u << tb_lowest_bit32(left)) - 1,
                       i = before + tb_count_bits32(changed & below);
        scratch->mixed_classes[i] = (uint8_t)c;
        scratch->mixed_ranks[i] = (uint16_t)(rank + tb_count_bits32(members & below));
    }
}

/* Classes and ranks of the changes. */
TB_DEVICE void tb_section_mix(const struct tb_block *b, struct tb_encode_shared *sh,
                              struct tb_sparse_scratch *scratch, const struct tb_section *s)
{
    for (uint32_t c = b->thread; c < sh->classes; c += b->threads)
        sh->counts[c] = 0;
    tb_ranks_begin(b, &sh->ranks);
    tb_block_sync(b);
    for (uint32_t tile = 0; tile * tb_tile_elements(b) < s->count; tile++) {
        const uint32_t first = tb_group_look(b, &sh->ranks, s, sh->bounds, sh->classes, tile);
        if (first >= s->count) continue;
        const uint32_t changed = sh->changed[first / 32], before = sh->before[first / 32];
        for (uint32_t c = 0; c < sh->classes && changed != 0; c++)
            tb_group_mix(b, sh, scratch, changed, before, c);
    }
    tb_block_sync(b);
}

/* ---- a section ---- */

/* Where each class begins, from how many bits each takes; then room for all of them. */
TB_DEVICE int tb_plans_place(const struct tb_block *b, struct tb_encode_shared *sh,
                             const struct tb_bits_out *o)
{
    const uint64_t from = sh->at;
    uint64_t end = from;
    for (uint32_t c = 0; c < sh->classes; c++) {
        if (b->thread == 0) sh->plans[c].at = end;
        end += sh->plans[c].bits;
    }
    return tb_bits_reserve(b, sh, o, end);
}

/* Puts class c's changes into scratch, and plans how they are coded. */
TB_DEVICE void tb_class_plan(const struct tb_team *t, struct tb_encode_shared *sh,
                             struct tb_sparse_scratch *scratch, const struct tb_section *s, uint32_t all,
                             uint32_t c)
{
    struct tb_plan p;
    p.count = sh->counts[c];
    p.first = p.odd = 0;
    for (uint32_t i = 0; i < c; i++)
        p.first += sh->counts[i];
    if (sh->classes > 1) tb_class_sort(t->b, scratch, s, &p, all, c);
    tb_plan_class(t, scratch, &p, s->width);
    if (t->member == 0) sh->plans[c] = p;
}

TB_DEVICE int tb_section_encode(const struct tb_block *b, struct tb_encode_shared *sh,
                                const struct tb_bits_out *o, struct tb_sparse_scratch *scratch,
                                const struct tb_section *s)
{
    const struct tb_team team = tb_team_of(b, sh->classes > 1 ? 0 : sh->sums);
    const uint32_t first = sh->classes > 1 ? tb_warp(b) : 0, step = b->threads / tb_lanes(b);
    tb_section_changed(b, sh, s);
    const uint32_t all = tb_section_list(b, sh, scratch, s);
    if (sh->classes > 1)
        tb_section_mix(b, sh, scratch, s);
    else if (b->thread == 0)
        sh->counts[0] = all;
    if (b->thread == 0) sh->seen += all;
    tb_block_sync(b);
    for (uint32_t c = first; c < sh->classes; c += step)
        tb_class_plan(&team, sh, scratch, s, all, c);
    tb_block_sync(b);
    if (!tb_plans_place(b, sh, o)) return 0;
    for (uint32_t c = first; c < sh->classes; c += step)
        tb_class_put(&team, o, scratch, &sh->plans[c], s->width);
    tb_block_sync(b); /* before it is written again */
    return 1;
}

/* ---- which classes ---- */

/* Of each 512 elements 64: eight of them at a time. */
TB_DEVICE void tb_sample_keys(const struct tb_block *b, struct tb_encode_shared *sh,
                              const struct tb_encode_job *job, uint32_t width, uint32_t count)
{
    for (uint32_t i = b->thread; i < 256; i += b->threads)
        sh->by_key[i] = 0;
    tb_block_sync(b);
    for (uint32_t i = b->thread; 512 * (i / 8) + 64 <= count; i += b->threads) {
        const uint32_t first = 512 * (i / 8) + 8 * (i % 8);
        const uint64_t at = (uint64_t)width * first;
        for (uint32_t left = tb_eight_changed(job->base + at, job->bytes + at, width); left != 0;
             left &= left - 1) {
            const uint32_t was = tb_element_load(job->base, width, first + tb_lowest_bit32(left));
            tb_add32(&sh->by_key[tb_kind_key(job->kind, was)], 1);
        }
    }
    tb_block_sync(b);
}

TB_DEVICE void tb_choose_bounds(struct tb_encode_shared *sh, uint32_t classes_max)
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

TB_DEVICE void tb_classes_choose(const struct tb_block *b, struct tb_encode_shared *sh,
                                 const struct tb_encode_job *job, uint32_t width, uint32_t count)
{
    if (b->thread == 0) sh->classes = 1;
    tb_block_sync(b);
    if (job->classes_max == 1 || job->kind == TB_KIND_BYTES) return;
    tb_sample_keys(b, sh, job, width, count);
    if (b->thread == 0) tb_choose_bounds(sh, job->classes_max);
    tb_block_sync(b);
}

/* ---- a chunk ---- */

/* Header, bounds, and the bytes behind the last whole element. */
TB_DEVICE int tb_form_head(const struct tb_block *b, struct tb_encode_shared *sh, const struct tb_bits_out *o,
                           const struct tb_encode_job *job, uint32_t tail)
{
    const uint32_t bounds = sh->classes - 1;
    if (!tb_bits_reserve(b, sh, o, 8 * (uint64_t)(TB_FORM_HEADER_BYTES + bounds + tail))) return 0;
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

TB_DEVICE void tb_kernel_encode(const struct tb_block *b, struct tb_encode_shared *sh,
                                struct tb_sparse_scratch *scratch, struct tb_encode_job *job)
{
    const uint32_t width = tb_kind_width(job->kind);
    const uint32_t count = (uint32_t)(job->count / width), tail = (uint32_t)(job->count % width);
    const uint64_t gain_max = job->count - job->count * 3 / 100;
    struct tb_bits_out o;
    o.out = job->out;
    o.cap = job->cap < gain_max ? job->cap : gain_max;
    if (b->thread == 0) sh->at = sh->zeroed = sh->seen = 0;
    tb_classes_choose(b, sh, job, width, count);
    int fits = tb_form_head(b, sh, &o, job, tail);
    for (uint32_t at = 0; at < count && fits; at += TB_KERNEL_SECTION) {
        struct tb_section s;
        s.base = job->base + (uint64_t)width * at;
        s.bytes = job->bytes + (uint64_t)width * at;
        s.count = count - at < TB_KERNEL_SECTION ? count - at : TB_KERNEL_SECTION;
        s.kind = job->kind;
        s.width = width;
        fits = tb_section_encode(b, sh, &o, scratch, &s);
    }
    if (b->thread == 0) {
        job->used = fits ? (sh->at + 7) / 8 : 0;
        job->changed = sh->seen;
    }
    tb_block_sync(b);
}

#endif
