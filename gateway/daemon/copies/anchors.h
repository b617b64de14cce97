/* anchors.h - whole versions on a disk, for a reboot. */
#ifndef TB_DAEMON_ANCHORS_H
#define TB_DAEMON_ANCHORS_H

#include <jansson.h>

#include "base/layout/version_key.h"
#include "base/time.h"

struct tb_daemon;

/* The arena is open, the catalog is not: reads back the versions that a reboot took from the
 * arena, however long that takes. TB_SITE_DRAINING: a signal came meanwhile. TB_SITE_IO,
 * TB_SITE_LOCKED: anchor.dir cannot be used. */
TB_MUST_USE enum tb_status tb_anchors_open(struct tb_daemon *d);
void tb_anchors_tick(struct tb_daemon *d, tb_time_ns now);
void tb_anchors_stop(struct tb_daemon *d); /* its thread is to end; waits for nothing. No tick after it */
void tb_anchors_close(struct tb_daemon *d);
bool tb_anchors_refilled(const struct tb_daemon *d, const struct tb_id *uid); /* by this start */
void tb_anchors_whole(struct tb_daemon *d, const struct tb_version_key *key); /* it is whole here now */
void tb_anchors_rotted(struct tb_daemon *d,
                       const struct tb_version_key *key); /* chunks of it were damaged here */
/* Of a row of model_table.h: its thread is at it; another model has the row from now on. */
bool tb_anchors_row_busy(const struct tb_daemon *d, uint32_t row);
void tb_anchors_row_ends(struct tb_daemon *d, uint32_t row);
json_t *tb_anchors_json(const struct tb_daemon *d);

#endif
