/* backup_lock.h - the key of a backup: of a file as `disk.key` has it, or made of a passphrase. */
#ifndef TB_CLI_BACKUP_LOCK_H
#define TB_CLI_BACKUP_LOCK_H

#include "gateway/cli/backup/backup_entry.h"
#include "gateway/cli/cli.h"
#include "gateway/disk/disk_key.h"

/* By the options of the call: --key-file, or --passphrase and --passphrase-file. */
enum tb_backup_lock tb_backup_lock_given(const struct tb_cli_call *call);

/* *key_out is NULL for TB_BACKUP_CLEAR, else the caller's. `is_new`: a passphrase of the terminal
 * is asked for twice. TB_BAD_ARGUMENT: error_out says why; TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_backup_key(const struct tb_cli_call *call, const struct tb_backup_head *head,
                                         bool is_new, struct tb_disk_key **key_out,
                                         char error_out[TB_DISK_KEY_ERROR_BYTES]);

#endif
