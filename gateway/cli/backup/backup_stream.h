/* backup_stream.h - the bytes of a backup, from its begin to its end: in clear, or encrypted as
 * `disk.key` encrypts files (gateway/disk/disk_seal.h), a unit for each 64 KiB.
 *
 * A byte that is read was checked by its unit before it is given out, or in clear by the digest at
 * the end alone. A backup that was cut short has no end. The descriptor is the caller's. */
#ifndef TB_CLI_BACKUP_STREAM_H
#define TB_CLI_BACKUP_STREAM_H

#include "gateway/cli/backup/backup_entry.h"
#include "gateway/disk/disk_key.h"

struct tb_backup_stream;

/* `key` is borrowed; NULL where the head says that it stands in clear. TB_SITE_IO: errno says why;
 * TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_backup_create(int fd, const struct tb_backup_head *head,
                                            const struct tb_disk_key *key,
                                            struct tb_backup_stream **stream_out);
TB_MUST_USE enum tb_status tb_backup_put(struct tb_backup_stream *stream, const void *bytes, uint64_t count);
/* The last entry, and all that is left; synced. */
TB_MUST_USE enum tb_status tb_backup_finish(struct tb_backup_stream *stream);

/* For reading. TB_BAD_FILE: it is no backup; TB_SITE_IO. */
TB_MUST_USE enum tb_status tb_backup_head_read(int fd, struct tb_backup_head *head_out);
/* TB_NOT_FOUND: it is under another key. */
TB_MUST_USE enum tb_status tb_backup_open(int fd, const struct tb_disk_key *key,
                                          struct tb_backup_stream **stream_out);
/* The next entry, with no more bytes than the file may have. TB_BAD_FILE. */
TB_MUST_USE enum tb_status tb_backup_next(struct tb_backup_stream *stream, struct tb_backup_entry *entry_out);
/* TB_BAD_FILE: it ends before, or was changed; TB_SITE_IO, TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_backup_get(struct tb_backup_stream *stream, void *out, uint64_t count);
/* Behind the entry END: its digest is that of all before, and nothing follows. */
TB_MUST_USE enum tb_status tb_backup_end(struct tb_backup_stream *stream);
void tb_backup_free(struct tb_backup_stream *stream); /* NULL is fine */

#endif
