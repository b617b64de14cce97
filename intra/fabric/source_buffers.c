/* source_buffers.c - which buffers of an export a source's tables name. */
#include <stdlib.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "intra/transport/transport.h"

static void note(uint32_t *list, uint32_t *count, uint32_t buffer)
{
    if (*count > 0 && list[*count - 1] == buffer) return; /* most tables name one buffer over and over */
    list[(*count)++] = buffer;
}

static int by_number(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static uint32_t sort_unique(uint32_t *list, uint32_t count)
{
    uint32_t kept = 0;
    qsort(list, count, sizeof *list, by_number);
    for (uint32_t i = 0; i < count; i++)
        if (kept == 0 || list[kept - 1] != list[i]) list[kept++] = list[i];
    return kept;
}

static uint32_t note_source(uint32_t *list, uint32_t count, const struct tb_source_shard *s)
{
    if (s->held_buffer != TB_SOURCE_ALL_HELD) note(list, &count, s->held_buffer);
    note(list, &count, s->packed_buffer);
    for (uint32_t t = 0; t < s->tensor_count; t++)
        note(list, &count, s->tensors[t].buffer);
    for (uint32_t k = 0; k < s->encoded_count; k++)
        if (s->encoded_chunks[k].codec != 0) note(list, &count, s->encoded_chunks[k].buffer);
    return count;
}

enum tb_status tb_source_buffers(const struct tb_source_shard *const *sources, uint32_t source_count,
                                 uint32_t **buffers_out, uint32_t *count_out)
{
    uint64_t cap = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < source_count; i++)
        cap += 2u + (uint64_t)sources[i]->tensor_count + sources[i]->encoded_count;
    uint32_t *list = tb_calloc(cap, sizeof *list);
    if (list == NULL) return TB_SITE_NOMEM;
    for (uint32_t i = 0; i < source_count; i++)
        count = note_source(list, count, sources[i]);
    TB_ASSERT(count <= cap);
    *buffers_out = list;
    *count_out = sort_unique(list, count);
    return TB_OK;
}
