/* model_life.h - rows of models of patterns: at the start, when the store has said what one was,
 * and when nobody uses it.
 *
 * A model that the catalog calls idle for a minute is given back, and where rows are scarce after a
 * second. The store has all of it: its runs, and its last versions. A version in the arena or alive
 * in the store, and a subscription by name, keep a model awake, also over a start.
 *
 * For the dispatcher, the start and the end: no other room calls it. */
#ifndef TB_DAEMON_MODEL_LIFE_H
#define TB_DAEMON_MODEL_LIFE_H

#include "tombolo/status.h"

struct tb_daemon;

/* Rows for named models, and for those of patterns that are in use. The store and the arena are
 * open, the catalog is not. */
TB_MUST_USE enum tb_status tb_models_open(struct tb_daemon *d);
void tb_models_close(struct tb_daemon *d); /* behind the store's writer */
void tb_models_tick(struct tb_daemon *d);  /* once a second */
/* The dispatcher's, in each turn: answers of the store become models of the catalog, a row is given
 * back where they are scarce, and peers are asked for the models that there are. */
void tb_models_follow(struct tb_daemon *d);

#endif
