/* keyed_rows.h - a bounded table of rows that are found by a key of 64 bits, for what is counted of
 * each identity, address or user. Pure.
 *
 * A key has eight places. A new key takes the place that was used longest ago, unless the owner
 * still needs that row. So a flood of keys costs no memory, and pushes out only rows that say
 * nothing any more, or old ones.
 *
 * Threads: one at a time. Zeroed memory is ready. */
#ifndef TB_BASE_KEYED_ROWS_H
#define TB_BASE_KEYED_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/time.h"

#define TB_KEYED_WAYS 8u

/* The first field of a row. */
struct tb_keyed_row {
    uint64_t key; /* 0: the place is free */
    tb_time_ns used_at;
};

/* 1.., of a text: an identity, an address, an event. */
uint64_t tb_key_of_text(const char *text);
/* 1.., of a text that a stranger chooses: without the random `salt` nobody finds two texts with one
 * key. */
uint64_t tb_key_of_salted(const char *text, uint64_t salt);
/* 1.., of two keys. */
uint64_t tb_key_join(uint64_t a, uint64_t b);

/* A count leaks away at per_s a second: `milli` thousandths at *at become fewer now. */
static inline uint64_t tb_leak(uint64_t milli, uint64_t per_s, tb_time_ns *at, tb_time_ns now)
{
    const uint64_t ms = tb_time_since(*at, now) / TB_MS(1);
    const uint64_t less = ms > 3600000 ? milli : ms * per_s;
    *at += TB_MS(ms); /* the rest of a millisecond leaks later */
    return milli > less ? milli - less : 0;
}

/* `rows` are `count` rows, a multiple of TB_KEYED_WAYS, of row_bytes each. The row of the key;
 * NULL: it has none. */
void *tb_keyed_find(void *rows, uint32_t count, size_t row_bytes, uint64_t key);
/* The row of the key: the one that is there, or a zeroed one with the key. `needed` says whether a
 * row may not be given to another key. NULL: all places of the key are needed. */
void *tb_keyed_get(void *rows, uint32_t count, size_t row_bytes, uint64_t key, tb_time_ns now,
                   bool (*needed)(const void *row, tb_time_ns now));

#endif
