/* seal_protection.h - for finding faults: pages of sealed memory that nobody may write to, and a
 * note of each writer. A shell.
 *
 * Pages are made read-only; a write raises SIGSEGV, whose handler notes the address, makes the
 * stretch writable again, and lets the write go on: the program lives, and the version is known to
 * be broken. Faults elsewhere go to the handler that was there before. It does not find writes to
 * pages that are sealed in part, nor writes by system calls (they fail with EFAULT), by devices, or
 * through a second mapping. It finds none once the program has put another handler in place of
 * ours.
 *
 * Threads: any. The table is the process's and only grows. */
#ifndef TB_INTRA_CLIENT_PROTECT_H
#define TB_INTRA_CLIENT_PROTECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tb_protect_stretch {
    uint8_t *at;
    uint64_t bytes;
};

/* Called from a signal handler: wakes somebody, nothing else. */
typedef void (*tb_protect_fn)(void *user);

struct tb_protection;

/* The whole pages of these stretches, which are sorted here. NULL: some of them cannot be
 * protected, or there is no memory for the table; then none is. */
struct tb_protection *tb_protect(struct tb_protect_stretch *stretches, uint32_t count, tb_protect_fn fn,
                                 void *user);
/* Where somebody wrote first; NULL: nobody did. */
const uint8_t *tb_protection_written(const struct tb_protection *p);
/* Writable again, but for what others protect still. No handler uses it any more. NULL is fine. */
void tb_protection_end(struct tb_protection *p);

#endif
