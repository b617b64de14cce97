/* adopt_read.h - what adoption.c has read on a thread: files here, compared with versions that
 * other sites have, and what matches copied into its places.
 *
 * The owner fills `versions` between opening and comparing, names the target and pins its
 * region before claiming, and looks at `done`. Nothing but the atomics is touched from both
 * sides while a job runs. */
#ifndef TB_DAEMON_ADOPT_READ_H
#define TB_DAEMON_ADOPT_READ_H

#include <pthread.h>
#include <stdatomic.h>

#include "gateway/disk/local_files.h"

struct tb_arena_region;

#define TB_ADOPT_VERSIONS_MAX 16 /* the newest that others have */

struct tb_adopt_shard {
    struct tb_manifest manifest; /* a copy */
    void *memory;
    struct tb_digest *files;  /* of the files' bytes, for each chunk that `read` names */
    uint64_t *read, *matches; /* bitmaps */
};

struct tb_adopt_version {
    struct tb_version_key key;
    struct tb_adopt_shard *shards; /* key.shard_count; NULL: its manifests are not here */
    uint64_t bytes, matched_bytes;
};

enum tb_adopt_job { TB_ADOPT_OPEN, TB_ADOPT_COMPARE, TB_ADOPT_CLAIM };

struct tb_adopt_reading {
    struct tb_given_files given; /* until they are opened */
    struct tb_local_files *files;
    struct tb_adopt_version versions[TB_ADOPT_VERSIONS_MAX];
    uint32_t version_count;
    uint32_t target;
    struct tb_arena_region *region;
    pthread_t thread;
    bool runs;
    enum tb_adopt_job job;
    enum tb_status status; /* of the job, once `done` */
    char error[TB_LOCAL_ERROR_BYTES];
    _Atomic bool stop, done;
    _Atomic uint64_t read_bytes, total_bytes; /* of the job */
    _Atomic uint64_t claimed_bytes;           /* into the region */
    _Atomic uint32_t claimed_chunks;
};

/* Begins a job on a thread of its own. TB_SITE_NOMEM: there is none. */
TB_MUST_USE enum tb_status tb_adopt_read_start(struct tb_adopt_reading *r, enum tb_adopt_job job);
/* Once `done`, or after `stop` was set: waits for the thread. */
void tb_adopt_read_join(struct tb_adopt_reading *r);
/* A version's manifests, copied. TB_SITE_NOMEM: `v` has none still. */
TB_MUST_USE enum tb_status tb_adopt_version_fill(struct tb_adopt_version *v,
                                                 const struct tb_manifest *const *manifests);
/* No job runs. */
void tb_adopt_read_fini(struct tb_adopt_reading *r);

#endif
