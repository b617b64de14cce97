/* pipe.h - the reader's end of a hop's connection: READs as a stream of bytes over a chan (TCP,
 * TLS, unix). Inside intra/ only.
 *
 * `tcp` is this and nothing else; `shm` has one for what cannot be copied from memory, for
 * attaching buffers and as its lease. Bytes go from the socket straight into the READ's
 * memory. The door is believed nothing: more bytes than asked for, an unknown answer or one
 * out of turn is TB_PEER_GARBLED. */
#ifndef TB_INTRA_PIPE_H
#define TB_INTRA_PIPE_H

#include "intra/fabric/fabric_inside.h"
#include "intra/fabric/fabric_queue.h"
#include "intra/hop/heartbeat.h"
#include "intra/hop/hop_wire.h"

#define TB_STREAM_ATTACHES_MAX 64u /* unanswered */

struct tb_pipe_ops {
    void (*on_welcome)(void *user, const struct tb_hop_answer *answer);
    /* fd >= 0 becomes the callee's. */
    void (*on_buffer)(void *user, const struct tb_hop_answer *answer, int fd);
    /* RAIL and VERBS, after tb_pipe_ask_verbs; NULL: it never asks. */
    void (*on_verbs)(void *user, const struct tb_hop_answer *answer);
    /* TRAY and FILLED, after tb_pipe_ask_tray; NULL: it never asks. False: nonsense. */
    bool (*on_tray)(void *user, const struct tb_hop_answer *answer);
    /* LENT and PUT, after tb_pipe_lend; NULL: it never lends. False: nonsense. */
    bool (*on_lent)(void *user, const struct tb_hop_answer *answer);
    /* After close: the memory of the stream is the callee's again. The hop's
     * on_closed comes right after. */
    void (*on_finished)(void *user);
};

struct tb_pipe {
    struct tb_fabric *fabric;
    const struct tb_upstream_events *events; /* the hop's */
    void *events_user;
    const struct tb_pipe_ops *ops;
    void *user;
    struct tb_chan *chan;
    bool paced; /* by the fabric's NIC */
    bool lost;  /* told */
    bool closing;
    struct tb_fabric_job gone;     /* tells on_closed when there is no chan any more */
    struct tb_heartbeat heartbeat; /* greeted: by WELCOME */

    struct tb_read *first, *last; /* READs that are not complete, in order */
    struct tb_read *asking;       /* the first that is not asked for to its end */
    uint32_t reads_owed;          /* READ requests not answered to their end */
    uint64_t bytes_owed;
    uint32_t data_left; /* of the DATA that has begun */
    uint32_t confirms_owed;
    uint32_t attaches_owed;
    bool verbs_owed, tray_asked, lent;
    int lend_fd;          /* borrowed, until it is sent: behind LEND, before what follows that */
    uint32_t lend_behind; /* LEND's end in `out` */

    uint8_t head[TB_HOP_ANSWER_BYTES];
    uint32_t head_used;
    bool fd_due; /* `buffer` waits for its descriptor */
    struct tb_hop_answer buffer;

    /* all that may be unanswered, see stream.c */
    uint8_t out[(TB_HOP_READS_MAX + TB_STREAM_ATTACHES_MAX + TB_HOP_FILLS_MAX + TB_HOP_PUTS_MAX + 64) *
                TB_HOP_REQUEST_BYTES];
    uint32_t out_at, out_used;
    struct tb_pace_waiter pace;
};

struct tb_pipe_options {
    const struct tb_upstream_options *upstream;
    const struct tb_pipe_ops *ops;
    void *user;
    struct tb_address to;
    struct tb_tls *tls; /* NULL: clear */
    bool paced;
};
/* Where a tcp door listens. TB_BAD_ARGUMENT: nowhere. In transport_tcp.c. */
enum tb_status tb_pipe_tcp_address(const char *text, struct tb_address *address_out);
/* Dials and greets. Errors at once mean no event. */
enum tb_status tb_pipe_open(struct tb_pipe *s, const struct tb_pipe_options *options);
void tb_pipe_read(struct tb_pipe *s, struct tb_read *read);
void tb_pipe_confirm(struct tb_pipe *s);
/* False: too many are unanswered. */
bool tb_pipe_attach(struct tb_pipe *s, uint32_t buffer);
void tb_pipe_ask_verbs(struct tb_pipe *s);                /* not while it is unanswered */
void tb_pipe_ask_tray(struct tb_pipe *s, uint64_t bytes); /* once */
/* As TB_HOP_REQUEST_FILL has it; at most TB_HOP_FILLS_MAX are unanswered. */
struct tb_pipe_fill {
    uint32_t from, bytes; /* from: the shard of a FILL, the buffer of a PUT */
    uint64_t offset, at;
};
void tb_pipe_ask_fill(struct tb_pipe *s, const struct tb_pipe_fill *fill);
/* Once. The descriptor stays open until LENT has come, or the pipe is closed. */
void tb_pipe_lend(struct tb_pipe *s, int fd, uint64_t bytes);
/* As TB_HOP_REQUEST_PUT has it; at most TB_HOP_PUTS_MAX are unanswered. */
void tb_pipe_ask_put(struct tb_pipe *s, const struct tb_pipe_fill *fill);
tb_time_ns tb_pipe_poll(struct tb_pipe *s, tb_time_ns now);
/* `reaches` and `copy` of a transport whose hops have no memory within reach: never asked to
 * copy. */
bool tb_pipe_reaches(const struct tb_upstream *upstream, const struct tb_read *read);
enum tb_status tb_pipe_copy(struct tb_upstream *upstream, const struct tb_read *read);
/* ops->on_finished and events->on_closed follow, outside of this call. */
void tb_pipe_close(struct tb_pipe *s);
/* Ends it for a reason of the user's; on_lost(why) is called from inside. */
void tb_pipe_lose(struct tb_pipe *s, enum tb_status why);

#endif
