/* staging_table.h - the table of stagings: its rows, and what they say of themselves. */
#ifndef TB_INTRA_CLIENT_STAGING_TABLE_H
#define TB_INTRA_CLIENT_STAGING_TABLE_H

#include "intra/client/follow/staging.h"

struct tb_staging *tb_staging_find(struct tb_session *s, const struct tb_id *uid);
/* NULL: no memory */
struct tb_staging *tb_staging_new(struct tb_session *s, const struct tb_id *uid);
bool tb_staging_has_manifests(const struct tb_staging *st);
uint32_t tb_staging_held_chunks(const struct tb_staging *st);
bool tb_staging_is_whole(const struct tb_staging *st);
/* Nobody is served from it: it has not all, or not in this form. */
bool tb_staging_reads_only(const struct tb_staging *st);
/* Memory that it takes. */
uint64_t tb_staging_bytes(const struct tb_staging *st);
/* Asserts what holds of the table while the lock is free. Under the lock. */
void tb_stagings_check(const struct tb_session *s);
void tb_staging_close_hop(struct tb_staging *st);
void tb_staging_fail(struct tb_staging *st, enum tb_status status, const char *why);

#endif
