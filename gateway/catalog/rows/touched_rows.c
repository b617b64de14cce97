/* touched_rows.c - the beginning of each request, the marks that settling goes by, and texts. */
#include "gateway/catalog/rows/touched_rows.h"
#include "base/assert.h"

#include <string.h>

#include "gateway/catalog/rows/group_rows.h"
#include "gateway/catalog/rows/model_rows.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/version_rows.h"

enum tb_status tb_catalog_refuse_full(struct tb_catalog *c, struct table *t)
{
    c->full = t->name;
    t->refused++;
    return TB_SITE_NOMEM;
}

bool tb_catalog_same_name(const struct tb_name *a, const struct tb_name *b)
{
    return strncmp(a->text, b->text, sizeof a->text) == 0;
}

bool tb_catalog_copy_text(char out[TB_CATALOG_TEXT_MAX], const char *text)
{
    const size_t length = strnlen(text, TB_CATALOG_TEXT_MAX);
    const size_t kept = length < TB_CATALOG_TEXT_MAX ? length : TB_CATALOG_TEXT_MAX - 1;
    memcpy(out, text, kept);
    out[kept] = 0;
    return kept == length;
}

void tb_catalog_enter(struct tb_catalog *c, tb_time_ns now)
{
    if (now > c->now) c->now = now;
    c->full = "";
}

void tb_catalog_touch_model(struct tb_catalog *c, uint32_t model)
{
    TB_ASSERT(model_at(c, model)->row.live);
    model_at(c, model)->touched = true;
    c->unsettled = true;
    c->waits_touched = true;
}

void tb_catalog_touch_version(struct tb_catalog *c, uint32_t version)
{
    struct version *v = version_at(c, version);
    TB_ASSERT(v->row.live);
    v->touched = true;
    tb_catalog_touch_model(c, v->model);
}

void tb_catalog_touch_group(struct tb_catalog *c, uint32_t group)
{
    TB_ASSERT(group_at(c, group)->row.live);
    group_at(c, group)->touched = true;
    c->unsettled = true;
    c->waits_touched = true;
}

void tb_catalog_touch_models(struct tb_catalog *c)
{
    EACH(c->models, m) tb_catalog_touch_model(c, m);
}
