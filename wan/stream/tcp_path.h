/* tcp_path.h - a link's connection as TCP: what the kernel is asked when it opens, and what is seen
 * of it while it lives. A shell.
 *
 * Unsent bytes are bounded to what 20 ms of the connection's rate are, so that little is stuck
 * behind a stream that stalls and a kill loses little, and still no more often written than
 * fifty times a second.
 *
 * Threads: one for each struct tb_tcp_path; the options are shared, and of them only
 * the ceiling changes. */
#ifndef TB_WAN_TCP_PATH_H
#define TB_WAN_TCP_PATH_H

#include <stdatomic.h>

#include "base/net/tcp.h"
#include "wan/stream/bottleneck.h"
#include "wan/stream/tuner.h"

#define TB_TCP_UNSENT_BYTES     (1u << 20) /* until a rate is known */
#define TB_TCP_UNSENT_BYTES_MIN (256u << 10)
#define TB_TCP_UNSENT_BYTES_MAX (4u << 20)

struct tb_tcp_path_options {
    const char *congestion; /* "auto", or a name; NULL: the system's */
    uint32_t dscp;          /* 0: the system's */
    struct tb_tuner_options tuning;
    atomic_ullong send_ceiling_bytes; /* of the kernel, as the main loop saw it last; 0: not known */
};

struct tb_tcp_path {
    const struct tb_tcp_path_options *options;
    struct tb_tcp_seen seen; /* last */
    tb_time_ns seen_at;      /* 0: never */
    uint32_t unsent_max;
    uint64_t sent_per_s, received_per_s; /* acknowledged by the peer's kernel, smoothed over about a second */
    tb_time_ns wanted, capped;           /* of the writer, when it was looked last */
    enum tb_limit limit;                 /* of sending */
};

/* Once it is connected. `bulk`: it carries chunks. */
void tb_tcp_path_open(struct tb_tcp_path *p, const struct tb_tcp_path_options *options, int fd, bool bulk);
/* The times that the writer of a connection counts. */
struct tb_tcp_writer {
    tb_time_ns wanted; /* since it began, it had something to write */
    tb_time_ns capped; /* since it began, an operator's limit did not let it write */
};
/* Looks, a few times a second. */
void tb_tcp_path_look(struct tb_tcp_path *p, int fd, tb_time_ns now, const struct tb_tcp_writer *writer);

#endif
