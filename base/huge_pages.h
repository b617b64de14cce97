/* huge_pages.h - files in memory that stand in huge pages, where the kernel gives those on request
 * (MADV_COLLAPSE, Linux 6.1; also with transparent_hugepage/shmem_enabled at `never`, as it is by
 * default). A shell.
 *
 * Why: the kernel copies out of huge pages about twice as fast (docs/benchmarks.md), a page
 * fault is 2 MiB, and a NIC pins 512 times fewer pages. All of it is advice: without it the same
 * bytes stand in small pages. */
#ifndef TB_BASE_HUGE_H
#define TB_BASE_HUGE_H

#include <stdint.h>

#define TB_HUGE_BYTES ((uint64_t)2 << 20)

/* Huge pages, zeroed, for the part of [at, at + bytes) of a tmpfs file or memfd that has no
 * pages yet; all of it lies within the file. Bytes that stand there stay. No space is promised:
 * fallocate says whether there is. Signals wait for 64 MiB of it at most. */
void tb_huge_fill(int fd, uint64_t at, uint64_t bytes);

/* The same for the part of [at, at + bytes) of what tb_huge_map mapped, through that mapping: it
 * works on a file that allows no other. Several threads may, each over its own part. */
void tb_huge_fill_mapped(void *map, uint64_t at, uint64_t bytes);
/* Makes the pages of [at, at + bytes) that are not there, and maps them: a later write meets no
 * fault. Advice too (MADV_POPULATE_WRITE, Linux 5.14): fallocate says whether there is space. */
void tb_huge_touch(void *map, uint64_t at, uint64_t bytes);

/* The file's first bytes, shared and writable, mapped where its huge pages can be mapped
 * whole. MAP_FAILED, errno: as of mmap. Ends with munmap of as many bytes. Counts as a call of
 * the fault point `mmap`. */
void *tb_huge_map(int fd, uint64_t bytes);

#endif
