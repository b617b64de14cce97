/* link.h - the main loop's side of links, internal to wan. One thread: the main loop's.
 *
 * Reading order: links.c (the object, its clock; links_options.c, links_offers.c and links_known.c have its calls), link_up.c (sessions), link_dial.c (where the peer is), link_why.c (what a link says of itself),
 * link_versions.c (who offers what), link_manifest.c (manifests on their way), link_move.c (what crosses and lands: link_send.c,
 * link_land.c), link_push.c (crossings before they are asked for), link_streams.c (data streams), link_tune.c (how many). */
#ifndef TB_WAN_LINK_H
#define TB_WAN_LINK_H

#include "base/clock.h"
#include "base/dial_race.h"
#include "base/log.h"
#include "base/net/wire.h"
#include "wan/link/links.h"
#include "wan/link/path/segment.h"
#include "wan/link/session/link_session.h"
#include "wan/send/fair_queue.h"
#include "wan/send/hedge.h"
#include "wan/send/sender_turn.h"
#include "wan/send/source_division.h"
#include "wan/stream/stream.h"

/* that came from outside are not accepted beyond so many, all peers and strangers */
#define LINKS_TICK_BUSY_MS  5u /* HELD at most every 10 ms, and a relay looks for held chunks as often */
#define LINKS_TICK_IDLE_MS  25u

#define LINK_CONNS_MAX      256u
#define LINK_CONNS_PER_PEER 12u
#define LINK_GREET_BY       TB_SECONDS(5)
#define LINK_GONE_MAX       64u                 /* stream numbers that may not be bound any more */
#define LINK_GIVEN_MAX      64u                 /* of the last numbers that EXPECT gave out */
#define LINK_QUEUE_BYTES    ((uint64_t)1 << 20) /* of manifest pages on the control stream */

struct link;

/* One connection that is or may become a control stream. */
struct conn {
    struct conn *next;
    struct tb_links *links;
    struct link *link; /* NULL: accepted, and nobody knows yet who it is */
    struct tb_wire *wire;
    bool dialled;
    bool ended;           /* close or finish was called */
    bool fault_told;      /* why it ended was logged */
    bool is_session;      /* link->session is this one */
    bool racing;          /* dialled, one of the link's race */
    bool ahead;           /* dialled: data streams were dialled beside it */
    bool probe;           /* dialled: it stalls in TLS, and one with smaller segments is the session */
    uint32_t segment_max; /* dialled: TCP_MAXSEG; 0: the path's own */
    bool outrun;          /* another attempt was open sooner, or the session was heard again: no failure */
    tb_time_ns greet_by;
    tb_time_ns connected_at;     /* dialled: TCP was seen to be answered; 0: not yet */
    tb_time_ns opened_at;        /* 0: not yet */
    uint64_t expires_wall_s;     /* the peer's certificate */
    uint64_t own_expires_wall_s; /* ours, as it was when this began */
    struct tb_digest own_shown;  /* likewise */
    struct tb_identity identity;
    char address_text[128];
    tb_time_ns rtt;            /* of TCP, when it opened; 0: not known */
    struct tb_address address; /* dialled */
    struct tb_stream *binding; /* it turned out to be a data stream and is on its way to a loop */
    uint64_t binding_session;
};

/* A version that is offered here. */
struct offer_peer {
    uint64_t announced;  /* in this session_seq; 0: never */
    uint64_t told_whole; /* we told the peer that it is whole here, in this session_seq */
    uint64_t told_held;  /* we told the daemon that the peer holds it, in this session_seq */
    uint32_t held_chunks;
    bool whole;
};
struct offer {
    struct offer *next;
    struct tb_version_key key;
    struct tb_share *share;
    uint64_t bytes;
    uint32_t chunks;
    bool whole; /* here */
    struct offer_peer peers[];
};

/* A version the peer announced in this session. */
struct announced {
    struct tb_version_key key;
    uint64_t bytes;
};

/* A version that is sent unasked. */
struct push {
    struct push *next;
    struct tb_name model;
    uint32_t crossing;
    struct tb_id base; /* the receiver has it whole */
    struct tb_id uid;  /* PUSH came: which it is */
    tb_time_ns began;  /* PUSH came; of one that rests: since when */
    tb_time_ns came;   /* it, or the last page of its manifests */
};

/* Manifests on their way to us. */
struct ask {
    struct ask *next;
    struct tb_id uid;
    struct tb_version_key key;
    bool sent;    /* in this session */
    bool unasked; /* they follow a PUSH that is not decided, and nobody here asked yet */
    bool complete;
    uint32_t shard;
    uint8_t *head;
    uint32_t head_total, head_got;
    uint32_t digests_got;
    uint64_t memory_bytes;
    uint64_t needed_bytes;         /* with the shard for which there was no room */
    struct tb_manifest *manifests; /* key.shard_count; NULL until the answer begins */
    void **memories;
};

/* Manifests on their way to the peer. */
struct serve {
    struct serve *next;
    struct offer *offer;
    uint32_t shard;
    bool head_done;
    bool asked;  /* else it follows PUSH */
    uint32_t at; /* byte of the head, or digest */
    uint8_t *head;
    uint32_t head_bytes;
};

/* A version that the peer draws from us. */
struct out {
    struct out *next;
    uint32_t crossing;
    struct offer *offer;
    struct tb_share *
        base; /* of an offer, or ours (links_past_new): what the peer holds whole; NULL: none, or gone here */
    bool based;        /* BASE came, or EXPECT named it */
    bool no_base_told; /* the log says that the peer's base went */
    struct tb_crossing core;
    void *memory;
    tb_time_ns began_at;
    tb_time_ns have_at; /* what is held here was told, in a shared crossing */
    uint32_t flow;      /* of its model, in the link's fair */
    struct tb_fair_bill bill;
};

/* A version that lands here from the peer. */
struct in {
    struct in *next;
    struct tb_version_key key;
    struct tb_share *share;
    struct tb_share *base; /* of an offer: what we told the peer that we hold; NULL: none, or gone */
    struct tb_landing core;
    void *memory;
    uint32_t crossing; /* 0: not under way */
    uint32_t draining; /* of an ended session, whose streams still bring what had arrived; 0: none */
    bool finished;     /* landed or failed; waits for land_stop */
    bool no_base_told; /* the log says that its base went */
    struct tb_turn turn;
};

/* A version that several peers send at once. */
struct division {
    struct division *next;
    struct tb_id uid;
    struct tb_divide core;
    void *memory;
    struct tb_place *places; /* in `memory`, too */
    struct {
        struct link *link;            /* NULL: free */
        uint32_t crossing;            /* of the link's `in` */
    } members[TB_DIVIDE_SOURCES_MAX]; /* by source */
};

/* A second gateway with the peer's identity. */
struct link_twin {
    tb_time_ns asked_at; /* the session was asked because a newcomer of another life came; 0: never */
    tb_time_ns vouched_at;
    tb_time_ns seen_at; /* a twin was refused; 0: none in this session */
    struct tb_id life;  /* its */
};

struct link_heartbeat {
    tb_time_ns sent_at;
    tb_time_ns waiting_since; /* the oldest heartbeat without an answer; 0: none */
    tb_time_ns answered;      /* when that one was sent that was answered last */
    tb_time_ns heard_floor;   /* what came before counts as heard then: our own loop slept */
};

/* What a link says of itself (link_why.c). */
struct link_said {
    enum tb_links_why why;
    bool up;      /* since `since`; else it is down since then */
    bool refused; /* down: a handshake or a BYE said no */
    tb_time_ns since;
    tb_time_ns at; /* `why` was seen last */
    char error[TB_LINKS_ERROR_BYTES];
};

struct link {
    struct tb_links *links;
    uint32_t index;
    struct tb_identity identity;
    struct tb_name label; /* in the log */
    struct tb_name *models;
    bool denied[TB_LINKS_MODELS_MAX]; /* of `models`: the peer said in this session that we may not read it */
    uint32_t model_count;
    bool has_address;
    struct tb_endpoint endpoint;
    struct link_resolving *resolving; /* a query is under way */
    struct tb_address addresses[TB_ADDRESSES_MAX];
    uint32_t address_count, address_at;
    tb_time_ns asked_at;    /* for the name, last; 0: never */
    struct tb_address good; /* the last one that became a session; bytes 0: none */
    tb_time_ns fresh_until; /* the name is asked again then; TB_TIME_NEVER: it is a number */
    uint32_t elsewhere;     /* answers in a row without the session's address */
    tb_time_ns renewed_at;  /* a fresh connection was dialled beside a session that works; 0: never */
    struct tb_race race;
    enum tb_chan_reach race_reach; /* how far the best of its dials came */
    uint32_t conn_count;

    struct link_said said;
    struct tb_link_session life;
    struct conn *session; /* the control stream; NULL: down */
    /* the peer replaced the session by an attempt of ours that we have not heard of yet; 0: no */
    tb_time_ns limbo_since;
    uint64_t session_seq; /* grows with each session, 1.. */
    struct tb_id session_id;
    uint32_t protocol; /* of the session */
    struct link_heartbeat beat;
    uint64_t told_dtypes; /* the session in which the log named a model that this peer cannot read */
    struct tb_name told_dtypes_of;
    struct link_twin twin;
    struct tb_segment segment;
    tb_time_ns segment_at; /* it was looked at */
    uint64_t segment_seq;  /* streams of this session, up to the next, were counted as stalled */
    uint32_t segment_number;
    uint64_t control_acked; /* bytes of the session's control stream, */
    tb_time_ns control_at;  /* since then; 0: not looked at yet */
    struct tb_name
        granted[TB_LINKS_MODELS_MAX]; /* models this peer may read and wants; while it is down, did */
    uint32_t granted_count;
    struct tb_name
        refused[TB_LINKS_MODELS_MAX]; /* models that it asked for in this session and may not read */
    uint32_t refused_count;
    uint32_t missed; /* versions, of all models, that came since its session ended */
    struct announced *announced;
    uint32_t announced_count, announced_cap;
    uint32_t want_last; /* the highest crossing number the peer gave */

    uint32_t given[LINK_GIVEN_MAX]; /* by EXPECT in this session, and not used by PUSH; 0: none */
    uint32_t given_at;
    struct push *expecting; /* of the peer; PUSH has not come */
    struct push *pushed;    /* PUSH came, and it is not decided */
    struct push *expected;  /* of us */
    struct push *resting;   /* models: the peer's were too long in coming, and none is expected for a while */
    struct ask *asks;
    struct serve *serves;
    struct out *outs;
    struct in *ins;

    struct tb_fair fair;
    struct tb_feed *feed;
    struct tb_hedge hedge;
    struct tb_stream *streams[TB_LINKS_STREAMS_MAX]; /* by slot */
    uint32_t stream_number;                          /* the last one dialled, or the highest bound */
    /* dialled beside a control stream that is not greeted yet */
    struct tb_stream *ahead[TB_LINKS_STREAMS_MAX];
    uint32_t ahead_count;
    struct tb_tcp_path_options path;
    char congestion[TB_TCP_CONGESTION_BYTES]; /* that path points to */
    tb_time_ns path_rtt;                      /* as the control stream's TCP saw it first; 0: not known */
    struct tb_tuner tuner;                    /* lives as long as the link: a path is remembered */
    uint32_t usable;                          /* streams that are used to send */
    uint32_t peer_wants;                      /* streams, for what it sends; 0: it did not say */
    uint32_t told_wants;                      /* that the peer heard of us in this session; 0: nothing */
    uint32_t queued;                          /* parcels that no stream took, when it was looked last */
    bool full;                                /* since the last look there was always something to send */
    bool spent;                               /* the day's bytes, when it was looked last */
    bool told_spent;                          /* as the peer heard of us in this session */
    struct tb_id peer_life;                   /* of the peer's arena, by its last HELLO; zero: none came */
    enum tb_holdup told_holdup;               /* as the peer heard of us in this session */
    tb_time_ns holdup_at;                     /* when it was looked at last */
    uint64_t holdup_sent, holdup_resent;      /* bytes, as they were then */
    tb_time_ns looked_at;
    uint32_t stream_failures; /* in a row */
    tb_time_ns stream_retry_at;
    uint32_t gone_numbers[LINK_GONE_MAX];
    uint32_t gone_at;
    bool stream_garbled; /* a stream of the session ended so: the turn ends the session */

    struct tb_links_stats stats; /* what is not counted elsewhere; streams add theirs when they go */
};

/* A call that took places back; `done` comes when no stream touches them any more. */
struct retired {
    struct retired *next;
    uint32_t left; /* shares */
    void (*done)(void *user);
    void *user;
};

struct tb_links {
    struct tb_links_options options; /* pointers in it are ours or static */
    struct tb_tcp_path_options path;
    struct tb_tcp_ceilings ceilings; /* of the kernel, as they were seen last */
    tb_time_ns ceilings_at;
    struct tb_identity identity;
    uv_async_t wake;
    uv_timer_t clock;
    uint32_t handles;
    uint32_t clock_ms; /* 0: stopped */
    void (*on_clock)(uv_timer_t *clock);
    const struct tb_wire_ops *wire_ops; /* of connections that may become control streams */
    tb_time_ns ticked_at;
    struct tb_listener *listener;
    struct conn *conns;
    uint32_t accepted_count; /* of them */
    struct tb_stream_loop *loops[TB_LINKS_THREADS_MAX];
    uint32_t loop_count, loop_at;
    struct link *links; /* peer_count */
    struct offer *offers;
    uint32_t offer_count;
    uint32_t most_offers, most_announced, most_landings, most_asks; /* that tb_links_usage ever saw */
    struct tb_version_key withdrawn[TB_LINKS_WITHDRAWN_MAX];
    uint32_t withdrawn_count, withdrawn_at;
    struct division *divisions;
    struct tb_share *retiring; /* shares on which some stream may still have a hand */
    struct retired *retired;
    uint64_t strangers;
    tb_time_ns full_told_at; /* that a connection was not accepted, for want of room; 0: never */
    bool closing;
    void (*closed)(void *user);
    void *closed_user;
};

/* links.c */
uint64_t links_random(void);
void links_busy(struct tb_links *ls); /* something moves: tick fast */
void links_fed(struct tb_links *ls);  /* loops whose streams found nothing to send look again */
void links_heed(struct tb_links *ls); /* every stream looks at what it has in hand */

/* links_options.c */
enum tb_status links_refuse(char error_out[256], const char *what, const char *which);
enum tb_status links_options_check(const struct tb_links_options *o, char error_out[256]);
void links_options_fill(struct tb_links_options *o); /* what is usual, where nothing was said */
/* What the kernel offers. */
void links_path_options(const struct tb_links_options *o, const struct tb_tcp_ceilings *ceilings,
                        struct tb_tcp_path_options *p);

/* links_offers.c */
struct offer *offer_find(struct tb_links *ls, const struct tb_id *uid);
void links_offers_free(struct tb_links *ls);
/* A version that left, while its chunks are known (encoded_chunks.h): what a peer holds, and steps may lead from. NULL: it is not, or no memory. */
struct tb_share *links_past_new(struct tb_links *ls, const struct tb_id *uid, const struct tb_name *model);
void links_past_free(struct tb_links *ls, struct tb_share *past); /* once no stream has a hand on it */
void links_sweep_retired(
    struct tb_links *ls); /* calls `done` of those whose places no stream touches any more */

/* link_up.c */
void link_up_tick(struct link *l, tb_time_ns now);
void link_up_stop(struct link *l); /* closing */
void links_on_accept(void *user, int fd, const struct tb_address *from);
void links_conns_tick(struct tb_links *ls, tb_time_ns now);
extern const struct tb_wire_ops links_wire_ops;
/* For one more: dialled by this link; NULL: accepted. */
bool links_have_room(const struct tb_links *ls, const struct link *l);
struct conn *link_conn_new(struct tb_links *ls, struct link *l); /* likewise; NULL: no memory, or no room */
void link_conn_free(struct conn *c);
void link_conn_close(struct conn *c, enum tb_status why);
void link_log(const struct link *l, enum tb_log_level level, const char *event, enum tb_status why,
              const char *address);
void link_step(struct link *l, enum tb_link_session_event_kind kind, const struct tb_link_session_event *more,
               struct tb_link_session_todo *todo_out);
bool link_is_up(const struct link *l);
/* Ends the session; with BYE where it can still be sent. It is dialled again. */
void link_drop(struct link *l, enum tb_status why);
enum tb_status link_frame(struct link *l, struct tb_wire_frame *frame); /* dispatch, of a session */
/* NULL: not up, or ending. */
struct tb_writer *link_begin(struct link *l, enum tb_frame_type type, size_t payload_max);
void link_end(struct link *l);
/* Sends a control message to the peer; nothing happens when the session is not up. */
#define LINK_SEND(link, type, message, payload_max, ...)                                                     \
    do {                                                                                                     \
        struct tb_writer *w_ = link_begin(link, type, payload_max);                                          \
        if (w_ == NULL) break;                                                                               \
        message##_encode(&(const struct message){__VA_ARGS__}, w_);                                          \
        link_end(link);                                                                                      \
    } while (0)
#define LINK_WORDS_MAX (TB_LINK_PAGE_BYTES / TB_HELD_WORD_BYTES) /* in one frame */
#define LINK_SMALL 1024u /* payload_max of messages without a page */

/* link_why.c: what happened, for what the link says of itself. Nothing of it changes what a link says that is up. */
void link_said_up(struct link *l);                       /* a session began, or took the place of another */
void link_said_down(struct link *l, enum tb_status why); /* it ended */
void link_said_expired(struct link *l, bool ours);       /* and that because of a certificate */
void link_said_bye(struct link *l, enum tb_status why, bool by_peer); /* a session, or HELLO, was refused */
void link_said_twin(struct link *l, const struct conn *twin); /* it was refused, and the session stays */
void link_said_no_twin(struct link *l);
void link_said_mtu(struct link *l);
void link_said_unresolved(struct link *l, enum tb_status why);
void link_said_undialled(struct conn *c, enum tb_status status); /* a dial ended without a session */
void links_said_stranger(struct conn *c, enum tb_status why); /* whoever it was that came, and was refused */

/* link_twin.c: two gateways with one identity. */
void link_twin_ask(struct link *l); /* the session, with a heartbeat: is it alive? */
void link_twin_answered(struct link *l, tb_time_ns stamp, tb_time_ns now);
void link_twin_found(struct link *l, const struct conn *twin, const struct tb_id *life);
void link_twin_is_us(struct link *l);                  /* the peer says so */
void link_twin_forget(struct link *l, tb_time_ns now); /* what is too long ago */

/* link_segment.c: an MTU black hole. */
void link_segment_tick(struct link *l, tb_time_ns now);
/* A session is about to take the place of `old`. True: that was stalled, and segments are to be smaller: say so to link_segment_up. */
bool link_segment_replaced(struct link *l, const struct conn *old);
void link_segment_up(struct link *l, bool lowered);
uint32_t link_segment_to_try(const struct link *l); /* of the next dial */
void link_segment_won(const struct conn *won);
void link_segment_probed(struct link *l, bool opened);
enum tb_status link_on_segment(struct link *l, struct tb_wire_frame *f);

/* link_dial.c */
struct tb_wire_options links_wire_options(struct tb_links *ls, struct conn *c);
void link_dial(struct link *l); /* as the session's core asked for */
void link_dial_tick(struct link *l, tb_time_ns now);
void link_dial_won(struct conn *won); /* it is open: what runs against it is closed */
void link_dials_end(struct link *l);  /* those that are not open yet */
/* Without a session. */
void link_dial_ended(struct link *l, bool racing, enum tb_status why, enum tb_chan_reach reach);
bool link_same_address(const struct tb_address *a, const struct tb_address *b);
void link_names_doubt(struct link *l); /* ask for the peer's name again, now */
/* A session that works, and that we dialled, is to go on over a fresh connection: dials one, which takes over once it is greeted. */
void link_renew(struct link *l, tb_time_ns now);
/* What its name says; not during a race. */
void link_take_addresses(struct link *l, const struct tb_address *addresses, uint32_t count, tb_time_ns now);
void link_forget_resolving(struct link *l);

/* link_versions.c */
void link_subscribe(struct link *l, struct tb_wire *wire); /* on what is the session, or may be it soon */
void link_versions_up(struct link *l);
void link_versions_down(struct link *l); /* it ended */
void link_versions_tick(struct link *l);
void links_offers_tick(struct tb_links *ls);
void link_announce(struct link *l, struct offer *o);
void link_send_gone(struct link *l, const struct tb_id *uid, enum tb_status why);
void link_tell_withdrawn(struct link *l, const struct tb_version_key *key);
void link_peer_held(struct link *l, struct offer *o);
const struct announced *link_announced(const struct link *l, const struct tb_id *uid);
bool link_granted(const struct link *l, const struct tb_name *model);
enum tb_status link_on_subscribe(struct link *l, struct tb_wire_frame *f);
enum tb_status link_on_denied(struct link *l, struct tb_wire_frame *f);
enum tb_status link_on_version(struct link *l, struct tb_wire_frame *f);
enum tb_status link_on_gone(struct link *l, struct tb_wire_frame *f);
enum tb_status link_on_whole(struct link *l, struct tb_wire_frame *f);
enum tb_status link_on_report(struct link *l, struct tb_wire_frame *f);

/* link_dtypes.c */
/* The session's protocol can say every layout of the version. */
bool link_may_read(const struct link *l, const struct offer *o);
/* It cannot: GONE, a counter, and a line in the log for each model of a session. */
void link_refuse_dtypes(struct link *l, const struct offer *o);

/* link_manifest.c */
void link_asks_send(struct link *l); /* those the peer announced and that were not sent in this session */
void link_asks_rewind(struct link *l);
void link_ask_fail(struct link *l, const struct tb_id *uid, enum tb_status why);
void link_asks_free(struct link *l);
void link_serves_tick(struct link *l);
void link_serves_drop(struct link *l, const struct offer *o); /* NULL: all */
void link_asks_tick(struct link *l);                          /* those that are complete */
/* Its manifests follow PUSH. TB_TOO_LARGE, TB_SITE_NOMEM: they are not kept. */
TB_MUST_USE enum tb_status link_ask_pushed(struct link *l, const struct tb_version_key *key);
void link_ask_declined(struct link *l, const struct tb_id *uid); /* they are kept if they were asked for */
void link_serve(struct link *l, struct offer *o, bool asked);    /* or GONE, where there is no memory */
enum tb_status link_on_ask(struct link *l, struct tb_wire_frame *f);
enum tb_status link_on_head(struct link *l, struct tb_wire_frame *f);
enum tb_status link_on_digests(struct link *l, struct tb_wire_frame *f);

/* link_move.c */
void link_move_tick(struct link *l, tb_time_ns now);
void link_move_down(struct link *l);
bool link_moves(const struct link *l); /* something is under way: tick fast */
void link_take_notes(struct link *l);  /* taken parcels and notes of the feed */
/* That version leaves; what was encoded of it may stay. */
void link_base_gone(struct link *l, const struct offer *o, bool steps_stay);
bool link_base_used(const struct link *l, const struct tb_share *base); /* by a crossing, either way */

/* link_send.c */
void link_outs_drop(struct link *l, const struct offer *o); /* NULL: all */
/* A crossing that the peer expects begins. */
TB_MUST_USE enum tb_status link_out_push(struct link *l, uint32_t crossing, struct offer *o,
                                         struct tb_share *base);
/* The crossing a message is about. NULL and TB_OK: one that is over, which is no mistake. */
enum tb_status link_out_of(const struct link *l, uint32_t crossing, struct out **out_out);
enum tb_status link_on_want(struct link *l, struct tb_wire_frame *f);
enum tb_status link_on_base(struct link *l, struct tb_wire_frame *f);
enum tb_status link_on_held(struct link *l, struct tb_wire_frame *f);
enum tb_status link_on_start(struct link *l, struct tb_wire_frame *f);
enum tb_status link_on_stop(struct link *l, struct tb_wire_frame *f);
enum tb_status link_on_refused(struct link *l, struct tb_wire_frame *f);
void link_out_unsent(struct link *l, const struct tb_note *n);
void link_out_stream_gone(struct link *l, uint32_t slot);
void link_take_taken(struct link *l);                     /* parcels that streams took */
bool link_refill(struct link *l, tb_time_ns now);         /* the feed; true: streams may find something */
bool link_slot_idle(const struct link *l, uint32_t slot); /* nothing that we put on it is still on its way */

/* link_land.c */
struct in *link_in_of(const struct link *l, const struct tb_id *uid);
void link_in_stop(struct link *l, struct in *in); /* the crossing ends; `in` stays */
void link_in_free(struct link *l, struct in *in); /* takes it off the list; its share is the caller's */
void link_in_fail(struct link *l, const struct tb_id *uid, enum tb_status why);
void link_in_note(struct link *l, const struct tb_note *n);
void link_ins_tick(struct link *l, tb_time_ns now);
void link_tell_held(struct link *l, tb_time_ns now); /* all differences, now */

/* link_push.c */
void link_pushes_down(struct link *l);
void link_pushes_tick(struct link *l, tb_time_ns now);
void link_expect(struct link *l, const struct offer *o); /* it is whole here, and the peer was told so */
bool link_is_pushed(const struct link *l, const struct tb_id *uid);
void link_push_gone(struct link *l, const struct tb_id *uid);
void link_push_too_much(struct link *l, const struct tb_id *uid); /* there is no room for its manifests */
void link_push_moved(struct link *l, const struct tb_id *uid);    /* a page of its manifests came */
void link_pushes_forget(struct link *l);                          /* for good */
/* A landing begins, on in->base: as which crossing that the peer began already; 0: it is to be asked. */
uint32_t link_push_take(struct link *l, const struct in *in);
void link_expected_ends(struct link *l, const struct tb_name *model); /* WANT came */
bool link_push(struct link *l, struct offer *o); /* before VERSION; true: its manifests are to follow that */
enum tb_status link_on_expect(struct link *l, struct tb_wire_frame *f);
enum tb_status link_on_push(struct link *l, struct tb_wire_frame *f);

/* link_share.c */
/* May a crossing of this version begin on this link now? Not beside one that cannot be shared. */
bool link_may_begin(const struct link *l, const struct in *in);
/* Those beside which it cannot have had their turn: they are stopped, and it begins. */
bool link_take_turn(struct link *l, const struct in *in, tb_time_ns now);
void link_share_begin(struct link *l, struct in *in, tb_time_ns now); /* before START */
void links_share_tick(struct tb_links *ls, tb_time_ns now);
void links_share_end(struct tb_links *ls, const struct tb_id *uid); /* NULL: all */
void link_outs_have(struct link *l, tb_time_ns now);
enum tb_status link_on_take(struct link *l, struct tb_wire_frame *f);
enum tb_status link_on_have(struct link *l, struct tb_wire_frame *f);

/* link_day_budget.c */
void link_spent_tell(struct link *l); /* link.spent may have changed */
enum tb_status link_on_spent(struct link *l, struct tb_wire_frame *f);

/* link_runs.c */
enum tb_status link_on_runs(struct link *l, struct tb_wire_frame *f);
enum tb_status link_on_run_told(struct link *l, struct tb_wire_frame *f);
/* link_state.c */
void link_life(struct link *l,
               const struct tb_id *life); /* a session began: what HELLO says of the peer's arena */
void link_state_up(struct link *l);
void link_holdup_tick(struct link *l, tb_time_ns now);
enum tb_status link_on_state(struct link *l, struct tb_wire_frame *f);
enum tb_status link_on_holdup(struct link *l, struct tb_wire_frame *f);

/* link_streams.c */
void link_streams_tick(struct link *l, tb_time_ns now);
void link_streams_end_old(struct link *l);   /* of sessions that are over */
bool link_streams_old(const struct link *l); /* some of an earlier session are not gone yet */
uint32_t link_streams_count(const struct link *l);
/* Dials them before the session is greeted; each is adopted by a session at that address, or ends. */
void link_streams_ahead(struct link *l, const struct tb_address *to);
void link_streams_ahead_end(struct link *l);
void link_streams_adopt(struct link *l); /* a session began */
enum tb_status link_on_stream_gone(struct link *l, struct tb_wire_frame *f);
/* BIND came on an accepted connection. Anything but TB_OK closes it. */
enum tb_status links_on_bind(struct conn *c, struct tb_wire_frame *f);
void link_stream_stats(const struct link *l, struct tb_links_stats *stats);
void link_stream_end(struct tb_stream *s);
uint64_t link_sent_bytes(const struct link *l); /* of chunk frames, on all streams since ever */

/* link_tune.c */
void link_tune(struct link *l, tb_time_ns now);
enum tb_status link_on_streams(struct link *l, struct tb_wire_frame *f);
uint32_t link_streams_wanted(const struct link *l); /* that are to be open, where we dial */
uint32_t link_streams_fresh(const struct link *l);  /* that are, or are on their way, and are not worn */

/* links_wake.c */
void links_set_clock(struct tb_links *ls, uint32_t ms);

/* link_conn.c */
void link_conn_bye(struct conn *c, enum tb_status why, uint64_t detail);
bool link_has_candidate(const struct link *l);

/* link_heartbeat.c */
enum tb_status link_on_ping(struct link *l, struct tb_wire_frame *f);
enum tb_status link_on_pong(struct link *l, struct tb_wire_frame *f);

/* link_up.c */
void link_be_down(struct link *l, enum tb_status why);
void link_session_end(struct link *l, enum tb_status why);
void link_session_limbo(struct link *l);
void link_session_begin(struct conn *c, const struct tb_frame_hello *hello, const struct tb_id *id,
                        uint32_t protocol);

/* announced.c */
bool link_wants(const struct link *l, const struct tb_name *model);
void link_send_version(struct link *l, const struct tb_version_key *key, uint64_t bytes, uint8_t state);

/* ask_table.c */
void link_ask_clear(struct ask *a);
struct ask **link_ask_find(struct link *l, const struct tb_id *uid);
void link_ask_free(struct ask **at);
uint64_t link_ask_room(const struct link *l, const struct ask *whose);

/* crossing_table.c */
struct out *link_out_find(const struct link *l, uint32_t crossing);
void link_out_free(struct link *l, struct out *out);
uint32_t link_out_count(const struct link *l);
enum tb_status link_out_new(struct link *l, uint32_t crossing, struct offer *offer);

/* landing_table.c */
struct in *link_in_find(const struct link *l, uint32_t crossing);
void link_in_unlist(struct link *l, struct in *in);
bool link_in_all_held(const struct in *in);
uint32_t link_in_crossings(const struct link *l);
void link_in_end(struct link *l, struct in *in, enum tb_status why);

/* link_streams.c */
bool link_streams_garbled(const struct link *l);

/* offer_table.c */
struct retired *links_retired_new(struct tb_links *ls, void (*done)(void *user), void *user);
void links_retire(struct tb_links *ls, struct tb_share *share, struct retired *call);
void link_peer_dropped(struct link *l, const struct tb_id *uid);
void link_peer_forgets(struct link *l);

/* push_table.c */
struct push **push_find_model(struct push **at, const struct tb_name *model);
struct push **push_find_uid(struct push **at, const struct tb_id *uid);
struct push *push_take_out(struct push **at);
bool push_is_newer(const struct tb_version_key *key, const struct tb_version_key *than);

/* stream_table.c */
int link_stream_free_slot(const struct link *l);
void links_stream_to_loop(struct tb_links *ls, struct tb_stream *s);
struct tb_stream_plan link_stream_plan(struct link *l, uint32_t slot, uint32_t number);
struct tb_stream_plan link_stream_dial_plan(struct link *l, uint32_t slot, const struct tb_address *to);
void link_stream_add_stats(struct tb_links_stats *to, const struct tb_stream *s);
bool link_stream_is_worn(const struct link *l, const struct tb_stream *s);
bool link_stream_is_bound(const struct link *l, const struct tb_stream *s);

/* streams_ahead.c */
void link_streams_ahead_gone(struct link *l);

/* word_frames.c */
void link_send_words(struct link *l, enum tb_frame_type type, uint32_t crossing, uint32_t shard,
                     const struct tb_held_word *words, uint32_t count);

#endif
