/* listen.c - listening sockets: binding, the leftovers of dead processes, and a full descriptor
 * table. */
#include "base/net/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/log.h"
#include "base/net/kept_listeners.h"
#include "base/system_calls.h"

#define BACKLOG      1024
#define ACCEPTS_TURN 64  /* a flood of connections must not keep the loop from its other handles */
#define REST_MS      100 /* while there is no descriptor for the connection that waits */

struct tb_listener {
    uv_poll_t poll;
    uv_timer_t rest;
    uint32_t handles;
    int fd;
    bool closing;
    bool kept; /* its socket and path outlive us (kept_listeners.h) */
    bool resting_told;
    tb_accept_fn fn;
    void *user;
    struct tb_address at;
    dev_t device; /* of the unix path that we made; inode 0: none */
    ino_t inode;
};

static bool is_path(const struct tb_address *at)
{
    return at->any.sa_family == AF_UNIX && at->local.sun_path[0] != '\0';
}

/* Binding. */

/* 0: nobody listens behind the path, so it is a dead process's. EADDRINUSE: somebody does.
 * ENOTSOCK: something else stands there. Else why it cannot be said. */
static int path_taken(const struct tb_address *at)
{
    TB_ASSERT(is_path(at));
    struct stat st;
    if (lstat(at->local.sun_path, &st) != 0) return errno;
    if (!S_ISSOCK(st.st_mode)) return ENOTSOCK;
    const int fd = tb_sys_socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return errno;
    const bool there = tb_sys_connect(fd, &at->any, at->bytes) == 0 || errno == EAGAIN;
    const int error = errno;
    close(fd);
    if (there) return EADDRINUSE;
    if (error == EPROTOTYPE) return ENOTSOCK; /* a socket of another kind */
    return error == ECONNREFUSED ? 0 : error;
}

static bool bind_at(int fd, const struct tb_address *at)
{
    if (bind(fd, &at->any, at->bytes) == 0) return true;
    if (errno != EADDRINUSE || !is_path(at)) return false;
    const int taken = path_taken(at);
    if (taken == 0 && unlink(at->local.sun_path) == 0) return bind(fd, &at->any, at->bytes) == 0;
    if (taken != 0) errno = taken;
    return false;
}

/* As bind_at and listen would find it; nothing is made. */
static bool check_path(const struct tb_address *at)
{
    TB_ASSERT(is_path(at));
    char folder[sizeof at->local.sun_path];
    struct stat st;
    if (lstat(at->local.sun_path, &st) == 0) {
        errno = path_taken(at);
        return errno == 0;
    }
    if (errno != ENOENT) return false;
    snprintf(folder, sizeof folder, "%s", at->local.sun_path);
    char *slash = strrchr(folder, '/');
    if (slash != NULL) *(slash == folder ? slash + 1 : slash) = '\0';
    return faccessat(AT_FDCWD, slash != NULL ? folder : ".", W_OK | X_OK, AT_EACCESS) == 0;
}

static bool check_port(const struct tb_address *at)
{
    const int one = 1, fd = tb_sys_socket(at->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return false;
    const bool free_here =
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 && bind(fd, &at->any, at->bytes) == 0;
    const int error = errno;
    close(fd);
    errno = error;
    return free_here;
}

enum tb_status tb_listen_check(const struct tb_address *at)
{
    if (at->any.sa_family == AF_UNIX && !is_path(at)) return TB_OK; /* abstract: it needs no folder */
    if (is_path(at) ? check_path(at) : check_port(at)) return TB_OK;
    return errno == EADDRINUSE ? TB_SITE_LOCKED : TB_SITE_IO;
}

static bool own_path(struct tb_listener *l, unsigned mode)
{
    struct stat st;
    if (!is_path(&l->at)) return true;
    if (lstat(l->at.local.sun_path, &st) != 0) return false;
    l->device = st.st_dev;
    l->inode = st.st_ino;
    /* Before listen, so nobody with less rights gets in between. */
    return mode == 0 || chmod(l->at.local.sun_path, mode) == 0;
}

/* Only the socket that is ours: a successor may have taken the path over. */
static void drop_path(const struct tb_listener *l)
{
    TB_ASSERT(l->inode == 0 || is_path(&l->at));
    struct stat st;
    if (l->inode == 0 || l->kept || lstat(l->at.local.sun_path, &st) != 0) return;
    if (st.st_dev == l->device && st.st_ino == l->inode) (void)unlink(l->at.local.sun_path);
}

static bool open_at(struct tb_listener *l, const struct tb_address *at, unsigned unix_mode)
{
    const int one = 1;
    l->at = *at;
    TB_ASSERT(l->fd >= 0);
    if (at->any.sa_family != AF_UNIX && setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0)
        return false;
    if (!l->kept && !bind_at(l->fd, at)) return false;
    if (!own_path(l, unix_mode) || listen(l->fd, BACKLOG) != 0) return false;
    if (at->any.sa_family == AF_UNIX) return true;
    l->at.bytes = sizeof l->at.local;
    return getsockname(l->fd, &l->at.any, &l->at.bytes) == 0;
}

/* Accepting. */

static bool is_full(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

static void on_accept(uv_poll_t *poll, int status, int events);

static void on_rested(uv_timer_t *timer)
{
    struct tb_listener *l = timer->data;
    TB_ASSERT(!l->closing);
    uv_poll_start(&l->poll, UV_READABLE, on_accept);
}

static void rest(struct tb_listener *l, int error)
{
    TB_ASSERT(!l->closing && is_full(error));
    uv_poll_stop(&l->poll);
    uv_timer_start(&l->rest, on_rested, REST_MS, 0);
    if (l->resting_told) return; /* one line a drought */
    l->resting_told = true;
    struct tb_log_line line;
    tb_log_begin(&line, TB_LOG_WARN, "listener.rests");
    tb_log_str(&line, "error", strerror(error));
    tb_log_u64(&line, "retry_ms", REST_MS);
    tb_log_str(&line, "action", "raise the limit of open files");
    tb_log_end(&line);
}

static int accept_one(struct tb_listener *l, struct tb_address *from)
{
    *from = (struct tb_address){.bytes = sizeof from->local};
    const int fd = tb_sys_accept(l->fd, &from->any, &from->bytes);
    if (fd < 0) return -1;
    l->resting_told = false;
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    const int one = 1;
    if (l->at.any.sa_family != AF_UNIX) (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void on_accept(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events; /* accept says what is wrong */
    struct tb_listener *l = poll->data;
    TB_ASSERT(l->fd >= 0);
    for (int i = 0; i < ACCEPTS_TURN && !l->closing; i++) {
        struct tb_address from;
        const int fd = accept_one(l, &from);
        if (fd >= 0) {
            l->fn(l->user, fd, &from);
            continue;
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK) return;
        if (is_full(errno)) {
            rest(l, errno);
            return;
        }
        /* Anything else (ECONNABORTED, EPROTO...) is about the one connection that is gone now. */
    }
}

/* Beginnings and ends. */

enum tb_status tb_listen(uv_loop_t *loop, const struct tb_address *at, unsigned unix_mode, tb_accept_fn fn,
                         void *user, struct tb_listener **listener_out)
{
    TB_ASSERT(fn != NULL);
    enum tb_status status = TB_SITE_IO;
    int error = 0;
    struct tb_listener *l = tb_calloc(1, sizeof *l);
    if (l == NULL) return TB_SITE_NOMEM;
    l->fn = fn;
    l->user = user;
    l->fd = tb_kept_listener_take(at);
    l->kept = l->fd >= 0;
    if (!l->kept) l->fd = tb_sys_socket(at->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    error = errno;
    if (l->fd < 0) goto undo_listener;
    if (!open_at(l, at, unix_mode)) {
        error = errno;
        if (error == EADDRINUSE) status = TB_SITE_LOCKED;
        goto undo_fd;
    }
    error = -uv_poll_init(loop, &l->poll, l->fd);
    if (error != 0) goto undo_fd;

    uv_timer_init(loop, &l->rest);
    if (!l->kept) l->kept = tb_kept_listener_add(l->fd, at);
    l->poll.data = l->rest.data = l;
    l->handles = 2;
    uv_poll_start(&l->poll, UV_READABLE, on_accept);
    *listener_out = l;
    return TB_OK;

undo_fd:
    drop_path(l);
    close(l->fd);
undo_listener:
    tb_free(l);
    errno = error;
    return status;
}

struct tb_address tb_listener_address(const struct tb_listener *l)
{
    return l->at;
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct tb_listener *l = handle->data;
    TB_ASSERT(l->closing && l->handles > 0);
    if (--l->handles > 0) return;
    close(l->fd);
    tb_free(l);
}

void tb_listener_close(struct tb_listener *l)
{
    if (l == NULL || l->closing) return;
    TB_ASSERT(l->handles == 2);
    l->closing = true;
    drop_path(l);
    uv_close((uv_handle_t *)&l->poll, on_handle_closed);
    uv_close((uv_handle_t *)&l->rest, on_handle_closed);
}
