/* arena_map.c - the mapping made ahead of use, in background. Landing otherwise pays a page fault
 * for each 4 KiB at first touch, 0.8 core-seconds a GiB. The bytes are allocated already. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/fault.h"
#include "gateway/arena/arena_inner.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

enum tb_status tb_arena_map_step(struct tb_arena *arena, uint64_t max_bytes)
{
    const struct arena_file *f = &arena->file;
    const uint64_t from = atomic_load(&arena->mapped_bytes);
    TB_ASSERT(from <= f->bytes && max_bytes > 0);
    if (from == f->bytes || !f->in_memory) return TB_END; /* on a disk each page would be written back */
    uint64_t bytes = max_bytes > f->page_bytes ? max_bytes - max_bytes % f->page_bytes : f->page_bytes;
    if (bytes > f->bytes - from) bytes = f->bytes - from;
    int failed =
        tb_fault_hit(TB_FAULT_mmap, EINVAL) ? -1 : madvise(f->map + from, bytes, MADV_POPULATE_WRITE);
    if (failed != 0 && errno == EINTR) return TB_AGAIN;
    if (failed != 0) return TB_END; /* an older kernel: pages are mapped as they are touched */
    atomic_store(&arena->mapped_bytes, from + bytes);
    return from + bytes == f->bytes ? TB_END : TB_AGAIN;
}

/* "NAME:   123 kB" of the mapping that begins at `at`, in bytes. */
static uint64_t smaps_sum(FILE *smaps, uintptr_t at)
{
    static const char *const names[] = {"ShmemPmdMapped:", "FilePmdMapped:"};
    char line[512];
    uint64_t sum = 0;
    bool ours = false;
    while (fgets(line, sizeof line, smaps) != NULL) {
        char *end = line;
        const uint64_t first = strtoull(line, &end, 16);
        if (*end == '-') { /* a mapping's first line: ADDRESS-ADDRESS */
            if (ours) break;
            ours = first == at;
        }
        for (size_t i = 0; ours && i < sizeof names / sizeof names[0]; i++) {
            if (strncmp(line, names[i], strlen(names[i])) == 0)
                sum += strtoull(line + strlen(names[i]), NULL, 10) << 10;
        }
    }
    return sum;
}

static uint64_t huge_bytes(const struct arena_file *f)
{
    if (f->page_bytes > TB_EXTENT_GRAIN) return f->bytes; /* hugetlbfs */
    FILE *smaps = fopen("/proc/self/smaps", "re");
    if (smaps == NULL) return 0;
    const uint64_t sum = smaps_sum(smaps, (uintptr_t)f->map);
    fclose(smaps);
    return sum;
}

void tb_arena_mapping(struct tb_arena *arena, bool look, struct tb_arena_mapping *mapping_out)
{
    *mapping_out = (struct tb_arena_mapping){.file_bytes = arena->file.bytes,
                                             .mapped_bytes = atomic_load(&arena->mapped_bytes),
                                             .page_bytes = arena->file.page_bytes,
                                             .huge_bytes = look ? huge_bytes(&arena->file) : 0};
}
