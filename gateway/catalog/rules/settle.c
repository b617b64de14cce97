/* settle.c - the loop in which touched rows draw their conclusions. */
#include "gateway/catalog/rules/settle.h"

#include "base/assert.h"
#include "gateway/catalog/rows/group_rows.h"
#include "gateway/catalog/rows/model_rows.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/version_rows.h"
#include "gateway/catalog/rules/crossing_rules.h"
#include "gateway/catalog/rules/group_rules.h"
#include "gateway/catalog/rules/retention.h"
#include "gateway/catalog/rules/site_rules.h"
#include "gateway/catalog/rules/version_removal.h"
#include "gateway/catalog/rules/version_rules.h"

static void model_settle(struct tb_catalog *c, uint32_t model)
{
    struct model *m = model_at(c, model);
    struct which head = {.run_order = 0};
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if (v->model != model || !tb_version_lives(v)) continue;
        const struct which w = tb_which_of(v);
        if (tb_id_is_zero(&head.uid) || tb_which_compare(&w, &head) > 0) head = w;
    }
    if (!tb_id_equal(&head.uid, &m->head.uid)) {
        m->head = head;
        tb_table_mark(&c->models, model, TB_CATALOG_PERSIST_POINTER);
    }
    tb_retention_settle(c, model);
    tb_catalog_crossing_settle(c, model);
    tb_catalog_site_activated_settle(c, model);
    tb_versions_forget(c, model);
}

static void settle_pass(struct tb_catalog *c)
{
    EACH(c->versions, v) if (version_at(c, v)->touched)
    {
        version_at(c, v)->touched = false;
        tb_version_settle(c, v);
    }
    EACH(c->groups, g) if (group_at(c, g)->touched)
    {
        group_at(c, g)->touched = false;
        tb_group_settle(c, g);
    }
    EACH(c->models, m) if (model_at(c, m)->touched)
    {
        model_at(c, m)->touched = false;
        model_settle(c, m);
    }
}

/* A pass after the first has a cause in the pass before it: a version or a group moved on, or
 * references ended because one had moved on. A version moves at most four times (ready, kept, an
 * end, its eviction), and a group twice (its attempt ends, it goes). Settling begins no version and
 * no attempt, so the passes come to an end. Nearly always two or three are enough. */
static uint32_t passes_max(const struct tb_catalog *c)
{
    const uint32_t moves = 4 * c->versions.used + 2 * c->groups.used;
    return 2 * (moves + 1);
}

enum tb_status tb_catalog_settle(struct tb_catalog *c, enum tb_status status)
{
    const uint32_t most = passes_max(c);
    for (uint32_t passes = 0; c->unsettled; passes++) {
        TB_ASSERT(passes < most);
        c->unsettled = false;
        settle_pass(c);
    }
    return status;
}
