/* session_shares.h - the share that one identity has of the tables that workers fill, over all of
 * its sessions.
 *
 * Promise P7. The rule is that of base/limits/share_table.h: an identity has a quarter of a table
 * at most, and the last quarter is for publishers. No counts are kept. The rows of an identity are
 * counted where a table is more than a quarter full.
 *
 * A leaf. On the main loop. */
#ifndef TB_DAEMON_SESSION_SHARES_H
#define TB_DAEMON_SESSION_SHARES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/ident.h"

struct tb_daemon;
struct tb_gauge;
struct tb_worker_session;

/* How many rows, or bytes, of the table that session has. */
typedef uint64_t (*tb_worker_session_uses_fn)(const struct tb_worker_session *s);

/* Whether the session may have `more` of the table of that gauge. False: the gauge counts it. */
bool tb_worker_session_share_room(const struct tb_worker_session *s, struct tb_gauge *g, uint64_t bound,
                                  uint64_t more, tb_worker_session_uses_fn uses);
/* The rows, or bytes, that all sessions of its identity have. */
uint64_t tb_worker_session_share_used(const struct tb_worker_session *s, tb_worker_session_uses_fn uses);
/* Shares are of this owner: 1.. */
uint64_t tb_worker_session_owner(const struct tb_identity *identity);

#endif
