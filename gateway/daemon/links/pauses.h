/* pauses.h - models and peers that an operator of this site paused: no chunk of them crosses until
 * `tombolo resume`, also after a restart. Private to gateway/daemon. */
#ifndef TB_DAEMON_PAUSES_H
#define TB_DAEMON_PAUSES_H

#include "base/ident.h"
#include "gateway/config/config.h"
#include "gateway/store/store.h"
#include "wan/link/links_limits.h"

struct tb_daemon;

#define TB_PAUSES_MAX (TB_LINKS_PAUSED_MAX + TB_CONFIG_LIST_MAX) /* models, and peers */

struct tb_pauses {
    uint32_t count;
    struct tb_store_pause rows[TB_PAUSES_MAX]; /* the oldest first */
};

/* Reads what the start before left. Behind the store, before the links. */
TB_MUST_USE enum tb_status tb_pauses_open(struct tb_daemon *d);
/* Tells the links all of it: they were opened, or their peers changed. */
void tb_pauses_apply(struct tb_daemon *d);
/* NULL: it is not paused here. */
const struct tb_store_pause *tb_pause_of_model(const struct tb_daemon *d, const struct tb_name *model);
const struct tb_store_pause *tb_pause_of_peer(const struct tb_daemon *d, uint32_t peer);
const struct tb_store_pause *tb_pause_find(const struct tb_pauses *p, const struct tb_name *name,
                                           bool is_peer);
/* Counts at once, and is on its way to the store; it counts also where that write fails, and the
 * row waits. TB_DONE_BEFORE: it is so already, on disk or on its way. TB_TOO_LARGE: so many are
 * paused. TB_SITE_STORE: no row can be written now. */
TB_MUST_USE enum tb_status tb_pause_set(struct tb_daemon *d, const struct tb_store_pause *pause);

#endif
