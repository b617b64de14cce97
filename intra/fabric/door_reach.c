/* door_reach.c - see door_reach.h. */
#include "intra/fabric/door_reach.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

bool tb_door_reachable(const char *shm_door)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const size_t bytes = strlen(shm_door);
    if (bytes == 0 || bytes + 1 > sizeof to.sun_path) return false;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return true; /* nothing is known */
    memcpy(to.sun_path + 1, shm_door, bytes);
    const socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + bytes);
    const bool refused = connect(fd, (const struct sockaddr *)&to, length) != 0 && errno == ECONNREFUSED;
    (void)close(fd); /* the door hears a caller that hangs up */
    return !refused;
}
