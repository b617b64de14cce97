/* counters.h - counters, and how full lists are: they only grow, and the status page shows them.
 * docs/operations.md says what to do when one rises. */
#ifndef TB_DAEMON_COUNTERS_H
#define TB_DAEMON_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/time.h"

/* How full a list of this folder's is. */
struct tb_gauge {
    uint64_t used, most; /* now; at once so far */
    uint64_t refused;    /* for want of room */
    uint64_t spent;      /* for want of its owner's share of it */
};

static inline void tb_gauge_add(struct tb_gauge *g, uint64_t count)
{
    g->used += count;
    if (g->used > g->most) g->most = g->used;
}
#define TB_DAEMON_TABLES 46u

/* The log was told this of a table. */
struct tb_table_told {
    uint64_t refused;    /* requests, when it was looked last */
    uint64_t spent;      /* likewise, of shares */
    bool full;           /* the line stands */
    tb_time_ns spent_at; /* the last line of shares; 0: none */
};

/* Counters of the status page: each only grows. docs/operations.md says what to do when one
 * rises. */
/* clang-format off */
#define TB_COUNTERS(X)                                                                     \
    X(sessions_opened) X(sessions_refused) X(sessions_garbled) X(sessions_lost) X(denied)  \
    X(shut_outs) X(shares_spent) X(lines_suppressed)                                       \
    X(seals) X(seals_refused)                                                              \
    X(versions_ready) X(versions_kept) X(versions_lost) X(versions_broken)                 \
    X(versions_withdrawn) X(versions_abandoned)                                            \
    X(hops_lost) X(chunks_bad) X(plans)                                                    \
    X(evictions) X(arena_refused) X(tables_full) X(store_failed)                           \
    X(links_up) X(links_down) X(links_refused) X(links_twins) X(reports_refused)          \
    X(statements_signed) X(statements_unsigned) X(statements_taken) X(statements_refused)  \
    X(versions_unsigned) X(roots_refused) X(landings_unproven)                            \
    X(runs_refused) X(runs_below)                                                          \
    X(lives_changed) X(verify_bad) X(live_bad) X(chunks_rotted) X(chunks_repaired) X(budgets_held)     \
    X(certificates_loaded) X(certificates_refused)                                         \
    X(anchors_written) X(anchors_failed) X(anchors_bad) X(adopted_chunks) X(crossings_failed) \
    X(audit_lost) X(quotas_refused) X(reloads) X(reloads_refused)

/* clang-format on */
struct tb_counters {
#define TB_COUNTER_FIELD(name) uint64_t name;
    TB_COUNTERS(TB_COUNTER_FIELD)
#undef TB_COUNTER_FIELD
};

#endif
