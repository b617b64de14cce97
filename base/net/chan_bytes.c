/* chan_bytes.c - bytes and descriptors over one channel: straight from the socket, or through
 * TLS. */
#include "base/net/chan.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/net/chan_bytes.h"
#include "base/net/chan_inner.h"
#include "base/system_calls.h"

#define FDS_MAX  16
#define FDS_BYTE 'F'

/* The status of a plain socket call that returned `moved`. A failure closes the chan. */
static enum tb_status judge_plain(struct tb_chan *c, ssize_t moved, size_t *count_out)
{
    TB_ASSERT(c->state == OPEN && !c->secure);
    *count_out = moved > 0 ? (size_t)moved : 0;
    if (moved > 0) return TB_OK;
    if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return TB_AGAIN;
    c->hung_up = moved == 0 || errno == EPIPE || errno == ECONNRESET;
    if (moved == 0)
        tb_chan_fail(c, TB_STREAM_CLOSED, NULL);
    else
        tb_chan_fail(c, TB_STREAM_IO, strerror(errno));
    return c->why;
}

static enum tb_status read_tls(struct tb_chan *c, void *out, size_t cap, size_t *count_out)
{
    const enum tb_status status = tb_tls_session_read(&c->tls, out, cap, count_out);
    TB_ASSERT(*count_out <= cap && (status != TB_OK || *count_out > 0));
    c->read_needs_room = c->tls.wants_write;
    if (status != TB_OK && status != TB_AGAIN)
        tb_chan_fail_tls(c, status);
    else
        tb_chan_update(c);
    return status;
}

static enum tb_status closed_status(const struct tb_chan *c)
{
    return c->why == TB_OK || c->why == TB_AGAIN ? TB_CANCELLED : c->why;
}

enum tb_status tb_chan_read(struct tb_chan *c, void *out, size_t cap, size_t *count_out)
{
    TB_ASSERT(cap > 0);
    *count_out = 0;
    if (c->state == CLOSING) return closed_status(c);
    if (c->state != OPEN) return TB_AGAIN;
    if (c->secure) return read_tls(c, out, cap, count_out);
    struct iovec piece = {.iov_base = out, .iov_len = cap};
    struct msghdr m = {.msg_iov = &piece, .msg_iovlen = 1};
    return judge_plain(c, tb_sys_recvmsg(c->fd, &m, 0), count_out);
}

static enum tb_status write_tls(struct tb_chan *c, const void *bytes, size_t count, size_t *count_out)
{
    const enum tb_status status = tb_tls_session_write(&c->tls, bytes, count, count_out);
    TB_ASSERT(*count_out <= count && (status != TB_OK || *count_out > 0));
    c->write_needs_bytes = c->tls.wants_read;
    if (status != TB_OK && status != TB_AGAIN)
        tb_chan_fail_tls(c, status);
    else
        tb_chan_update(c);
    return status;
}

enum tb_status tb_chan_write(struct tb_chan *c, const void *bytes, size_t count, size_t *count_out)
{
    TB_ASSERT(count > 0);
    *count_out = 0;
    if (c->state == CLOSING) return closed_status(c);
    if (c->state != OPEN) return TB_AGAIN;
    if (c->secure) return write_tls(c, bytes, count, count_out);
    struct iovec piece = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = count};
    const struct msghdr m = {.msg_iov = &piece, .msg_iovlen = 1};
    return judge_plain(c, tb_sys_sendmsg(c->fd, &m, MSG_NOSIGNAL), count_out);
}

/* Descriptors. */

union fd_room {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int) * FDS_MAX)];
};

enum tb_status tb_chan_send_fds(struct tb_chan *c, const int *fds, uint32_t count)
{
    TB_ASSERT(count > 0 && count <= FDS_MAX && !c->secure);
    if (c->state == CLOSING) return closed_status(c);
    if (c->state != OPEN) return TB_AGAIN;
    char byte = FDS_BYTE;
    union fd_room room = {0};
    struct iovec piece = {.iov_base = &byte, .iov_len = 1};
    struct msghdr m = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = room.bytes};
    m.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    struct cmsghdr *head = CMSG_FIRSTHDR(&m);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int) * count);
    memcpy(CMSG_DATA(head), fds, sizeof(int) * count);
    size_t sent = 0;
    return judge_plain(c, tb_sys_sendmsg(c->fd, &m, MSG_NOSIGNAL), &sent);
}

/* All descriptors of a message, wherever they stand in it: those that are not kept must be closed,
 * or a peer fills our table. */
static uint32_t take_fds(struct msghdr *m, int *fds, uint32_t cap)
{
    uint32_t count = 0;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(m); head != NULL; head = CMSG_NXTHDR(m, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
        const size_t here = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < here && count < cap; i++)
            memcpy(&fds[count++], CMSG_DATA(head) + i * sizeof(int), sizeof(int));
    }
    TB_ASSERT(count <= cap);
    return count;
}

enum tb_status tb_chan_recv_fds(struct tb_chan *c, int *fds_out, uint32_t cap, uint32_t *count_out)
{
    TB_ASSERT(!c->secure && cap > 0);
    *count_out = 0;
    if (c->state == CLOSING) return closed_status(c);
    if (c->state != OPEN) return TB_AGAIN;
    char byte = 0;
    int fds[FDS_MAX];
    union fd_room room = {0};
    struct iovec piece = {.iov_base = &byte, .iov_len = 1};
    struct msghdr m = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = room.bytes, .msg_controllen = sizeof room};
    size_t got = 0;
    const enum tb_status status = judge_plain(c, tb_sys_recvmsg(c->fd, &m, MSG_CMSG_CLOEXEC), &got);
    if (status != TB_OK) return status;
    const uint32_t count = take_fds(&m, fds, FDS_MAX);
    if (byte == FDS_BYTE && count > 0 && count <= cap && (m.msg_flags & MSG_CTRUNC) == 0) {
        memcpy(fds_out, fds, sizeof(int) * count);
        *count_out = count;
        return TB_OK;
    }
    for (uint32_t i = 0; i < count; i++)
        close(fds[i]);
    tb_chan_fail(c, TB_PEER_GARBLED, "descriptors were expected and something else came");
    return TB_PEER_GARBLED;
}

enum tb_status tb_chan_read_fds(struct tb_chan *c, void *out, size_t cap, size_t *count_out,
                                int fds_out[TB_CHAN_FDS_MAX], uint32_t *fd_count_out)
{
    TB_ASSERT(!c->secure && cap > 0);
    *count_out = 0;
    *fd_count_out = 0;
    if (c->state == CLOSING) return closed_status(c);
    if (c->state != OPEN) return TB_AGAIN;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * TB_CHAN_FDS_MAX)];
    } room = {0};
    struct iovec piece = {.iov_base = out, .iov_len = cap};
    struct msghdr m = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = room.bytes, .msg_controllen = sizeof room};
    const ssize_t got = tb_sys_recvmsg(c->fd, &m, MSG_CMSG_CLOEXEC);
    if (got >= 0) *fd_count_out = take_fds(&m, fds_out, TB_CHAN_FDS_MAX);
    return judge_plain(c, got, count_out);
}
