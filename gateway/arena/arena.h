/* arena.h - a gateway's memory for versions: one file on tmpfs or hugetlbfs, mapped once. A shell.
 *
 * Promise P3: what this gateway said it holds survives the kill and restart of its
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
 * Threads: every call may come from any thread (one mutex inside, never held over a pass on
 * bytes). A region pointer is valid until tb_arena_free; a thread that did not agree on that
 * with the freeing thread holds a pin (ref/unref) meanwhile. Places are used without any
 * lock, as place.h says. */
#ifndef TB_GATEWAY_ARENA_H
#define TB_GATEWAY_ARENA_H

#include "base/ident.h"
#include "base/layout/layouts.h"
#include "base/layout/place.h"

#define TB_ARENA_ERROR_BYTES 512
#define TB_ARENA_BYTES_MIN   ((uint64_t)8 << 20)

struct tb_arena;
struct tb_arena_region;

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

/* ---- regions ---- */

/* A region without shards yet, for a version whose shards come one after another.
 * key->root may be zero.
 *   TB_DONE_BEFORE  the uid has a region: *region_out is that one
 *   TB_CONFLICT     it has, with another key (the root aside); *region_out is untouched
 *   TB_SITE_NOMEM   no slot, no heap
 *   TB_TOO_LARGE    more shards than the file has slots, for its life; error_out has the numbers */
TB_MUST_USE enum tb_status tb_arena_region_new(struct tb_arena *arena, const struct tb_version_key *key,
                                               struct tb_arena_region **region_out,
                                               char error_out[TB_ARENA_ERROR_BYTES]);
/* Space for one shard. The manifest is copied; its digests may come later (tb_arena_digests_done).
 *   TB_DONE_BEFORE  the shard has space and an equal manifest root
 *   TB_CONFLICT     it has space with another root
 *   TB_SITE_NOMEM   it does not fit: error_out says how much it needs, how much is free, and the
 *                   largest piece; nothing was changed
 *   TB_BAD_ARGUMENT shard is not below the key's shard_count */
TB_MUST_USE enum tb_status tb_arena_shard_reserve(struct tb_arena_region *region, uint32_t shard,
                                                  const struct tb_manifest *manifest,
                                                  char error_out[TB_ARENA_ERROR_BYTES]);
/* Both for all shards of a version in one step: all or nothing. manifests[s] is shard s; count must
 * be key->shard_count. */
TB_MUST_USE enum tb_status tb_arena_reserve(struct tb_arena *arena, const struct tb_version_key *key,
                                            const struct tb_manifest *const *manifests, uint32_t count,
                                            struct tb_arena_region **region_out,
                                            char error_out[TB_ARENA_ERROR_BYTES]);
/* Once all of place->manifest->digests are filled: checks them against the manifest's root and
 * writes them to the file, so that held bits set from now on survive. Until then nothing may be
 * claimed there. A reserve with complete digests has done this already. TB_DONE_BEFORE;
 * TB_CHUNK_DIGEST: they do not hash to the root; TB_BAD_STATE: the shard has no space. */
TB_MUST_USE enum tb_status tb_arena_digests_done(struct tb_arena_region *region, uint32_t shard);

struct tb_arena_region *tb_arena_region(struct tb_arena *arena, const struct tb_id *uid); /* NULL: none */
/* The region after `previous` in the order in which they were made (NULL: the first), or NULL. */
struct tb_arena_region *tb_arena_region_next(struct tb_arena *arena, struct tb_arena_region *previous);

/* Stays valid with the region; the root is zero until it was set. */
const struct tb_version_key *tb_arena_region_key(const struct tb_arena_region *region);
uint32_t tb_arena_region_state(const struct tb_arena_region *region);
/* A number of the caller's, 0 for a new region; it survives a restart. */
void tb_arena_region_set_state(struct tb_arena_region *region, uint32_t state);
/* Once the version is ready. TB_CONFLICT: another root was set before. */
TB_MUST_USE enum tb_status tb_arena_region_set_root(struct tb_arena_region *region,
                                                    const struct tb_digest *root);
/* Every shard has space and its digests. */
bool tb_arena_region_complete(const struct tb_arena_region *region);
bool tb_arena_region_whole(const struct tb_arena_region *region);     /* complete, and every chunk is held */
uint64_t tb_arena_region_bytes(const struct tb_arena_region *region); /* of the file, what it takes */
/* Tells the chunks held of each shard that is ready, and returns whether what was told is the whole
 * version. While it is told, streams and hops land: whoever counts and then asks
 * tb_arena_region_whole may hear of a whole version whose last chunk was in no count. */
bool tb_arena_region_tell(const struct tb_arena_region *region,
                          void (*fn)(void *user, uint32_t shard, uint32_t held_chunks), void *user);
/* NULL until the shard has space. The same address for the region's life; after a restart claims
 * are clear and held bits as they were. */
struct tb_place *tb_arena_place(struct tb_arena_region *region, uint32_t shard);
/* True once digests are complete: the place may be claimed and served. */
bool tb_arena_place_ready(const struct tb_arena_region *region, uint32_t shard);

/* Pins: a stream, hop or export that may touch the bytes keeps one. */
void tb_arena_region_ref(struct tb_arena_region *region);
void tb_arena_region_unref(struct tb_arena_region *region);
/* TB_BAD_STATE while pinned: try again when the last pin is gone. Else the region is gone, in the
 * file too, and its pointers with it. */
TB_MUST_USE enum tb_status tb_arena_free(struct tb_arena_region *region);

/* ---- mapping ahead of use ---- */

/* Maps about max_bytes more of the file, so that who lands there meets no page fault. For a
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

/* ---- verifying what an earlier process left ---- */

/* True: held, and its digest matched in this process (as it landed or since). Only such a
 * chunk may be a base. */
bool tb_arena_chunk_trusted(const struct tb_arena_region *region, uint32_t shard, uint32_t k);
/* Makes it so. TB_CHUNK_DIGEST: it did not match; it is no longer held and the arena has a new life
 * (logged). TB_CHUNK_ABSENT. */
TB_MUST_USE enum tb_status tb_arena_chunk_verify(struct tb_arena_region *region, uint32_t shard, uint32_t k);
/* The same for a chunk that somebody found to be wrong: it is digested whether trusted or not. */
TB_MUST_USE enum tb_status tb_arena_chunk_recheck(struct tb_arena_region *region, uint32_t shard, uint32_t k);

/* So many chunks of the shard failed since this was last asked. One caller asks: each
 * failure counts once. */
uint32_t tb_arena_place_rotted(struct tb_arena_region *region, uint32_t shard);

struct tb_arena_verified {
    uint64_t bytes;  /* digested in this step */
    uint32_t chunks; /* likewise */
    uint32_t bad;    /* chunks that failed in this step: not held any more; the life is new */
};
/* Digests held chunks that were found at open, at least one and until max_bytes are passed. For a
 * thread of low priority; a free that meets it waits for the chunk in hand (a few ms). TB_AGAIN:
 * there is more; TB_END: all are verified. */
TB_MUST_USE enum tb_status tb_arena_verify_step(struct tb_arena *arena, uint64_t max_bytes,
                                                struct tb_arena_verified *done_out);

#endif
