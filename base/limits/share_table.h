/* share_table.h - how many rows of a table each owner has, and whether it may have one more. Pure.
 *
 * An owner is an identity, a uid or an address. One owner has at most a quarter of the rows. The
 * last quarter of the rows is for owners that are preferred: publishers and configured peers. So
 * one party that takes all that it can leaves three quarters to the others, and any number of
 * ordinary parties leave a quarter to those that a site cannot do without.
 *
 * A table of fewer than 64 rows is not divided: a share of a few rows would stop an honest host.
 *
 * Threads: one at a time. */
#ifndef TB_BASE_SHARE_TABLE_H
#define TB_BASE_SHARE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#define TB_SHARE_LEAST 64u /* rows of a table that is divided */
#define TB_SHARE_OURS  0u  /* the owner of rows that are the gateway's own: they have no share */

struct tb_share {
    uint64_t owner;
    uint32_t used; /* 0: the place is free */
};

struct tb_share_table {
    struct tb_share *places; /* NULL: the table is not divided */
    uint32_t place_count;    /* a power of two */
    uint32_t bound, used;    /* rows */
};

/* Places for a table of so many rows; 0: it is not divided. */
uint32_t tb_share_places(uint32_t bound);
/* `places` are tb_share_places(bound) zeroed ones, and the caller's. */
void tb_share_init(struct tb_share_table *t, struct tb_share *places, uint32_t bound);
/* Rows that one owner may have. */
uint32_t tb_share_most(const struct tb_share_table *t);
uint32_t tb_share_used(const struct tb_share_table *t, uint64_t owner);
/* Whether the owner may have one more. It takes nothing. */
bool tb_share_room(const struct tb_share_table *t, uint64_t owner, bool preferred);
/* The owner has one more row, as tb_share_room allowed. */
void tb_share_take(struct tb_share_table *t, uint64_t owner);
/* It has one row less. */
void tb_share_give(struct tb_share_table *t, uint64_t owner);

#endif
