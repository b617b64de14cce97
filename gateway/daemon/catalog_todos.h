/* catalog_todos.h - what the catalog wants done, and what follows once a version's state is
 * durable. The dispatcher's. */
#ifndef TB_DAEMON_CATALOG_TODOS_H
#define TB_DAEMON_CATALOG_TODOS_H

#include <stdbool.h>

#include "gateway/catalog/todos.h"

struct tb_daemon;

/* persist.c has it: what rests on it waits until it is on disk. */
bool tb_todo_durable(const struct tb_catalog_todo *todo);
void tb_todo_do(struct tb_daemon *d, const struct tb_catalog_todo *todo); /* one that is not durable */
/* A version's new state is durable (or the disk given up for now): the log, the links, what
 * follows here. */
void tb_todo_saved(struct tb_daemon *d, const struct tb_catalog_todo *todo);

#endif
