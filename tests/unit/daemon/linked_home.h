/* linked_home.h - a gateway in this process (daemon_home.h) that has a certificate of its site, so
 * it opens links. */
#ifndef TB_TESTS_UNIT_DAEMON_LINKED_HOME_H
#define TB_TESTS_UNIT_DAEMON_LINKED_HOME_H

#include "tests/unit/daemon/daemon_home.h"
#include "tests/unit/net/net_world.h"

/* The peer west, at an address where nobody answers. */
#define LINKED_WEST "peers: {west: {address: \"127.0.0.1:9\"}}\n"

/* `models` as home_new_with takes it, with more keys in lines behind it. The certificates are of a
 * world that the caller has; nothing is started. */
void linked_home_new(struct home *h, struct world *certificates, const char *models);
/* The same with a world of its own, and started. */
void linked_home_begin(struct home *h, struct world *certificates, const char *models);
void linked_home_end(struct home *h, struct world *certificates);

#endif
