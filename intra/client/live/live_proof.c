/* live_proof.c - see live_proof.h.
 *
 * The engine comes first. The buffers are locked for reading during a stride of 256 KiB and no
 * longer, so a switch waits for that at most. Between two strides the thread rests: in background
 * nine times as long as the stride took, and once as long when somebody waits for the answer.
 * Buffers that were written since the activation end the run. */
#include "intra/client/live/live_proof.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "intra/client/follow/staged_use.h"
#include "intra/client/follow/subscription.h"
#include "intra/client/live/live_plan.h"
#include "intra/client/memory/registration.h"
#include "intra/client/session/request.h"
#include "intra/client/session/session.h"

#define REST_BACKGROUND 9u /* for one of work */
#define REST_ASKED      1u
#define BUSY_REST       TB_MS(1) /* the buffers are being written: looked at again */

/* ---- what is told ---- */

static void tell(struct tb_session *s, const struct tb_msg_proven *m)
{
    struct tb_request *notice = tb_request_new(s, TB_MSG_PROVEN, 0, 0);
    if (notice == NULL) return; /* the asker names us as silent */
    tb_msg_proven_encode(m, &notice->payload);
    tb_request_post(s, notice);
    tb_session_wake(s);
}

void tb_live_tell_again(struct tb_subscription *sub)
{
    TB_ASSERT_LOCKED(sub->session);
    struct tb_live *l = &sub->live;
    if (tb_id_is_zero(&l->last.uid) || !tb_id_equal(&l->last.uid, &sub->active)) return;
    struct tb_msg_proven m = l->last;
    m.ask = 0;
    m.age_ms = tb_time_since(l->last_at, tb_clock_now()) / TB_MS(1);
    tell(sub->session, &m);
}

/* P10: at once, and not when the run ends. */
static void alarm_raise(struct tb_subscription *sub, const struct tb_msg_proven *m)
{
    struct tb_log_line line;
    tb_log_begin(&line, TB_LOG_ERROR, "live.differs");
    tb_log_str(&line, "model", sub->model.text);
    tb_log_u64(&line, "run", sub->active_run_order);
    tb_log_u64(&line, "number", sub->active_number);
    tb_log_u64(&line, "rank", sub->member_index);
    tb_log_str(&line, "tensor", m->tensor.text);
    tb_log_u64(&line, "shard", m->shard);
    tb_log_u64(&line, "chunk", m->chunk);
    tb_log_end(&line);
    tell(sub->session, m);
}

/* ---- a run ---- */

static void finish(struct tb_subscription *sub, uint8_t verdict, enum tb_msg_unprovable why)
{
    struct tb_live *l = &sub->live;
    TB_ASSERT(l->running);
    const tb_time_ns now = tb_clock_now();
    l->running = false;
    l->run.done = true;
    l->run.verdict = verdict;
    l->run.why = (uint8_t)why;
    l->run.took_ms = tb_time_since(l->began, now) / TB_MS(1);
    l->last = l->run;
    l->last_at = now;
    tb_log(TB_LOG_DEBUG, "live.ended", "number=%" PRIu64 " verdict=%u why=%u bytes=%" PRIu64,
           sub->active_number, verdict, (unsigned)why, l->run.bytes);
    tell(sub->session, &l->last);
    tb_session_changed(sub->session, false);
}

static void finish_compared(struct tb_subscription *sub)
{
    const struct tb_msg_proven *m = &sub->live.run;
    if (m->bad > 0)
        finish(sub, TB_MSG_PROVEN_DIFFERS, TB_MSG_PROVABLE);
    else if (m->bytes == 0 && m->left_bytes > 0)
        finish(sub, TB_MSG_PROVEN_NOT, TB_MSG_UNPROVABLE_UNDIGESTED);
    else
        finish(sub, m->box_bytes > 0 ? TB_MSG_PROVEN_BY_BOX : TB_MSG_PROVEN_WHOLE, TB_MSG_PROVABLE);
}

static void start(struct tb_subscription *sub)
{
    struct tb_live *l = &sub->live;
    const bool torn = !tb_id_is_zero(&sub->torn);
    l->running = true;
    l->at = 0;
    l->began = tb_clock_now();
    l->run = (struct tb_msg_proven){.ask = l->ask, .subscription = sub->number, .uid = sub->active};
    if (sub->prove == TB_PROVE_NEVER)
        finish(sub, TB_MSG_PROVEN_NOT, TB_MSG_UNPROVABLE_REPACKED);
    else if (tb_id_is_zero(&sub->active))
        finish(sub, TB_MSG_PROVEN_NOT, TB_MSG_UNPROVABLE_IDLE);
    else if (torn)
        finish(sub, TB_MSG_PROVEN_NOT, TB_MSG_UNPROVABLE_WRITTEN);
    else if (l->plan == NULL)
        finish(sub, TB_MSG_PROVEN_NOT, l->why);
    else
        l->run.left_bytes = l->plan->left_bytes;
}

void tb_live_begin(struct tb_subscription *sub, uint64_t ask)
{
    TB_ASSERT_LOCKED(sub->session);
    struct tb_live *l = &sub->live;
    l->asked = ask != 0;
    l->ask = ask;
    start(sub);
}

/* ---- the plan ---- */

/* It is active already. */
static bool is_planned(const struct tb_subscription *sub, const struct tb_staged_use *use)
{
    return sub->live.plan != NULL && tb_id_equal(&sub->live.plan->uid, &use->staging->uid);
}

void tb_live_prepare(struct tb_subscription *sub, struct tb_staged_use *use)
{
    TB_ASSERT_LOCKED(sub->session);
    struct tb_session *s = sub->session;
    struct tb_registration *r = sub->registration;
    if (use->live != NULL || sub->prove == TB_PROVE_NEVER || is_planned(sub, use)) return;
    if (r != NULL && (!use->copies_made || r->suspended)) return;
    if (r != NULL) tb_registration_begin_pass(r); /* a staging on its GPU stays */
    tb_session_unlock(s); /* calls on a subscription come one at a time, so the use stays */
    struct tb_live_plan *plan = tb_live_plan_new(use->staging, r, &use->copies);
    tb_session_lock(s);
    if (r != NULL) tb_registration_end_pass(r);
    use->live = plan;
}

/* How often the buffers were written by now. False: somebody writes there. */
static bool writes_of(struct tb_registration *r, uint64_t *writes_out)
{
    if (pthread_rwlock_tryrdlock(&r->target.lock) != 0) return false;
    *writes_out = r->target.writes;
    pthread_rwlock_unlock(&r->target.lock);
    return true;
}

void tb_live_activated(struct tb_subscription *sub, struct tb_staged_use *use)
{
    TB_ASSERT_LOCKED(sub->session);
    struct tb_live *l = &sub->live;
    struct tb_live_plan *plan = use->live;
    if (plan == NULL && is_planned(sub, use)) {
        plan = l->plan;
        plan->refs++;
    }
    tb_live_plan_drop(l->plan);
    l->plan = NULL;
    l->why = TB_MSG_UNPROVABLE_REFUSED;
    use->live = NULL;
    if (plan != NULL && plan->staging == NULL) {
        plan->registration = sub->second != NULL && sub->buffer != 0 ? sub->second : sub->registration;
        if (!writes_of(plan->registration, &plan->wrote)) {
            tb_live_plan_drop(plan);
            plan = NULL;
        }
    }
    l->plan = plan;
    if (l->running && l->asked)
        start(sub);
    else if (sub->prove == TB_PROVE_ALWAYS)
        tb_live_begin(sub, 0);
    else
        l->running = false;
}

/* A unit that is looked at now ends with its stride. */
static void wait_outside(struct tb_subscription *sub)
{
    TB_ASSERT_LOCKED(sub->session);
    sub->live.leaving = true;
    while (sub->live.inside)
        tb_session_wait_unbounded(sub->session);
    sub->live.leaving = false;
}

void tb_live_released(struct tb_subscription *sub, const struct tb_staging *st)
{
    struct tb_live *l = &sub->live;
    if (l->plan == NULL || l->plan->staging != st) return;
    wait_outside(sub);
    if (l->plan == NULL || l->plan->staging != st) return;
    tb_live_plan_drop(l->plan);
    l->plan = NULL;
    l->why = TB_MSG_UNPROVABLE_RELEASED;
    if (l->running) finish(sub, TB_MSG_PROVEN_NOT, l->why);
}

void tb_live_end(struct tb_subscription *sub)
{
    sub->live.running = false;
    wait_outside(sub);
    tb_live_plan_drop(sub->live.plan);
    sub->live.plan = NULL;
}

/* ---- a unit ---- */

struct looking {
    struct tb_session *s;
    struct tb_subscription *sub;
    struct tb_live_plan *plan;
    tb_time_ns since; /* the stride in hand began */
    uint32_t rest;
    bool locked;
    enum tb_status status;
    struct tb_live_sum sum;
};

static void rest(tb_time_ns ns)
{
    const struct timespec pause = {.tv_sec = (time_t)(ns / TB_SECONDS(1)),
                                   .tv_nsec = (long)(ns % TB_SECONDS(1))};
    (void)nanosleep(&pause, NULL);
}

/* TB_AGAIN: a switch writes there now. TB_BAD_STATE: they were written since. */
static enum tb_status lock_buffers(struct looking *k)
{
    struct tb_registration *r = k->plan->registration;
    if (r == NULL) return TB_OK;
    if (pthread_rwlock_tryrdlock(&r->target.lock) != 0) return TB_AGAIN;
    k->locked = !r->target.gone && r->target.writes == k->plan->wrote;
    if (!k->locked) pthread_rwlock_unlock(&r->target.lock);
    return k->locked ? TB_OK : TB_BAD_STATE;
}

static void unlock_buffers(struct looking *k)
{
    if (k->locked) pthread_rwlock_unlock(&k->plan->registration->target.lock);
    k->locked = false;
}

/* Its caller waits for the memory, or there is a newer plan. */
static bool is_unwanted(const struct looking *k)
{
    tb_session_lock(k->s);
    const struct tb_live *l = &k->sub->live;
    const bool suspended = k->plan->registration != NULL && k->plan->registration->suspended;
    const bool unwanted = l->leaving || !l->running || l->plan != k->plan || suspended;
    tb_session_unlock(k->s);
    return unwanted;
}

static bool between(void *user)
{
    struct looking *k = user;
    const tb_time_ns took = tb_time_since(k->since, tb_clock_now());
    unlock_buffers(k);
    rest(took * k->rest < TB_MS(20) ? took * k->rest : TB_MS(20));
    if (is_unwanted(k)) return false;
    k->status = lock_buffers(k);
    k->since = tb_clock_now();
    return k->status == TB_OK;
}

static void look(struct looking *k, uint32_t at)
{
    TB_ASSERT_UNLOCKED(k->s);
    const struct tb_live_plan *plan = k->plan;
    const struct tb_live_unit *unit = &plan->units[at];
    const struct tb_live_piece all = {.run = unit->bytes, .rows = 1, .stride = unit->bytes};
    struct tb_live_bytes from = {
        .pieces = &all, .count = 1, .bytes = unit->bytes, .between = between, .user = k};
    uint8_t *staged[1];
    if (plan->staging != NULL) {
        uint32_t bytes;
        staged[0] = tb_place_chunk(&plan->staging->shards[unit->shard].place, unit->chunk, &bytes);
        TB_ASSERT(bytes == unit->bytes);
        from.memory = staged;
    } else {
        from.memory = plan->registration->want_memory;
        from.gpu = plan->registration->gpu;
        from.pieces = &plan->pieces[unit->first];
        from.count = unit->count;
    }
    k->since = tb_clock_now();
    k->status = lock_buffers(k);
    if (k->status != TB_OK) return;
    const enum tb_status status = tb_live_sum_pieces(&from, unit->sum.proof, &k->sum);
    unlock_buffers(k);
    if (k->status == TB_OK) k->status = status;
}

/* The first unit that differs is named. */
static void differs(struct tb_subscription *sub, const struct tb_live_plan *plan, uint32_t at)
{
    struct tb_msg_proven *m = &sub->live.run;
    if (m->bad++ > 0) return;
    m->verdict = TB_MSG_PROVEN_DIFFERS;
    m->shard = plan->units[at].shard;
    m->chunk = plan->units[at].chunk;
    tb_live_unit_names(plan, &plan->units[at], m->tensor.text, sizeof m->tensor.text);
    alarm_raise(sub, m);
}

static void compare(struct tb_subscription *sub, const struct looking *k, uint32_t at)
{
    const struct tb_live_unit *unit = &k->plan->units[at];
    struct tb_live *l = &sub->live;
    l->run.bytes += unit->bytes;
    l->run.box_bytes += unit->box ? unit->bytes : 0;
    l->run.blake3_bytes += unit->sum.proof ? unit->bytes : 0;
    if (!tb_live_sum_equal(&k->sum, &unit->sum)) differs(sub, k->plan, at);
    l->at = at + 1;
    if (l->at == k->plan->unit_count) finish_compared(sub);
}

/* Under the lock, let go meanwhile. */
static void step(struct tb_session *s, struct tb_subscription *sub, tb_time_ns *rest_out)
{
    struct tb_live *l = &sub->live;
    const uint32_t at = l->at;
    struct looking k = {.s = s, .sub = sub, .plan = l->plan, .rest = l->asked ? REST_ASKED : REST_BACKGROUND};
    struct tb_registration *r = k.plan->registration;
    TB_ASSERT(!l->inside && at <= k.plan->unit_count);
    l->inside = true;
    k.plan->refs++;
    if (r != NULL) tb_registration_begin_pass(r);
    tb_session_unlock(s);
    look(&k, at);
    const tb_time_ns took = tb_time_since(k.since, tb_clock_now());
    tb_session_lock(s);
    if (r != NULL) tb_registration_end_pass(r);
    l->inside = false;
    *rest_out = k.status == TB_AGAIN ? BUSY_REST : took * k.rest;
    const bool current = l->running && !l->leaving && l->plan == k.plan && l->at == at;
    if (current && k.status == TB_OK && tb_registration_missing(r) != TB_OK)
        finish(sub, TB_MSG_PROVEN_NOT, TB_MSG_UNPROVABLE_REFUSED);
    else if (current && k.status == TB_OK)
        compare(sub, &k, at);
    else if (current && k.status == TB_BAD_STATE)
        finish(sub, TB_MSG_PROVEN_NOT, TB_MSG_UNPROVABLE_WRITTEN);
    else if (current && (k.status == TB_SITE_NOMEM || k.status == TB_SITE_IO))
        finish(sub, TB_MSG_PROVEN_NOT, TB_MSG_UNPROVABLE_REFUSED);
    tb_live_plan_drop(k.plan);
    tb_session_changed(s, false);
}

/* Its memory is with its owner: that is no failure of the memory. */
static bool is_suspended(const struct tb_live *l)
{
    return l->plan->registration != NULL && l->plan->registration->suspended;
}

bool tb_live_step(struct tb_session *s, tb_time_ns *rest_out)
{
    TB_ASSERT_LOCKED(s);
    *rest_out = 0;
    for (struct tb_subscription *sub = s->subscriptions; sub != NULL; sub = sub->next) {
        struct tb_live *l = &sub->live;
        if (!l->running || l->leaving) continue;
        TB_ASSERT(l->plan != NULL);
        if (is_suspended(l))
            finish(sub, TB_MSG_PROVEN_NOT, TB_MSG_UNPROVABLE_WRITTEN);
        else if (l->plan->unit_count == 0)
            finish_compared(sub);
        else
            step(s, sub, rest_out);
        return true;
    }
    return false;
}
