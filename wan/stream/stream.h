/* stream.h - one data stream of a link. A shell, internal to wan. stream_loop.h has the loops on
 * which streams live.
 *
 * A stream is one TLS connection on one loop of its own thread. It sends chunk frames from places
 * and lands chunk frames into places, both ways at once, and knows nothing of sessions. The main
 * loop opens it for a session, tells it to end, and looks at its phase. Bytes go from the arena
 * into SSL_write and from SSL_read into the arena.
 *
 * Threads: the main loop makes, adds, ends and frees; everything else happens on the stream's
 * loop. Fields that both look at are atomic. */
#ifndef TB_WAN_STREAM_H
#define TB_WAN_STREAM_H

#include <stdatomic.h>
#include <uv.h>

#include "base/net/chan.h"
#include "base/scratch_memory.h"
#include "wan/send/encoded_chunks.h"
#include "wan/send/feed_parcels.h"
#include "wan/send/rate_cap.h"
#include "wan/stream/stream_states.h"
#include "wan/stream/tcp_path.h"

/* one TLS record: a header and the beginning of its chunk leave together */
#define TB_STREAM_STAGE_BYTES 16384u
#define TB_STREAM_TURN_BYTES  ((uint64_t)4 << 20)   /* then the loop's other streams */
#define TB_STREAM_DRAIN_BYTES ((uint64_t)256 << 20) /* of what came before the end */
#define TB_STREAM_DRAIN_TIME  TB_SECONDS(2)         /* likewise, where they come in small records */

enum tb_stream_phase { TB_STREAM_OPENING, TB_STREAM_BOUND, TB_STREAM_GONE };

struct tb_stream_loop;

/* The owner of the places of bases answers: may this chunk, which is held, be used? Any thread,
 * with the base referenced. */
struct tb_stream_trust {
    bool (*fn)(void *user, const struct tb_id *uid, uint32_t shard, uint32_t chunk); /* NULL: all may */
    void *user;
};

struct tb_stream_plan {
    struct tb_feed *feed;
    uint64_t session_seq; /* of the feed */
    struct tb_id session; /* goes into BIND */
    uint32_t number;
    uint32_t slot;
    uint32_t protocol; /* of the session */
    uint32_t peer;     /* of the links, for what is counted */
    struct tb_stream_trust trust;
    struct tb_encoded_chunks *encoded_chunks; /* NULL: nothing is kept */
    tb_time_ns idle;
    uint64_t records_max; /* worn from then on; at twice as many it ends */
    bool dialled;
    struct tb_address address;       /* dialled */
    uint32_t segment_bytes_max;      /* dialled: TCP_MAXSEG; 0: the path's own */
    const struct tb_address *source; /* dialled: from there; NULL: the kernel's choice */
    struct tb_tls *tls;              /* dialled */
    struct tb_identity expect;       /* dialled */
    const struct tb_tcp_path_options *path;
    struct tb_chan *chan; /* accepted: detached, its BIND was read */
};

/* Of a chunk of the share on that base. */
static inline struct tb_encoded_chunk_name tb_stream_encoded_name(const struct tb_shared_places *share,
                                                                  const struct tb_shared_places *base,
                                                                  uint32_t shard, uint32_t chunk)
{
    return (struct tb_encoded_chunk_name){.uid = &share->uid,
                                          .base = &base->uid,
                                          .shard = shard,
                                          .chunk = chunk,
                                          .shard_count = share->shard_count,
                                          .chunk_count = share->places[shard].manifest->chunk_count};
}

struct tb_stream_send {
    bool have_parcel;
    struct tb_feed_parcel parcel;
    uint32_t sent_chunks; /* of the parcel */
    uint32_t stage_used, stage_sent;
    const uint8_t *body; /* in the place or in `encoded` */
    uint32_t body_left;
    unsigned classes; /* of the chunk that was staged last */
    bool control;     /* what is staged is BIND or BOUND */
    uint64_t worked;  /* bytes encoded in this turn */
    uint32_t granted; /* of a capped link: bytes that may go from grant_at on */
    uint32_t tried;   /* bytes of a write that did not fit: it is repeated with not fewer */
    tb_time_ns grant_at;
    tb_time_ns wanted;    /* had a parcel, without the one that it has, since it began */
    tb_time_ns wanted_at; /* when it got the one that it has */
    tb_time_ns capped;    /* waited for the link's cap or for a day's bytes, since it began */
    tb_time_ns capped_to; /* and that is counted until then */
    uint8_t *encoded;
    size_t encoded_cap;
    struct tb_encoded_chunk *kept; /* referenced: `body` is in it */
    bool full;                     /* the socket took no more */
    tb_time_ns busy_seen;          /* stream_busy_time.c: last looked, and what was seen */
    tb_time_ns busy_time;
    uint64_t busy_acked;
    tb_time_ns moved_at;
    uint8_t stage[TB_STREAM_STAGE_BYTES];
};

enum tb_stream_reading {
    TB_READING_BOUND,
    TB_READING_HEADER,
    TB_READING_RAW,
    TB_READING_ENCODED,
    /* the header of a chunk of which it is not known yet whether it lands: nothing more is read */
    TB_READING_PARKED,
    /* a second way of a chunk that another stream is in the middle of: see struct tb_gift */
    TB_READING_SPARE,
    TB_READING_DROP
};
struct tb_stream_receive {
    enum tb_stream_reading reading;
    uint32_t got; /* bytes of what is being read */
    struct tb_chunk_frame frame;
    uint32_t crossing;              /* whose share is kept below */
    struct tb_shared_places *share; /* referenced; NULL: none */
    struct tb_shared_places *base;  /* of that crossing, referenced; NULL: none, or gone */
    bool on_base;                   /* the peer was told a base */
    bool foreign;                   /* what comes has to fit its proof */
    bool claimed;                   /* the frame's chunk is ours to write */
    uint64_t worked;                /* bytes decoded in this turn */
    uint8_t *into;                  /* RAW: in the place, or `spare`; ENCODED: `encoded` */
    struct tb_room encoded;         /* ENCODED and SPARE: as the chunk came */
    uint8_t *spare;                 /* SPARE: a chunk's bytes as they are in the place; NULL at other times */
    tb_time_ns moved_at;
    uint8_t header[TB_CHUNK_FRAME_HEADER_BYTES];
};

struct tb_stream {
    struct tb_stream_plan plan;
    struct tb_stream_loop *loop;
    struct tb_stream *next; /* in the loop's list, or in what is added to it */
    struct tb_chan *chan;
    enum tb_stream_state state; /* the loop's own */
    /* Looked at by the main loop. */
    atomic_int phase; /* enum tb_stream_phase */
    atomic_int why;   /* with GONE */
    atomic_bool ending;
    /* its session is known; else it waits for it, open, and the plan is not complete yet */
    atomic_bool may_bind;
    atomic_bool was_bound;
    atomic_ullong bytes_sent, bytes_received;
    atomic_ullong records; /* of TLS, the more of both ways */
    atomic_ullong rtt, rtt_min, sent_per_s, received_per_s, unsent_bytes, window_bytes, retransmitted_bytes;
    atomic_int limit; /* enum tb_limit */
    atomic_ullong acked_bytes;
    atomic_uint
        stalled_segment; /* bytes of its segments, while those are not acknowledged and go again; else 0 */
    atomic_ullong chunks_sent, chunks_received, chunks_duplicate, chunks_bad;
    atomic_ullong delta_chunks, raw_bytes;    /* sent */
    atomic_ullong hedged_bytes;               /* of frames that were begun and had gone by another stream */
    atomic_int fd;                            /* for tests: -1 while not open */
    char congestion[TB_TCP_CONGESTION_BYTES]; /* it and the next are written before the phase is BOUND */
    bool kernel_sends;                        /* and encrypts */
    bool own_records;                         /* or else ours are sent */
    /* The loop's own: what TCP makes of our bytes. */
    struct tb_cap_price price;
    uint32_t sent_again; /* segments, so far */
    /* The main loop's own. */
    enum tb_stream_farewell farewell;
    uint64_t moved_bytes;
    tb_time_ns idle_since;
    uint64_t acked_seen;
    tb_time_ns stalled_at; /* was seen to be stalled; 0: is not */
    bool stall_counted;
    /* The loop's own. */
    struct tb_tcp_path tcp;
    struct tb_stream_send send;
    struct tb_stream_receive receive;
};

/* Main loop. NULL: no memory. A chan in the plan stays the caller's then. */
struct tb_stream *tb_stream_new(const struct tb_stream_plan *plan);
/* One to be dialled before its session is greeted: what of the plan is the session's is
 * given by tb_stream_bind. */
struct tb_stream *tb_stream_new_ahead(const struct tb_stream_plan *plan);
/* Main loop. Session, number, slot and protocol of the plan; BIND goes as soon as it is open. */
void tb_stream_bind(struct tb_stream *s, const struct tb_stream_plan *plan);
void tb_stream_free(struct tb_stream *s); /* never added, or GONE */
/* Main loop. The stream reads the bytes that have arrived, then closes. */
void tb_stream_end(struct tb_stream *s);

/* On the loop: stream.c. */
void tb_stream_begin(struct tb_stream *s); /* dials, or attaches what was accepted */
void tb_stream_look(struct tb_stream *s);  /* after a wake: ending, revoked, something to send? */
void tb_stream_tick(struct tb_stream *s, tb_time_ns now); /* idle? */

#endif
