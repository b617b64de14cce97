/* backup_stream.c - see backup_stream.h. */
#include "gateway/cli/backup/backup_stream.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/digest.h"
#include "base/system_calls.h"
#include "gateway/disk/disk_io.h"
#include "gateway/disk/disk_seal.h"

#define BLOCK (64u << 10)
#define UNIT  (BLOCK + TB_SEAL_MORE)

struct tb_backup_stream {
    void *memory; /* that it stands in: `digest` has to stand at a multiple of 64 */
    int fd;
    struct tb_seal *seal; /* NULL: in clear */
    uint64_t at;          /* of the next unit, in the file */
    uint64_t bytes;       /* reading: of the file */
    uint64_t index;       /* of the next unit */
    uint32_t used, count; /* of `block`: writing, used; reading, count, of which `used` are given out */
    struct tb_digest_state digest;
    uint8_t block[BLOCK], unit[UNIT];
};

static struct tb_backup_stream *stream_new(int fd)
{
    const size_t alignment = _Alignof(struct tb_backup_stream);
    uint8_t *memory = tb_calloc(1, sizeof(struct tb_backup_stream) + alignment);
    if (memory == NULL) return NULL;
    struct tb_backup_stream *s = (void *)(memory + (alignment - (uintptr_t)memory % alignment));
    s->memory = memory;
    s->fd = fd;
    s->at = TB_BACKUP_HEAD_BYTES;
    tb_digest_begin(&s->digest);
    return s;
}

void tb_backup_free(struct tb_backup_stream *s)
{
    if (s == NULL) return;
    tb_seal_free(s->seal);
    tb_free(s->memory);
}

/* ---- writing ---- */

static enum tb_status seal_begin(struct tb_backup_stream *s, const struct tb_disk_key *key)
{
    uint8_t header[TB_SEAL_HEADER_BYTES];
    const enum tb_status status = tb_seal_new(key, TB_SEAL_BACKUP, 0, header, &s->seal);
    if (status != TB_OK) return status;
    if (!tb_disk_write(s->fd, s->at, header, sizeof header)) return TB_SITE_IO;
    s->at += sizeof header;
    return TB_OK;
}

enum tb_status tb_backup_create(int fd, const struct tb_backup_head *head, const struct tb_disk_key *key,
                                struct tb_backup_stream **stream_out)
{
    uint8_t bytes[TB_BACKUP_HEAD_BYTES];
    TB_ASSERT((key == NULL) == (head->lock == TB_BACKUP_CLEAR));
    struct tb_backup_stream *s = stream_new(fd);
    if (s == NULL) return TB_SITE_NOMEM;
    tb_backup_head_encode(head, bytes);
    enum tb_status status = tb_disk_write(fd, 0, bytes, sizeof bytes) ? TB_OK : TB_SITE_IO;
    if (status == TB_OK && key != NULL) status = seal_begin(s, key);
    if (status == TB_OK)
        *stream_out = s;
    else
        tb_backup_free(s);
    return status;
}

static enum tb_status block_put(struct tb_backup_stream *s)
{
    const uint8_t *bytes = s->block;
    uint32_t count = s->used;
    if (count == 0) return TB_OK;
    if (s->seal != NULL) {
        const struct tb_seal_place place = {0, s->index++};
        const enum tb_status status = tb_seal_put(s->seal, &place, s->block, count, s->unit);
        if (status != TB_OK) return status;
        bytes = s->unit;
        count += TB_SEAL_MORE;
    }
    if (!tb_disk_write(s->fd, s->at, bytes, count)) return TB_SITE_IO;
    s->at += count;
    s->used = 0;
    return TB_OK;
}

static enum tb_status put(struct tb_backup_stream *s, const uint8_t *bytes, uint64_t count)
{
    while (count > 0) {
        const uint32_t room = BLOCK - s->used, took = count < room ? (uint32_t)count : room;
        memcpy(s->block + s->used, bytes, took);
        s->used += took;
        bytes += took;
        count -= took;
        const enum tb_status status = s->used == BLOCK ? block_put(s) : TB_OK;
        if (status != TB_OK) return status;
    }
    return TB_OK;
}

enum tb_status tb_backup_put(struct tb_backup_stream *s, const void *bytes, uint64_t count)
{
    tb_digest_update(&s->digest, bytes, count);
    return put(s, bytes, count);
}

enum tb_status tb_backup_finish(struct tb_backup_stream *s)
{
    uint8_t last[TB_BACKUP_ENTRY_BYTES];
    const struct tb_backup_entry entry = {.role = TB_BACKUP_END, .bytes = TB_DIGEST_BYTES};
    tb_backup_entry_encode(&entry, last);
    enum tb_status status = tb_backup_put(s, last, sizeof last);
    if (status != TB_OK) return status;
    const struct tb_digest digest = tb_digest_end(&s->digest);
    status = put(s, digest.bytes, sizeof digest.bytes);
    if (status != TB_OK) return status;
    status = block_put(s);
    if (status != TB_OK) return status;
    return tb_sys_fsync(s->fd) == 0 ? TB_OK : TB_SITE_IO;
}

/* ---- reading ---- */

/* A file that ends before is bad. */
static enum tb_status read_at(int fd, uint64_t at, void *out, uint64_t count)
{
    if (tb_disk_read(fd, at, count, out)) return TB_OK;
    return errno == 0 ? TB_BAD_FILE : TB_SITE_IO;
}

enum tb_status tb_backup_head_read(int fd, struct tb_backup_head *head_out)
{
    uint8_t bytes[TB_BACKUP_HEAD_BYTES];
    const enum tb_status status = read_at(fd, 0, bytes, sizeof bytes);
    return status == TB_OK ? tb_backup_head_decode(bytes, head_out) : status;
}

static enum tb_status seal_read(struct tb_backup_stream *s, const struct tb_disk_key *key)
{
    uint8_t header[TB_SEAL_HEADER_BYTES];
    const enum tb_status status = read_at(s->fd, s->at, header, sizeof header);
    if (status != TB_OK) return status;
    s->at += sizeof header;
    return tb_seal_open(key, TB_SEAL_BACKUP, header, &s->seal);
}

enum tb_status tb_backup_open(int fd, const struct tb_disk_key *key, struct tb_backup_stream **stream_out)
{
    struct stat st;
    struct tb_backup_stream *s = stream_new(fd);
    if (s == NULL) return TB_SITE_NOMEM;
    enum tb_status status = fstat(fd, &st) == 0 ? TB_OK : TB_SITE_IO;
    if (status == TB_OK && key != NULL) status = seal_read(s, key);
    if (status == TB_OK) {
        s->bytes = (uint64_t)st.st_size;
        *stream_out = s;
    } else {
        tb_backup_free(s);
    }
    return status;
}

/* The next block. TB_BAD_FILE: there is none. */
static enum tb_status block_get(struct tb_backup_stream *s)
{
    const uint32_t more = s->seal != NULL ? TB_SEAL_MORE : 0;
    const uint64_t left = s->bytes > s->at ? s->bytes - s->at : 0;
    if (left <= more) return TB_BAD_FILE;
    const uint32_t count = left < BLOCK + more ? (uint32_t)left : BLOCK + more;
    enum tb_status status = read_at(s->fd, s->at, more > 0 ? s->unit : s->block, count);
    if (status != TB_OK) return status;
    const struct tb_seal_place place = {0, s->index++};
    if (more > 0) status = tb_seal_get(s->seal, &place, s->unit, count - more, s->block);
    s->at += count;
    s->count = count - more;
    s->used = 0;
    return status;
}

static enum tb_status get(struct tb_backup_stream *s, uint8_t *out, uint64_t count)
{
    while (count > 0) {
        const enum tb_status status = s->used == s->count ? block_get(s) : TB_OK;
        if (status != TB_OK) return status;
        const uint32_t there = s->count - s->used, took = count < there ? (uint32_t)count : there;
        memcpy(out, s->block + s->used, took);
        s->used += took;
        out += took;
        count -= took;
    }
    return TB_OK;
}

enum tb_status tb_backup_get(struct tb_backup_stream *s, void *out, uint64_t count)
{
    const enum tb_status status = get(s, out, count);
    if (status == TB_OK) tb_digest_update(&s->digest, out, count);
    return status;
}

enum tb_status tb_backup_next(struct tb_backup_stream *s, struct tb_backup_entry *entry_out)
{
    uint8_t bytes[TB_BACKUP_ENTRY_BYTES];
    enum tb_status status = tb_backup_get(s, bytes, sizeof bytes);
    if (status != TB_OK) return status;
    status = tb_backup_entry_decode(bytes, entry_out);
    if (status != TB_OK) return status;
    return entry_out->bytes <= s->bytes ? TB_OK : TB_BAD_FILE; /* P7 */
}

enum tb_status tb_backup_end(struct tb_backup_stream *s)
{
    struct tb_digest said;
    const struct tb_digest digest = tb_digest_end(&s->digest);
    const enum tb_status status = get(s, said.bytes, sizeof said.bytes);
    if (status != TB_OK) return status;
    const bool ends = s->used == s->count && s->at == s->bytes;
    return ends && tb_digest_equal(&said, &digest) ? TB_OK : TB_BAD_FILE;
}
