/* copy_sweep.h - memory that lost a chunk may have lost others: all of the copy is digested in
 * background, at a bounded rate. */
#ifndef TB_DAEMON_COPY_SWEEP_H
#define TB_DAEMON_COPY_SWEEP_H

#include "base/time.h"

struct tb_copy;
struct tb_daemon;

void tb_copy_sweep_begin(struct tb_copy *copy);
void tb_copies_sweep(struct tb_daemon *d, tb_time_ns now); /* each tick */

#endif
