/* secret_memory.h - a little memory for keys and session secrets: neither dumped nor swapped, and
 * of memfd_secret, which the kernel itself does not map, where there is that.
 *
 * Where it was not opened (every program but tombolod), is full or is too small for a request,
 * memory is plain. Threads: any, after tb_secret_memory_open. */
#ifndef TB_BASE_NET_SECRET_MEMORY_H
#define TB_BASE_NET_SECRET_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#define TB_SECRET_ROW_BYTES 1024u /* the largest request that it takes */
#define TB_SECRET_ROWS      1024u

enum tb_secret_memory {
    TB_SECRET_PLAIN,  /* as any other: it was not opened, or there is no memory */
    TB_SECRET_SWAPS,  /* not dumped; RLIMIT_MEMLOCK does not allow that it is locked */
    TB_SECRET_LOCKED, /* neither dumped nor swapped */
    TB_SECRET_HIDDEN, /* of memfd_secret */
};

/* Once, before any other thread and any key is there. OpenSSL's private keys go to locked memory of
 * its own. */
enum tb_secret_memory tb_secret_memory_open(void);
enum tb_secret_memory tb_secret_memory_state(void);
/* From now on, or no more: what OpenSSL frees on this thread is overwritten first, where secret
 * memory was opened. For reading a key: its text and its DER pass through memory that OpenSSL frees
 * as it is. */
void tb_secret_wipe(bool on);
/* Zeroed. NULL: no memory. */
void *tb_secret_new(size_t bytes);
/* Likewise, for a party of which there may be very many: it leaves half of the rows to others. */
void *tb_secret_new_of_many(size_t bytes);
/* Overwrites it first; NULL is fine. */
void tb_secret_free(void *memory, size_t bytes);

#endif
