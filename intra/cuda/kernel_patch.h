/* kernel_patch.h - a sparse form (base/codec/sparse.h, docs/protocol.md) written over its base by
 * one block of threads; it takes any form that base/codec/sparse.c takes, and no other. The text of
 * kernels: include kernel_words_*.h first.
 *
 * Of each section first one warp reads the codes. Where a code begins is known when the one before
 * it is read; so each lane begins somewhere, and again where the lane before it has ended, until no
 * lane's beginning moves. Rice codes fall in step after a few, so twice is mostly enough. What was
 * read is a mark for each changed member of a class, at its rank. Then all threads look which of
 * their elements are marked. */
#ifndef TB_INTRA_KERNEL_PATCH_H
#define TB_INTRA_KERNEL_PATCH_H

#include "intra/cuda/kernel_sparse.h"

/* Each class begins in a word of its own. */
#define TB_MARK_WORDS (TB_KERNEL_SECTION / 32u + TB_KERNEL_CLASSES_MAX)

struct tb_class_found {
    uint32_t count;  /* of changes */
    uint32_t behind; /* members up to the last change, it included */
    uint32_t word;   /* of marks */
    uint32_t signs;  /* bits of the form */
    uint32_t first;  /* amount in scratch, if */
    uint32_t odd;    /* some are neither 1 nor -1 */
};

struct tb_patch_shared {
    uint32_t marks[TB_MARK_WORDS + 1];
    uint16_t before[TB_MARK_WORDS]; /* changes of the class in the words before; of words with marks */
    struct tb_ranks_shared ranks;
    struct tb_class_found found[TB_KERNEL_CLASSES_MAX];
    uint8_t bounds[TB_KERNEL_CLASSES_MAX];
    uint32_t classes, kind;
    uint32_t bad;
};

/* ---- reading bits ---- */

/* Bits count from a border of 4 bytes at or before the first one; behind the last are zeros. */
struct tb_bits_in {
    const uint8_t *in;
    uint32_t end; /* bytes from there */
    uint32_t at;
};

TB_DEVICE uint32_t tb_bits_word(const struct tb_bits_in *r, uint32_t i)
{
    if (4 * i + 4 <= r->end) return tb_load32(r->in + 4 * (uint64_t)i);
    uint32_t x = 0;
    for (uint32_t k = 4 * i; k < r->end; k++)
        x |= (uint32_t)r->in[k] << 8 * (k % 4);
    return x;
}

TB_DEVICE uint32_t tb_bits_peek32(const struct tb_bits_in *r, uint32_t at)
{
    return tb_funnel(tb_bits_word(r, at / 32), tb_bits_word(r, at / 32 + 1), at % 32);
}

TB_DEVICE uint64_t tb_bits_peek64(const struct tb_bits_in *r, uint32_t at)
{
    const uint32_t a = tb_bits_word(r, at / 32), b = tb_bits_word(r, at / 32 + 1),
                   c = tb_bits_word(r, at / 32 + 2);
    return tb_funnel(a, b, at % 32) | (uint64_t)tb_funnel(b, c, at % 32) << 32;
}

TB_DEVICE uint32_t tb_bits_get(struct tb_bits_in *r, uint32_t bits) /* below 32 */
{
    const uint32_t x = tb_bits_peek32(r, r->at) & ((1u << bits) - 1);
    r->at += bits;
    return x;
}

TB_DEVICE uint32_t tb_bits_get_count(struct tb_bits_in *r)
{
    const uint32_t length = tb_bits_get(r, TB_FORM_COUNT_BITS);
    if (length < 2) return length;
    return 1u << (length - 1) | tb_bits_get(r, length - 1);
}

/* One code, and where the next begins. No gap's is longer than 32 bits. */
TB_DEVICE uint32_t tb_code_gap(const struct tb_bits_in *r, uint32_t k, uint32_t *at)
{
    const uint32_t next = tb_bits_peek32(r, *at);
    const uint32_t zeros = tb_lowest_bit32(next | 1u << TB_FORM_ZEROS_MAX);
    if (zeros == TB_FORM_ZEROS_MAX) {
        *at += TB_FORM_ZEROS_MAX + TB_FORM_GAP_BITS;
        return next >> TB_FORM_ZEROS_MAX;
    }
    *at += zeros + 1 + k;
    return zeros << k | (next >> (zeros + 1) & ((1u << k) - 1));
}

TB_DEVICE uint32_t tb_code_amount(const struct tb_bits_in *r, uint32_t k, uint32_t width, uint32_t *at)
{
    const uint64_t next = tb_bits_peek64(r, *at);
    const uint32_t zeros = tb_lowest_bit32((uint32_t)next | 1u << TB_FORM_ZEROS_MAX);
    if (zeros == TB_FORM_ZEROS_MAX) {
        *at += TB_FORM_ZEROS_MAX + 8 * width;
        return (uint32_t)(next >> TB_FORM_ZEROS_MAX & (((uint64_t)1 << 8 * width) - 1));
    }
    *at += zeros + 1 + k;
    return zeros << k | (uint32_t)(next >> (zeros + 1) & (((uint64_t)1 << k) - 1));
}

/* ---- a list of codes, by one warp ---- */

/* What its numbers are. */
enum tb_list_of {
    TB_LIST_MARKS,  /* gaps between members */
    TB_LIST_PLACES, /* gaps between changes */
    TB_LIST_AMOUNTS
};

struct tb_list {
    uint32_t count, k;
    uint32_t short_gaps; /* a damaged gap of more than 16 bits loses the upper ones */
    uint32_t room;       /* places */
    uint32_t word;       /* of marks */
    uint32_t width;      /* of elements */
    uint16_t *places;
    uint32_t *amounts;
};

#define TB_BEHIND_MAX (2 * TB_KERNEL_SECTION) /* more is as bad */

TB_DEVICE uint32_t tb_list_number(const struct tb_bits_in *r, const struct tb_list *l, enum tb_list_of of,
                                  uint32_t *at)
{
    if (of == TB_LIST_AMOUNTS) return tb_code_amount(r, l->k, l->width, at);
    const uint32_t gap = tb_code_gap(r, l->k, at);
    return l->short_gaps ? gap & 0xffff : gap;
}

/* The codes that begin in a lane's part: how many, and by how much they lead on. */
struct tb_part {
    uint32_t begin, end, limit; /* end: where the next lane begins */
    uint32_t count, steps;
};

TB_DEVICE void tb_part_walk(const struct tb_bits_in *r, const struct tb_list *l, enum tb_list_of of,
                            struct tb_part *p)
{
    uint32_t at = p->begin, count = 0, steps = 0;
    while (at < p->limit) {
        const uint32_t number = tb_list_number(r, l, of, &at);
        count++;
        if (of != TB_LIST_AMOUNTS) steps += number + 1;
        if (of != TB_LIST_AMOUNTS && steps > TB_BEHIND_MAX) steps = TB_BEHIND_MAX;
    }
    p->end = at;
    p->count = count;
    p->steps = steps;
}

/* As if each began where the one before it ends. */
TB_DEVICE void tb_parts_join(const struct tb_block *b, const struct tb_bits_in *r, const struct tb_list *l,
                             enum tb_list_of of, struct tb_part *p)
{
    const uint32_t lane = tb_lane(b);
    tb_part_walk(r, l, of, p);
    for (;;) {
        const uint32_t before = tb_warp_from(b, p->end, lane == 0 ? 0 : lane - 1);
        const int moves = lane > 0 && before != p->begin;
        if (tb_warp_vote(b, moves) == 0) return;
        if (!moves) continue;
        p->begin = before;
        tb_part_walk(r, l, of, p);
    }
}

struct tb_list_at {
    uint32_t done, behind; /* numbers; places up to the last, it included */
};

/* The numbers of a part, at most `count`, from number `i` on. 0: one leads too far. */
TB_DEVICE int tb_part_take(const struct tb_bits_in *r, struct tb_patch_shared *sh, const struct tb_list *l,
                           enum tb_list_of of, struct tb_part *p, uint32_t count, struct tb_list_at *at)
{
    uint32_t bit = p->begin;
    for (uint32_t end = at->done + count; at->done < end; at->done++) {
        const uint32_t number = tb_list_number(r, l, of, &bit);
        if (of == TB_LIST_AMOUNTS) {
            l->amounts[l->places[at->done]] = number + 2;
            continue;
        }
        const uint32_t before = at->behind;
        at->behind += number + 1;
        if (at->behind > l->room || at->behind <= before) return 0;
        if (of == TB_LIST_PLACES) {
            l->places[at->done] = (uint16_t)(at->behind - 1);
            continue;
        }
        const uint32_t word = (at->behind - 1) / 32;
        if (before == 0 || (before - 1) / 32 != word) sh->before[l->word + word] = (uint16_t)at->done;
        tb_or32(&sh->marks[l->word + word], 1u << (at->behind - 1) % 32);
    }
    p->end = bit;
    return 1;
}

/* All lanes of the warp. The places up to the last one, it included; 0: damaged. Of amounts, not
 * 0. */
TB_DEVICE uint32_t tb_list_read(const struct tb_block *b, struct tb_patch_shared *sh, struct tb_bits_in *r,
                                const struct tb_list *l, enum tb_list_of of)
{
    const uint32_t lane = tb_lane(b), lanes = tb_lanes(b);
    struct tb_list_at at;
    at.done = at.behind = 0;
    while (at.done < l->count) {
        const uint32_t left = l->count - at.done, each = ((left + lanes - 1) / lanes) * (l->k + 2);
        struct tb_part p;
        p.begin = r->at + lane * each;
        p.limit = p.begin + each;
        tb_parts_join(b, r, l, of, &p);
        const uint32_t counts = tb_warp_upto(b, p.count), steps = tb_warp_upto(b, p.steps);
        const uint32_t before = counts - p.count;
        struct tb_list_at mine;
        mine.done = at.done + before;
        mine.behind = at.behind + steps - p.steps;
        const uint32_t take = before >= left ? 0 : p.count < left - before ? p.count : left - before;
        const int fine = take == 0 || tb_part_take(r, sh, l, of, &p, take, &mine);
        if (tb_warp_vote(b, !fine) != 0) return 0;
        /* The last lane that took some; the first one takes some always. */
        const uint32_t takers = tb_warp_vote(b, take > 0), last = tb_bit_length(takers) - 1;
        at.done = tb_warp_from(b, mine.done, last);
        at.behind = tb_warp_from(b, mine.behind, last);
        r->at = tb_warp_from(b, p.end, last);
    }
    tb_warp_sync(b);
    return of == TB_LIST_AMOUNTS ? 1 : at.behind;
}

/* ---- a section's codes, by one warp ---- */

/* Those that are neither 1 nor -1. 0: damaged. */
TB_DEVICE int tb_odd_read(const struct tb_block *b, struct tb_patch_shared *sh, struct tb_bits_in *r,
                          struct tb_sparse_scratch *scratch, const struct tb_section *s,
                          struct tb_class_found *f)
{
    struct tb_list l;
    l.count = tb_bits_get_count(r);
    f->odd = l.count > 0;
    if (l.count == 0) return 1;
    if (l.count > f->count) return 0;
    for (uint32_t i = tb_lane(b); i < f->count; i += tb_lanes(b))
        scratch->differences[f->first + i] = 1;
    l.k = tb_bits_get(r, TB_FORM_GAP_K_BITS);
    l.short_gaps = 1;
    l.room = f->count;
    l.word = 0;
    l.width = s->width;
    l.places = scratch->odd;
    l.amounts = scratch->differences + f->first;
    if (tb_list_read(b, sh, r, &l, TB_LIST_PLACES) == 0) return 0;
    l.k = tb_bits_get(r, TB_FORM_AMOUNT_K_BITS);
    return tb_list_read(b, sh, r, &l, TB_LIST_AMOUNTS) != 0;
}

/* 0: damaged. */
TB_DEVICE int tb_class_read(const struct tb_block *b, struct tb_patch_shared *sh, struct tb_bits_in *r,
                            struct tb_sparse_scratch *scratch, const struct tb_section *s,
                            struct tb_class_found *f)
{
    f->count = tb_bits_get_count(r);
    f->odd = f->behind = f->signs = 0;
    if (f->count == 0) return 1;
    if (f->count > s->count - f->first) return 0;
    struct tb_list l;
    l.count = f->count;
    l.k = tb_bits_get(r, TB_FORM_GAP_K_BITS);
    l.short_gaps = sh->classes > 1;
    l.room = 32 * (TB_MARK_WORDS - f->word);
    l.room = l.room < s->count ? l.room : s->count;
    l.word = f->word;
    l.width = s->width;
    l.places = 0;
    l.amounts = 0;
    f->behind = tb_list_read(b, sh, r, &l, TB_LIST_MARKS);
    if (f->behind == 0) return 0;
    f->signs = r->at;
    r->at += f->count;
    return tb_odd_read(b, sh, r, scratch, s, f);
}

/* 0: damaged. */
TB_DEVICE int tb_section_read(const struct tb_block *b, struct tb_patch_shared *sh, struct tb_bits_in *r,
                              struct tb_sparse_scratch *scratch, const struct tb_section *s)
{
    struct tb_class_found f;
    f.first = f.word = 0;
    for (uint32_t c = 0; c < sh->classes; c++) {
        if (f.word >= TB_MARK_WORDS || !tb_class_read(b, sh, r, scratch, s, &f)) return 0;
        if (tb_lane(b) == 0) sh->found[c] = f;
        f.first += f.count;
        f.word += (f.behind + 31) / 32;
    }
    return r->at <= 8 * r->end;
}

/* ---- a section's elements, by all threads ---- */

/* Where they are written, and what by. */
struct tb_patch_to {
    uint8_t *elements;
    const struct tb_sparse_scratch *scratch;
    const uint8_t *in; /* the form's bits */
};

/* Change number `index` of the class. */
TB_DEVICE void tb_change_apply(const struct tb_patch_to *to, const struct tb_section *s,
                               const struct tb_class_found *f, uint32_t element, uint32_t index)
{
    const uint32_t bit = f->signs + index, negative = to->in[bit / 8] >> bit % 8 & 1;
    const uint32_t amount = f->odd ? to->scratch->differences[f->first + index] : 1;
    const uint32_t was = tb_element_load(to->elements, s->width, element);
    tb_element_store(to->elements, s->width, element, negative ? was - amount : was + amount);
}

/* Ranks are places. */
TB_DEVICE void tb_section_apply_plain(const struct tb_block *b, const struct tb_patch_shared *sh,
                                      const struct tb_section *s, const struct tb_patch_to *to)
{
    const struct tb_class_found f = sh->found[0];
    for (uint32_t w = b->thread; 32 * w < f.behind; w += b->threads) {
        uint32_t index = sh->before[w];
        for (uint32_t left = sh->marks[w]; left != 0; left &= left - 1, index++)
            tb_change_apply(to, s, &f, 32 * w + tb_lowest_bit32(left), index);
    }
}

/* The marked ones of the group's members of class c. */
TB_DEVICE void tb_group_apply(const struct tb_block *b, const struct tb_patch_shared *sh,
                              const struct tb_section *s, const struct tb_patch_to *to, uint32_t element,
                              uint32_t c)
{
    const struct tb_class_found *f = &sh->found[c];
    const uint32_t members = sh->ranks.members[c][b->thread], rank = tb_group_rank(b, &sh->ranks, c);
    if (rank >= f->behind || members == 0) return;
    const uint32_t first = 32 * f->word + rank, word = first / 32;
    const uint32_t all = tb_count_bits32(members), left = f->behind - rank, count = all < left ? all : left;
    uint32_t marked = tb_funnel(sh->marks[word], sh->marks[word + 1], first % 32) & tb_low_bits(count);
    for (; marked != 0; marked &= marked - 1) {
        const uint32_t i = tb_lowest_bit32(marked), at = first + i;
        const uint32_t index =
            sh->before[at / 32] + tb_count_bits32(sh->marks[at / 32] & ((1u << at % 32) - 1));
        tb_change_apply(to, s, f, element + tb_bit_at(members, i), index);
    }
}

/* 0: a change is behind the last member. */
TB_DEVICE int tb_section_apply(const struct tb_block *b, struct tb_patch_shared *sh,
                               const struct tb_section *s, const struct tb_patch_to *to)
{
    if (sh->classes == 1) {
        tb_section_apply_plain(b, sh, s, to);
        return 1;
    }
    tb_ranks_begin(b, &sh->ranks);
    for (uint32_t tile = 0; tile * tb_tile_elements(b) < s->count; tile++) {
        const uint32_t first = tb_group_look(b, &sh->ranks, s, sh->bounds, sh->classes, tile);
        for (uint32_t c = 0; c < sh->classes; c++)
            tb_group_apply(b, sh, s, to, first, c);
    }
    int fine = 1;
    for (uint32_t c = 0; c < sh->classes; c++)
        fine = fine && sh->found[c].behind <= sh->ranks.behind[tb_warp(b)][c];
    return fine;
}

/* 0: damaged; the same for all threads. */
TB_DEVICE int tb_section_patch(const struct tb_block *b, struct tb_patch_shared *sh,
                               struct tb_sparse_scratch *scratch, const struct tb_section *s,
                               uint8_t *elements, struct tb_bits_in *r)
{
    for (uint32_t i = b->thread; i <= TB_MARK_WORDS; i += b->threads)
        sh->marks[i] = 0;
    tb_block_sync(b);
    if (tb_warp(b) == 0) {
        const int read = tb_section_read(b, sh, r, scratch, s);
        if (b->thread == 0) sh->bad = !read;
    }
    tb_block_sync(b);
    struct tb_patch_to to;
    to.elements = elements;
    to.scratch = scratch;
    to.in = r->in;
    const int fine = !sh->bad && tb_section_apply(b, sh, s, &to);
    tb_block_sync(b); /* before it is written again */
    return fine;
}

/* ---- a chunk ---- */

/* Kind, classes and bounds into sh. 0: not such a form. */
TB_DEVICE int tb_form_read_head(const struct tb_patch_job *job, struct tb_patch_shared *sh)
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
    sh->kind = kind;
    return 1;
}

/* Nothing is left but the zeros that fill the last byte. */
TB_DEVICE int tb_bits_ended(const struct tb_bits_in *r)
{
    if (r->at > 8 * r->end) return 0;
    const uint32_t left = 8 * r->end - r->at;
    return left < 8 && (left == 0 || r->in[r->end - 1] >> (8 - left) == 0);
}

/* From byte `head` of the form on. */
TB_DEVICE struct tb_bits_in tb_form_bits(const struct tb_patch_job *job, uint32_t head)
{
    struct tb_bits_in r;
    const uint32_t lead = (uint32_t)((uint64_t)(job->form + head) & 3); /* no more than the header */
    r.in = job->form + head - lead;
    r.end = (uint32_t)(job->form_count - head) + lead;
    r.at = 8 * lead;
    return r;
}

/* 0: damaged; the thread that reads knows. */
TB_DEVICE int tb_sections_patch(const struct tb_block *b, struct tb_patch_shared *sh,
                                struct tb_sparse_scratch *scratch, const struct tb_patch_job *job,
                                struct tb_bits_in *r)
{
    const uint32_t kind = sh->kind, width = tb_kind_width(kind);
    const uint32_t count = (uint32_t)(job->count / width);
    for (uint32_t at = 0; at < count; at += TB_KERNEL_SECTION) {
        uint8_t *elements = job->bytes + (uint64_t)width * at;
        struct tb_section s;
        s.base = s.bytes = elements;
        s.count = count - at < TB_KERNEL_SECTION ? count - at : TB_KERNEL_SECTION;
        s.kind = kind;
        s.width = width;
        if (!tb_section_patch(b, sh, scratch, &s, elements, r)) return 0;
    }
    return 1;
}

TB_DEVICE void tb_kernel_patch(const struct tb_block *b, struct tb_patch_shared *sh,
                               struct tb_sparse_scratch *scratch, struct tb_patch_job *job)
{
    if (b->thread == 0) sh->bad = !tb_form_read_head(job, sh);
    tb_block_sync(b);
    int fine = !sh->bad;
    tb_block_sync(b); /* all have read */
    if (fine) {
        const uint32_t tail = (uint32_t)(job->count % tb_kind_width(sh->kind)),
                       head = TB_FORM_HEADER_BYTES + sh->classes - 1 + tail;
        struct tb_bits_in r = tb_form_bits(job, head);
        fine = tb_sections_patch(b, sh, scratch, job, &r) && tb_bits_ended(&r);
        for (uint32_t i = 0; i < tail && fine && b->thread == 0; i++)
            job->bytes[job->count - tail + i] = job->form[head - tail + i];
    }
    if (b->thread == 0) job->ok = (uint32_t)fine;
    tb_block_sync(b);
}

#endif
