/* link_session.h - the life of a session with one peer: when to dial, which of two sessions stays,
 * and whether a peer is accepted at all.
 *
 * Pure: time and randomness are passed in. The owner has the connections. Several attempts may run
 * at once: ours, the peer's, fresh dials to a silent peer. The attempt that was greeted and judged
 * last is the session.
 *
 * A peer that says no is left alone for longer each time, with jitter. A peer that says nothing is
 * dialled every config.fresh_dial for as long as that lasts. Such packets burden nobody, and the
 * first one that arrives becomes the next session. TCP alone asks a silent path less and less
 * often: it would find the path open late by as long as it was closed. While this machine has no
 * way to the peer, it looks every config.retry_min.
 *
 * A newcomer of another process is the peer after a restart, or a second gateway with the peer's
 * identity. For a peer that does not name its process, another life stands for another process,
 * though a cloned arena has the same life. The session that is there tells the two apart: it
 * answers for a gateway that lives, and not for a dead one. So the session is asked, and the
 * newcomer comes again; it is a twin once the session has answered. Incarnations do not help: each
 * of two twins that is refused as stale goes above the other's.
 *
 * If both sides dialled, the session dialled by the lexically smaller gateway URI stays. Both
 * sides come to that by themselves, because both see both HELLOs. A silent session never stands in
 * the way of a new one. */
#ifndef TB_WAN_LINK_SESSION_H
#define TB_WAN_LINK_SESSION_H

#include "base/ident.h"
#include "base/time.h"
#include "wan/frame/frame.h"

enum tb_link_session_state {
    TB_LINK_RESTING, /* nothing there; the next dial is at next_dial_at */
    /* our attempts are under way: a path may swallow some, so another begins each fresh_dial */
    TB_LINK_DIALLING,
    TB_LINK_UP,
    TB_LINK_SILENT, /* up, but a heartbeat is unanswered: fresh dials go on until it is heard again or
                       replaced */
    TB_LINK_STOPPED,
    TB_LINK_STATE_COUNT
};

enum tb_link_session_event_kind {
    TB_LINK_DUE,        /* next_dial_at has come */
    TB_LINK_FAILED,     /* an attempt of ours ended without a session: the peer, or its machine, said no */
    TB_LINK_UNANSWERED, /* likewise, but nothing came from there */
    TB_LINK_GREETED,    /* an attempt, ours or the peer's, was judged TB_OK and is the session now */
    TB_LINK_LOST,       /* the session ended */
    TB_LINK_QUIET,      /* a heartbeat was not answered within tb_link_session_patience */
    TB_LINK_HEARD,      /* and was answered after all */
    TB_LINK_STOP,       /* for good */
    TB_LINK_EVENT_COUNT
};

#define TB_LINK_ANSWERS 4u

struct tb_link_session_config {
    struct tb_identity self, peer; /* gateways */
    uint32_t peer_lane;            /* of its site */
    uint32_t protocol_max;         /* that we speak; TB_LINK_PROTOCOL_MIN to TB_LINK_PROTOCOL */
    bool can_dial;                 /* the peer's address is known */
    tb_time_ns retry_min, retry_max, fresh_dial, silent;
};

/* One HELLO raises the incarnation below which a peer is stale by no more. A gateway that is told
 * that it is stale raises its own by as much (gateway/daemon/persist.c), so a party with its key
 * that says a number near 2^64 shuts it out for one more dial, and not for ever. */
#define TB_LINK_INCARNATION_STEP ((uint64_t)1 << 32)

struct tb_link_session {
    struct tb_link_session_config config;
    enum tb_link_session_state state;
    bool peer_is_smaller; /* its URI sorts before ours */
    bool dialled_by_us;   /* the session; UP and SILENT */
    uint64_t incarnation; /* the peer's in this session */
    struct tb_id life;    /* likewise */
    struct tb_id process; /* likewise; zero: not known */
    bool vouched;         /* the session answered after such a newcomer had come */
    /* The highest that the peer said, or a step towards it: see TB_LINK_INCARNATION_STEP. */
    uint64_t incarnation_seen;
    uint32_t attempts; /* that failed in a row */
    tb_time_ns next_dial_at;
    /* how long the last ones to heartbeats took, of whatever session; 0: none yet */
    tb_time_ns answers[TB_LINK_ANSWERS];
    uint32_t answer_at;
};

struct tb_link_session_event {
    tb_time_ns now;
    enum tb_link_session_event_kind kind;
    uint64_t random;      /* uniform; for the jitter */
    bool peer_fault;      /* LOST: it broke the protocol; it has to wait like one that failed often */
    bool nowhere;         /* UNANSWERED: no packet left this machine, whose own device is down */
    bool dialled_by_us;   /* GREETED */
    uint64_t incarnation; /* GREETED: of the peer's HELLO */
    struct tb_id life;    /* likewise */
    struct tb_id process; /* likewise */
};

struct tb_link_session_todo {
    bool dial;     /* begin one attempt */
    bool replaced; /* GREETED: there was a session before; end it without telling anybody */
};

void tb_link_session_init(struct tb_link_session *s, const struct tb_link_session_config *config,
                          tb_time_ns now);
/* Whether it is dialled from now on; without a session at once. */
void tb_link_session_may_dial(struct tb_link_session *s, bool can_dial, tb_time_ns now);
/* TB_BAD_STATE: that event cannot come in that state; nothing changed. */
TB_MUST_USE enum tb_status tb_link_session_step(struct tb_link_session *s,
                                                const struct tb_link_session_event *event,
                                                struct tb_link_session_todo *todo_out);

/* A heartbeat was answered after `took`. */
void tb_link_session_answered(struct tb_link_session *s, tb_time_ns took);
/* How long an answer may take before the session is silent: config.silent, or twice the
 * quickest of the last answers. A path whose queues hold a second of bytes is slow, not dead:
 * sessions replaced each second bring nothing over it (P6). One answer that came late through a
 * cut changes nothing. */
tb_time_ns tb_link_session_patience(const struct tb_link_session *s);

/* The session answered what it was asked for verdict.ask; or that was too long ago. */
void tb_link_session_vouch(struct tb_link_session *s, bool vouched);

struct tb_link_session_verdict {
    uint32_t protocol; /* to be spoken */
    uint64_t detail;   /* goes into BYE */
    bool ask;          /* refused because of the session that is there: a heartbeat is due, now */
};
/* May this HELLO become the session? The identity is the certificate's and was compared
 * with config.peer before.
 *   TB_PEER_IDENTITY   HELLO's site or gateway is not the certificate's
 *   TB_PEER_PROTOCOL   no protocol in common; detail: what we speak at most
 *   TB_PEER_GARBLED    another lane than that gateway is
 *   TB_PEER_STALE      a higher incarnation was seen; detail: that
 *   TB_PEER_TWIN       the session that is there answers for another process, or life
 *   TB_PEER_DUPLICATE  the session that is there stays; with `ask`, until it was asked */
TB_MUST_USE enum tb_status tb_link_session_judge(const struct tb_link_session *s,
                                                 const struct tb_frame_hello *hello, bool dialled_by_us,
                                                 struct tb_link_session_verdict *verdict_out);

#endif
