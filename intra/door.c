/* door.c - the owner's end of hops: who may come in, and READs served straight from the export's memory.
 *
 * A peer is believed nothing: a request has one size, READs are bounded in number and size and checked
 * against the export before a byte is touched, a peer that greets late is dropped. Each refusal leaves one
 * line.
 *
 * Answers are written in turns of at most 1 MiB, so one reader does not hold up the others. Small runs and
 * bitmap words are gathered in `out`, large runs go from the export's memory straight to the socket. An end
 * (revocation, refusal) comes between two DATA answers; a peer that does not take it within a second is cut
 * off. A peer counts as a reader until its connection is gone.
 *
 * One that has a tray of a GPU's is not cut off: its connection's end is its word that the tray is closed. Where it stands still, it
 * lingers: nothing is sent or read for it any more, the export's memory is its owner's, and the tray waits for the word. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bitmap.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "intra/door_tray.h"
#include "intra/fabric_inside.h"
#include "intra/hop_wire.h"
#include "intra/verbs_part.h"

#define PEERS_MAX       1024u
#define STRANGERS_MAX   128u /* that have not shown a token yet */
#define GREET_WITHIN    TB_SECONDS(5)
#define END_WITHIN      TB_SECONDS(1)
#define OUT_BYTES       ((uint32_t)64 << 10)
#define SMALL_RUN_BYTES ((uint32_t)16 << 10) /* below this a copy is cheaper than a system call */
#define TURN_BYTES      ((size_t)1 << 20)
#define ATTACHES_MAX    128u
#define PINGS_MAX       128u

_Static_assert(TB_HOP_WORDS_BYTES_MAX <= OUT_BYTES, "words of one READ fit into out at once");

enum peer_state { GREETING, SERVING, ENDING };

struct door_run {
    const uint8_t *at;
    uint32_t bytes;
    bool words;
};

struct tb_door_peer {
    LIST_ENTRY(tb_door_peer) link;
    struct tb_door *door;
    struct tb_chan *chan;
    bool tcp;
    enum peer_state state;
    bool gone;           /* tb_chan_close was called */
    bool chan_gone;      /* and has told: only its guest or its tray is left */
    bool lingers;        /* it did not end in time, and has no export any more */
    tb_time_ns deadline; /* GREETING, ENDING */
    struct tb_export *export;

    uint8_t in[TB_HOP_REQUEST_BYTES];
    uint32_t in_used;

    struct door_run runs[TB_HOP_READS_MAX]; /* a ring: what is to be sent, in order */
    uint32_t run_first, run_count;
    uint32_t run_done;  /* bytes of the first run that are sent or in out */
    uint64_t run_bytes; /* still to send, all runs */
    uint32_t data_left; /* of the DATA answer that was begun */
    uint64_t pings[PINGS_MAX];
    uint32_t ping_count;
    uint32_t attaches[ATTACHES_MAX];
    uint32_t attach_first, attach_count;
    int memfd_due;                /* to be sent as soon as out is empty; -1: none */
    struct tb_verbs_guest *guest; /* reads by RDMA; NULL: never did, or its queue pair is gone */
    bool verbs_asked, verbs_due;
    struct tb_door_tray *tray; /* NULL: never asked, or none could be had, or it is gone */
    bool tray_asked, tray_refused;
    enum tb_status end_why;
    bool end_sent;

    _Alignas(8) uint8_t out[OUT_BYTES];
    uint32_t out_at, out_used;
    size_t offered; /* a write of so many bytes was not taken whole: it is repeated before anything else */
    struct tb_pace_waiter pace;
};

struct tb_door {
    struct tb_fabric *fabric;
    struct tb_listener *tcp;
    struct tb_listener *local;
    LIST_HEAD(, tb_door_peer) peers;
    uint32_t peer_count;
    uint32_t stranger_count;
    bool closed;
    uint8_t nonce[16]; /* what a reader compares to know that it reads this process */
};

/* ---- ends ---- */

static void log_refused(const struct tb_door_peer *p, enum tb_status why, const char *what)
{
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_WARN, "door.refused");
    tb_log_str(&l, "peer", tb_chan_peer(p->chan)->address);
    tb_log_str(&l, "door", p->tcp ? "tcp" : "shm");
    if (p->export != NULL) tb_log_u64(&l, "export", p->export->id);
    tb_log_str(&l, "status", tb_status_name(why));
    tb_log_str(&l, "reason", what);
    tb_log_end(&l);
}

static void cut_off(struct tb_door_peer *p, enum tb_status why)
{
    if (p->gone) return;
    p->gone = true;
    tb_chan_close(p->chan, why);
}

/* Says why and hangs up. What was asked for and not begun is not answered any more. */
static void end(struct tb_door_peer *p, enum tb_status why)
{
    if (p->state == ENDING || p->chan_gone) return;
    if (p->guest != NULL) tb_verbs_guest_end(p->guest);
    if (p->state == GREETING) p->door->stranger_count--;
    p->state = ENDING;
    p->end_why = why;
    p->deadline = tb_clock_now() + END_WITHIN;
    tb_fabric_wake_at(p->door->fabric, p->deadline);
    tb_chan_want_write(p->chan, true);
}

static void refuse(struct tb_door_peer *p, enum tb_status why, const char *what)
{
    log_refused(p, why, what);
    end(p, why);
}

/* Nothing of the peer's touches the export any more. */
static void leave_export(struct tb_door_peer *p)
{
    struct tb_fabric *f = p->door->fabric;
    if (p->export == NULL) return;
    pthread_mutex_lock(&f->lock);
    p->export->readers--;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    p->export = NULL;
}

static void leave(struct tb_door_peer *p)
{
    leave_export(p);
    LIST_REMOVE(p, link);
    tb_free(p);
}

static void on_closed(struct tb_chan *c, void *user, enum tb_status why)
{
    (void)why;
    struct tb_door_peer *p = user;
    if (p->state == GREETING) p->door->stranger_count--;
    p->door->peer_count--;
    tb_pace_gate_leave(&p->door->fabric->out, &p->pace);
    p->gone = p->chan_gone = true;
    if (p->guest != NULL) {
        tb_verbs_guest_end(p->guest); /* on_guest_gone goes on */
    } else if (p->tray != NULL) {
        if (!tb_door_tray_busy(p->tray)) leave_export(p);
        tb_door_tray_close(p->tray, tb_chan_hung_up(c)); /* on_tray_gone goes on */
    } else {
        leave(p);
    }
}

/* ---- readers by RDMA ---- */

static void on_attachable(void *user)
{
    struct tb_door_peer *p = user;
    if (!p->gone) tb_chan_want_write(p->chan, true);
}

/* It disconnected, or asked for what its key does not open: what it still wants goes over the connection. */
static void on_guest_broken(void *user)
{
    tb_verbs_guest_end(((struct tb_door_peer *)user)->guest);
}

static void on_guest_gone(void *user)
{
    struct tb_door_peer *p = user;
    p->guest = NULL;
    if (p->chan_gone)
        leave(p);
    else
        on_attachable(p);
}

static const struct tb_verbs_guest_events guest_events = {
    .on_attachable = on_attachable, .on_broken = on_guest_broken, .on_gone = on_guest_gone};

/* ---- readers with a tray ---- */

static void on_tray_turn(void *user)
{
    struct tb_door_peer *p = user;
    if ((p->gone || p->lingers) && !tb_door_tray_busy(p->tray)) leave_export(p);
    if (!p->gone && !p->lingers) tb_chan_want_write(p->chan, true);
}

static void on_tray_gone(void *user)
{
    struct tb_door_peer *p = user;
    p->tray = NULL;
    leave(p); /* it closes behind the connection's end alone */
}

static const struct tb_door_tray_events tray_events = {.on_turn = on_tray_turn, .on_gone = on_tray_gone};

/* It did not take its END. What it was being sent stays where it is. */
static void linger(struct tb_door_peer *p)
{
    tb_log(TB_LOG_WARN, "door.reader_stands_still", "peer=%s export=%llu action=memory_is_the_owners",
           tb_chan_peer(p->chan)->address, (unsigned long long)(p->export != NULL ? p->export->id : 0));
    p->lingers = true;
    p->deadline = TB_TIME_NEVER;
    tb_chan_want_write(p->chan, false);
    tb_chan_end(p->chan); /* what it finds when it goes on */
    if (!tb_door_tray_busy(p->tray)) leave_export(p);
}

/* ---- what goes out ---- */

static void put_answer(struct tb_door_peer *p, const struct tb_hop_answer *answer)
{
    struct tb_writer w;
    tb_writer_init(&w, p->out + p->out_used, OUT_BYTES - p->out_used);
    tb_hop_answer_encode(answer, &w);
    TB_ASSERT(!w.full && w.used == TB_HOP_ANSWER_BYTES);
    p->out_used += TB_HOP_ANSWER_BYTES;
}

static void describe_local(struct tb_door_peer *p, const struct tb_export_buffer *b,
                           struct tb_hop_answer *answer)
{
    answer->kind = TB_HOP_BUFFER_ADDRESS;
    answer->b = (uint64_t)(uintptr_t)b->bytes;
    if (b->memfd >= 0) {
        answer->kind = TB_HOP_BUFFER_MEMFD;
        answer->b = b->memfd_offset;
        p->memfd_due = b->memfd;
    }
}

/* What no NIC reaches, or not any more, is read over the connection. TB_AGAIN: it is being registered. */
static enum tb_status describe_remote(struct tb_door_peer *p, uint32_t index, struct tb_hop_answer *answer)
{
    struct tb_verbs_window window = {0};
    const enum tb_status status =
        p->guest != NULL ? tb_verbs_guest_window(p->guest, index, &window) : TB_BAD_STATE;
    answer->kind = status == TB_OK ? TB_HOP_BUFFER_VERBS : TB_HOP_BUFFER_STREAM;
    answer->b = window.address;
    answer->bytes = window.key;
    return status;
}

/* False: the buffer is not known yet. */
static bool put_buffer(struct tb_door_peer *p)
{
    const uint32_t index = p->attaches[p->attach_first];
    const struct tb_export_buffer *b = &p->export->buffers[index];
    struct tb_hop_answer answer = {.type = TB_HOP_ANSWER_BUFFER, .buffer = index, .a = b->count};
    if (!p->tcp)
        describe_local(p, b, &answer);
    else if (describe_remote(p, index, &answer) == TB_AGAIN)
        return false;
    p->attach_first = (p->attach_first + 1) % ATTACHES_MAX;
    p->attach_count--;
    put_answer(p, &answer);
    return true;
}

static void put_rails(struct tb_door_peer *p)
{
    struct tb_rail rails[TB_RAILS_MAX] = {0};
    struct tb_hop_answer last = {.type = TB_HOP_ANSWER_VERBS};
    uint16_t port = 0;
    p->verbs_due = false;
    if (p->guest != NULL) {
        last.kind = (uint16_t)tb_verbs_rails(p->door->fabric->verbs, p->export, rails, &port);
        last.id = *tb_verbs_guest_secret(p->guest);
    }
    for (uint32_t i = 0; i < last.kind; i++) {
        struct tb_hop_answer answer = {
            .type = TB_HOP_ANSWER_RAIL,
            .kind = (uint16_t)((rails[i].far ? TB_HOP_RAIL_FAR : 0) | (rails[i].down ? TB_HOP_RAIL_DOWN : 0)),
            .buffer = rails[i].load,
            .bytes = port,
            .a = rails[i].bytes_per_s};
        memcpy(answer.id.bytes, rails[i].address.bytes, sizeof answer.id.bytes);
        put_answer(p, &answer);
    }
    put_answer(p, &last);
}

static bool put_tray(struct tb_door_peer *p)
{
    struct tb_hop_answer answer = {.type = TB_HOP_ANSWER_TRAY};
    const bool refused = p->tray_refused;
    if (!refused && (p->tray == NULL || !tb_door_tray_answer(p->tray, &answer))) return false;
    p->tray_refused = false;
    put_answer(p, &answer);
    return true;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* How much the next DATA carries: never a part of a bitmap's words. */
static uint32_t next_data_bytes(const struct tb_door_peer *p)
{
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < p->run_count && bytes < TB_HOP_DATA_BYTES_MAX; i++) {
        const struct door_run *run = &p->runs[(p->run_first + i) % TB_HOP_READS_MAX];
        const uint32_t left = run->bytes - (i == 0 ? p->run_done : 0);
        const uint32_t room = TB_HOP_DATA_BYTES_MAX - bytes;
        if (run->words && left > room) break;
        bytes += min_u32(left, room);
    }
    return bytes;
}

/* Begins the next answer. False: there is nothing to say. Once it ends, pings and attaches that wait get none: a PONG
 * would say that the memory may be read. */
static bool begin_answer(struct tb_door_peer *p)
{
    if (p->state == ENDING) {
        if (p->end_sent) return false;
        put_answer(p, &(struct tb_hop_answer){.type = TB_HOP_ANSWER_END, .bytes = (uint32_t)-p->end_why});
        p->end_sent = true;
        return true;
    }
    if (p->ping_count > 0) {
        put_answer(p, &(struct tb_hop_answer){.type = TB_HOP_ANSWER_PONG, .a = p->pings[0]});
        memmove(p->pings, p->pings + 1, --p->ping_count * sizeof p->pings[0]);
        return true;
    }
    if (p->verbs_due) {
        put_rails(p);
        return true;
    }
    if (p->attach_count > 0 && put_buffer(p)) return true;
    if (put_tray(p)) return true;
    if (p->run_bytes == 0) return false;
    p->data_left = next_data_bytes(p);
    put_answer(p, &(struct tb_hop_answer){.type = TB_HOP_ANSWER_DATA, .bytes = p->data_left});
    return true;
}

static void run_advance(struct tb_door_peer *p, uint32_t bytes)
{
    p->run_done += bytes;
    p->run_bytes -= bytes;
    p->data_left -= bytes;
    if (p->run_done < p->runs[p->run_first].bytes) return;
    p->run_first = (p->run_first + 1) % TB_HOP_READS_MAX;
    p->run_count--;
    p->run_done = 0;
}

/* Copies the next small run, or a part of it, into out. False: out has to go first, or the run is large. */
static bool gather_one(struct tb_door_peer *p)
{
    const struct door_run *run = &p->runs[p->run_first];
    const uint32_t left = min_u32(run->bytes - p->run_done, p->data_left);
    uint32_t n = min_u32(left, OUT_BYTES - p->out_used);
    if (!run->words && run->bytes - p->run_done >= SMALL_RUN_BYTES) return false;
    if (run->words && (p->out_used % 8 != 0 || n < left)) return false;
    if (n == 0) return false;
    if (run->words)
        tb_bitmap_copy((uint64_t *)(void *)(p->out + p->out_used),
                       (const uint64_t *)(const void *)(run->at + p->run_done), n * 8);
    else
        memcpy(p->out + p->out_used, run->at + p->run_done, n);
    p->out_used += n;
    run_advance(p, n);
    return true;
}

static void gather(struct tb_door_peer *p)
{
    while (p->data_left > 0 && gather_one(p))
        continue;
}

/* Offers bytes to the socket; how many were taken. A write that was cut short is offered again with the same
 * length: TLS wants that. */
static enum tb_status offer(struct tb_door_peer *p, const void *bytes, size_t count, size_t *taken_out)
{
    struct tb_fabric *f = p->door->fabric;
    *taken_out = 0;
    size_t n = p->offered;
    if (n == 0) n = p->tcp ? tb_pace_gate_take(f, &f->out, &p->pace, count) : count;
    if (n == 0) {
        tb_chan_want_write(p->chan, false); /* until its turn comes */
        return TB_AGAIN;
    }
    const enum tb_status status = tb_chan_write(p->chan, bytes, n, taken_out);
    p->offered = n - *taken_out;
    if (status == TB_AGAIN) tb_chan_want_write(p->chan, true);
    return status;
}

static enum tb_status send_memfd(struct tb_door_peer *p)
{
    const enum tb_status status = tb_chan_send_fds(p->chan, &p->memfd_due, 1);
    if (status == TB_OK) p->memfd_due = -1;
    if (status == TB_AGAIN) tb_chan_want_write(p->chan, true);
    return status;
}

static enum tb_status send_out(struct tb_door_peer *p, size_t *sent)
{
    size_t taken = 0;
    const enum tb_status status = offer(p, p->out + p->out_at, p->out_used - p->out_at, &taken);
    p->out_at += (uint32_t)taken;
    *sent += taken;
    if (p->out_at == p->out_used) p->out_at = p->out_used = 0;
    return status;
}

static enum tb_status send_direct(struct tb_door_peer *p, size_t *sent)
{
    size_t taken = 0;
    const struct door_run *run = &p->runs[p->run_first];
    const uint32_t count = min_u32(run->bytes - p->run_done, p->data_left);
    const enum tb_status status = offer(p, run->at + p->run_done, count, &taken);
    if (taken > 0) run_advance(p, (uint32_t)taken);
    *sent += taken;
    return status;
}

/* One step. TB_END: nothing to send. */
static enum tb_status send_some(struct tb_door_peer *p, size_t *sent)
{
    if (p->out_used > 0) return send_out(p, sent);
    if (p->memfd_due >= 0) return send_memfd(p);
    if (p->data_left > 0 && p->offered == 0) gather(p);
    if (p->out_used > 0) return TB_OK;
    if (p->data_left > 0) return send_direct(p, sent);
    return begin_answer(p) ? TB_OK : TB_END;
}

static void on_writable(struct tb_chan *c, void *user)
{
    struct tb_door_peer *p = user;
    size_t sent = 0;
    enum tb_status status = TB_OK;
    if (p->lingers) return;
    while (status == TB_OK && sent < TURN_BYTES && !p->gone)
        status = send_some(p, &sent);
    if (p->gone || status == TB_AGAIN) return;
    if (status == TB_OK) {
        tb_chan_want_write(c, true); /* another turn, after the others */
    } else if (status == TB_END) {
        tb_chan_want_write(c, false);
    } else {
        cut_off(p, status);
    }
}

static void on_paced(struct tb_pace_waiter *waiter)
{
    struct tb_door_peer *p = (struct tb_door_peer *)((char *)waiter - offsetof(struct tb_door_peer, pace));
    if (!p->gone) tb_chan_want_write(p->chan, true);
}

/* ---- what comes in ---- */

static void greet(struct tb_door_peer *p, const struct tb_hop_request *r)
{
    struct tb_fabric *f = p->door->fabric;
    if (r->type != TB_HOP_REQUEST_HELLO || r->a != TB_HOP_WIRE_MAGIC || r->flags != 0 || r->zero != 0) {
        log_refused(p, TB_PEER_GARBLED, "does not greet like a reader");
        cut_off(p, TB_PEER_GARBLED);
        return;
    }
    if (r->buffer != TB_HOP_WIRE_VERSION) {
        refuse(p, TB_PEER_PROTOCOL, "speaks another version");
        return;
    }
    const bool known = p->tcp && !f->trusted;
    const struct tb_bearer bearer = {.token = &r->token,
                                     .print = known ? &tb_chan_peer(p->chan)->fingerprint : NULL};
    pthread_mutex_lock(&f->lock);
    const enum tb_status status = tb_exports_enter(&f->exports, r->b, &bearer, tb_clock_now(), &p->export);
    const uint32_t depth = status == TB_OK ? p->export->depth : 0;
    pthread_mutex_unlock(&f->lock);
    if (status != TB_OK) {
        refuse(p, status, "the token does not open the export");
        return;
    }
    p->door->stranger_count--;
    p->state = SERVING;
    p->deadline = TB_TIME_NEVER;
    struct tb_hop_answer answer = {.type = TB_HOP_ANSWER_WELCOME,
                                   .kind =
                                       (p->tcp ? f->verbs != NULL : p->export->origin.memory != NULL) ? 1 : 0,
                                   .buffer = p->export->has_shelf ? p->export->shelf.buffer + 1 : 0,
                                   .b = p->export->shelf.offset,
                                   .bytes = depth,
                                   .a = (uint64_t)(uintptr_t)p->door->nonce};
    memcpy(answer.id.bytes, p->door->nonce, sizeof p->door->nonce);
    put_answer(p, &answer);
}

static void accept_read(struct tb_door_peer *p, const struct tb_hop_request *r)
{
    const bool words = (r->flags & TB_HOP_READ_WORDS) != 0;
    if (p->run_count == TB_HOP_READS_MAX) {
        refuse(p, TB_PEER_GARBLED, "more reads than allowed");
        return;
    }
    const uint32_t bytes_max = words ? TB_HOP_WORDS_BYTES_MAX : TB_HOP_READ_BYTES_MAX;
    if (r->bytes == 0 || r->bytes > bytes_max || (r->flags & ~TB_HOP_READ_WORDS) != 0) {
        refuse(p, TB_PEER_GARBLED, "a read of a forbidden size");
        return;
    }
    const uint8_t *at = tb_export_at(p->export, r->buffer, r->a, r->bytes);
    if (at == NULL || (words && (((uintptr_t)at | r->bytes) & 7u) != 0)) {
        refuse(p, TB_PEER_GARBLED, "a read outside the export");
        return;
    }
    p->runs[(p->run_first + p->run_count++) % TB_HOP_READS_MAX] =
        (struct door_run){.at = at, .bytes = r->bytes, .words = words};
    p->run_bytes += r->bytes;
}

static void accept_attach(struct tb_door_peer *p, const struct tb_hop_request *r)
{
    const bool may = !p->tcp || p->verbs_asked;
    if (!may || r->buffer >= p->export->buffer_count || p->attach_count == ATTACHES_MAX) {
        refuse(p, TB_PEER_GARBLED, "a buffer that cannot be attached");
        return;
    }
    p->attaches[(p->attach_first + p->attach_count++) % ATTACHES_MAX] = r->buffer;
}

static void accept_verbs(struct tb_door_peer *p)
{
    struct tb_verbs *v = p->door->fabric->verbs;
    if (!p->tcp || v == NULL || p->verbs_asked) {
        refuse(p, TB_PEER_GARBLED, "asks for RDMA where there is none, or twice");
        return;
    }
    p->verbs_asked = p->verbs_due = true;
    if (tb_verbs_guest_open(v, p->export, &guest_events, p, &p->guest) != TB_OK)
        p->guest = NULL; /* no rails */
}

static void accept_tray(struct tb_door_peer *p, const struct tb_hop_request *r)
{
    if (p->tcp || p->export->origin.memory == NULL || p->tray_asked) {
        refuse(p, TB_PEER_GARBLED, "asks for a tray where there is none, or twice");
        return;
    }
    p->tray_asked = true;
    const enum tb_status status =
        tb_door_tray_open(p->door->fabric, p->export, r->a, &tray_events, p, &p->tray);
    if (status == TB_BAD_ARGUMENT)
        refuse(p, TB_PEER_GARBLED, "asks for a tray of a forbidden size");
    else
        p->tray_refused = status != TB_OK;
}

static void accept_fill(struct tb_door_peer *p, const struct tb_hop_request *r)
{
    if (p->tray == NULL || !tb_door_tray_fill(p->tray, r))
        refuse(p, TB_PEER_GARBLED, "a fill outside the export or its tray");
}

static void accept_ping(struct tb_door_peer *p, const struct tb_hop_request *r)
{
    if (p->ping_count == PINGS_MAX) {
        refuse(p, TB_PEER_GARBLED, "more pings than allowed");
        return;
    }
    p->pings[p->ping_count++] = r->a;
}

static void accept_request(struct tb_door_peer *p, const struct tb_hop_request *r)
{
    if (p->state == ENDING) return; /* was on its way */
    if (p->state == GREETING)
        greet(p, r);
    else if (r->type == TB_HOP_REQUEST_READ)
        accept_read(p, r);
    else if (r->type == TB_HOP_REQUEST_ATTACH)
        accept_attach(p, r);
    else if (r->type == TB_HOP_REQUEST_PING)
        accept_ping(p, r);
    else if (r->type == TB_HOP_REQUEST_VERBS)
        accept_verbs(p);
    else if (r->type == TB_HOP_REQUEST_TRAY)
        accept_tray(p, r);
    else if (r->type == TB_HOP_REQUEST_FILL)
        accept_fill(p, r);
    else
        refuse(p, TB_PEER_GARBLED, "an unknown request");
}

static void take_request(struct tb_door_peer *p)
{
    struct tb_reader r;
    struct tb_hop_request request;
    tb_reader_init(&r, p->in, sizeof p->in);
    p->in_used = 0;
    const enum tb_status status = tb_hop_request_decode(&r, &request);
    TB_ASSERT(status == TB_OK); /* every field is a number: all 48 bytes are a request */
    accept_request(p, &request);
}

static void on_readable(struct tb_chan *c, void *user)
{
    struct tb_door_peer *p = user;
    for (uint32_t i = 0; i < 2 * TB_HOP_READS_MAX && !p->gone; i++) {
        size_t got = 0;
        const enum tb_status status = tb_chan_read(c, p->in + p->in_used, sizeof p->in - p->in_used, &got);
        if (status == TB_AGAIN) break;
        if (status != TB_OK) {
            p->gone = true; /* the chan closes itself */
            return;
        }
        p->in_used += (uint32_t)got;
        if (p->in_used == sizeof p->in) take_request(p);
    }
    if (!p->gone && !p->lingers && !p->pace.waiting) tb_chan_want_write(c, true);
}

static void on_open(struct tb_chan *c, void *user, const struct tb_chan_peer *peer)
{
    (void)c, (void)user, (void)peer;
}

static const struct tb_chan_ops peer_ops = {
    .on_open = on_open, .on_readable = on_readable, .on_writable = on_writable, .on_closed = on_closed};

/* ---- coming in ---- */

/* A host that dies without a word must not stay a reader: its export could not be closed without cutting. */
static void watch_for_death(int fd)
{
    const int on = 1, idle_s = 10, every_s = 3, tries = 3;
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof every_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof tries);
}

/* A unix socket's buffer does not tune itself; the kernel takes of this what its limit allows. */
static void make_room(int fd)
{
    const int bytes = 4 << 20;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

static void come_in(struct tb_door *door, int fd, bool tcp)
{
    struct tb_door_peer *p = NULL;
    if (door->closed || door->peer_count >= PEERS_MAX || door->stranger_count >= STRANGERS_MAX) goto undo_fd;
    p = tb_calloc(1, sizeof *p);
    if (p == NULL) goto undo_fd;
    p->door = door;
    p->tcp = tcp;
    p->memfd_due = -1;
    p->pace.ready = on_paced;
    p->deadline = tb_clock_now() + GREET_WITHIN;
    if (tcp)
        watch_for_death(fd);
    else
        make_room(fd);
    const struct tb_chan_options options = {.loop = &door->fabric->loop,
                                            .tls = tcp && !door->fabric->trusted ? door->fabric->tls : NULL,
                                            .expect = {.any_fingerprint = true},
                                            .ops = &peer_ops,
                                            .user = p,
                                            .open_ms = 5000};
    if (tb_chan_accept(&options, fd, &p->chan) != TB_OK) { /* took fd */
        tb_free(p);
        tb_log(TB_LOG_WARN, "door.refused", "door=%s status=site_nomem reason=no_channel",
               tcp ? "tcp" : "shm");
        return;
    }
    LIST_INSERT_HEAD(&door->peers, p, link);
    door->peer_count++;
    door->stranger_count++;
    tb_fabric_wake_at(door->fabric, p->deadline);
    return;

undo_fd:
    close(fd);
    if (!door->closed)
        tb_log(TB_LOG_WARN, "door.refused", "door=%s status=site_nomem peers=%u strangers=%u reason=full",
               tcp ? "tcp" : "shm", door->peer_count, door->stranger_count);
}

static void on_tcp(void *user, int fd, const struct tb_address *from)
{
    (void)from;
    come_in(user, fd, true);
}

static void on_local(void *user, int fd, const struct tb_address *from)
{
    (void)from;
    come_in(user, fd, false);
}

static enum tb_status listen_at(struct tb_door *door, const char *text, tb_accept_fn fn,
                                struct tb_listener **listener_out)
{
    struct tb_endpoint endpoint;
    struct tb_address address;
    enum tb_status status = tb_endpoint_parse(text, &endpoint);
    if (status == TB_OK) status = tb_endpoint_address(&endpoint, &address);
    if (status == TB_OK) status = tb_listen(&door->fabric->loop, &address, 0, fn, door, listener_out);
    return status;
}

static enum tb_status listen_local(struct tb_door *door)
{
    struct tb_id id;
    char hex[TB_HEX_CHARS], text[128];
    struct tb_fabric_endpoint *e = &door->fabric->endpoint;
    tb_random_bytes(id.bytes, sizeof id.bytes);
    tb_id_format(&id, hex);
    snprintf(e->shm_door, sizeof e->shm_door, "tombolo-%s", hex);
    snprintf(text, sizeof text, "unix:@%s", e->shm_door);
    return listen_at(door, text, on_local, &door->local);
}

static enum tb_status listen_tcp(struct tb_door *door, const char *at)
{
    const enum tb_status status = listen_at(door, at, on_tcp, &door->tcp);
    if (status != TB_OK) return status;
    const struct tb_address address = tb_listener_address(door->tcp);
    tb_address_format(&address, door->fabric->endpoint.tcp, sizeof door->fabric->endpoint.tcp);
    return TB_OK;
}

enum tb_status tb_door_open(struct tb_fabric *f, const char *tcp_address, struct tb_door **door_out)
{
    struct tb_door *door = tb_calloc(1, sizeof *door);
    if (door == NULL) return TB_SITE_NOMEM;
    *door_out = door; /* the caller frees it after the loop has turned, whatever we answer */
    door->fabric = f;
    LIST_INIT(&door->peers);
    tb_random_bytes(door->nonce, sizeof door->nonce);
    enum tb_status status = listen_local(door);
    if (status == TB_OK && tcp_address != NULL) status = listen_tcp(door, tcp_address);
    if (status != TB_OK) tb_door_close(door);
    return status;
}

void tb_door_close(struct tb_door *door)
{
    door->closed = true;
    if (door->tcp != NULL) tb_listener_close(door->tcp);
    if (door->local != NULL) tb_listener_close(door->local);
    door->tcp = door->local = NULL;
    struct tb_door_peer *p;
    LIST_FOREACH(p, &door->peers, link)
    if (p->tray != NULL && !p->lingers)
        end(p, TB_SITE_DRAINING); /* its tray is freed when it has closed it */
    else
        cut_off(p, TB_SITE_DRAINING);
}

bool tb_door_quiet(const struct tb_door *door)
{
    return LIST_EMPTY(&door->peers);
}

void tb_door_free(struct tb_door *door)
{
    tb_free(door);
}

void tb_door_revoke(struct tb_door *door, const struct tb_export *export)
{
    struct tb_door_peer *p;
    LIST_FOREACH(p, &door->peers, link)
    if (p->export == export) end(p, TB_PEER_REVOKED);
}

tb_time_ns tb_door_poll(struct tb_door *door, tb_time_ns now)
{
    tb_time_ns next = TB_TIME_NEVER;
    struct tb_door_peer *p;
    LIST_FOREACH(p, &door->peers, link)
    {
        if (p->gone || p->state == SERVING) continue;
        if (p->deadline > now) {
            next = tb_time_min(next, p->deadline);
            continue;
        }
        if (p->state == GREETING) log_refused(p, TB_STREAM_IDLE, "did not greet in time");
        if (p->tray != NULL && !door->closed)
            linger(p);
        else
            cut_off(p, TB_STREAM_IDLE);
    }
    return next;
}
