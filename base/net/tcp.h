/* tcp.h - what the kernel says of a TCP connection, what it offers, and what it is asked for. A
 * shell.
 *
 * Buffers are the kernel's: SO_SNDBUF or SO_RCVBUF would turn its tuning off and lose most of the
 * window. The calls below set the congestion control, the bytes that may wait unsent, keep-alive,
 * the source address and the DSCP value.
 *
 * Threads: any. Descriptors that are no TCP sockets are left alone. */
#ifndef TB_BASE_NET_TCP_H
#define TB_BASE_NET_TCP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/time.h"
#include "tombolo/status.h"

#define TB_TCP_CONGESTION_BYTES 16 /* with the terminating 0 */

/* Counters since the connection began, but for those that say otherwise. */
struct tb_tcp_seen {
    tb_time_ns rtt, rtt_min; /* smoothed now; the least of the last minutes */
    uint64_t window_bytes;   /* that the congestion control allows under way, now */
    uint64_t unsent_bytes;   /* written and not sent yet, now */
    uint32_t segment_bytes;  /* of payload, at most, now */
    uint32_t segments_again; /* retransmitted */
    uint32_t timeouts;       /* of the segment that was sent first and is not acknowledged, in a row, now */
    uint64_t bytes_acked, bytes_retransmitted, bytes_received;
    tb_time_ns busy;   /* something was to be sent or acknowledged */
    tb_time_ns peer;   /* of it, the peer's window was full */
    tb_time_ns buffer; /* of it, all was sent and the socket's buffer held the writer up */
};
/* False: not a TCP socket. */
bool tb_tcp_look(int fd, struct tb_tcp_seen *seen_out);

/* The connection holds a full segment that went again and again without an answer: how many bytes
 * its segments have. Else 0. */
uint32_t tb_tcp_stalled(int fd);
/* Before it is connected: no segment, either way, has more payload. */
void tb_tcp_segment_max(int fd, uint32_t bytes);

/* Before it is connected: from this address, of any port. False: errno says why; EAFNOSUPPORT: the
 * socket is of the other family. */
struct tb_address;
bool tb_tcp_source_set(int fd, const struct tb_address *source);
/* The DSCP value of all that is sent from now on, 0 to 63. */
void tb_tcp_dscp_set(int fd, uint32_t dscp);

/* Can this process set it? TB_SITE_CONFIG: `error_out` has a sentence with what
 * there is and what to do. */
TB_MUST_USE enum tb_status tb_tcp_congestion_check(const char *name, char error_out[256]);
/* False: it stays what it was. */
bool tb_tcp_congestion_set(int fd, const char *name);
void tb_tcp_congestion(int fd, char name_out[TB_TCP_CONGESTION_BYTES]); /* "" if not known */

/* A write takes no more while so many bytes wait unsent, and the socket is writable below half of
 * them. */
void tb_tcp_unsent_max(int fd, uint32_t bytes);
/* A connection on which nothing moves may be dead without a word: the kernel asks after 15 s. */
void tb_tcp_keep_alive(int fd);

/* The ceilings of this network namespace: the third values of net.ipv4.tcp_wmem and
 * tcp_rmem; 0: cannot be read. */
struct tb_tcp_ceilings {
    uint64_t send_bytes, receive_bytes;
};
struct tb_tcp_ceilings tb_tcp_ceilings(void);

#endif
