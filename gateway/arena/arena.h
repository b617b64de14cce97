/* arena.h - a gateway's memory for versions: one file on tmpfs or hugetlbfs, mapped once. A shell.
 *
 * Promise P3: chunks that this gateway said it holds survive the kill and restart of its
 * processes. A region (one version) is in the file as a whole or not at all, whatever
 * instant a kill hits; held bits stand beside the bytes; a restarted gateway serves at once
 * what it held (tests/unit/arena/kill.c kills at random points). Promise P7: the file is
 * allocated whole at open, so nothing later meets a full filesystem or SIGBUS; what does not
 * fit is refused with the numbers.
 *
 * Life: a random id in the file. Within one life what is held of a version only grows, until the
 * version leaves as a whole. It is new when the file is made, when opening had to drop something
 * damaged, and when a held chunk fails its re-verification.
 *
 * Here: the file as a whole. A version's share of it: arena_reserve.h (space), arena_regions.h
 * (regions, places, pins), arena_verify.h (chunks that an earlier process left).
 *
 * Threads: every call of these headers may come from any thread (one mutex inside, never held over
 * a pass on bytes). */
#ifndef TB_GATEWAY_ARENA_H
#define TB_GATEWAY_ARENA_H

#include "base/ident.h"
#include "base/layout/layouts.h"

#define TB_ARENA_ERROR_BYTES 512
#define TB_ARENA_BYTES_MIN   ((uint64_t)8 << 20)

struct tb_arena;

struct tb_arena_options {
    const char *path;
    /* Of the whole file; rounded down to the filesystem's page (2 MiB or 1 GiB on hugetlbfs). */
    uint64_t bytes;
};

/* Opens the file or makes it (mode 0600), locks it, allocates it whole, maps it and recovers its
 * regions. A larger `bytes` than the file's grows it and keeps everything; a smaller one is refused
 * while a region or the file's own tables stand past the new end. error_out gets a sentence.
 *   TB_SITE_LOCKED  another process has it; the sentence names the path
 *   TB_SITE_NOMEM   the filesystem lacks room, with the numbers; or no heap
 *   TB_SITE_CONFIG  bytes under TB_ARENA_BYTES_MIN, not a regular file, one of another format, or
 *                   regions or tables in the way of shrinking
 *   TB_SITE_IO      open, flock, fallocate, mmap failed otherwise
 * Damage is no failure: a damaged header gives an empty arena, a damaged region is dropped, each
 * with a log line and a new life. A format that is damaged is one of another release. */
TB_MUST_USE enum tb_status tb_arena_open(const struct tb_arena_options *options, struct tb_arena **arena_out,
                                         char error_out[TB_ARENA_ERROR_BYTES]);
struct tb_arena_look {
    bool in_memory; /* on tmpfs or hugetlbfs */
    bool too_small; /* it is refused for its bytes: tables or regions stand past them */
};
/* Would it open? The same looks, with the same statuses and sentences; nothing is made, locked or
 * changed. */
TB_MUST_USE enum tb_status tb_arena_check(const struct tb_arena_options *options,
                                          struct tb_arena_look *look_out,
                                          char error_out[TB_ARENA_ERROR_BYTES]);
/* Asserts what must hold of list, table, slots and extents. Its owner calls it once a second. */
void tb_arena_assert_tables(struct tb_arena *arena);
/* Nobody may use regions or places any more. Held chunks stay in the file. NULL is fine. */
void tb_arena_close(struct tb_arena *arena);

struct tb_id tb_arena_life(struct tb_arena *arena);
/* Where all places stand, until it closes. */
void *tb_arena_memory(struct tb_arena *arena, uint64_t *bytes_out);
/* Those of what is here, for manifests that may come to it. Valid until it closes. */
struct tb_layouts *tb_arena_layouts(struct tb_arena *arena);

struct tb_arena_budget {
    uint64_t total_bytes; /* for regions: the file less its tables */
    uint64_t used_bytes;
    uint64_t free_bytes;
    uint64_t largest_free_bytes; /* a shard needs its packed bytes, manifest and bitmap in one piece */
    uint32_t regions;
    uint32_t slots; /* for the file's life: each region takes one and each of its shards one */
    uint32_t slots_free;
};
void tb_arena_budget(struct tb_arena *arena, struct tb_arena_budget *budget_out);

/* ---- mapping ahead of use ---- */

/* Maps about max_bytes more of the file, so that a landing there meets no page fault. For a
 * thread of low priority, and one at a time. TB_AGAIN: there is more. TB_END: all is mapped, or
 * it does not help (a file on a disk) or cannot be done (a kernel before 5.14): pages are then
 * mapped at first touch. */
TB_MUST_USE enum tb_status tb_arena_map_step(struct tb_arena *arena, uint64_t max_bytes);

struct tb_arena_mapping {
    uint64_t file_bytes;
    uint64_t mapped_bytes; /* ahead of use */
    uint64_t page_bytes;   /* of the filesystem: 4 KiB on tmpfs; 2 MiB or 1 GiB on hugetlbfs */
    uint64_t huge_bytes;   /* in huge pages: all on hugetlbfs; on tmpfs what the kernel gave */
};
/* `look` for huge_bytes too: it reads /proc/self/smaps, which takes a while. */
void tb_arena_mapping(struct tb_arena *arena, bool look, struct tb_arena_mapping *mapping_out);

#endif
