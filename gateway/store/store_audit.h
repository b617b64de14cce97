/* store_audit.h - the audit record in the store: rows by share, bounded by bytes and by age. A
 * shell; threads as store.h. */
#ifndef TB_STORE_STORE_AUDIT_H
#define TB_STORE_STORE_AUDIT_H

#include "gateway/store/audit_record.h"
#include "gateway/store/store.h"

/* Of `bytes` acts have a half, versions and denials a quarter each. Before the first row; until
 * then 16 MiB and 400 days. */
void tb_store_audit_bounds(struct tb_store *store, uint64_t bytes, uint32_t days);
/* Rows are lines of these files as well, from now on; they are the store's. */
struct tb_audit_lines;
void tb_store_audit_file(struct tb_store *store, struct tb_audit_lines *lines);
/* One row, or `count` more of one that is there (minute). Inside a batch, or a transaction of its
 * own. Now and then the oldest go, of its share and by age. */
TB_MUST_USE enum tb_status tb_store_audit(struct tb_store *store, const struct tb_audit_record *record);
TB_MUST_USE enum tb_status tb_store_audit_list(struct tb_store *store, struct tb_audit_query *query);

/* Keeps the configuration's values, and tells which keys have another one than at the start before.
 * First start: none is told. */
struct tb_store_setting {
    char key[192];
    const char *value; /* borrowed; NULL: not set */
};
typedef void (*tb_store_changed_fn)(void *user, const char *key);
TB_MUST_USE enum tb_status tb_store_settings(struct tb_store *store, const struct tb_store_setting *settings,
                                             uint32_t count, tb_store_changed_fn changed, void *user);

#endif
