/* record_rows.h - what other sites said of themselves (records.h), as rows. */
#ifndef TB_GATEWAY_RECORD_ROWS_H
#define TB_GATEWAY_RECORD_ROWS_H

#include "gateway/catalog/records.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/sites.h"

struct record {
    struct row row;
    struct tb_record info;
};

static inline struct record *record_at(const struct tb_catalog *c, uint32_t i)
{
    return (struct record *)tb_table_row(&c->records, i);
}

struct version;

/* A link speaks of a version between two states of the site: the record takes it over when it is
 * known by the same way. */
void tb_record_progress(struct tb_catalog *c, uint32_t version, const struct tb_catalog_site_progress *p);
void tb_record_gone(struct tb_catalog *c, uint32_t version, const struct tb_name *site);
bool tb_record_reached(const struct tb_catalog *c, const struct tb_name *site, const struct version *v,
                       bool activated);
/* Of that site, or by its word: none is left. */
void tb_records_leave(struct tb_catalog *c, const struct tb_name *site);
void tb_records_forget(struct tb_catalog *c, const struct tb_name *site);
/* Of that model: none is left. */
void tb_records_of_model_leave(struct tb_catalog *c, const struct tb_name *model);
void tb_records_expire(struct tb_catalog *c);

#endif
