/* retention.h - which versions leave the arena. */
#ifndef TB_GATEWAY_RETENTION_H
#define TB_GATEWAY_RETENTION_H

#include "gateway/catalog/rows/version_rows.h"

void tb_retention_settle(struct tb_catalog *c, uint32_t model);
/* EVICT; its readers are planned anew. */
void tb_catalog_evict(struct tb_catalog *c, uint32_t version);
/* Among the newest `keep` that live. */
bool tb_version_retained(const struct tb_catalog *c, const struct version *v);
/* Of a version with memory here: why it stays, or why an operator's clearing takes it. Static. */
const char *tb_retention_why(const struct tb_catalog *c, const struct version *v, bool *goes_out);
/* As tb_catalog_make_room. */
enum tb_status tb_retention_make_room(struct tb_catalog *c, uint64_t bytes_needed,
                                      struct tb_catalog_room *room_out);

#endif
