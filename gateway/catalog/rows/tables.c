/* tables.c - fixed tables: rows by index, a free list, and a list of the rows that have something
 * to say. Knows nothing of what a row is about. */
#include "gateway/catalog/rows/tables.h"

#include <string.h>

#include "base/assert.h"

uint32_t tb_table_new(struct table *t)
{
    uint32_t index = t->free_first;
    if (index != NONE) {
        TB_ASSERT(!tb_table_row(t, index)->live);
        t->free_first = tb_table_row(t, index)->next;
    } else if (t->high < t->cap)
        index = t->high++;
    else
        return NONE;
    struct row *row = tb_table_row(t, index);
    memset(row, 0, t->row_bytes);
    row->live = true;
    if (++t->used > t->most) t->most = t->used;
    return index;
}

uint32_t tb_table_new_of(struct table *t, uint64_t owner, bool preferred)
{
    if (!tb_share_room(&t->shares, owner, preferred)) {
        t->spent += t->used < t->cap;
        return NONE;
    }
    const uint32_t index = tb_table_new(t);
    if (index == NONE) return NONE;
    tb_table_row(t, index)->owner = owner;
    tb_share_take(&t->shares, owner);
    return index;
}

static void dirty_remove(struct table *t, uint32_t index)
{
    struct row *row = tb_table_row(t, index);
    if (!row->dirty) return;
    if (row->previous == NONE)
        t->dirty_first = row->next;
    else
        tb_table_row(t, row->previous)->next = row->next;
    if (row->next == NONE)
        t->dirty_last = row->previous;
    else
        tb_table_row(t, row->next)->previous = row->previous;
    row->dirty = false;
}

static void dirty_append(struct table *t, uint32_t index)
{
    struct row *row = tb_table_row(t, index);
    if (row->dirty) return;
    row->dirty = true;
    row->next = NONE;
    row->previous = t->dirty_last;
    if (t->dirty_last == NONE)
        t->dirty_first = index;
    else
        tb_table_row(t, t->dirty_last)->next = index;
    t->dirty_last = index;
}

void tb_table_free(struct table *t, uint32_t index)
{
    struct row *row = tb_table_row(t, index);
    TB_ASSERT(row->live && t->used > 0);
    dirty_remove(t, index);
    tb_share_give(&t->shares, row->owner);
    row->live = false;
    t->used--;
    row->todos = 0;
    row->next = t->free_first;
    t->free_first = index;
}

void tb_table_mark(struct table *t, uint32_t index, enum tb_catalog_todo_kind kind)
{
    struct row *row = tb_table_row(t, index);
    TB_ASSERT(row->live && kind >= TB_CATALOG_PERSIST_RUN && kind <= TB_CATALOG_UNPUBLISHED);
    row->todos |= 1u << kind;
    dirty_append(t, index);
}

void tb_table_unmark(struct table *t, uint32_t index, enum tb_catalog_todo_kind kind)
{
    struct row *row = tb_table_row(t, index);
    TB_ASSERT(row->live);
    row->todos &= ~(1u << kind);
    row->held &= ~(1u << kind);
    if (row->todos == 0) dirty_remove(t, index);
}

bool tb_table_marked(const struct row *row, enum tb_catalog_todo_kind kind)
{
    return ((row->todos | row->held) & (1u << kind)) != 0;
}

static uint32_t todo_from(const struct table *t, uint32_t i, enum tb_catalog_todo_kind kind)
{
    for (; i != NONE; i = tb_table_row(t, i)->next)
        if (tb_table_row(t, i)->todos & (1u << kind)) return i;
    return NONE;
}

uint32_t tb_table_todo(const struct table *t, enum tb_catalog_todo_kind kind)
{
    return todo_from(t, t->dirty_first, kind);
}

uint32_t tb_table_todo_after(const struct table *t, uint32_t after, enum tb_catalog_todo_kind kind)
{
    TB_ASSERT(tb_table_row(t, after)->dirty); /* else `next` is of the free list */
    return todo_from(t, tb_table_row(t, after)->next, kind);
}
