/* touched_rows.h - how a request begins, and what a change touches. */
#ifndef TB_GATEWAY_TOUCHED_ROWS_H
#define TB_GATEWAY_TOUCHED_ROWS_H

#include "gateway/catalog/rows/tables.h"

/* Every request begins with this. */
void tb_catalog_enter(struct tb_catalog *c, tb_time_ns now);
/* Settling looks at it: a version with its model, and each with the waits. */
void tb_catalog_touch_version(struct tb_catalog *c, uint32_t version);
void tb_catalog_touch_model(struct tb_catalog *c, uint32_t model);
void tb_catalog_touch_models(struct tb_catalog *c);
void tb_catalog_touch_group(struct tb_catalog *c, uint32_t group);
/* TB_SITE_NOMEM, and tb_catalog_full names the table. */
enum tb_status tb_catalog_refuse_full(struct tb_catalog *c, struct table *t);
bool tb_catalog_same_name(const struct tb_name *a, const struct tb_name *b);
bool tb_catalog_copy_text(char out[TB_CATALOG_TEXT_MAX], const char *text); /* false: it had to be cut */

#endif
