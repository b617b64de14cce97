/* poll_spin.h - look for completions again at once, or sleep until the NIC says that
 * there are some? Pure.
 *
 * Being woken costs some 5 to 10 us and a system call; looking costs nothing but the core. So we
 * look again as long as the next completion is due sooner than waking takes: while READs are
 * posted, and completions came less than TB_SPIN_GAP apart, and for at most twice that gap after
 * the last. An idle fabric, or one slower than that, sleeps.
 *
 * Threads: one. */
#ifndef TB_INTRA_VERBS_SPIN_H
#define TB_INTRA_VERBS_SPIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/time.h"

#define TB_SPIN_GAP TB_US(50)

struct tb_spin {
    tb_time_ns last_at; /* of a completion */
    tb_time_ns gap;     /* between completions, smoothed; TB_TIME_NEVER: not known */
};

void tb_spin_init(struct tb_spin *s);
/* After a look that found `count` completions with `posted` READs left: true: look again; false:
 * ask for an event and sleep. */
bool tb_spin_again(struct tb_spin *s, uint32_t count, uint32_t posted, tb_time_ns now);

#endif
