/* links_stats.h - numbers of one link and of its streams, and why it is down. No call changes
 * anything.
 *
 * Threads: the main loop's. Peers are named by their index in the options of tb_links_new. */
#ifndef TB_WAN_LINKS_STATS_H
#define TB_WAN_LINKS_STATS_H

#include "base/net/tls.h"
#include "base/time.h"
#include "wan/link/links_limits.h"
#include "wan/send/sent_counters.h"
#include "wan/stream/bottleneck.h"

struct tb_links;

#define TB_LINKS_PROTOCOL_STATE 3 /* of stats.protocol: the first that has STATE */

struct tb_links_stream_stats {
    uint32_t stream; /* its number in the session */
    bool open;
    uint64_t bytes_sent, bytes_received; /* chunk frames */
    tb_time_ns rtt;                      /* TCP's smoothed; 0: not known */
    uint64_t sent_per_s, received_per_s; /* over about a second */
    uint64_t retransmitted_bytes;        /* since it began */
    uint64_t unsent_bytes;               /* written and not sent yet */
    uint64_t window_bytes;               /* that the congestion control allows under way */
    uint64_t records;                    /* of TLS, the more of both ways */
    enum tb_limit limit;                 /* what holds its sending */
    char congestion[16];
    bool kernel_sends; /* the kernel encrypts what is sent (kTLS) */
    bool own_records;  /* base/net/tls_bulk.h has its records; what is sent unless the kernel does that */
};

/* Why a link is down now, or what ails one that is up. A closed list: `status` and
 * `lag` show the names. */
#define TB_LINKS_WHYS(X)                                                                                     \
    X(TB_LINKS_WHY_NONE, "")                                                                                 \
    X(TB_LINKS_WHY_DOWN, "link-down")             /* nothing answers, or the session broke */                \
    X(TB_LINKS_WHY_DNS, "dns-failed")             /* the peer's name resolves to no address */               \
    X(TB_LINKS_WHY_REFUSED, "refused-by-peer")    /* its port is closed, or its BYE says no */               \
    X(TB_LINKS_WHY_TLS, "tls-failed")             /* a certificate or CA is not accepted, by either end */   \
    X(TB_LINKS_WHY_IDENTITY, "identity-mismatch") /* a valid certificate of another site or gateway */       \
    X(TB_LINKS_WHY_TWIN, "twin-identity")         /* two gateways with one identity take turns */            \
    X(TB_LINKS_WHY_CLOCK, "clock-skew")           /* the certificates' dates do not fit the clocks */        \
    X(TB_LINKS_WHY_MTU, "mtu")                    /* small packets pass, large ones never do */              \
    X(TB_LINKS_WHY_REVOKED, "revoked")            /* a certificate is on the list of one end (tls.revoked) */

enum tb_links_why {
#define TB_LINKS_WHY_ENUM(name, text) name,
    TB_LINKS_WHYS(TB_LINKS_WHY_ENUM)
#undef TB_LINKS_WHY_ENUM
};

const char *tb_links_why_name(enum tb_links_why why);
#define TB_LINKS_ERROR_BYTES 640

struct tb_links_stats {
    bool up;
    bool turned_away;      /* down, and the newest attempt was refused by a handshake or a BYE */
    enum tb_links_why why; /* of the present state */
    char error
        [TB_LINKS_ERROR_BYTES]; /* likewise, a sentence that names what and whom; empty: nothing ails it */
    tb_time_ns state_since;     /* when the present state (up, or down) began */
    bool dialled_by_us;
    struct tb_identity identity; /* of the peer, while up */
    uint64_t expires_wall_s;     /* notAfter of its certificate, likewise */
    bool clock_known;            /* while up: the peer said its wall clock in HELLO */
    int64_t clock_ahead_ms;      /* how far it is ahead of ours, less what HELLO took on its way */
    char address[128];
    tb_time_ns up_since;     /* 0: not up */
    tb_time_ns rtt;          /* of the last heartbeat; 0: not known */
    enum tb_status last_why; /* of the last end of a session */
    uint64_t sessions;       /* that came up */
    uint64_t dials, dials_failed;
    uint64_t refused; /* sessions, either way */
    uint64_t streams_lost;
    uint64_t streams_rotated; /* replaced because of their records, by us */
    uint32_t streams_wanted;  /* open, where we dial */
    uint32_t streams_used;    /* for what we send */
    bool searching;           /* for how many to use */
    uint32_t streams_found;   /* by the last search for them that ended; 0: none did */
    uint64_t found_bytes_per_s;
    /* Ceilings of the kernel here that hold the link, and what they had better be; 0: they do
     * not. */
    uint64_t send_wanted_bytes, receive_wanted_bytes;
    uint64_t send_ceiling_bytes, receive_ceiling_bytes;
    uint32_t queued_parcels;             /* that no stream took yet */
    uint64_t short_bytes;                /* the frame that waits for room in until_bytes; 0: none does */
    bool peer_spent;                     /* until_bytes of the peer hold what it has for us, by its word */
    enum tb_holdup holdup;               /* of what we send there, in the last second */
    enum tb_holdup peer_holdup;          /* of what the peer sends here, by its word */
    uint64_t bytes_sent, bytes_received; /* chunk frames, all streams since the start */
    /* chunk frames, of chunks that were put on a second stream because they were late on their
     * first */
    uint64_t bytes_hedged;
    /* of chunks that the peer was asked for although they may come by another way too */
    uint64_t bytes_again;
    uint64_t bytes_retransmitted; /* by TCP, on all streams since the start */
    uint64_t chunks_sent, chunks_received;
    uint64_t chunks_duplicate;    /* received although held or being written: dropped */
    uint64_t chunks_bad;          /* received with a wrong digest or encoding */
    uint64_t chunks_refused;      /* that the peer refused */
    uint64_t delta_chunks;        /* sent as deltas */
    uint32_t expected;            /* models of which that peer takes the next version unasked, now */
    uint64_t pushed;              /* versions that went before they were asked for, */
    uint64_t pushes_declined;     /* or came so, and were not taken: they go when they are asked for */
    uint64_t chunks_no_base;      /* that the peer or we had no base for any more: they went whole */
    uint64_t dtypes_refused;      /* versions that the peer asked for and its protocol cannot say */
    uint64_t raw_bytes_sent;      /* what the chunks sent are decoded */
    uint32_t protocol;            /* of the session; 0: not up */
    uint64_t garbled;             /* sessions ended because the peer broke the protocol */
    uint32_t crossings, landings; /* now */
    uint32_t stream_count;
    struct tb_links_stream_stats streams[TB_LINKS_STREAMS_MAX];
};

void tb_links_stats(const struct tb_links *links, uint32_t peer, struct tb_links_stats *stats_out);
enum tb_limit tb_links_most_limit(
    const struct tb_links_stats *stats); /* what holds most of the streams that send */
/* Sessions refused before anybody knew which peer it was: wrong CA, unknown identity, garbage. */
uint64_t tb_links_strangers_refused(const struct tb_links *links);

#endif
