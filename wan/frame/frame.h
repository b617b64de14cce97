/* frame.h - what two gateways say to each other: the messages of the control stream and the
 * chunk frames of data streams. Pure. docs/protocol.md explains them; the numbers and
 * fields here are the wire.
 *
 * Control messages are frames of base/net/wire.h, all notices (request id 0). Ranges of
 * numbers are checked by the handler of the message; what can be checked without knowing a
 * version is checked here. */
#ifndef TB_WAN_FRAME_H
#define TB_WAN_FRAME_H

#include "base/bitmap.h"
#include "base/codec/codec.h"
#include "base/message.h"
#include "base/site_state.h"

/* HELLO negotiates: both say what they speak at most and at least, and the smaller most is spoken
 * if both can. 3 says what a view of another site needs (docs/protocol.md); 2 has BASE, deltas,
 * and every codec; 1 has raw and zstd. */
#define TB_LINK_PROTOCOL         3
#define TB_LINK_PROTOCOL_MIN     1
#define TB_LINK_PROTOCOL_BASES   2 /* the first that has them */
#define TB_LINK_PROTOCOL_STREAMS 2 /* likewise */
#define TB_LINK_PROTOCOL_SHARED  2 /* the first that has TAKE and HAVE */
#define TB_LINK_PROTOCOL_PUSH    2 /* the first that has EXPECT and PUSH */
#define TB_LINK_PROTOCOL_SPENT   2 /* the first that has it */
#define TB_LINK_PROTOCOL_DTYPES  3 /* the first whose layouts name dtypes by name and bits */
#define TB_LINK_PROTOCOL_RUNS    3 /* the first that has RUNS and RUN_TOLD */
#define TB_LINK_PROTOCOL_SEGMENT 3 /* likewise */
#define TB_LINK_PROTOCOL_STATE   3 /* the first that has STATE and HOLDUP */
#define TB_LINK_PROTOCOL_SIGNED  3 /* the first that has STATEMENT */
#define TB_LINK_PROTOCOL_PROOFS  3 /* the first that has PROOFS */
#define TB_LINK_PROTOCOL_PAUSED  3 /* the first that has PAUSED */

#define TB_LINK_FRAME_BYTES_MAX  (1u << 20)   /* of one control message */
#define TB_LINK_PAGE_BYTES       (256u << 10) /* of a HEAD, DIGESTS or HELD that we send */

/* clang-format off */
enum tb_frame_type {
    /* first frame of a control stream, dialler first; the acceptor's carries the session id */
    TB_FRAME_HELLO = 1,
    TB_FRAME_BYE,        /* last frame: why the session is refused or ended */
    TB_FRAME_PING,       /* every heartbeat, both ways */
    TB_FRAME_PONG,
    TB_FRAME_SUBSCRIBE,  /* tell me of versions of this model, now and later */
    TB_FRAME_DENIED,     /* you may not read this model */
    TB_FRAME_VERSION,    /* this version is served here; or was withdrawn */
    TB_FRAME_GONE,       /* this version is served here no more; or was asked for and is not served */
    TB_FRAME_ASK,        /* send me the manifests of this version */
    TB_FRAME_HEAD,       /* a page of one shard's manifest head */
    TB_FRAME_DIGESTS,    /* a page of one shard's chunk digests */
    TB_FRAME_WANT,       /* a crossing begins: this number stands for this version; HELD follow, then START */
    TB_FRAME_HELD,       /* words of a held bitmap that changed */
    TB_FRAME_START,      /* that is all I hold: send the rest */
    TB_FRAME_STOP,       /* send nothing more of this crossing */
    TB_FRAME_REFUSED,    /* this chunk came and was not landed: send it again */
    TB_FRAME_WHOLE,      /* this version is held here whole */
    /* my end of this data stream is closed, and HELD of all it brought was sent before */
    TB_FRAME_STREAM_GONE,
    TB_FRAME_REPORT,     /* a site reached a state with a version */
    TB_FRAME_BIND,       /* first frame of a data stream, by the dialler */
    TB_FRAME_BOUND,      /* its answer; chunk frames follow, both ways */
    /* between WANT and START: I hold this version whole and keep it; chunks may be deltas to it */
    TB_FRAME_BASE,
    /* so many data streams would serve what I send: the dialler opens them as far as it wants to */
    TB_FRAME_STREAMS,
    TB_FRAME_TAKE,       /* send of this crossing what stands here alone: others send the rest */
    TB_FRAME_HAVE,       /* answers the first TAKE, and from then on: words of my held bitmap that changed */
    /* I hold this version whole: send the next one of the model unasked, as this
     * crossing, on it as base */
    TB_FRAME_EXPECT,
    /* before VERSION: that one is this; its manifests follow, and its chunks may come already */
    TB_FRAME_PUSH,
    TB_FRAME_SPENT,      /* the day's bytes from here to you are used up; or there are some again */
    TB_FRAME_RUNS = 29,  /* which run of this model, of which I am the home, do you remember as its newest? */
    TB_FRAME_RUN_TOLD,   /* that run; order 0: none, or none that you may hear of */
    TB_FRAME_STATE = 32, /* what a site holds of a model, what it has active there, and why it is behind */
    TB_FRAME_HOLDUP,     /* what holds up the chunks that I send you */
    TB_FRAME_SEGMENT = 37, /* no more bytes of payload than this pass in a segment between us */
    TB_FRAME_STATEMENT,  /* a home signed this: of a run, a version or a withdrawal */
    TB_FRAME_PROOFS,     /* a page of one shard's proofs, behind the manifests, once all are known */
    TB_FRAME_PAUSED,     /* my operator paused a model, or all that goes to you; or that is over */
    TB_FRAME_TYPE_END
};

/* more: fields of later protocols; skipped by those who do not know them. Its first 16 bytes, if it
 * has so many, are drawn by lot at each start of a gateway's process (tb_frame_hello_process). Then
 * comes the sender's wall clock (tb_frame_hello_clock). */
#define TB_FRAME_HELLO_FIELDS(F)                                                                   \
    F(u32, protocol) F(u32, protocol_min) F(name, site) F(name, gateway) F(u32, lane)              \
    F(u32, lane_count) F(id, life) F(u64, incarnation) F(id, session) /* zero from the dialler */  \
    F(span, more)
TB_MESSAGE(tb_frame_hello, TB_FRAME_HELLO_FIELDS)
/* Zero: the peer does not say it. */
static inline struct tb_id tb_frame_hello_process(const struct tb_frame_hello *hello)
{
    struct tb_id process = {{0}};
    if (hello->more.count >= sizeof process.bytes)
        memcpy(process.bytes, hello->more.bytes, sizeof process.bytes);
    return process;
}

#define TB_FRAME_HELLO_MORE_BYTES 24u
#define TB_FRAME_WALL_MS_MAX      (UINT64_C(1) << 52)
/* The sender's wall clock, in milliseconds since 1970. False: the peer does not say it, or a time
 * that is none. */
static inline bool tb_frame_hello_clock(const struct tb_frame_hello *hello, uint64_t *wall_ms_out)
{
    struct tb_reader r;
    if (hello->more.count < TB_FRAME_HELLO_MORE_BYTES) return false;
    tb_reader_init(&r, hello->more.bytes + sizeof(struct tb_id), sizeof *wall_ms_out);
    *wall_ms_out = tb_read_u64(&r);
    return *wall_ms_out < TB_FRAME_WALL_MS_MAX;
}

#define TB_FRAME_BYE_FIELDS(F) F(u32, status_negated) F(u64, detail) /* TB_PEER_STALE: the incarnation seen */
TB_MESSAGE(tb_frame_bye, TB_FRAME_BYE_FIELDS)

#define TB_FRAME_PING_FIELDS(F) F(u64, stamp) /* comes back in PONG */
TB_MESSAGE(tb_frame_ping, TB_FRAME_PING_FIELDS)
TB_MESSAGE(tb_frame_pong, TB_FRAME_PING_FIELDS)

#define TB_FRAME_MODEL_FIELDS(F) F(name, model)
#define TB_FRAME_SUBSCRIBE_FIELDS(F) F(name, model) F(opt_name, home) /* the site that we take for its home */
TB_MESSAGE(tb_frame_subscribe, TB_FRAME_SUBSCRIBE_FIELDS)
TB_MESSAGE(tb_frame_denied, TB_FRAME_MODEL_FIELDS)

enum { TB_FRAME_VERSION_READY = 1, TB_FRAME_VERSION_WITHDRAWN = 2 };
#define TB_FRAME_VERSION_FIELDS(F) F(key, key) F(u64, bytes) F(u8, state)
TB_MESSAGE(tb_frame_version, TB_FRAME_VERSION_FIELDS)

#define TB_FRAME_GONE_FIELDS(F) F(id, uid) F(u32, status_negated)
TB_MESSAGE(tb_frame_gone, TB_FRAME_GONE_FIELDS)

#define TB_FRAME_UID_FIELDS(F) F(id, uid)
TB_MESSAGE(tb_frame_ask, TB_FRAME_UID_FIELDS)
TB_MESSAGE(tb_frame_whole, TB_FRAME_UID_FIELDS)

/* Pages come in order: shard by shard, a shard's head before its digests, each from its
 * first byte or digest on. */
#define TB_FRAME_HEAD_FIELDS(F) F(id, uid) F(u32, shard) F(u32, total_bytes) F(u32, offset) F(span, page)
TB_MESSAGE(tb_frame_head, TB_FRAME_HEAD_FIELDS)
#define TB_FRAME_DIGESTS_FIELDS(F) F(id, uid) F(u32, shard) F(u32, first) F(span, page)
TB_MESSAGE(tb_frame_digests, TB_FRAME_DIGESTS_FIELDS)

/* As DIGESTS, of TB_BLAKE3_BYTES each, shard by shard behind the last shard's digests. */
TB_MESSAGE(tb_frame_proofs, TB_FRAME_DIGESTS_FIELDS)

/* crossing: chosen by the receiver, above all it chose before on this session. */
#define TB_FRAME_WANT_FIELDS(F) F(u32, crossing) F(id, uid)
TB_MESSAGE(tb_frame_want, TB_FRAME_WANT_FIELDS)
TB_MESSAGE(tb_frame_base, TB_FRAME_WANT_FIELDS)
/* words: n x (u32 index, u64 word), ascending */
#define TB_FRAME_HELD_FIELDS(F) F(u32, crossing) F(u32, shard) F(span, words)
TB_MESSAGE(tb_frame_held, TB_FRAME_HELD_FIELDS)
/* words of the set of chunks that may be sent; they may lose bits */
TB_MESSAGE(tb_frame_take, TB_FRAME_HELD_FIELDS)
TB_MESSAGE(tb_frame_have, TB_FRAME_HELD_FIELDS)
#define TB_FRAME_CROSSING_FIELDS(F) F(u32, crossing)
TB_MESSAGE(tb_frame_start, TB_FRAME_CROSSING_FIELDS)
TB_MESSAGE(tb_frame_stop, TB_FRAME_CROSSING_FIELDS)

/* crossing: as in WANT. */
#define TB_FRAME_EXPECT_FIELDS(F) F(u32, crossing) F(name, model) F(id, base)
TB_MESSAGE(tb_frame_expect, TB_FRAME_EXPECT_FIELDS)
TB_MESSAGE(tb_frame_push, TB_FRAME_WANT_FIELDS)

enum tb_refusal {
    TB_REFUSAL_DIGEST = 1,
    TB_REFUSAL_CODEC = 2,
    TB_REFUSAL_LOST = 3,   /* another writer failed to land it */
    TB_REFUSAL_NO_BASE = 4 /* this chunk of the base is not here any more: send it whole */
};
#define TB_FRAME_REFUSED_FIELDS(F) F(u32, crossing) F(u32, shard) F(u32, chunk) F(u8, why)
TB_MESSAGE(tb_frame_refused, TB_FRAME_REFUSED_FIELDS)

#define TB_FRAME_STREAM_FIELDS(F) F(u32, stream)
TB_MESSAGE(tb_frame_stream_gone, TB_FRAME_STREAM_FIELDS)
TB_MESSAGE(tb_frame_bound, TB_FRAME_STREAM_FIELDS)
/* stream: above 0, and not used before in this session */
#define TB_FRAME_BIND_FIELDS(F) F(id, session) F(u32, stream)
TB_MESSAGE(tb_frame_bind, TB_FRAME_BIND_FIELDS)

#define TB_FRAME_STREAMS_FIELDS(F) F(u32, count)
TB_MESSAGE(tb_frame_streams, TB_FRAME_STREAMS_FIELDS)
#define TB_FRAME_SPENT_FIELDS(F) F(u8, spent) /* 0 or 1 */
TB_MESSAGE(tb_frame_spent, TB_FRAME_SPENT_FIELDS)
#define TB_FRAME_PAUSED_FIELDS(F) F(opt_name, model) F(u8, paused) /* no model: all; 0 or 1 */
TB_MESSAGE(tb_frame_paused, TB_FRAME_PAUSED_FIELDS)

TB_MESSAGE(tb_frame_runs, TB_FRAME_MODEL_FIELDS)
/* number: of the newest version that was heard of; run: zero where only the order is known. */
#define TB_FRAME_RUN_TOLD_FIELDS(F) F(name, model) F(u64, run_order) F(u64, number) F(id, run)
TB_MESSAGE(tb_frame_run_told, TB_FRAME_RUN_TOLD_FIELDS)
#define TB_FRAME_SEGMENT_FIELDS(F) F(u32, bytes) /* 536 to 65495 */
TB_MESSAGE(tb_frame_segment, TB_FRAME_SEGMENT_FIELDS)

/* As base/net/signed.h writes it, 1 to TB_SIGNED_BYTES_MAX bytes; passed on unchanged. */
#define TB_FRAME_STATEMENT_FIELDS(F) F(span, said)
TB_MESSAGE(tb_frame_statement, TB_FRAME_STATEMENT_FIELDS)

#define TB_FRAME_REPORT_FIELDS(F) F(id, uid) F(name, site) F(u8, state) /* enum tb_links_report_state */
TB_MESSAGE(tb_frame_report, TB_FRAME_REPORT_FIELDS)

/* held: n x (id uid, u64 run, u64 number, u64 bytes, u64 held_bytes, u8 marks), newest first, at
 * most TB_SITE_HELD_MAX. Both etas zero: no estimate. A version with number and run zero: none. */
#define TB_FRAME_STATE_FIELDS(F)                                                                   \
    F(name, site) F(name, model) F(u8, hops) F(u64, incarnation) F(u64, serial) F(bool, known)     \
    F(u16, reason) F(u64, age_ms) F(u64, head_run) F(u64, head_number) F(u64, active_run)          \
    F(u64, active_number) F(u32, versions) F(u64, left_bytes) F(u64, behind_ms)                    \
    F(u64, eta_low_ms) F(u64, eta_high_ms) F(span, held)
TB_MESSAGE(tb_frame_state, TB_FRAME_STATE_FIELDS)
#define TB_FRAME_HOLDUP_FIELDS(F) F(u8, holdup) /* enum tb_holdup */
TB_MESSAGE(tb_frame_holdup, TB_FRAME_HOLDUP_FIELDS)
/* clang-format on */

const char *tb_frame_name(uint16_t type); /* for logs; "unknown" */

/* A status on the wire. From the wire: TB_PEER_GARBLED for a number that is no failure of ours. */
uint32_t tb_frame_status(enum tb_status status);
enum tb_status tb_frame_status_of(uint32_t status_negated);

/* Words of a held bitmap, each with all bits that are set in it now. */
#define TB_HELD_WORD_BYTES 12u
struct tb_held_word {
    uint32_t index;
    uint64_t word;
};
void tb_held_words_encode(const struct tb_held_word *words, uint32_t count, struct tb_writer *w);
/* The i-th of a span; TB_PEER_GARBLED when its length is not a multiple, it is empty, indexes do
 * not ascend or lie outside a bitmap of chunk_count bits, or a bit past the last chunk is set. */
TB_MUST_USE enum tb_status tb_held_words_check(const struct tb_span *span, uint32_t chunk_count);
struct tb_held_word tb_held_words_at(const struct tb_span *span, uint32_t i);

/* The entries of STATE's `held`. Decoding answers TB_PEER_GARBLED for a length that is no multiple,
 * for more than TB_SITE_HELD_MAX, a zero uid, an order that does not fall, a mark that does not
 * exist, held_bytes above bytes, and WHOLE with less than all. */
#define TB_SITE_HELD_BYTES 49u
void tb_frame_site_held_encode(const struct tb_site_state *state,
                               uint8_t out[TB_SITE_HELD_MAX * TB_SITE_HELD_BYTES]);
TB_MUST_USE enum tb_status tb_frame_site_held_decode(const struct tb_span *span,
                                                     struct tb_site_state *state_out);

/* A chunk frame of a data stream: this header, then wire_bytes of the chunk in that form. Nothing
 * else follows BOUND. In protocol 1 the byte `base` is 0.
 *
 *   u32 magic  u8 kind  u8 codec  u8 base  u8 zero  u32 crossing  u32 shard  u32 chunk
 *   u32 raw_bytes  u32 wire_bytes */
#define TB_CHUNK_FRAME_MAGIC        0x46434254u /* "TBCF" */
#define TB_CHUNK_FRAME_KIND         1u
#define TB_CHUNK_FRAME_HEADER_BYTES 28u
struct tb_chunk_frame {
    struct tb_codec_form form;
    uint32_t crossing;
    uint32_t shard;
    uint32_t chunk;
    uint32_t raw_bytes;
    uint32_t wire_bytes;
};
void tb_chunk_frame_encode(const struct tb_chunk_frame *frame, struct tb_writer *w);
/* True if that protocol carries chunks in this form: 1 raw and zstd; 2 all, sparse on a base
 * alone and raw on none. */
bool tb_chunk_frame_may(uint32_t protocol, struct tb_codec_form form);
/* TB_PEER_GARBLED: truncated, another magic or kind, a form that the protocol does not carry,
 * raw_bytes 0 or over 2 x TB_CHUNK_BYTES_MAX, wire_bytes 0 or over raw_bytes (what a codec does not
 * shrink is sent raw), raw with unequal sizes. Whether the chunk exists is for inbound.h. */
TB_MUST_USE enum tb_status tb_chunk_frame_decode(struct tb_reader *r, uint32_t protocol,
                                                 struct tb_chunk_frame *frame_out);

#endif
