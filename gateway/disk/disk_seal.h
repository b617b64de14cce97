/* disk_seal.h - units of a file on a disk, each encrypted and authenticated by AES-256-GCM (P8).
 *
 *     header, 64 bytes:  0 "TBSEAL01"   8 u32 purpose  12 zeros  16 the file's id, random
 *                       32 u64 bytes of what is inside  40 zeros
 *                       48 check: HKDF(disk.key, salt = id, "header: ", all before it)
 *     a unit:            0 salt  16 u64 counter  24 as many bytes as its plain text  then the tag
 *
 * Numbers are little-endian. The check says which key a file is under before any unit is read, and
 * that its header is whole. Each process draws a random salt of 16 bytes for a file that it opens,
 * and HKDF makes a key of it that nobody else has. The nonce is the counter, which only goes up. So
 * no nonce comes twice under one key, whatever is written again, restored or copied. The file's id,
 * the unit's kind and its index are authenticated with it. A unit counts at its own place alone.
 *
 * Threads: one at a time for each seal. */
#ifndef TB_GATEWAY_DISK_DISK_SEAL_H
#define TB_GATEWAY_DISK_DISK_SEAL_H

#include <stddef.h>

#include "gateway/disk/disk_key.h"

#define TB_SEAL_HEADER_BYTES 64u
#define TB_SEAL_MORE         40u /* a unit has so many bytes more than its plain text */

enum tb_seal_purpose { TB_SEAL_ANCHOR = 1, TB_SEAL_STORE = 2, TB_SEAL_BACKUP = 3 };

struct tb_seal;

/* For a file that is new; header_out is what it begins with. `key` is borrowed. TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_seal_new(const struct tb_disk_key *key, enum tb_seal_purpose purpose,
                                       uint64_t inside_bytes, uint8_t header_out[TB_SEAL_HEADER_BYTES],
                                       struct tb_seal **seal_out);
/* For a file with that header. TB_NOT_FOUND: it is under another key, of another purpose, or
 * damaged; TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_seal_open(const struct tb_disk_key *key, enum tb_seal_purpose purpose,
                                        const uint8_t header[TB_SEAL_HEADER_BYTES],
                                        struct tb_seal **seal_out);
void tb_seal_free(struct tb_seal *seal); /* NULL is fine */
uint64_t tb_seal_inside_bytes(const struct tb_seal *seal);

struct tb_seal_place {
    uint32_t kind;
    uint64_t index;
};
/* Writes count + TB_SEAL_MORE bytes. TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_seal_put(struct tb_seal *seal, const struct tb_seal_place *place,
                                       const void *plain, uint32_t count, uint8_t *unit_out);
/* TB_BAD_FILE: it is not what was put at this place of this file, and plain_out holds nothing of
 * it. TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_seal_get(struct tb_seal *seal, const struct tb_seal_place *place,
                                       const uint8_t *unit, uint32_t count, void *plain_out);

/* Which of the keys an open file is under. */
enum tb_disk_found {
    TB_DISK_NEITHER, /* as short as a file that was just made, or of no kind that is known here */
    TB_DISK_FITS,    /* as it would be written */
    TB_DISK_OLD,     /* as disk.key_old says */
    TB_DISK_OTHER,   /* in clear or encrypted, and none of the keys says so */
    TB_DISK_UNREAD,  /* errno says why */
};
struct tb_disk_look {
    enum tb_disk_found found;
    const struct tb_disk_key *key; /* FITS, OLD: NULL for a file in clear */
    const char *why;               /* OTHER: what it is, and what to do; static */
};
/* `magic` begins a file in clear. */
struct tb_disk_look tb_disk_look(int fd, enum tb_seal_purpose purpose, const char *magic,
                                 const struct tb_disk_keys *keys);

#endif
