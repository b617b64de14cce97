/* site_rows.c - other sites as rows. Peers, which speak themselves, come before sites that are only
 * spoken of (P6, P7). */
#include "gateway/catalog/rows/site_rows.h"

#include "gateway/catalog/rows/reference_rows.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched_rows.h"

uint32_t tb_catalog_site_find(const struct tb_catalog *c, const struct tb_name *name)
{
    EACH(c->sites, i) if (tb_catalog_same_name(&site_at(c, i)->name, name)) return i;
    return NONE;
}

/* Only other sites speak of it, and they say of no version any more that it has it. */
static bool is_spent(const struct site *s)
{
    return !s->is_peer && s->references == NONE;
}

/* P7: names that peers make up, or that a peer once spoke of, take no row for ever. */
void tb_sites_forget_spent(struct tb_catalog *c)
{
    EACH(c->sites, s) if (is_spent(site_at(c, s))) tb_table_free(&c->sites, s);
}

/* P6: peers are as many as there are rows for, so one always finds a row: that of a site that was
 * only ever spoken of. Such a one gets only what is free, or what another such is done with. */
static uint32_t site_row(struct tb_catalog *c, bool is_peer)
{
    uint32_t i = tb_table_new(&c->sites);
    if (i != NONE) return i;
    EACH(c->sites, s)
    {
        const struct site *old = site_at(c, s);
        if (old->is_peer || !(is_peer || old->references == NONE)) continue;
        if (i == NONE || old->references == NONE) i = s;
    }
    if (i == NONE) return NONE;
    while (site_at(c, i)->references != NONE)
        tb_reference_end(c, site_at(c, i)->references);
    tb_table_free(&c->sites, i);
    return tb_table_new(&c->sites);
}

uint32_t tb_site_get(struct tb_catalog *c, const struct tb_name *name, bool is_peer)
{
    uint32_t i = tb_catalog_site_find(c, name);
    if (i == NONE) {
        i = site_row(c, is_peer);
        if (i == NONE) return NONE;
        site_at(c, i)->name = *name;
        site_at(c, i)->references = NONE;
        site_at(c, i)->session = 1;
    }
    site_at(c, i)->is_peer = site_at(c, i)->is_peer || is_peer;
    return i;
}
