/* home_statements.h - this site, as a model's home, signs what it says of the model. */
#ifndef TB_DAEMON_HOME_STATEMENTS_H
#define TB_DAEMON_HOME_STATEMENTS_H

#include "gateway/catalog/todos.h"

struct tb_daemon;

/* A row of a run or a version goes to the store. The statement of it is signed, and stands in the
 * store before the row. */
void tb_home_says(struct tb_daemon *d, const struct tb_catalog_todo *todo);
/* Signs runs, versions and withdrawals that have no signature: a release that signed nothing made
 * them, or their CA is not trusted any more, or memory was short. Peers hear of it. Once a second,
 * some at a time. */
void tb_home_says_tick(struct tb_daemon *d);

#endif
