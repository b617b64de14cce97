/* daemon_check.c - see daemon_check.h. */
#include "gateway/daemon/daemon.h"

#include "base/assert.h"
#include "gateway/arena/arena.h"
#include "gateway/daemon/audit.h"
#include "gateway/daemon/control/control.h"
#include "gateway/daemon/copies/copies_check.h"
#include "gateway/daemon/daemon_check.h"
#include "gateway/daemon/links/site_lag.h"
#include "gateway/daemon/persist.h"
#include "gateway/daemon/sessions/home_runs.h"
#include "gateway/daemon/sessions/sessions_check.h"

#define TURN_ROWS 64u /* that a turn pays for */

/* The list may be long: tb_withdrawn_add keeps the share of each model. */
static void withdrawn_check(const struct tb_withdrawn *w)
{
    TB_ASSERT(w->count <= w->cap);
    TB_ASSERT(w->most <= TB_STORE_WITHDRAWN_MAX && w->most <= w->count);
    TB_ASSERT((w->rows == NULL) == (w->cap == 0));
}

static void peers_check(const struct tb_daemon *d)
{
    for (uint32_t i = 0; i < d->config->peer_count; i++) {
        TB_ASSERT(d->limits[i].rate.window_count <= TB_RATE_WINDOWS_MAX);
        TB_ASSERT(d->limits[i].told <= TB_BUDGET_HELD);
        TB_ASSERT(d->goodput[i].pace.count <= TB_LAG_SECONDS);
    }
}

static void own_check(const struct tb_daemon *d, const struct tb_site_own *own, const struct tb_name *model)
{
    const struct tb_site_state *s = &own->said;
    if (own->said_at == 0) return;
    TB_ASSERT(s->serial > 0 && s->known && s->hops == 0);
    TB_ASSERT(tb_name_equal(&s->site, &d->site) && tb_name_equal(&s->model, model));
    TB_ASSERT(s->reason < TB_LAG_REASON_END);
    TB_ASSERT(s->eta_low_ms <= s->eta_high_ms);
    TB_ASSERT(s->held_count <= TB_SITE_HELD_MAX);
    for (uint32_t i = 0; i < s->held_count; i++) {
        TB_ASSERT(s->held[i].held_bytes <= s->held[i].bytes);
        TB_ASSERT(i == 0 || tb_site_which_compare(&s->held[i - 1].which, &s->held[i].which) > 0);
    }
}

/* Walks all rows once: of copies, sessions, withdrawals, limits, records, the store and the audit
 * record, requests that wait, questions to workers, and clients of the control socket. */
static void check(const struct tb_daemon *d)
{
    TB_ASSERT(d->config != NULL && d->catalog != NULL);
    TB_ASSERT(d->tls_again_at == 0 || d->tls_refused[0] != '\0');
    tb_copies_check(d);
    tb_sessions_check(d);
    withdrawn_check(&d->withdrawn);
    peers_check(d);
    tb_model_table_check(d);
    TB_EACH_MODEL(d, i) if (d->own_named != NULL) own_check(d, d->own[i], tb_model_name(d, i));
    if (d->persist != NULL) tb_persist_check(d);
    tb_audit_check(d);
    tb_home_runs_check(d);
    tb_live_asks_check(&d->live);
    if (d->control != NULL) tb_control_check(d->control);
    if (d->control_read != NULL) tb_control_check(d->control_read);
}

void tb_daemon_check_all(struct tb_daemon *d)
{
    check(d);
    tb_said_check(&d->said);
    if (d->arena != NULL) tb_arena_assert_tables(d->arena);
}

void tb_daemon_check_turn(struct tb_daemon *d)
{
    TB_ASSERT(!d->woken && !d->turning);
    if (!TB_CHECK_TURNS) return;
    const uint64_t rows = d->copies_used.used + d->connections.used + d->worker_exports.used;
    d->check_paid += TURN_ROWS;
    if (d->check_paid < rows) return;
    d->check_paid = 0;
    check(d);
}
