#include "intra/transport/pipe.h"

#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/net/chan_bytes.h"
#include "base/net/chan_facts.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/fabric/fabric_queue.h"
#include "intra/fabric/pace_gate.h"

#define TURN_BYTES     ((size_t)1 << 20)
#define CONFIRMS_MAX   32u /* a hop has so many chunks in flight */
#define PING_CONFIRM   1u
#define PING_KEEPALIVE 2u

/* Unsent requests are unanswered ones, and those are bounded: HELLO, READs, ATTACHes, confirms,
 * FILLs, PUTs, one keepalive, one VERBS, one TRAY, one LEND. */
_Static_assert(1 + CONFIRMS_MAX + 1 + 1 + 1 + 1 <= 64,
               "out has room for every request that may be unanswered");

struct tb_source_run tb_transport_read_run(const struct tb_read *read, uint32_t done)
{
    TB_ASSERT(done < read->bytes);
    const uint32_t left = read->bytes - done;
    if (read->source != NULL)
        return tb_source_run_at(read->source, read->manifest, read->offset + done, left);
    return (struct tb_source_run){.buffer = read->buffer, .offset = read->offset + done, .bytes = left};
}

void tb_pipe_lose(struct tb_pipe *s, enum tb_status why)
{
    if (s->lost || s->closing) return;
    s->lost = true;
    if (s->chan != NULL) {
        tb_chan_want_read(s->chan, false);
        tb_chan_want_write(s->chan, false);
    }
    s->events->on_lost(s->events_user, why);
}

/* ---- requests ---- */

/* One step: bytes, or the descriptor once LEND is out. */
static enum tb_status flush_some(struct tb_pipe *s)
{
    size_t taken = 0;
    const uint32_t end = s->lend_fd >= 0 ? s->lend_behind : s->out_used;
    if (s->out_at == end) {
        const enum tb_status sent = tb_chan_send_fds(s->chan, &s->lend_fd, 1);
        if (sent == TB_OK) s->lend_fd = -1;
        return sent;
    }
    const enum tb_status status = tb_chan_write(s->chan, s->out + s->out_at, end - s->out_at, &taken);
    s->out_at += (uint32_t)taken;
    return status;
}

static void flush(struct tb_pipe *s)
{
    TB_ASSERT(s->out_at <= s->out_used && s->out_used <= sizeof s->out);
    while (s->out_at < s->out_used || s->lend_fd >= 0) {
        const enum tb_status status = flush_some(s);
        if (status == TB_OK) continue;
        if (status == TB_AGAIN) tb_chan_want_write(s->chan, true);
        return; /* a failure comes by on_closed */
    }
    s->out_at = s->out_used = 0;
    tb_chan_want_write(s->chan, false);
}

static void put(struct tb_pipe *s, const struct tb_hop_request *request)
{
    TB_ASSERT(s->out_at <= s->out_used);
    if (s->out_at > 0) {
        memmove(s->out, s->out + s->out_at, s->out_used - s->out_at);
        s->out_used -= s->out_at;
        if (s->lend_fd >= 0) s->lend_behind -= s->out_at;
        s->out_at = 0;
    }
    struct tb_writer w;
    tb_writer_init(&w, s->out + s->out_used, sizeof s->out - s->out_used);
    tb_hop_request_encode(request, &w);
    TB_ASSERT(!w.full && w.used == TB_HOP_REQUEST_BYTES);
    s->out_used += TB_HOP_REQUEST_BYTES;
    /* Written on the next turn: a batch of requests goes with one system call, and
     * nothing fails inside read. */
    if (s->chan != NULL) tb_chan_want_write(s->chan, true);
}

/* Asks for as much as the door lets us have unanswered. */
static void ask(struct tb_pipe *s)
{
    while (s->heartbeat.greeted && s->asking != NULL && s->reads_owed < TB_HOP_READS_MAX) {
        struct tb_read *read = s->asking;
        const struct tb_source_run run = tb_transport_read_run(read, read->asked);
        put(s, &(struct tb_hop_request){.type = TB_HOP_REQUEST_READ,
                                        .flags = read->words ? TB_HOP_READ_WORDS : 0,
                                        .buffer = run.buffer,
                                        .a = run.offset,
                                        .bytes = (uint32_t)run.bytes});
        read->asked += (uint32_t)run.bytes;
        TB_ASSERT(run.bytes > 0 && read->asked <= read->bytes);
        s->reads_owed++;
        s->bytes_owed += run.bytes;
        if (read->asked == read->bytes) s->asking = read->next;
    }
}

void tb_pipe_read(struct tb_pipe *s, struct tb_read *read)
{
    if (s->lost || s->closing) return; /* it is dropped with the others at on_closed */
    TB_ASSERT(read->bytes > 0);
    read->next = NULL;
    read->asked = read->got = 0;
    if (s->first == NULL)
        s->first = read;
    else
        s->last->next = read;
    s->last = read;
    if (s->asking == NULL) s->asking = read;
    ask(s);
}

void tb_pipe_confirm(struct tb_pipe *s)
{
    if (s->lost || s->closing) return;
    TB_ASSERT(s->confirms_owed < CONFIRMS_MAX);
    s->confirms_owed++;
    put(s, &(struct tb_hop_request){.type = TB_HOP_REQUEST_PING, .a = PING_CONFIRM});
}

bool tb_pipe_attach(struct tb_pipe *s, uint32_t buffer)
{
    TB_ASSERT(s->heartbeat.greeted && s->attaches_owed <= TB_STREAM_ATTACHES_MAX);
    if (s->attaches_owed == TB_STREAM_ATTACHES_MAX) return false;
    s->attaches_owed++;
    put(s, &(struct tb_hop_request){.type = TB_HOP_REQUEST_ATTACH, .buffer = buffer});
    return true;
}

void tb_pipe_ask_verbs(struct tb_pipe *s)
{
    TB_ASSERT(!s->verbs_owed && s->ops->on_verbs != NULL);
    s->verbs_owed = true;
    put(s, &(struct tb_hop_request){.type = TB_HOP_REQUEST_VERBS});
}

void tb_pipe_ask_tray(struct tb_pipe *s, uint64_t bytes)
{
    TB_ASSERT(!s->tray_asked && s->ops->on_tray != NULL);
    s->tray_asked = true;
    put(s, &(struct tb_hop_request){.type = TB_HOP_REQUEST_TRAY, .a = bytes});
}

void tb_pipe_ask_fill(struct tb_pipe *s, const struct tb_pipe_fill *fill)
{
    TB_ASSERT(s->tray_asked && fill->bytes > 0);
    if (s->lost || s->closing) return;
    put(s, &(struct tb_hop_request){.type = TB_HOP_REQUEST_FILL,
                                    .buffer = fill->from,
                                    .a = fill->offset,
                                    .b = fill->at,
                                    .bytes = fill->bytes});
}

void tb_pipe_lend(struct tb_pipe *s, int fd, uint64_t bytes)
{
    TB_ASSERT(!s->lent && s->ops->on_lent != NULL && fd >= 0);
    if (s->lost || s->closing) return;
    s->lent = true;
    put(s, &(struct tb_hop_request){.type = TB_HOP_REQUEST_LEND, .a = bytes});
    s->lend_fd = fd;
    s->lend_behind = s->out_used;
}

void tb_pipe_ask_put(struct tb_pipe *s, const struct tb_pipe_fill *fill)
{
    TB_ASSERT(s->lent && fill->bytes > 0);
    if (s->lost || s->closing) return;
    put(s, &(struct tb_hop_request){.type = TB_HOP_REQUEST_PUT,
                                    .buffer = fill->from,
                                    .a = fill->offset,
                                    .b = fill->at,
                                    .bytes = fill->bytes});
}

tb_time_ns tb_pipe_poll(struct tb_pipe *s, tb_time_ns now)
{
    tb_time_ns next = TB_TIME_NEVER;
    if (s->lost || s->closing) return next;
    if (s->pace.waiting) tb_heartbeat_heard(&s->heartbeat, now); /* it is we who do not listen */
    switch (tb_heartbeat_look(&s->heartbeat, now, &next)) {
    case TB_HEARTBEAT_ASK:
        put(s, &(struct tb_hop_request){.type = TB_HOP_REQUEST_PING, .a = PING_KEEPALIVE});
        break;
    case TB_HEARTBEAT_LOST:
        tb_pipe_lose(s, TB_STREAM_IDLE);
        break;
    case TB_HEARTBEAT_WAIT:
        break;
    }
    return next;
}

bool tb_pipe_reaches(const struct tb_upstream *upstream, const struct tb_read *read)
{
    (void)upstream, (void)read;
    return false;
}

enum tb_status tb_pipe_copy(struct tb_upstream *upstream, const struct tb_read *read)
{
    (void)upstream, (void)read;
    return TB_STREAM_IO;
}

/* ---- answers ---- */

static void sunk(struct tb_pipe *s, struct tb_read *read, uint32_t bytes)
{
    TB_ASSERT(bytes <= s->data_left && s->data_left <= s->bytes_owed);
    TB_ASSERT(bytes <= read->asked - read->got);
    s->bytes_owed -= bytes;
    s->data_left -= bytes;
    while (bytes > 0) {
        const struct tb_source_run run = tb_transport_read_run(read, read->got);
        const uint32_t step = run.bytes < bytes ? (uint32_t)run.bytes : bytes;
        read->got += step;
        bytes -= step;
        TB_ASSERT(step > 0 && s->reads_owed > 0);
        if (step == run.bytes) s->reads_owed--;
    }
    if (read->got < read->bytes) return;
    s->first = read->next;
    if (s->first == NULL) s->last = NULL;
    s->events->on_read(s->events_user, read);
}

/* Reads data into the READ it belongs to. */
static enum tb_status sink(struct tb_pipe *s, size_t *turn)
{
    struct tb_read *read = s->first;
    TB_ASSERT(read != NULL && s->data_left > 0);
    size_t want = read->bytes - read->got, got = 0;
    if (want > s->data_left) want = s->data_left;
    if (s->paced) want = tb_pace_gate_take(s->fabric, &s->fabric->in, &s->pace, want);
    if (want == 0) {
        tb_chan_want_read(s->chan, false); /* until its turn comes */
        return TB_END;
    }
    const enum tb_status status = tb_chan_read(s->chan, read->to + read->got, want, &got);
    if (s->paced) tb_pace_give_back(&s->fabric->in.pace, want - got);
    *turn += got;
    if (got > 0) sunk(s, read, (uint32_t)got);
    return status;
}

static enum tb_status end_status(uint32_t negated)
{
    switch (-(int64_t)negated) {
    case TB_PEER_TOKEN:
    case TB_PEER_IDENTITY:
    case TB_PEER_REVOKED:
    case TB_PEER_PROTOCOL:
    case TB_PEER_GARBLED:
        return (enum tb_status) - (int32_t)negated;
    default:
        return TB_STREAM_CLOSED;
    }
}

static bool pong(struct tb_pipe *s, uint64_t kind)
{
    if (kind == PING_CONFIRM && s->confirms_owed > 0) {
        s->confirms_owed--;
        s->events->on_confirmed(s->events_user);
        return true;
    }
    if (kind != PING_KEEPALIVE || !s->heartbeat.asked) return false;
    s->heartbeat.asked = false;
    return true;
}

static bool buffer(struct tb_pipe *s, const struct tb_hop_answer *answer)
{
    const uint32_t kind_max = s->ops->on_verbs != NULL ? TB_HOP_BUFFER_VERBS : TB_HOP_BUFFER_ADDRESS;
    if (s->attaches_owed == 0 || answer->kind > kind_max) return false;
    if (answer->kind == TB_HOP_BUFFER_MEMFD) {
        s->fd_due = true;
        s->buffer = *answer;
        return true;
    }
    s->attaches_owed--;
    s->ops->on_buffer(s->user, answer, -1);
    return true;
}

static bool welcome(struct tb_pipe *s, const struct tb_hop_answer *answer)
{
    if (s->heartbeat.greeted) return false;
    s->heartbeat.greeted = true;
    if (answer->buffer != 0 && s->events->on_shelf != NULL)
        s->events->on_shelf(s->events_user, answer->buffer - 1, answer->b);
    if (answer->bytes != 0 && s->events->on_depth != NULL) s->events->on_depth(s->events_user, answer->bytes);
    s->ops->on_welcome(s->user, answer);
    return true;
}

static bool verbs(struct tb_pipe *s, const struct tb_hop_answer *answer)
{
    if (!s->verbs_owed) return false;
    s->verbs_owed = answer->type != TB_HOP_ANSWER_VERBS;
    s->ops->on_verbs(s->user, answer);
    return true;
}

/* False: the door broke the protocol. */
static bool handle(struct tb_pipe *s, const struct tb_hop_answer *answer)
{
    if (answer->type == TB_HOP_ANSWER_END) {
        tb_pipe_lose(s, end_status(answer->bytes));
        return true;
    }
    if (answer->type == TB_HOP_ANSWER_WELCOME) return welcome(s, answer);
    if (!s->heartbeat.greeted) return false;
    if (answer->type == TB_HOP_ANSWER_PONG) return pong(s, answer->a);
    if (answer->type == TB_HOP_ANSWER_BUFFER) return buffer(s, answer);
    if (answer->type == TB_HOP_ANSWER_TRAY || answer->type == TB_HOP_ANSWER_FILLED)
        return s->tray_asked && s->ops->on_tray(s->user, answer);
    if (answer->type == TB_HOP_ANSWER_LENT || answer->type == TB_HOP_ANSWER_PUT)
        /* Before the descriptor has gone there is nothing to answer, and its number may be another
         * file's by then. */
        return s->lent && s->lend_fd < 0 && s->ops->on_lent(s->user, answer);
    if (answer->type == TB_HOP_ANSWER_RAIL || answer->type == TB_HOP_ANSWER_VERBS) return verbs(s, answer);
    if (answer->type != TB_HOP_ANSWER_DATA) return false;
    if (answer->bytes == 0 || answer->bytes > TB_HOP_DATA_BYTES_MAX || answer->bytes > s->bytes_owed)
        return false;
    s->data_left = answer->bytes;
    return true;
}

static enum tb_status take_head(struct tb_pipe *s)
{
    size_t got = 0;
    const enum tb_status status =
        tb_chan_read(s->chan, s->head + s->head_used, sizeof s->head - s->head_used, &got);
    s->head_used += (uint32_t)got;
    if (status != TB_OK || s->head_used < sizeof s->head) return status;

    struct tb_hop_answer answer;
    struct tb_reader r;
    tb_reader_init(&r, s->head, sizeof s->head);
    s->head_used = 0;
    const enum tb_status decoded = tb_hop_answer_decode(&r, &answer);
    if (decoded != TB_OK || !handle(s, &answer)) tb_pipe_lose(s, TB_PEER_GARBLED);
    return TB_OK;
}

static enum tb_status take_fd(struct tb_pipe *s)
{
    int fd = -1;
    uint32_t count = 0;
    const enum tb_status status = tb_chan_recv_fds(s->chan, &fd, 1, &count);
    if (status != TB_OK) return status;
    TB_ASSERT(s->attaches_owed > 0);
    s->fd_due = false;
    s->attaches_owed--;
    s->ops->on_buffer(s->user, &s->buffer, fd);
    return TB_OK;
}

static enum tb_status take_some(struct tb_pipe *s, size_t *turn)
{
    if (s->data_left > 0) return sink(s, turn);
    if (s->fd_due) return take_fd(s);
    return take_head(s);
}

static void on_readable(struct tb_chan *c, void *user)
{
    (void)c;
    struct tb_pipe *s = user;
    size_t turn = 0;
    enum tb_status status = TB_OK;
    while (status == TB_OK && turn < TURN_BYTES && !s->lost && !s->closing) {
        status = take_some(s, &turn);
        if (status == TB_OK) tb_heartbeat_heard(&s->heartbeat, tb_clock_now());
    }
    if (!s->lost && !s->closing) ask(s);
}

static void on_writable(struct tb_chan *c, void *user)
{
    (void)c;
    flush(user);
}

static void on_paced(struct tb_pace_waiter *waiter)
{
    struct tb_pipe *s = (struct tb_pipe *)((char *)waiter - offsetof(struct tb_pipe, pace));
    tb_heartbeat_heard(&s->heartbeat, tb_clock_now());
    if (!s->lost && !s->closing && s->chan != NULL) tb_chan_want_read(s->chan, true);
}

/* ---- beginning and end ---- */

static void on_open(struct tb_chan *c, void *user, const struct tb_chan_peer *peer)
{
    (void)c, (void)peer;
    struct tb_pipe *s = user;
    tb_heartbeat_heard(&s->heartbeat, tb_clock_now());
}

static void finish(struct tb_pipe *s)
{
    TB_ASSERT(s->closing && s->chan == NULL);
    const struct tb_upstream_events *events = s->events;
    void *events_user = s->events_user;
    tb_pace_gate_leave(&s->fabric->in, &s->pace);
    s->ops->on_finished(s->user); /* frees us */
    events->on_closed(events_user);
}

static void on_closed(struct tb_chan *c, void *user, enum tb_status why)
{
    (void)c;
    struct tb_pipe *s = user;
    s->chan = NULL;
    if (s->closing)
        finish(s);
    else
        tb_pipe_lose(s, why);
}

static void run_gone(struct tb_fabric_job *job)
{
    finish((struct tb_pipe *)((char *)job - offsetof(struct tb_pipe, gone)));
}

void tb_pipe_close(struct tb_pipe *s)
{
    TB_ASSERT(!s->closing);
    s->closing = true;
    s->lend_fd = -1;
    if (s->chan != NULL) {
        tb_chan_close(s->chan, TB_CANCELLED);
        return;
    }
    s->gone.run = run_gone;
    tb_fabric_post(s->fabric, &s->gone);
}

static const struct tb_chan_ops chan_ops = {
    .on_open = on_open, .on_readable = on_readable, .on_writable = on_writable, .on_closed = on_closed};

enum tb_status tb_pipe_open(struct tb_pipe *s, const struct tb_pipe_options *options)
{
    TB_ASSERT(options->ops->on_welcome != NULL && options->ops->on_buffer != NULL);
    const struct tb_upstream_options *up = options->upstream;
    const struct tb_hop_options *hop = up->hop;
    memset(s, 0, sizeof *s);
    s->fabric = up->fabric;
    s->events = up->events;
    s->events_user = up->user;
    s->ops = options->ops;
    s->user = options->user;
    s->paced = options->paced;
    s->lend_fd = -1;
    s->pace.ready = on_paced;
    tb_heartbeat_init(&s->heartbeat, up->idle_ms, up->open_ms, tb_clock_now());
    const struct tb_chan_options chan = {
        .loop = &up->fabric->loop,
        .tls = options->tls,
        .expect = {.fingerprint = hop->from.fingerprint, .bulk = options->tls != NULL, .no_kernel = true},
        .ops = &chan_ops,
        .user = s,
        .open_ms = up->open_ms};
    const enum tb_status status = tb_chan_dial(&chan, &options->to, &s->chan);
    if (status != TB_OK) return status;
    put(s, &(struct tb_hop_request){.type = TB_HOP_REQUEST_HELLO,
                                    .buffer = TB_HOP_WIRE_VERSION,
                                    .a = TB_HOP_WIRE_MAGIC,
                                    .b = hop->export_id,
                                    .token = hop->token});
    return TB_OK;
}
