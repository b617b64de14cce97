/* source_links.h - whom each worker reads from, as links between references: made, lost and told
 * here, chosen in plans.c. */
#ifndef TB_GATEWAY_SOURCE_LINKS_H
#define TB_GATEWAY_SOURCE_LINKS_H

#include "gateway/catalog/rows/reference_rows.h"

/* A worker without a source: it has not all of it, and lives. */
bool tb_plan_wanted(const struct reference *ref);
/* Without a source: whether it asks for one follows from whether it lives and lacks something. Call
 * it when one of these changed. */
void tb_plan_note(struct tb_catalog *c, uint32_t reference);
/* Before a worker that is to read that version is among its workers. */
void tb_plan_begins(struct tb_catalog *c, uint32_t version);
void tb_plan_set_source(struct tb_catalog *c, uint32_t reference, uint32_t source);
/* Its place is as good as free from now on: it gives it up once another one may read there. */
void tb_plan_yields(struct tb_catalog *c, uint32_t reference);
/* It avoids that source no more. */
void tb_plan_forgive(struct reference *ref, uint32_t source);
/* The reader is told that its source is gone, and is planned anew. */
void tb_plan_lose_source(struct tb_catalog *c, uint32_t reference);
void tb_plan_forget(struct tb_catalog *c, uint32_t reference); /* it reads no more */
/* Its readers lose it, and avoid it no more. `source` is already out of the version's list, or is
 * the gateway. */
void tb_plan_drop_source(struct tb_catalog *c, uint32_t version, uint32_t source);
/* PLAN is marked. A source that has not exported yet is told to its reader when it has. */
void tb_plan_tell(struct tb_catalog *c, uint32_t reference);
void tb_plan_tell_readers(struct tb_catalog *c, uint32_t version, uint32_t source);
void tb_plan_retell(struct tb_catalog *c, uint32_t reference);

#endif
