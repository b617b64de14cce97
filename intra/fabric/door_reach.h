/* door_reach.h - whether a door of this machine can be reached from here: an abstract name belongs
 * to a network namespace, and a container may have one of its own. A shell.
 *
 * Threads: any. */
#ifndef TB_INTRA_DOOR_REACH_H
#define TB_INTRA_DOOR_REACH_H

#include <stdbool.h>

/* False: nobody listens under that name in our network namespace. Never waits. */
bool tb_door_reachable(const char *shm_door);

#endif
