/* handshake_limits.c - unfinished handshakes are counted, failed ones leak away. */
#include "base/limits/handshake_limits.h"

#include "base/assert.h"

/* Failures a second of all addresses, for one that an address may have: each takes some of the main
 * loop's time. */
#define ALL_TIMES     16u
#define NETWORK_TIMES 4u /* likewise, of an IPv6 network of 48 bits */

/* Rows with a handshake that is open are needed: its end comes. */
static bool is_open(const void *row, tb_time_ns now)
{
    (void)now;
    return ((const struct tb_handshake_row *)row)->open > 0;
}

static struct tb_handshake_row *row_get(struct tb_handshake_limits *h, uint64_t address, tb_time_ns now)
{
    const uint64_t key = tb_key_join(address, h->salt);
    struct tb_handshake_row *row = tb_keyed_get(h->rows, TB_HANDSHAKE_ROWS, sizeof *row, key, now, is_open);
    if (row != NULL) row->failed_milli = tb_leak(row->failed_milli, h->failed_each, &row->leaked_at, now);
    return row;
}

/* The first 48 bits of an IPv6 address; 0 of IPv4. */
static uint64_t network_of(uint64_t address)
{
    return address >> 32 == 0xffff ? 0 : address >> 16;
}

static struct tb_handshake_row *network_get(struct tb_handshake_limits *h, uint64_t address, tb_time_ns now)
{
    const uint64_t key = tb_key_join(network_of(address), h->salt);
    struct tb_handshake_row *row =
        tb_keyed_get(h->networks, TB_HANDSHAKE_NETWORKS, sizeof *row, key, now, is_open);
    const uint64_t each = (uint64_t)h->failed_each * NETWORK_TIMES;
    if (row != NULL) row->failed_milli = tb_leak(row->failed_milli, each, &row->leaked_at, now);
    return row;
}

/* Unfinished ones that one address may have. */
static uint32_t share_of(const struct tb_handshake_limits *h)
{
    const uint32_t quarter = h->open_all / 4;
    return h->open_each < quarter ? h->open_each : quarter;
}

/* Likewise of an IPv6 address: its network of 48 bits has a quarter, of which it has a quarter. */
static uint32_t share_in_network(const struct tb_handshake_limits *h)
{
    const uint32_t quarter = h->open_all / 16 > 0 ? h->open_all / 16 : 1;
    return h->open_each < quarter ? h->open_each : quarter;
}

static bool has_room(const struct tb_handshake_row *row, uint32_t open_most, uint64_t failed_most)
{
    return row != NULL && row->open < open_most && row->failed_milli < failed_most * 1000;
}

bool tb_handshake_begin(struct tb_handshake_limits *h, uint64_t address, tb_time_ns now)
{
    TB_ASSERT(h->open_each > 0 && h->failed_each > 0 && h->open_all >= 4);
    const uint64_t each = h->failed_each;
    const bool alone = network_of(address) == 0;
    struct tb_handshake_row *row = row_get(h, address, now);
    struct tb_handshake_row *network = alone ? NULL : network_get(h, address, now);
    h->failed_milli = tb_leak(h->failed_milli, ALL_TIMES * each, &h->leaked_at, now);
    if (!has_room(row, alone ? share_of(h) : share_in_network(h), each) ||
        (!alone && !has_room(network, h->open_all / 4, NETWORK_TIMES * each)) || h->open >= h->open_all ||
        h->failed_milli >= ALL_TIMES * each * 1000) {
        h->refused++;
        return false;
    }
    row->open++;
    if (!alone) network->open++;
    h->open++;
    return true;
}

/* The next one above counts no failure that is beyond the limit of this one. */
static bool fail(struct tb_handshake_row *row, uint64_t most)
{
    const bool counts = row->failed_milli < most * 1000;
    row->failed_milli += 1000;
    return counts;
}

void tb_handshake_end(struct tb_handshake_limits *h, uint64_t address, tb_time_ns now, bool good)
{
    const uint64_t each = h->failed_each;
    struct tb_handshake_row *row = row_get(h, address, now);
    struct tb_handshake_row *network = network_of(address) == 0 ? NULL : network_get(h, address, now);
    TB_ASSERT(row != NULL && row->open > 0 && h->open > 0);
    TB_ASSERT(network_of(address) == 0 || (network != NULL && network->open > 0));
    row->open--;
    if (network != NULL) network->open--;
    h->open--;
    if (good || !fail(row, each)) return;
    if (network == NULL || fail(network, NETWORK_TIMES * each)) h->failed_milli += 1000;
}
