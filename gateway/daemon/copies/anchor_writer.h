/* anchor_writer.h - one anchor, written at a bounded pace. On a thread of its own. */
#ifndef TB_DAEMON_ANCHOR_WRITER_H
#define TB_DAEMON_ANCHOR_WRITER_H

#include <stdatomic.h>

#include "base/layout/version_key.h"
#include "gateway/disk/anchor_file.h"
#include "gateway/disk/anchor_folder.h"
#include "wan/send/rate_cap.h"

struct tb_arena_region;

struct tb_anchor_writer {
    /* The owner's, and as they are until tb_anchor_writer_run has returned. */
    const struct tb_anchor_folder *folder;
    struct tb_version_key key;
    struct tb_arena_region *region;     /* whole, and pinned by the owner */
    uint64_t bytes_per_s;               /* 0: no bound */
    const struct tb_disk_key *disk_key; /* NULL: in clear */
    char path[TB_ANCHOR_PATH_BYTES];
    _Atomic bool stop; /* any thread sets it: the writing is given up */
    /* The writer's. */
    struct tb_cap pace;
    uint64_t total_bytes;
    char error[TB_ANCHOR_ERROR_BYTES];
    _Atomic uint64_t written_bytes; /* any thread reads it */
};

static inline struct tb_anchor_which tb_anchor_which_of(const struct tb_version_key *key)
{
    return (struct tb_anchor_which){.any = true, .run_order = key->run_order, .number = key->number};
}

/* Once it is on the disk whole, older anchors of the model go. TB_CANCELLED: it was stopped.
 * TB_SITE_IO: w->error says why. TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_anchor_writer_run(struct tb_anchor_writer *w);

#endif
