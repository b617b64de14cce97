/* persist.h - the catalog's durable todos on their way to the store, and what waits until they
 * are there. */
#ifndef TB_DAEMON_PERSIST_H
#define TB_DAEMON_PERSIST_H

#include <uv.h>

#include "gateway/catalog/todos.h"
#include "gateway/daemon/counters.h"
#include "gateway/store/store.h"

struct tb_daemon;

/* A request whose answer waits for the disk; a struct of the caller's that begins with this. */
struct tb_held {
    struct tb_held *next;
    uint64_t after; /* the number of a row */
    /* Frees it. TB_OK; TB_SITE_STORE: the disk is given up for now; TB_SITE_DRAINING. */
    void (*fn)(struct tb_daemon *d, struct tb_held *held, enum tb_status status);
};

/* Calls fn once all that the catalog wants durable by now is on disk, in this turn at the
 * earliest. TB_SITE_NOMEM: too many wait. */
TB_MUST_USE enum tb_status tb_persist_then(struct tb_daemon *d, struct tb_held *held);
TB_MUST_USE enum tb_status tb_persist_open(struct tb_daemon *d);
/* Closes the store, behind tb_daemon_flush. */
void tb_persist_close(struct tb_daemon *d);
/* The dispatcher's: a version's state that is on disk now, or whose disk is given up for now.
 * False: there is no other; what it points to stays until the next call. */
bool tb_persist_next(struct tb_daemon *d, struct tb_catalog_todo *saved_out);
uint64_t tb_persist_incarnation_written(struct tb_daemon *d); /* once; 0: none was */
/* At the end: writes rows, and waits for them. False: all are written, the store fails, or its
 * disk does not answer. */
bool tb_persist_flush(struct tb_daemon *d);
bool tb_persist_room(struct tb_daemon *d);
void tb_persist_todo(struct tb_daemon *d, const struct tb_catalog_todo *todo);
void tb_persist_settled(struct tb_daemon *d, bool all); /* all: the catalog has no rows left */
/* The store cannot be written: counts, and logs once a time. */
void tb_persist_down_log(struct tb_daemon *d, const char *why);
void tb_persist_tick(struct tb_daemon *d);
void tb_persist_wake(uv_async_t *async);
void tb_persist_spent(struct tb_daemon *d, const struct tb_store_spent *spent);
void tb_persist_path(struct tb_daemon *d, const struct tb_store_path *path);
void tb_persist_doubt(struct tb_daemon *d, const struct tb_store_doubt *doubt);
/* The bytes are copied. */
void tb_persist_signed(struct tb_daemon *d, const struct tb_statement *what, const uint8_t *bytes,
                       uint32_t count);
uint32_t tb_persist_waiting(const struct tb_daemon *d); /* rows that are not on disk */
/* The model of each of them, by turns; empty: it is about none. NULL: that was the last. */
const char *tb_persist_waiting_at(const struct tb_daemon *d, uint32_t *cursor);
/* A request was not held: its session has as many as it may have. */
void tb_persist_refused(struct tb_daemon *d);

/* Of rows: refused are those that others overtook. Of requests that wait for them. Their bounds. */
struct tb_persist_usage {
    struct tb_gauge rows, held;
    uint32_t rows_max, held_max;
};

void tb_persist_usage(const struct tb_daemon *d, struct tb_persist_usage *usage_out);
bool tb_persist_saved(const struct tb_daemon *d, const struct tb_id *uid);
void tb_persist_check(const struct tb_daemon *d); /* daemon_check.h */
/* Raises it above that, which a peer says that it has seen, or a good step towards it; links say
 * it once it is on disk. */
void tb_persist_incarnation(struct tb_daemon *d, uint64_t seen);

#endif
