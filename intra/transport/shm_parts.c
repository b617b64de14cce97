#include "intra/transport/shm_parts.h"

#include "base/assert.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/transport/transport.h"

void tb_shm_parts_divide(struct tb_shm_parts *p, const struct tb_upstream_options *upstream,
                         const struct tb_shm_parts_limits *limits)
{
    TB_ASSERT(limits->align > 0 && limits->least <= TB_SHM_PARTS_MAX);
    uint64_t most = 1, chunks = 0;
    for (uint32_t i = 0; i < upstream->source_count; i++) {
        const struct tb_manifest *m = upstream->places[i]->manifest;
        chunks += m->chunk_count;
        for (uint32_t k = 0; k < m->chunk_count; k++)
            if (m->chunks[k].bytes > most) most = m->chunks[k].bytes;
    }
    p->each = (most + limits->align - 1) / limits->align * limits->align;
    uint64_t count = limits->room / p->each;
    if (count < limits->least) count = limits->least;
    if (count > TB_SHM_PARTS_MAX) count = TB_SHM_PARTS_MAX;
    if (count > chunks) count = chunks;
    p->count = (uint32_t)count;
}

uint64_t tb_shm_parts_bytes(const struct tb_shm_parts *p)
{
    return p->count * p->each;
}

static uint32_t unused(const struct tb_shm_parts *p)
{
    uint32_t i = 0;
    while (i < p->count && atomic_load(&p->used[i]))
        i++;
    return i;
}

bool tb_shm_parts_left(const struct tb_shm_parts *p)
{
    return unused(p) < p->count;
}

bool tb_shm_parts_take(struct tb_shm_parts *p, uint32_t *part_out)
{
    const uint32_t part = unused(p);
    if (part == p->count) return false;
    atomic_store(&p->used[part], true);
    *part_out = part;
    return true;
}

void tb_shm_parts_give_back(struct tb_shm_parts *p, uint32_t part)
{
    TB_ASSERT(part < p->count && atomic_load(&p->used[part]));
    atomic_store(&p->used[part], false);
}

uint64_t tb_shm_parts_at(const struct tb_shm_parts *p, uint32_t part)
{
    TB_ASSERT(part < p->count && atomic_load(&p->used[part]));
    return part * p->each;
}
