/* chan.c - the life of one channel: connecting, handshaking, opening, open, closing. Its bytes are
 * in chan_bytes.c.
 *
 * One uv_poll watches the socket, one uv_timer bounds opening (and deadlines after it), and one
 * uv_idle turns the loop once more when there is something to deliver although the socket is quiet:
 * decrypted bytes inside TLS, the on_open of an accepted plain socket, or what a broken socket
 * still holds. An idle handle makes the loop poll without waiting and starves nobody: every other
 * handle gets its turn in between.
 *
 * Memory goes when the last of the three handles has closed, so a close inside any callback is
 * safe. */
#include "base/net/chan.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/net/chan_bytes.h"
#include "base/net/chan_facts.h"
#include "base/net/chan_inner.h"
#include "base/net/tcp.h"
#include "base/system_calls.h"

#define OPEN_MS_DEFAULT 10000

/* Ends. */

static void chan_free(struct tb_chan *c)
{
    if (c->secure) tb_tls_session_fini(&c->tls);
    close(c->fd);
    tb_free(c);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct tb_chan *c = handle->data;
    TB_ASSERT(c->handles > 0 && (c->state == CLOSING || c->state == DETACHED));
    if (--c->handles > 0) return;
    if (c->state == DETACHED) {
        c->detached(c, c->user);
        return;
    }
    if (c->secure) tb_tls_session_fini(&c->tls);
    close(c->fd);
    c->ops->on_closed(c, c->user, c->why);
    tb_free(c);
}

static void close_handles(struct tb_chan *c)
{
    TB_ASSERT(c->handles == 3 && (c->state == CLOSING || c->state == DETACHED));
    uv_close((uv_handle_t *)&c->poll, on_handle_closed);
    uv_close((uv_handle_t *)&c->timer, on_handle_closed);
    uv_close((uv_handle_t *)&c->again, on_handle_closed);
}

void tb_chan_close(struct tb_chan *c, enum tb_status why)
{
    if (c->state == CLOSING || c->state == DETACHED) return;
    /* Goodbye where it fits at once: a peer that gets none takes the end for a cut. */
    if (c->secure && c->state == OPEN) (void)!tb_tls_session_end(&c->tls);
    c->state = CLOSING;
    c->why = why;
    close_handles(c);
}

void tb_chan_fail(struct tb_chan *c, enum tb_status why, const char *reason)
{
    if (c->state == CLOSING) return;
    if (reason != NULL) snprintf(c->reason, sizeof c->reason, "%s", reason);
    tb_chan_close(c, why);
}

void tb_chan_fail_tls(struct tb_chan *c, enum tb_status why)
{
    tb_chan_fail(c, why, c->tls.reason[0] != '\0' ? c->tls.reason : NULL);
}

static void on_deadline(uv_timer_t *timer)
{
    struct tb_chan *c = timer->data;
    TB_ASSERT(c->open_by_ms != UINT64_MAX || c->close_by_ms != UINT64_MAX);
    if (c->close_by_ms <= c->open_by_ms)
        tb_chan_fail(c, c->close_why, NULL);
    else
        tb_chan_fail(c, TB_STREAM_IDLE, "did not open in time");
}

/* One timer, at the earlier of the two. */
static void arm(struct tb_chan *c)
{
    TB_ASSERT(c->handles == 3); /* the timer is one of them */
    const uint64_t at = c->open_by_ms < c->close_by_ms ? c->open_by_ms : c->close_by_ms;
    const uint64_t now = uv_now(c->timer.loop);
    if (at == UINT64_MAX)
        uv_timer_stop(&c->timer);
    else
        uv_timer_start(&c->timer, on_deadline, at > now ? at - now : 0, 0);
}

void tb_chan_deadline(struct tb_chan *c, enum tb_status why, uint32_t ms)
{
    if (c->state == CLOSING) return;
    /* in a long callback the loop's time lies behind, and the wait would be too short */
    uv_update_time(c->timer.loop);
    const uint64_t at = uv_now(c->timer.loop) + ms;
    if (at >= c->close_by_ms) return;
    c->close_by_ms = at;
    c->close_why = why;
    arm(c);
}

static void try_end(struct tb_chan *c)
{
    TB_ASSERT(c->state == OPEN && c->ending);
    if (c->secure && tb_tls_session_end(&c->tls) == TB_AGAIN) return;
    c->ending = false;
    (void)shutdown(c->fd, SHUT_WR);
}

void tb_chan_end(struct tb_chan *c)
{
    if (c->state != OPEN) return;
    c->ending = true;
    try_end(c);
    tb_chan_update(c);
}

/* Opening. */

static bool learn_unix(struct tb_chan *c)
{
    struct ucred cred;
    socklen_t bytes = sizeof cred;
    if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) != 0) return false;
    c->peer.pid = cred.pid;
    if (!c->secure) c->peer.identity = (struct tb_identity){.kind = TB_IDENTITY_UNIX, .uid = cred.uid};
    snprintf(c->peer.address, sizeof c->peer.address, "unix:%u/%d", (unsigned)cred.uid, (int)cred.pid);
    return true;
}

/* False: the kernel would not say who it is. Better cut off, and dialled again, than taken
 * for nobody and denied. */
static bool learn_peer(struct tb_chan *c)
{
    struct tb_address at = {0};
    if (c->secure)
        tb_tls_session_peer(&c->tls, &c->peer.identity, &c->peer.fingerprint, &c->peer.expires_wall_s);
    at.bytes = sizeof at.local; /* the largest of them */
    if (getpeername(c->fd, &at.any, &at.bytes) != 0) return c->secure;
    if (at.any.sa_family == AF_UNIX) return learn_unix(c);
    tb_address_format(&at, c->peer.address, sizeof c->peer.address);
    return true;
}

static void open_up(struct tb_chan *c)
{
    TB_ASSERT(c->state == HANDSHAKING || c->state == OPENING);
    c->open_by_ms = UINT64_MAX;
    arm(c);
    if (!learn_peer(c)) {
        tb_chan_fail(c, TB_STREAM_IO, strerror(errno));
        return;
    }
    c->state = OPEN;
    c->ops->on_open(c, c->user, &c->peer);
}

static void shake(struct tb_chan *c)
{
    TB_ASSERT(c->secure && c->state == HANDSHAKING);
    const enum tb_status status = tb_tls_session_handshake(&c->tls);
    if (status == TB_OK)
        open_up(c);
    else if (status != TB_AGAIN)
        tb_chan_fail_tls(c, status);
}

static void connected(struct tb_chan *c)
{
    int error = 0;
    socklen_t bytes = sizeof error;
    TB_ASSERT(c->state == CONNECTING);
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
    c->reach = error == 0 || error == ECONNREFUSED || error == ECONNRESET ? TB_CHAN_HEARD : TB_CHAN_UNHEARD;
    if (error != 0) {
        tb_chan_fail(c, TB_PEER_UNREACHABLE, strerror(error));
        return;
    }
    c->state = c->secure ? HANDSHAKING : OPENING;
    if (c->secure)
        shake(c);
    else
        open_up(c);
}

/* Turns of the loop. */

static void deliver(struct tb_chan *c, bool readable, bool writable)
{
    TB_ASSERT(c->state == OPEN);
    if (c->ending && writable) try_end(c);
    const bool read = (readable && c->want_read) || (writable && c->read_needs_room && c->want_read);
    const bool write = (writable && c->want_write) || (readable && c->write_needs_bytes && c->want_write);
    if (read) c->ops->on_readable(c, c->user);
    if (write && c->state == OPEN && c->want_write) c->ops->on_writable(c, c->user);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct tb_chan *c = poll->data;
    TB_ASSERT(c->state != DETACHED);
    if (status < 0) {
        /* libuv has stopped the poll. The socket knows what happened, and may still hold bytes
         * that came before it. */
        c->broken = true;
        c->polled = 0;
    }
    if (c->state == CONNECTING)
        connected(c);
    else if (c->state == HANDSHAKING)
        shake(c);
    else if (c->state == OPEN && status >= 0)
        deliver(c, (events & UV_READABLE) != 0, (events & UV_WRITABLE) != 0);
    tb_chan_update(c);
}

static void on_again(uv_idle_t *again)
{
    struct tb_chan *c = again->data;
    if (c->state == OPENING)
        open_up(c);
    else if (c->state == HANDSHAKING)
        shake(c);
    else if (c->state == OPEN)
        deliver(c, true, c->broken);
    tb_chan_update(c);
}

static int wanted_events(const struct tb_chan *c)
{
    switch (c->state) {
    case CONNECTING:
        return UV_WRITABLE;
    case HANDSHAKING:
        return c->tls.wants_write ? UV_WRITABLE : UV_READABLE;
    case OPEN:
        break;
    default:
        return 0;
    }
    int events = 0;
    if (c->want_read) events |= UV_READABLE;
    if (c->want_write || c->ending) events |= UV_WRITABLE;
    if (c->want_read && c->read_needs_room) events |= UV_WRITABLE;
    if (c->want_write && c->write_needs_bytes) events = (events | UV_READABLE) & ~UV_WRITABLE;
    return events;
}

static bool turn_again(const struct tb_chan *c)
{
    if (c->state == OPENING || (c->broken && c->state == HANDSHAKING)) return true;
    if (c->state != OPEN) return false;
    if (c->broken && (c->want_read || c->want_write)) return true;
    return c->want_read && c->secure && tb_tls_session_pending(&c->tls);
}

/* Makes the handles watch what the state wants; due after every change. */
void tb_chan_update(struct tb_chan *c)
{
    if (c->state == CLOSING || c->state == DETACHED) return;
    const int events = c->broken ? 0 : wanted_events(c);
    if (events != c->polled) {
        c->polled = events;
        if (events == 0)
            uv_poll_stop(&c->poll);
        else
            uv_poll_start(&c->poll, events, on_poll);
    }
    if (turn_again(c))
        uv_idle_start(&c->again, on_again);
    else
        uv_idle_stop(&c->again);
}

void tb_chan_want_read(struct tb_chan *c, bool wanted)
{
    c->want_read = wanted;
    tb_chan_update(c);
}

void tb_chan_want_write(struct tb_chan *c, bool wanted)
{
    c->want_write = wanted;
    tb_chan_update(c);
}

/* Beginnings. */

static bool is_tcp(int fd)
{
    int domain = 0;
    socklen_t bytes = sizeof domain;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 &&
           (domain == AF_INET || domain == AF_INET6);
}

static bool set_options(int fd)
{
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
        return false;
    if (!is_tcp(fd)) return true;
    const int one = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return true;
}

static void handles_init(struct tb_chan *c, uv_loop_t *loop)
{
    TB_ASSERT(c->handles == 0);
    uv_timer_init(loop, &c->timer); /* these two cannot fail */
    uv_idle_init(loop, &c->again);
    c->poll.data = c->timer.data = c->again.data = c;
    c->handles = 3;
}

/* Does not take fd on failure. */
static enum tb_status chan_new(const struct tb_chan_options *options, int fd, bool server,
                               struct tb_chan **chan_out)
{
    enum tb_status status = TB_SITE_NOMEM;
    TB_ASSERT(fd >= 0 && options->ops->on_closed != NULL);
    struct tb_chan *c = tb_calloc(1, sizeof *c);
    if (c == NULL) return TB_SITE_NOMEM;
    c->fd = fd;
    c->ops = options->ops;
    c->user = options->user;
    c->want_read = true;
    c->close_by_ms = UINT64_MAX;
    c->peer.pid = -1;
    c->secure = options->tls != NULL;
    if (c->secure) status = tb_tls_session_init(&c->tls, options->tls, &options->expect, fd, server);
    if (c->secure && status != TB_OK) goto undo_chan;

    status = TB_SITE_IO;
    if (!set_options(fd)) goto undo_tls;
    if (uv_poll_init(options->loop, &c->poll, fd) != 0) goto undo_tls;
    handles_init(c, options->loop);
    uv_update_time(options->loop);
    c->open_by_ms = uv_now(options->loop) + (options->open_ms != 0 ? options->open_ms : OPEN_MS_DEFAULT);
    arm(c);
    *chan_out = c;
    return TB_OK;

undo_tls:
    if (c->secure) tb_tls_session_fini(&c->tls);
undo_chan:
    tb_free(c);
    return status;
}

static void fail_source(struct tb_chan *c, const struct tb_address *source, int error)
{
    char address[64], reason[160];
    tb_address_format(source, address, sizeof address);
    (void)snprintf(reason, sizeof reason, "from %s: %s", address,
                   error == EAFNOSUPPORT ? "the peer's address is of the other family" : strerror(error));
    tb_chan_fail(c, TB_PEER_UNREACHABLE, reason);
}

enum tb_status tb_chan_dial(const struct tb_chan_options *options, const struct tb_address *to,
                            struct tb_chan **chan_out)
{
    const int fd = tb_sys_socket(to->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return errno == EAFNOSUPPORT ? TB_BAD_ARGUMENT : TB_SITE_IO;
    TB_ASSERT(to->bytes > 0 && to->bytes <= sizeof to->local);
    struct tb_chan *c = NULL;
    if (options->segment_bytes_max != 0) tb_tcp_segment_max(fd, options->segment_bytes_max);
    if (options->dscp != 0) tb_tcp_dscp_set(fd, options->dscp);
    const enum tb_status status = chan_new(options, fd, false, &c);
    if (status != TB_OK) {
        close(fd);
        return status;
    }
    c->state = CONNECTING;
    c->reach = TB_CHAN_UNHEARD;
    if (options->source != NULL && !tb_tcp_source_set(fd, options->source)) {
        c->reach = TB_CHAN_NOWHERE;
        fail_source(c, options->source, errno);
    } else if (tb_sys_connect(fd, &to->any, to->bytes) != 0 && errno != EINPROGRESS && errno != EINTR) {
        c->reach = errno == ECONNREFUSED ? TB_CHAN_HEARD : TB_CHAN_NOWHERE;
        tb_chan_fail(c, TB_PEER_UNREACHABLE, strerror(errno));
    }
    tb_chan_update(c);
    *chan_out = c;
    return TB_OK;
}

enum tb_status tb_chan_accept(const struct tb_chan_options *options, int fd, struct tb_chan **chan_out)
{
    TB_ASSERT(fd >= 0);
    struct tb_chan *c = NULL;
    const enum tb_status status = chan_new(options, fd, true, &c);
    if (status != TB_OK) {
        close(fd);
        return status;
    }
    c->state = c->secure ? HANDSHAKING : OPENING;
    c->reach = TB_CHAN_HEARD;
    tb_chan_update(c);
    *chan_out = c;
    return TB_OK;
}

/* From loop to loop. */

void tb_chan_detach(struct tb_chan *c, tb_chan_detached_fn then, void *user)
{
    TB_ASSERT(c->state == OPEN && then != NULL);
    c->state = DETACHED;
    c->detached = then;
    c->user = user;
    close_handles(c);
}

enum tb_status tb_chan_attach(struct tb_chan *c, uv_loop_t *loop, const struct tb_chan_ops *ops, void *user)
{
    TB_ASSERT(c->state == DETACHED && c->handles == 0);
    TB_ASSERT(ops->on_closed != NULL);
    if (uv_poll_init(loop, &c->poll, c->fd) != 0) return TB_SITE_IO;
    handles_init(c, loop);
    c->ops = ops;
    c->user = user;
    c->polled = 0;
    c->want_read = true;
    c->want_write = false;
    c->open_by_ms = c->close_by_ms = UINT64_MAX;
    c->state = OPEN;
    tb_chan_update(c);
    return TB_OK;
}

void tb_chan_discard(struct tb_chan *c)
{
    TB_ASSERT(c->state == DETACHED && c->handles == 0);
    chan_free(c);
}
