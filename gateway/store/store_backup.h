/* store_backup.h - a copy of the store that is consistent, made while the store is written to.
 *
 * The store's own thread makes it, a piece at a time between its batches, in a file beside the
 * store and under the store's key. Rows that are written meanwhile are in the copy, too. Its name
 * is taken away before anybody gets it, so a process that is killed leaves a file that the next
 * copy clears away, and no other.
 *
 * The copy says of itself that it is one: a process that starts with it finds TB_STORE_RESTORED
 * (store.h), on each filesystem, and doubts its models.
 *
 * Threads: `step` is for the thread of the store; all else for the owner, while no step runs. */
#ifndef TB_STORE_STORE_BACKUP_H
#define TB_STORE_STORE_BACKUP_H

#include <stdbool.h>
#include <stdint.h>

#include "tombolo/status.h"

#define TB_STORE_IS_BACKUP "a backup" /* in place of the name of a file (store_rekey.h) */

/* Bytes that a copy leaves free on the store's disk. */
#define TB_STORE_BACKUP_MARGIN (UINT64_C(64) << 20)
#define TB_STORE_KEPT_MAX      9u /* copies of tb_store_keep_as under one name */

struct tb_store;
struct tb_store_backup;

/* Of the store at `path`. TB_BAD_ARGUMENT: the path is too long; TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_store_backup_new(const char *path, struct tb_store_backup **backup_out);
/* Another margin, for tests. */
void tb_store_backup_margin(struct tb_store_backup *backup, uint64_t bytes);
/* 1 MiB of it at most. Outside of a transaction. It ends as TB_SITE_STORE before the disk has less
 * than the margin: at its begin, where the store's size does not fit, and between its pieces. */
void tb_store_backup_step(struct tb_store *store, struct tb_store_backup *backup);

/* The queue of rows has let go of the step, done or not. */
void tb_store_backup_let_go(struct tb_store_backup *backup);
/* Once after each of those: the owner looks at it. */
bool tb_store_backup_is_due(struct tb_store_backup *backup);
bool tb_store_backup_is_over(const struct tb_store_backup *backup);
/* Once it is over. TB_OK: *fd_out, for reading, is the caller's. TB_SITE_STORE: error_out says
 * why. */
TB_MUST_USE enum tb_status tb_store_backup_take(struct tb_store_backup *backup, int *fd_out,
                                                char error_out[256]);
void tb_store_backup_free(struct tb_store_backup *backup); /* NULL is fine */

/* At an open, for tables of another release that are about to change: the store as it is, whole and
 * synced, as a file of that name. An earlier one stays: then it is NAME.2, and so on to
 * TB_STORE_KEPT_MAX. TB_SITE_STORE: error_out says why. */
TB_MUST_USE enum tb_status tb_store_keep_as(struct tb_store *store, const char *name, char error_out[256]);

#endif
