/* wait_rows.c - waits as rows: found by their handle, answered once, ended with their session. */
#include "gateway/catalog/rows/wait_rows.h"

#include "base/assert.h"
#include "gateway/catalog/rows/tables.h"

bool tb_wait_answered(const struct wait *w)
{
    return tb_table_marked(&w->row, TB_CATALOG_ANSWER);
}

void tb_wait_answer(struct tb_catalog *c, uint32_t wait, enum tb_status status)
{
    TB_ASSERT(!wait_at(c, wait)->row.dead && !tb_wait_answered(wait_at(c, wait)));
    wait_at(c, wait)->status = status;
    tb_table_mark(&c->waits, wait, TB_CATALOG_ANSWER);
}

uint32_t tb_wait_find(const struct tb_catalog *c, uint64_t handle)
{
    EACH(c->waits, i) if (wait_at(c, i)->q.handle == handle) return i;
    return NONE;
}

void tb_waits_end_session(struct tb_catalog *c, uint32_t session)
{
    EACH(c->waits, i) if (wait_at(c, i)->session == session) tb_table_free(&c->waits, i);
}

tb_time_ns tb_waits_deadline(const struct tb_catalog *c)
{
    tb_time_ns at = TB_TIME_NEVER;
    EACH(c->waits, i) if (!tb_wait_answered(wait_at(c, i))) at = tb_time_min(at, wait_at(c, i)->q.deadline);
    return at;
}
