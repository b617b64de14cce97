/* table_check.c - the free list, the list of rows with todos, and the counts of a table agree. */
#include "gateway/catalog/rows/table_check.h"

#include "base/assert.h"

static void check_free(const struct table *t)
{
    uint32_t count = 0;
    for (uint32_t i = t->free_first; i != NONE; i = tb_table_row(t, i)->next) {
        TB_ASSERT(!tb_table_row(t, i)->live);
        TB_ASSERT(++count <= t->high); /* a circle has no end */
    }
    TB_ASSERT(count == t->high - t->used);
}

static void check_row(const struct row *row)
{
    TB_ASSERT(row->dirty == (row->todos != 0));
    TB_ASSERT(!row->dead || (row->todos | row->held) != 0);
}

/* How many of the rows are in the list of rows with todos, as each says itself. */
static uint32_t check_rows(const struct table *t)
{
    uint32_t live = 0, dirty = 0, owned = 0;
    for (uint32_t i = 0; i < t->high; i++) {
        const struct row *row = tb_table_row(t, i);
        if (!row->live) continue;
        check_row(row);
        live++;
        dirty += row->dirty;
        owned += t->shares.places != NULL && row->owner != TB_SHARE_OURS;
    }
    TB_ASSERT(live == t->used);
    TB_ASSERT(owned == t->shares.used); /* each row is of one share, and counted there */
    return dirty;
}

static void check_dirty(const struct table *t, uint32_t dirty)
{
    uint32_t count = 0, last = NONE;
    for (uint32_t i = t->dirty_first; i != NONE; i = tb_table_row(t, i)->next) {
        const struct row *row = tb_table_row(t, i);
        TB_ASSERT(row->live && row->dirty);
        TB_ASSERT(row->previous == last);
        TB_ASSERT(++count <= dirty);
        last = i;
    }
    TB_ASSERT(t->dirty_last == last);
    TB_ASSERT(count == dirty);
}

void tb_table_check(const struct table *t)
{
    TB_ASSERT(t->used <= t->most && t->most <= t->cap && t->high <= t->cap);
    check_free(t);
    check_dirty(t, check_rows(t));
}
