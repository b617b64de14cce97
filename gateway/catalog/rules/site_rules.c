/* site_rules.c - what other sites said is doubted when they do not say it again; and what this site
 * tells them. */
#include "gateway/catalog/rules/site_rules.h"

#include "gateway/catalog/rows/group_rows.h"
#include "gateway/catalog/rows/reference_rows.h"
#include "gateway/catalog/rows/site_rows.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched.h"
#include "gateway/catalog/rows/version_rows.h"
#include "gateway/catalog/rules/crossing_rules.h"

/* P6: a site says what it has in each session. What it has not said again after a lease time left it while the link was down, or
 * while one session took another's place: nobody waits for that any more. By sessions and not by time: both may end and begin
 * within one look at the clock. */
static void doubt(struct tb_catalog *c, uint32_t site)
{
    struct site *s = site_at(c, site);
    s->unsure = false;
    EACH(c->references, r)
    {
        struct reference *ref = reference_at(c, r);
        if (ref->kind != TB_REFERENCE_SITE || ref->owner != site || ref->told_in == 0) continue;
        if (ref->heard_in != s->session) ref->heard_in = 0; /* it offers that no more */
        if (ref->told_in == s->session) continue;
        const uint32_t version = ref->version;
        tb_reference_end(c, r);
        tb_crossing_ask_again(c, version);
    }
}

static bool is_doubted(const struct tb_catalog *c, const struct site *s)
{
    return s->up && s->unsure && c->now >= tb_time_add(s->up_at, c->config.lease_ns);
}

static bool began_to_stand(struct tb_catalog *c)
{
    bool any = false;
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if (v->whole || v->stands_told || !tb_crossing_stands(c, v)) continue;
        tb_crossing_ask_again(c, i);
        any = true;
    }
    return any;
}

void tb_sites_tick(struct tb_catalog *c)
{
    bool any = began_to_stand(c);
    EACH(c->versions, i) version_at(c, i)->stands_told = tb_crossing_stands(c, version_at(c, i));
    EACH(c->sites, s)
    {
        if (!is_doubted(c, site_at(c, s))) continue;
        doubt(c, s);
        any = true;
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
        tb_row_mark(&c->versions, i, TB_CATALOG_SITE_STATE);
    }
}
