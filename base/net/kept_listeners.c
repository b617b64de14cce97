/* kept_listeners.c - a table of duplicates by the address where they listen. */
#include "base/net/kept_listeners.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"

struct row {
    int fd; /* ours */
    bool wanted;
};

static struct {
    pthread_mutex_t lock;
    struct row rows[TB_KEPT_LISTENERS_MAX];
    uint32_t count;
    bool on;
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool has_free_port(const struct tb_address *at)
{
    if (at->any.sa_family == AF_INET) return at->v4.sin_port == 0;
    return at->any.sa_family == AF_INET6 && at->v6.sin6_port == 0;
}

static bool is_at(int fd, const struct tb_address *at)
{
    struct tb_address own = {.bytes = sizeof own.local};
    struct stat st;
    if (getsockname(fd, &own.any, &own.bytes) != 0 || own.any.sa_family != at->any.sa_family) return false;
    if (at->any.sa_family == AF_INET)
        return own.v4.sin_port == at->v4.sin_port && own.v4.sin_addr.s_addr == at->v4.sin_addr.s_addr;
    if (at->any.sa_family == AF_INET6)
        return own.v6.sin6_port == at->v6.sin6_port && own.v6.sin6_scope_id == at->v6.sin6_scope_id &&
               memcmp(&own.v6.sin6_addr, &at->v6.sin6_addr, sizeof own.v6.sin6_addr) == 0;
    const char *path = own.local.sun_path;
    if (path[0] == '\0') return false; /* the kernel frees abstract names by itself */
    return strncmp(path, at->local.sun_path, sizeof own.local.sun_path) == 0 && lstat(path, &st) == 0 &&
           S_ISSOCK(st.st_mode);
}

static bool listens(int fd)
{
    int answer = 0;
    socklen_t bytes = sizeof answer;
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &answer, &bytes) == 0 && answer != 0;
}

void tb_kept_listeners_begin(const int *left, uint32_t count)
{
    pthread_mutex_lock(&kept.lock);
    TB_ASSERT(!kept.on && kept.count == 0);
    kept.on = true;
    for (uint32_t i = 0; i < count; i++) {
        const bool good = kept.count < TB_KEPT_LISTENERS_MAX && listens(left[i]) &&
                          fcntl(left[i], F_SETFD, FD_CLOEXEC) == 0 &&
                          fcntl(left[i], F_SETFL, O_NONBLOCK) == 0;
        if (good)
            kept.rows[kept.count++] = (struct row){.fd = left[i]};
        else
            close(left[i]);
    }
    pthread_mutex_unlock(&kept.lock);
}

void tb_kept_listeners_end(void)
{
    pthread_mutex_lock(&kept.lock);
    for (uint32_t i = 0; i < kept.count; i++)
        close(kept.rows[i].fd);
    kept.count = 0;
    kept.on = false;
    pthread_mutex_unlock(&kept.lock);
}

int tb_kept_listener_take(const struct tb_address *at)
{
    int fd = -1;
    pthread_mutex_lock(&kept.lock);
    for (uint32_t i = 0; i < kept.count && fd < 0; i++) {
        if (!is_at(kept.rows[i].fd, at)) continue;
        fd = fcntl(kept.rows[i].fd, F_DUPFD_CLOEXEC, 0);
        kept.rows[i].wanted = fd >= 0;
    }
    pthread_mutex_unlock(&kept.lock);
    return fd;
}

bool tb_kept_listener_add(int fd, const struct tb_address *asked)
{
    bool added = false;
    pthread_mutex_lock(&kept.lock);
    if (kept.on && kept.count < TB_KEPT_LISTENERS_MAX && !has_free_port(asked)) {
        const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        added = own >= 0;
        if (added) kept.rows[kept.count++] = (struct row){.fd = own, .wanted = true};
    }
    pthread_mutex_unlock(&kept.lock);
    return added;
}

uint32_t tb_kept_listeners(int fds_out[TB_KEPT_LISTENERS_MAX])
{
    uint32_t count = 0;
    pthread_mutex_lock(&kept.lock);
    for (uint32_t i = 0; i < kept.count; i++) {
        const struct row row = kept.rows[i];
        if (!row.wanted) {
            close(row.fd);
            continue;
        }
        kept.rows[count] = row;
        fds_out[count++] = row.fd;
    }
    kept.count = count;
    pthread_mutex_unlock(&kept.lock);
    return count;
}
