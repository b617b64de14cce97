/* damage_reports.c - a ring of the last looks. */
#include "base/damage_reports.h"

#include "base/assert.h"

static bool is_recent(const struct tb_doubt *before, tb_time_ns now)
{
    return before->at != 0 && tb_time_since(before->at, now) < TB_DOUBTS_EVERY;
}

static bool is_same_chunk(const struct tb_doubt *a, const struct tb_doubt *b)
{
    return a->holder == b->holder && a->shard == b->shard && a->chunk == b->chunk &&
           tb_id_equal(&a->uid, &b->uid);
}

bool tb_doubts_take(struct tb_doubts *d, const struct tb_doubt *doubt)
{
    uint32_t of_reporter = 0;
    TB_ASSERT(doubt->at > 0 && d->next < TB_DOUBTS_MAX); /* 0 is a place without a look */
    for (uint32_t i = 0; i < TB_DOUBTS_MAX; i++) {
        const struct tb_doubt *before = &d->last[i];
        if (!is_recent(before, doubt->at)) continue;
        if (is_same_chunk(before, doubt)) return false;
        of_reporter += before->reporter == doubt->reporter;
    }
    TB_ASSERT(of_reporter <= TB_DOUBTS_EACH);
    if (of_reporter >= TB_DOUBTS_EACH || is_recent(&d->last[d->next], doubt->at)) return false;
    d->last[d->next] = *doubt;
    d->next = (d->next + 1) % TB_DOUBTS_MAX;
    return true;
}
