/* store_load.h - what a store holds, read at the start: runs and versions, withdrawals, bytes of a
 * day, paths, pauses, doubts. */
#ifndef TB_DAEMON_STORE_LOAD_H
#define TB_DAEMON_STORE_LOAD_H

#include "gateway/store/store.h"

/* In the order in which tb_catalog_restore_* wants them. A row that does not make sense ends
 * it with TB_SITE_STORE. */
typedef enum tb_status (*tb_store_run_fn)(void *user, const struct tb_catalog_run *run);
typedef enum tb_status (*tb_store_version_fn)(void *user, const struct tb_store_version *version);
TB_MUST_USE enum tb_status tb_store_load(struct tb_store *store, tb_store_run_fn run,
                                         tb_store_version_fn version, void *user);

/* In the order in which they were withdrawn. */
struct tb_store_withdrawal {
    struct tb_version_key key;
    bool here; /* for this site alone */
    char who[TB_CATALOG_TEXT_MAX];
};
typedef void (*tb_store_withdrawn_fn)(void *user, const struct tb_store_withdrawal *withdrawal);
TB_MUST_USE enum tb_status tb_store_load_withdrawn(struct tb_store *store, tb_store_withdrawn_fn withdrawn,
                                                   void *user);

/* Would it open, and load? The same looks, at all that a start reads; nothing is made, locked or
 * changed. A log that a killed process left beside it is read, too. TB_SITE_LOCKED: another process
 * holds it. */
TB_MUST_USE enum tb_status tb_store_check(const char *path, const struct tb_disk_keys *keys,
                                          tb_store_run_fn run, tb_store_version_fn version, void *user,
                                          char error_out[256]);

typedef void (*tb_store_spent_fn)(void *user, const struct tb_store_spent *spent);
TB_MUST_USE enum tb_status tb_store_load_spent(struct tb_store *store, tb_store_spent_fn spent, void *user);

typedef void (*tb_store_path_fn)(void *user, const struct tb_store_path *path);
TB_MUST_USE enum tb_status tb_store_load_paths(struct tb_store *store, tb_store_path_fn path, void *user);

/* In no order. */
typedef void (*tb_store_pause_fn)(void *user, const struct tb_store_pause *pause);
TB_MUST_USE enum tb_status tb_store_load_pauses(struct tb_store *store, tb_store_pause_fn pause, void *user);

/* Newest first, by run and number. The signatures are the caller's to check. */
typedef void (*tb_store_signed_fn)(void *user, const uint8_t *bytes, uint32_t count);
TB_MUST_USE enum tb_status tb_store_load_signed(struct tb_store *store, tb_store_signed_fn said, void *user);

typedef void (*tb_store_doubt_fn)(void *user, const struct tb_name *model);
TB_MUST_USE enum tb_status tb_store_load_doubts(struct tb_store *store, tb_store_doubt_fn doubt, void *user);

#endif
