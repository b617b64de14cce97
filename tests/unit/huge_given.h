/* huge_given.h - whether this kernel gives so many bytes of huge pages to a memfd now: not before
 * 6.1, not where it was told `deny`, and not where free memory is in too small pieces. Asked
 * without base/huge_pages.h, which is held to what this says. */
#ifndef TB_TESTS_UNIT_HUGE_GIVEN_H
#define TB_TESTS_UNIT_HUGE_GIVEN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

static inline bool huge_given(uint64_t bytes)
{
    const uint64_t huge = (uint64_t)2 << 20;
    const int fd = memfd_create("given", MFD_CLOEXEC);
    uint8_t *room = mmap(NULL, bytes + huge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    bool given = room != MAP_FAILED && ftruncate(fd, (off_t)bytes) == 0;
    if (given) {
        uint8_t *at = room + (huge - (uintptr_t)room % huge) % huge;
        given = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == at;
        for (uint64_t i = 0; given && i < bytes; i += 4096)
            *(volatile uint8_t *)(at + i) = 1;
        given = given && madvise(at, bytes, 25 /* MADV_COLLAPSE */) == 0;
    }
    if (room != MAP_FAILED) (void)munmap(room, bytes + huge);
    close(fd);
    return given;
}

#endif
