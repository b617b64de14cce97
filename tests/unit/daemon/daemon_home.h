/* daemon_home.h - a home gateway in this process, in a folder of its own: opened, ended and opened again. */
#ifndef TB_TESTS_UNIT_DAEMON_HOME_H
#define TB_TESTS_UNIT_DAEMON_HOME_H

#include "gateway/daemon/daemon.h"

struct home {
    char dir[64];
    struct tb_config *config;
    struct tb_daemon *d;
};

void home_new(struct home *h);
void home_start(struct home *h);
void home_end(struct home *h);
void home_free(struct home *h);

#endif
