/* audit.h - the audit record on its way to the store: acts of operators, versions, denials.
 *
 * Rows wait here until the writer's thread has them on disk; the loop never waits. Acts stand
 * alone. Versions and denials are summed: one row for each identity, action, object and minute,
 * with a count. Each share has places of its own, so a stranger's denials take no place of an
 * operator's act. A row for which there is no place is counted (`audit_lost`) and told. */
#ifndef TB_DAEMON_AUDIT_H
#define TB_DAEMON_AUDIT_H

#include <stdbool.h>

#include "base/ident.h"
#include "base/layout/version_key.h"
#include "gateway/daemon/counters.h"
#include "gateway/store/store.h"

struct tb_daemon;
struct tb_audit;

/* Texts are cut where they are too long. NULL: empty. */
struct tb_audit_event {
    const char *action, *identity, *object, *origin, *result;
};

/* Reads what the start before left, and writes down the keys of the configuration that changed.
 * Behind the store, before its writer. */
TB_MUST_USE enum tb_status tb_audit_open(struct tb_daemon *d);
void tb_audit_close(struct tb_daemon *d);

void tb_audit_act(struct tb_daemon *d, const struct tb_audit_event *event);
void tb_audit_version(struct tb_daemon *d, const struct tb_audit_event *event);
/* `count` more of one denial. */
void tb_audit_denied(struct tb_daemon *d, const struct tb_audit_event *event, uint64_t count);
void tb_audit_peer_denied(struct tb_daemon *d, uint32_t peer, const char *action, const char *object,
                          const char *why);
void tb_audit_peer_text(const struct tb_daemon *d, uint32_t peer, char out[TB_URI_BYTES_MAX]);
/* "model R:N". */
#define TB_AUDIT_VERSION_BYTES 128u
void tb_audit_version_text(const struct tb_version_key *key, char out[TB_AUDIT_VERSION_BYTES]);
void tb_audit_tick(struct tb_daemon *d); /* once a second: sums become rows */

/* For persist.c: the next rows for the disk, acts first, at most `most`; whether they landed. */
uint32_t tb_audit_rows(struct tb_daemon *d, const struct tb_store_row **rows, uint32_t most);
void tb_audit_written(struct tb_daemon *d, uint32_t count, enum tb_status status);
bool tb_audit_waits(const struct tb_daemon *d); /* rows or questions wait */
/* All sums become rows, as far as there are places. */
void tb_audit_sums_end(struct tb_daemon *d);

/* A question to the store. `fn` gets the answer, and frees the query by tb_free. TB_SITE_NOMEM: too
 * many are asked. */
typedef void (*tb_audit_answer_fn)(struct tb_daemon *d, void *user, struct tb_audit_query *query,
                                   enum tb_status status);
TB_MUST_USE enum tb_status tb_audit_ask(struct tb_daemon *d, struct tb_audit_query *query,
                                        tb_audit_answer_fn fn, void *user);

struct tb_audit_usage {
    struct tb_gauge rows, sums;
    uint32_t rows_max, sums_max;
    uint64_t lost; /* rows that no place was left for */
};
void tb_audit_usage(const struct tb_daemon *d, struct tb_audit_usage *usage_out);
void tb_audit_check(const struct tb_daemon *d); /* asserts that rows and sums are counted */
/* The identity of each row that waits, by turns; NULL: that was the last. */
const char *tb_audit_row_at(const struct tb_daemon *d, uint32_t *cursor);
const char *tb_audit_sum_at(const struct tb_daemon *d, uint32_t *cursor);

#endif
