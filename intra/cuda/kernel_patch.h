/* kernel_patch.h - a sparse form (base/codec/sparse.h, docs/protocol.md) written over its base by
 * one block of threads; it takes any form that base/codec/sparse.c takes, and no other. The text of
 * kernels: include kernel_words_*.h first.
 *
 * Of each section first one warp reads the codes. Where a code begins is known when the one before
 * it is read; so each lane begins somewhere, and again where the lane before it has ended, until no
 * lane's beginning moves. Rice codes fall in step after a few, so twice is mostly enough. They say
 * ranks in classes. Then all threads find which of the elements have them: a warp knows
 * which ranks its elements have, so its lanes take one change each. */
#ifndef TB_INTRA_KERNEL_PATCH_H
#define TB_INTRA_KERNEL_PATCH_H

#include "intra/cuda/kernel_sparse.h"

struct tb_class_found {
    uint32_t count;  /* of changes */
    uint32_t behind; /* members up to the last change, it included */
    uint32_t first;  /* of its changes in scratch */
    uint32_t signs;  /* bits of the form */
    uint32_t odd;    /* of them: neither 1 nor -1 */
};

struct tb_patch_shared {
    struct tb_ranks_shared ranks;
    struct tb_class_found found[TB_KERNEL_CLASSES_MAX];
    /* Which changes of each class a warp's elements have. */
    uint32_t from[TB_WARPS_MAX][TB_KERNEL_CLASSES_MAX];
    uint32_t upto[TB_WARPS_MAX][TB_KERNEL_CLASSES_MAX];
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

struct tb_list {
    uint32_t count, k;
    uint32_t short_gaps; /* a damaged gap of more than 16 bits loses the upper ones */
    uint32_t room;       /* places */
    uint32_t width;      /* of elements */
    uint16_t *places;
    uint32_t *amounts; /* of the places; NULL: the places are read */
};

#define TB_BEHIND_MAX (2 * TB_KERNEL_SECTION) /* more is as bad */

TB_DEVICE uint32_t tb_list_number(const struct tb_bits_in *r, const struct tb_list *l, uint32_t *at)
{
    if (l->amounts != 0) return tb_code_amount(r, l->k, l->width, at);
    const uint32_t gap = tb_code_gap(r, l->k, at);
    return l->short_gaps ? gap & 0xffff : gap;
}

/* The codes that begin in a lane's part: how many, and by how much they lead on. */
struct tb_part {
    uint32_t begin, end, limit; /* end: where the next lane begins */
    uint32_t count, steps;
};

TB_DEVICE void tb_part_walk(const struct tb_bits_in *r, const struct tb_list *l, struct tb_part *p)
{
    uint32_t at = p->begin, count = 0, steps = 0;
    while (at < p->limit) {
        const uint32_t number = tb_list_number(r, l, &at);
        count++;
        if (l->amounts == 0) steps += number + 1;
        if (l->amounts == 0 && steps > TB_BEHIND_MAX) steps = TB_BEHIND_MAX;
    }
    p->end = at;
    p->count = count;
    p->steps = steps;
}

/* As if each began where the one before it ends. */
TB_DEVICE void tb_parts_join(const struct tb_block *b, const struct tb_bits_in *r, const struct tb_list *l,
                             struct tb_part *p)
{
    const uint32_t lane = tb_lane(b);
    tb_part_walk(r, l, p);
    for (;;) {
        const uint32_t before = tb_warp_from(b, p->end, lane == 0 ? 0 : lane - 1);
        const int moves = lane > 0 && before != p->begin;
        if (tb_warp_vote(b, moves) == 0) return;
        if (!moves) continue;
        p->begin = before;
        tb_part_walk(r, l, p);
    }
}

struct tb_list_at {
    uint32_t done, behind; /* numbers; places up to the last, it included */
};

/* The first `count` numbers of a part. 0: one leads too far. */
TB_DEVICE int tb_part_take(const struct tb_bits_in *r, const struct tb_list *l, struct tb_part *p,
                           uint32_t count, struct tb_list_at *at)
{
    uint32_t bit = p->begin;
    for (uint32_t end = at->done + count; at->done < end; at->done++) {
        const uint32_t number = tb_list_number(r, l, &bit);
        if (l->amounts != 0) {
            l->amounts[l->places[at->done]] = number + 2;
            continue;
        }
        at->behind += number + 1;
        if (at->behind > l->room) return 0;
        l->places[at->done] = (uint16_t)(at->behind - 1);
    }
    p->end = bit;
    return 1;
}

/* All lanes of the warp. The places up to the last one, it included; 0: damaged. Of amounts, not
 * 0. */
TB_DEVICE uint32_t tb_list_read(const struct tb_block *b, struct tb_bits_in *r, const struct tb_list *l)
{
    const uint32_t lane = tb_lane(b), lanes = tb_lanes(b);
    struct tb_list_at at;
    at.done = at.behind = 0;
    while (at.done < l->count) {
        const uint32_t left = l->count - at.done, each = ((left + lanes - 1) / lanes) * (l->k + 2);
        struct tb_part p;
        p.begin = r->at + lane * each;
        p.limit = p.begin + each;
        tb_parts_join(b, r, l, &p);
        const uint32_t counts = tb_warp_upto(b, p.count), steps = tb_warp_upto(b, p.steps);
        const uint32_t before = counts - p.count;
        struct tb_list_at mine;
        mine.done = at.done + before;
        mine.behind = at.behind + steps - p.steps;
        const uint32_t take = before >= left ? 0 : p.count < left - before ? p.count : left - before;
        const int fine = take == 0 || tb_part_take(r, l, &p, take, &mine);
        if (tb_warp_vote(b, !fine) != 0) return 0;
        /* The last lane that took some; the first one takes some always. */
        const uint32_t takers = tb_warp_vote(b, take > 0), last = tb_bit_length(takers) - 1;
        at.done = tb_warp_from(b, mine.done, last);
        at.behind = tb_warp_from(b, mine.behind, last);
        r->at = tb_warp_from(b, p.end, last);
    }
    tb_warp_sync(b);
    return l->amounts != 0 ? 1 : at.behind;
}

/* ---- a section's codes, by one warp ---- */

/* The amounts of those that are neither 1 nor -1: `odd` of the `count` changes whose amounts are
 * `amounts`. The bit behind them; 0: damaged. */
TB_DEVICE_APART uint32_t tb_odd_read(struct tb_block b, struct tb_bits_in r, uint32_t odd, uint32_t count,
                                     uint32_t width, uint16_t *places, uint32_t *amounts)
{
    for (uint32_t i = tb_lane(&b); i < count; i += tb_lanes(&b))
        amounts[i] = 1;
    struct tb_list l;
    l.count = odd;
    l.k = tb_bits_get(&r, TB_FORM_GAP_K_BITS);
    l.short_gaps = 1;
    l.room = count;
    l.width = width;
    l.places = places;
    l.amounts = 0;
    if (tb_list_read(&b, &r, &l) == 0) return 0;
    l.k = tb_bits_get(&r, TB_FORM_AMOUNT_K_BITS);
    l.amounts = amounts;
    return tb_list_read(&b, &r, &l) != 0 ? r.at : 0;
}

/* 0: damaged. */
TB_DEVICE int tb_class_read(const struct tb_block *b, const struct tb_patch_shared *sh, struct tb_bits_in *r,
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
    l.room = s->count;
    l.width = s->width;
    l.places = scratch->places + f->first;
    l.amounts = 0;
    f->behind = tb_list_read(b, r, &l);
    if (f->behind == 0) return 0;
    f->signs = r->at;
    r->at += f->count;
    f->odd = tb_bits_get_count(r);
    if (f->odd == 0) return 1;
    if (f->odd > f->count) return 0;
    r->at = tb_odd_read(*b, *r, f->odd, f->count, s->width, scratch->odd, scratch->differences + f->first);
    return r->at != 0;
}

/* 0: damaged. */
TB_DEVICE int tb_section_read(const struct tb_block *b, struct tb_patch_shared *sh, struct tb_bits_in *r,
                              struct tb_sparse_scratch *scratch, const struct tb_section *s)
{
    struct tb_class_found f;
    f.first = 0;
    for (uint32_t c = 0; c < sh->classes; c++) {
        if (!tb_class_read(b, sh, r, scratch, s, &f)) return 0;
        if (tb_lane(b) == 0) sh->found[c] = f;
        f.first += f.count;
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

/* How many of the class's changes have ranks below `rank`. */
TB_DEVICE uint32_t tb_changes_below(const struct tb_patch_to *to, const struct tb_class_found *f,
                                    uint32_t rank)
{
    uint32_t low = 0, high = f->count;
    if (rank >= f->behind) return f->count;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (to->scratch->places[f->first + middle] < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Those of the warp's tile. How many. */
TB_DEVICE uint32_t tb_warp_changes(const struct tb_block *b, struct tb_patch_shared *sh,
                                   const struct tb_patch_to *to)
{
    const uint32_t warp = tb_warp(b);
    for (uint32_t i = tb_lane(b); i < 2 * sh->classes; i += tb_lanes(b)) {
        const uint32_t c = i / 2, start = sh->ranks.start[warp][c];
        if (i % 2 == 0)
            sh->from[warp][c] = tb_changes_below(to, &sh->found[c], start);
        else
            sh->upto[warp][c] = tb_changes_below(to, &sh->found[c], start + sh->ranks.count[warp][c]);
    }
    tb_warp_sync(b);
    uint32_t all = 0;
    for (uint32_t c = 0; c < sh->classes; c++)
        all += sh->upto[warp][c] - sh->from[warp][c];
    return all;
}

/* Number i of the warp's changes. */
TB_DEVICE void tb_warp_change(const struct tb_block *b, const struct tb_patch_shared *sh,
                              const struct tb_section *s, const struct tb_patch_to *to, uint32_t first,
                              uint32_t i)
{
    const uint32_t warp = tb_warp(b), lanes = tb_lanes(b);
    uint32_t c = 0;
    for (; i >= sh->upto[warp][c] - sh->from[warp][c]; c++)
        i -= sh->upto[warp][c] - sh->from[warp][c];
    const struct tb_class_found *f = &sh->found[c];
    const uint32_t index = sh->from[warp][c] + i;
    const uint32_t rank = to->scratch->places[f->first + index] - sh->ranks.start[warp][c];
    /* The last lane before which there are no more members than that. */
    const uint32_t *before = sh->ranks.before[c / 2] + warp * lanes, shift = 16 * (c % 2);
    uint32_t low = 0, high = lanes;
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if ((before[middle] >> shift & 0xffff) <= rank)
            low = middle;
        else
            high = middle;
    }
    const uint32_t at =
        tb_bit_at(sh->ranks.members[c][warp * lanes + low], rank - (before[low] >> shift & 0xffff));
    tb_change_apply(to, s, f, first + TB_GROUP * low + at, index);
}

/* All classes, tile by tile. 0: a change is behind the last member. */
TB_DEVICE int tb_section_apply_classes(const struct tb_block *b, struct tb_patch_shared *sh,
                                       const struct tb_section *s, const struct tb_patch_to *to)
{
    tb_ranks_begin(b, &sh->ranks);
    for (uint32_t tile = 0; tile * tb_tile_elements(b) < s->count; tile++) {
        const uint32_t mine = tb_group_look(b, &sh->ranks, s, sh->bounds, sh->classes, tile);
        const uint32_t first = mine - TB_GROUP * tb_lane(b), all = tb_warp_changes(b, sh, to);
        for (uint32_t i = tb_lane(b); i < all; i += tb_lanes(b))
            tb_warp_change(b, sh, s, to, first, i);
        tb_warp_sync(b); /* others have read of this lane's group */
    }
    int fine = 1;
    for (uint32_t c = 0; c < sh->classes; c++)
        fine = fine && sh->found[c].behind <= sh->ranks.behind[tb_warp(b)][c];
    return fine;
}

/* Where all are of one class, ranks are places. */
TB_DEVICE int tb_section_apply(const struct tb_block *b, struct tb_patch_shared *sh,
                               const struct tb_section *s, const struct tb_patch_to *to)
{
    if (sh->classes > 1) return tb_section_apply_classes(b, sh, s, to);
    const struct tb_class_found f = sh->found[0];
    for (uint32_t i = b->thread; i < f.count; i += b->threads)
        tb_change_apply(to, s, &f, to->scratch->places[i], i);
    return 1;
}

/* 0: damaged; the same for all threads. */
TB_DEVICE int tb_section_patch(const struct tb_block *b, struct tb_patch_shared *sh,
                               struct tb_sparse_scratch *scratch, const struct tb_section *s,
                               uint8_t *elements, struct tb_bits_in *r)
{
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
