/* crossing_failure_log.c - see crossing_failure_log.h. */
#include "gateway/daemon/links/crossing_failure_log.h"

#include "base/assert.h"

bool tb_crossing_tell(struct tb_crossing_told *told, enum tb_crossing_line line, uint32_t peer,
                      enum tb_status why)
{
    TB_ASSERT(told->count <= TB_CROSSING_TOLD_MAX && told->next < TB_CROSSING_TOLD_MAX);
    TB_ASSERT(line >= TB_CROSSING_LINE_FAILED && line <= TB_CROSSING_LINE_OFFER_FAILED);
    for (uint32_t i = 0; i < told->count; i++) {
        const struct tb_crossing_told_row *r = &told->rows[i];
        if (r->line == line && r->peer == peer && r->why == why) return false;
    }
    told->rows[told->next] = (struct tb_crossing_told_row){line, peer, why};
    told->next = (told->next + 1) % TB_CROSSING_TOLD_MAX;
    if (told->count < TB_CROSSING_TOLD_MAX) told->count++;
    return true;
}

void tb_crossing_told_end(struct tb_crossing_told *told)
{
    told->count = told->next = 0;
}
