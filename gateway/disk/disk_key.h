/* disk_key.h - the key under which files on a disk are encrypted (`disk.key`), and the one of
 * before (`disk.key_old`).
 *
 * Threads: any; a key does not change once it is read. */
#ifndef TB_GATEWAY_DISK_DISK_KEY_H
#define TB_GATEWAY_DISK_DISK_KEY_H

#include <stdbool.h>
#include <stdint.h>

#include "tombolo/status.h"

#define TB_DISK_KEY_BYTES       32u
#define TB_DISK_KEY_ERROR_BYTES 512u
#define TB_DISK_KEY_CREDENTIAL  "credential:"
#define TB_DISK_KEY_PLAIN       "plain" /* as disk.key_old: files in clear */

struct tb_disk_key {
    uint8_t bytes[TB_DISK_KEY_BYTES];
};

/* Both are borrowed. */
struct tb_disk_keys {
    const struct tb_disk_key *key; /* files are written under it; NULL: in clear */
    const struct tb_disk_key *old; /* files that are read, too; NULL: in clear */
    bool has_old;                  /* else only `key` counts */
};

/* `text` is a file's path, or "credential:NAME" for $CREDENTIALS_DIRECTORY/NAME. The file has 32
 * bytes, or 64 hex digits; a path must be this process's user's alone, a credential may be root's.
 * The key stands in secret memory. TB_SITE_CONFIG: error_out says why, and what to do;
 * TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_disk_key_read(const char *text, struct tb_disk_key **key_out,
                                            char error_out[TB_DISK_KEY_ERROR_BYTES]);
/* Overwrites it; NULL is fine. */
void tb_disk_key_free(struct tb_disk_key *key);

#endif
