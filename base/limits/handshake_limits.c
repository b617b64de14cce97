/* handshake_limits.c - unfinished handshakes are counted, failed ones leak away. */
#include "base/limits/handshake_limits.h"

#include "base/assert.h"

#define ALL_TIMES 4u /* failures a second of all addresses, for one that an address may have */

/* Rows with a handshake that is open are needed: its end comes. */
static bool is_open(const void *row, tb_time_ns now)
{
    (void)now;
    return ((const struct tb_handshake_row *)row)->open > 0;
}

static struct tb_handshake_row *row_get(struct tb_handshake_limits *h, uint64_t address, tb_time_ns now)
{
    struct tb_handshake_row *row =
        tb_keyed_get(h->rows, TB_HANDSHAKE_ROWS, sizeof *row, address, now, is_open);
    if (row != NULL) row->failed_milli = tb_leak(row->failed_milli, h->failed_each, &row->leaked_at, now);
    h->failed_milli = tb_leak(h->failed_milli, (uint64_t)ALL_TIMES * h->failed_each, &h->leaked_at, now);
    return row;
}

bool tb_handshake_begin(struct tb_handshake_limits *h, uint64_t address, tb_time_ns now)
{
    TB_ASSERT(h->open_each > 0 && h->failed_each > 0 && h->open_all > 0);
    struct tb_handshake_row *row = row_get(h, address, now);
    const uint64_t each = (uint64_t)h->failed_each * 1000, all = each * ALL_TIMES;
    if (row == NULL || row->open >= h->open_each || h->open >= h->open_all || row->failed_milli >= each ||
        h->failed_milli >= all) {
        h->refused++;
        return false;
    }
    row->open++;
    h->open++;
    return true;
}

void tb_handshake_end(struct tb_handshake_limits *h, uint64_t address, tb_time_ns now, bool good)
{
    struct tb_handshake_row *row = row_get(h, address, now);
    TB_ASSERT(row != NULL && row->open > 0 && h->open > 0);
    row->open--;
    h->open--;
    if (good) return;
    row->failed_milli += 1000;
    h->failed_milli += 1000;
}
