/* site_rows.h - other sites, which speak themselves or are only spoken of. */
#ifndef TB_GATEWAY_SITE_ROWS_H
#define TB_GATEWAY_SITE_ROWS_H

#include "gateway/catalog/rows/tables.h"

struct site {
    struct row row;
    struct tb_name name;
    uint32_t references; /* the first of its list */
    bool is_peer;        /* it speaks itself; else others spoke of it */
    bool up;
    bool unsure; /* what it had before its link came up, and has not said again since, is still believed */
    tb_time_ns up_at;
    uint32_t session;    /* 1..; grows whenever its link comes up or goes on in another session */
    uint32_t tried_from; /* what it said in no session from this one on is doubted after a lease time */
    tb_time_ns tried_ns; /* how long those before this session were up */
};

static inline struct site *site_at(const struct tb_catalog *c, uint32_t i)
{
    return (struct site *)tb_table_row(&c->sites, i);
}

uint32_t tb_catalog_site_find(const struct tb_catalog *c, const struct tb_name *name);
/* Its row, a new one where need be; NONE: the table is full. */
uint32_t tb_site_get(struct tb_catalog *c, const struct tb_name *name, bool is_peer);
/* P7: names that peers make up, or that a peer once spoke of, take no row for ever. */
void tb_sites_forget_spent(struct tb_catalog *c);

#endif
