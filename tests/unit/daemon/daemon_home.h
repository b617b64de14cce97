/* daemon_home.h - a home gateway in this process, in a folder of its own: opened,
 * ended and opened again. */
#ifndef TB_TESTS_UNIT_DAEMON_HOME_H
#define TB_TESTS_UNIT_DAEMON_HOME_H

#include "gateway/daemon/daemon.h"
#include "tests/unit/scratch.h"

struct home {
    char dir[SCRATCH_BYTES];
    struct tb_config *config;
    struct tb_daemon *d;
};

#define HOME_MODELS   "{policy: {home: east}}"
#define HOME_LEASE_MS 500u /* the least: tests wait for its end */

void home_new(struct home *h); /* of HOME_MODELS */
/* `models` in place of its model, as a config has them; anchors: with a folder for them, which
 * home_free removes once it is empty. */
void home_new_with(struct home *h, const char *models, bool anchors);
void home_start(struct home *h);
void home_end(struct home *h);
void home_free(struct home *h);
/* A column of a table, as `status` shows it. */
uint64_t home_table(const struct home *h, const char *table, const char *column);
/* Turns the loop until that table has so many rows. */
void home_turn_until(const struct home *h, const char *table, uint64_t rows);
/* A connection to its session socket, as a worker's library makes one; does not block. */
int home_dial(const struct home *h);
/* Of the model `policy`, `tombolo lag` says so of that site, and the evidence has these words. */
void home_check_lag(const struct home *h, const char *site, const char *reason, const char *evidence);

#endif
