#include "intra/fabric/shared_memory.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/fault.h"
#include "base/huge_pages.h"
#include "base/system_calls.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* Linux 5.1 */
#endif

/* The seals come after our own mapping: FUTURE_WRITE leaves it writable and allows no other. */
static bool seal(int fd)
{
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) return false;
    (void)fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE); /* an older kernel does without */
    return fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL) == 0;
}

enum tb_status tb_shared_memory_open(const char *name, uint64_t count, struct tb_shared_memory *memory_out)
{
    if (count == 0 || count > INT64_MAX) return TB_BAD_ARGUMENT;
    const int fd = tb_sys_memfd(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) goto fail;
    if (tb_sys_ftruncate(fd, (off_t)count) != 0) goto undo_fd;
    void *bytes = tb_huge_map(fd, count);
    if (bytes == MAP_FAILED) goto undo_fd;
    if (madvise(bytes, count, MADV_DONTFORK) != 0 || !seal(fd)) goto undo_map;

    *memory_out = (struct tb_shared_memory){.bytes = bytes, .count = count, .memfd = fd};
    return TB_OK;

undo_map:
    munmap(bytes, count);
undo_fd:
    close(fd);
fail:
    return TB_SITE_NOMEM;
}

/* Huge pages first, then what is missing of small ones, and at last the word that all are there:
 * the kernel makes pages for several threads at a time but for that last call. */
enum tb_status tb_shared_memory_fill(const struct tb_shared_memory *memory, uint32_t piece)
{
    const uint64_t at = piece * TB_SHARED_PIECE_BYTES;
    TB_ASSERT(memory->memfd >= 0 && at < memory->count);
    const uint64_t left = memory->count - at;
    const uint64_t bytes = left < TB_SHARED_PIECE_BYTES ? left : TB_SHARED_PIECE_BYTES;
    tb_huge_fill_mapped(memory->bytes, at, bytes);
    tb_huge_touch(memory->bytes, at, bytes);
    return tb_sys_fallocate(memory->memfd, 0, (off_t)at, (off_t)bytes) == 0 ? TB_OK : TB_SITE_NOMEM;
}

enum tb_status tb_shared_memory_new(const char *name, uint64_t count, struct tb_shared_memory *memory_out)
{
    struct tb_shared_memory memory;
    enum tb_status status = tb_shared_memory_open(name, count, &memory);
    if (status != TB_OK) return status;
    for (uint32_t piece = 0; piece < TB_SHARED_PIECES(count) && status == TB_OK; piece++)
        status = tb_shared_memory_fill(&memory, piece);
    if (status == TB_OK)
        *memory_out = memory;
    else
        tb_shared_memory_free(&memory);
    return status;
}

void tb_shared_memory_unpin(struct tb_shared_memory *memory)
{
    if (memory->pin != NULL) memory->pin->drop(memory->pin, memory->bytes);
    memory->pin = NULL;
}

void tb_shared_memory_free(struct tb_shared_memory *memory)
{
    if (memory->bytes == NULL) return;
    tb_shared_memory_unpin(memory);
    munmap(memory->bytes, memory->count);
    close(memory->memfd);
    memset(memory, 0, sizeof *memory);
}

static bool safe_to_map(int fd, uint64_t offset, uint64_t count)
{
    struct stat st;
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return false;
    if (fstat(fd, &st) != 0 || st.st_size < 0) return false;
    return count > 0 && offset <= (uint64_t)st.st_size && count <= (uint64_t)st.st_size - offset;
}

enum tb_status tb_shared_view_open(int fd, uint64_t offset, uint64_t count, struct tb_shared_view *view_out)
{
    if (!safe_to_map(fd, offset, count)) return TB_PEER_GARBLED;
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t head = offset % page;
    void *map = tb_sys_mmap(NULL, head + count, PROT_READ, MAP_SHARED, fd, (off_t)(offset - head));
    if (map == MAP_FAILED) return TB_SITE_NOMEM;
    *view_out = (struct tb_shared_view){
        .bytes = (uint8_t *)map + head, .count = count, .map = map, .map_bytes = head + count};
    return TB_OK;
}

void tb_shared_view_close(struct tb_shared_view *view)
{
    if (view->map != NULL) munmap(view->map, view->map_bytes);
    memset(view, 0, sizeof *view);
}
