/* backup_entry.h - what stands in a backup: its head, and a head for each file in it. A core.
 *
 *     head, 64 bytes:   0 "TBBACKUP"  8 u32 format, 1  12 u32 lock  16 salt, 16 bytes  32 zeros
 *     entry, 1024:      0 u32 role    4 u64 bytes     12 the path, zeros behind it
 *
 * Numbers are little-endian. The bytes of the file follow its entry. The last entry has the role
 * END and the digest of all before it. A restore believes none of it: a decoded
 * entry has a role, a size and a path that are possible, and nothing else is. */
#ifndef TB_CLI_BACKUP_ENTRY_H
#define TB_CLI_BACKUP_ENTRY_H

#include <stdbool.h>
#include <stdint.h>

#include "tombolo/status.h"

#define TB_BACKUP_HEAD_BYTES  64u
#define TB_BACKUP_ENTRY_BYTES 1024u
#define TB_BACKUP_SALT_BYTES  16u
#define TB_BACKUP_PATH_BYTES  (TB_BACKUP_ENTRY_BYTES - 12u) /* with its NUL */
#define TB_BACKUP_ENTRIES_MAX 512u
#define TB_BACKUP_FILE_MAX    (4u << 20) /* bytes of one that is no store */

/* The kind of key that the rest is encrypted under. */
enum tb_backup_lock { TB_BACKUP_CLEAR, TB_BACKUP_KEY_FILE, TB_BACKUP_PASSPHRASE };

struct tb_backup_head {
    enum tb_backup_lock lock;
    uint8_t salt[TB_BACKUP_SALT_BYTES]; /* of a passphrase */
};

enum tb_backup_role {
    TB_BACKUP_END,
    TB_BACKUP_CONFIG, /* the gateway's configuration */
    TB_BACKUP_FILE,   /* that it names, and that is no secret: certificates, lists */
    TB_BACKUP_KEY,
    TB_BACKUP_STORE,
    TB_BACKUP_AUTHORITY, /* a key of an authority, which no gateway reads */
    TB_BACKUP_ROLE_END
};

struct tb_backup_entry {
    enum tb_backup_role role;
    uint64_t bytes;
    char path[TB_BACKUP_PATH_BYTES]; /* absolute; END: empty */
};

/* "/a/b": no part is empty, "." or "..", and no character drives a terminal. */
bool tb_backup_path_good(const char *path);
const char *tb_backup_role_name(enum tb_backup_role role); /* "config" */

void tb_backup_head_encode(const struct tb_backup_head *head, uint8_t out[TB_BACKUP_HEAD_BYTES]);
/* TB_BAD_FILE: it is no backup, or of a format that this release does not know. */
TB_MUST_USE enum tb_status tb_backup_head_decode(const uint8_t bytes[TB_BACKUP_HEAD_BYTES],
                                                 struct tb_backup_head *head_out);
void tb_backup_entry_encode(const struct tb_backup_entry *entry, uint8_t out[TB_BACKUP_ENTRY_BYTES]);
/* TB_BAD_FILE. */
TB_MUST_USE enum tb_status tb_backup_entry_decode(const uint8_t bytes[TB_BACKUP_ENTRY_BYTES],
                                                  struct tb_backup_entry *entry_out);

#endif
