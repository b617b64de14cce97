/* system_names.h - names of files that are new, and that a crash does not take away.
 *
 * Threads: any. */
#ifndef TB_BASE_SYSTEM_NAMES_H
#define TB_BASE_SYSTEM_NAMES_H

#include <stdbool.h>

/* Renames in an open folder, or AT_FDCWD. False: errno; EEXIST: `to` is there, and stays as it
 * is. */
bool tb_sys_rename_new(int folder, const char *from, const char *to);
/* Syncs the folder that holds `path`. False: errno. */
bool tb_sys_sync_folder(const char *path);

#endif
