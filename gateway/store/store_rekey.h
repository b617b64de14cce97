/* store_rekey.h - a store that is in clear, or under another key, is written anew under the wanted
 * key. And an SQLite file beside the store, for those who copy it. For the files of the store
 * alone. */
#ifndef TB_STORE_STORE_REKEY_H
#define TB_STORE_STORE_REKEY_H

#include <sqlite3.h>

#include "gateway/disk/disk_key.h"

struct tb_store_vfs;

#define TB_STORE_FILE_NAME_BYTES 48

/* Which file this is: its inode and its time of birth. Empty: the filesystem does not tell. */
void tb_store_file_name(int fd, char out[TB_STORE_FILE_NAME_BYTES]);

/* A connection that alone uses a file; key NULL: in clear. False: errno, or the connection, says
 * why; close follows all the same. */
struct tb_store_side {
    struct tb_store_vfs *vfs;
    sqlite3 *db;
};
TB_MUST_USE bool tb_store_side_open(struct tb_store_side *side, const char *path,
                                    const struct tb_disk_key *key);
void tb_store_side_close(struct tb_store_side *side);
/* Of a file that nobody has open. False with errno EBUSY: a log is left beside it. */
bool tb_store_has_no_log(const char *path);

struct tb_store_rekey {
    const char *path;
    int fd;                              /* of it, as it is now */
    const struct tb_disk_key *from, *to; /* NULL: in clear */
};
/* The caller holds the file's lock, and nobody has it open. It is read with its log, written beside
 * itself, synced, and takes its own place by renaming: at each moment the path has the one or the
 * other, whole. So `fd` is the old file's then. TB_SITE_STORE, with a sentence: the path has what
 * it had. */
TB_MUST_USE enum tb_status tb_store_rekey(const struct tb_store_rekey *rekey, char error_out[256]);
/* Takes away what a killed process was writing. */
void tb_store_rekey_clear(const char *path);

#endif
