/* persist_usage.h - what waits for the disk: rows, and requests whose answers wait for them. No
 * call changes anything. */
#ifndef TB_DAEMON_PERSIST_USAGE_H
#define TB_DAEMON_PERSIST_USAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/ident.h"
#include "gateway/daemon/counters.h"

struct tb_daemon;

uint32_t tb_persist_waiting(const struct tb_daemon *d); /* rows that are not on disk */
/* The model of each of them, by turns; empty: it is about none. NULL: that was the last. */
const char *tb_persist_waiting_at(const struct tb_daemon *d, uint32_t *cursor);

/* Of rows: refused are those that others overtook. Of requests that wait for them. Their bounds. */
struct tb_persist_usage {
    struct tb_gauge rows, held;
    uint32_t rows_max, held_max;
};

void tb_persist_usage(const struct tb_daemon *d, struct tb_persist_usage *usage_out);
bool tb_persist_saved(const struct tb_daemon *d, const struct tb_id *uid);

#endif
