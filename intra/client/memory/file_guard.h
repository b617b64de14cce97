/* file_guard.h - the caller's memory that maps a file: what happens when somebody makes the file
 * shorter. A shell.
 *
 * A load from a page that the file no longer has raises SIGBUS, in whatever thread. The handler
 * notes the address, puts zeroed memory where the bytes are missing, and lets the load go on. The
 * process lives, and a version that was made of these bytes is refused. Faults elsewhere go to the
 * handler that was there before. The program's own loads from there read zeros as well. The guard
 * does not find a file that is shorter inside its last page, or that has other bytes: the digest
 * does. It finds nothing once the program has put another handler in place of ours.
 *
 * Threads: any. The table is the process's and only grows. */
#ifndef TB_INTRA_CLIENT_GUARD_H
#define TB_INTRA_CLIENT_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "tombolo/status.h"

struct tb_guard_range {
    const uint8_t *at;
    uint64_t bytes;
};

/* Called from a signal handler: wakes somebody, nothing else. */
typedef void (*tb_guard_fn)(void *user);

struct tb_guard;

/* Of what in these ranges maps a file; they are sorted here. *guard_out is NULL where none of it
 * does. TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_guard_new(struct tb_guard_range *ranges, uint32_t count, tb_guard_fn fn,
                                        void *user, struct tb_guard **guard_out);
/* Looks whether the end of each mapping is still there, for readers that no signal reaches: other
 * processes, and the kernel. It may wait for a disk. */
void tb_guard_look(struct tb_guard *guard);
/* Where bytes were missing first; NULL: nowhere yet. NULL for no guard. */
const uint8_t *tb_guard_missing(const struct tb_guard *guard);
/* No handler uses it any more. NULL is fine. */
void tb_guard_end(struct tb_guard *guard);

/* Copies from memory of which a part may be missing. False: it is. */
TB_MUST_USE bool tb_guard_copy(void *to, const void *from, uint64_t bytes);

#endif
