/* tables.h - what all rooms of the catalog share: tables of rows, and the catalog itself. Private
 * to gateway/catalog.
 *
 * How a change travels: a request changes rows and *touches* the version, group or model that
 * depends on them. Before it returns, tb_catalog_settle lets every touched row draw its conclusions
 * until none is left. So no conclusion is drawn in the middle of a change, and no rule is written
 * twice. A message to the world is a bit on a row (tb_table_mark), which todo_marks.c turns into a
 * todo.
 *
 * rows/ keeps the tables, one room for each. Its functions change rows and mark them; an end also
 * takes its row out of the rows that name it. rules/ draws the conclusions. The files beside
 * catalog.h are the requests: they call rows and rules, and settle. Nothing calls upward: rows know
 * no rule, rules know no request. */
#ifndef TB_GATEWAY_TABLES_H
#define TB_GATEWAY_TABLES_H

#include "base/assert.h"
#include "base/limits/share_table.h"
#include "gateway/catalog/catalog.h"
#include "gateway/catalog/todos.h"

#define NONE TB_CATALOG_NONE

/* ---- tables with a free list, and a list of rows that have todos ---- */

struct row {
    uint32_t next, previous; /* in the dirty list, or (next) in the free list */
    uint32_t todos;          /* bits: 1 << enum tb_catalog_todo_kind */
    uint32_t held;           /* those that wait for a detached session */
    uint64_t owner;          /* whose share it is of; TB_SHARE_OURS: nobody's */
    bool live;
    bool dirty; /* in the dirty list */
    bool dead;  /* live only until its todos are told; counts for nothing */
};

struct table {
    uint8_t *rows;
    size_t row_bytes;
    uint32_t cap;
    uint32_t high;       /* rows at and above were never used */
    uint32_t used, most; /* rows that are live; as many as there ever were at once */
    uint64_t refused;    /* requests for which there was no row */
    uint64_t spent;      /* requests whose owner had its share */
    uint32_t free_first;
    uint32_t dirty_first, dirty_last;
    const char *name;
    struct tb_share_table shares; /* of identities */
};

/* Here, because walks over tables are most of what a catalog of thousands does. */
static inline struct row *tb_table_row(const struct table *t, uint32_t index)
{
    TB_ASSERT_DEV(index < t->high); /* 3 % of what 10,000 workers that join cost (fleet.joins) */
    return (struct row *)(void *)(t->rows + (size_t)index * t->row_bytes);
}
/* A zeroed live row, or NONE when the table is full. */
uint32_t tb_table_new(struct table *t);
/* Likewise, of the owner's share. NONE also where its share is spent. */
uint32_t tb_table_new_of(struct table *t, uint64_t owner, bool preferred);
void tb_table_free(struct table *t, uint32_t index);
/* The first live row that is not dead, from `index` on; NONE. */
static inline uint32_t tb_table_next(const struct table *t, uint32_t index)
{
    for (; index < t->high; index++) {
        const struct row *row = tb_table_row(t, index);
        if (row->live && !row->dead) return index;
    }
    return NONE;
}
void tb_table_mark(struct table *t, uint32_t index, enum tb_catalog_todo_kind kind);
void tb_table_unmark(struct table *t, uint32_t index, enum tb_catalog_todo_kind kind);
bool tb_table_marked(const struct row *row, enum tb_catalog_todo_kind kind);
/* The first row that has this todo, or the first behind row `after`; NONE. */
uint32_t tb_table_todo(const struct table *t, enum tb_catalog_todo_kind kind);
uint32_t tb_table_todo_after(const struct table *t, uint32_t after, enum tb_catalog_todo_kind kind);

#define EACH(table, i)                                                                                       \
    for (uint32_t i = tb_table_next(&(table), 0); i != NONE; i = tb_table_next(&(table), i + 1))

/* ---- the catalog ---- */

/* A version as others remember it: its row may be forgotten, its order may not. */
struct which {
    struct tb_id uid; /* zero: none */
    uint64_t run_order, number;
};

struct shard;
struct tb_planner_member;

struct tb_catalog {
    struct tb_catalog_config config;
    struct tb_catalog_limits limits;
    struct table models, runs, versions, sessions, references, groups, members, waits, sites, records;
    struct shard *shards;               /* limits.shards for each version row */
    struct tb_planner_member *question; /* plans.c: limits.references + 1 */
    uint32_t *session_readers;          /* of each session's row: hops that load its NIC */
    uint32_t *session_hints;     /* session_rows.c: where a session may stand, by a hash of its id or host */
    uint32_t session_hint_count; /* a power of two */
    tb_time_ns now, last_tick;
    tb_time_ns recovers_until;
    bool recovering;
    bool unsettled;
    bool waits_touched;
    uint64_t plans, stamps;
    uint32_t unsaved; /* of all models */
    uint32_t gateway_readers;
    uint64_t gateway_nic; /* bytes a second; 0: not known */
    /* That live: of limits.references and limits.site_references. */
    uint32_t worker_references, site_references;
    const char *full;
    /* catalog_check.h: when it was checked in a tick; rows that turns have paid for since */
    tb_time_ns checked_at;
    uint64_t check_paid;
};

#endif
