/* keeping.c - an operator looks at what the arena keeps, and clears it of the rest. retention.c
 * decides. */
#include "gateway/catalog/keeping.h"

#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched_rows.h"
#include "gateway/catalog/rows/version_rows.h"
#include "gateway/catalog/rules/retention.h"
#include "gateway/catalog/rules/settle.h"

bool tb_catalog_keeping_at(const struct tb_catalog *c, uint32_t *cursor, struct tb_catalog_keeping *out)
{
    for (uint32_t i; (i = tb_table_next(&c->versions, *cursor)) != NONE;) {
        const struct version *v = version_at(c, i);
        *cursor = i + 1;
        if (!tb_version_reserved(v)) continue;
        *out = (struct tb_catalog_keeping){.key = v->key, .bytes = v->bytes, .whole = v->whole};
        out->why = tb_retention_why(c, v, &out->goes);
        return true;
    }
    return false;
}

enum tb_status tb_catalog_clear(struct tb_catalog *c, tb_time_ns now, uint32_t *count_out)
{
    *count_out = 0;
    tb_catalog_enter(c, now);
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        bool goes = false;
        if (!tb_version_reserved(v)) continue;
        (void)tb_retention_why(c, v, &goes); /* one that went may make another the last copy */
        if (!goes) continue;
        tb_catalog_evict(c, i);
        ++*count_out;
    }
    return tb_catalog_settle(c, TB_OK);
}
