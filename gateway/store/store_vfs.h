/* store_vfs.h - the store's file and its log, encrypted: an SQLite VFS over SQLite's own. For the
 * files of the store alone.
 *
 * The file is a header and a unit (disk_seal.h) for each page. The log is a unit for its header,
 * and two for each of its frames: the words of SQLite about the page, and the page. This VFS
 * refuses every other file, such as a journal. So a store is opened with locking_mode EXCLUSIVE
 * (the index of the log is then in memory) and temp_store MEMORY.
 *
 * Threads: one at a time, as the store. */
#ifndef TB_STORE_STORE_VFS_H
#define TB_STORE_STORE_VFS_H

#include <sqlite3.h>

#include "gateway/disk/disk_seal.h"

struct tb_store_vfs;

#define TB_STORE_PAGE_BYTES 4096

/* `below` is the name of SQLite's own VFS, NULL: its usual one. `key` is borrowed.
 * TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_store_vfs_open(const struct tb_disk_key *key, const char *below,
                                             struct tb_store_vfs **vfs_out);
/* Every database of it is closed. NULL is fine. */
void tb_store_vfs_close(struct tb_store_vfs *vfs);
const char *tb_store_vfs_name(const struct tb_store_vfs *vfs); /* for sqlite3_open_v2 */

#endif
