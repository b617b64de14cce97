/* persist_links.h - what the links want kept: bytes of a day, streams of a path, doubts of a model,
 * statements of a home, what is paused, the incarnation that a peer has seen; and a copy of the
 * store, for an operator. */
#ifndef TB_DAEMON_PERSIST_LINKS_H
#define TB_DAEMON_PERSIST_LINKS_H

#include <stdbool.h>
#include <stdint.h>

#include "gateway/store/store.h"

struct tb_daemon;

void tb_persist_spent(struct tb_daemon *d, const struct tb_store_spent *spent);
void tb_persist_path(struct tb_daemon *d, const struct tb_store_path *path);
/* False: the queue is full. */
bool tb_persist_pause(struct tb_daemon *d, const struct tb_store_pause *pause);
void tb_persist_doubt(struct tb_daemon *d, const struct tb_store_doubt *doubt);
/* Asks the store for a model: `answered` says that it has, and a mark in model_table.h. False: the
 * queue is full. */
bool tb_persist_model(struct tb_daemon *d, struct tb_store_model *model);
/* The bytes are copied. */
void tb_persist_signed(struct tb_daemon *d, const struct tb_statement *what, const uint8_t *bytes,
                       uint32_t count);
/* Raises it above that, which a peer says that it has seen, or a good step towards it; links say
 * it once it is on disk. */
void tb_persist_incarnation(struct tb_daemon *d, uint64_t seen);
/* Asks for one step of a copy: tb_store_backup_is_due says once that the queue has let go of it.
 * False: the queue is full, or the store is down. */
bool tb_persist_backup(struct tb_daemon *d, struct tb_store_backup *backup);

#endif
