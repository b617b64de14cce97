/* site_rules.c - other sites' announcements are doubted when they are not repeated; and what this
 * site tells them. */
#include "gateway/catalog/rules/site_rules.h"

#include "gateway/catalog/rows/group_rows.h"
#include "gateway/catalog/rows/reference_rows.h"
#include "gateway/catalog/rows/site_rows.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched_rows.h"
#include "gateway/catalog/rows/version_rows.h"
#include "gateway/catalog/rules/crossing_rules.h"

/* P6: a site announces its versions in each session. A version that it does not announce again
 * within a lease time left it meanwhile, and waits for it end. Sessions are counted, not time: one
 * may end and the next begin within one look at the clock. `since`: announcements of that session
 * or later stand. */
static void doubt(struct tb_catalog *c, uint32_t site, uint32_t since)
{
    const struct site *s = site_at(c, site);
    EACH(c->references, r)
    {
        struct reference *ref = reference_at(c, r);
        if (ref->kind != TB_REFERENCE_SITE || ref->owner != site || ref->told_in == 0) continue;
        if (since == s->session && ref->heard_in != s->session)
            ref->heard_in = 0; /* it offers that no more */
        if (ref->told_in >= since) continue;
        const uint32_t version = ref->version;
        tb_reference_end(c, r);
        tb_version_crossing_again(c, version);
    }
}

/* P7: a site that comes and goes more often than once a lease time leaves rows behind in each
 * session. Sessions that were up for a lease time together are as good as one: what it said in
 * none of them is gone. */
static bool tried_in_short_sessions(const struct tb_catalog *c, const struct site *s)
{
    if (s->session <= s->tried_from) return false;
    return s->tried_ns + tb_time_since(s->up_at, c->now) >= c->config.lease_ns;
}

static bool doubt_due(struct tb_catalog *c, uint32_t site)
{
    struct site *s = site_at(c, site);
    if (!s->up || !s->unsure) return false;
    if (c->now >= tb_time_add(s->up_at, c->config.lease_ns)) {
        s->unsure = false;
        doubt(c, site, s->session);
        s->tried_from = s->session + 1;
    } else if (tried_in_short_sessions(c, s)) {
        doubt(c, site, s->tried_from);
        s->tried_from = s->session;
    } else {
        return false;
    }
    s->tried_ns = 0;
    return true;
}

static bool began_to_stand(struct tb_catalog *c)
{
    bool any = false;
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if (v->whole || v->stands_told || !tb_version_crossing_stands(c, v)) continue;
        tb_version_crossing_again(c, i);
        any = true;
    }
    return any;
}

void tb_sites_tick(struct tb_catalog *c)
{
    bool any = began_to_stand(c);
    EACH(c->versions, i) version_at(c, i)->stands_told = tb_version_crossing_stands(c, version_at(c, i));
    EACH(c->sites, s)
    {
        any |= doubt_due(c, s);
    }
    if (any) tb_catalog_touch_models(c);
    tb_sites_forget_spent(c);
}

static bool activated_by_all(const struct tb_catalog *c, uint32_t model, const struct which *w)
{
    uint32_t groups = 0;
    EACH(c->groups, g)
    {
        if (group_at(c, g)->model != model) continue;
        if (!tb_group_activated(c, g, w)) return false;
        groups++;
    }
    return groups > 0;
}

void tb_catalog_site_activated_settle(struct tb_catalog *c, uint32_t model)
{
    EACH(c->versions, i)
    {
        struct version *v = version_at(c, i);
        const struct which w = tb_which_of(v);
        if (v->model != model || v->activated_here || !tb_version_lives(v) || !activated_by_all(c, model, &w))
            continue;
        v->activated_here = true;
        c->waits_touched = true;
        tb_table_mark(&c->versions, i, TB_CATALOG_SITE_STATE);
    }
}
