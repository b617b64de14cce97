/* request.h - questions to the gateway by id, and notices: queued, sent, answered, given up. Under
 * the lock unless a function says otherwise. */
#ifndef TB_INTRA_CLIENT_REQUEST_H
#define TB_INTRA_CLIENT_REQUEST_H

#include "base/assert.h"
#include "base/net/wire.h"
#include "intra/client/session/session_lock.h"
#include "intra/session_msg.h"

struct tb_session;

struct tb_request;
/* When the answer comes, on the session thread and under the lock; a detached request is freed
 * after it. Here a call keeps what the next announcement has to say: its own thread may wake after
 * the next cut. */
typedef void (*tb_request_fn)(struct tb_session *s, struct tb_request *request, void *user);
struct tb_request {
    struct tb_request *next;
    uint64_t id;     /* 0: a notice, gone once it is sent */
    uint16_t type;   /* enum tb_msg_type */
    uint16_t expect; /* the answer's type; TB_MSG_REPLY is always understood */
    bool sent;       /* on the wire that is up now */
    bool done;
    bool detached;         /* nobody waits: fn, then gone */
    bool announcement;     /* forgotten when the wire breaks: it is made anew */
    bool farewell;         /* after a break it goes before what is announced */
    enum tb_status status; /* of the answer */
    char why[TB_TEXT_BYTES_MAX + 1];
    uint8_t *answer; /* the payload of an answer that is not a REPLY; decodes */
    size_t answer_bytes;
    tb_request_fn fn;
    void *user;       /* what fn needs to know */
    struct tb_id uid; /* likewise */
    uint32_t number;
    struct tb_writer payload; /* over the bytes behind this struct */
};

/* payload_max counts spans; the rest of a message is small. NULL: no memory. */
struct tb_request *tb_request_new(struct tb_session *s, uint16_t type, uint16_t expect, size_t spans_bytes);
void tb_request_free(struct tb_request *request);
/* Under the lock: queues it and wakes the session thread, which owns it if it is a notice or
 * detached. */
void tb_request_post(struct tb_session *s, struct tb_request *request);
/* Under the lock: posts and waits for the answer, or TB_TIMEOUT, TB_GATEWAY_AWAY, TB_CANCELLED. The
 * request stays the caller's. */
enum tb_status tb_request_wait(struct tb_session *s, struct tb_request *request, const struct tb_call *call);
/* The same of one that was posted. */
enum tb_status tb_request_await(struct tb_session *s, struct tb_request *request, const struct tb_call *call);
/* The same with the lock taken, keeping tb_last_error on failure; request NULL is TB_SITE_NOMEM. */
int tb_request_call(struct tb_session *s, struct tb_request *request, const struct tb_call *call,
                    const char *what);
/* Decodes its answer, which is no REPLY and was checked when it came. Spans stand in the
 * request. */
#define TB_ANSWER_DECODE(request, message, message_out)                                                      \
    do {                                                                                                     \
        struct tb_reader answer_reader;                                                                      \
        tb_reader_init(&answer_reader, (request)->answer, (request)->answer_bytes);                          \
        const enum tb_status answer_status = message##_decode(&answer_reader, message_out);                  \
        TB_ASSERT(answer_status == TB_OK);                                                                   \
    } while (0)
/* Under the lock: something of ours has ended, and the gateway has to hear of it however long it is
 * away: to one that kept the session it would be there for as long as the session is. Takes the
 * request; NULL: there was no memory for it. */
void tb_request_farewell(struct tb_session *s, struct tb_request *request);
/* Under the lock: of what nobody waits for, those of that type, uid and subscription go; 0: of all
 * subscriptions. The answer to one that was sent finds nothing and is dropped. */
void tb_requests_withdraw(struct tb_session *s, uint16_t type, const struct tb_id *uid,
                          uint32_t subscription);
/* Under the lock, by the session thread. */
enum tb_status tb_request_answer(struct tb_session *s, struct tb_wire_frame *frame);
/* Asserts what holds of the queue while the lock is free. Under the lock. */
void tb_requests_check(const struct tb_session *s);
void tb_requests_unsent(struct tb_session *s); /* the wire broke */
void tb_requests_drop(struct tb_session *s);   /* the session ends: all that nobody waits for */

#endif
