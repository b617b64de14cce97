/* links_tables.c - how full the tables of the links are, and which peer or model fills them. */
#include "base/assert.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_limits.h"
#include "wan/link/links_table_counts.h"
#include "wan/link/session/link_conn.h"
#include "wan/link/traffic/ask_table.h"
#include "wan/link/traffic/landing_table.h"
#include "wan/link/traffic/offer_table.h"

static uint32_t announced_count(const struct tb_link *l)
{
    return l->traffic.models.announced_count;
}

static uint32_t granted_count(const struct tb_link *l)
{
    return l->traffic.models.granted_count;
}

static const char *const names[] = {
#define NAME(table, text) [table] = text,
    TB_LINKS_TABLES(NAME)
#undef NAME
};

static const struct {
    uint32_t bound;
    uint32_t (*rows_of)(const struct tb_link *l); /* NULL: no link's */
} tables[] = {
    [TB_LINKS_TABLE_OFFERS] = {TB_LINKS_OFFERS_MAX, NULL},
    [TB_LINKS_TABLE_ANNOUNCED] = {TB_LINKS_OFFERS_MAX, announced_count},
    [TB_LINKS_TABLE_GRANTED] = {TB_LINKS_GRANTED_MAX, granted_count},
    [TB_LINKS_TABLE_LANDINGS] = {TB_LINKS_OFFERS_MAX, tb_link_in_count},
    [TB_LINKS_TABLE_ASKS] = {TB_LINKS_ASKS_MAX, tb_link_ask_count},
    [TB_LINKS_TABLE_CONNS] = {LINK_CONNS_MAX, NULL},
};

static uint32_t most_rows(const struct tb_links *ls, enum tb_links_table table)
{
    TB_ASSERT(tables[table].rows_of != NULL); /* each peer has it for itself */
    uint32_t most = 0;
    for (uint32_t i = 0; i < ls->options.peer_count; i++) {
        const uint32_t rows = tables[table].rows_of(&ls->links[i]);
        if (rows > most) most = rows;
    }
    return most;
}

void tb_links_usage(const struct tb_links *ls, enum tb_links_table table, struct tb_links_usage *usage_out)
{
    TB_ASSERT(table < TB_LINKS_TABLES_COUNT);
    *usage_out = (struct tb_links_usage){
        .name = names[table],
        .used = tables[table].rows_of != NULL   ? most_rows(ls, table)
                : table == TB_LINKS_TABLE_CONNS ? ls->accepted_count
                                                : ls->offer_count,
        .most = ls->tables[table].most,
        .bound = tables[table].bound,
        .refused = ls->tables[table].refused,
        .spent = ls->tables[table].spent,
    };
}

static uint32_t offers_of(const struct tb_links *ls, const struct tb_name *model)
{
    uint32_t count = 0;
    for (const struct tb_offer *o = ls->offers; o != NULL; o = o->next)
        count += tb_name_equal(&o->key.model, model);
    return count;
}

/* One pass over the offers for each run of one model's. */
static uint32_t offers_most(const struct tb_links *ls, struct tb_name *model_out)
{
    const struct tb_name *last = NULL;
    uint32_t most = 0;
    for (const struct tb_offer *o = ls->offers; o != NULL; o = o->next) {
        if (last != NULL && tb_name_equal(last, &o->key.model)) continue;
        last = &o->key.model;
        const uint32_t count = offers_of(ls, last);
        if (count <= most) continue;
        most = count;
        *model_out = *last;
    }
    return most;
}

/* Of peers: strangers have no name yet. */
static uint32_t conns_most(const struct tb_links *ls, struct tb_name *peer_out)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < ls->options.peer_count; i++) {
        const uint32_t count = tb_link_conn_accepted(&ls->links[i]);
        if (count <= most) continue;
        most = count;
        *peer_out = ls->links[i].label;
    }
    return most;
}

uint32_t tb_links_table_most(const struct tb_links *ls, enum tb_links_table table, struct tb_name *user_out)
{
    *user_out = (struct tb_name){0};
    if (table == TB_LINKS_TABLE_OFFERS) return offers_most(ls, user_out);
    if (table == TB_LINKS_TABLE_CONNS) return conns_most(ls, user_out);
    *user_out = ls->tables[table].full;
    return user_out->text[0] != '\0' ? tables[table].bound : 0; /* it had them all */
}
