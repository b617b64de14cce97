/* sealed_file.c - see sealed_file.h. */
#include "gateway/disk/sealed_file.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/disk/disk_io.h"

#define BLOCK TB_SEALED_BLOCK_BYTES
#define UNIT  (BLOCK + TB_SEAL_MORE)

struct tb_sealed_file {
    int fd;
    struct tb_seal *seal;
    uint64_t inside_bytes;
    uint64_t at; /* the next byte that is written */
    uint8_t block[BLOCK], unit[UNIT];
};

static uint64_t unit_at(uint64_t block)
{
    return TB_SEAL_HEADER_BYTES + block * UNIT;
}

uint64_t tb_sealed_bytes(uint64_t inside_bytes)
{
    const uint64_t rest = inside_bytes % BLOCK;
    return unit_at(inside_bytes / BLOCK) + (rest > 0 ? rest + TB_SEAL_MORE : 0);
}

/* Of a file of so many bytes. */
static uint64_t room_inside(uint64_t bytes)
{
    if (bytes < TB_SEAL_HEADER_BYTES) return 0;
    const uint64_t units = bytes - TB_SEAL_HEADER_BYTES, rest = units % UNIT;
    return units / UNIT * BLOCK + (rest > TB_SEAL_MORE ? rest - TB_SEAL_MORE : 0);
}

/* ---- writing ---- */

static enum tb_status block_put(struct tb_sealed_file *f, uint64_t block, const uint8_t *bytes,
                                uint32_t count)
{
    TB_ASSERT(count > 0 && count <= BLOCK);
    const enum tb_status status =
        tb_seal_put(f->seal, &(struct tb_seal_place){0, block}, bytes, count, f->unit);
    if (status != TB_OK) return status;
    return tb_disk_write(f->fd, unit_at(block), f->unit, count + TB_SEAL_MORE) ? TB_OK : TB_SITE_IO;
}

/* As much as the block has room for; NULL: zeros. */
static enum tb_status append_some(struct tb_sealed_file *f, const uint8_t *bytes, uint64_t count,
                                  uint64_t *took_out)
{
    const uint64_t block = f->at / BLOCK;
    const uint32_t used = (uint32_t)(f->at % BLOCK);
    const uint32_t took = count < BLOCK - used ? (uint32_t)count : BLOCK - used;
    TB_ASSERT(took > 0 && f->at + took <= f->inside_bytes);
    f->at += took;
    *took_out = took;
    if (took == BLOCK && bytes != NULL) return block_put(f, block, bytes, BLOCK);
    if (bytes != NULL)
        memcpy(f->block + used, bytes, took);
    else
        memset(f->block + used, 0, took);
    return used + took == BLOCK ? block_put(f, block, f->block, BLOCK) : TB_OK;
}

static enum tb_status append(struct tb_sealed_file *f, const uint8_t *bytes, uint64_t count)
{
    while (count > 0) {
        uint64_t took = 0;
        const enum tb_status status = append_some(f, bytes, count, &took);
        if (status != TB_OK) return status;
        if (bytes != NULL) bytes += took;
        count -= took;
    }
    return TB_OK;
}

enum tb_status tb_sealed_create(int fd, const struct tb_disk_key *key, uint64_t inside_bytes,
                                struct tb_sealed_file **file_out)
{
    uint8_t header[TB_SEAL_HEADER_BYTES];
    struct tb_sealed_file *f = tb_calloc(1, sizeof *f);
    if (f == NULL) return TB_SITE_NOMEM;
    f->fd = fd;
    f->inside_bytes = inside_bytes;
    enum tb_status status = tb_seal_new(key, TB_SEAL_ANCHOR, inside_bytes, header, &f->seal);
    if (status == TB_OK && !tb_disk_write(fd, 0, header, sizeof header)) status = TB_SITE_IO;
    if (status == TB_OK)
        *file_out = f;
    else
        tb_sealed_free(f);
    return status;
}

enum tb_status tb_sealed_write(struct tb_sealed_file *f, uint64_t at, const void *bytes, uint64_t count)
{
    TB_ASSERT(at >= f->at && at <= f->inside_bytes && count <= f->inside_bytes - at);
    const enum tb_status status = append(f, NULL, at - f->at);
    return status == TB_OK ? append(f, bytes, count) : status;
}

enum tb_status tb_sealed_finish(struct tb_sealed_file *f)
{
    const enum tb_status status = append(f, NULL, f->inside_bytes - f->at);
    const uint32_t rest = (uint32_t)(f->at % BLOCK);
    if (status != TB_OK || rest == 0) return status;
    return block_put(f, f->at / BLOCK, f->block, rest);
}

/* ---- reading ---- */

static enum tb_status header_read(struct tb_sealed_file *f, const struct tb_disk_key *key)
{
    uint8_t header[TB_SEAL_HEADER_BYTES];
    struct stat st;
    if (fstat(f->fd, &st) != 0) return TB_SITE_IO;
    if (!tb_disk_read(f->fd, 0, sizeof header, header)) return errno == 0 ? TB_BAD_FILE : TB_SITE_IO;
    const enum tb_status status = tb_seal_open(key, TB_SEAL_ANCHOR, header, &f->seal);
    if (status != TB_OK) return status == TB_NOT_FOUND ? TB_BAD_FILE : status;
    const uint64_t room = room_inside((uint64_t)st.st_size);
    f->inside_bytes = tb_seal_inside_bytes(f->seal);
    if (f->inside_bytes > room) f->inside_bytes = room; /* P7: no more than there is on the disk */
    return TB_OK;
}

enum tb_status tb_sealed_open(int fd, const struct tb_disk_key *key, struct tb_sealed_file **file_out)
{
    struct tb_sealed_file *f = tb_calloc(1, sizeof *f);
    if (f == NULL) return TB_SITE_NOMEM;
    f->fd = fd;
    const enum tb_status status = header_read(f, key);
    if (status == TB_OK)
        *file_out = f;
    else
        tb_sealed_free(f);
    return status;
}

uint64_t tb_sealed_inside_bytes(const struct tb_sealed_file *f)
{
    return f->inside_bytes;
}

/* P1: a block is authenticated as long as it was written, so one that was cut is none. */
static enum tb_status block_get(struct tb_sealed_file *f, uint64_t block, uint32_t *count_out, uint8_t *out)
{
    const uint64_t left = tb_seal_inside_bytes(f->seal) - block * BLOCK;
    const uint32_t count = left < BLOCK ? (uint32_t)left : BLOCK;
    *count_out = count;
    if (!tb_disk_read(f->fd, unit_at(block), count + TB_SEAL_MORE, f->unit))
        return errno == 0 ? TB_BAD_FILE : TB_SITE_IO;
    return tb_seal_get(f->seal, &(struct tb_seal_place){0, block}, f->unit, count, out);
}

static enum tb_status read_some(struct tb_sealed_file *f, uint64_t at, uint64_t count, uint8_t *out,
                                uint64_t *took_out)
{
    const uint64_t block = at / BLOCK, skip = at % BLOCK;
    uint32_t has = 0;
    if (skip == 0 && count >= BLOCK) { /* straight to where it belongs */
        *took_out = BLOCK;
        return block_get(f, block, &has, out);
    }
    const enum tb_status status = block_get(f, block, &has, f->block);
    TB_ASSERT(status != TB_OK || has > skip);
    if (status != TB_OK) return status;
    *took_out = has - skip < count ? has - skip : count;
    memcpy(out, f->block + skip, *took_out);
    return TB_OK;
}

enum tb_status tb_sealed_read(struct tb_sealed_file *f, uint64_t at, uint64_t count, void *out)
{
    uint8_t *to = out;
    if (at > f->inside_bytes || count > f->inside_bytes - at) return TB_BAD_FILE;
    while (count > 0) {
        uint64_t took = 0;
        const enum tb_status status = read_some(f, at, count, to, &took);
        if (status != TB_OK) return status;
        to += took;
        at += took;
        count -= took;
    }
    return TB_OK;
}

void tb_sealed_free(struct tb_sealed_file *f)
{
    if (f == NULL) return;
    tb_seal_free(f->seal);
    tb_free(f);
}
