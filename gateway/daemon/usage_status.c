/* usage_status.c - how full this gateway's tables are: in `status`, and one line when one of them refuses a row (P10). */
#include "gateway/daemon/daemon.h"

#include <string.h>

/* One refusal is told; the next once a quarter of the table is free again. */
static void tell_full(struct tb_daemon *d, uint32_t table, const struct tb_catalog_table *t)
{
    struct tb_table_told *told = &d->tables_told[table];
    const bool fresh = t->refused > told->refused;
    told->refused = t->refused;
    if (!fresh && t->used <= t->bound / 4 * 3) told->full = false;
    if (!fresh || told->full) return;
    told->full = true;
    char who[TB_CATALOG_TEXT_MAX] = "";
    const uint32_t rows = tb_catalog_table_most(d->catalog, t->name, who);
    d->counters.tables_full++;
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_ERROR, "table.full");
    tb_log_str(&l, "table", t->name);
    tb_log_u64(&l, "used", t->used);
    tb_log_u64(&l, "bound", t->bound);
    tb_log_str(&l, "most_used_by", who);
    tb_log_u64(&l, "its_rows", rows);
    tb_log_end(&l);
}

void tb_usage_tick(struct tb_daemon *d)
{
    struct tb_catalog_table t;
    uint32_t cursor = 0;
    for (uint32_t i = 0; i < TB_DAEMON_TABLES && tb_catalog_table_at(d->catalog, &cursor, &t); i++)
        tell_full(d, i, &t);
}

static bool append(json_t *list, const struct tb_catalog_table *t)
{
    return json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:I, s:I}", "table", t->name, "used",
                                                 (json_int_t)t->used, "most", (json_int_t)t->most, "bound",
                                                 (json_int_t)t->bound, "refused", (json_int_t)t->refused)) ==
           0;
}

static struct tb_catalog_table of_links(const char *name, const struct tb_links_table *t)
{
    return (struct tb_catalog_table){.name = name, .used = t->used, .most = t->most, .bound = t->bound};
}

json_t *tb_status_tables(struct tb_daemon *d)
{
    json_t *list = json_array();
    struct tb_catalog_table t;
    uint32_t cursor = 0;
    bool all = list != NULL;
    while (all && tb_catalog_table_at(d->catalog, &cursor, &t))
        all = append(list, &t);
    if (d->links != NULL && !d->links_restarting) {
        struct tb_links_usage usage;
        tb_links_usage(d->links, &usage);
        t = of_links("offers", &usage.offers);
        all = all && append(list, &t);
        t = of_links("announced", &usage.announced);
        all = all && append(list, &t);
        t = of_links("landings", &usage.landings);
        all = all && append(list, &t);
        t = of_links("asks", &usage.asks);
        all = all && append(list, &t);
    }
    if (all) return list;
    json_decref(list);
    return NULL;
}
