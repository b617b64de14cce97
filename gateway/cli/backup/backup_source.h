/* backup_source.h - a file that goes into a backup: whether it may, and whether it stayed as it
 * was. */
#ifndef TB_CLI_BACKUP_SOURCE_H
#define TB_CLI_BACKUP_SOURCE_H

#include <sys/stat.h>

#include "gateway/cli/backup/backup_entry.h"

/* *seen_out is the file as it is before it is read. TB_BAD_ARGUMENT: it is no regular file, is too
 * large, or is not listed as a key and has a private one; TB_SITE_IO. *why_out then says why. */
TB_MUST_USE enum tb_status tb_backup_source_look(int fd, enum tb_backup_role role, struct stat *seen_out,
                                                 const char **why_out);
/* After it was read: nobody wrote to it since. */
bool tb_backup_source_same(int fd, const struct stat *seen);

#endif
