#include "intra/client/memory/stretches.h"

#include <stdlib.h>

#include "base/allocate.h"
#include "base/assert.h"

struct piece {
    uintptr_t at;
    uint64_t bytes;
    uint32_t number;
};

static int by_address(const void *a, const void *b)
{
    const uintptr_t x = ((const struct piece *)a)->at, y = ((const struct piece *)b)->at;
    return x < y ? -1 : x > y;
}

static uint32_t sort_pieces(const struct tb_stretch *pieces, uint32_t count, struct piece *sorted)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < count; i++)
        if (pieces[i].bytes > 0) sorted[used++] = (struct piece){(uintptr_t)pieces[i].at, pieces[i].bytes, i};
    qsort(sorted, used, sizeof *sorted, by_address);
    return used;
}

static void join(const struct tb_stretch *pieces, const struct piece *sorted, uint32_t used,
                 struct tb_stretches *s)
{
    uintptr_t end = 0;
    for (uint32_t i = 0; i < used; i++) {
        const struct piece *p = &sorted[i];
        if (s->count == 0 || p->at > end) {
            s->list[s->count++] = (struct tb_stretch){.at = pieces[p->number].at};
            end = p->at;
        }
        struct tb_stretch *last = &s->list[s->count - 1];
        if (p->at + p->bytes > end) end = p->at + p->bytes;
        last->bytes = end - (uintptr_t)last->at;
        s->of[p->number] = s->count - 1;
        TB_ASSERT(last->bytes >= p->bytes);
    }
}

enum tb_status tb_stretches_make(const struct tb_stretch *pieces, uint32_t count,
                                 struct tb_stretches *stretches_out)
{
    struct tb_stretches s = {.list = tb_calloc((size_t)count + 1, sizeof *s.list),
                             .of = tb_calloc((size_t)count + 1, sizeof *s.of)};
    struct piece *sorted = tb_calloc((size_t)count + 1, sizeof *sorted);
    if (s.list == NULL || s.of == NULL || sorted == NULL) {
        tb_stretches_free(&s);
        tb_free(sorted);
        return TB_SITE_NOMEM;
    }
    for (uint32_t i = 0; i < count; i++)
        s.of[i] = TB_STRETCH_NONE;
    join(pieces, sorted, sort_pieces(pieces, count, sorted), &s);
    tb_free(sorted);
    *stretches_out = s;
    return TB_OK;
}

void tb_stretches_free(struct tb_stretches *s)
{
    tb_free(s->list);
    tb_free(s->of);
    *s = (struct tb_stretches){.count = 0};
}
