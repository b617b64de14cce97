/* store_writer.h - a thread that writes to the store, so that nobody else waits for its disk. A
 * shell.
 *
 * One batch at a time: the owner hands it over, goes on with its life, is woken, and takes the
 * result. So the order of rows is the owner's, and batches grow by themselves while a disk is slow.
 *
 * Threads: `done` comes from the writer's thread; all else is for one thread, the owner's. From
 * open on the store is the writer's, which closes it at its end: that waits for the disk, too. */
#ifndef TB_DAEMON_STORE_WRITER_H
#define TB_DAEMON_STORE_WRITER_H

#include "gateway/store/store.h"

#define TB_STORE_BATCH_MAX 64u

struct tb_store_writer;

struct tb_store_written {
    enum tb_status status; /* TB_OK: all of the batch is on disk; TB_SITE_STORE: none of it */
    uint32_t count;
    uint64_t incarnation; /* as a row of that kind was written; 0: there was none */
    char error[256];
};

TB_MUST_USE enum tb_status tb_store_writer_open(struct tb_store *store, void (*done)(void *user), void *user,
                                                struct tb_store_writer **writer_out);
/* Rows are copied: at most TB_STORE_BATCH_MAX. Only when it is idle: nothing handed over,
 * or its result taken. */
void tb_store_writer_submit(struct tb_store_writer *writer, const struct tb_store_row *const *rows,
                            uint32_t count);
/* False: it is idle, or not done yet. */
bool tb_store_writer_take(struct tb_store_writer *writer, struct tb_store_written *written_out);
/* Waits until there is a result to take or nothing is under way; false: `ms` passed before. */
bool tb_store_writer_wait(struct tb_store_writer *writer, uint32_t ms);
/* Writes what was handed over, and closes the store. True: both are done, and the thread has
 * ended. False: `ms` passed before. The thread then keeps its memory and the store, and nobody
 * may use either any more. */
bool tb_store_writer_close(struct tb_store_writer *writer, uint32_t ms);

#endif
