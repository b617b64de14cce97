/* tcp.c - socket options of TCP, and two files of /proc. */
#include "base/net/tcp.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h> /* all of struct tcp_info, where the C library's has half of it */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/machine.h"
#include "base/net/endpoint.h"
#include "base/system_calls.h"

#define STALLED_TIMEOUTS 2u /* after 3 times the first wait: losses that come in rows are over by then */

#define PROC             "/proc/sys/net/ipv4/"

bool tb_tcp_look(int fd, struct tb_tcp_seen *seen_out)
{
    struct tcp_info i;
    socklen_t bytes = sizeof i;
    memset(&i, 0, sizeof i); /* an older kernel fills less */
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &bytes) != 0) return false;
    *seen_out = (struct tb_tcp_seen){.rtt = TB_US(i.tcpi_rtt),
                                     .rtt_min = i.tcpi_min_rtt == UINT32_MAX ? 0 : TB_US(i.tcpi_min_rtt),
                                     .window_bytes = (uint64_t)i.tcpi_snd_cwnd * i.tcpi_snd_mss,
                                     .unsent_bytes = i.tcpi_notsent_bytes,
                                     .segment_bytes = i.tcpi_snd_mss,
                                     .segments_again = i.tcpi_total_retrans,
                                     .timeouts = i.tcpi_retransmits,
                                     .bytes_acked = i.tcpi_bytes_acked,
                                     .bytes_retransmitted = i.tcpi_bytes_retrans,
                                     .bytes_received = i.tcpi_bytes_received,
                                     .busy = TB_US(i.tcpi_busy_time),
                                     .peer = TB_US(i.tcpi_rwnd_limited),
                                     .buffer = TB_US(i.tcpi_sndbuf_limited)};
    return true;
}

uint32_t tb_tcp_stalled(int fd)
{
    struct tcp_info i;
    socklen_t bytes = sizeof i;
    int held_bytes = 0;
    memset(&i, 0, sizeof i);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &bytes) != 0 || i.tcpi_retransmits < STALLED_TIMEOUTS)
        return 0;
    /* a heartbeat that is lost is no full segment */
    if (ioctl(fd, SIOCOUTQ, &held_bytes) != 0 || held_bytes < (int)i.tcpi_snd_mss) return 0;
    return i.tcpi_snd_mss;
}

void tb_tcp_segment_max(int fd, uint32_t bytes)
{
    const int value = (int)bytes;
    TB_ASSERT(bytes > 0 && value > 0);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &value, sizeof value);
}

static int family_of(int fd)
{
    int family = AF_UNSPEC;
    socklen_t bytes = sizeof family;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &bytes) == 0 ? family : AF_UNSPEC;
}

bool tb_tcp_source_set(int fd, const struct tb_address *source)
{
    struct tb_address at = *source;
    const int one = 1;
    if (family_of(fd) != at.any.sa_family) {
        errno = EAFNOSUPPORT;
        return false;
    }
    if (at.any.sa_family == AF_INET) at.v4.sin_port = 0;
    if (at.any.sa_family == AF_INET6) at.v6.sin6_port = 0;
    /* The port is chosen by connect, which knows the other end: as many connections as without. */
    (void)setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    return bind(fd, &at.any, at.bytes) == 0;
}

/* Both, for IPv4 through a socket of IPv6. The two bits below are ECN's, which the kernel keeps. */
void tb_tcp_dscp_set(int fd, uint32_t dscp)
{
    TB_ASSERT(dscp < 64);
    const int value = (int)(dscp << 2);
    if (family_of(fd) == AF_INET6) (void)setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &value, sizeof value);
    (void)setsockopt(fd, IPPROTO_IP, IP_TOS, &value, sizeof value);
}

bool tb_tcp_congestion_set(int fd, const char *name)
{
    return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) == 0;
}

void tb_tcp_congestion(int fd, char name_out[TB_TCP_CONGESTION_BYTES])
{
    socklen_t bytes = TB_TCP_CONGESTION_BYTES;
    memset(name_out, 0, TB_TCP_CONGESTION_BYTES);
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name_out, &bytes) != 0) name_out[0] = '\0';
    name_out[TB_TCP_CONGESTION_BYTES - 1] = '\0';
}

static enum tb_status refuse(const char *name, int error, char error_out[256])
{
    char there[128];
    if (error == EPERM) {
        (void)tb_machine_line(PROC "tcp_allowed_congestion_control", there, sizeof there);
        snprintf(error_out, 256,
                 "congestion control \"%.15s\" is not allowed to this user: add it to "
                 "net.ipv4.tcp_allowed_congestion_control, or take one of it (%.80s)",
                 name, there);
        return TB_SITE_CONFIG;
    }
    (void)tb_machine_line(PROC "tcp_available_congestion_control", there, sizeof there);
    snprintf(error_out, 256,
             "the kernel does not offer congestion control \"%.15s\": load it (modprobe tcp_%.15s), or take "
             "one of "
             "%.80s",
             name, name, there);
    return TB_SITE_CONFIG;
}

enum tb_status tb_tcp_congestion_check(const char *name, char error_out[256])
{
    error_out[0] = '\0';
    const int fd = tb_sys_socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return TB_SITE_IO;
    const bool taken = tb_tcp_congestion_set(fd, name);
    const int error = errno;
    close(fd);
    return taken ? TB_OK : refuse(name, error, error_out);
}

void tb_tcp_unsent_max(int fd, uint32_t bytes)
{
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes);
}

void tb_tcp_keep_alive(int fd)
{
    const int one = 1, idle_s = 15, every_s = 5, times = 3;
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof every_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
}

/* The third of three numbers; 0: there are no three. */
static uint64_t third(const char *path)
{
    char text[128];
    (void)tb_machine_line(path, text, sizeof text);
    uint64_t value = 0;
    char *at = text;
    for (int i = 0; i < 3; i++) {
        char *end = at;
        value = strtoull(at, &end, 10);
        if (end == at) return 0;
        at = end;
    }
    return value;
}

struct tb_tcp_ceilings tb_tcp_ceilings(void)
{
    return (struct tb_tcp_ceilings){third(PROC "tcp_wmem"), third(PROC "tcp_rmem")};
}
