/* link_control.h - the session of a link: its control stream, and what is said on it. */
#ifndef TB_WAN_LINK_CONTROL_H
#define TB_WAN_LINK_CONTROL_H

#include "base/log.h"
#include "base/net/wire.h"
#include "wan/link/links.h"
#include "wan/link/links_stats.h"
#include "wan/link/session/link_session.h"

struct tb_link_conn;
struct tb_link;
struct tb_writer;

/* A second gateway with the peer's identity. */
struct tb_link_twin {
    tb_time_ns asked_at; /* the session was asked because a newcomer of another life came; 0: never */
    tb_time_ns vouched_at;
    tb_time_ns seen_at;         /* a twin was refused; 0: none in this session */
    struct tb_id life, process; /* its */
};

struct tb_link_heartbeat {
    tb_time_ns sent_at;
    tb_time_ns waiting_since; /* the oldest heartbeat without an answer; 0: none */
    tb_time_ns answered;      /* when that one was sent that was answered last */
    tb_time_ns heard_floor;   /* what came before counts as heard then: our own loop slept */
};

#define TB_LINK_SEEN_MAX 4u

struct tb_link_session_part {
    struct tb_address seen[TB_LINK_SEEN_MAX]; /* from which the peer showed its certificate; bytes 0: none */
    uint32_t seen_next;
    struct tb_link_session life;
    struct tb_link_conn *control; /* the control stream; NULL: down */
    /* The peer replaced the session by an attempt of ours that we have not heard of yet; 0: no. */
    tb_time_ns limbo_since;
    uint64_t seq; /* grows with each session, 1.. */
    struct tb_id id;
    uint32_t protocol;
    uint32_t conn_count;
    struct tb_link_heartbeat beat;
    struct tb_link_twin twin;
    struct {
        uint64_t wall_ms; /* of the peer, as it sent its HELLO */
        tb_time_ns at;    /* here, when HELLO had come; 0: the peer does not say its clock */
    } clock;
};

void tb_link_control_init(struct tb_link *l, uint32_t lane);
/* Its path leads elsewhere, or nowhere: without a session it is dialled now, or not at all. */
void tb_link_control_may_dial(struct tb_link *l);
/* The control stream; NULL: the link is down. */
struct tb_link_conn *tb_link_control(const struct tb_link *l);
uint32_t tb_link_protocol(const struct tb_link *l);
/* Grows with each session, 1.. */
uint64_t tb_link_session_seq(const struct tb_link *l);
struct tb_id tb_link_session_id(const struct tb_link *l);
enum tb_link_session_state tb_link_life_state(const struct tb_link *l);
/* That failed in a row. */
uint32_t tb_link_attempts(const struct tb_link *l);
/* A heartbeat unanswered for so long is silence. */
tb_time_ns tb_link_silent_after(const struct tb_link *l);
/* When the heartbeat was sent that was answered last. */
tb_time_ns tb_link_answered_at(const struct tb_link *l);
/* When the last byte of the session came; 0: the link is down. */
tb_time_ns tb_link_heard_at(const struct tb_link *l);
/* Fills in the fields of the session. */
void tb_link_session_show(const struct tb_link *l, struct tb_links_stats *stats_out);
bool tb_link_is_up(const struct tb_link *l);
/* NULL: not up, or ending. */
struct tb_writer *tb_link_begin(struct tb_link *l, enum tb_frame_type type, size_t payload_max);
void tb_link_end(struct tb_link *l);
void tb_link_log(const struct tb_link *l, enum tb_log_level level, const char *event, enum tb_status why,
                 const char *address);
void tb_link_step(struct tb_link *l, enum tb_link_session_event_kind kind,
                  const struct tb_link_session_event *more, struct tb_link_session_todo *todo_out);

/* Sends a control message to the peer; nothing happens when the session is not up. */
#define LINK_SEND(link, type, message, payload_max, ...)                                                     \
    do {                                                                                                     \
        struct tb_writer *w_ = tb_link_begin(link, type, payload_max);                                       \
        if (w_ == NULL) break;                                                                               \
        message##_encode(&(const struct message){__VA_ARGS__}, w_);                                          \
        tb_link_end(link);                                                                                   \
    } while (0)

#define LINK_SMALL 1024u /* payload_max of messages without a page */

#endif
