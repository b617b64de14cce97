#include "base/huge_pages.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/system_calls.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

#define PIECE_BYTES (32 * TB_HUGE_BYTES)

static uint64_t next_huge(uint64_t at)
{
    return (at + TB_HUGE_BYTES - 1) & ~(TB_HUGE_BYTES - 1);
}

/* Address space of so many bytes from a multiple of TB_HUGE_BYTES on; NULL: there is none. */
static uint8_t *reserve(uint64_t bytes)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t room = bytes + TB_HUGE_BYTES, used = (bytes + page - 1) & ~(page - 1);
    TB_ASSERT(bytes > 0 && room > bytes);
    uint8_t *before = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (before == MAP_FAILED) return NULL;
    const uint64_t head = next_huge((uintptr_t)before) - (uintptr_t)before;
    uint8_t *at = before + head, *behind = at + used;
    TB_ASSERT((uintptr_t)at % TB_HUGE_BYTES == 0 && head + used <= room);
    if (head > 0) (void)munmap(before, head);
    if (head + used < room) (void)munmap(behind, room - head - used);
    return at;
}

/* Of a huge page in which nothing stands the kernel makes none: one small page is put there first,
 * and the rest is zeroes. */
static bool collapse(uint8_t *map, uint64_t bytes)
{
    TB_ASSERT((uintptr_t)map % TB_HUGE_BYTES == 0 && bytes % TB_HUGE_BYTES == 0);
    for (uint64_t at = 0; at < bytes; at += TB_HUGE_BYTES)
        if (madvise(map + at, 1, MADV_POPULATE_WRITE) != 0) return false;
    return madvise(map, bytes, MADV_COLLAPSE) == 0 || errno == EAGAIN; /* some page was in use */
}

void tb_huge_fill(int fd, uint64_t at, uint64_t bytes)
{
    TB_ASSERT(at + bytes >= at);
    const uint64_t first = next_huge(at), end = (at + bytes) & ~(TB_HUGE_BYTES - 1);
    for (uint64_t from = first, step; from < end; from += step) {
        step = end - from < PIECE_BYTES ? end - from : PIECE_BYTES;
        uint8_t *room = reserve(step);
        if (room == NULL) return;
        const void *map = mmap(room, step, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)from);
        const bool goes_on = map != MAP_FAILED && collapse(room, step);
        (void)munmap(room, step);
        if (!goes_on) return;
    }
}

void tb_huge_fill_mapped(void *map, uint64_t at, uint64_t bytes)
{
    TB_ASSERT(at + bytes >= at);
    const uint64_t first = next_huge(at), end = (at + bytes) & ~(TB_HUGE_BYTES - 1);
    if ((uintptr_t)map % TB_HUGE_BYTES != 0) return;
    for (uint64_t from = first, step; from < end; from += step) {
        step = end - from < PIECE_BYTES ? end - from : PIECE_BYTES;
        if (!collapse((uint8_t *)map + from, step)) return;
    }
}

void tb_huge_touch(void *map, uint64_t at, uint64_t bytes)
{
    (void)madvise((uint8_t *)map + at, bytes, MADV_POPULATE_WRITE);
}

void *tb_huge_map(int fd, uint64_t bytes)
{
    uint8_t *room = bytes >= TB_HUGE_BYTES ? reserve(bytes) : NULL;
    void *map =
        tb_sys_mmap(room, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (room != NULL ? MAP_FIXED : 0), fd, 0);
    if (map == MAP_FAILED && room != NULL) (void)munmap(room, bytes);
    return map;
}
