#include "intra/client/memory/tied_tensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"

struct range {
    uintptr_t at;
    uint64_t bytes;
    uint32_t index;
    uint32_t list;
};

static int by_place(const void *left, const void *right)
{
    const struct range *a = left, *b = right;
    if (a->at != b->at) return a->at < b->at ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* Those that stand somewhere, behind the ones that are there. */
static uint32_t add_ranges(struct range *ranges, uint32_t used, const struct tb_tied_list *list,
                           uint32_t number)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->memory[i] == NULL || list->tensors[i].bytes == 0) continue;
        ranges[used++] = (struct range){(uintptr_t)list->memory[i], list->tensors[i].bytes, i, number};
    }
    return used;
}

static uintptr_t end_of(const struct range *r)
{
    return r->at + r->bytes;
}

/* ---- in one registration ---- */

static bool tie(struct tb_tied *tied, const struct range *first, const struct range *other, uint32_t count)
{
    if (tied->first_of == NULL) {
        tied->first_of = tb_malloc(count * sizeof *tied->first_of);
        if (tied->first_of == NULL) return false;
        memset(tied->first_of, 0xff, count * sizeof *tied->first_of); /* TB_TIED_NONE */
    }
    TB_ASSERT(first->index != other->index && other->index < count && first->index < count);
    tied->first_of[other->index] = first->index;
    tied->count++;
    tied->bytes += other->bytes;
    return true;
}

static bool walk(struct tb_tied *tied, const struct range *ranges, uint32_t used, uint32_t count)
{
    const struct range *first = NULL, *widest = NULL;
    for (uint32_t i = 0; i < used; i++) {
        const struct range *r = &ranges[i];
        if (first != NULL && r->at == first->at && r->bytes == first->bytes) {
            if (!tie(tied, first, r, count)) return false;
            continue;
        }
        if (widest != NULL && r->at < end_of(widest) && tied->overlap[0] == TB_TIED_NONE) {
            tied->overlap[0] = widest->index;
            tied->overlap[1] = r->index;
        }
        first = r;
        if (widest == NULL || end_of(r) > end_of(widest)) widest = r;
    }
    return true;
}

enum tb_status tb_tied_find(const struct tb_tied_list *list, struct tb_tied *tied_out)
{
    struct tb_tied tied = {.overlap = {TB_TIED_NONE, TB_TIED_NONE}};
    struct range *ranges = tb_calloc((size_t)list->count + 1, sizeof *ranges);
    if (ranges == NULL) return TB_SITE_NOMEM;
    const uint32_t used = add_ranges(ranges, 0, list, 0);
    qsort(ranges, used, sizeof *ranges, by_place);
    const bool made = walk(&tied, ranges, used, list->count);
    tb_free(ranges);
    if (!made) return TB_SITE_NOMEM;
    *tied_out = tied;
    return TB_OK;
}

void tb_tied_free(struct tb_tied *tied)
{
    tb_free(tied->first_of);
    *tied = (struct tb_tied){0};
}

bool tb_tied_has(const struct tb_tied *tied, uint32_t i)
{
    return tied->first_of != NULL && tied->first_of[i] != TB_TIED_NONE;
}

bool tb_tied_equal(const struct tb_tied *a, const struct tb_tied *b, uint32_t count)
{
    if (a->count != b->count || a->first_of == NULL || b->first_of == NULL) return a->count == b->count;
    return memcmp(a->first_of, b->first_of, count * sizeof *a->first_of) == 0;
}

/* ---- between two ---- */

enum tb_status tb_tied_meet(const struct tb_tied_list *a, const struct tb_tied_list *b, uint32_t meet_out[2])
{
    struct range *ranges = tb_calloc((size_t)a->count + b->count + 1, sizeof *ranges);
    if (ranges == NULL) return TB_SITE_NOMEM;
    const uint32_t used = add_ranges(ranges, add_ranges(ranges, 0, a, 0), b, 1);
    qsort(ranges, used, sizeof *ranges, by_place);
    const struct range *widest[2] = {NULL, NULL};
    meet_out[0] = meet_out[1] = TB_TIED_NONE;
    for (uint32_t i = 0; i < used && meet_out[0] == TB_TIED_NONE; i++) {
        const struct range *r = &ranges[i], *other = widest[1 - r->list];
        if (other != NULL && r->at < end_of(other)) {
            meet_out[r->list] = r->index;
            meet_out[other->list] = other->index;
        }
        if (widest[r->list] == NULL || end_of(r) > end_of(widest[r->list])) widest[r->list] = r;
    }
    tb_free(ranges);
    return TB_OK;
}
