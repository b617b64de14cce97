/* usage.h - how full the tables are. A room of the catalog (catalog.h). */
#ifndef TB_GATEWAY_CATALOG_USAGE_H
#define TB_GATEWAY_CATALOG_USAGE_H

#include "gateway/catalog/catalog.h"

struct tb_catalog_table {
    const char *name;           /* "versions", "sessions", ... */
    uint32_t used, most, bound; /* rows now; at once so far; at most */
    uint64_t refused;           /* requests for which there was no row */
    uint64_t spent;             /* of them: there was a row, and the owner had its share */
};
/* The tables in turn: begin with *cursor 0. False: that was the last. */
bool tb_catalog_table_at(const struct tb_catalog *c, uint32_t *cursor, struct tb_catalog_table *out);

/* The owner of most rows of a table (a model, an identity, a site), and how many it has. The name
 * is empty where rows have no owner. Walks over all rows. */
uint32_t tb_catalog_table_most(const struct tb_catalog *c, const char *table,
                               char who_out[TB_CATALOG_TEXT_MAX]);

#endif
