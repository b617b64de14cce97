/* control_client.c - one line out, one line in. See control_client.h. */
#include "gateway/cli/operator/control_client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/system_calls.h"
#include "gateway/cli/options.h"

const char *tb_control_client_path(const struct tb_cli_call *call)
{
    const char *path = tb_cli_text(call, "control");
    if (path == NULL) path = getenv("TOMBOLO_CONTROL");
    return path == NULL || path[0] == '\0' ? TB_CONTROL_PATH_DEFAULT : path;
}

__attribute__((format(printf, 3, 4))) static enum tb_status refuse(char error[512], enum tb_status status,
                                                                   const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(error, 512, format, arguments);
    va_end(arguments);
    return status;
}

static enum tb_status connect_to(const char *path, int *fd_out, char error[512])
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return refuse(error, TB_BAD_ARGUMENT, "%.200s is too long for a socket's path", path);
    memcpy(address.sun_path, path, strlen(path) + 1);
    const int fd = tb_sys_socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return refuse(error, TB_SITE_IO, "no socket: %s", strerror(errno));
    /* A unix socket connects at once or says why not; EAGAIN is a full backlog. */
    if (tb_sys_connect(fd, (const struct sockaddr *)&address, sizeof address) == 0) {
        *fd_out = fd;
        return TB_OK;
    }
    const int why = errno;
    (void)close(fd);
    if (why == EACCES || why == EPERM)
        return refuse(error, TB_PEER_DENIED,
                      "the control socket %s is not open to this user: %s; root and members of the "
                      "socket's group (tombolo, as packaged) may use it",
                      path, strerror(why));
    return refuse(error, TB_GATEWAY_AWAY,
                  "no gateway answers at %s: %s (does tombolod run? else say --control or TOMBOLO_CONTROL)",
                  path, strerror(why));
}

int tb_control_client_process(const char *path)
{
    int fd = -1, process = -1;
    char error[512];
    struct ucred who = {0}; /* its pid as we see it: what the gateway says is of its own namespace */
    socklen_t bytes = sizeof who;
    if (connect_to(path, &fd, error) != TB_OK) return -1;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 && who.pid > 0)
        process = (int)syscall(SYS_pidfd_open, who.pid, 0);
    (void)close(fd);
    return process;
}

/* Waits until the socket is ready for `events`. */
static enum tb_status wait_for(int fd, short events, tb_time_ns until, char error[512])
{
    TB_ASSERT(fd >= 0 && (events == POLLIN || events == POLLOUT));
    for (;;) {
        const tb_time_ns now = tb_clock_now();
        if (now >= until) return refuse(error, TB_TIMEOUT, "the gateway did not answer in time");
        struct pollfd p = {.fd = fd, .events = events};
        const int ready = poll(&p, 1, (int)((until - now) / TB_MS(1)) + 1);
        if (ready > 0) return TB_OK;
        if (ready < 0 && errno != EINTR) return refuse(error, TB_SITE_IO, "poll: %s", strerror(errno));
    }
}

static enum tb_status send_line(int fd, const char *line, size_t count, tb_time_ns until, char error[512])
{
    while (count > 0) {
        const ssize_t sent = send(fd, line, count, MSG_NOSIGNAL);
        if (sent >= 0) {
            TB_ASSERT((size_t)sent <= count);
            line += sent;
            count -= (size_t)sent;
            continue;
        }
        if (errno == EINTR) continue;
        if (errno != EAGAIN)
            return refuse(error, TB_GATEWAY_AWAY, "the gateway closed the connection: %s", strerror(errno));
        const enum tb_status s = wait_for(fd, POLLOUT, until, error);
        if (s != TB_OK) return s;
    }
    return TB_OK;
}

/* As many as the kernel takes go with each byte of the line. */
#define FDS_A_BYTE 253u

static enum tb_status send_files(int fd, const struct tb_control_send *files, const char *line,
                                 tb_time_ns until, size_t *sent_out, char error[512])
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * FDS_A_BYTE)];
    } room;
    *sent_out = 0;
    for (uint32_t at = 0; files != NULL && at < files->count;) {
        const uint32_t here = files->count - at < FDS_A_BYTE ? files->count - at : FDS_A_BYTE;
        struct iovec piece = {.iov_base = (void *)(uintptr_t)(line + *sent_out), .iov_len = 1};
        struct msghdr m = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = room.bytes};
        memset(&room, 0, sizeof room);
        m.msg_controllen = CMSG_SPACE(sizeof(int) * here);
        struct cmsghdr *head = CMSG_FIRSTHDR(&m);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int) * here);
        memcpy(CMSG_DATA(head), files->fds + at, sizeof(int) * here);
        if (tb_sys_sendmsg(fd, &m, MSG_NOSIGNAL) == 1) {
            at += here;
            ++*sent_out;
            continue;
        }
        if (errno == EINTR) continue;
        if (errno == ETOOMANYREFS)
            return refuse(error, TB_TOO_LARGE, "%u files are more than this user may send: raise ulimit -n",
                          files->count);
        if (errno != EAGAIN)
            return refuse(error, TB_GATEWAY_AWAY, "the files could not be handed over: %s", strerror(errno));
        const enum tb_status s = wait_for(fd, POLLOUT, until, error);
        if (s != TB_OK) return s;
    }
    return TB_OK;
}

struct line {
    char *bytes;
    size_t used;
    size_t cap;
    int *file; /* that comes ahead of the line; NULL: none is asked for, and none is taken */
};

/* The first descriptor is kept, and those that nobody asked for are closed. True: there was one. */
static bool files_take(struct msghdr *m, int *file_out)
{
    bool any = false;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(m); head != NULL; head = CMSG_NXTHDR(m, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
        const size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(head) + i * sizeof fd, sizeof fd);
            any = true;
            if (*file_out < 0)
                *file_out = fd;
            else
                (void)close(fd);
        }
    }
    return any;
}

/* As recv. The byte that a descriptor came with is none of the line. */
static ssize_t receive_some(int fd, struct line *l)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * 4)];
    } room;
    char *at = l->bytes + l->used;
    if (l->file == NULL || l->used > 0) return recv(fd, at, l->cap - l->used, 0);
    struct iovec piece = {.iov_base = at, .iov_len = l->cap - l->used};
    struct msghdr m = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = room.bytes, .msg_controllen = sizeof room.bytes};
    ssize_t got = tb_sys_recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
    if (got > 0 && files_take(&m, l->file)) memmove(at, at + 1, (size_t)--got);
    return got;
}

static enum tb_status receive_line(int fd, struct line *l, tb_time_ns until, char error[512])
{
    for (;;) {
        TB_ASSERT(l->used <= l->cap);
        if (l->used == l->cap) {
            const size_t more = l->cap == 0 ? 65536 : l->cap * 2;
            if (more > TB_CONTROL_REPLY_BYTES_MAX)
                return refuse(error, TB_PEER_GARBLED, "the gateway's answer is longer than 16 MiB");
            char *larger = tb_realloc(l->bytes, more);
            if (larger == NULL) return refuse(error, TB_SITE_NOMEM, "no memory for the gateway's answer");
            l->bytes = larger;
            l->cap = more;
        }
        const int before = l->file != NULL ? *l->file : -1;
        const ssize_t got = receive_some(fd, l);
        if (got == 0 && l->file != NULL && *l->file != before) continue; /* the descriptor's byte alone */
        if (got == 0)
            return refuse(error, TB_GATEWAY_AWAY, "the gateway closed the connection before it answered");
        if (got > 0) {
            const char *end = memchr(l->bytes + l->used, '\n', (size_t)got);
            l->used += (size_t)got;
            TB_ASSERT(l->used <= l->cap);
            if (end == NULL) continue;
            l->used = (size_t)(end - l->bytes);
            return TB_OK;
        }
        if (errno == EINTR) continue;
        if (errno != EAGAIN)
            return refuse(error, TB_GATEWAY_AWAY, "the connection to the gateway failed: %s",
                          strerror(errno));
        const enum tb_status s = wait_for(fd, POLLIN, until, error);
        if (s != TB_OK) return s;
    }
}

enum tb_status tb_control_client_status(const char *name)
{
#define ROW(value, number, text)                                                                             \
    if (strcmp(name, tb_status_name(value)) == 0) return value;
    TB_STATUS_LIST(ROW)
#undef ROW
    return TB_PEER_GARBLED;
}

enum tb_status tb_control_client_reply(const char *text, size_t count, json_t **reply_out, char error[512])
{
    json_t *reply = json_loadb(text, count, JSON_REJECT_DUPLICATES, NULL);
    const json_t *ok = json_object_get(reply, "ok");
    if (json_integer_value(json_object_get(reply, "schema")) != 1 || !json_is_boolean(ok)) {
        json_decref(reply);
        return refuse(error, TB_PEER_GARBLED, "the gateway's answer is not of schema 1");
    }
    if (json_is_true(ok)) {
        *reply_out = reply;
        return TB_OK;
    }
    const char *name = json_string_value(json_object_get(reply, "status"));
    const char *why = json_string_value(json_object_get(reply, "error"));
    const enum tb_status status = name == NULL ? TB_PEER_GARBLED : tb_control_client_status(name);
    (void)refuse(error, status, "%s", why != NULL && why[0] != '\0' ? why : tb_status_text(status));
    json_decref(reply);
    return status == TB_OK ? TB_PEER_GARBLED : status;
}

/* A question, and the descriptors that go and come beside it. */
struct talk {
    const char *line;
    const struct tb_control_send *files; /* NULL: none */
    int *file_out;                       /* NULL: none */
};

static enum tb_status converse(int fd, const struct talk *talk, tb_time_ns until, json_t **reply_out,
                               char error[512])
{
    const char *line = talk->line;
    struct line answer = {.file = talk->file_out};
    size_t sent = 0;
    TB_ASSERT(strchr(line, '\n') == NULL); /* the gateway takes a line for a request */
    enum tb_status s = send_files(fd, talk->files, line, until, &sent, error);
    if (s != TB_OK) return s;
    s = send_line(fd, line + sent, strlen(line) - sent, until, error);
    if (s != TB_OK) return s;
    s = send_line(fd, "\n", 1, until, error);
    if (s != TB_OK) return s;
    s = receive_line(fd, &answer, until, error);
    if (s == TB_OK) s = tb_control_client_reply(answer.bytes, answer.used, reply_out, error);
    tb_free(answer.bytes);
    return s;
}

static enum tb_status ask(const char *path, json_t *request, struct talk *talk, uint32_t timeout_ms,
                          json_t **reply_out, char error[512])
{
    TB_ASSERT(request == NULL || json_is_object(request));
    int fd = -1;
    char *line = NULL;
    const tb_time_ns until = tb_time_add(tb_clock_now(), TB_MS(timeout_ms));
    if (request != NULL && json_object_set_new(request, "schema", json_integer(1)) == 0)
        line = json_dumps(request, JSON_COMPACT);
    if (line == NULL) return refuse(error, TB_SITE_NOMEM, "no memory for a request");
    talk->line = line;
    enum tb_status s = connect_to(path, &fd, error);
    if (s == TB_OK) {
        s = converse(fd, talk, until, reply_out, error);
        (void)close(fd);
    }
    TB_ASSERT(s != TB_OK || json_is_object(*reply_out));
    free(line);
    return s;
}

enum tb_status tb_control_client_ask(const char *path, json_t *request, uint32_t timeout_ms,
                                     json_t **reply_out, char error[512])
{
    return tb_control_client_ask_with(path, request, NULL, timeout_ms, reply_out, error);
}

enum tb_status tb_control_client_ask_with(const char *path, json_t *request,
                                          const struct tb_control_send *files, uint32_t timeout_ms,
                                          json_t **reply_out, char error[512])
{
    struct talk talk = {.files = files};
    return ask(path, request, &talk, timeout_ms, reply_out, error);
}

enum tb_status tb_control_client_ask_file(const char *path, json_t *request, uint32_t timeout_ms,
                                          json_t **reply_out, int *file_out, char error[512])
{
    struct talk talk = {.file_out = file_out};
    *file_out = -1;
    const enum tb_status s = ask(path, request, &talk, timeout_ms, reply_out, error);
    if (s == TB_OK && *file_out >= 0) return TB_OK;
    if (*file_out >= 0) (void)close(*file_out);
    *file_out = -1;
    if (s != TB_OK) return s;
    json_decref(*reply_out);
    *reply_out = NULL;
    return refuse(error, TB_PEER_GARBLED, "the gateway's answer came without its file");
}
