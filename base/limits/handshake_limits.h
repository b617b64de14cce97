/* handshake_limits.h - how many handshakes an address may have open, and how many may fail. Pure.
 *
 * Only handshakes that are unfinished, or that failed, count: an address has `open_each` unfinished
 * ones at most, and `failed_each` may fail in a second. All addresses together have sixteen times
 * as many failures a second, and `open_all` unfinished ones. A handshake that ends well costs
 * nothing, so hosts behind one address are not held up by each other.
 *
 * One address has at most a quarter of the unfinished ones, whatever `open_each` says, and a
 * sixteenth of the failures: those beyond its own limit count for itself alone. So a few addresses
 * that take all that they can leave room to another one. One party may have many networks of 64
 * bits, so all addresses of an IPv6 network of 48 bits have a quarter of both. One of them has a
 * quarter of its network's share at most.
 *
 * Threads: one at a time. Zeroed memory with limits is ready. */
#ifndef TB_BASE_HANDSHAKE_LIMITS_H
#define TB_BASE_HANDSHAKE_LIMITS_H

#include "base/limits/keyed_rows.h"

#define TB_HANDSHAKE_ROWS     512u
#define TB_HANDSHAKE_NETWORKS 512u

struct tb_handshake_row {
    struct tb_keyed_row keyed;
    uint32_t open;
    uint64_t failed_milli; /* failures of late, in thousandths; it falls by failed_each a second */
    tb_time_ns leaked_at;
};

struct tb_handshake_limits {
    uint32_t open_each, failed_each, open_all;
    uint64_t salt; /* random: nobody can choose addresses that take the places of another's row */
    uint32_t open; /* of all */
    uint64_t failed_milli;
    tb_time_ns leaked_at;
    uint64_t refused;
    struct tb_handshake_row rows[TB_HANDSHAKE_ROWS];
    struct tb_handshake_row networks[TB_HANDSHAKE_NETWORKS];
};

/* `address` is that of tb_network_key. True: it has begun, and ends with tb_handshake_end. False:
 * its connection is to be closed. */
bool tb_handshake_begin(struct tb_handshake_limits *h, uint64_t address, tb_time_ns now);
void tb_handshake_end(struct tb_handshake_limits *h, uint64_t address, tb_time_ns now, bool good);

#endif
