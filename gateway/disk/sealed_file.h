/* sealed_file.h - a file that is written once, from its begin to its end, encrypted: a header, then
 * a unit (disk_seal.h) for each block of its bytes. Positions are those of the bytes inside.
 *
 * A block that was changed, moved or cut off is TB_BAD_FILE when it is read, and no byte of it is
 * given out. The descriptor is the caller's. Threads: one at a time. */
#ifndef TB_GATEWAY_DISK_SEALED_FILE_H
#define TB_GATEWAY_DISK_SEALED_FILE_H

#include "gateway/disk/disk_seal.h"

#define TB_SEALED_BLOCK_BYTES (64u << 10) /* but for the last one */

struct tb_sealed_file;

/* How many bytes on the disk so many inside take. */
uint64_t tb_sealed_bytes(uint64_t inside_bytes);

/* Begins to write it, and writes its header. TB_SITE_IO: errno says why; TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_sealed_create(int fd, const struct tb_disk_key *key, uint64_t inside_bytes,
                                            struct tb_sealed_file **file_out);
/* Each call stands at or behind the end of the one before; bytes between are zeros. TB_SITE_IO,
 * TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_sealed_write(struct tb_sealed_file *file, uint64_t at, const void *bytes,
                                           uint64_t count);
/* All that is left of it, zeros included. */
TB_MUST_USE enum tb_status tb_sealed_finish(struct tb_sealed_file *file);

/* For reading. TB_BAD_FILE: it has no such header; TB_SITE_IO, TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_sealed_open(int fd, const struct tb_disk_key *key,
                                          struct tb_sealed_file **file_out);
/* As many bytes as are inside: of a file that was cut short, those that it still has room for. */
uint64_t tb_sealed_inside_bytes(const struct tb_sealed_file *file);
/* TB_BAD_FILE: a block of it is not what was written, or is not there; TB_SITE_IO,
 * TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_sealed_read(struct tb_sealed_file *file, uint64_t at, uint64_t count,
                                          void *out);
void tb_sealed_free(struct tb_sealed_file *file); /* NULL is fine */

#endif
