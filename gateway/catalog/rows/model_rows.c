/* model_rows.c - models and runs as rows: found, and what is known of the newest run. */
#include "gateway/catalog/rows/model_rows.h"
#include "base/assert.h"

#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched_rows.h"

uint32_t tb_catalog_model_find(const struct tb_catalog *c, const struct tb_name *name)
{
    EACH(c->models, i) if (tb_catalog_same_name(&model_at(c, i)->config.name, name)) return i;
    return NONE;
}

uint32_t tb_catalog_run_find(const struct tb_catalog *c, uint32_t model, const struct tb_id *id)
{
    EACH(c->runs, i) if (run_at(c, i)->model == model && tb_id_equal(&run_at(c, i)->info.id, id)) return i;
    return NONE;
}

/* P2: one run of a model may publish, its newest. The store may have been cut off between a run's
 * row and those of the runs that it shut out, or have lost the newest. */
void tb_runs_fence_older(struct tb_catalog *c, uint32_t model, uint64_t than)
{
    TB_ASSERT(than <= model_at(c, model)->run_order);
    EACH(c->runs, i)
    {
        struct run *run = run_at(c, i);
        if (run->model != model || run->info.fenced || run->info.order >= than) continue;
        run->info.fenced = true;
        tb_table_mark(&c->runs, i, TB_CATALOG_PERSIST_RUN);
    }
}

bool tb_catalog_run_seen_after(const struct tb_catalog_known_run *known, uint64_t order, uint64_t number)
{
    return order > known->order || (order == known->order && number > known->number);
}

void tb_catalog_run_seen(struct tb_catalog *c, uint32_t model, const struct tb_version_key *key)
{
    struct tb_catalog_known_run *known = &model_at(c, model)->known;
    TB_ASSERT(tb_catalog_same_name(&key->model, &model_at(c, model)->config.name));
    if (!tb_catalog_run_seen_after(known, key->run_order, key->number)) return;
    *known = (struct tb_catalog_known_run){key->model, key->run_order, key->number, key->run};
}
