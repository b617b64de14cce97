/* anchor_file.h - one whole version in a file on a disk, to begin from after a reboot (P3).
 *
 *     0  "TBANCHR1", u64 bytes of the head, XXH3-128 of the head, zeros
 *    64  head: the version's key, its root included; for each shard u32 bytes of its manifest's
 *        head, that head, a digest for each chunk
 *        each shard's packed bytes, from a multiple of 4096 on
 *
 * Under `disk.key` all of that stands inside a sealed file (sealed_file.h), so neither names nor
 * sizes of shards can be read, and a block that was moved is none.
 *
 * Numbers are little-endian. Written under a name with TB_ANCHOR_PART behind it, synced, then
 * renamed: a file with its own name was once written whole. Read as a stranger's: sizes are bounded
 * before they are believed, every digest of the head is checked up to the version's root, and the
 * bytes are only bytes until their reader has digested them (P1).
 *
 * Threads: one at a time. */
#ifndef TB_GATEWAY_DISK_ANCHOR_FILE_H
#define TB_GATEWAY_DISK_ANCHOR_FILE_H

#include "base/layout/manifest.h"
#include "gateway/disk/sealed_file.h"

#define TB_ANCHOR_END  ".anchor"
#define TB_ANCHOR_PART ".part"
/* a head has some 16 bytes a chunk, and each tensor's name */
#define TB_ANCHOR_HEAD_BYTES_MAX ((uint64_t)1 << 30)
#define TB_ANCHOR_ERROR_BYTES    512

struct tb_anchor_file {
    int fd;
    char *path;
    struct tb_version_key key;
    struct tb_manifest *manifests; /* key.shard_count; of a file that is read, its own */
    void **memory;                 /* behind them */
    uint64_t *offsets;             /* of each shard's packed bytes */
    uint64_t bytes;                /* of the file, where it is in clear */
    struct tb_sealed_file *sealed; /* NULL: it is in clear */
    bool old;                      /* under disk.key_old: it wants to be written anew */
};

/* How many bytes a file for this version takes; key NULL: in clear. */
uint64_t tb_anchor_bytes(const struct tb_version_key *version, const struct tb_manifest *const *manifests,
                         const struct tb_disk_key *key);
/* Makes PATH.part (mode 0600) and writes its head. Manifests have complete digests. TB_SITE_IO,
 * with errno's sentence in error_out; TB_SITE_NOMEM. On success tb_anchor_finish or
 * tb_anchor_abort ends it. */
TB_MUST_USE enum tb_status tb_anchor_create(const char *path, const struct tb_version_key *version,
                                            const struct tb_manifest *const *manifests,
                                            const struct tb_disk_key *key, struct tb_anchor_file *file_out,
                                            char error_out[TB_ANCHOR_ERROR_BYTES]);
/* Packed bytes of a shard, from `at` on; each call behind the one before. TB_SITE_IO: errno says
 * why; TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_anchor_write(struct tb_anchor_file *file, uint32_t shard, uint64_t at,
                                           const void *bytes, uint64_t count);
/* Bytes that were written are on their way to the disk, and do not stay in memory. TB_SITE_IO. */
TB_MUST_USE enum tb_status tb_anchor_flush(struct tb_anchor_file *file);
/* Syncs, and gives it its name. TB_SITE_IO: it is aborted. Either way the file is closed. */
TB_MUST_USE enum tb_status tb_anchor_finish(struct tb_anchor_file *file);
void tb_anchor_abort(struct tb_anchor_file *file); /* removes it */

/* Tells a file of that path by its first bytes. A file that is not there is TB_DISK_NEITHER. */
TB_MUST_USE struct tb_disk_look tb_anchor_look(const char *path, const struct tb_disk_keys *keys);
/* TB_BAD_FILE: not an anchor, cut short, or its head is damaged. TB_SITE_CONFIG: it is under none
 * of the keys. TB_NOT_FOUND, TB_SITE_IO, TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_anchor_open(const char *path, const struct tb_disk_keys *keys,
                                          struct tb_anchor_file *file_out,
                                          char error_out[TB_ANCHOR_ERROR_BYTES]);
/* A chunk's bytes as they stand there. TB_SITE_IO: they could not be read; TB_BAD_FILE: they are
 * not what was written there, which an encrypted file alone can tell; TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_anchor_read(struct tb_anchor_file *file, uint32_t shard, uint32_t k,
                                          uint8_t *out);
void tb_anchor_close(struct tb_anchor_file *file);

#endif
