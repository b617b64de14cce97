#include "intra/fabric/lent_memory.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/huge_pages.h"
#include "base/system_calls.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* Linux 5.1 */
#endif
#define TMPFS_MAGIC 0x01021994
#define KEEPS_SIZE  (F_SEAL_SHRINK | F_SEAL_GROW)
#define NOT_YET     (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) /* the source has to map and to seal */

/* FUTURE_WRITE forbids holes too, so pages that are made behind it stay. Whichever end is first
 * sets it, and the other finds it. */
static enum tb_status hold(int fd, uint64_t count)
{
    (void)fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_FUTURE_WRITE) == 0) return TB_PEER_GARBLED;
    return tb_sys_fallocate(fd, 0, 0, (off_t)count) == 0 ? TB_OK : TB_SITE_NOMEM;
}

static uint8_t *map(int fd, uint64_t count)
{
    void *bytes = tb_huge_map(fd, count);
    if (bytes == MAP_FAILED) return NULL;
    if (madvise(bytes, count, MADV_DONTFORK) == 0) return bytes;
    munmap(bytes, count);
    return NULL;
}

enum tb_status tb_lent_memory_make(uint64_t count, struct tb_lent_memory *memory_out)
{
    if (count == 0 || count > TB_LENT_BYTES_MAX) return TB_BAD_ARGUMENT;
    uint8_t *bytes = NULL;
    const int fd = tb_sys_memfd("tombolo-lent", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) goto fail;
    if (tb_sys_ftruncate(fd, (off_t)count) != 0) goto undo_fd;
    bytes = map(fd, count);
    if (bytes == NULL) goto undo_fd;
    tb_huge_fill_mapped(bytes, 0, count);
    tb_huge_touch(bytes, 0, count);
    if (fcntl(fd, F_ADD_SEALS, KEEPS_SIZE) != 0) goto undo_map;
    if (tb_sys_fallocate(fd, 0, 0, (off_t)count) != 0) goto undo_map;

    *memory_out = (struct tb_lent_memory){.bytes = bytes, .count = count, .fd = fd};
    return TB_OK;

undo_map:
    munmap(bytes, count);
undo_fd:
    close(fd);
fail:
    return TB_SITE_NOMEM;
}

/* Huge pages of a file of their own could run out under us, so tmpfs alone will do. */
static bool is_as_made(int fd, uint64_t count)
{
    struct stat st;
    struct statfs fs;
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & KEEPS_SIZE) != KEEPS_SIZE || (seals & NOT_YET) != 0) return false;
    if (fstatfs(fd, &fs) != 0 || (unsigned long)fs.f_type != TMPFS_MAGIC) return false;
    return fstat(fd, &st) == 0 && st.st_size >= 0 && (uint64_t)st.st_size == count;
}

enum tb_status tb_lent_memory_take(int fd, uint64_t count, struct tb_lent_memory *memory_out)
{
    if (count == 0 || count > TB_LENT_BYTES_MAX || !is_as_made(fd, count)) return TB_PEER_GARBLED;
    uint8_t *bytes = map(fd, count);
    if (bytes == NULL) return TB_SITE_NOMEM;
    const enum tb_status status = hold(fd, count);
    if (status != TB_OK) {
        munmap(bytes, count);
        return status;
    }
    *memory_out = (struct tb_lent_memory){.bytes = bytes, .count = count, .fd = -1};
    return TB_OK;
}

enum tb_status tb_lent_memory_hold(struct tb_lent_memory *memory)
{
    TB_ASSERT(memory->bytes != NULL && memory->fd >= 0);
    const enum tb_status status = hold(memory->fd, memory->count);
    close(memory->fd);
    memory->fd = -1;
    return status;
}

void tb_lent_memory_close(struct tb_lent_memory *memory)
{
    if (memory->bytes == NULL) return;
    munmap(memory->bytes, memory->count);
    if (memory->fd >= 0) close(memory->fd);
    *memory = (struct tb_lent_memory){.fd = -1};
}
