/* service_manager.c - datagrams to NOTIFY_SOCKET. They never block: a manager that does not read
 * holds up no gateway. */
#include "gateway/daemon/service_manager.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/net/kept_listeners.h"

#define MICROSECOND (TB_MS(1) / 1000)
#define FIRST_LEFT  3 /* as sd_listen_fds(3) has it */
#define LEFT_MAX    1000u
#define NAME        "FDNAME=listeners"

static void warn(const char *why)
{
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_WARN, "manager.unreached");
    tb_log_str(&l, "why", why);
    tb_log_str(&l, "action", "start it by its unit, or unset NOTIFY_SOCKET");
    tb_log_end(&l);
}

static void tell(struct tb_service_manager *m, const char *words)
{
    TB_ASSERT(words[0] != '\0');
    if (m->open) (void)send(m->fd, words, strlen(words), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* The manager waits so long for a sign of life of this process; 0: it waits for none. */
static tb_time_ns watchdog_of(const char *usec, const char *pid)
{
    char *end = NULL;
    if (usec == NULL || (pid != NULL && strtoll(pid, NULL, 10) != (long long)getpid())) return 0;
    const unsigned long long value = strtoull(usec, &end, 10);
    if (end == usec || *end != '\0' || value == 0 || value > UINT64_MAX / TB_MS(1)) return 0;
    return value * MICROSECOND;
}

/* A path, or a name in the abstract namespace that "@" stands before. False: errno. */
static bool reach(struct tb_service_manager *m, const char *name)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const size_t count = strlen(name);
    if ((name[0] != '/' && name[0] != '@') || count < 2 || count >= sizeof at.sun_path) {
        errno = EINVAL;
        return false;
    }
    memcpy(at.sun_path, name, count);
    if (name[0] == '@') at.sun_path[0] = '\0';
    m->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (m->fd < 0) return false;
    const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + count + (name[0] == '/'));
    if (connect(m->fd, (const struct sockaddr *)&at, bytes) == 0) return true;
    const int error = errno;
    close(m->fd);
    errno = error;
    return false;
}

/* The manager drops what it had by that name and keeps what serves now. */
static void keep_listeners(struct tb_service_manager *m)
{
    static char words[] = "FDSTORE=1\n" NAME;
    int fds[TB_KEPT_LISTENERS_MAX];
    if (!m->open) return;
    const uint32_t count = tb_kept_listeners(fds);
    tell(m, "FDSTOREREMOVE=1\n" NAME);
    for (uint32_t i = 0; i < count; i++) {
        union {
            struct cmsghdr head;
            char bytes[CMSG_SPACE(sizeof(int))];
        } control = {0};
        struct iovec part = {words, sizeof words - 1};
        struct msghdr message = {.msg_iov = &part,
                                 .msg_iovlen = 1,
                                 .msg_control = control.bytes,
                                 .msg_controllen = sizeof control.bytes};
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &fds[i], sizeof(int));
        (void)sendmsg(m->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

/* Sockets of the process before: they begin at descriptor 3. */
static void take_left(void)
{
    const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
    int left[LEFT_MAX];
    uint32_t count = 0;
    const bool ours = pid != NULL && fds != NULL && strtoll(pid, NULL, 10) == (long long)getpid();
    const unsigned long long said = ours ? strtoull(fds, NULL, 10) : 0;
    while (count < said && count < LEFT_MAX) {
        left[count] = FIRST_LEFT + (int)count;
        count++;
    }
    tb_kept_listeners_begin(left, count);
    (void)unsetenv("LISTEN_PID");
    (void)unsetenv("LISTEN_FDS");
    (void)unsetenv("LISTEN_FDNAMES");
}

void tb_service_manager_open(struct tb_service_manager *m)
{
    TB_ASSERT(!m->open);
    const char *name = getenv("NOTIFY_SOCKET");
    if (name == NULL) return;
    m->open = reach(m, name);
    if (!m->open) warn(strerror(errno));
    if (m->open) take_left();
    m->watchdog = m->open ? watchdog_of(getenv("WATCHDOG_USEC"), getenv("WATCHDOG_PID")) : 0;
    (void)unsetenv("NOTIFY_SOCKET");
    (void)unsetenv("WATCHDOG_USEC");
    (void)unsetenv("WATCHDOG_PID");
}

void tb_service_manager_close(struct tb_service_manager *m)
{
    if (m->open) {
        close(m->fd);
        tb_kept_listeners_end();
    }
    *m = (struct tb_service_manager){0};
}

void tb_service_manager_ready(struct tb_service_manager *m)
{
    keep_listeners(m);
    tell(m, "READY=1\nSTATUS=serves");
}

/* The time is what a unit of Type=notify-reload asks for; others ignore it. */
void tb_service_manager_reloading(struct tb_service_manager *m)
{
    char words[96];
    snprintf(words, sizeof words, "RELOADING=1\nSTATUS=reads its configuration\nMONOTONIC_USEC=%llu",
             (unsigned long long)(tb_clock_now() / MICROSECOND));
    tell(m, words);
}

void tb_service_manager_stopping(struct tb_service_manager *m)
{
    tell(m, "STOPPING=1\nSTATUS=drains");
}

void tb_service_manager_alive(struct tb_service_manager *m, tb_time_ns now)
{
    if (m->watchdog == 0 || (m->alive_at != 0 && tb_time_since(m->alive_at, now) < m->watchdog / 2)) return;
    m->alive_at = now;
    tell(m, "WATCHDOG=1");
}
