/* bottleneck.h - what holds a stream, and which of the kernel's ceilings holds a link. Pure. */
#ifndef TB_WAN_BOTTLENECK_H
#define TB_WAN_BOTTLENECK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/time.h"

/* The limit that held a stream's sending, since it was looked at last. */
#define TB_LIMIT_LIST(X)                                                                                     \
    X(TB_LIMIT_IDLE, "idle", "nothing was to be sent")                                                       \
    X(TB_LIMIT_CAP, "cap", "an operator's limit: the rate to that peer, or its day's bytes")                 \
    X(TB_LIMIT_SENDER, "sender", "this gateway did not write fast enough: its cores, or what encodes")       \
    X(TB_LIMIT_NETWORK, "network", "the congestion window: the path's rate or its losses")                   \
    X(TB_LIMIT_SEND_BUFFER, "send_buffer",                                                                   \
      "the socket's buffer: net.ipv4.tcp_wmem is too small for the path")                                    \
    X(TB_LIMIT_PEER_WINDOW, "peer_window",                                                                   \
      "the peer's window: it does not read fast enough, or its net.ipv4.tcp_rmem is too small")

enum tb_limit {
#define TB_LIMIT_ENUM(name, text, why) name,
    TB_LIMIT_LIST(TB_LIMIT_ENUM)
#undef TB_LIMIT_ENUM
        TB_LIMITS
};
const char *tb_bottleneck_name(enum tb_limit limit);

/* How much counters grew over the time that was looked at, and values of now. */
struct tb_limit_seen {
    tb_time_ns time;
    tb_time_ns busy, peer, buffer; /* as base/net/tcp.h has them */
    uint64_t window_bytes;         /* the congestion window */
    uint64_t send_ceiling_bytes;   /* 0: not known */
    tb_time_ns wanted;             /* the stream had something to write */
    tb_time_ns capped;             /* it had, and an operator's limit did not let it */
};
enum tb_limit tb_bottleneck_of(const struct tb_limit_seen *seen);

/* The ceilings of this end against rate x RTT. */
struct tb_window_seen {
    uint64_t bytes_per_s; /* the most seen on the link, in that direction */
    tb_time_ns rtt;
    uint32_t streams;
    uint32_t held;          /* of them, that the kernel says its buffer holds: TB_LIMIT_SEND_BUFFER */
    uint64_t ceiling_bytes; /* of tcp_wmem for what is sent, of tcp_rmem for what is received; 0: not known */
    bool receives;
};
/* A better value of the ceiling, in bytes; 0: the ceiling does not hold the link. A sender's
 * buffer holds about as much as is under way, a receiver's window is about half of its buffer.
 * Four fifths of it under way, by rate x RTT, are a ceiling that holds; half of it where the
 * kernel says so of most streams that send. */
uint64_t tb_window_wanted(const struct tb_window_seen *seen);
/* The most that was wanted so far, until the ceiling is that high: what a ceiling holds is seen
 * only while much crosses. True: it is more than before, and somebody should be told. */
bool tb_window_look(uint64_t *wanted_bytes, const struct tb_window_seen *seen);

#endif
