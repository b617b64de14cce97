/* session_hops.h - the hops of workers through the gateway's door end with their right to read.
 *
 * Promise P8: a worker reads nothing at the door once its identity is revoked, expired or shut out,
 * or has no session any more. Owners are collected, and one call of the fabric ends many of them.
 *
 * On the main loop. */
#ifndef TB_DAEMON_SESSION_HOPS_H
#define TB_DAEMON_SESSION_HOPS_H

#include <stdint.h>

#include "base/ident.h"

struct tb_daemon;

#define TB_SESSION_HOPS_MAX 256u /* owners that one call ends; more take another call */

/* Each of both lists has an owner once. */
struct tb_session_hops {
    uint64_t ending[TB_SESSION_HOPS_MAX]; /* until the next tb_session_hops_flush */
    uint64_t left[TB_SESSION_HOPS_MAX];   /* one of their sessions has left since the last second */
    uint32_t ending_count, left_count;
};

/* The hops and the unused tokens of that owner end at the next flush. */
void tb_session_hops_end_owner(struct tb_daemon *d, uint64_t owner);
/* Likewise. An identity that is not known has none. */
void tb_session_hops_end(struct tb_daemon *d, const struct tb_identity *identity);
void tb_session_hops_flush(struct tb_daemon *d); /* waits for the fabric's thread, once */
/* A session of that identity is gone. Where none is left, its hops end within a second. */
void tb_session_hops_left(struct tb_daemon *d, const struct tb_identity *identity);
void tb_session_hops_tick(struct tb_daemon *d); /* once a second */

#endif
