/* grant_table.h - tokens that a worker was asked to accept at its door, and has not answered for.
 *
 * A reader of a worker's export shows a token at the worker's door. The worker hears of the token
 * first (GRANT), and answers that its door knows it (GRANTED). A row waits for that answer until
 * its deadline. Readers are other workers (session_plan.c) and this gateway (home_landing.c).
 *
 * A leaf: it calls no other room. */
#ifndef TB_DAEMON_GRANT_TABLE_H
#define TB_DAEMON_GRANT_TABLE_H

#include "base/ident.h"
#include "base/time.h"
#include "gateway/daemon/counters.h"
#include "tombolo/status.h"

struct tb_daemon;
struct tb_grant_wait;

/* Takes the owner's answer, or TB_STREAM_IDLE where none came in time. The row is gone by then:
 * `grant` is a copy of it. */
typedef void (*tb_grant_answer_fn)(struct tb_daemon *d, const struct tb_grant_wait *grant,
                                   enum tb_status status);

struct tb_grant_wait {
    struct tb_grant_wait *next;
    struct tb_id token; /* random: one row has it */
    struct tb_id owner; /* the session that exports the bytes, and answers */
    tb_time_ns deadline;
    tb_grant_answer_fn answer;
    struct tb_id reader; /* a session; zero: this gateway */
    struct tb_id uid;    /* the version that is read */
    uint64_t export_id;
    uint64_t plan; /* of the catalog; 0 where this gateway reads */
};

struct tb_grant_table {
    struct tb_grant_wait *first;
    struct tb_gauge gauge;
};

/* TB_SITE_NOMEM: no memory, or `bound` rows wait already. */
TB_MUST_USE enum tb_status tb_grants_put(struct tb_grant_table *t, uint64_t bound,
                                         const struct tb_grant_wait *grant);
/* The row of this token, if this owner was asked for it, goes into *grant_out. */
TB_MUST_USE bool tb_grants_take(struct tb_grant_table *t, const struct tb_id *owner,
                                const struct tb_id *token, struct tb_grant_wait *grant_out);
/* A row whose deadline has passed, likewise. */
TB_MUST_USE bool tb_grants_take_late(struct tb_grant_table *t, tb_time_ns now,
                                     struct tb_grant_wait *grant_out);
/* The reader does not want it any more. The row is there. */
void tb_grants_drop(struct tb_grant_table *t, const struct tb_id *token);
void tb_grants_free(struct tb_grant_table *t);
/* Asserts that rows and gauge agree. */
void tb_grants_check(const struct tb_grant_table *t);

#endif
