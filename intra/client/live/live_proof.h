/* live_proof.h - proof of the bytes that a subscription computes from: its plan, the run that
 * compares it, and the result of the last run.
 *
 * A run takes the plan's units one after another. The prover's thread (prover.h) calls tb_live_step
 * for each; all other calls are any thread's. All of them under the session's lock. */
#ifndef TB_INTRA_CLIENT_LIVE_PROOF_H
#define TB_INTRA_CLIENT_LIVE_PROOF_H

#include "base/time.h"
#include "intra/session_msg.h"

struct tb_live_plan;
struct tb_session;
struct tb_staged_use;
struct tb_staging;
struct tb_subscription;

/* A member of the subscription. */
struct tb_live {
    struct tb_live_plan *plan; /* of the active version; NULL: there is none, `why` */
    enum tb_msg_unprovable why;
    bool running;
    bool asked;   /* by the gateway; else in background */
    bool inside;  /* a unit is looked at now, without the lock */
    bool leaving; /* the subscription ends, or its staging goes */
    uint64_t ask; /* the question that the run answers; 0: none */
    uint32_t at;  /* the next unit */
    tb_time_ns began, last_at;
    struct tb_msg_proven run, last; /* so far; of the run that ended last: uid zero: none did */
};

/* Let go meanwhile: the plan of a whole staging, once. Without memory there is none. */
void tb_live_prepare(struct tb_subscription *sub, struct tb_staged_use *use);
/* The version is in the buffers. A run over the one before ends; one that was asked for begins
 * anew. */
void tb_live_activated(struct tb_subscription *sub, struct tb_staged_use *use);
/* Let go meanwhile: what is computed from stands in that staging no more, or the subscription
 * ends. */
void tb_live_released(struct tb_subscription *sub, const struct tb_staging *st);
void tb_live_end(struct tb_subscription *sub);
/* Begins a run. ask 0: in background. */
void tb_live_begin(struct tb_subscription *sub, uint64_t ask);
/* To a gateway that came back. */
void tb_live_tell_again(struct tb_subscription *sub);

/* One unit of the next run, let go meanwhile. False: there is no run. *rest_out: so long the thread
 * rests. */
bool tb_live_step(struct tb_session *s, tb_time_ns *rest_out);

#endif
