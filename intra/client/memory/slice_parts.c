#include "intra/client/memory/slice_parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/layout/layout.h"
#include "base/layout/tensor.h"

struct piece {
    struct tb_tensor *tensor;
    uint32_t slice;
};

struct numbering {
    struct tb_slice_parts *p;
    struct piece *pieces; /* by name, then by cut; later only those of names with several boxes */
    uint32_t several;     /* of those */
    uint32_t taken;       /* the largest part of the other names */
};

static int compare_u64(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static bool is_cut(const struct tb_tensor *t, uint32_t axis)
{
    return axis < t->rank && t->box_count[axis] != t->full[axis];
}

/* By the axes along which they have less than all. */
static int compare_cuts(const struct tb_tensor *a, const struct tb_tensor *b)
{
    for (uint32_t axis = 0; axis < TB_RANK_MAX; axis++) {
        if (is_cut(a, axis) != is_cut(b, axis)) return is_cut(a, axis) ? -1 : 1;
        if (!is_cut(a, axis)) continue;
        int order = compare_u64(a->box_first[axis], b->box_first[axis]);
        if (order == 0) order = compare_u64(a->box_count[axis], b->box_count[axis]);
        if (order == 0) order = compare_u64(a->full[axis], b->full[axis]);
        if (order != 0) return order;
    }
    return 0;
}

static int by_cut(const void *left, const void *right)
{
    return compare_cuts(((const struct piece *)left)->tensor, ((const struct piece *)right)->tensor);
}

static int by_name_and_cut(const void *left, const void *right)
{
    const int order =
        strcmp(((const struct piece *)left)->tensor->name, ((const struct piece *)right)->tensor->name);
    return order != 0 ? order : by_cut(left, right);
}

/* ---- the pieces of one name ---- */

/* Two that are equal and empty have nothing in common, and would be one box twice all the same. */
static bool overlap(const struct tb_tensor *a, const struct tb_tensor *b)
{
    if (compare_cuts(a, b) == 0) return true;
    for (uint32_t i = 0; i < a->rank; i++) {
        const uint64_t a_end = a->box_first[i] + a->box_count[i], b_end = b->box_first[i] + b->box_count[i];
        const uint64_t first = a->box_first[i] > b->box_first[i] ? a->box_first[i] : b->box_first[i];
        if ((a_end < b_end ? a_end : b_end) <= first) return false;
    }
    return true;
}

static bool refuse(struct numbering *n, enum tb_slice_parts_fault fault, const struct piece *a,
                   const struct piece *b)
{
    const bool in_order = a->slice < b->slice;
    n->p->fault = fault;
    n->p->slices[0] = in_order ? a->slice : b->slice;
    n->p->slices[1] = in_order ? b->slice : a->slice;
    return false;
}

static bool check_pair(struct numbering *n, const struct piece *a, const struct piece *b)
{
    const struct tb_tensor *x = a->tensor, *y = b->tensor;
    if (a->slice == b->slice) return true;
    if (!tb_tensor_dtype_equal(x, y) || x->rank != y->rank || memcmp(x->full, y->full, sizeof x->full) != 0)
        return refuse(n, TB_SLICE_PARTS_DIFFER, a, b);
    return !overlap(x, y) || refuse(n, TB_SLICE_PARTS_OVERLAP, a, b);
}

static bool check_name(struct numbering *n, const struct piece *first, uint32_t count)
{
    if (count > TB_PARTS_MAX) return refuse(n, TB_SLICE_PARTS_TOO_MANY, first, first);
    for (uint32_t i = 1; i < count; i++)
        for (uint32_t k = 0; k < i; k++)
            if (!check_pair(n, &first[k], &first[i])) return false;
    return true;
}

/* How many from there on have that name, and whether they are of several slices. */
static uint32_t name_at(const struct piece *first, uint32_t left, bool *several_out)
{
    uint32_t count = 0;
    *several_out = false;
    for (; count < left && strcmp(first[count].tensor->name, first->tensor->name) == 0; count++)
        *several_out |= first[count].slice != first->slice;
    return count;
}

/* Keeps those of names with several boxes. */
static bool sort_out(struct numbering *n)
{
    uint32_t count;
    bool several;
    for (uint32_t at = 0; at < n->p->count; at += count) {
        const struct piece *first = &n->pieces[at];
        count = name_at(first, n->p->count - at, &several);
        if (several) {
            if (!check_name(n, first, count)) return false;
            memmove(n->pieces + n->several, first, count * sizeof *first);
            n->several += count;
            TB_ASSERT(n->several <= n->p->count);
            continue;
        }
        for (uint32_t i = 0; i < count; i++)
            if (first[i].tensor->part > n->taken) n->taken = first[i].tensor->part;
    }
    return true;
}

/* ---- numbers ---- */

/* Each name's pieces for themselves: two names that are cut in different ways share numbers, and
 * chunks. */
static bool number_names(struct numbering *n)
{
    uint32_t count;
    bool several;
    for (uint32_t at = 0; at < n->several; at += count) {
        count = name_at(&n->pieces[at], n->several - at, &several);
        if (count > TB_PARTS_MAX - n->taken)
            return refuse(n, TB_SLICE_PARTS_TOO_MANY, &n->pieces[at], &n->pieces[at]);
        for (uint32_t i = 0; i < count; i++)
            n->pieces[at + i].tensor->part = (uint16_t)(n->taken + i + 1);
    }
    return true;
}

/* Over all names, as long as there are numbers. */
static void number_cuts(struct numbering *n)
{
    TB_ASSERT(n->taken <= TB_PARTS_MAX);
    uint32_t cuts = 0;
    qsort(n->pieces, n->several, sizeof *n->pieces, by_cut);
    for (uint32_t i = 0; i < n->several; i++)
        cuts += i == 0 || by_cut(&n->pieces[i - 1], &n->pieces[i]) != 0;
    if (cuts > TB_PARTS_MAX - n->taken) return;
    cuts = 0;
    for (uint32_t i = 0; i < n->several; i++) {
        cuts += i == 0 || by_cut(&n->pieces[i - 1], &n->pieces[i]) != 0;
        n->pieces[i].tensor->part = (uint16_t)(n->taken + cuts);
    }
}

enum tb_status tb_slice_parts_number(struct tb_slice_parts *p)
{
    struct numbering n = {.p = p};
    p->fault = TB_SLICE_PARTS_FINE;
    n.pieces = tb_calloc((size_t)p->count + 1, sizeof *n.pieces);
    if (n.pieces == NULL) return TB_SITE_NOMEM;
    for (uint32_t i = 0; i < p->count; i++)
        n.pieces[i] = (struct piece){&p->tensors[i], p->slice_of[i]};
    qsort(n.pieces, p->count, sizeof *n.pieces, by_name_and_cut);
    if (sort_out(&n) && number_names(&n)) number_cuts(&n);
    tb_free(n.pieces);
    return TB_OK;
}
