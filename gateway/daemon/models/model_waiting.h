/* model_waiting.h - models of patterns that this site follows and that their home has, for which
 * there was no row when their home spoke of them last.
 *
 * P10: `lag` shows them here, and their home hears why. They are no rows of the catalog: the home
 * says each again within ten seconds, and tries for a row then. P7: so many are remembered; those
 * beyond are not shown. A leaf. On the main loop. */
#ifndef TB_DAEMON_MODEL_WAITING_H
#define TB_DAEMON_MODEL_WAITING_H

#include "base/site_state.h"
#include "base/time.h"

#define TB_MODELS_WAITING_MAX 256u

struct tb_daemon;

struct tb_model_waiting {
    struct tb_name model, home;
    tb_time_ns since, said_at; /* its home had it first, and last; said_at 0: the place is free */
    struct tb_site_which head;
    uint32_t versions; /* that home has ready */
    uint64_t bytes;    /* of the head */
};

/* Its home says this of it, and there is no row. */
void tb_model_waits(struct tb_daemon *d, const struct tb_site_state *home);
/* The next of them, from *cursor (0 at first) on; NULL. One that has a row by now, or of which its
 * home was silent for half a minute, waits no more. */
const struct tb_model_waiting *tb_model_waiting_at(const struct tb_daemon *d, uint32_t *cursor);
/* NULL: it does not wait. */
const struct tb_model_waiting *tb_model_waiting_find(const struct tb_daemon *d, const struct tb_name *model);

#endif
