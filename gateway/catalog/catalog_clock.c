/* catalog_clock.c - what time brings: leases, drains, waits and recovery end. */
#include "gateway/catalog/catalog.h"

#include "base/assert.h"
#include "gateway/catalog/catalog_check.h"
#include "gateway/catalog/rows/record_rows.h"
#include "gateway/catalog/rows/session_rows.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched_rows.h"
#include "gateway/catalog/rows/version_rows.h"
#include "gateway/catalog/rows/wait_rows.h"
#include "gateway/catalog/rules/crossing_rules.h"
#include "gateway/catalog/rules/plans.h"
#include "gateway/catalog/rules/settle.h"
#include "gateway/catalog/rules/site_rules.h"
#include "gateway/catalog/rules/unpublish_rules.h"
#include "gateway/catalog/rules/version_rules.h"

/* The loop of this process stood still: nobody could renew, so nobody is late. */
static void forgive_pause(struct tb_catalog *c, tb_time_ns now)
{
    const tb_time_ns gap = tb_time_since(c->last_tick, now);
    c->last_tick = now;
    if (gap <= c->config.tick_ns) return;
    const tb_time_ns pause = gap - c->config.tick_ns;
    c->recovers_until = tb_time_add(c->recovers_until, pause);
    EACH(c->sessions, i)
    {
        struct session *s = session_at(c, i);
        s->lease_until = tb_time_add(s->lease_until, pause);
    }
    EACH(c->versions, i)
    {
        struct version *v = version_at(c, i);
        v->lacks_since = tb_time_add(v->lacks_since, pause);
        v->fed_at = tb_time_add(v->fed_at, pause);
        v->came_at = tb_time_add(v->came_at, pause);
    }
}

static void end_recovery(struct tb_catalog *c)
{
    if (!c->recovering) return;
    c->recovering = false;
    EACH(c->versions, i) tb_catalog_touch_version(c, i);
    EACH(c->models, m) tb_catalog_touch_model(c, m);
}

void tb_catalog_first_start(struct tb_catalog *c, tb_time_ns now)
{
    TB_ASSERT(c->sessions.used == 0);
    tb_catalog_enter(c, now);
    end_recovery(c);
    (void)tb_catalog_settle(c, TB_OK);
}

void tb_catalog_tick(struct tb_catalog *c, tb_time_ns now)
{
    tb_catalog_enter(c, now);
    forgive_pause(c, c->now);
    tb_leases_tick(c);
    if (c->now >= c->recovers_until) end_recovery(c);
    tb_plans_tick(c);
    tb_sites_tick(c);
    tb_records_expire(c);
    if (tb_time_min(tb_unpublish_deadline(c), tb_versions_deadline(c)) <= c->now)
        EACH(c->versions, i) tb_catalog_touch_version(c, i);
    if (tb_catalog_crossing_deadline(c) <= c->now) EACH(c->models, m) tb_catalog_touch_model(c, m);
    if (tb_waits_deadline(c) <= c->now) c->waits_touched = true;
    (void)tb_catalog_settle(c, TB_OK);
    tb_catalog_check_tick(c);
}
